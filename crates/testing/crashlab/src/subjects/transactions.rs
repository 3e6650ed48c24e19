//! Transactions and snapshots over two maps of an index. `steps.rs` has the model.
//!
//! A variant has a log with files on the simulated device, which also writes images and truncates
//! the log. Each operation on the device is a step, at which a thread may be stopped or the run
//! cut, like a store.

use std::error::Error as StdError;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pando_device::simulated::Simulated;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_log::{Log, LogOptions};
use pando_pmem::{CreateOptions, Domain, Pool, Process, layout};
use pando_tc::{
    Error, ListedMap, MapList, Maps, Rebuild, Snapshot, SnapshotOptions, Transaction,
    TransactionComponent, replay,
};
use pando_tree::maps::{Catalog, IndexKind, IndexOptions, Tree};

use super::map::Indexed;
use super::steps::{Answer, KEYS, Key, MAPS, Op, Seen, State, Step, TransactionsModel, Way};
use super::{Noted, Observed, Opened, Session, compare_blocks};

/// Segments and a tail so small that a run fills them.
const SMALL: LogOptions = LogOptions { segment_bytes: 64 << 10, tail_bytes: 64 << 10 };
/// Blocks of a segment, if each has a small commit.
const BLOCKS: u64 = 16;

/// Transactions over maps of an index; with `FILES`, those of its log are on the device.
pub struct Transactions<I, const FILES: bool>(PhantomData<I>);

/// The two maps.
pub struct TwoMaps<I: Indexed, D: Domain>([Arc<<I::Kind as IndexKind>::Index<D>>; 2]);

impl<I: Indexed, D: Domain> TwoMaps<I, D> {
    fn open(catalog: &Arc<Catalog<D>>) -> Result<Self, String> {
        let options = <I::Kind as IndexKind>::Options::parse(I::SMALL).map_err(text)?;
        let map = |name| {
            catalog.find_or_create_index::<I::Kind>(name, options).map(Arc::new).map_err(text)
        };
        Ok(Self([map("first")?, map("second")?]))
    }
}

impl<I: Indexed, D: Domain> Maps for TwoMaps<I, D> {
    type Lent<'maps> = &'maps dyn RangeIndex;

    fn map(&self, number: u64) -> Option<&dyn RangeIndex> {
        self.0.get(place_of(number)?).map(|map| &**map as &dyn RangeIndex)
    }
}

/// The place of the map with this number.
fn place_of(number: u64) -> Option<usize> {
    MAPS.iter().position(|&map| map == number)
}

fn list() -> MapList {
    let map = |&number: &u64| ListedMap {
        name: format!("map {number}"),
        kind: 1,
        options: [0; 4],
        number,
    };
    MapList { version: 1, max_bytes: 0, maps: MAPS.iter().map(map).collect() }
}

fn text(error: impl StdError) -> String {
    error.to_string()
}

/// The transaction component of an open pool.
pub struct Open<I: Indexed, D: Domain> {
    component: TransactionComponent<D, TwoMaps<I, D>>,
    catalog: Arc<Catalog<D>>,
}

type OpenTransaction<'open, I, D> = Transaction<'open, D, TwoMaps<I, D>>;

/// What a thread holds from one operation to the next.
enum Held<'open, I: Indexed, D: Domain> {
    Nothing,
    Snapshot(Snapshot<'open, D, TwoMaps<I, D>>),
    Transaction(OpenTransaction<'open, I, D>),
}

/// A long value in its own block, or a short one.
fn bytes_of(value: u8) -> Vec<u8> {
    vec![value; if value.is_multiple_of(3) { 200 } else { 1 }]
}

/// The value with these bytes.
fn value_of(bytes: &[u8]) -> u8 {
    let value = bytes.first().copied().unwrap_or_default();
    assert_eq!(bytes, bytes_of(value), "a value is torn");
    value
}

impl<I: Indexed, D: Domain> Open<I, D> {
    /// Opens or creates the component, and its log: with `files`, or without.
    pub fn new(pool: Arc<Pool<D>>, files: Option<&Simulated>) -> Result<Self, String> {
        let catalog = Arc::new(Catalog::open(pool.clone()).map_err(text)?);
        let maps = TwoMaps::open(&catalog)?;
        let is_new = pool.word(layout::LOG_OFF).load(Ordering::Acquire) == 0;
        let log = match files.map(|files| Arc::new(files.clone())) {
            None => Log::without_files(pool, layout::LOG_OFF, LogOptions::default()),
            Some(files) if is_new => Log::create(pool, layout::LOG_OFF, files, (1, 0), SMALL),
            Some(files) => Log::open(pool, layout::LOG_OFF, files, SMALL),
        };
        let component = TransactionComponent::open(log.map_err(text)?, maps).map_err(text)?;
        if is_new {
            component.log_maps(&list()).map_err(text)?;
        }
        Ok(Self { component, catalog })
    }

    /// Runs the steps, and commits.
    fn run(&self, steps: &[Step]) -> Result<Vec<Option<u8>>, Error> {
        run_in(self.component.begin(), steps)
    }

    /// Reads all records through what a thread holds. They are the same each time.
    fn look(&self, held: &mut Held<'_, I, D>, seen: &Seen, way: Way) -> Result<(), Error> {
        let mut found = State::new();
        for map in MAPS {
            let order = match way {
                Way::Gets => {
                    for key in 0..KEYS {
                        let value = match held {
                            Held::Nothing => None,
                            Held::Snapshot(snapshot) => snapshot.get(map, &[key])?,
                            Held::Transaction(transaction) => transaction.get(map, &[key])?,
                        };
                        found.extend(value.map(|value| ((map, key), value_of(&value))));
                    }
                    continue;
                }
                Way::Ascending => Order::Ascending,
                Way::Descending => Order::Descending,
            };
            let mut visit = |key: &[u8], value: &[u8]| {
                found.insert((map, key[0]), value_of(value));
                ControlFlow::Continue(())
            };
            match held {
                Held::Nothing => {}
                Held::Snapshot(snapshot) => {
                    let index = self.component.maps().map(map).ok_or(Error::UnknownMap { map })?;
                    let mut cursor = snapshot.scan(map, index, KeyRange::all(), order)?;
                    while let Some((key, value)) = cursor.next()? {
                        let _ = visit(key, value);
                    }
                }
                Held::Transaction(transaction) => {
                    transaction.scan(map, KeyRange::all(), order, &mut visit)?;
                }
            }
        }
        let first = seen.get_or_init(|| found.clone());
        assert_eq!(found, *first, "a snapshot shows something else than before");
        Ok(())
    }

    /// One operation of a thread.
    fn perform_holding<'open>(
        &'open self,
        held: &mut Held<'open, I, D>,
        op: &Op,
    ) -> Result<Option<Answer>, Error> {
        let taken = match op {
            Op::Take(_) | Op::Begin(_) | Op::Commit(..) | Op::Release => {
                std::mem::replace(held, Held::Nothing)
            }
            _ => Held::Nothing,
        };
        let ran = match op {
            Op::Run(steps) => self.run(steps),
            Op::Commit(seen, steps) => {
                let mut taken = taken;
                self.look(&mut taken, seen, Way::Gets)?;
                let Held::Transaction(transaction) = taken else { return Ok(None) };
                run_in(transaction, steps)
            }
            Op::Look(seen, way) => return self.look(held, seen, *way).map(|()| None),
            Op::Release => return Ok(None),
            Op::Take(_) => {
                drop(taken);
                *held = Held::Snapshot(self.component.snapshot(SnapshotOptions::default())?);
                return Ok(Some(Answer::Done));
            }
            Op::Begin(_) => {
                drop(taken);
                let transaction = self.component.begin_over_snapshot(SnapshotOptions::default())?;
                *held = Held::Transaction(transaction);
                return Ok(Some(Answer::Done));
            }
            Op::Settle => return self.component.settle().map(|()| Some(Answer::Done)),
            Op::Sync => {
                self.component.sync(self.component.newest_lsn()?)?;
                return Ok(Some(Answer::Done));
            }
            Op::Image => {
                let list = || Ok::<_, Error>(list());
                self.component.write_image(list, &AtomicBool::new(false))?;
                return Ok(Some(Answer::Done));
            }
            Op::Fill => {
                for _ in 0..BLOCKS {
                    // Another thread that does the same may come first.
                    let nothing = self.run(&[Step::Remove((MAPS[0], KEYS + 1))]);
                    if !matches!(nothing, Err(Error::Conflict { .. })) {
                        nothing?;
                    }
                    self.component.settle()?;
                }
                return Ok(None);
            }
            Op::Reclaim => {
                self.catalog.pool().reclaim().map_err(pando_log::Error::from)?;
                return Ok(None);
            }
        };
        match ran {
            Ok(read) => Ok(Some(Answer::Committed(read))),
            Err(Error::Conflict { .. }) => Ok(Some(Answer::Conflict)),
            Err(error) => Err(error),
        }
    }

    /// All records, read in two ways.
    fn state(&self) -> Result<State, String> {
        let read = self.component.transaction(|transaction| {
            let mut state = State::new();
            for map in MAPS {
                transaction.scan(map, KeyRange::all(), Order::Ascending, &mut |key, value| {
                    state.insert((map, key[0]), value_of(value));
                    ControlFlow::Continue(())
                })?;
            }
            Ok::<_, Error>(state)
        });
        let (state, _) = read.map_err(text)?;
        for map in MAPS {
            for key in 0..KEYS {
                let found = self.component.get(map, &[key]).map_err(text)?;
                let expected = state.get(&(map, key)).map(|&value| bytes_of(value));
                if found != expected {
                    return Err(format!("key {key} of map {map} is {found:?}, not {expected:?}"));
                }
            }
        }
        Ok(state)
    }

    /// Checks the maps, and the allocated blocks.
    fn check(&self) -> Result<(), String> {
        let guard = self.catalog.pool().pin().map_err(text)?;
        let mut reached = self.component.log().blocks(&guard);
        reached.extend(self.catalog.maps(&guard).iter().map(|entry| entry.header_off));
        for map in &self.component.maps().0 {
            let audit = map.audit().map_err(text)?;
            if let Some(problem) = audit.problems.first() {
                return Err(format!("the node at {:#x}: {}", problem.node_off, problem.what));
            }
            reached.extend(audit.blocks.iter().map(|block| block.off));
        }
        compare_blocks(self.catalog.pool(), &reached)
    }

    /// Writes and removes keys that no other operation has.
    fn use_again(&self) -> Result<(), String> {
        let keys = MAPS.map(|map| (map, KEYS));
        for steps in [keys.map(|key| Step::Put(key, 9)), keys.map(Step::Remove)] {
            self.run(&steps).map_err(|error| format!("nothing else runs: {error}"))?;
        }
        self.component.settle().map_err(text)
    }
}

fn run_in<I: Indexed, D: Domain>(
    mut transaction: OpenTransaction<'_, I, D>,
    steps: &[Step],
) -> Result<Vec<Option<u8>>, Error> {
    let read = steps.iter().map(|&step| perform(&mut transaction, step)).collect::<Result<_, _>>();
    let read = read?;
    transaction.commit()?;
    Ok(read)
}

fn perform<I: Indexed, D: Domain>(
    transaction: &mut OpenTransaction<'_, I, D>,
    step: Step,
) -> Result<Option<u8>, Error> {
    let put = |transaction: &mut OpenTransaction<'_, I, D>, (map, key): Key, value: u8| {
        transaction.put(map, &[key], &bytes_of(value))
    };
    let get = |transaction: &mut OpenTransaction<'_, I, D>, (map, key): Key| {
        Ok::<_, Error>(transaction.get(map, &[key])?.map(|value| value_of(&value)))
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

impl<I: Indexed, D: Domain> Opened<TransactionsModel> for Open<I, D> {
    fn perform(&self, op: &Op) -> Vec<Noted<TransactionsModel>> {
        self.session()(op)
    }

    fn session(&self) -> Session<'_, TransactionsModel> {
        let mut held = Held::Nothing;
        Box::new(move |op| match self.perform_holding(&mut held, op) {
            Ok(answer) => answer.map(|answer| (0, op.clone(), answer)).into_iter().collect(),
            // Nothing fills the pool, and no limit revokes a snapshot.
            Err(error) => panic!("{op:?}: {error}"),
        })
    }

    fn observe(&self) -> Result<Observed<TransactionsModel>, String> {
        Ok([(0, self.state()?)].into())
    }

    fn audit(&self) -> Result<(), String> {
        self.check()
    }

    fn exercise(&self) -> Result<(), String> {
        self.use_again()
    }
}

/// A pool that is rebuilt.
struct Rebuilt<I: Indexed> {
    catalog: Arc<Catalog<Process>>,
    /// Once there is a list of maps.
    maps: Option<TwoMaps<I, Process>>,
}

impl<I: Indexed> Rebuild for Rebuilt<I> {
    fn relist(&mut self, found: &MapList) -> Result<(), Box<dyn StdError + Send + Sync>> {
        if *found != list() {
            return Err(format!("the maps are {found:?}").into());
        }
        if self.maps.is_none() {
            self.maps = Some(TwoMaps::open(&self.catalog)?);
        }
        Ok(())
    }

    fn index(&self, number: u64) -> Option<Arc<dyn RangeIndex>> {
        let map = self.maps.as_ref()?.0.get(place_of(number)?)?;
        Some(map.clone())
    }
}

/// Rebuilds a pool from the files of a log, uses it, and returns its records.
pub fn rebuild<I: Indexed>(files: &Simulated) -> Result<State, String> {
    let options = CreateOptions { max_bytes: 16 << 20, ..CreateOptions::default() };
    let pool = Pool::<Process>::anonymous(&options).map_err(text)?;
    let catalog = Arc::new(Catalog::open(pool.clone()).map_err(text)?);
    let mut rebuilt = Rebuilt::<I> { catalog, maps: None };
    let (recovered, _) = replay(files, &mut rebuilt).map_err(text)?;
    let Rebuilt { catalog, maps } = rebuilt;
    let maps = maps.ok_or("there is no list of maps")?;
    let files = Arc::new(files.clone());
    let log = Log::resume(pool, layout::LOG_OFF, files, &recovered, 0, SMALL).map_err(text)?;
    let component = TransactionComponent::open(log, maps).map_err(text)?;
    let open = Open { component, catalog };
    let state = open.state()?;
    open.use_again()?;
    open.check()?;
    Ok(state)
}
