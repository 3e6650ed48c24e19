//! The name of a pool's log, and its replacement by another one.
//!
//! | step | what is written | a crash leaves |
//! | --- | --- | --- |
//! | propose a log | the name that is not the log's; then the bit *proposed* of the word `log` | the former log, perhaps with a proposal |
//! | replace the log by the proposed one | the word `log` of the superblock, by one store, which decides | the former log and the proposal, or the new log |
//!
//! Each step is durable before the next one begins. One thread at a time takes them.

use std::sync::atomic::Ordering;

use super::Pool;
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::log_name::LogName;
use crate::superblock::{LOG_NAME_BYTES, LOG_NAMES_OFF, LogNames};

impl<D: Domain> Pool<D> {
    /// The log of the pool; `None` if it has no log.
    pub fn log_name(&self) -> Option<LogName> {
        self.log_name_at(self.log_names().current?)
    }

    /// The log that is proposed in the place of the pool's; `None` if there is none.
    pub fn proposed_log(&self) -> Option<LogName> {
        let names = self.log_names();
        self.log_name_at(1 - names.current.filter(|_| names.is_proposed)?)
    }

    /// Proposes `log` in the place of the pool's log, and forgets an earlier proposal. Durable on
    /// return.
    ///
    /// # Errors
    ///
    /// [`Error::BadOption`] if the path is too long, or the pool has no log; [`Error::Io`] if it
    /// cannot be synced.
    pub fn propose_log(&self, log: &LogName) -> Result<()> {
        log.check()?;
        let current = self.log_names().current.ok_or_else(no_log)?;
        // First, so that no proposal is torn; unless it is this one, whose bytes do not change.
        if self.proposed_log().as_ref() != Some(log) {
            self.set_log_names(LogNames { current: Some(current), is_proposed: false })?;
        }
        let off = LogNames::name_off(1 - current);
        self.store_bytes(off, &log.encode());
        self.flush(off, LOG_NAME_BYTES as u64);
        D::fence();
        self.sync_unless_it_survives()?;
        self.set_log_names(LogNames { current: Some(current), is_proposed: true })
    }

    /// Replaces the pool's log by the proposed one. Durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::BadOption`] if none is proposed; [`Error::Io`] if it cannot be synced: then it is
    /// replaced, and a crash of the machine may undo that.
    pub fn replace_log(&self) -> Result<()> {
        let current = self.log_names().current.filter(|_| self.proposed_log().is_some());
        let current = current.ok_or_else(no_log)?;
        self.set_log_names(LogNames { current: Some(1 - current), is_proposed: false })
    }

    /// Makes durable which log the pool has. A process that was killed in
    /// [`replace_log`](Self::replace_log), or whose sync failed there, has not.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be synced.
    pub fn secure_log_name(&self) -> Result<()> {
        // Stored again: after a failed sync the system may take the page for written.
        self.set_log_names(self.log_names())
    }

    fn log_names(&self) -> LogNames {
        // Acquire: with the release below, after the name was written.
        LogNames::of_word(self.word(LOG_NAMES_OFF).load(Ordering::Acquire)).unwrap_or_default()
    }

    fn set_log_names(&self, names: LogNames) -> Result<()> {
        let word = self.word(LOG_NAMES_OFF);
        word.store(names.word(), Ordering::Release);
        word.flush();
        D::fence();
        self.sync_unless_it_survives()
    }

    fn log_name_at(&self, number: u64) -> Option<LogName> {
        LogName::decode(&self.load_bytes(LogNames::name_off(number), LOG_NAME_BYTES as u64))
    }

    fn sync_unless_it_survives(&self) -> Result<()> {
        if self.survives_power { Ok(()) } else { self.sync_data() }
    }
}

fn no_log() -> Error {
    Error::BadOption {
        option: "logs of the pool",
        found: 0,
        allowed: "1, and a proposed one".to_owned(),
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::pool::{CreateOptions, OpenPool};
    use crate::superblock::MAX_LOG_PATH_BYTES;
    use crate::testing::{CutShort, folder, kill_after, written_back};

    type Tested = CutShort<true>;

    fn name(id: u128) -> LogName {
        LogName { id, path: format!("/logs/{id}").into() }
    }

    /// A kill at each write of a proposal and of a replacement leaves the former log or the new
    /// one, and the proposal as a whole or none.
    #[test]
    fn a_kill_leaves_the_former_log_or_the_new_one() {
        let folder = folder();
        let path = folder.path().join("pool");
        let mut seen = [0; 3];
        for writes in 0.. {
            let new = Pool::<Tested>::prepare(&path, &CreateOptions::default(), Some(name(1)));
            let pool = new.and_then(|new| new.publish(false)).expect("a pool");
            pool.propose_log(&name(2)).expect("proposed");
            let ended = kill_after(writes, || {
                pool.propose_log(&name(3)).expect("proposed");
                pool.replace_log().expect("replaced");
            });
            pool.abandon();
            let pool = Pool::<Tested>::open(&path, &OpenPool::default()).expect("opens");
            match (pool.log_name(), pool.proposed_log()) {
                (Some(log), None) if log == name(1) => seen[0] += 1,
                (Some(log), Some(proposed)) if log == name(1) => {
                    seen[1] += 1;
                    assert!(proposed == name(2) || proposed == name(3), "{proposed:?}");
                }
                (Some(log), None) if log == name(3) => seen[2] += 1,
                found => panic!("after {writes} writes: {found:?}"),
            }
            drop(pool);
            std::fs::remove_file(&path).expect("removed");
            if ended.is_some() {
                break;
            }
        }
        assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
    }

    /// Else a kill would leave files of the proposed log that no later reset knows.
    #[test]
    fn a_proposal_that_is_repeated_is_there_all_the_time() {
        let folder = folder();
        let path = folder.path().join("pool");
        let new = Pool::<Tested>::prepare(&path, &CreateOptions::default(), Some(name(1)));
        let pool = new.and_then(|new| new.publish(false)).expect("a pool");
        pool.propose_log(&name(2)).expect("proposed");
        for writes in 0.. {
            let ended = kill_after(writes, || pool.propose_log(&name(2)).expect("proposed"));
            assert_eq!(pool.proposed_log(), Some(name(2)), "after {writes} writes");
            if ended.is_some() {
                break;
            }
        }
    }

    #[test]
    fn a_name_is_written_back_before_the_word_that_selects_it() {
        let folder = folder();
        let path = folder.path().join("pool");
        let new = Pool::<Tested>::prepare(&path, &CreateOptions::default(), Some(name(1)));
        let pool = new.and_then(|new| new.publish(false)).expect("a pool");
        let ((), lines) = written_back(|| pool.propose_log(&name(2)).expect("proposed"));
        let first = pool.word(LogNames::name_off(1)).address();
        let bytes: Vec<u8> = (first..first + LOG_NAME_BYTES)
            .step_by(64)
            .flat_map(|line| lines[&line])
            .flat_map(u64::to_le_bytes)
            .collect();
        assert_eq!(LogName::decode(&bytes), Some(name(2)));
        let ((), lines) = written_back(|| pool.replace_log().expect("replaced"));
        let at = pool.word(LOG_NAMES_OFF).address();
        let word = lines[&(at / 64 * 64)][at % 64 / 8];
        let is_proposed = false;
        assert_eq!(LogNames::of_word(word), Some(LogNames { current: Some(1), is_proposed }));
    }

    #[test]
    fn a_proposal_that_cannot_be_is_refused() {
        let pool = Pool::<Tested>::anonymous(&CreateOptions::default()).expect("memory");
        assert!(pool.propose_log(&name(1)).is_err() && pool.replace_log().is_err());
        let folder = folder();
        let path = folder.path().join("pool");
        let new = Pool::<Tested>::prepare(&path, &CreateOptions::default(), Some(name(1)));
        let pool = new.and_then(|new| new.publish(false)).expect("a pool");
        assert!(pool.replace_log().is_err(), "none is proposed");
        let long = LogName { id: 2, path: "p".repeat(MAX_LOG_PATH_BYTES + 1).into() };
        let refused = pool.propose_log(&long).expect_err("too long");
        assert!(matches!(refused, Error::BadOption { .. }), "{refused}");
        assert_eq!(pool.proposed_log(), None);
    }
}
