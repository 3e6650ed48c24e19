//! Salvage: the readable keys of a pool that cannot be trusted, in a new store.
//!
//! Records are read one by one, independent of their nodes. So some may be missing, or older than
//! others. Therefore data that describe other records are not copied: the size of a collection is
//! counted, records by score are derived from records by name, and the list of expiries is derived
//! from the heads. Elements without a head are skipped. A missing piece of a long string reads as
//! zeros. A part of the writes in progress at the crash may exist, also a part of one command,
//! because the medium may have lost any of them.

use std::collections::HashMap;

use pando::Pool;

use crate::failure::{Failure, Result};
use crate::layout::{
    Content, Count, DATABASES, Element, Head, Kind, split_collection, split_element_key,
    split_head_key, split_piece_key,
};
use crate::own_keys;
use crate::pieces::counted_bytes;
use crate::restore::Restored;
use crate::store::{MAP_NAME, Store};

/// The result of a salvage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Salvaged {
    /// Keys in the new store.
    pub keys: u64,
    /// Unreadable places and damaged records of the old pool.
    pub problems: u64,
}

/// A salvage in progress.
struct Salvage<'store> {
    store: &'store Store,
    spaces: [u8; DATABASES as usize],
    /// Collections and long strings whose elements or pieces have not been read yet.
    waiting: HashMap<u64, Restored>,
    /// The collection or string whose elements or pieces are being read.
    now: Option<(u64, Restored)>,
    salvaged: Salvaged,
}

impl Store {
    /// Loads the readable records of a pool that was opened for salvage into this store, which must
    /// be empty.
    pub(crate) fn restore_salvaged(&self, old: &Pool) -> Result<Salvaged> {
        let mut spaces = std::array::from_fn(|database| database as u8);
        old.salvage(MAP_NAME, |key, value| {
            if key == own_keys::own("spaces") {
                spaces = value.try_into().unwrap_or(spaces);
            }
        })?;
        self.begin_restoring()?;
        let mut salvage = Salvage {
            store: self,
            spaces,
            waiting: HashMap::new(),
            now: None,
            salvaged: Salvaged::default(),
        };
        let mut failed = None;
        let report = old.salvage(MAP_NAME, |key, value| {
            if failed.is_none() {
                failed = salvage.record(key, value).err();
            }
        })?;
        if let Some(failure) = failed {
            return Err(failure);
        }
        salvage.end_collection()?;
        for (_, collection) in std::mem::take(&mut salvage.waiting) {
            salvage.put_collection(collection)?;
        }
        self.end_restoring()?;
        salvage.salvaged.problems += report.problems.len() as u64;
        Ok(salvage.salvaged)
    }
}

impl Salvage<'_> {
    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let taken = if let Some((space, _, name)) = split_head_key(key) {
            self.head(space, name, value)
        } else if let Some(id) = split_collection(key) {
            self.element(id, key, value)
        } else {
            // A record of the store's own; the new store has its own.
            Ok(())
        };
        match taken {
            // The record is damaged and is skipped.
            Err(Failure::Damaged) => {
                self.salvaged.problems += 1;
                Ok(())
            }
            taken => taken,
        }
    }

    fn head(&mut self, space: u8, key: &[u8], value: &[u8]) -> Result<()> {
        // A head of a flushed space.
        let Some(database) = self.spaces.iter().position(|&used| used == space) else {
            return Ok(());
        };
        let head = Head::decode(value).ok_or(Failure::Damaged)?;
        if let Some((id, collection)) = self.store.restore_head(database as u8, key, &head)? {
            // During a rename two heads refer to one collection. The later one gets it.
            let is_second = self.waiting.insert(id, collection).is_some();
            self.salvaged.problems += u64::from(is_second);
        } else if head.expires_at.is_none_or(|at_ms| at_ms > self.store.clock().now_ms()) {
            self.salvaged.keys += 1;
        }
        Ok(())
    }

    fn element(&mut self, id: u64, key: &[u8], value: &[u8]) -> Result<()> {
        if self.now.as_ref().is_none_or(|(now, _)| *now != id) {
            self.end_collection()?;
            self.now = self.waiting.remove(&id).map(|collection| (id, collection));
        }
        // Its head was removed.
        let Some((_, restored)) = &mut self.now else { return Ok(()) };
        let kind = match restored.content {
            Content::Collection(kind, ..) => kind,
            Content::Long(long) => {
                let index = split_piece_key(key).ok_or(Failure::Damaged)?;
                let counted = value.len().min(counted_bytes(long, index));
                return self.store.restore_piece(restored, index, &value[..counted]);
            }
            Content::String(_) => return Ok(()),
        };
        let element = split_element_key(key).ok_or(Failure::Damaged)?;
        match (kind, element) {
            // It is derived from the fields.
            (Kind::SortedSet, Element::Scored(..)) => Ok(()),
            (Kind::RangeIndex, Element::Ordered(_)) => {
                self.store.restore_element(restored, element, value)
            }
            (kind, Element::Field(_)) if kind != Kind::RangeIndex => {
                self.store.restore_element(restored, element, value)
            }
            _ => Err(Failure::Damaged),
        }
    }

    fn end_collection(&mut self) -> Result<()> {
        match self.now.take() {
            Some((_, collection)) => self.put_collection(collection),
            None => Ok(()),
        }
    }

    /// Puts the head of a collection after all its elements.
    fn put_collection(&mut self, collection: Restored) -> Result<()> {
        // Only a range index may be empty.
        let is_empty = matches!(collection.content, Content::Collection(kind, _, Count::Known(0)) if kind != Kind::RangeIndex);
        if is_empty {
            self.salvaged.problems += 1;
            return Ok(());
        }
        self.salvaged.keys += 1;
        self.store.end_collection(&mut Some(collection))
    }
}
