//! Commits: how the writes of a command become durable as one.
//!
//! | | without a log | with a log |
//! | --- | --- | --- |
//! | one write | one operation of the index | the same; it is a commit of one key |
//! | several writes | an intent (`intents.rs`) | one transaction of the pool |
//! | expiry entries | new ones before the commit, old ones after it | in the commit |
//! | a crash, or a power cut | the next opening executes the intent | the pool has the commit, or not |
//!
//! No other code depends on that, except for the reserve of intents, which a pool with a log does
//! not have. Commands hold exclusive locks of their keys, so two transactions do not conflict. If
//! they do all the same, the pool runs the transaction again.
//!
//! With a log, all writes of a commit have at most 16 MiB together, with the values that they
//! replace.

use std::collections::HashSet;

use pando_pmem::mutant;

use crate::failure::{Failure, Result};
use crate::store::Store;
use crate::writes::Writes;

/// The longest list of expiry entries that is searched entry by entry. A transaction with many
/// EXPIRE has a longer one.
const FEW: usize = 8;

/// A key, and its new value; `None` removes the record.
pub(crate) type LentWrite<'write> = (&'write [u8], Option<&'write [u8]>);

/// Expiry entries that change with a commit. One entry may be in both lists; then it stays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expiries<'commit> {
    pub new: &'commit [Vec<u8>],
    pub old: &'commit [Vec<u8>],
}

impl Store {
    /// Makes the writes of a command durable as one. The caller holds their keys exclusively. After
    /// an error none has happened.
    #[inline]
    pub(crate) fn commit(&self, writes: &Writes, expiries: Expiries<'_>) -> Result<()> {
        let Expiries { new, old } = expiries;
        let many = (new.len() > FEW).then(|| new.iter().collect::<HashSet<_>>());
        let is_new =
            |entry| many.as_ref().map_or_else(|| new.contains(entry), |new| new.contains(entry));
        let old = old.iter().filter(|entry| !is_new(entry));
        if self.log.is_none() {
            return self.commit_without_log(writes, new, old);
        }
        match writes.only() {
            Some((key, write)) if new.is_empty() && old.clone().next().is_none() => {
                self.write(key, write)
            }
            _ => {
                let writes = writes.iter().map(|(key, write)| (key, write.as_deref()));
                let new = new.iter().map(|entry| (entry.as_slice(), Some(&[][..])));
                let all: Vec<LentWrite<'_>> =
                    writes.chain(new).chain(old.map(|entry| (entry.as_slice(), None))).collect();
                self.commit_as_transaction(&all)
            }
        }
    }

    fn commit_without_log<'entry>(
        &self,
        writes: &Writes,
        new: &[Vec<u8>],
        old: impl Iterator<Item = &'entry Vec<u8>>,
    ) -> Result<()> {
        for entry in new {
            self.map.upsert(entry, [])?;
        }
        match writes.only() {
            Some((key, write)) => self.write(key, write)?,
            None if writes.is_empty() => {}
            None => self.commit_many(writes)?,
        }
        for entry in old {
            // The sweep skips an entry that is left.
            let _ = self.map.remove(entry);
        }
        Ok(())
    }

    /// Commits a few writes as one, if the pool has a log. Otherwise it does nothing, and returns
    /// false: the caller writes them in an order that needs no commit.
    #[inline]
    pub(crate) fn commit_with_log(&self, writes: &[LentWrite<'_>]) -> Result<bool> {
        if self.log.is_none() {
            return Ok(false);
        }
        self.commit_as_transaction(writes).map(|()| true)
    }

    fn commit_as_transaction(&self, writes: &[LentWrite<'_>]) -> Result<()> {
        if mutant!("serve-commit-in-parts") {
            return writes.iter().try_for_each(|(key, write)| self.write(key, *write));
        }
        let is_tight = self.memory.is_tight();
        let mut removed_bytes = Vec::new();
        for (key, _) in writes.iter().filter(|(_, write)| is_tight && write.is_none()) {
            let value_bytes = self.map.read(key, <[u8]>::len)?;
            removed_bytes.extend(value_bytes.map(|value_bytes| (key.len(), value_bytes)));
        }
        self.pool.transaction(|transaction| {
            for (key, write) in writes {
                #[cfg(test)]
                self.refusals.step()?;
                match write {
                    Some(value) => transaction.put(&self.map, key, value)?,
                    None => transaction.remove(&self.map, key)?,
                }
            }
            Ok::<_, Failure>(())
        })?;
        for (key, write) in writes {
            self.memory.note_write(key.len(), write.map(<[u8]>::len));
        }
        for (key_bytes, value_bytes) in removed_bytes {
            self.memory.note_removal(key_bytes, value_bytes);
        }
        Ok(())
    }
}
