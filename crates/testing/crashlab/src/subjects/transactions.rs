//! Transactions and snapshots over two maps of an index. `steps.rs` has the model.
//!
//! A variant has a log with files on the simulated device, which also writes images and truncates
//! the log. Each operation on the device is a step, at which a thread may be stopped or the run
//! cut, like a store.

use std::error::Error as StdError;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pando_device::simulated::Simulated;
use pando_index::RangeIndex;
use pando_log::{Log, LogOptions, Owner};
use pando_pmem::{CreateOptions, Domain, Pool, Process, layout};
use pando_tc::{
    Error, ListedMap, MapList, Maps, Rebuild, TransactionComponent, TransactionalMap, replay,
};
use pando_tree::maps::{Catalog, IndexKind, IndexOptions, Tree};

use super::map::Indexed;
use super::operations::{alone, run, session, state, text, use_again};
use super::steps::{Answer, KEYS, MAPS, Op, State, Step, TransactionsModel};
use super::{Noted, Observed, Opened, Session, compare_blocks};

/// Segments and a tail so small that a run fills them.
const SMALL: LogOptions =
    LogOptions { segment_bytes: 64 << 10, tail_bytes: 64 << 10, owner: Owner::Pool };
/// Blocks that fill a segment, if each has a small commit and two are there.
const BLOCKS: u64 = 14;

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

impl<I: Indexed, D: Domain> TwoMaps<I, D> {
    /// The index of the map with this number.
    fn shared(&self, number: u64) -> Arc<dyn RangeIndex> {
        self.0[place_of(number).expect("a map")].clone()
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

/// The transaction component of an open pool.
pub struct Open<I: Indexed, D: Domain> {
    component: Arc<TransactionComponent<D, TwoMaps<I, D>>>,
    catalog: Arc<Catalog<D>>,
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
        let component = Arc::new(component);
        if is_new {
            component.log_maps(&list()).map_err(text)?;
        }
        Ok(Self { component, catalog })
    }

    /// Images, and what else is not of transactions.
    fn maintain(&self, op: &Op) -> Result<Option<Answer>, Error> {
        match op {
            Op::Alone(step) => {
                let (number, _) = step.written().expect("it writes");
                let index = self.component.maps().shared(number);
                let map = TransactionalMap::new(self.component.clone(), number, index)?;
                alone(&map, *step)
            }
            Op::Image => {
                let list = || Ok::<_, Error>(list());
                self.component.write_image(list, &AtomicBool::new(false))?;
                Ok(Some(Answer::Done))
            }
            Op::Fill => {
                for _ in 0..BLOCKS {
                    // Another thread that does the same may come first.
                    let nothing = run(&self.component, &[Step::Remove((MAPS[0], KEYS + 1))]);
                    if !matches!(nothing, Err(Error::Conflict { .. })) {
                        nothing?;
                    }
                    self.component.settle()?;
                }
                Ok(None)
            }
            Op::Reclaim => {
                self.catalog.pool().reclaim().map_err(pando_log::Error::from)?;
                Ok(None)
            }
            other => panic!("{other:?} is of a store"),
        }
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
}

impl<I: Indexed, D: Domain> Opened<TransactionsModel> for Open<I, D> {
    fn perform(&self, op: &Op) -> Vec<Noted<TransactionsModel>> {
        self.session()(op)
    }

    fn session(&self) -> Session<'_, TransactionsModel> {
        session(&self.component, |op| self.maintain(op))
    }

    fn observe(&self) -> Result<Observed<TransactionsModel>, String> {
        Ok([(0, state(&self.component)?)].into())
    }

    fn audit(&self) -> Result<(), String> {
        self.check()
    }

    fn exercise(&self) -> Result<(), String> {
        use_again(&self.component)
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
    let open = Open { component: Arc::new(component), catalog };
    let found = state(&open.component)?;
    use_again(&open.component)?;
    open.check()?;
    Ok(found)
}
