//! Dropping a whole tree.
//!
//! Leaves are emptied and merged, the root collapses, the table's segments are given back one by one, each
//! by one PMwCAS; the last takes the map out of the catalog, and frees its header and its anchor. A
//! crash before that leaves the map, with fewer records.

use std::sync::atomic::Ordering;

use pando_index::Error;
use pando_pmem::Domain;
use pando_pmem::catalog::MapEntry;
use pando_pmwcas::Policy;
use pando_pmwcas::maps::MapError;

use crate::build::{NewPage, each_record};
use crate::context::{Context, Probe, Target, Value};
use crate::gather::{Gathered, Item};
use crate::layout::{FRESH_AT, Link, NEXT_SEGMENT_AT, SEGMENTS_AT, SWEEP_AT};
use crate::style::{Style, Values};
use crate::table::{begun_off, check_segment};
use crate::tree::BwTree;

/// Blocks that one step frees beside those that any change of a page does.
const FREED_AT_ONCE: usize = 9;

impl<D: Domain, S: Style> BwTree<D, S> {
    /// Removes all records, and then the map `entry`, which is this tree's, from the catalog. No
    /// other handle or cursor may be used meanwhile, or afterwards. When it returns, the map is gone
    /// durably.
    pub(crate) fn drop_map(&self, entry: &MapEntry) -> Result<(), Error> {
        loop {
            self.empty_leaves()?;
            while self.is_high()? {}
            let guard = self.pin()?;
            let context = self.context(&guard);
            if !self.free_root(context)? {
                continue;
            }
            self.free_segments(context)?;
            let root = self.root_pid(context);
            let seal = (root, Link::EMPTY.0, Link::removed(0, 0).0);
            match self.pmwcas().drop_map(&guard, entry, self.anchor(context), Some(seal)) {
                Err(MapError::Busy) => {}
                result => return result.map_err(Error::storage),
            }
        }
    }

    /// Takes all records out of all leaves.
    fn empty_leaves(&self) -> Result<(), Error> {
        let mut from = Some(Vec::new());
        while let Some(key) = from {
            let guard = self.pin()?;
            let context = self.context(&guard);
            let at = self.find_holder(context, Target::Holding(Probe::new(&key)))?;
            let gathered = Gathered::new(context, at.link)?;
            let mut freed = gathered.blocks.clone();
            let mut left = Vec::new();
            let mut records = 0;
            each_record(&gathered.items(false), |key, value| {
                records += 1;
                match value {
                    Value::Block(off) if freed.len() < FREED_AT_ONCE => freed.push(off),
                    Value::Block(_) => left.push(Item::One(key, value)),
                    Value::Inline(_) => {}
                }
            });
            if records == 0 {
                from = gathered.high.map(<[u8]>::to_vec);
                continue;
            }
            let page = NewPage {
                level: 0,
                low: gathered.low,
                high: gathered.high,
                right: gathered.right,
                lsn: gathered.lsn,
                items: &left,
                room: self.room(0),
            };
            guard.relieve(|| {
                let block = page.build(context)?;
                S::replace(context, at, block, false, &freed, Values::NONE)
            })?;
            from = Some(key);
        }
        Ok(())
    }

    /// Takes a step towards a root that is a leaf; whether it is none yet.
    fn is_high(&self) -> Result<bool, Error> {
        let guard = self.pin()?;
        let context = self.context(&guard);
        if !self.root(context)?.link.is_inner() {
            return Ok(false);
        }
        guard.relieve(|| self.merge_first(context))?;
        Ok(true)
    }

    /// Frees the root page, which has no records; whether it was as it was seen.
    fn free_root(&self, context: Context<'_, '_, D>) -> Result<bool, Error> {
        let root = self.root(context)?;
        if root.link == Link::EMPTY {
            return Ok(true);
        }
        let gathered = Gathered::new(context, root.link)?;
        if root.link.is_inner() || !gathered.items(false).is_empty() {
            return Ok(false);
        }
        let mut operation = context.pmwcas.allocate(context.guard).map_err(Error::storage)?;
        operation.add_word(root.pid, root.link.0, Link::EMPTY.0).map_err(Error::storage)?;
        let begun = begun_off(root.pid);
        operation.add_word(begun, context.read(begun), 0).map_err(Error::storage)?;
        for block in gathered.blocks {
            operation.own_block(block, Policy::FreeOldOnSuccess).map_err(Error::storage)?;
        }
        Ok(operation.execute())
    }

    fn free_segments(&self, context: Context<'_, '_, D>) -> Result<(), Error> {
        let anchor = self.anchor(context);
        // No cursor may point to what is freed, should the map stay.
        for at in [FRESH_AT, SWEEP_AT] {
            let cursor = context.pool().word(anchor + at);
            cursor.store(0, Ordering::Release);
            cursor.flush();
        }
        D::fence();
        loop {
            let newest = context.read(anchor + SEGMENTS_AT);
            if newest == 0 {
                return Ok(());
            }
            check_segment(context, newest, anchor)?;
            let next = context.read(newest + NEXT_SEGMENT_AT);
            let mut operation = context.pmwcas.allocate(context.guard).map_err(Error::storage)?;
            operation.add_word(anchor + SEGMENTS_AT, newest, next).map_err(Error::storage)?;
            operation.own_block(newest, Policy::FreeOldOnSuccess).map_err(Error::storage)?;
            operation.execute();
        }
    }
}
