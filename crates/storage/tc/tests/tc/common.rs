//! Two maps of any index, with a transaction component over them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use pando_index::{KeyRange, Order, RangeIndex};
use pando_log::{Log, LogOptions};
use pando_pmem::testing::CutShort;
use pando_pmem::{CreateOptions, Domain, OpenPool, Pool, layout};
use pando_tc::{Maps, Result, TransactionComponent};
use pando_tree::maps::{Catalog, IndexKind, Tree};

/// The domain without write-backs of these tests: the indexes are not compiled for `Process` too.
pub type Killed = CutShort<false>;
/// The one with write-backs.
pub type Stopped = CutShort<true>;

/// An index of any kind with its audit. The tests know no other type of an index, so that they are
/// compiled once for all kinds.
pub trait AnyIndex: RangeIndex {
    /// Panics if an invariant is violated.
    fn check(&self);

    /// Forgets what it has read of its records, if it can. Each commit is settled.
    fn forget(&self) {}
}

impl<T: Tree> AnyIndex for T {
    fn check(&self) {
        assert_eq!(self.audit().expect("audits").problems, [], "violated invariants");
    }
}

/// A kind of index: what creates, opens and drops its maps.
#[derive(Clone, Copy)]
pub struct Kind<D: Domain> {
    /// The map of this name; created if there is none.
    pub find_or_create: fn(&Arc<Catalog<D>>, &str) -> Arc<dyn AnyIndex>,
    /// Drops the map of this name.
    pub drop: fn(&Catalog<D>, &str),
}

impl<D: Domain> Kind<D> {
    pub fn of<K: IndexKind>() -> Self {
        let find_or_create = |catalog: &Arc<Catalog<D>>, name: &str| {
            let map = catalog.find_or_create_index::<K>(name, K::Options::default());
            Arc::new(map.expect("the map")) as Arc<dyn AnyIndex>
        };
        let drop = |catalog: &Catalog<D>, name: &str| {
            let guard = catalog.pool().pin().expect("a slot");
            let entry = catalog.find_map(&guard, name).expect("undamaged").expect("the map");
            std::mem::drop(guard);
            catalog.drop_index::<K>(&entry).expect("drops");
        };
        Self { find_or_create, drop }
    }
}

/// For tests that need one kind alone.
pub fn bztree<D: Domain>() -> Kind<D> {
    Kind::of::<pando_bztree::BzTrees>()
}

/// Two maps of one pool.
pub struct TwoMaps<D: Domain> {
    maps: [Arc<dyn AnyIndex>; 2],
    pub catalog: Arc<Catalog<D>>,
}

impl<D: Domain> TwoMaps<D> {
    /// Forgets what the maps have read.
    pub fn forget(&self) {
        self.maps.iter().for_each(|map| map.forget());
    }

    /// The index of a map.
    pub fn shared(&self, number: usize) -> Arc<dyn RangeIndex> {
        self.maps[number].clone()
    }
}

impl<D: Domain> Maps for TwoMaps<D> {
    type Lent<'maps> = &'maps dyn RangeIndex;

    fn map(&self, number: u64) -> Option<&dyn RangeIndex> {
        if number == 0 && is_missed() {
            return None;
        }
        self.maps.get(number as usize).map(|map| &**map as &dyn RangeIndex)
    }
}

thread_local! {
    /// How many look-ups of the first map this thread makes before it misses some, and how many.
    static MISSES: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

/// Whether this look-up of the first map finds none.
fn is_missed() -> bool {
    let Some((made, missed)) = MISSES.get() else { return false };
    let now = made == 0 && missed > 0;
    MISSES.set(Some((made.saturating_sub(1), missed - u64::from(now))));
    now
}

/// Runs `work`, of which the first `made` look-ups of the first map find it, and the next `missed`
/// fail. Returns the result, and whether any failed.
pub fn missing<R>(made: u64, missed: u64, work: impl FnOnce() -> R) -> (R, bool) {
    MISSES.set(Some((made, missed)));
    let result = work();
    let left = MISSES.take().map_or(missed, |(_, left)| left);
    (result, left < missed)
}

pub type Component<D> = TransactionComponent<D, TwoMaps<D>>;

/// The records of both maps, as a transaction sees them.
pub type Records = BTreeMap<(u64, Vec<u8>), Vec<u8>>;

/// The component over a log that `open_log` opens in the pool; the maps are created if there are
/// none.
pub fn open_over<D: Domain>(
    kind: Kind<D>,
    pool: Arc<Pool<D>>,
    open_log: impl FnOnce(Arc<Pool<D>>) -> pando_log::Result<Log<D>>,
) -> Component<D> {
    let catalog = Arc::new(Catalog::open(pool.clone()).expect("recovers"));
    let maps = ["first", "second"].map(|name| (kind.find_or_create)(&catalog, name));
    let log = open_log(pool).expect("a log");
    TransactionComponent::open(log, TwoMaps { maps, catalog }).expect("opens")
}

/// The component of `pool`, whose log has no files and a tail of so many bytes.
pub fn open_with<D: Domain>(kind: Kind<D>, pool: Arc<Pool<D>>, tail_bytes: u64) -> Component<D> {
    let options = LogOptions { tail_bytes, ..LogOptions::default() };
    open_over(kind, pool, |pool| Log::without_files(pool, layout::LOG_OFF, options))
}

pub fn open<D: Domain>(kind: Kind<D>, pool: Arc<Pool<D>>) -> Component<D> {
    open_with(kind, pool, LogOptions::default().tail_bytes)
}

/// On anonymous memory, with room for everything.
pub fn anonymous<D: Domain>(kind: Kind<D>) -> Component<D> {
    anonymous_of(kind, 1 << 30)
}

/// On so much anonymous memory at most.
pub fn anonymous_of<D: Domain>(kind: Kind<D>, max_bytes: u64) -> Component<D> {
    let create = CreateOptions { max_bytes, ..CreateOptions::default() };
    open(kind, Pool::anonymous(&create).expect("memory"))
}

/// In the new file `path`.
pub fn create<D: Domain>(kind: Kind<D>, path: &Path) -> Component<D> {
    let create = CreateOptions { max_bytes: 1 << 26, ..CreateOptions::default() };
    open(kind, Pool::create(path, &create).expect("a pool"))
}

/// From the file `path`.
pub fn reopen<D: Domain>(kind: Kind<D>, path: &Path) -> Component<D> {
    open(kind, Pool::open(path, &OpenPool::default()).expect("opens"))
}

/// Drops the component as a crash would: its pool stays marked as in use.
pub fn abandon<D: Domain>(component: Component<D>) {
    component.log().pool().clone().abandon();
}

/// One write of a commit: the map, the key, and the value, or none to remove the key.
pub type Write = (u64, &'static [u8], Option<&'static [u8]>);

/// Two keys of the first map, and one of the second.
pub const BEFORE: &[Write] = &[(0, b"a", Some(b"0")), (0, b"b", Some(b"0")), (1, b"c", Some(b"0"))];
/// Inserts two keys behind [`BEFORE`], replaces one, and removes one.
pub const WRITES: &[Write] =
    &[(0, b"aa", Some(b"1")), (0, b"b", Some(b"1")), (1, b"c", None), (1, b"d", Some(b"1"))];
/// Meets [`WRITES`] at each kind of write.
pub const OTHERS: &[Write] = &[(0, b"aa", Some(b"2")), (1, b"c", Some(b"2")), (1, b"d", None)];

/// Commits these writes at once.
pub fn commit<D: Domain>(component: &Component<D>, writes: &[Write]) -> Result<u64> {
    let mut transaction = component.begin();
    for &(map, key, value) in writes {
        match value {
            Some(value) => transaction.put(map, key, value)?,
            None => transaction.remove(map, key)?,
        }
    }
    transaction.commit()
}

/// Commits these writes, again after each conflict.
pub fn commit_at_last<D: Domain>(component: &Component<D>, writes: &[Write]) {
    let body = |transaction: &mut pando_tc::Transaction<'_, D, TwoMaps<D>>| {
        writes.iter().try_for_each(|&(map, key, value)| match value {
            Some(value) => transaction.put(map, key, value),
            None => transaction.remove(map, key),
        })
    };
    component.transaction(body).expect("commits");
}

/// Removes the tombstones that may be removed by now.
pub fn churn<D: Domain>(component: &Component<D>) {
    for _ in 0..24 {
        commit(component, &[(1, b"x", Some(b"1"))]).expect("it is alone");
        commit(component, &[(1, b"x", None)]).expect("it is alone");
        component.settle().expect("settles");
        // Raises the epoch, if no thread is in the way.
        component.log().pool().reclaim().expect("a slot");
    }
}

/// All records, read by one transaction.
pub fn dump<D: Domain>(component: &Component<D>) -> Records {
    let (records, _) = component
        .transaction(|transaction| {
            let mut records = Records::new();
            for map in 0..2 {
                transaction.scan(map, KeyRange::all(), Order::Ascending, &mut |key, value| {
                    records.insert((map, key.to_vec()), value.to_vec());
                    ControlFlow::Continue(())
                })?;
            }
            Ok::<_, pando_tc::Error>(records)
        })
        .expect("reads");
    records
}

/// Panics if an invariant of a map is violated.
pub fn check<D: Domain>(component: &Component<D>) {
    component.maps().maps.iter().for_each(|map| map.check());
}

/// What [`Records`] has after these writes.
pub fn with(records: &Records, writes: &[Write]) -> Records {
    let mut records = records.clone();
    for &(map, key, value) in writes {
        match value {
            Some(value) => records.insert((map, key.to_vec()), value.to_vec()),
            None => records.remove(&(map, key.to_vec())),
        };
    }
    records
}

/// A module of tests for each index, each by a call of the function of the same name. The BzTree is
/// in the domain of the list. The others are in [`Stopped`], so that they are compiled only once.
#[macro_export]
macro_rules! over_each_index {
    ($domain:ident: $($test:ident),* $(,)?) => {
        $crate::over_each_index!(@ bztree, pando_bztree::BzTrees, $domain, $($test),*);
        $crate::over_each_index!(@ bwtree, pando_bwtree::BwTrees, Stopped, $($test),*);
        $crate::over_each_index!(@ nbtree, pando_nbtree::NbTrees, Stopped, $($test),*);
        $crate::over_each_index!(@ wbtree, pando_wbtree::WbTrees, Stopped, $($test),*);
        $crate::over_each_index!(@ skiplist, pando_skiplist::SkipLists, Stopped, $($test),*);
    };
    (@ $index:ident, $kind:ty, $domain:ident, $($test:ident),*) => {
        mod $index {
            $(
                #[test]
                fn $test() {
                    super::$test($crate::common::Kind::<$crate::common::$domain>::of::<$kind>());
                }
            )*
        }
    };
}
