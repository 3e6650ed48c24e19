//! Operations on whole heads: visits, copies, changes of an expiry.

use std::ops::ControlFlow;

use pando::{KeyRange, Order};
use smallvec::SmallVec;

use crate::failure::{Failure, Result};
use crate::layout::{
    CollectionId, Content, Count, HASH_BITS, Head, collection_prefix, head_key, head_prefix,
    split_element_key, split_head_key,
};
use crate::store::Store;
use crate::transaction::{Transaction, has_expired};

impl Store {
    /// Loads the records of a few keys of `database` into the processor's cache, so that their
    /// cache misses overlap; commands one after the other would wait for each. It needs no lock.
    pub fn warm(&self, database: u8, keys: &[&[u8]]) {
        let space = self.space(database);
        // All of them read one head, which the first one loads.
        if keys.iter().all(|key| *key == keys[0]) {
            return;
        }
        let full: SmallVec<[Vec<u8>; 16]> = keys.iter().map(|key| head_key(space, key)).collect();
        let lent: SmallVec<[&[u8]; 16]> = full.iter().map(Vec::as_slice).collect();
        // An error is reported by the command that reads the key.
        let _ = self.map.read_many(&lent, |_, _| {});
    }
}

impl Transaction<'_> {
    /// Visits the heads of `space` that have not expired, including this transaction's own, ordered
    /// by hash, from `first_hash` on. It needs no lock: a key that exists throughout is visited; a
    /// key that is added or removed during the visit may be.
    pub fn visit_heads(
        &self,
        space: u8,
        first_hash: u64,
        mut visit: impl FnMut(u64, &[u8], &Head<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        if first_hash >> HASH_BITS != 0 {
            return Ok(());
        }
        let range = KeyRange::between(&head_prefix(space, first_hash), &head_prefix(space + 1, 0));
        let mut is_damaged = false;
        self.scan(range, Order::Ascending, |full, value| {
            let (Some((_, hash, key)), Some(head)) = (split_head_key(full), Head::decode(value))
            else {
                is_damaged = true;
                return ControlFlow::Break(());
            };
            match has_expired(&head, self.now_ms()) {
                true => ControlFlow::Continue(()),
                false => visit(hash, key, &head),
            }
        })?;
        if is_damaged { Err(Failure::Damaged) } else { Ok(()) }
    }

    /// Changes the expiry of a key, which must exist.
    pub fn change_expiry(&mut self, space: u8, key: &[u8], expires_at: Option<u64>) -> Result<()> {
        let value = self.head_value(space, key)?;
        let head = Head::decode(&value).ok_or(Failure::Damaged)?;
        self.put_head(space, key, &Head { expires_at, ..head })
    }

    /// Copies the head of a key, which must exist, with its value to `to`, in place of the value
    /// there.
    pub fn copy_head(&mut self, from: (u8, &[u8]), to: (u8, &[u8])) -> Result<()> {
        let value = self.head_value(from.0, from.1)?;
        let mut head = Head::decode(&value).ok_or(Failure::Damaged)?;
        match head.content {
            Content::String(_) => {}
            Content::Long(long) => head.content = Content::Long(self.draft_copy(long)?),
            Content::Collection(kind, id, count) => {
                let count = self.count_of(from.0, from.1, (kind, id, count))?;
                let copy = self.store().new_id()?;
                self.copy_elements(id, copy)?;
                head.content = Content::Collection(kind, copy, Count::Known(count));
            }
        }
        self.put_head(to.0, to.1, &head)
    }

    fn head_value(&self, space: u8, key: &[u8]) -> Result<Vec<u8>> {
        let value = self.read(&head_key(space, key), |value| value.map(<[u8]>::to_vec))?;
        value.ok_or(Failure::Damaged)
    }

    fn copy_elements(&mut self, from: CollectionId, to: CollectionId) -> Result<()> {
        let mut elements = Vec::new();
        let range = KeyRange::prefix(&collection_prefix(from));
        self.scan(range, Order::Ascending, |full, value| {
            elements.push((full.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        for (full, value) in &elements {
            let element = split_element_key(full).ok_or(Failure::Damaged)?;
            self.put_element(to, element, value);
        }
        Ok(())
    }
}
