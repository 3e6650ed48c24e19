//! A transaction: what it has read, what it will write, and its commit.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use pando_log::Status;
use pando_pmem::{Domain, mutant};

use crate::commit::validate;
use crate::component::{Found, Maps, TransactionComponent};
use crate::error::{Error, Result};
use crate::record::{Commit, RangeRead, Read, Write};
use crate::snapshot::Snapshot;
use crate::snapshots::SnapshotOptions;
use crate::stamp::Version;

/// How often [`TransactionComponent::transaction`] runs a transaction before it gives up.
pub(crate) const ATTEMPTS: u32 = 1 << 10;
/// How often a commit helps others at one key before it gives up.
const STEPS: u32 = 1 << 10;

/// A key of a map.
type Key = (u64, Vec<u8>);

/// The function that [`Transaction::scan`] calls with the key and the value of each record.
pub type Visit<'call> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'call;

/// A transaction. Its writes are seen by no one else before [`commit`](Self::commit); dropped
/// before, it has done nothing. It sees its own writes.
///
/// A *serializable* transaction reads the versions that are committed at the time of each read. It
/// takes place as if alone, at one instant of its commit.
///
/// A transaction with *snapshot isolation* reads a snapshot. It takes place unless another one has
/// written one of the keys that it writes since the snapshot; what it has only read does not count.
#[must_use = "a transaction does nothing until it is committed"]
pub struct Transaction<'component, D: Domain, M: Maps> {
    pub(crate) component: &'component TransactionComponent<D, M>,
    /// What it reads, with snapshot isolation.
    pub(crate) snapshot: Option<Snapshot<'component, D, M>>,
    reads: BTreeMap<Key, Version>,
    pub(crate) ranges: Vec<RangeRead>,
    pub(crate) writes: BTreeMap<Key, Option<Vec<u8>>>,
}

impl<D: Domain, M: Maps> TransactionComponent<D, M> {
    /// Begins a serializable transaction.
    pub fn begin(&self) -> Transaction<'_, D, M> {
        Transaction {
            component: self,
            snapshot: None,
            reads: BTreeMap::new(),
            ranges: Vec::new(),
            writes: BTreeMap::new(),
        }
    }

    /// Begins a transaction with snapshot isolation, over a new snapshot.
    ///
    /// # Errors
    ///
    /// Those of [`snapshot`](Self::snapshot).
    pub fn begin_over_snapshot(&self, options: SnapshotOptions) -> Result<Transaction<'_, D, M>> {
        Ok(Transaction { snapshot: Some(self.take_snapshot(options, true)?), ..self.begin() })
    }

    /// Runs `body` in a transaction and commits it; again, if it conflicts with another one, up to
    /// 1,024 times. Returns the result of `body`, and the LSN of the commit. If `body` returns an
    /// error, nothing takes place.
    ///
    /// # Errors
    ///
    /// Those of `body`, of [`commit`](Transaction::commit), and [`Error::Conflict`] after the last
    /// attempt.
    pub fn transaction<R, E: From<Error>>(
        &self,
        mut body: impl FnMut(&mut Transaction<'_, D, M>) -> Result<R, E>,
    ) -> Result<(R, u64), E> {
        until_committed(|| {
            let mut transaction = self.begin();
            let result = body(&mut transaction)?;
            match transaction.commit() {
                Ok(lsn) => Ok(Ok((result, lsn))),
                Err(conflict @ Error::Conflict { .. }) => Ok(Err(conflict)),
                Err(error) => Err(error.into()),
            }
        })
    }
}

/// Runs `attempt` until it commits, up to 1,024 times, with more time in between after each. Its
/// result is `Ok(Err(_))` if it conflicts with another transaction.
///
/// # Errors
///
/// That of `attempt`, or the last conflict.
pub fn until_committed<R, C, E: From<C>>(
    mut attempt: impl FnMut() -> Result<Result<R, C>, E>,
) -> Result<R, E> {
    for number in 1..ATTEMPTS {
        match attempt()? {
            Ok(result) => return Ok(result),
            Err(_) => back_off(number),
        }
    }
    Ok(attempt()??)
}

/// Lets others go first: for longer after each of the first attempts, then for one turn of theirs.
pub(crate) fn back_off(attempt: u32) {
    match attempt {
        0..4 => (0..1 << attempt).for_each(|_| std::hint::spin_loop()),
        _ => std::thread::yield_now(),
    }
}

impl<D: Domain, M: Maps> Transaction<'_, D, M> {
    /// The value of `key`, as this transaction sees it; `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownMap`], [`Error::NoRoomForStamp`], [`Error::Index`], [`Error::Damaged`].
    pub fn get(&mut self, map: u64, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let key = (map, key.to_vec());
        if let Some(value) = self.writes.get(&key) {
            return Ok(value.clone());
        }
        if let Some(snapshot) = &self.snapshot {
            return snapshot.get(map, &key.1);
        }
        if let Some(version) = self.reads.get(&key) {
            return Ok(version.value.clone());
        }
        let version = self.component.version(map, &key.1)?;
        let value = version.value.clone();
        self.reads.insert(key, version);
        Ok(value)
    }

    /// Gives `key` this value.
    ///
    /// # Errors
    ///
    /// [`Error::Index`] if the key or the value is too long for the map's
    /// [`limits`](TransactionComponent::limits). Also [`Error::UnknownMap`] and
    /// [`Error::NoRoomForStamp`].
    pub fn put(&mut self, map: u64, key: &[u8], value: &[u8]) -> Result<()> {
        let limits = self.component.limits(map)?;
        limits.check_key(key)?;
        limits.check_value(value)?;
        self.writes.insert((map, key.to_vec()), Some(value.to_vec()));
        Ok(())
    }

    /// Removes `key`, if it is present.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn remove(&mut self, map: u64, key: &[u8]) -> Result<()> {
        self.component.limits(map)?.check_key(key)?;
        self.writes.insert((map, key.to_vec()), None);
        Ok(())
    }

    /// Commits the transaction; returns its LSN, or that of the newest commit if it writes nothing.
    /// On return it survives the death of any process; a power cut only after
    /// [`sync`](TransactionComponent::sync).
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if another transaction came first; [`Error::Log`] if the log has no room
    /// or has stopped; [`Error::Index`] if the pool is full; [`Error::SnapshotRevoked`]. Nothing
    /// has taken place.
    pub fn commit(self) -> Result<u64> {
        let component = self.component;
        let lsn = self.commit_unsettled()?;
        component.clean_up_after(lsn);
        Ok(lsn)
    }

    fn commit_unsettled(self) -> Result<u64> {
        let component = self.component;
        let mut this = self;
        // Released after the commit: until then a key that others have written and removed keeps
        // its tombstone, and so is found to be changed.
        let snapshot = this.snapshot.take();
        if let Some(snapshot) = &snapshot {
            snapshot.end_reads()?;
        }
        let cut = snapshot.as_ref().map(Snapshot::lsn);
        if let Some(cut) = cut.filter(|_| this.writes.is_empty()) {
            return Ok(cut);
        }
        if !this.writes.is_empty() {
            return component.commit(&this.into_commit(cut.unwrap_or(u64::MAX))?);
        }
        let guard = component.pin()?;
        let commit = this.into_commit(u64::MAX)?;
        let lsn = component.log().newest_lsn(&guard);
        let mut met = None;
        match validate(component, &guard, &commit, None, &mut met)? {
            None => Ok(lsn),
            cause => Err(component.conflict(&guard, &commit, cause, met)),
        }
    }

    /// What the record says: for each write the version that it replaces, which must not be above
    /// the LSN `newest`.
    fn into_commit(mut self, newest: u64) -> Result<Commit> {
        let mut commit = Commit { ranges: self.ranges, ..Commit::default() };
        for ((map, key), new) in self.writes {
            let read = self.reads.remove(&(map, key.clone()));
            let old = match read {
                Some(version) => version,
                None => replaceable_version(self.component, map, &key)?,
            };
            if old.stamp.lsn() > newest && !mutant!("tc-snapshot-write-not-checked") {
                return Err(Error::Conflict { map, key });
            }
            commit.writes.push(Write { map, key, old, new });
        }
        commit.reads = self
            .reads
            .into_iter()
            .map(|((map, key), version)| Read { map, key, stamp: version.stamp })
            .collect();
        Ok(commit)
    }
}

impl<D: Domain, M: Maps> std::fmt::Debug for Transaction<'_, D, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { reads, ranges, writes, .. } = self;
        let counts = [reads.len(), ranges.len(), writes.len()];
        f.debug_struct("Transaction").field("reads, ranges, writes", &counts).finish()
    }
}

/// The version of a key that a commit may replace, with the committed value. It helps commits that
/// are undecided.
pub(crate) fn replaceable_version<D: Domain, M: Maps>(
    component: &TransactionComponent<D, M>,
    map: u64,
    key: &[u8],
) -> Result<Version> {
    for _ in 0..STEPS {
        let guard = component.pin()?;
        match component.find(&guard, map, key)? {
            Found::Settled(version) => return Ok(version),
            Found::InFlight(unsettled)
                if unsettled.status == Status::Failed || mutant!("tc-replaces-in-flight") =>
            {
                return Ok(Version { stamp: unsettled.stamp, ..unsettled.replaced });
            }
            Found::InFlight(unsettled) => component.help(&guard, unsettled.record)?,
        }
    }
    Err(Error::Conflict { map, key: key.to_vec() })
}
