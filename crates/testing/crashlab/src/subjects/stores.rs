//! Transactions and blind writes over a store, whose pages and log are on the simulated device.
//! `steps.rs` has the model.
//!
//! The prepared store has several leaves, and none of them is in memory. So a commit of two keys
//! changes two pages, of which one may be written without the other one.
//!
//! The arena has the tail of the log and the cache (`in_pool.rs` of `pando-store`). So a thread may
//! be stopped between any two accesses to pages in memory, and between operations on the log's
//! files. The page store writes under a lock of the process: no other thread runs until the lock is
//! released, but the run is cut at each of these operations too.
//!
//! A crash leaves the tail, and the files. Each opening has an empty cache.

use std::sync::Arc;

use pando_device::Directory;
use pando_device::simulated::Simulated;
use pando_lss::PageStoreOptions;
use pando_pmem::{CreateOptions, Domain, Pool, Process};
use pando_store::{InPool, StoreMaps, StoreOptions, TreeOptions};
use pando_tc::{Error, TransactionComponent};

use super::folders::Folder;
use super::operations::{alone, session, state, text, use_again};
use super::steps::{Answer, KEYS, MAPS, Op, State, Step, TransactionsModel};
use super::transaction_scenarios::{A, B, any, prepared, put_alone, reader, run};
use super::{Noted, Observed, Opened, Scenario, Session, Subject};
use pando_index::random::Random;

/// Pages that are soon consolidated and split, and a checkpoint of the page store after a few
/// groups.
fn options() -> StoreOptions {
    let pages = PageStoreOptions {
        segment_bytes: 4 << 20,
        checkpoint_bytes: 16 << 10,
        ..PageStoreOptions::default()
    };
    let tree = TreeOptions {
        leaf_bytes: 512,
        inner_bytes: 512,
        merge_bytes: 128,
        chain_deltas: 2,
        ..TreeOptions::default()
    };
    let (memory_bytes, checkpoint_log_bytes) = (4 << 20, 1 << 20);
    StoreOptions { memory_bytes, pages, checkpoint_log_bytes, tree, ..StoreOptions::default() }
}

/// A store.
pub struct Stores;

/// A store in an open pool.
pub struct Open<D: Domain>(InPool<D>);

impl<D: Domain> Open<D> {
    fn new(pool: Arc<Pool<D>>, files: &Simulated) -> Result<Self, String> {
        let pages: Arc<dyn Directory> = Arc::new(Folder::under_lock(files, "pages"));
        let log: Arc<dyn Directory> = Arc::new(Folder::new(files, "log"));
        InPool::open(pool, pages, &log, &MAPS, &options()).map(Self).map_err(text)
    }

    fn component(&self) -> &TransactionComponent<D, StoreMaps<D>> {
        self.0.component()
    }

    fn maintain(&self, op: &Op) -> Result<Option<Answer>, Error> {
        let done = match op {
            Op::Checkpoint => self.0.checkpoint(),
            Op::Evict => self.0.empty_cache(),
            Op::EvictOne(number) => self.0.evict_changed(*number),
            Op::Alone(step) => {
                let (map, _) = step.written().expect("it writes");
                return alone(&self.0.map(map).expect("a map of the store"), *step);
            }
            other => panic!("{other:?} is of a pool"),
        };
        done.unwrap_or_else(|error| panic!("{op:?}: {error}"));
        Ok(Some(Answer::Done))
    }
}

impl<D: Domain> Opened<TransactionsModel> for Open<D> {
    fn perform(&self, op: &Op) -> Vec<Noted<TransactionsModel>> {
        self.session()(op)
    }

    fn session(&self) -> Session<'_, TransactionsModel> {
        session(self.component(), |op| self.maintain(op))
    }

    fn observe(&self) -> Result<Observed<TransactionsModel>, String> {
        Ok([(0, state(self.component())?)].into())
    }

    fn audit(&self) -> Result<(), String> {
        let problems = self.0.check().map_err(text)?;
        problems.into_iter().next().map_or(Ok(()), Err)
    }

    fn exercise(&self) -> Result<(), String> {
        self.0.empty_cache().map_err(text)?;
        use_again(self.component())?;
        self.0.checkpoint().map_err(text)
    }
}

impl Subject for Stores {
    type Model = TransactionsModel;
    type Open<D: Domain> = Open<D>;

    const NAME: &'static str = "store";
    const POOL_BYTES: u64 = 8 << 20;
    const NEEDS_WRITE_BACK: &'static [bool] = &[false];

    fn open<D: Domain>(pool: Arc<Pool<D>>, files: &Simulated) -> Result<Open<D>, String> {
        Open::new(pool, files)
    }

    fn rebuild(files: &Simulated) -> Result<Option<Observed<TransactionsModel>>, String> {
        let create = CreateOptions { max_bytes: Self::POOL_BYTES, ..CreateOptions::default() };
        let open = Open::new(Pool::<Process>::anonymous(&create).map_err(text)?, files)?;
        let found: State = state(open.component())?;
        open.audit()?;
        open.exercise()?;
        open.audit()?;
        Ok(Some([(0, found)].into()))
    }

    fn scenarios() -> Vec<Scenario<TransactionsModel>> {
        let put = |value| run(&[Step::Put(A, value), Step::Put(B, value)]);
        vec![
            // Pages are written as of the durable LSN, while it changes.
            scenario("evict", move |_| vec![vec![put(4), Op::Evict], vec![put(5), Op::Settle]]),
            // Two threads write and evict pages that others load.
            scenario("evict-both", move |_| {
                let other = run(&[Step::Remove(A), Step::Add(B, (2, 1))]);
                vec![vec![put(4), Op::Settle, Op::Evict], vec![other, Op::Evict]]
            }),
            // One of the two pages of a commit is written, and the commit is not durable.
            scenario("evict-one", move |random| {
                let evict = Op::EvictOne(random.below(2) as usize);
                let late = random.one_in(2).then_some(Op::Settle);
                let first = [put(4), evict].into_iter().chain(late).collect();
                vec![first, vec![run(&[Step::Add(A, B)]), Op::EvictOne(0)]]
            }),
            scenario("checkpoint", move |_| {
                vec![vec![put(4), Op::Settle, Op::Checkpoint], vec![put(5), Op::Sync]]
            }),
            // Writes that do not read what they replace, and of which a page has a part.
            scenario("blind", |random| {
                // Of a page that is loaded below the write, the old value must be kept.
                let loads = run(&[Step::Get((1, 1)), Step::Get((2, 1))]);
                let evict = random.pick(&[Op::Evict, Op::EvictOne(0)]).clone();
                let mut first = vec![put_alone(A, 4), put_alone(B, 4)];
                first.extend(random.one_in(2).then(|| loads.clone()));
                first.push(evict);
                first.extend(random.one_in(2).then_some(Op::Settle));
                let other = [loads, put_alone(A, 5), Op::Evict];
                vec![first, other[random.below(2) as usize..].to_vec()]
            }),
            // A snapshot needs values that a blind write replaces.
            scenario("snapshot", |random| {
                let other = match random.one_in(2) {
                    true => run(&[Step::Put(A, 7), Step::Remove(B)]),
                    false => put_alone(A, 7),
                };
                vec![reader(random), vec![Op::Evict, other]]
            }),
            scenario("any", |random| {
                let mut programs: Vec<Vec<Op>> = (0..2 + random.below(2))
                    .map(|_| (0..1 + random.below(3)).map(|_| any_of_store(random)).collect())
                    .collect();
                programs[0].push(Op::Checkpoint);
                programs
            }),
        ]
    }
}

/// A scenario of a store with several leaves, none of which is in memory: the first values are so
/// long that few records fit a leaf.
fn scenario(
    name: &'static str,
    programs: impl Fn(&mut Random) -> Vec<Vec<Op>> + 'static,
) -> Scenario<TransactionsModel> {
    let keys = MAPS.into_iter().flat_map(|map| (0..KEYS).map(move |key| (map, key)));
    let fill = keys.map(|(map, key)| run(&[Step::Put((map, key), 6 * key + 3)]));
    let made = [Op::Settle, Op::Checkpoint, Op::Evict];
    prepared(name, fill.chain(made).collect(), programs)
}

/// Any operation but a checkpoint.
fn any_of_store(random: &mut Random) -> Op {
    match random.below(10) {
        0 => Op::Settle,
        1 | 2 => Op::Evict,
        3 | 4 => Op::EvictOne(random.below(4) as usize),
        5 | 6 => {
            let key = (*random.pick(&MAPS), random.below(KEYS.into()) as u8);
            put_alone(key, random.below(250) as u8)
        }
        _ => any(random),
    }
}
