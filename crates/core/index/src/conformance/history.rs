//! Decides whether a history of operations is linearizable: whether some order of them explains
//! every result.
//!
//! A history has the operations of several threads on one key: each [`Event`] has an operation, its
//! result, and the times of its call and its return. The history is linearizable if each operation
//! can be given one instant between its call and its return, such that a map that one thread uses
//! gives the same results in the order of these instants. Keys are independent of each other, so
//! each is checked alone (linearizability is local).
//!
//! The search is Wing and Gong's: an operation may come first if it was called before any other
//! pending operation returned. It remembers, after Lowe, the *configurations* that it has visited
//! (the operations that are done, and the value), and never continues from one twice.

use std::collections::HashSet;
use std::hash::Hash;

/// The value of the key, or `None` while it is absent. Values of a history are plain numbers.
pub type State = Option<u64>;

/// An operation on the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `insert` of a value.
    Insert(u64),
    /// `update` to a value.
    Update(u64),
    /// `upsert` of a value.
    Upsert(u64),
    /// `put` of a value.
    Put(u64),
    /// `get`, or a scan that passed the key.
    Read,
    /// `remove`.
    Remove,
    /// `compare_exchange`.
    CompareExchange {
        /// The expected value.
        expected: u64,
        /// The value that replaces it.
        new: u64,
    },
    /// `compare_remove` of the value.
    CompareRemove(u64),
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An insert, update, put, compare-exchange or compare-remove took place.
    Done,
    /// [`Error::KeyExists`](crate::Error::KeyExists).
    KeyExists,
    /// [`Error::KeyNotFound`](crate::Error::KeyNotFound).
    KeyNotFound,
    /// [`Error::ValueMismatch`](crate::Error::ValueMismatch).
    ValueMismatch,
    /// An upsert that inserted.
    Inserted,
    /// An upsert that updated.
    Updated,
    /// Whether a remove found the key.
    Removed(bool),
    /// The value that a read found.
    Found(State),
}

/// One operation of a history. Times are ticks of any clock that all threads share.
#[derive(Clone, Copy, Debug)]
pub struct Event<O = Operation, A = Answer> {
    /// The operation.
    pub operation: O,
    /// The result, or `None` if a crash came first: then it may have taken place or not.
    pub answer: Option<A>,
    /// The clock before the call.
    pub called: u64,
    /// The clock after the return; without meaning if there is no result.
    pub returned: u64,
}

/// The longest history that can be checked.
pub const MAX_EVENTS: usize = 64;

/// Whether some order of `events` explains every result, if the key had the value `initial` first.
///
/// # Panics
///
/// If there are more than [`MAX_EVENTS`] events.
pub fn is_linearizable(initial: State, events: &[Event]) -> bool {
    explains(initial, None, events, |state, operation, given| {
        let (answer, next) = apply(*operation, *state);
        given.is_none_or(|given| *given == answer).then_some(next)
    })
}

/// Whether some order of `events` explains every result, from the state `initial` on, and ends in
/// the state `last`, if it is given. `after` defines the operations: it returns the state after an
/// operation with this result (or none), or `None` if the result is impossible.
///
/// # Panics
///
/// If there are more than [`MAX_EVENTS`] events.
pub fn explains<O, A, S: Clone + Eq + Hash>(
    initial: S,
    last: Option<&S>,
    events: &[Event<O, A>],
    after: impl Fn(&S, &O, Option<&A>) -> Option<S>,
) -> bool {
    assert!(events.len() <= MAX_EVENTS, "a history of {} events", events.len());
    let indices = || (0..events.len()).filter(|&index| events[index].answer.is_some());
    let answered: u64 = indices().fold(0, |set, index| set | 1 << index);

    let mut configurations = vec![(0_u64, initial)];
    let mut seen = HashSet::new();
    while let Some((done, state)) = configurations.pop() {
        if done & answered == answered && last.is_none_or(|last| *last == state) {
            return true;
        }
        let pending = |index: &usize| done & 1 << index == 0;
        // An operation that was called after a pending one had returned must come after that one.
        let first_return = indices().filter(pending).map(|index| events[index].returned).min();
        for index in (0..events.len()).filter(pending) {
            let event = &events[index];
            if first_return.is_some_and(|returned| event.called > returned) {
                continue;
            }
            let Some(next) = after(&state, &event.operation, event.answer.as_ref()) else {
                continue;
            };
            let configuration = (done | 1 << index, next);
            if seen.insert(configuration.clone()) {
                configurations.push(configuration);
            }
        }
    }
    false
}

/// The state of a map that one thread uses, after each operation and result: the contract, as a
/// table.
pub fn apply(operation: Operation, state: State) -> (Answer, State) {
    match (operation, state) {
        (Operation::Insert(value), None) => (Answer::Done, Some(value)),
        (Operation::Insert(_), Some(_)) => (Answer::KeyExists, state),
        (Operation::Update(value), Some(_)) => (Answer::Done, Some(value)),
        (Operation::Update(_), None) => (Answer::KeyNotFound, None),
        (Operation::Upsert(value), None) => (Answer::Inserted, Some(value)),
        (Operation::Upsert(value), Some(_)) => (Answer::Updated, Some(value)),
        (Operation::Put(value), _) => (Answer::Done, Some(value)),
        (Operation::Read, _) => (Answer::Found(state), state),
        (Operation::Remove, _) => (Answer::Removed(state.is_some()), None),
        (Operation::CompareExchange { .. }, None) => (Answer::KeyNotFound, None),
        (Operation::CompareExchange { expected, new }, Some(value)) => {
            if value == expected {
                (Answer::Done, Some(new))
            } else {
                (Answer::ValueMismatch, state)
            }
        }
        (Operation::CompareRemove(_), None) => (Answer::KeyNotFound, None),
        (Operation::CompareRemove(expected), Some(value)) if value == expected => {
            (Answer::Done, None)
        }
        (Operation::CompareRemove(_), Some(_)) => (Answer::ValueMismatch, state),
    }
}

#[cfg(test)]
mod tests {
    use super::Answer::*;
    use super::Operation::*;
    use super::*;

    fn event(called: u64, returned: u64, operation: Operation, answer: Answer) -> Event {
        Event { operation, answer: Some(answer), called, returned }
    }

    fn crashed(called: u64, operation: Operation) -> Event {
        Event { operation, answer: None, called, returned: 0 }
    }

    #[test]
    fn accepts_what_one_thread_may_see() {
        let history = [
            event(0, 1, Read, Found(None)),
            event(2, 3, Insert(1), Done),
            event(4, 5, Insert(2), KeyExists),
            event(6, 7, CompareExchange { expected: 2, new: 3 }, ValueMismatch),
            event(8, 9, CompareExchange { expected: 1, new: 3 }, Done),
            event(10, 11, Upsert(4), Updated),
            event(12, 13, Read, Found(Some(4))),
            event(14, 15, Remove, Removed(true)),
            event(16, 17, Remove, Removed(false)),
            event(18, 19, Update(5), KeyNotFound),
            event(20, 21, Upsert(6), Inserted),
        ];
        assert!(is_linearizable(None, &history));
        assert!(is_linearizable(Some(1), &history[2..]));
        assert!(!is_linearizable(Some(1), &history));
        assert!(is_linearizable(None, &[]));
    }

    #[test]
    fn accepts_that_overlapping_operations_take_either_order() {
        let reads = |first, second| {
            is_linearizable(
                None,
                &[
                    event(0, 10, Insert(1), Done),
                    event(1, 11, Upsert(2), Updated),
                    event(2, 3, Read, Found(first)),
                    event(4, 5, Read, Found(second)),
                    event(20, 21, Read, Found(Some(2))),
                ],
            )
        };
        assert!(reads(None, None));
        assert!(reads(None, Some(1)));
        assert!(reads(None, Some(2)));
        assert!(reads(Some(1), Some(2)));
        assert!(!reads(Some(2), Some(1)), "the value went back");
        assert!(!reads(Some(1), None), "the key went away");
    }

    #[test]
    fn accepts_removes_and_inserts_that_alternate_within_overlaps() {
        let history = [
            event(0, 100, Insert(1), Done),
            event(0, 100, Insert(2), Done),
            event(0, 100, Remove, Removed(true)),
            event(0, 100, Remove, Removed(false)),
        ];
        assert!(is_linearizable(None, &history));
        assert!(!is_linearizable(None, &history[..2]), "two inserts and no remove");
    }

    #[test]
    fn refuses_a_lost_update() {
        let raise = |called| event(called, 9, CompareExchange { expected: 0, new: 1 }, Done);
        assert!(!is_linearizable(Some(0), &[raise(0), raise(1)]));
    }

    #[test]
    fn refuses_a_stale_read() {
        let update = event(0, 1, Update(2), Done);
        assert!(!is_linearizable(Some(1), &[update, event(2, 3, Read, Found(Some(1)))]));
        assert!(is_linearizable(Some(1), &[update, event(1, 3, Read, Found(Some(1)))]));
    }

    #[test]
    fn refuses_a_double_insert() {
        let history = [event(0, 5, Insert(1), Done), event(1, 6, Insert(2), Done)];
        assert!(!is_linearizable(None, &history));
    }

    #[test]
    fn refuses_a_double_remove() {
        let history = [event(0, 5, Remove, Removed(true)), event(1, 6, Remove, Removed(true))];
        assert!(!is_linearizable(Some(1), &history));
    }

    #[test]
    fn refuses_a_value_that_was_never_written() {
        let history = [event(0, 9, Insert(1), Done), event(1, 8, Read, Found(Some(7)))];
        assert!(!is_linearizable(None, &history));
    }

    #[test]
    fn refuses_the_dead_that_rise() {
        let history = [
            event(0, 1, Remove, Removed(true)),
            event(2, 3, Update(2), Done),
            event(4, 5, Read, Found(Some(2))),
        ];
        assert!(!is_linearizable(Some(1), &history));
    }

    #[test]
    fn a_crash_leaves_an_operation_done_or_not_done() {
        let read = |called, state| event(called, called + 1, Read, Found(state));
        let insert = crashed(0, Insert(1));
        assert!(is_linearizable(None, &[insert, read(10, None)]));
        assert!(is_linearizable(None, &[insert, read(10, Some(1))]));
        assert!(is_linearizable(None, &[insert, read(10, None), read(20, Some(1))]));
        assert!(!is_linearizable(None, &[insert, read(10, Some(1)), read(20, None)]));
        assert!(!is_linearizable(None, &[event(0, 1, Insert(1), Done), read(10, None)]));
    }

    #[test]
    fn the_end_has_to_be_explained_too() {
        let ends = |events: &[Event], last: State| {
            explains(None, Some(&last), events, |state, operation, given| {
                let (answer, next) = apply(*operation, *state);
                given.is_none_or(|given| *given == answer).then_some(next)
            })
        };
        let done = [event(0, 1, Insert(1), Done)];
        assert!(ends(&done, Some(1)));
        assert!(!ends(&done, None), "a write that had returned is lost");
        assert!(!ends(&[], Some(1)), "a value from nowhere");
        let cut = [done[0], crashed(2, Update(2)), crashed(3, Remove)];
        for (last, explained) in [(Some(1), true), (Some(2), true), (None, true), (Some(3), false)]
        {
            assert_eq!(ends(&cut, last), explained, "{last:?}");
        }
    }

    #[test]
    fn a_full_history_of_overlaps_is_judged_in_time() {
        let mut history: Vec<Event> = (0..MAX_EVENTS as u64 - 1)
            .map(|number| event(4 * number, 4 * number + 17, Upsert(number), Updated))
            .collect();
        history.push(event(1_000, 1_001, Read, Found(Some(9_999))));
        assert!(!is_linearizable(Some(0), &history));
        history[MAX_EVENTS - 1].answer = Some(Found(Some(61)));
        assert!(is_linearizable(Some(0), &history));
    }
}
