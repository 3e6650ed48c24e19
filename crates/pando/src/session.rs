//! Sessions and receipts: a batch is applied exactly once, however often it is sent.
//!
//! The receipts of all sessions are records of the transactional map `pando.sessions`:
//!
//! ```text
//! key       0          16 ..
//!           session                           the head of the session
//!           session    sequence               a receipt; both numbers are big-endian
//!
//! head      0
//!           highest sequence                  8 bytes, little-endian
//!
//! receipt   0          1 ..
//!           state      digest                 1 and 32 bytes; a closed sequence has no digest
//! ```
//!
//! | step | what is committed | a crash leaves |
//! | --- | --- | --- |
//! | open a session | its head, with zero | a session whose number no client has, or nothing |
//! | apply a batch | in one commit: its writes, its receipt, the head if the sequence is the highest, the removal of the oldest receipts | all of it, or nothing |
//! | ask for the outcome of a sequence without a receipt | a receipt *closed* | the sequence is closed, or open |
//! | end a session | the removal of its head and its receipts | all of it, or nothing |
//!
//! All are serializable transactions that read the head and the receipt. So of two calls with one
//! sequence one comes first, and the other one finds its receipt. A commit that a dead or slow
//! thread has left in flight is taken to its end, or fails, before a later call commits.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use pando_pmem::{draw_id, mutant};

use crate::write_batch::{SESSIONS_MAP as MAP, WriteBatch};
use crate::{Committed, Error, Isolation, Map, MapOptions, Pool, Transaction};

/// How many receipts of a session are kept: those of its highest sequences.
const WINDOW: u64 = 128;

const APPLIED: u8 = 1;
const CONDITION_FAILED: u8 = 2;
const CLOSED: u8 = 3;

/// The number of a session. It is drawn at random and never used again. As text it has 32
/// hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(u128);

impl fmt::Display for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl FromStr for SessionId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let is_hexadecimal = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let parsed = is_hexadecimal.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        parsed.map(Self).ok_or_else(|| Error::Option {
            option: "the number of a session".to_owned(),
            found: text.to_owned(),
            allowed: "32 hexadecimal digits".to_owned(),
        })
    }
}

/// The outcome of a sequence of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The batch with this digest ([`WriteBatch::digest`]) was applied.
    Applied {
        /// Its digest.
        digest: [u8; 32],
    },
    /// A condition of the batch with this digest did not hold. Nothing was applied, and nothing
    /// will be.
    ConditionFailed {
        /// Its digest.
        digest: [u8; 32],
    },
    /// Nothing was applied, and nothing will be: the sequence is closed. In a pool with a log that
    /// survives a power cut.
    NotApplied,
}

/// A session of a client, which numbers its batches. A batch that is sent again with the same
/// number is not applied again. So a client that does not know whether a batch was applied, because
/// a connection, a process or a machine went down, sends it again, or asks.
///
/// Sequences begin at 1. A session keeps the receipts of its 128 highest sequences, and takes
/// sequences up to 128 above the highest, in any order. Threads may share it; their calls of one
/// session run one after the other. It stays until [`end`](Self::end); a client that loses the
/// number of its session leaves it behind.
///
/// Receipts are as durable as the batches, in the same commits, which return when
/// [`PoolOptions::acknowledge`](crate::PoolOptions::acknowledge) says. Under
/// [`Acknowledge::Buffered`](crate::Acknowledge::Buffered) a power cut may undo both. A pool that
/// is restored from a backup has the sessions of that time. The promise ends with a salvage
/// ([`Pool::salvage`]), which may return old receipts beside newer records: load all maps but
/// `pando.sessions`.
///
/// ```
/// use pando::{MapOptions, Outcome, Pool, PoolOptions, WriteBatch};
///
/// let pool = Pool::volatile(&PoolOptions::new())?;
/// let trees = pool.map_with("trees", &MapOptions::new().transactional(true))?;
/// let id = pool.new_session()?.id();
/// // The client keeps the number of the session, and goes on after a restart.
/// let session = pool.session(id)?;
/// let batch = WriteBatch::new().put(&trees, b"ash", b"1");
/// let outcome = session.apply(1, &batch)?;
/// assert_eq!(outcome, Outcome::Applied { digest: batch.digest() });
/// trees.remove(b"ash")?;
/// assert_eq!(session.apply(1, &batch)?, outcome);
/// assert_eq!(trees.get(b"ash")?, None);
/// assert_eq!(session.outcome(1)?, outcome);
/// assert_eq!(session.outcome(2)?, Outcome::NotApplied);
/// # Ok::<(), pando::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    pool: Pool,
    map: Map,
    id: SessionId,
}

impl Pool {
    /// Begins a session. The first one of a pool creates the map `pando.sessions`.
    ///
    /// # Errors
    ///
    /// As [`map_with`](Self::map_with) and [`Transaction::commit`].
    pub fn new_session(&self) -> Result<Session, Error> {
        let map = self.map_with(MAP, &MapOptions::new().transactional(true))?;
        let id = SessionId(draw_id(Path::new("/dev/urandom")).map_err(Error::of_pool)?);
        map.insert(id.key(), 0_u64.to_le_bytes())?;
        Ok(Session { pool: self.clone(), map, id })
    }

    /// A session that was begun earlier.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSession`] if there is none, or it has ended; otherwise as
    /// [`open_map`](Self::open_map) and [`Map::get`].
    pub fn session(&self, id: SessionId) -> Result<Session, Error> {
        self.check_not_salvaged()?;
        let map = match self.open_map(MAP) {
            Err(Error::MapNotFound { .. }) => return Err(id.unknown()),
            map => map?,
        };
        let session = Session { pool: self.clone(), map, id };
        session.highest_of(session.map.get(id.key())?)?;
        Ok(session)
    }
}

impl SessionId {
    fn unknown(self) -> Error {
        Error::UnknownSession { id: self.to_string() }
    }

    fn key(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    fn key_of(self, sequence: u64) -> Vec<u8> {
        [&self.key()[..], &sequence.to_be_bytes()].concat()
    }
}

impl Session {
    /// Its number.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Applies the batch, if this sequence has no outcome yet; returns its outcome.
    ///
    /// # Errors
    ///
    /// [`Error::SequenceUsed`] if the sequence was used for another batch, or is closed; if the
    /// pool has a log, a power cut does not undo that. [`Error::SequenceOutOfRange`],
    /// [`Error::UnknownSession`]; otherwise as [`Pool::write`], without
    /// [`Error::ConditionFailed`], which is an outcome. Nothing has taken place, except with
    /// [`Error::AppliedNotDurable`]: then the sequence has an outcome, and a power cut may undo it.
    /// Send the batch again when the disk has room; if the log has stopped, when the pool was
    /// opened again.
    pub fn apply(&self, sequence: u64, batch: &WriteBatch) -> Result<Outcome, Error> {
        let digest = batch.digest();
        if mutant!("receipt-outside-its-commit") {
            self.pool.transaction(|transaction| {
                let is_new = self.receipt(transaction, sequence)?.1.is_none();
                is_new.then(|| batch.put_into(transaction).map(drop)).transpose()
            })?;
            std::thread::yield_now();
        }
        let committed = self.pool.transaction_with_lsn(Isolation::Serializable, |transaction| {
            let (highest, receipt) = self.receipt(transaction, sequence)?;
            match receipt {
                None => {}
                Some(
                    outcome @ (Outcome::Applied { digest: other }
                    | Outcome::ConditionFailed { digest: other }),
                ) if other == digest => return Ok(Some(outcome)),
                Some(_) => return Ok(None),
            }
            let outcome = match batch.put_into(transaction)? {
                None => Outcome::Applied { digest },
                Some(_) => Outcome::ConditionFailed { digest },
            };
            self.store(transaction, sequence, highest, outcome)?;
            Ok::<_, Error>(Some(outcome))
        })?;
        let Committed { value: outcome, lsn } = committed;
        match outcome {
            Some(outcome) => Ok(outcome),
            None => {
                // The client may use a higher sequence now.
                self.make_final(lsn)?;
                Err(Error::SequenceUsed { sequence })
            }
        }
    }

    /// The outcome of a sequence. A sequence without an outcome is closed by this call: it is not
    /// applied later either, even by a call that is in progress. A sequence above the highest one
    /// becomes the highest by that, and receipts that are too old then are removed.
    ///
    /// [`Outcome::NotApplied`] survives a power cut. The other outcomes do with
    /// [`Acknowledge::Synced`](crate::Acknowledge::Synced). With
    /// [`Acknowledge::Buffered`](crate::Acknowledge::Buffered) a power cut may undo them, together
    /// with the batch, unless [`Pool::sync`] has returned since.
    ///
    /// # Errors
    ///
    /// [`Error::SequenceOutOfRange`], [`Error::UnknownSession`]; otherwise as
    /// [`Transaction::commit`]. After [`Error::AppliedNotDurable`] a power cut may still change the
    /// outcome: ask again when the disk has room; if the log has stopped, when the pool was opened
    /// again.
    pub fn outcome(&self, sequence: u64) -> Result<Outcome, Error> {
        let committed = self.pool.transaction_with_lsn(Isolation::Serializable, |transaction| {
            let (highest, receipt) = self.receipt(transaction, sequence)?;
            if let Some(outcome) = receipt {
                return Ok(outcome);
            }
            self.store(transaction, sequence, highest, Outcome::NotApplied)?;
            Ok::<_, Error>(Outcome::NotApplied)
        })?;
        let Committed { value: outcome, lsn } = committed;
        if outcome == Outcome::NotApplied {
            self.make_final(lsn)?;
        }
        Ok(outcome)
    }

    /// Makes the commits up to `lsn` survive a power cut, if the pool has a log. Else a power cut
    /// could open a closed sequence again.
    fn make_final(&self, lsn: u64) -> Result<(), Error> {
        let engine = &self.pool.shared().engine;
        // The outcome is committed, so no error may say that nothing has taken place.
        let log = engine.log_progress();
        match log.map_err(|error| Error::AppliedNotDurable { cause: error.to_string() })? {
            None => Ok(()),
            Some(_) => engine.sync(Some(lsn)).map(drop),
        }
    }

    /// Ends the session: it is unknown from then on.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSession`]; otherwise as [`Transaction::commit`].
    pub fn end(self) -> Result<(), Error> {
        self.pool.transaction(|transaction| {
            self.highest(transaction)?;
            let receipts = transaction.prefix(&self.map, self.id.key());
            let keys = receipts.map(|receipt| Ok(receipt?.0)).collect::<Result<Vec<_>, Error>>()?;
            keys.iter().try_for_each(|key| transaction.remove(&self.map, key))
        })
    }

    /// Its highest sequence with an outcome; zero if there is none.
    fn highest(&self, transaction: &mut Transaction<'_>) -> Result<u64, Error> {
        self.highest_of(transaction.get(&self.map, self.id.key())?)
    }

    /// The same, of the head of the session.
    fn highest_of(&self, head: Option<Vec<u8>>) -> Result<u64, Error> {
        let head = head.ok_or_else(|| self.id.unknown())?;
        let highest = head.try_into().map(u64::from_le_bytes);
        highest.map_err(|_| self.damaged("the head of a session"))
    }

    /// The highest sequence, and the outcome of this one, if it has any.
    fn receipt(
        &self,
        transaction: &mut Transaction<'_>,
        sequence: u64,
    ) -> Result<(u64, Option<Outcome>), Error> {
        let highest = self.highest(transaction)?;
        let (first, last) = (first_of(highest), highest.saturating_add(WINDOW));
        if !(first..=last).contains(&sequence) {
            return Err(Error::SequenceOutOfRange { sequence, first, last });
        }
        let receipt = transaction.get(&self.map, self.id.key_of(sequence))?;
        let decoded =
            receipt.map(|receipt| decode(&receipt).ok_or_else(|| self.damaged("a receipt")));
        Ok((highest, decoded.transpose()?))
    }

    /// Stores an outcome, and removes the receipts that are too old then.
    fn store(
        &self,
        transaction: &mut Transaction<'_>,
        sequence: u64,
        highest: u64,
        outcome: Outcome,
    ) -> Result<(), Error> {
        transaction.put(&self.map, self.id.key_of(sequence), encode(outcome))?;
        if sequence > highest {
            transaction.put(&self.map, self.id.key(), sequence.to_le_bytes())?;
            for old in first_of(highest)..first_of(sequence) {
                let key = self.id.key_of(old);
                if transaction.get(&self.map, &key)?.is_some() {
                    transaction.remove(&self.map, &key)?;
                }
            }
        }
        Ok(())
    }

    fn damaged(&self, what: &str) -> Error {
        Error::Damaged(format!("{what} in the map {MAP:?} is damaged ({})", self.id).into())
    }
}

/// The first sequence whose receipt is kept.
fn first_of(highest: u64) -> u64 {
    highest.saturating_sub(WINDOW) + 1
}

fn encode(outcome: Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Applied { digest } => [&[APPLIED][..], &digest].concat(),
        Outcome::ConditionFailed { digest } => [&[CONDITION_FAILED][..], &digest].concat(),
        Outcome::NotApplied => vec![CLOSED],
    }
}

fn decode(receipt: &[u8]) -> Option<Outcome> {
    let (state, digest) = receipt.split_first()?;
    let digest = digest.try_into();
    match (*state, digest) {
        (APPLIED, Ok(digest)) => Some(Outcome::Applied { digest }),
        (CONDITION_FAILED, Ok(digest)) => Some(Outcome::ConditionFailed { digest }),
        (CLOSED, _) if receipt.len() == 1 => Some(Outcome::NotApplied),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_keys_and_receipts() {
        let id = SessionId(0x0102);
        let session = [&[0; 14][..], &[1, 2]].concat();
        assert_eq!(id.key(), *session);
        assert_eq!(id.key_of(3), [&session[..], &[0, 0, 0, 0, 0, 0, 0, 3]].concat());
        let digest = [7; 32];
        let golden = [
            (Outcome::Applied { digest }, [&[1][..], &[7; 32]].concat()),
            (Outcome::ConditionFailed { digest }, [&[2][..], &[7; 32]].concat()),
            (Outcome::NotApplied, vec![3]),
        ];
        for (outcome, bytes) in golden {
            assert_eq!(encode(outcome), bytes);
            assert_eq!(decode(&bytes), Some(outcome));
            assert_eq!(decode(&bytes[1..]), None);
            assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
        }
        assert_eq!((decode(&[]), decode(&[4; 33])), (None, None));
    }

    #[test]
    fn the_text_of_a_session_is_read_as_it_was_written() {
        let id = SessionId(0xfeed);
        assert_eq!(id.to_string(), "0000000000000000000000000000feed");
        assert_eq!(id.to_string().parse::<SessionId>().expect("a number"), id);
        for text in ["", "feed", "+000000000000000000000000000feed", &"g".repeat(32)] {
            assert!(matches!(text.parse::<SessionId>(), Err(Error::Option { .. })), "{text}");
        }
    }
}
