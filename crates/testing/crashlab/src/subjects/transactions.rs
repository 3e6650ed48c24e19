//! Transactions over two maps of an index. The state is one part: all records of both maps, which
//! each transaction reads and changes at one instant.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;

use pando_index::random::Random;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_log::{Log, LogOptions};
use pando_pmem::{Domain, Pool, layout};
use pando_tc::{Error, Maps, Transaction, TransactionComponent};
use pando_tree::maps::{Catalog, IndexKind, IndexOptions, Tree};

use super::map::Indexed;
use super::{Noted, Observed, Opened, Scenario, Setup, Subject, compare_blocks};

/// Keys of each map; a key that only recovery uses is behind them.
const KEYS: u8 = 4;

/// A key: the number of its map, and its own.
type Key = (u64, u8);

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

/// An operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// A transaction of these steps.
    Run(Vec<Step>),
    /// Settles all commits.
    Settle,
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It committed, and its steps have read this.
    Committed(Vec<Option<u8>>),
    /// It was in conflict with another one.
    Conflict,
}

/// The records of both maps.
pub type State = BTreeMap<Key, u8>;

/// Transactions over maps of an index.
pub struct Transactions<I>(PhantomData<I>);

/// Two maps.
pub struct TwoMaps<I: Indexed, D: Domain>([<I::Kind as IndexKind>::Index<D>; 2]);

impl<I: Indexed, D: Domain> Maps for TwoMaps<I, D> {
    type Lent<'maps> = &'maps dyn RangeIndex;

    fn map(&self, number: u64) -> Option<&dyn RangeIndex> {
        self.0.get(number as usize).map(|map| map as &dyn RangeIndex)
    }
}

/// The transaction component of an open pool.
pub struct Open<I: Indexed, D: Domain> {
    component: TransactionComponent<D, TwoMaps<I, D>>,
    catalog: Arc<Catalog<D>>,
}

/// What a step does to a state: what it reads, and what it writes.
fn apply(state: &mut State, step: Step) -> Option<u8> {
    match step {
        Step::Get(key) => state.get(&key).copied(),
        Step::Put(key, value) => {
            state.insert(key, value);
            None
        }
        Step::Remove(key) => {
            state.remove(&key);
            None
        }
        Step::Add(from, to) => {
            let read = state.get(&from).copied();
            state.insert(to, read.unwrap_or_default().wrapping_add(1));
            read
        }
        Step::Count(map, to) => {
            let count = state.keys().filter(|key| key.0 == map).count() as u8;
            state.insert(to, count);
            Some(count)
        }
    }
}

/// A long value in its own block, or a short one.
fn bytes_of(value: u8) -> Vec<u8> {
    vec![value; if value.is_multiple_of(3) { 200 } else { 1 }]
}

impl<I: Indexed> Subject for Transactions<I> {
    type Op = Op;
    type Answer = Answer;
    type State = State;
    type Open<D: Domain> = Open<I, D>;

    const NAME: &'static str = "transactions";
    const POOL_BYTES: u64 = I::POOL_BYTES;

    fn open<D: Domain>(pool: Arc<Pool<D>>) -> Result<Open<I, D>, String> {
        let text = |error: &dyn std::error::Error| error.to_string();
        let catalog = Arc::new(Catalog::open(pool.clone()).map_err(|error| text(&error))?);
        let options = <I::Kind as IndexKind>::Options::parse(I::SMALL);
        let options = options.map_err(|error| text(&error))?;
        let map = |name| {
            catalog.find_or_create_index::<I::Kind>(name, options).map_err(|error| text(&error))
        };
        let maps = TwoMaps([map("first")?, map("second")?]);
        let log = Log::without_files(pool, layout::LOG_OFF, LogOptions::default());
        let log = log.map_err(|error| text(&error))?;
        let component = TransactionComponent::open(log, maps).map_err(|error| text(&error))?;
        Ok(Open { component, catalog })
    }

    fn scenarios() -> Vec<Scenario<Self>> {
        let [a, b] = [(0, 0), (1, 0)];
        let fixed = |name, programs: Vec<Vec<Vec<Step>>>| {
            scenario(name, move |_| {
                let runs = |program: &Vec<_>| program.iter().cloned().map(Op::Run).collect();
                programs.iter().map(runs).collect()
            })
        };
        vec![
            // Whatever is read or settled must be durable.
            fixed("read", vec![vec![vec![Step::Put(a, 7)]], vec![vec![Step::Get(a)]]]),
            scenario("settle", move |_| {
                vec![vec![Op::Run(vec![Step::Put(a, 7)])], vec![Op::Settle]]
            }),
            fixed("write-skew", vec![vec![vec![Step::Add(a, b)]], vec![vec![Step::Add(b, a)]]]),
            fixed(
                "phantoms",
                vec![vec![vec![Step::Count(0, (1, 2))]], vec![vec![Step::Count(1, (0, 2))]]],
            ),
            // The second comes behind the first, and the third sees it.
            fixed(
                "reader",
                vec![
                    vec![vec![Step::Add(a, b)]],
                    vec![vec![Step::Put(a, 7)], vec![Step::Get(a), Step::Get(b)]],
                ],
            ),
            fixed(
                "same-keys",
                vec![
                    vec![vec![Step::Put((0, 1), 3), Step::Remove(a), Step::Put(b, 4)]],
                    vec![vec![Step::Remove((0, 1)), Step::Put(a, 6), Step::Remove(b)]],
                ],
            ),
            scenario("any", |random| {
                let threads = 2 + random.below(2);
                let runs =
                    |random: &mut Random| (0..1 + random.below(2)).map(|_| any(random)).collect();
                (0..threads).map(|_| runs(random)).collect()
            }),
        ]
    }

    fn changes(op: &Op) -> Option<usize> {
        match op {
            Op::Run(steps) => {
                let is_read_only = steps.iter().all(|step| matches!(step, Step::Get(_)));
                (!is_read_only).then_some(0)
            }
            Op::Settle => None,
        }
    }

    fn blank() -> State {
        State::new()
    }

    fn after(state: &State, op: &Op, answer: Option<&Answer>) -> Option<State> {
        let Op::Run(steps) = op else { return Some(state.clone()) };
        if answer == Some(&Answer::Conflict) {
            return Some(state.clone());
        }
        let mut next = state.clone();
        let read: Vec<_> = steps.iter().map(|&step| apply(&mut next, step)).collect();
        let is_possible = answer.is_none_or(|answer| *answer == Answer::Committed(read));
        is_possible.then_some(next)
    }
}

fn scenario<I: Indexed>(
    name: &'static str,
    programs: impl Fn(&mut Random) -> Vec<Vec<Op>> + 'static,
) -> Scenario<Transactions<I>> {
    Scenario::new(name, 1, move || Setup {
        prepare: vec![Op::Run(vec![
            Step::Put((0, 0), 1),
            Step::Put((1, 0), 2),
            Step::Put((1, 1), 3),
        ])],
        cram: Vec::new(),
        programs: Box::new(programs),
    })
}

/// Any operation.
fn any(random: &mut Random) -> Op {
    if random.one_in(8) {
        return Op::Settle;
    }
    Op::Run((0..1 + random.below(3)).map(|_| any_step(random)).collect())
}

fn any_step(random: &mut Random) -> Step {
    let key = |random: &mut Random| (random.below(2), random.below(KEYS.into()) as u8);
    let (from, to) = (key(random), key(random));
    match random.below(8) {
        0 | 1 => Step::Get(from),
        2 | 3 => Step::Put(from, random.below(250) as u8),
        4 => Step::Remove(from),
        5 => Step::Count(from.0, (1 - from.0, from.1)),
        _ => Step::Add(from, to),
    }
}

impl<I: Indexed, D: Domain> Open<I, D> {
    /// Runs the steps, and commits.
    fn run(&self, steps: &[Step]) -> Result<Vec<Option<u8>>, Error> {
        let mut transaction = self.component.begin();
        let read =
            steps.iter().map(|&step| perform(&mut transaction, step)).collect::<Result<_, _>>()?;
        transaction.commit()?;
        Ok(read)
    }

    fn settle(&self) -> Result<(), String> {
        self.component
            .log()
            .write_block(&self.component)
            .map(drop)
            .map_err(|error| error.to_string())
    }
}

fn perform<I: Indexed, D: Domain>(
    transaction: &mut Transaction<'_, D, TwoMaps<I, D>>,
    step: Step,
) -> Result<Option<u8>, Error> {
    let put = |transaction: &mut Transaction<'_, D, _>, (map, key): Key, value: u8| {
        transaction.put(map, &[key], &bytes_of(value))
    };
    let get = |transaction: &mut Transaction<'_, D, TwoMaps<I, D>>, (map, key): Key| {
        Ok::<_, Error>(transaction.get(map, &[key])?.map(|value| value[0]))
    };
    match step {
        Step::Get(key) => get(transaction, key),
        Step::Put(key, value) => put(transaction, key, value).map(|()| None),
        Step::Remove((map, key)) => transaction.remove(map, &[key]).map(|()| None),
        Step::Add(from, to) => {
            let read = get(transaction, from)?;
            put(transaction, to, read.unwrap_or_default().wrapping_add(1))?;
            Ok(read)
        }
        Step::Count(map, to) => {
            let mut count = 0;
            transaction.scan(map, KeyRange::all(), Order::Descending, &mut |_, _| {
                count += 1;
                ControlFlow::Continue(())
            })?;
            put(transaction, to, count)?;
            Ok(Some(count))
        }
    }
}

impl<I: Indexed, D: Domain> Opened<Transactions<I>> for Open<I, D> {
    fn perform(&self, op: &Op) -> Vec<Noted<Transactions<I>>> {
        let answer = match op {
            Op::Settle => {
                self.settle().expect("settles");
                return Vec::new();
            }
            Op::Run(steps) => match self.run(steps) {
                Ok(read) => Answer::Committed(read),
                Err(Error::Conflict { .. }) => Answer::Conflict,
                Err(error) => panic!("{error}"),
            },
        };
        vec![(0, op.clone(), answer)]
    }

    fn observe(&self) -> Result<Observed<Transactions<I>>, String> {
        let read = self.component.transaction(|transaction| {
            let mut state = State::new();
            for map in 0..2 {
                transaction.scan(map, KeyRange::all(), Order::Ascending, &mut |key, value| {
                    state.insert((map, key[0]), value[0]);
                    ControlFlow::Continue(())
                })?;
            }
            Ok::<_, Error>(state)
        });
        let (state, _) = read.map_err(|error| error.to_string())?;
        for map in 0..2 {
            for key in 0..KEYS {
                let found = self.component.get(map, &[key]).map_err(|error| error.to_string())?;
                let expected = state.get(&(map, key)).map(|&value| bytes_of(value));
                if found != expected {
                    return Err(format!("key {key} of map {map} is {found:?}, not {expected:?}"));
                }
            }
        }
        Ok([(0, state)].into())
    }

    fn audit(&self) -> Result<(), String> {
        let guard = self.catalog.pool().pin().map_err(|error| error.to_string())?;
        let mut reached = self.component.log().blocks(&guard);
        reached.extend(self.catalog.maps(&guard).iter().map(|entry| entry.header_off));
        for map in &self.component.maps().0 {
            let audit = map.audit().map_err(|error| error.to_string())?;
            if let Some(problem) = audit.problems.first() {
                return Err(format!("the node at {:#x}: {}", problem.node_off, problem.what));
            }
            reached.extend(audit.blocks.iter().map(|block| block.off));
        }
        compare_blocks(self.catalog.pool(), &reached)
    }

    fn exercise(&self) -> Result<(), String> {
        let keys = [(0, KEYS), (1, KEYS)];
        for steps in [keys.map(|key| Step::Put(key, 9)), keys.map(Step::Remove)] {
            self.run(&steps).map_err(|error| format!("nothing else runs: {error}"))?;
        }
        self.settle()
    }
}
