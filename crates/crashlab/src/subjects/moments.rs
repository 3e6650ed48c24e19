//! An index whose scans find what one leaf holds as it was at one moment.
//!
//! The contract asks less: of each key what it was at some instant of the scan, and so `map.rs`
//! judges. Here the few keys that there are, all in one leaf, are one part of the state together. So
//! a scan that finds a later write but not an earlier one is explained by no order.
//!
//! Values are short: those in blocks of their own are read one after the other.

use std::marker::PhantomData;
use std::sync::Arc;

use pando_index::conformance::history::{Answer as OnKey, Operation};
use pando_index::{KeyRange, Order};
use pando_pmem::testing::Random;
use pando_pmem::{Domain, Pool};

use super::map::{Indexed, Map, Open as OpenMap, key};
use super::{Noted, Observed, Opened, Scenario, Setup, Subject};

/// Numbers of keys, all of one length.
const KEYS: [usize; 4] = [0, 2, 4, 6];
/// The one part of the state.
const ALL: usize = 0;

/// What is there, by the place of its key in [`KEYS`].
pub type State = [Option<u64>; KEYS.len()];

/// A scan, or a write to the key at that place.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// An upsert of the value.
    Put(usize, u64),
    /// A remove.
    Remove(usize),
    /// A scan of all.
    Scan(Order),
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was put there.
    Put,
    /// Whether there was something to remove.
    Removed(bool),
    /// What the scan found.
    Found(State),
}

/// An index whose scans are so.
pub trait OfMoments: Indexed {
    /// The name of the subject, as the command takes it.
    const NAME: &'static str;
}

/// An index as a subject.
pub struct Moments<I>(PhantomData<I>);

/// An index in an open pool.
pub struct Open<I: OfMoments, D: Domain>(OpenMap<I, D>);

impl<I: OfMoments> Subject for Moments<I> {
    type Op = Op;
    type Answer = Answer;
    type State = State;
    type Open<D: Domain> = Open<I, D>;

    const NAME: &'static str = <I as OfMoments>::NAME;
    const POOL_BYTES: u64 = Map::<I>::POOL_BYTES;

    fn open<D: Domain>(pool: Arc<Pool<D>>) -> Result<Open<I, D>, String> {
        <Map<I> as Subject>::open(pool).map(Open)
    }

    fn scenarios() -> Vec<Scenario<Self>> {
        vec![Scenario::new("scan", 1, || Setup {
            prepare: vec![Op::Put(0, 0), Op::Put(2, 0)],
            cram: Vec::new(),
            programs: Box::new(programs),
        })]
    }

    fn changes(op: &Op) -> Option<usize> {
        match op {
            Op::Put(..) | Op::Remove(_) => Some(ALL),
            Op::Scan(_) => None,
        }
    }

    fn blank() -> State {
        [None; KEYS.len()]
    }

    fn after(state: &State, op: &Op, answer: Option<&Answer>) -> Option<State> {
        let mut next = *state;
        let given = match *op {
            Op::Put(place, number) => {
                next[place] = Some(number);
                Answer::Put
            }
            Op::Remove(place) => Answer::Removed(next[place].take().is_some()),
            Op::Scan(_) => Answer::Found(next),
        };
        answer.is_none_or(|answer| *answer == given).then_some(next)
    }
}

/// One thread scans, one or two others write.
fn programs(random: &mut Random) -> Vec<Vec<Op>> {
    let write = |stamp: u64, random: &mut Random| {
        let place = random.below(KEYS.len() as u64) as usize;
        if random.one_in(4) { Op::Remove(place) } else { Op::Put(place, stamp) }
    };
    let writes = |task: u64, random: &mut Random| {
        (0..2 + random.below(3)).map(|step| write(10 * task + step, random)).collect()
    };
    let order = if random.one_in(2) { Order::Ascending } else { Order::Descending };
    let mut programs = vec![vec![Op::Scan(order); 1 + random.below(2) as usize]];
    programs.extend((1..=1 + random.below(2)).map(|task| writes(task, random)));
    programs
}

/// The number of a value that needs no block of its own.
fn stored(number: u64) -> u64 {
    number * 5
}

impl<I: OfMoments, D: Domain> Open<I, D> {
    fn on_key(&self, place: usize, operation: Operation) -> OnKey {
        self.0.on_key(&key::<I>(KEYS[place]), operation).expect("the pool has room")
    }

    fn scan(&self, order: Order) -> Result<State, String> {
        let found = self.0.list(KeyRange::all(), order)?;
        if let Some(number) = found.keys().find(|number| !KEYS.contains(number)) {
            return Err(format!("there is a key {number} that nobody inserted"));
        }
        Ok(KEYS.map(|number| found.get(&number).copied().flatten().map(|value| value / 5)))
    }
}

impl<I: OfMoments, D: Domain> Opened<Moments<I>> for Open<I, D> {
    fn perform(&self, op: &Op) -> Vec<Noted<Moments<I>>> {
        let answer = match *op {
            Op::Put(place, number) => {
                self.on_key(place, Operation::Upsert(stored(number)));
                Answer::Put
            }
            Op::Remove(place) => {
                Answer::Removed(self.on_key(place, Operation::Remove) == OnKey::Removed(true))
            }
            Op::Scan(order) => {
                Answer::Found(self.scan(order).unwrap_or_else(|what| panic!("{what}")))
            }
        };
        vec![(ALL, *op, answer)]
    }

    fn observe(&self) -> Result<Observed<Moments<I>>, String> {
        match self.0.shape().stat.leaves {
            1 => Ok([(ALL, self.scan(Order::Ascending)?)].into()),
            leaves => Err(format!("{leaves} leaves, and no scan need find them as at one moment")),
        }
    }

    fn audit(&self) -> Result<(), String> {
        self.0.audit()
    }

    fn exercise(&self) -> Result<(), String> {
        self.0.exercise()
    }
}
