//! Full leaves whose records a second thread rewrites between the accesses of a scan: the guarantee
//! of [`Cursor`](crate::Cursor), checked record by record.
//!
//! The writer acts only at known accesses of the scan. So the number of its steps that were done
//! when the scan returned a record is known. The record may have any state that its key had from
//! the first step up to that one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::between::{Act, Model, inserts, on_index, on_model, scan};
use super::compare::BOTH_ORDERS;
use super::trial::Subject;
use crate::{KeyRange, Order, RangeIndex};

/// Runs the last argument, and runs the third argument in another thread: before the access whose
/// number is the first argument, and again after each further number of accesses that is the second
/// argument, until it returns false.
pub type InterruptEach = fn(u64, u64, Box<dyn FnMut() -> bool + Send>, &mut dyn FnMut());

/// More records than the largest leaf of any index holds, so that a full leaf has a neighbour.
const RECORDS: u64 = 160;

/// The accesses at which the writer acts.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Before this access of the scan for the first time.
    first: u64,
    /// Then again each time after so many accesses.
    every: u64,
    /// Steps of the writer each time.
    steps: usize,
}

/// The steps of writers: each has a name for the failure.
fn writers(long_bytes: usize) -> Vec<(&'static str, Vec<Act>)> {
    // Scattered, so that steps change records before and behind the scan's position.
    let numbers = || (0..RECORDS).map(|turn| turn * 67 % RECORDS);
    let update = |round: u64, number: u64| match (number + round) % 5 {
        0 => Act::UpsertLong(number * 10, long_bytes + round as usize),
        // All four pairs of top bits.
        _ => Act::Upsert(number * 10, round << 62 | round << 16 | number),
    };
    let moved = |number: u64| match number % 3 {
        0 => vec![update(1, number)],
        _ => vec![Act::Remove(number * 10), Act::Insert(number * 10 + 5, number)],
    };
    let again = |number: u64| vec![Act::Remove(number * 10), Act::Insert(number * 10, 7)];
    let grown = |number: u64| vec![update(2, number), Act::Insert(number * 10 + 1, number)];
    vec![
        ("updates", (1..4).flat_map(|round| numbers().map(move |at| update(round, at))).collect()),
        ("moves to the next key", numbers().flat_map(moved).collect()),
        ("removes and inserts of the same key", numbers().flat_map(again).collect()),
        ("updates and inserts beside them", numbers().flat_map(grown).collect()),
    ]
}

/// The values of a key, each with the number of steps from which on the key has it.
type History = Vec<(usize, Option<Vec<u8>>)>;

/// The values of each key that is present at any time.
struct Histories(BTreeMap<u64, History>);

impl Histories {
    fn new(there: &Model, steps: &[Act]) -> Self {
        let mut model = there.clone();
        let record = |(&key, value): (&u64, &Vec<u8>)| (key, vec![(0, Some(value.clone()))]);
        let mut all: BTreeMap<u64, History> = there.iter().map(record).collect();
        for (done, &step) in steps.iter().enumerate() {
            let (Act::Insert(key, _)
            | Act::Upsert(key, _)
            | Act::UpsertLong(key, _)
            | Act::Remove(key)) = step
            else {
                panic!("{step:?} is no step of a writer");
            };
            on_model(&mut model, step);
            let history = all.entry(key).or_insert_with(|| vec![(0, None)]);
            history.push((done + 1, model.get(&key).cloned()));
        }
        Self(all)
    }

    /// Whether the key had this value after some number of steps, up to `done`.
    fn had(&self, key: u64, value: Option<&[u8]>, done: usize) -> bool {
        let history = self.0.get(&key).map_or(&[(0, None)][..], Vec::as_slice);
        history.iter().any(|(from, had)| *from <= done && had.as_deref() == value)
    }
}

/// A record that a scan returned, and the number of steps that were done then.
type Returned = (u64, Vec<u8>, usize);

/// Checks the records of a scan that ended when `ended` steps were done.
fn judge(histories: &Histories, order: Order, returned: &[Returned], ended: usize) {
    let keys: Vec<u64> = returned.iter().map(|(key, ..)| *key).collect();
    match order {
        Order::Ascending => assert!(keys.is_sorted_by(|left, right| left < right), "{keys:?}"),
        Order::Descending => assert!(keys.is_sorted_by(|left, right| left > right), "{keys:?}"),
    }
    for (key, value, done) in returned {
        let had = histories.had(*key, Some(value), *done);
        assert!(had, "{key} never had the value {value:?} in the first {done} steps");
    }
    let is_beyond = |found: u64, key: u64| match order {
        Order::Ascending => found > key,
        Order::Descending => found < key,
    };
    for &key in histories.0.keys().filter(|key| !keys.contains(key)) {
        let passed = returned.iter().find(|(found, ..)| is_beyond(*found, key));
        let done = passed.map_or(ended, |(.., done)| *done);
        assert!(histories.had(key, None, done), "{key} was there in all of the first {done} steps");
    }
}

/// One scan while a writer runs its steps at `pace`.
fn scanned<S: Subject>(
    (subject, handle): (S, Arc<dyn RangeIndex>),
    interrupt: InterruptEach,
    steps: &[Act],
    (order, expected): (Order, Option<usize>),
    pace: Pace,
) {
    let mut model = Model::new();
    for act in inserts(0..RECORDS) {
        assert_eq!(on_index(subject.index(), act), on_model(&mut model, act), "{act:?}");
    }
    let histories = Histories::new(&model, steps);
    let done = Arc::new(AtomicUsize::new(0));
    let (own_steps, own_done) = (steps.to_vec(), Arc::clone(&done));
    let take_steps = move || {
        let from = own_done.load(Ordering::Relaxed);
        let until = own_steps.len().min(from.saturating_add(pace.steps));
        own_steps[from..until].iter().for_each(|&step| drop(on_index(handle.as_ref(), step)));
        own_done.store(until, Ordering::Relaxed);
        until < own_steps.len()
    };
    let mut returned: Vec<Returned> = Vec::new();
    interrupt(pace.first, pace.every, Box::new(take_steps), &mut || {
        let mut cursor = subject.index().scan(KeyRange::all(), order).expect("a scan");
        if let Some(records) = expected {
            cursor.expect(records);
        }
        while let Some((key, value)) = cursor.next().expect("a record") {
            let key = u64::from_be_bytes(key.try_into().expect("a key of eight bytes"));
            returned.push((key, value.to_vec(), done.load(Ordering::Relaxed)));
        }
    });
    let ended = done.load(Ordering::Relaxed);
    judge(&histories, order, &returned, ended);
    for &step in &steps[..ended] {
        on_model(&mut model, step);
    }
    assert!(scan(subject.index(), Order::Ascending) == model, "what the writer left");
    subject.check();
}

/// Scans in both directions over full leaves that are rewritten: all at once before one access of a
/// scan, for each access, and step by step before many accesses. `fresh` makes an empty index, with
/// a handle for the writer. Values of `long_bytes` bytes and more are too long for a leaf itself.
pub fn full_leaves_that_are_rewritten<S: Subject>(
    fresh: &dyn Fn() -> (S, Arc<dyn RangeIndex>),
    interrupt: InterruptEach,
    long_bytes: usize,
) {
    let once = |first| Pace { first, every: u64::MAX, steps: usize::MAX };
    // Every access at the beginning, where a scan finds its leaf, and later some accesses.
    let bursts = (0..24).chain((24..).step_by(31).take_while(|&first| first < 900)).map(once);
    let paces = [(1, 1), (1, 2), (2, 1), (5, 3), (13, 1), (40, 9)];
    let slow = paces.map(|(every, steps)| Pace { first: every, every, steps });
    let paces: Vec<Pace> = bursts.chain(slow).collect();
    for (name, steps) in writers(long_bytes) {
        for scan in BOTH_ORDERS.into_iter().flat_map(|order| [(order, None), (order, Some(150))]) {
            for &pace in &paces {
                eprintln!("{name}, {scan:?}, {pace:?}");
                scanned(fresh(), interrupt, &steps, scan, pace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check accepts any state that a key had until its record was returned, and no other.
    #[test]
    fn a_record_of_any_instant_is_accepted_and_no_other() {
        let there: Model = [(10, vec![1]), (20, vec![2]), (30, vec![3])].into();
        let steps = [Act::Upsert(10, 5), Act::Remove(20), Act::Insert(25, 6)];
        let histories = Histories::new(&there, &steps);
        let new = |number: u64| number.to_le_bytes().to_vec();
        let accepts = |order, returned: &[Returned], ended| {
            let judged = || judge(&histories, order, returned, ended);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(judged)).is_ok()
        };
        let up = |returned: &[Returned]| accepts(Order::Ascending, returned, 3);
        let (ten, twenty, thirty) = ((10, vec![1], 0), (20, vec![2], 1), (30, vec![3], 3));
        assert!(up(&[ten.clone(), twenty.clone(), thirty.clone()]));
        // A later write is seen and an earlier one is not.
        assert!(up(&[ten.clone(), (25, new(6), 3), thirty.clone()]));
        assert!(up(&[(10, new(5), 1), twenty.clone(), (25, new(6), 3), thirty.clone()]));
        assert!(!up(&[(10, new(5), 0), twenty.clone(), thirty.clone()]), "from the future");
        assert!(
            !up(&[(10, new(4), 3), twenty.clone(), thirty.clone()]),
            "a value that was never written"
        );
        assert!(!up(&[twenty.clone(), thirty.clone()]), "10 was there throughout");
        assert!(!up(&[ten.clone(), (30, vec![3], 1)]), "20 was there until step 2");
        assert!(!up(&[twenty.clone(), ten.clone(), thirty.clone()]), "out of order");
        assert!(!up(&[ten.clone(), ten.clone(), twenty.clone(), thirty.clone()]), "twice");
        assert!(
            !up(&[ten.clone(), (15, vec![1], 3), twenty.clone(), thirty.clone()]),
            "never there"
        );
        assert!(accepts(Order::Descending, &[thirty, twenty, ten], 3));
    }
}
