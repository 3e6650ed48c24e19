//! Any index with the contract's interface as a subject: its keys and values, and every operation.
//! `map_scenarios.rs` has the scenarios.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use pando_index::conformance::history::{self, Answer, Operation, State};
use pando_index::{Error, KeyRange, Order, RangeIndex, Upserted};
use pando_pmem::Domain;
use pando_pmem::testing::refusal::{Resource, may_refuse, refuse};
use pando_tree::maps::{Audit, Catalog, IndexKind, Tree};

use super::{Model, Noted, Observed, Opened, compare_blocks};

/// Number of keys.
pub(super) const KEYS: usize = 256;

/// An index to be explored.
pub trait Indexed: 'static {
    /// Its kind.
    type Kind: IndexKind;

    /// Its name as a subject: the index, with its options if several sets are explored.
    const NAME: &'static str = Self::Kind::NAME;

    /// Whether its keys and values all have eight bytes.
    const FIXED: bool = false;

    /// The options for the smallest nodes.
    const SMALL: &'static [(&'static str, &'static str)];

    /// The structure modifications of one operation. Each has a scenario of its name.
    const CHANGES: &'static [Change];

    /// Size of its pool. The scenarios need room for all their writes, because a stopped thread
    /// keeps replaced blocks from reuse.
    const POOL_BYTES: u64 = 3 << 20;

    /// Whether it survives crashes, and answers reads in a full pool.
    const SURVIVES: bool = true;

    /// Whether a remove may be refused by a full pool.
    const REMOVES_NEED_ROOM: bool = false;

    /// Whether a refused write merges an empty leaf whose earlier merge found no room. Such an
    /// index keeps values of more than 64 bytes in blocks of their own.
    const MERGES_LATER: bool = false;
}

/// A scan, or an operation on one key.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// An operation on the key of that number.
    Key(usize, Operation),
    /// A scan of the keys from the first number up to, not including, the second.
    Scan(usize, usize, Order),
}

/// The pool was full; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// The records of a map.
#[derive(Debug)]
pub struct MapModel;

impl Model for MapModel {
    type Op = Op;
    type Answer = Result<Answer, Refused>;
    type State = State;

    fn changes(op: &Op) -> Option<usize> {
        match op {
            Op::Key(_, Operation::Read) | Op::Scan(..) => None,
            Op::Key(key, _) => Some(*key),
        }
    }

    fn blank() -> State {
        None
    }

    fn after(state: &State, op: &Op, answer: Option<&Result<Answer, Refused>>) -> Option<State> {
        let operation = match op {
            Op::Key(_, operation) => *operation,
            Op::Scan(..) => Operation::Read,
        };
        let (given, next) = history::apply(operation, *state);
        match answer {
            Some(Err(Refused)) => Some(*state),
            Some(Ok(answer)) => (*answer == given).then_some(next),
            None => Some(next),
        }
    }
}

/// An index as a subject.
pub struct Map<I>(std::marker::PhantomData<I>);

/// An index in an open pool.
pub struct Open<I: Indexed, D: Domain> {
    pub(super) index: <I::Kind as IndexKind>::Index<D>,
    pub(super) catalog: Arc<Catalog<D>>,
}

/// The key of a number. Keys ascend with their numbers. Some are long, and some end within a word.
pub(super) fn key<I: Indexed>(number: usize) -> Vec<u8> {
    let mut key = ((number as u64) << shift::<I>()).to_be_bytes().to_vec();
    match number % 7 {
        _ if I::FIXED => {}
        1 => key.extend_from_slice(b"odd"),
        3 => key.extend_from_slice(&[b'k'; 32]),
        5 => key.extend_from_slice(&[b'l'; 80]),
        _ => {}
    }
    key
}

/// Keys of eight bytes are far from each other: their distances leave a range leaf little room for
/// versions, or none.
fn shift<I: Indexed>() -> u32 {
    if I::FIXED { 47 } else { 0 }
}

fn number_of<I: Indexed>(found: &[u8]) -> Result<usize, String> {
    let number = found.first_chunk().map(|bytes| u64::from_be_bytes(*bytes) >> shift::<I>());
    let number = number.map(|number| number as usize);
    number
        .filter(|&number| number < KEYS && key::<I>(number) == found)
        .ok_or_else(|| format!("a key that no thread inserted: {found:02x?}"))
}

/// The bits around the number of a value. The word looks like the metadata of a record, so that a
/// test fails if an index takes bytes of values for metadata.
const DISGUISE: u64 = 2 << 58 | 40 << 32 | 8 << 16;

/// The value with a number: one word, repeated. One value in five is long.
fn value<I: Indexed>(number: u64) -> Vec<u8> {
    let words = match number % 5 {
        _ if I::FIXED => 1,
        4 => 25,
        _ => 1 + number as usize % 3,
    };
    // Two bits of the number are the highest ones, which some indexes store elsewhere: values
    // differ in these alone.
    let highest = (number >> 1 & 3) << 62;
    (number & !6 | DISGUISE | highest).to_le_bytes().repeat(words)
}

fn value_number<I: Indexed>(found: &[u8]) -> Result<u64, String> {
    let word = found.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let number = word.map(|word| word & 0xFFF9 | word >> 62 << 1);
    number
        .filter(|&number| value::<I>(number) == found)
        .ok_or_else(|| format!("a torn value: {found:02x?}"))
}

impl<I: Indexed, D: Domain> Open<I, D> {
    /// Its structure.
    pub(super) fn shape(&self) -> Audit {
        self.index.audit().expect("an index that no other thread uses")
    }

    pub(super) fn on_key(&self, key: &[u8], operation: Operation) -> Result<Answer, Refused> {
        let fail = |error: Error| -> ! { panic!("{operation:?}: {error}") };
        // Only writes of values may be refused: removes and reads need no room.
        let refused = |error: Error| match error {
            Error::Storage(_) if may_refuse() => Err(Refused),
            error => fail(error),
        };
        let written = |answer: Result<(), Error>| match answer {
            Ok(()) => Ok(Answer::Done),
            Err(Error::KeyExists) => Ok(Answer::KeyExists),
            Err(Error::KeyNotFound) => Ok(Answer::KeyNotFound),
            Err(Error::ValueMismatch) => Ok(Answer::ValueMismatch),
            Err(error) => refused(error),
        };
        Ok(match operation {
            Operation::Insert(new) => return written(self.index.insert(key, &value::<I>(new))),
            Operation::Update(new) => return written(self.index.update(key, &value::<I>(new))),
            Operation::Upsert(new) => match self.index.upsert(key, &value::<I>(new)) {
                Ok(Upserted::Inserted) => Answer::Inserted,
                Ok(Upserted::Updated) => Answer::Updated,
                Err(error) => return refused(error),
            },
            Operation::Put(new) => return written(self.index.put(key, &value::<I>(new))),
            Operation::Read => {
                let found = self.index.get(key).unwrap_or_else(|error| fail(error));
                let number = |value: Vec<u8>| value_number::<I>(&value);
                Answer::Found(found.map(number).transpose().unwrap_or_else(|what| panic!("{what}")))
            }
            Operation::Remove => match self.index.remove(key) {
                Ok(was_there) => Answer::Removed(was_there),
                Err(error) if I::REMOVES_NEED_ROOM => return refused(error),
                Err(error) => fail(error),
            },
            Operation::CompareExchange { expected, new } => {
                return written(self.index.compare_exchange(
                    key,
                    &value::<I>(expected),
                    &value::<I>(new),
                ));
            }
            Operation::CompareRemove(expected) => {
                return written(self.index.compare_remove(key, &value::<I>(expected)));
            }
        })
    }

    /// The records of a range, by number; checks their order.
    fn list(&self, range: KeyRange, order: Order) -> Result<BTreeMap<usize, State>, String> {
        let mut list = BTreeMap::new();
        let mut last = None;
        let mut cursor = self.index.scan(range, order).map_err(|error| error.to_string())?;
        if order == Order::Descending {
            cursor.expect(usize::MAX);
        }
        while let Some((key, value)) = cursor.next().map_err(|error| error.to_string())? {
            let number = number_of::<I>(key)?;
            let forwards = order == Order::Ascending;
            if last.is_some_and(|last| if forwards { last >= number } else { last <= number }) {
                return Err(format!("a scan goes from key {last:?} to key {number}"));
            }
            last = Some(number);
            list.insert(number, Some(value_number::<I>(value)?));
        }
        Ok(list)
    }
}

impl<I: Indexed, D: Domain> Opened<MapModel> for Open<I, D> {
    fn perform(&self, op: &Op) -> Vec<Noted<MapModel>> {
        match *op {
            Op::Key(number, operation) => {
                vec![(number, *op, self.on_key(&key::<I>(number), operation))]
            }
            Op::Scan(from, to, order) => {
                let range = KeyRange {
                    low: Bound::Included(key::<I>(from)),
                    high: Bound::Excluded(key::<I>(to)),
                };
                let found = self.list(range, order).unwrap_or_else(|what| panic!("{what}"));
                // A read of each key in the range, at some instant of the scan.
                let read = |number| {
                    let state = found.get(&number).copied().flatten();
                    (number, Op::Key(number, Operation::Read), Ok(Answer::Found(state)))
                };
                (from..to).map(read).collect()
            }
        }
    }

    fn observe(&self) -> Result<Observed<MapModel>, String> {
        let ascending = self.list(KeyRange::all(), Order::Ascending)?;
        if ascending != self.list(KeyRange::all(), Order::Descending)? {
            return Err("the scans in both directions differ".into());
        }
        // The scans have found all of them; some are read by gets, too.
        for (&number, &state) in ascending.iter().step_by(3) {
            let found = self.on_key(&key::<I>(number), Operation::Read);
            if found != Ok(Answer::Found(state)) {
                return Err(format!("key {number} is {state:?} by a scan and {found:?} by a get"));
            }
        }
        Ok(ascending)
    }

    fn audit(&self) -> Result<(), String> {
        let audit = self.index.audit().map_err(|error| error.to_string())?;
        if let Some(problem) = audit.problems.first() {
            return Err(format!("the node at {:#x}: {}", problem.node_off, problem.what));
        }
        let guard = self.catalog.pool().pin().map_err(|error| error.to_string())?;
        let mut reached: Vec<u64> = audit.blocks.iter().map(|block| block.off).collect();
        reached.extend(self.catalog.maps(&guard).iter().map(|entry| entry.header_off));
        compare_blocks(self.catalog.pool(), &reached)
    }

    fn exercise(&self) -> Result<(), String> {
        let before = self.list(KeyRange::all(), Order::Ascending)?;
        let absent: Vec<usize> = (0..KEYS).filter(|number| !before.contains_key(number)).collect();
        // Some keys everywhere, and many at one place.
        let scattered = absent.iter().step_by(7).take(20);
        let place = before.len() % absent.len().max(1);
        let dense = absent.iter().skip(place).take(12);
        let fresh: BTreeSet<usize> = scattered.chain(dense).copied().collect();
        for &number in &fresh {
            let done = self.on_key(&key::<I>(number), Operation::Insert(number as u64));
            if done != Ok(Answer::Done) {
                return Err(format!("key {number} is absent, and its insert answers {done:?}"));
            }
        }
        for &number in &fresh {
            let done = self.on_key(&key::<I>(number), Operation::Remove);
            if done != Ok(Answer::Removed(true)) {
                return Err(format!("key {number} was inserted, and its remove answers {done:?}"));
            }
        }
        if self.list(KeyRange::all(), Order::Descending)? != before {
            return Err(
                "the records before some inserts and their removes differ from those after".into(),
            );
        }
        if I::MERGES_LATER && before.is_empty() { self.expect_one_leaf() } else { Ok(()) }
    }
}

impl<I: Indexed, D: Domain> Open<I, D> {
    /// Whether an index without records has only one leaf after a write was refused room.
    fn expect_one_leaf(&self) -> Result<(), String> {
        let key = key::<I>(0);
        // Its value has a block. The first refusal causes a reclamation, the second the deferred
        // merges.
        let insert = || self.on_key(&key, Operation::Insert(4));
        let (inserted, was_refused) = refuse(Resource::Block, 0, 2, insert);
        if !was_refused {
            return Err("the insert of a long value requested no block".into());
        }
        if inserted != Ok(Answer::Done) {
            return Err(format!("an insert is refused twice, and then answers {inserted:?}"));
        }
        let removed = self.on_key(&key, Operation::Remove);
        match (removed, self.shape().stat.leaves) {
            (Ok(Answer::Removed(true)), 1) => Ok(()),
            (removed, leaves) => {
                Err(format!("{removed:?}: an index without records has {leaves} leaves"))
            }
        }
    }
}

/// A structure modification by one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node is replaced.
    Consolidation,
    /// The same, for a node whose records are removed and inserted again.
    Churn,
    /// One leaf more.
    LeafSplit,
    /// One inner node more.
    InnerSplit,
    /// One level more.
    RootSplit,
    /// One leaf less.
    LeafMerge,
    /// One inner node less.
    InnerMerge,
    /// One level less.
    RootCollapse,
}

impl Change {
    /// The modifications of all trees with inner nodes.
    pub const OF_TREES: &'static [Self] = &[
        Self::Consolidation,
        Self::LeafSplit,
        Self::InnerSplit,
        Self::RootSplit,
        Self::LeafMerge,
        Self::InnerMerge,
        Self::RootCollapse,
    ];
}
