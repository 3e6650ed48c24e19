//! The test kit of all indexes: an index with its pool, in a file or on anonymous memory. It closes
//! the pool as a crash does, lists all records, and checks everything in the pool. It also runs
//! operations between the accesses of another one, beside writers, and in a full pool.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pando_index::conformance::Subject;
use pando_index::conformance::between::{Act, one_between};
use pando_index::conformance::rewritten::full_leaves_that_are_rewritten;
use pando_index::{Cursor as _, Error, KeyRange, Order, RangeIndex};
use pando_pmem::testing::{
    Arena, CutShort, between, between_each, kill_after, reach_medium, run_until_stopped,
    written_back,
};
use pando_pmem::{CreateOptions, Domain, Guard, OpenPool, Pool, Reservation, block_bytes};

pub use pando_pmem::testing::{folder, folder_and_pool};

use crate::batch::FULL_BYTES;
use crate::context::Context;
use crate::cursor::{BatchCursor, Fill};
use crate::maps::{Catalog, IndexKind, IndexOptions, OptionValues, Tree};

/// The one map of the tests' pools.
pub const NAME: &str = "index";

/// The most bytes of a pool that must have room for everything.
const AMPLE_BYTES: u64 = 1 << 32;

/// An index of kind `K` with its pool.
#[expect(missing_debug_implementations, reason = "an index need not have one")]
pub struct Fixture<D: Domain, K: IndexKind> {
    // Dropped first: the pool is closed before its folder is removed.
    /// The index.
    pub index: K::Index<D>,
    /// The maps of its pool.
    pub catalog: Arc<Catalog<D>>,
    /// The pool.
    pub pool: Arc<Pool<D>>,
    /// The part of the conformance suite's work to run.
    pub scale: f64,
    _folder: Option<tempfile::TempDir>,
}

impl<D: Domain, K: IndexKind> Fixture<D, K> {
    /// The index of `pool`, created with `options` if there is none.
    pub fn of(pool: Arc<Pool<D>>, options: K::Options) -> Self {
        let catalog = Arc::new(Catalog::open(pool.clone()).expect("recovers"));
        let index = catalog.find_or_create_index::<K>(NAME, options).expect("the map");
        Self { index, catalog, pool, scale: 1.0, _folder: None }
    }

    /// On anonymous memory.
    pub fn anonymous(options: K::Options) -> Self {
        let create = CreateOptions { max_bytes: AMPLE_BYTES, ..CreateOptions::default() };
        Self::of(Pool::anonymous(&create).expect("memory"), options)
    }

    /// In a new file, in memory if there is a tmpfs.
    pub fn in_file(options: K::Options) -> Self {
        let folder = folder();
        let create = CreateOptions { max_bytes: AMPLE_BYTES, ..CreateOptions::default() };
        let pool = Pool::create(&folder.path().join("pool"), &create).expect("a pool");
        Self { _folder: Some(folder), ..Self::of(pool, options) }
    }

    /// In the new file `path`, which may grow to `max_bytes`.
    pub fn create(path: &Path, max_bytes: u64, options: K::Options) -> Self {
        let create = CreateOptions { max_bytes, initial_bytes: 0 };
        Self::of(Pool::create(path, &create).expect("a pool"), options)
    }

    /// With this part of the conformance suite's work.
    pub fn scaled(self, scale: f64) -> Self {
        Self { scale, ..self }
    }

    /// One more handle of the index, as another thread may have it.
    pub fn another_handle(&self) -> K::Index<D> {
        self.catalog.find_index::<K>(NAME).expect("an undamaged map").expect("the map")
    }

    /// Drops the map `name` of the pool.
    pub fn drop_map(&self, name: &str) {
        let guard = self.pool.pin().expect("a slot");
        let entry = self.catalog.find_map(&guard, name).expect("a catalog").expect("the map");
        drop(guard);
        self.catalog.drop_index::<K>(&entry).expect("drops the map");
    }

    /// Opens the file at `path` in one more process. (A handle stands for a process.)
    pub fn share(path: &Path) -> Self {
        let options = OpenPool { shared: true, ..OpenPool::default() };
        Self::of(Pool::open(path, &options).expect("opens"), K::Options::default())
    }

    /// Ends the operations of dead processes, and finds their blocks. No other process has the pool
    /// open, and no thread of this one is inside an operation.
    pub fn recover_dead(&self) {
        assert!(self.catalog.recover_dead().expect("recovers") >= 1, "no process is dead");
        for _ in 0..20 {
            self.pool.reclaim().expect("a slot");
            self.pool.step_census().expect("a slot");
        }
        let claimed = self.pool.usage().expect("a slot").claimed_chunks;
        assert_eq!(claimed, 0, "chunks without an owner");
    }

    /// Opens the file that a test left at `path`.
    pub fn reopen(path: &Path) -> Self {
        let pool = Pool::open(path, &OpenPool::default()).expect("opens");
        Self::of(pool, K::Options::default())
    }
}

/// Runs `work` in a process that shares the pool at `path`, and that dies before its write number
/// `writes`. Returns whether it died.
pub fn dies_after<D: Domain, K: IndexKind>(
    path: &Path,
    writes: u64,
    work: impl FnOnce(&K::Index<D>) + Send + 'static,
) -> bool {
    let process = Arc::new(Fixture::<D, K>::share(path));
    let runs = process.clone();
    let is_done = run_until_stopped(writes, move || work(&runs.index));
    process.pool.drop_locks_like_a_kill();
    // The stopped thread has the process for ever, so nothing is closed.
    std::mem::forget(process);
    !is_done
}

/// A process dies at each write of an insert, an update and a remove, with so many `records`
/// before, while another one has the pool open. That one finds the operation done, or not, and goes
/// on. Nothing is leaked.
pub fn processes_die<K: IndexKind>(options: K::Options, records: u64) {
    let acts: [Doomed; 3] = [
        |index, key| index.insert(&key, &[2; 8]).expect("an insert"),
        |index, _| index.update(&[0; 8], &[2; 8]).expect("an update"),
        |index, _| assert!(index.remove(&[0; 8]).expect("a remove")),
    ];
    let key = records.to_be_bytes();
    for (number, act) in acts.into_iter().enumerate() {
        for writes in 0.. {
            let (_folder, path) = folder_and_pool();
            let alone = Fixture::<CutShort, K>::create(&path, 8 << 20, options);
            for number in 0..records {
                alone.index.insert(&number.to_be_bytes(), &[1; 8]).expect("an insert");
            }
            let before = dump(&alone.index);
            drop(alone);
            let live = Fixture::<CutShort, K>::share(&path);
            let died = dies_after::<CutShort, K>(&path, writes, move |index| act(index, key));
            let label = format!("{records} records, act {number}, died at write {writes}");
            // Before the dead process is recovered, too.
            let found = dump(&live.index);
            live.recover_dead();
            assert_eq!(dump(&live.index), found, "{label}");
            check(&live);
            if found == before {
                assert!(died, "{label}: done, and lost");
                act(&live.index, key);
            }
            let differ = dump(&live.index);
            assert!(differ != before, "{label}: {differ:?}");
            assert!(differ.len().abs_diff(before.len()) <= 1, "{label}");
            check(&live);
            drop(live);
            check(&Fixture::<CutShort, K>::reopen(&path));
            if !died {
                break;
            }
        }
    }
}

/// Drops the index as a crash would: its pool stays marked as in use.
pub fn abandon<D: Domain, K: IndexKind>(fixture: Fixture<D, K>) {
    fixture.pool.clone().abandon();
}

/// Panics unless the default options of an index are stored as `words`, and decoded from them.
pub fn golden_options<O: IndexOptions>(words: [u64; 4]) {
    let values = O::default().values().expect("defaults in range");
    assert_eq!(values.encode(), words);
    let decoded = OptionValues::decode(O::SPECS, words).expect("defaults in range");
    assert_eq!(O::of(&decoded), O::default());
}

/// The records of an index.
pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// All records, by a scan. Panics if a scan finds one out of order, or if the scans in both
/// directions differ.
pub fn dump(index: &dyn RangeIndex) -> Records {
    let visit = |order| {
        let mut records = Vec::new();
        let mut cursor = index.scan(KeyRange::all(), order).expect("a scan");
        while let Some((key, value)) = cursor.next().expect("the next record") {
            records.push((key.to_vec(), value.to_vec()));
        }
        records
    };
    let ascending = visit(Order::Ascending);
    assert!(ascending.is_sorted_by(|left, right| left.0 < right.0), "keys do not ascend");
    let mut descending = visit(Order::Descending);
    descending.reverse();
    assert!(ascending == descending, "the scans in both directions differ");
    ascending.into_iter().collect()
}

/// Fills an empty index with large values. Panics if a batch of a scan has more bytes than it may.
pub fn check_batches<I: RangeIndex + Fill>(index: &I) {
    let value = vec![7; FULL_BYTES];
    for number in 0..20_u64 {
        index.insert(&number.to_be_bytes(), &value).expect("an insert");
    }
    for order in [Order::Ascending, Order::Descending] {
        let mut cursor = BatchCursor::new(index, KeyRange::all(), order);
        let mut records = 0;
        while let Some((key, found)) = cursor.next().expect("a record") {
            let number = if order == Order::Ascending { records } else { 19 - records };
            assert!(key == u64::to_be_bytes(number) && found == value, "{order:?}");
            let bytes = cursor.batch().bytes();
            assert!(bytes <= 2 * FULL_BYTES, "{bytes}");
            records += 1;
        }
        assert_eq!(records, 20, "{order:?}");
    }
}

/// Panics if an invariant of the pool's maps is violated, or if a block leaked or is missing.
pub fn check<D: Domain, K: IndexKind>(fixture: &Fixture<D, K>) {
    let guard = fixture.pool.pin().expect("a slot");
    let mut reached: BTreeSet<u64> = BTreeSet::new();
    for entry in fixture.catalog.maps(&guard) {
        reached.insert(entry.header_off);
        let index = fixture.catalog.open_entry::<K>(&entry).expect("an undamaged map");
        let audit = index.audit().expect("audits");
        assert_eq!(audit.problems, [], "violated invariants");
        for block in &audit.blocks {
            assert!(reached.insert(block.off), "block {:#x} is reached twice", block.off);
        }
    }
    let mut leaked = Vec::new();
    let mut look = |block: pando_pmem::Block| {
        if !reached.remove(&block.off) {
            leaked.push(block);
        }
        ControlFlow::Continue(())
    };
    fixture.pool.visit_active(&mut look).expect("a slot");
    assert_eq!(leaked, [], "allocated, but not reached");
    assert!(reached.is_empty(), "reached, but not allocated: {reached:x?}");
}

impl<D: Domain, K: IndexKind> Subject for Fixture<D, K> {
    fn index(&self) -> &dyn RangeIndex {
        &self.index
    }

    fn check(&self) {
        check(self);
    }

    fn scale(&self) -> f64 {
        self.scale
    }
}

/// All blocks that the pool has room for.
pub fn take_all<'guard, 'pool, D: Domain>(
    guard: &'guard Guard<'pool, D>,
) -> Vec<Reservation<'guard, 'pool, D>> {
    let mut sizes: Vec<_> = (1..=512).map(|lines| block_bytes(lines * 64)).collect();
    // A search that fails looks at the whole pool: one for each size of blocks is enough.
    sizes.dedup();
    let mut taken = Vec::new();
    for bytes in [1 << 16].into_iter().chain(sizes) {
        while let Ok(block) = guard.reserve(bytes) {
            taken.push(block);
        }
    }
    taken
}

/// [`one_between`], in a new index and another handle of it.
pub fn one_in<K: IndexKind>(
    fixture: Fixture<CutShort<true>, K>,
    there: &[Act],
    act: Act,
    others: &[Act],
    access: u64,
) -> bool {
    let handle = Arc::new(fixture.another_handle());
    let interrupt = |access, meanwhile, work: &mut dyn FnMut()| between(access, meanwhile, work);
    one_between(fixture, handle, interrupt, there, (act, others, access))
}

/// [`full_leaves_that_are_rewritten`], in new indexes of these options.
pub fn rewritten_under_scans<K: IndexKind>(options: K::Options) {
    let fresh = || {
        let fixture = Fixture::<CutShort<true>, K>::anonymous(options);
        let handle: Arc<dyn RangeIndex> = Arc::new(fixture.another_handle());
        (fixture, handle)
    };
    let interrupt = |first, every, step, work: &mut dyn FnMut()| {
        between_each(first, every, step, work);
    };
    full_leaves_that_are_rewritten(&fresh, interrupt, 300);
}

/// Inserts `stays`. Then calls `write` in `writers` threads, with the number of each. Until they
/// end, gets and scans in both directions must find all of `stays`, which no writer changes, and no
/// scan may find a key out of order.
pub fn find_beside_writers(
    index: &dyn RangeIndex,
    stays: &Records,
    writers: u64,
    write: impl Fn(u64) + Sync,
) {
    for (key, value) in stays {
        index.insert(key, value).expect("an insert");
    }
    let is_over = AtomicBool::new(false);
    let find_all = || {
        for (key, value) in stays {
            assert_eq!(index.get(key).expect("a get").as_ref(), Some(value), "key {key:?}");
        }
        for order in [Order::Ascending, Order::Descending] {
            let mut left = stays.len();
            let mut last: Option<Vec<u8>> = None;
            let mut cursor = index.scan(KeyRange::all(), order).expect("a scan");
            while let Some((key, value)) = cursor.next().expect("the next record") {
                let is_next = last.as_ref().is_none_or(|last| match order {
                    Order::Ascending => last.as_slice() < key,
                    Order::Descending => last.as_slice() > key,
                });
                assert!(is_next, "{order:?}: {last:?} and then {key:?}");
                left -= usize::from(stays.get(key).is_some_and(|found| found == value));
                last = Some(key.to_vec());
            }
            assert_eq!(left, 0, "{order:?}: so many keys were skipped");
        }
    };
    std::thread::scope(|scope| {
        let (write, is_over, find_all) = (&write, &is_over, &find_all);
        let threads: Vec<_> =
            (0..writers).map(|thread| scope.spawn(move || write(thread))).collect();
        scope.spawn(move || {
            // Relaxed: the threads are joined below.
            while !is_over.load(Ordering::Relaxed) {
                find_all();
            }
        });
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.expect("a writer"));
    });
}

/// What a process does that is killed.
type Doomed = fn(&dyn RangeIndex, key: [u8; 8]);

/// A pool of so many `records` in which a process was killed after `writes` writes of `act`, whose
/// key is the next one: as the caches have it, and as the medium has it. Also whether `act` was
/// done.
fn killed<K: IndexKind>(
    options: K::Options,
    records: u64,
    act: Doomed,
    writes: u64,
) -> (Arena, Arena, bool) {
    const POOL_BYTES: u64 = 1 << 20;
    let arena = Arena::new(POOL_BYTES).expect("memory");
    let pool = Pool::create_in(&arena).expect("a pool");
    let fixture = Fixture::<CutShort<true>, K>::of(pool, options);
    for number in 0..records {
        fixture.index.insert(&number.to_be_bytes(), &[1; 8]).expect("an insert");
    }
    let medium = Arena::new(POOL_BYTES).expect("memory");
    medium.write(0, &arena.read(0, POOL_BYTES as usize));
    let key = records.to_be_bytes();
    let (done, lines) = written_back(|| kill_after(writes, || act(&fixture.index, key)));
    reach_medium(&medium, &arena, &lines);
    abandon(fixture);
    (arena, medium, done.is_some())
}

/// Kills a process at each write of an insert, an update and a remove, with so many `records`
/// before. The caches keep its last stores, and the next process reads all records. Then the power
/// is cut. The records that were read must be there.
pub fn read_after_a_kill<K: IndexKind>(options: K::Options, records: u64) {
    let acts: [Doomed; 3] = [
        |index, key| index.insert(&key, &[2; 8]).expect("an insert"),
        |index, _| index.update(&[0; 8], &[2; 8]).expect("an update"),
        |index, _| assert!(index.remove(&[0; 8]).expect("a remove")),
    ];
    for (number, act) in acts.into_iter().enumerate() {
        for writes in 0.. {
            let (arena, medium, is_done) = killed::<K>(options, records, act, writes);
            let open = |arena| {
                let pool = Pool::open_in(arena).expect("opens");
                Fixture::<CutShort<true>, K>::of(pool, options)
            };
            let (found, lines) = written_back(|| {
                let fixture = open(&arena);
                let found = dump(&fixture.index);
                abandon(fixture);
                found
            });
            reach_medium(&medium, &arena, &lines);
            let fixture = open(&medium);
            let label = format!("{records} records, act {number}, killed at write {writes}");
            assert_eq!(dump(&fixture.index), found, "{label}");
            check(&fixture);
            if is_done {
                break;
            }
        }
    }
}

/// The blocks that the first `words` words of the block at `root` name.
pub fn named_blocks<D: Domain>(context: Context<'_, D>, root: u64, words: u64) -> Vec<u64> {
    let named = (0..words).map(|word| context.read(root + word * 8));
    named.filter(|&block| block != 0).collect()
}

/// Whether the pool refused an operation because it had no room.
pub fn is_full(error: &Error) -> bool {
    matches!(error, Error::Storage(_)) && error.to_string().contains("the pool is full")
}

/// Gives the records to four threads, each key to one; returns all results.
pub fn in_four_threads(
    records: &Records,
    work: impl Fn(u64, Records) -> Records + Sync,
) -> Records {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let part = records.iter().skip(thread as usize).step_by(4);
                let part = part.map(|(key, value)| (key.clone(), value.clone())).collect();
                scope.spawn(move || work(thread, part))
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("works")).collect()
    })
}
