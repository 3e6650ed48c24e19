//! The sorted array as a kind of index that pools hold.

use std::sync::Arc;

use pando_index::Error;
use pando_pmem::{Block, Domain, Guard, Reservation};
use pando_pmwcas::Pmwcas;
use pando_tree::maps::{Audit, Catalog, IndexKind, ProblemClass, Setting, Settings, Stat, Unit};

use crate::array::{self, Array, HEADER_BYTES};
use crate::index::SortedArray;

/// Sorted arrays.
#[derive(Clone, Copy, Debug)]
pub enum SortedArrays {}

impl IndexKind for SortedArrays {
    // Numbers from 0xFFFF_0000 on are for examples and experiments.
    const NUMBER: u64 = 0xFFFF_0001;
    const NAME: &'static str = "sorted-array";
    const WHAT: &'static str = "an example: one sorted array, copied on every write";
    const SETTINGS: &'static [Setting] = &[];

    type Index<D: Domain> = SortedArray<D>;

    fn first_block<'guard, 'pool, D: Domain>(
        _: &'guard Pmwcas<D>,
        guard: &'guard Guard<'pool, D>,
        _: &Settings,
    ) -> pando_pmem::Result<Reservation<'guard, 'pool, D>> {
        let content = array::empty();
        let mut block = guard.reserve(content.len() as u64)?;
        block.write(0, &content);
        block.flush(0, content.len() as u64);
        Ok(block)
    }

    fn open<D: Domain>(catalog: Arc<Catalog<D>>, root_off: u64, _: &Settings) -> SortedArray<D> {
        SortedArray { catalog, root_off }
    }

    fn walk<D: Domain>(
        index: &SortedArray<D>,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Audit, Error> {
        let guard = index.pin()?;
        let off = index.catalog.read(&guard, index.root_off);
        let mut audit = Audit::default();
        let Some(bytes) = guard.pool().active_block(off).filter(|&bytes| bytes >= HEADER_BYTES)
        else {
            audit.problem(ProblemClass::Block, off, "the array's block is not allocated");
            return Ok(audit);
        };
        audit.blocks.push(Block { off, bytes });
        let array = Array::at(&guard, off);
        if array.bytes > bytes {
            let found = array.bytes;
            let what = format!("the array says {found} bytes, its block has {bytes}");
            audit.problem(ProblemClass::Count, off, what);
            return Ok(audit);
        }
        let block = array.copy();
        match Array::<D>::decode(&block) {
            Ok(records) => {
                if records.is_sorted_by(|left, right| left.0 < right.0) {
                    records.iter().for_each(|(key, value)| visit(key, value));
                } else {
                    audit.problem(ProblemClass::Order, off, "the keys do not ascend");
                }
                audit.stat = Stat {
                    height: 1,
                    leaves: 1,
                    records: records.len() as u64,
                    leaf_bytes: bytes,
                    live_bytes: array.bytes,
                    ..Stat::default()
                };
            }
            Err(what) => audit.problem(ProblemClass::Count, off, what),
        }
        Ok(audit)
    }

    fn next_unit<D: Domain>(
        pmwcas: &Pmwcas<D>,
        guard: &Guard<'_, D>,
        root_off: u64,
        _: &Settings,
    ) -> Unit {
        let off = pmwcas.read(guard, root_off);
        match pmwcas.pool().active_block(off) {
            Some(_) => Unit::of_block(root_off, off, 0, off),
            None => Unit::passed_over(root_off, off),
        }
    }
}
