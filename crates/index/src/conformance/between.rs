//! What others do between two steps of an operation: before one of its accesses to memory, a second thread does
//! something to its end. The answers and what is there afterwards must be those of one order of the two.
//!
//! It is for the tests of an index, which say how to get between the accesses ([`Interrupt`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Subject;
use crate::{KeyRange, Order, RangeIndex};

/// Runs the last argument, and in another thread the second before its access of that number; false if it has
/// fewer.
pub type Interrupt = fn(u64, Box<dyn FnOnce() + Send>, &mut dyn FnMut()) -> bool;

/// An operation on a key of eight bytes.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// An insert of the value.
    Insert(u64, u64),
    /// An upsert of the value.
    Upsert(u64, u64),
    /// An upsert of that many bytes.
    UpsertLong(u64, usize),
    /// A remove.
    Remove(u64),
    /// A read.
    Get(u64),
    /// A scan of all.
    Scan(Order),
}

/// What is there.
type Model = BTreeMap<u64, Vec<u8>>;

/// What an act answers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// Whether it was done.
    Done(bool),
    /// The value.
    Value(Option<Vec<u8>>),
    /// All records.
    All(Model),
}

fn scan(index: &dyn RangeIndex, order: Order) -> Model {
    let mut found = Vec::new();
    let mut cursor = index.scan(KeyRange::all(), order).expect("a scan");
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

fn on_index(index: &dyn RangeIndex, act: Act) -> Answer {
    let key = u64::to_be_bytes;
    match act {
        Act::Insert(at, value) => {
            Answer::Done(index.insert(&key(at), &value.to_le_bytes()).is_ok())
        }
        Act::Upsert(at, value) => {
            Answer::Done(index.upsert(&key(at), &value.to_le_bytes()).is_ok())
        }
        Act::UpsertLong(at, bytes) => Answer::Done(index.upsert(&key(at), &vec![1; bytes]).is_ok()),
        Act::Remove(at) => Answer::Done(index.remove(&key(at)).expect("an answer")),
        Act::Get(at) => {
            let mut value = None;
            let is_there = index.read(&key(at), &mut |found| value = Some(found.to_vec()));
            assert_eq!(is_there.expect("an answer"), value.is_some());
            Answer::Value(value)
        }
        Act::Scan(order) => Answer::All(scan(index, order)),
    }
}

fn on_model(model: &mut Model, act: Act) -> Answer {
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
        Act::Remove(at) => Answer::Done(model.remove(&at).is_some()),
        Act::Get(at) => Answer::Value(model.get(&at).cloned()),
        Act::Scan(_) => Answer::All(model.clone()),
    }
}

/// Does `act` with `others` before its access number `access`, in an index that has done what is in `there`; whether it has
/// so many accesses. Panics if no order of it and the others explains what came of it.
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
    let moments = if is_between { others.len() } else { 0 };
    let mut explained = false;
    let mut states = Vec::new();
    for moment in 0..=moments {
        let mut model = model.clone();
        others[..moment].iter().for_each(|&other| drop(on_model(&mut model, other)));
        states.push(model.clone());
        let answer = on_model(&mut model, act);
        others[moment..moments].iter().for_each(|&other| drop(on_model(&mut model, other)));
        explained |= found == (answer, model);
    }
    if let (Act::Scan(_), (Answer::All(all), now)) = (act, &found) {
        // Of each key what it was at one moment; of different leaves that may be different ones.
        let keys = || states.iter().flat_map(Model::keys).chain(all.keys());
        let was = |key| states.iter().any(|state| state.get(key) == all.get(key));
        explained |= keys().all(was) && states.last() == Some(now);
    }
    assert!(explained, "{act:?} with {others:?} before its access {access}: {found:?}");
    assert_eq!(scan(subject.index(), Order::Descending), found.1, "the scans in both directions");
    subject.check();
    is_between
}
