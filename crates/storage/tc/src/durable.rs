//! Versions as of the durable LSN, for pages that are written to a store while commits go on.
//!
//! A page must not bring a version to the disk whose commit a power cut may take back, and must not
//! take the version before from it. (This is the rule of write-ahead logging.) The paper's system
//! waits for the log before it writes a page. Here the page is written at once, and each record
//! whose version is above the durable LSN is written as it was at that LSN: its commit's record in
//! the tail has the version that it replaced.
//!
//! | order | why |
//! | --- | --- |
//! | pin; read the durable LSN | records above it are in the tail, and stay until the guard goes |
//! | then look at the page | a version up to that LSN is committed, since its commit is settled |
//!
//! Nothing is written, so a crash leaves nothing.

use std::cell::RefCell;

use pando_log::Log;
use pando_pmem::{Domain, Guard, mutant};

use crate::error::{Error, Result};
use crate::record::Commit;
use crate::stamp::{Stamp, Version, bytes_of};

/// The version of a key as of the durable LSN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Durable {
    /// That which the map has.
    Newest,
    /// None.
    Absent,
    /// This one, with its stamp.
    Earlier(Vec<u8>),
    /// The version that the commit with this LSN has replaced and not read. The store has it.
    Unread(u64),
}

/// Tells versions as of the durable LSN of the time when it was made.
#[derive(Debug)]
pub struct DurableVersions<'log, D: Domain> {
    log: &'log Log<D>,
    guard: Guard<'log, D>,
    lsn: u64,
    /// The last commit that was decoded, and the offset of its record: it has many keys, perhaps.
    known: RefCell<Option<(u64, Commit)>>,
}

impl<'log, D: Domain> DurableVersions<'log, D> {
    /// As of now. The values that it is asked for must be read afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] if no participant slot is free.
    pub fn now(log: &'log Log<D>) -> Result<Self> {
        let guard = log.pool().pin().map_err(pando_log::Error::from)?;
        Ok(Self { lsn: log.durable_lsn(), log, guard, known: RefCell::default() })
    }

    /// The LSN up to which it tells versions.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// From now on as of the durable LSN of now. What was asked before is forgotten, and values
    /// must be read again.
    pub fn renew(&mut self) {
        self.lsn = self.log.durable_lsn();
    }

    /// The version of `key` as of the durable LSN. The map, which is transactional, has `value`.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn of(&self, map: u64, key: &[u8], value: &[u8]) -> Result<Durable> {
        let damaged = |what| Error::Damaged { map, key: key.to_vec(), what };
        let (newest, _) = Stamp::split(value).ok_or_else(|| damaged("its value has no stamp"))?;
        let mut version = Version { stamp: newest, value: None };
        let mut replacing_lsn = 0;
        let lsn = match mutant!("tc-durable-lsn-read-late") {
            true => self.log.durable_lsn(),
            false => self.lsn,
        };
        while version.stamp.lsn() > lsn && !mutant!("tc-page-ahead-of-the-log") {
            let Version { stamp, .. } = version;
            replacing_lsn = stamp.lsn();
            let mut known = self.known.borrow_mut();
            let commit = match &*known {
                Some((off, commit)) if *off == stamp.record_off() => commit,
                _ => {
                    let record = self.log.record(&self.guard, stamp.record_off());
                    let commit =
                        (record.lsn() == stamp.lsn()).then(|| Commit::decode(&record.payload()));
                    let commit = commit.flatten();
                    let commit = commit.ok_or_else(|| damaged("its commit is unreadable"))?;
                    &known.insert((stamp.record_off(), commit)).1
                }
            };
            let index = commit.write_of(map, key);
            let index = index.ok_or_else(|| damaged("its commit has not written it"))?;
            version = commit.writes[index].old.clone();
            if version.stamp.lsn() >= stamp.lsn() {
                return Err(damaged("its commit replaces a later version"));
            }
        }
        Ok(match version.stamp {
            stamp if stamp == newest => Durable::Newest,
            Stamp::ABSENT => Durable::Absent,
            Stamp::UNRECORDED => Durable::Unread(replacing_lsn),
            stamp => Durable::Earlier(bytes_of(stamp, version.value.as_deref())),
        })
    }
}
