//! Blind writes: commits of one key that do not read the version which they replace. They are
//! possible where `write_blind` of the index does not read the key.
//!
//! | step | deciding word | a thread that stops or dies leaves |
//! | --- | --- | --- |
//! | append the record, while the index knows nothing of the key; it says that the replaced version was not read | `newest` of the log | an undecided commit |
//! | install, inside the same call of the index, once | the key's page | the same, with its version |
//! | decide | the status of the record | a decided record |
//!
//! A version that the index has not read is in the store. So it is durable, and its commit is
//! settled.
//!
//! * No helper installs. The owner's call of the index installs only if the page has not changed
//!   since the record was appended; otherwise the commit has failed, and the write is made again,
//!   with a read.
//! * A thread that finds the version decides that the commit is committed: the version is there,
//!   and nothing else is to be validated. So no one needs the version that it replaces.
//! * A helper that finds the record without the version must first make sure that the owner cannot
//!   install it any more. It reads the key. If the key's page has no version of it, that loads the
//!   page, and so changes its word; if it has one, its word has changed since. If the version that
//!   was read is the commit's, the commit is committed. If not, it was not installed, or it was
//!   replaced: by a commit that has found it, and has decided it. So the commit fails, unless it is
//!   decided.
//! * A failed commit has never been installed. There is nothing to undo.
//! * A commit is blind only if there is no snapshot. If one was registered since, the owner does
//!   not install.
//! * A page that is written before the commit is durable keeps the store's version of the key
//!   (`durable.rs`). When the page is loaded below the new version, its owner keeps the store's
//!   version in memory, until the commit is durable.

use pando_log::Status;
use pando_pmem::{Domain, mutant};

use crate::commit::{Completed, InFlight};
use crate::component::{Maps, TransactionComponent};
use crate::error::{Error, Result};
use crate::stamp::Stamp;

impl<D: Domain, M: Maps> TransactionComponent<D, M> {
    /// Whether a write may be blind now.
    pub(crate) fn may_write_blind(&self) -> bool {
        self.snapshots.seems_empty()
    }
}

impl<D: Domain, M: Maps> InFlight<'_, '_, D, M> {
    /// Takes a blind commit to its end, as a helper.
    ///
    /// # Errors
    ///
    /// Those of the index. The commit is as it was.
    pub fn complete_blind(&self) -> Result<Completed> {
        let status = self.record.durable_status();
        if status != Status::Undecided {
            return Ok(Completed { status, met: None });
        }
        let write = &self.commit.writes[0];
        let mut found = None;
        match self.component.index(write.map) {
            Ok(_) if mutant!("tc-blind-helper-does-not-read") => {}
            Ok(map) => {
                let read = || {
                    map.read(&write.key, &mut |value| {
                        found = Stamp::split(value).map(|(stamp, _)| stamp);
                    })
                };
                if let Err(error) = self.guard.undoing(read) {
                    // Its own thread may have decided it meanwhile.
                    return match self.record.durable_status() {
                        Status::Undecided => Err(error.into()),
                        status => Ok(Completed { status, met: None }),
                    };
                }
            }
            // Nobody will see it.
            Err(Error::UnknownMap { .. }) if self.component.maps().is_gone(write.map) => {}
            Err(error) => return Err(error),
        }
        let is_there = found.is_some_and(|stamp| stamp.is_installed_by(self.stamp));
        let status = match is_there {
            true => Status::Committed,
            false => Status::Failed,
        };
        Ok(Completed { status: self.record.decide(status), met: None })
    }
}
