//! Commits of one key: the index is searched once.
//!
//! Such a commit takes the steps of any other one (`commit.rs`). But the call of the index that
//! looks at the key also makes the first attempt to install:
//!
//! | step, inside one call of `modify` | deciding word | a thread that stops or dies leaves |
//! | --- | --- | --- |
//! | look at the key: its version is committed, or has failed | | nothing |
//! | append the record; if it can be bare, without the version (`bare.rs`) | `newest` of the log | an undecided commit |
//! | look for snapshots that do not see the commit: none needs the version, or has commits to settle | | the same |
//! | install | the key's value, from the version that was found | the same, with its version |
//!
//! Then the commit is decided. If the call does not get so far, it ends without a write, and the
//! thread goes on by what it has found:
//!
//! * Before the record: it helps the commit that it has met, or makes room, and begins again.
//! * Behind it, if the record has the version: it completes the commit as any helper would. So a
//!   snapshot keeps the version, and a commit that others have completed, or whose key has another
//!   version, ends as it should.
//! * Behind it, if the commit is bare: it has failed, and the thread begins again with a record
//!   that has the version.
//!
//! The index may look again, because another thread has changed the node. If the key still has the
//! version that was found first, the same version is installed; in a store, only if the commit is
//! still undecided (`commit.rs`, "Records that are in a store alone").

use pando_index::{Known, RangeIndex, Upserted};
use pando_log::{Appended, Record, Status};
use pando_pmem::{Domain, Guard, mutant};

use crate::commit::is_undecided_behind;
use crate::component::{Maps, TransactionComponent};
use crate::error::{Error, Result};
use crate::record::{Commit, WriteRef};
use crate::settle::Room;
use crate::stamp::{STAMP_BYTES, Stamp, put};
use crate::tombstones::Tombstone;

/// Bytes that the vector of a version gets at once: most need no more.
const VERSION_BYTES: usize = 256;
/// How often a commit begins again, because of others at its key, before it gives up.
const STEPS: u32 = 1 << 10;

/// What becomes of a key.
pub(crate) enum Decision {
    /// It stays as it is.
    Keep,
    /// It gets the value that was appended to the vector.
    Put,
    /// It is removed.
    Remove,
}

/// Decides what becomes of a key with this value, or without any; appends the new value, if there
/// is one.
pub(crate) type Decide<'call> =
    dyn FnMut(Option<&[u8]>, &mut Vec<u8>) -> pando_index::Result<Decision> + 'call;

/// How a commit of one key ended.
pub(crate) struct Replaced {
    pub was_present: bool,
    /// The LSN of the commit; `None` if the key stays as it was.
    pub lsn: Option<u64>,
}

/// What a call of the index has come to.
enum Outcome<'op, D: Domain> {
    /// It has not looked at the key.
    Open,
    Kept {
        was_present: bool,
    },
    /// The key has a version of this commit, which is undecided.
    Met(Record<'op, D>),
    /// The log has no room for the record, or the pool.
    NoRoom(Error),
    Refused(Error),
    /// The record is appended.
    Begun(Begun),
}

/// A commit whose record is appended.
#[derive(Clone, Copy)]
struct Begun {
    was_present: bool,
    is_removal: bool,
    replaced: Stamp,
    own: Stamp,
    /// Whether the record does not have the replaced version (`bare.rs`).
    is_bare: bool,
    /// Whether nothing is to be done for snapshots before the install.
    is_free: bool,
    /// Whether the index has lent the version of this commit.
    is_there: bool,
}

/// What a commit replaces, and by what.
struct Replacing {
    stamp: Stamp,
    was_present: bool,
    is_removal: bool,
    is_bare: bool,
}

/// Makes room for the stamp at the start of an empty version.
fn begin_version(new: &mut Vec<u8>) {
    new.reserve(VERSION_BYTES);
    new.resize(STAMP_BYTES, 0);
}

/// One call of the index.
struct Call<'op, 'pool, D: Domain, M> {
    component: &'op TransactionComponent<D, M>,
    guard: &'op Guard<'pool, D>,
    /// The settled LSN before the call.
    settled: u64,
    map: u64,
    key: &'op [u8],
    /// Whether the commit only removes.
    gives_room: bool,
    /// Whether the record may leave out the version that it replaces.
    may_be_bare: bool,
    /// The bytes of the value of a commit that need not read the version that it replaces.
    blind: Option<usize>,
}

impl<D: Domain, M: Maps> TransactionComponent<D, M> {
    /// Commits what `decide` decides about a key of the map, which is in `index`. `gives_room`: it
    /// only removes. `blind`: `decide` puts a value of so many bytes in any case, so the version
    /// that it replaces need not be read. The caller holds no guard.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if another commit came first; those of `decide`, and of
    /// [`commit`](crate::Transaction::commit). Nothing has taken place. If the index finds damage
    /// while it installs, and again while it reads the key, the commit may take place.
    pub(crate) fn replace(
        &self,
        index: &dyn RangeIndex,
        (map, key): (u64, &[u8]),
        gives_room: bool,
        blind: Option<usize>,
        decide: &mut Decide<'_>,
    ) -> Result<Replaced> {
        let mut room = Room::default();
        let mut has_failed_bare = false;
        for _ in 0..STEPS {
            self.before_commit(gives_room)?;
            let guard = self.pin()?;
            // Before the value: what was settled by now has no failed version any more.
            let settled = self.log().sealed_lsn(&guard);
            let may_be_bare = !has_failed_bare && self.may_be_bare();
            let call = Call {
                component: self,
                guard: &guard,
                settled,
                map,
                key,
                gives_room,
                may_be_bare,
                blind: blind.filter(|_| may_be_bare),
            };
            match call.run(index, decide) {
                (Outcome::Begun(begun), written) if begun.is_bare => {
                    match (self.end_bare(&guard, index, key, begun, &written)?, written) {
                        (Some(replaced), _) => return Ok(replaced),
                        (None, Err(error)) if !M::MAY_BE_STORED => {
                            drop(guard);
                            room.limit_in_pool(2);
                            self.make_room_for_record(error.into(), &mut room)?;
                        }
                        (None, _) => has_failed_bare = true,
                    }
                }
                (Outcome::Begun(begun), written) => {
                    let is_written = matches!(written, Ok(Some(_)));
                    return self.end(guard, (map, key), begun, is_written);
                }
                (Outcome::Kept { was_present }, _) => {
                    return Ok(Replaced { was_present, lsn: None });
                }
                (Outcome::Met(record), _) => self.help(&guard, record)?,
                (Outcome::NoRoom(error), _) => {
                    drop(guard);
                    self.make_room_for_record(error, &mut room)?;
                }
                (Outcome::Refused(error), _) => return Err(error),
                // The index has refused before it has looked.
                (Outcome::Open, Err(error)) => {
                    drop(guard);
                    self.make_room_for_record(error.into(), &mut room)?;
                }
                (Outcome::Open, Ok(_)) => {}
            }
        }
        Err(Error::Conflict { map, key: key.to_vec() })
    }

    /// Decides a bare commit. `None` if it was not installed, and has failed.
    fn end_bare(
        &self,
        guard: &Guard<'_, D>,
        index: &dyn RangeIndex,
        key: &[u8],
        begun: Begun,
        written: &pando_index::Result<Option<Upserted>>,
    ) -> Result<Option<Replaced>> {
        let Begun { own, was_present, is_there, .. } = begun;
        let record = self.log().record(guard, own.record_off());
        let is_written = match written {
            Ok(written) => written.is_some() || is_there,
            // A page that the call has not written.
            Err(_) if M::MAY_BE_STORED => false,
            Err(_) => self.is_installed(index, key, own)?,
        };
        let status = match is_written {
            true => Status::Committed,
            false => Status::Failed,
        };
        match (record.decide(status), is_written) {
            (Status::Committed, _) => Ok(Some(Replaced { was_present, lsn: Some(own.lsn()) })),
            (_, false) => Ok(None),
            (_, true) => {
                let what = "a bare commit was installed after it had failed";
                Err(pando_log::Error::Unsettled(what.into()).into())
            }
        }
    }

    /// Takes a commit to its end. `is_written`: its version is in the map.
    fn end(
        &self,
        guard: Guard<'_, D>,
        place: (u64, &[u8]),
        begun: Begun,
        is_written: bool,
    ) -> Result<Replaced> {
        let Begun { was_present, is_removal, own, .. } = begun;
        let record = self.log().record(&guard, own.record_off());
        let replaced = Replaced { was_present, lsn: Some(own.lsn()) };
        if is_written && record.decide(Status::Committed) == Status::Committed {
            if is_removal {
                self.tombstones.note(&guard, Tombstone::new(place, own));
            }
            return Ok(replaced);
        }
        let what = || pando_log::Error::Unsettled("its commit is unreadable".into());
        let commit = Commit::decode(&record.payload()).ok_or_else(what)?;
        let appended = Appended { lsn: own.lsn(), off: own.record_off() };
        self.complete_own(guard, appended, &commit).map(|_| replaced)
    }
}

impl<'op, D: Domain, M: Maps> Call<'op, '_, D, M> {
    /// Makes the call; what it has come to, and what the index has returned.
    fn run(
        &self,
        index: &dyn RangeIndex,
        decide: &mut Decide<'_>,
    ) -> (Outcome<'op, D>, pando_index::Result<Option<Upserted>>) {
        let mut outcome = Outcome::Open;
        let mut change = |known: Known<'_>, new: &mut Vec<u8>| {
            let found = match known {
                Known::Value(found) => Some(found),
                Known::Absent | Known::Unread => None,
            };
            match &mut outcome {
                Outcome::Open => {
                    outcome = match known {
                        Known::Unread => self.begin_blind(new, decide),
                        _ => self.begin(found, new, decide),
                    };
                    matches!(outcome, Outcome::Begun(Begun { is_free: true, .. }))
                }
                Outcome::Begun(begun) => known != Known::Unread && self.is_again(begun, found, new),
                _ => false,
            }
        };
        let modify = || match self.blind {
            // Whether the key was present is in the outcome.
            Some(value_bytes) => index
                .write_blind(self.key, value_bytes, &mut change)
                .map(|is_written| is_written.then_some(Upserted::Updated)),
            None => index.modify(self.key, &mut |found, new| {
                change(found.map_or(Known::Absent, Known::Value), new)
            }),
        };
        let written = match self.gives_room {
            true => self.guard.with_reserve(modify),
            false => self.guard.leaving_room_to_undo(modify),
        };
        (outcome, written)
    }

    /// Looks at the key's value, and appends the record. `new` gets what the map will keep.
    fn begin(
        &self,
        found: Option<&[u8]>,
        new: &mut Vec<u8>,
        decide: &mut Decide<'_>,
    ) -> Outcome<'op, D> {
        let (map, key) = (self.map, self.key);
        let what = "its value has no stamp";
        let split = found.map(Stamp::split).unwrap_or(Some((Stamp::ABSENT, &[])));
        let Some((stamp, value)) = split else {
            return Outcome::Refused(Error::Damaged { map, key: key.to_vec(), what });
        };
        let mut old = (!stamp.is_removed()).then_some(value);
        let in_flight = self.component.in_flight(self.guard, stamp, self.settled);
        let is_replaced_failed = in_flight.is_some();
        let replaced;
        match in_flight.filter(|_| !mutant!("tc-one-key-replaces-in-flight")) {
            None => {}
            Some((record, Status::Failed)) => {
                match self.component.unsettled((map, key), stamp, (record, Status::Failed)) {
                    Ok(unsettled) => replaced = unsettled.replaced,
                    Err(error) => return Outcome::Refused(error),
                }
                old = replaced.value.as_deref();
            }
            Some((record, _)) => return Outcome::Met(record),
        }
        let was_present = old.is_some();
        begin_version(new);
        let is_removal = match decide(old, new) {
            Ok(Decision::Keep) => return Outcome::Kept { was_present },
            Ok(Decision::Put) => false,
            Ok(Decision::Remove) => true,
            Err(error) => return Outcome::Refused(error.into()),
        };
        // In a store the record tells pages what is durable (`durable.rs`). A helper that finds a
        // failed version relies on this: no bare commit replaces one.
        let is_bare = self.may_be_bare && !M::MAY_BE_STORED && !is_removal && !is_replaced_failed;
        let replaced = Replacing { stamp, was_present, is_removal, is_bare };
        self.append(replaced, old.filter(|_| !is_bare), new)
    }

    /// Appends the record of a blind write.
    fn begin_blind(&self, new: &mut Vec<u8>, decide: &mut Decide<'_>) -> Outcome<'op, D> {
        begin_version(new);
        let stamp = Stamp::UNRECORDED;
        let replaced = Replacing { stamp, was_present: false, is_removal: false, is_bare: true };
        match decide(None, new) {
            Ok(_) => self.append(replaced, None, new),
            Err(error) => Outcome::Refused(error.into()),
        }
    }

    /// Appends the record of a commit that replaces this version; `old` is its value, if it is
    /// recorded. `new` has room for the stamp, and the new value.
    #[inline(always)]
    fn append(
        &self,
        Replacing { stamp, was_present, is_removal, is_bare }: Replacing,
        old: Option<&[u8]>,
        new: &mut [u8],
    ) -> Outcome<'op, D> {
        let (map, key) = (self.map, self.key);
        let value = (!is_removal).then_some(&new[STAMP_BYTES..]);
        let recorded = if is_bare { Stamp::UNRECORDED } else { stamp };
        let head = WriteRef { map, stamp: recorded, key, new: value, old }.head();
        let record = [&head, key, value.unwrap_or_default(), old.unwrap_or_default()];
        let record = &record[..3 + usize::from(old.is_some())];
        let Appended { lsn, off } =
            match self.component.append_once(self.guard, record, self.gives_room) {
                Ok(appended) => appended,
                Err(error) => return Outcome::NoRoom(error),
            };
        let own = Stamp::new(lsn, off).removed_if(is_removal);
        new[..STAMP_BYTES].copy_from_slice(&own.encode());
        let has_value = was_present || stamp == Stamp::UNRECORDED;
        let kept = has_value.then_some(stamp);
        let is_free = self.component.is_free_to_replace(self.guard, lsn, kept)
            || mutant!("tc-one-key-kept-nothing");
        let replaced = stamp;
        Outcome::Begun(Begun {
            was_present,
            is_removal,
            replaced,
            own,
            is_bare,
            is_free,
            is_there: false,
        })
    }

    /// Whether the key still has the version that the commit has found; then `new` gets the new one
    /// once more.
    fn is_again(&self, begun: &mut Begun, found: Option<&[u8]>, new: &mut Vec<u8>) -> bool {
        let stamp = Stamp::of_value(found);
        begun.is_there |= stamp.is_some_and(|stamp| stamp.is_installed_by(begun.own));
        if !begun.is_free || stamp != Some(begun.replaced) {
            return false;
        }
        let record = self.component.log().record(self.guard, begun.own.record_off());
        let is_undecided =
            is_undecided_behind(record) || mutant!("tc-one-key-installed-after-failure");
        if M::MAY_BE_STORED && !is_undecided {
            return false;
        }
        let commit = Commit::decode(&record.payload());
        let Some(write) = commit.as_ref().and_then(|commit| commit.writes.first()) else {
            return false;
        };
        put(begun.own, write.new.as_deref(), new);
        true
    }
}

#[cfg(test)]
mod tests;
