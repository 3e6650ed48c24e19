//! A second thread acts between two steps of an operation: before one of the operation's accesses
//! to memory, it runs operations of its own to their end. The results, and the content of the index
//! afterwards, must be those of one order of all operations.
//!
//! For the tests of an index, which say how to act between the accesses ([`Interrupt`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::random::{Random, base_seed, scale};
use super::trial::Subject;
use crate::{KeyRange, Order, RangeIndex};

/// Runs the last argument, and before its access of the given number, runs the second argument in
/// another thread. False if there are fewer accesses.
pub type Interrupt = fn(u64, Box<dyn FnOnce() + Send>, &mut dyn FnMut()) -> bool;

/// An operation on a key of eight bytes.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// An insert of the value.
    Insert(u64, u64),
    /// An upsert of the value.
    Upsert(u64, u64),
    /// An upsert of a value with so many bytes.
    UpsertLong(u64, usize),
    /// An update to the value.
    Update(u64, u64),
    /// A replacement of the first value by the second.
    Exchange(u64, u64, u64),
    /// A remove.
    Remove(u64),
    /// A read.
    Get(u64),
    /// A read of the key and of five later keys, ten apart.
    GetMany(u64),
    /// A scan of all records. If it descends, it expects them all at once.
    Scan(Order),
}

/// The content of the index.
pub(super) type Model = BTreeMap<u64, Vec<u8>>;

/// The result of an act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Whether it took place.
    Done(bool),
    /// The value.
    Value(Option<Vec<u8>>),
    /// The records, each as it was at one instant.
    Records(Model),
}

/// The keys of a [`Act::GetMany`].
fn many(from: u64) -> [u64; 6] {
    std::array::from_fn(|step| from + 10 * step as u64)
}

pub(super) fn scan(index: &dyn RangeIndex, order: Order) -> Model {
    let mut found = Vec::new();
    let mut cursor = index.scan(KeyRange::all(), order).expect("a scan");
    if order == Order::Descending {
        cursor.expect(usize::MAX);
    }
    while let Some((key, value)) = cursor.next().expect("a record") {
        let key = key.try_into().expect("a key of eight bytes");
        found.push((u64::from_be_bytes(key), value.to_vec()));
    }
    if order == Order::Descending {
        found.reverse();
    }
    assert!(found.is_sorted_by(|left, right| left.0 < right.0), "out of order: {found:?}");
    found.into_iter().collect()
}

pub(super) fn on_index(index: &dyn RangeIndex, act: Act) -> Answer {
    let key = u64::to_be_bytes;
    match act {
        Act::Insert(at, value) => {
            Answer::Done(index.insert(&key(at), &value.to_le_bytes()).is_ok())
        }
        Act::Upsert(at, value) => {
            Answer::Done(index.upsert(&key(at), &value.to_le_bytes()).is_ok())
        }
        Act::UpsertLong(at, bytes) => Answer::Done(index.upsert(&key(at), &vec![1; bytes]).is_ok()),
        Act::Update(at, value) => {
            Answer::Done(index.update(&key(at), &value.to_le_bytes()).is_ok())
        }
        Act::Exchange(at, expected, value) => {
            let (expected, value) = (expected.to_le_bytes(), value.to_le_bytes());
            Answer::Done(index.compare_exchange(&key(at), &expected, &value).is_ok())
        }
        Act::Remove(at) => Answer::Done(index.remove(&key(at)).expect("an answer")),
        Act::Get(at) => {
            let mut value = None;
            let is_there = index.read(&key(at), &mut |found| value = Some(found.to_vec()));
            assert_eq!(is_there.expect("an answer"), value.is_some());
            Answer::Value(value)
        }
        Act::GetMany(from) => {
            let keys = many(from).map(key);
            let keys = keys.each_ref().map(<[u8; 8]>::as_slice);
            let mut records = Model::new();
            let mut visit = |at: usize, value: Option<&[u8]>| {
                if let Some(value) = value {
                    records.insert(many(from)[at], value.to_vec());
                }
            };
            index.read_many(&keys, &mut visit).expect("answers");
            Answer::Records(records)
        }
        Act::Scan(order) => Answer::Records(scan(index, order)),
    }
}

/// Runs the act; its result does not matter.
pub fn run(index: &dyn RangeIndex, act: Act) {
    on_index(index, act);
}

pub(super) fn on_model(model: &mut Model, act: Act) -> Answer {
    match act {
        Act::Insert(at, _) if model.contains_key(&at) => Answer::Done(false),
        Act::Insert(at, value) | Act::Upsert(at, value) => {
            model.insert(at, value.to_le_bytes().to_vec());
            Answer::Done(true)
        }
        Act::UpsertLong(at, bytes) => {
            model.insert(at, vec![1; bytes]);
            Answer::Done(true)
        }
        Act::Update(at, value) => {
            let found = model.get_mut(&at);
            Answer::Done(found.map(|found| *found = value.to_le_bytes().to_vec()).is_some())
        }
        Act::Exchange(at, expected, value) => {
            let found = model.get_mut(&at).filter(|found| **found == expected.to_le_bytes());
            Answer::Done(found.map(|found| *found = value.to_le_bytes().to_vec()).is_some())
        }
        Act::Remove(at) => Answer::Done(model.remove(&at).is_some()),
        Act::Get(at) => Answer::Value(model.get(&at).cloned()),
        Act::GetMany(from) => {
            let found = |key| Some((key, model.get(&key)?.clone()));
            Answer::Records(many(from).into_iter().filter_map(found).collect())
        }
        Act::Scan(_) => Answer::Records(model.clone()),
    }
}

/// Runs `act`, and `others` before its access number `access`, in an index that has run the acts of
/// `there`. Returns whether it has so many accesses. Panics if no order of it and the others
/// explains the results.
pub fn one_between<S>(
    subject: S,
    handle: Arc<dyn RangeIndex>,
    interrupt: Interrupt,
    there: &[Act],
    (act, others, access): (Act, &[Act], u64),
) -> bool
where
    S: Subject,
{
    let mut model = Model::new();
    for &act in there {
        assert_eq!(on_index(subject.index(), act), on_model(&mut model, act), "{act:?}");
    }
    let others_done = others.to_vec();
    let meanwhile = Box::new(move || {
        for act in others_done {
            on_index(handle.as_ref(), act);
        }
    });
    let mut answer = None;
    let is_between =
        interrupt(access, meanwhile, &mut || answer = Some(on_index(subject.index(), act)));
    let found = (answer.expect("an answer"), scan(subject.index(), Order::Ascending));
    // Before the others, after them, or between any two.
    let positions = if is_between { others.len() } else { 0 };
    let mut explained = false;
    let mut answers = Vec::new();
    for position in 0..=positions {
        let mut model = model.clone();
        others[..position].iter().for_each(|&other| drop(on_model(&mut model, other)));
        let answer = on_model(&mut model, act);
        others[position..positions].iter().for_each(|&other| drop(on_model(&mut model, other)));
        if let Answer::Records(records) = &answer {
            answers.push(records.clone());
        }
        explained |= found == (answer, model);
    }
    if let (Answer::Records(records), now) = &found {
        // Each record is of one instant; different records may be of different instants.
        let keys = || answers.iter().flat_map(Model::keys).chain(records.keys());
        let was = |key| answers.iter().any(|answer| answer.get(key) == records.get(key));
        let mut then = model.clone();
        others[..positions].iter().for_each(|&other| drop(on_model(&mut then, other)));
        explained |= keys().all(was) && then == *now;
    }
    assert!(explained, "{act:?} with {others:?} before its access {access}: {found:?}");
    assert_eq!(scan(subject.index(), Order::Descending), found.1, "the scans in both directions");
    subject.check();
    is_between
}

/// [`one_between`] with a fresh index: the content, the act, the acts of the other thread, and the
/// access before which they run.
pub type One<'test> = &'test dyn Fn(&[Act], Act, &[Act], u64) -> bool;

/// Runs each act with each list of others before each of its accesses, or each `stride`-th.
pub fn each(one: One<'_>, stride: usize, there: &[Act], acts: &[Act], others: &[&[Act]]) {
    for (turn, others) in others.iter().enumerate() {
        for &act in acts {
            // Each list takes other accesses than the list before.
            let accesses = (turn as u64 % stride as u64..).step_by(stride);
            let _ = accesses.take_while(|&access| one(there, act, others, access)).count();
        }
    }
}

/// Inserts of ten times each number, with the number as its value.
pub fn inserts(numbers: impl IntoIterator<Item = u64>) -> Vec<Act> {
    numbers.into_iter().map(|number| Act::Insert(number * 10, number)).collect()
}

/// Removes of ten times each number.
pub fn removes(numbers: impl IntoIterator<Item = u64>) -> Vec<Act> {
    numbers.into_iter().map(|number| Act::Remove(number * 10)).collect()
}

/// A value whose top bits and low bits differ from those of all other values here.
pub const OTHER_CLASS: u64 = 1 << 63 | 6;

/// Every act on a key, and scans; long values have `long_bytes` bytes.
pub fn acts_upon(key: u64, long_bytes: usize) -> [Act; 11] {
    [
        Act::Get(key),
        Act::GetMany(key.saturating_sub(20)),
        Act::Insert(key, 7),
        Act::Upsert(key, 8),
        Act::Upsert(key, OTHER_CLASS),
        Act::UpsertLong(key, long_bytes),
        Act::Update(key, 9),
        Act::Exchange(key, key / 10, 3),
        Act::Remove(key),
        Act::Scan(Order::Ascending),
        Act::Scan(Order::Descending),
    ]
}

/// The value of a key, present or absent, is changed, removed and inserted again, in an index of
/// four records.
pub fn a_record_that_is_changed(one: One<'_>, stride: usize, long_bytes: usize) {
    let there = [&inserts(1..4)[..], &[Act::UpsertLong(40, 20)]].concat();
    for key in [20, 25, 40] {
        each(
            one,
            stride,
            &there,
            &acts_upon(key, long_bytes),
            &[
                &[Act::Upsert(key, 5)],
                &[Act::Upsert(key, OTHER_CLASS), Act::Upsert(key, 2)],
                &[Act::UpsertLong(key, 3)],
                &[Act::Remove(key)],
                &[Act::Remove(key), Act::Insert(key, 2)],
                &[Act::UpsertLong(key, 31), Act::Upsert(key, OTHER_CLASS)],
                &[Act::Upsert(10, 9), Act::Upsert(30, 9), Act::Remove(key)],
                // Enough for a consolidation.
                &[Act::Upsert(10, 9); 8],
            ],
        );
    }
}

/// Nodes of several levels: during an operation, records are inserted among them, and nodes are
/// split, emptied and merged.
pub fn nodes_that_are_split_and_merged(one: One<'_>, stride: usize, long_bytes: usize) {
    let there = inserts(0..40);
    let splits: Vec<Act> = (1..10).map(|step| Act::Insert(200 + step, step)).collect();
    let changes: Vec<Act> = (0..40).map(|number| Act::Upsert(number * 10, 99)).collect();
    let right = removes(18..40);
    let acts = [&acts_upon(209, long_bytes)[..], &acts_upon(200, long_bytes)].concat();
    each(
        one,
        stride,
        &there,
        &acts,
        &[
            &splits,
            &removes(0..40),
            &removes((0..40).rev()),
            &right,
            &changes,
            &[&right[..], &inserts(18..40)].concat(),
            &[&splits[..], &removes(0..40)].concat(),
        ],
    );
}

/// An operation that splits, consolidates or merges, while another thread does the same. The number
/// of records at which one more record splits the first node is not known here, so all numbers of
/// `filled` are tried.
pub fn structure_changes_amid_structure_changes(
    one: One<'_>,
    stride: usize,
    filled: std::ops::Range<u64>,
) {
    let splits: Vec<Act> = (1..8).map(|step| Act::Insert(61 + step, step)).collect();
    let others: [&[Act]; 4] = [&splits, &removes(0..12), &removes((2..9).rev()), &inserts(12..24)];
    for filled in filled {
        let acts = [Act::Insert(65, 1), Act::Upsert(60, 1)];
        each(one, stride, &inserts(0..filled), &acts, &others);
    }
    for emptied in 2..10 {
        let there = [&inserts(0..24)[..], &removes(0..emptied)].concat();
        let acts = [Act::Remove(emptied * 10), Act::Scan(Order::Descending)];
        each(one, stride, &there, &acts, &others);
    }
}

/// Acts on a key among sixty: runs of inserts, removes and changes around it come before any of the
/// act's accesses. `rounds` rounds.
pub fn at_random(one: One<'_>, rounds: usize, long_bytes: usize) {
    let seed = base_seed();
    eprintln!("at random: replay with PANDO_SEED={seed}");
    let mut random = Random::new(seed);
    for _ in 0..((rounds as f64 * scale()) as usize).max(1) {
        let kept = 10 + random.below(50) as u64;
        let mut there = inserts((0..60).map(|number| number * 23 % 60));
        there.extend(removes(kept..60));
        let center = random.below(kept as usize) as u64;
        let key = (center + random.below(6) as u64) * 10 + random.below(2) as u64;
        let acts = acts_upon(key, long_bytes);
        let act = acts[random.below(acts.len())];
        let mut others = Vec::new();
        for _ in 0..1 + random.below(4) {
            let from = (center + random.below(10) as u64).saturating_sub(5);
            let run = from..from + 1 + random.below(12) as u64;
            match random.below(5) {
                0 => others.extend(removes(run)),
                1 => others.extend(removes(run.rev())),
                2 => others.extend(run.map(|number| Act::Upsert(number * 10 + 1, number))),
                3 => others.extend(run.map(|number| Act::Upsert(number * 10, number << 60 | 1))),
                _ => others.extend(run.map(|number| Act::UpsertLong(number * 10, long_bytes))),
            }
        }
        let accesses = 1 << random.below(11);
        one(&there, act, &others, random.below(accesses) as u64);
    }
}
