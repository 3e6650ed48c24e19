//! The model of transactions and snapshots over two maps. The state is one part: all records of
//! both maps.
//!
//! | operation | in the model |
//! | --- | --- |
//! | a serializable transaction | at one instant of its call, it reads and changes the state |
//! | a write of one key through its map | at one instant of its call, it changes that key |
//! | a snapshot, or a transaction over one, begins | at one instant of its call, it notes the state |
//! | all records are read through it | they are those of the noted state, each time |
//! | a transaction over a snapshot commits | at one instant of the call, it writes what its steps make of the noted state; the keys that it writes have the values of the noted state |
//!
//! The last line is snapshot isolation: write skew is possible, and a lost update is not. The model
//! sees values and no versions. So it does not notice a commit over a key that was written since
//! and has its old value again; `crates/storage/tc/tests/tc/snapshots.rs` tests that.
//!
//! The noted state is not known when the snapshot begins. It is read later, and checked then
//! against the instant of the beginning.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::Model;

/// The numbers of the maps.
pub const MAPS: [u64; 2] = [1, 2];
/// Keys of each map; a key that only recovery uses is behind them.
pub const KEYS: u8 = 4;

/// A key: the number of its map, and its own.
pub type Key = (u64, u8);

/// The records of both maps.
pub type State = BTreeMap<Key, u8>;

/// The state that a snapshot has shown, once it was read.
pub type Seen = Arc<OnceLock<State>>;

/// A step of a transaction.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Reads a key.
    Get(Key),
    /// Gives a key this value.
    Put(Key, u8),
    /// Removes a key.
    Remove(Key),
    /// Gives the second key one more than the value of the first, or one.
    Add(Key, Key),
    /// Scans a map, and gives a key of the other one the number of its records.
    Count(u64, Key),
}

/// How all records are read.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// Key by key.
    Gets,
    /// Map by map, upwards.
    Ascending,
    /// Map by map, downwards.
    Descending,
}

/// An operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// A serializable transaction of these steps.
    Run(Vec<Step>),
    /// A write of one key through its map: a put, a removal, or an addition to the key's own value.
    /// In a store a put is blind if its page is absent: it does not read what it replaces.
    Alone(Step),
    /// Takes a snapshot, in the place of what the thread holds.
    Take(Seen),
    /// Begins a transaction over a snapshot, in the place of what the thread holds.
    Begin(Seen),
    /// Reads all records through what the thread holds.
    Look(Seen, Way),
    /// Reads them, performs these steps in the transaction that the thread holds, and commits.
    Commit(Seen, Vec<Step>),
    /// Releases what the thread holds.
    Release,
    /// Settles all commits, and writes them into the log's files.
    Settle,
    /// The same, as one of several threads that wait for the log.
    Sync,
    /// Writes an image, and truncates the log. One thread at a time may do that.
    Image,
    /// Of a store: makes a checkpoint, and truncates the log. One thread at a time may do that.
    Checkpoint,
    /// Of a store: writes the changed pages, and evicts all.
    Evict,
    /// Of a store: writes one changed page, and evicts it: that with this number, counted over
    /// again. A full cache does so, and leaves a page that has a version above the durable LSN.
    EvictOne(usize),
    /// Writes so many blocks that a segment with two others is full.
    Fill,
    /// Raises the epoch, if no thread is in the way: tombstones become ripe.
    Reclaim,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A transaction committed, and its steps have read this.
    Committed(Vec<Option<u8>>),
    /// It was in conflict with another one.
    Conflict,
    /// Another operation is done.
    Done,
}

/// The model of these operations.
#[derive(Debug)]
pub struct TransactionsModel;

impl Model for TransactionsModel {
    type Op = Op;
    type Answer = Answer;
    type State = State;

    fn changes(op: &Op) -> Option<usize> {
        op.is_change().then_some(0)
    }

    fn syncs(op: &Op) -> bool {
        matches!(op, Op::Settle | Op::Sync | Op::Image)
    }

    fn blank() -> State {
        State::new()
    }

    fn after(state: &State, op: &Op, answer: Option<&Answer>) -> Option<State> {
        op.after(state, answer)
    }
}

impl Step {
    /// The key that it writes.
    pub fn written(self) -> Option<Key> {
        match self {
            Self::Get(_) => None,
            Self::Put(key, _) | Self::Remove(key) | Self::Add(_, key) | Self::Count(_, key) => {
                Some(key)
            }
        }
    }

    /// What it does to a state; what it reads.
    fn apply(self, state: &mut State) -> Option<u8> {
        match self {
            Self::Get(key) => state.get(&key).copied(),
            Self::Put(key, value) => {
                state.insert(key, value);
                None
            }
            Self::Remove(key) => {
                state.remove(&key);
                None
            }
            Self::Add(from, to) => {
                let read = state.get(&from).copied();
                state.insert(to, read.unwrap_or_default().wrapping_add(1));
                read
            }
            Self::Count(map, to) => {
                let count = state.keys().filter(|key| key.0 == map).count() as u8;
                state.insert(to, count);
                Some(count)
            }
        }
    }
}

impl Op {
    /// Whether it changes the state.
    pub fn is_change(&self) -> bool {
        match self {
            Self::Run(steps) | Self::Commit(_, steps) => {
                steps.iter().any(|step| step.written().is_some())
            }
            Self::Alone(_) => true,
            _ => false,
        }
    }

    /// The state after it with this answer, or without one; `None` if the answer is not possible.
    pub fn after(&self, state: &State, answer: Option<&Answer>) -> Option<State> {
        let (steps, noted) = match self {
            Self::Run(steps) => (steps, state),
            Self::Commit(seen, steps) => (steps, seen.get()?),
            Self::Alone(step) => {
                let mut next = state.clone();
                step.apply(&mut next);
                return Some(next);
            }
            Self::Take(seen) | Self::Begin(seen) => {
                let is_possible = seen.get().is_none_or(|seen| seen == state);
                return is_possible.then(|| state.clone());
            }
            _ => return Some(state.clone()),
        };
        if answer == Some(&Answer::Conflict) {
            return Some(state.clone());
        }
        let mut own = noted.clone();
        let read: Vec<_> = steps.iter().map(|step| step.apply(&mut own)).collect();
        if answer.is_some_and(|answer| *answer != Answer::Committed(read)) {
            return None;
        }
        let mut next = state.clone();
        for key in steps.iter().filter_map(|step| step.written()) {
            if state.get(&key) != noted.get(&key) {
                return None;
            }
            match own.get(&key) {
                Some(&value) => next.insert(key, value),
                None => next.remove(&key),
            };
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Key = (1, 0);
    const B: Key = (2, 0);

    fn state(records: &[(Key, u8)]) -> State {
        records.iter().copied().collect()
    }

    fn seen(state: &State) -> Seen {
        Arc::new(state.clone().into())
    }

    #[test]
    fn a_snapshot_is_of_the_instant_at_which_it_is_taken() {
        let (before, now) = (state(&[(A, 1)]), state(&[(A, 2)]));
        assert_eq!(Op::Take(seen(&now)).after(&now, Some(&Answer::Done)), Some(now.clone()));
        assert_eq!(Op::Take(seen(&before)).after(&now, Some(&Answer::Done)), None);
        let unread = Op::Take(Seen::default());
        assert_eq!(unread.after(&now, Some(&Answer::Done)), Some(now));
    }

    #[test]
    fn write_skew_is_possible_and_a_lost_update_is_not() {
        let noted = state(&[(A, 1), (B, 5)]);
        let commit = |steps: &[Step]| Op::Commit(seen(&noted), steps.to_vec());
        let answer = |read| Some(Answer::Committed(vec![Some(read)]));
        // Another transaction has written what it reads.
        let now = state(&[(A, 9), (B, 5)]);
        let skew = commit(&[Step::Add(A, B)]);
        let next = Some(state(&[(A, 9), (B, 2)]));
        assert_eq!(skew.after(&now, answer(1).as_ref()), next);
        assert_eq!(skew.after(&now, None), next);
        assert_eq!(skew.after(&now, answer(9).as_ref()), None, "it reads its snapshot");
        assert_eq!(skew.after(&now, Some(&Answer::Conflict)), Some(now.clone()));
        // Another transaction has written what it writes.
        assert_eq!(commit(&[Step::Add(A, A)]).after(&now, answer(1).as_ref()), None);
    }
}
