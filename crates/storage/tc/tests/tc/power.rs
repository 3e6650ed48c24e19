//! Power cuts at each operation of the device, with commits, images and changes of the list of
//! maps; and pools that are built anew from what is left.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::io;
use std::marker::PhantomData;
use std::ops::{ControlFlow, Deref};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use pando_device::simulated::{Kept, Simulated};
use pando_device::{Directory, Operation};
use pando_index::random::Random;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_log::{Log, LogOptions, Owner};
use pando_pmem::{CreateOptions, Domain, Pool, layout};
use pando_tc::{
    Error, ListedMap, MapList, Maps, Rebuild, Replayed, Result, TransactionComponent, replay,
};
use pando_tree::maps::Catalog;

use crate::common::{AnyIndex, Killed, Kind, bztree};
use crate::over_each_index;

const ORDER: Ordering = Ordering::SeqCst;

over_each_index!(Killed:
    all_of_each_durable_commit_is_there_after_a_power_cut,
);

/// Segments and a tail so small that a test fills them.
const SMALL: LogOptions =
    LogOptions { segment_bytes: 64 << 10, tail_bytes: 1 << 20, owner: Owner::Pool };

/// Maps of one pool, which come and go.
pub struct Grove<D: Domain> {
    kind: Kind<D>,
    catalog: Arc<Catalog<D>>,
    maps: RwLock<BTreeMap<u64, Arc<dyn AnyIndex>>>,
}

pub struct Lent<'maps>(Arc<dyn AnyIndex>, PhantomData<&'maps ()>);

impl<'maps> Deref for Lent<'maps> {
    type Target = dyn RangeIndex + 'maps;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl<D: Domain> Maps for Grove<D> {
    type Lent<'maps> = Lent<'maps>;

    fn map(&self, number: u64) -> Option<Lent<'_>> {
        let maps = self.maps.read().expect("a lock");
        maps.get(&number).cloned().map(|map| Lent(map, PhantomData))
    }
}

impl<D: Domain> Grove<D> {
    fn new(kind: Kind<D>) -> Self {
        let create = CreateOptions { max_bytes: 1 << 26, ..CreateOptions::default() };
        let pool = Pool::anonymous(&create).expect("memory");
        let catalog = Arc::new(Catalog::open(pool).expect("recovers"));
        Self { kind, catalog, maps: RwLock::default() }
    }

    pub fn add(&self, number: u64) {
        let name = format!("map {number}");
        let map = (self.kind.find_or_create)(&self.catalog, &name);
        self.maps.write().expect("a lock").insert(number, map);
    }

    pub fn list(&self) -> MapList {
        let numbers: Vec<_> = self.maps.read().expect("a lock").keys().copied().collect();
        list_of(&numbers)
    }
}

fn list_of(numbers: &[u64]) -> MapList {
    let map = |&number: &u64| ListedMap {
        name: format!("map {number}"),
        kind: 1,
        options: [0; 4],
        number,
    };
    MapList { version: 0, max_bytes: 1 << 26, maps: numbers.iter().map(map).collect() }
}

pub type Component<D> = TransactionComponent<D, Grove<D>>;

pub fn create<D: Domain>(kind: Kind<D>, directory: &Simulated) -> Component<D> {
    let grove = Grove::new(kind);
    let pool = grove.catalog.pool_handle().clone();
    let directory = Arc::new(directory.clone());
    let log = Log::create(pool, layout::LOG_OFF, directory, (42, 0), SMALL).expect("a log");
    TransactionComponent::open(log, grove).expect("opens")
}

/// A pool that is built anew.
struct Rebuilt<D: Domain> {
    grove: Grove<D>,
    /// The maps, lent.
    lent: BTreeMap<u64, Arc<dyn AnyIndex>>,
}

impl<D: Domain> Rebuild for Rebuilt<D> {
    fn relist(&mut self, list: &MapList) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let numbers: Vec<_> = list.maps.iter().map(|map| map.number).collect();
        // A number never comes twice, so what is left behind here is not found again.
        self.grove.maps.write().expect("a lock").retain(|number, _| numbers.contains(number));
        for number in numbers {
            if self.grove.map(number).is_none() {
                self.grove.add(number);
            }
        }
        self.lent = self.grove.maps.read().expect("a lock").clone();
        Ok(())
    }

    fn index(&self, number: u64) -> Option<Arc<dyn RangeIndex>> {
        self.lent.get(&number).map(|map| map.clone() as Arc<dyn RangeIndex>)
    }

    /// Less than some logs have.
    fn sort_bytes(&self) -> usize {
        1 << 20
    }
}

/// The component that goes on with what is in `directory`, the LSN at which its log ends, and what
/// was replayed.
pub fn rebuild<D: Domain>(
    kind: Kind<D>,
    directory: &Simulated,
) -> Result<(Component<D>, u64, Replayed)> {
    let mut rebuilt = Rebuilt { grove: Grove::new(kind), lent: BTreeMap::new() };
    let (recovered, replayed) = replay(directory, &mut rebuilt)?;
    let pool = rebuilt.grove.catalog.pool_handle().clone();
    let directory = Arc::new(directory.clone());
    let log = Log::resume(pool, layout::LOG_OFF, directory, &recovered, 0, SMALL)?;
    let component = TransactionComponent::open(log, rebuilt.grove)?;
    Ok((component, recovered.end_lsn(), replayed))
}

/// All records by map and key.
type Records = BTreeMap<(u64, Vec<u8>), Vec<u8>>;

pub fn dump<D: Domain>(component: &Component<D>) -> Records {
    let (records, _) = component
        .transaction(|transaction| {
            let mut records = Records::new();
            for map in component.maps().list().maps {
                let number = map.number;
                let mut visit = |key: &[u8], value: &[u8]| {
                    records.insert((number, key.to_vec()), value.to_vec());
                    ControlFlow::Continue(())
                };
                transaction.scan(number, KeyRange::all(), Order::Ascending, &mut visit)?;
            }
            Ok::<_, Error>(records)
        })
        .expect("reads");
    records
}

pub fn write_image<D: Domain>(component: &Component<D>) -> Result<()> {
    let list = || Ok::<_, Error>(component.maps().list());
    component.write_image(list, &AtomicBool::new(false)).map(drop)
}

/// A write: the map and the key; without a value it removes the key.
type Write = ((u64, Vec<u8>), Option<Vec<u8>>);

/// What a test has done, in order.
enum Done {
    /// Writes of a commit.
    Commit(Vec<Write>),
    /// The maps from then on.
    Maps(Vec<u64>),
}

/// The records after all that was done up to an LSN.
fn model(done: &[(u64, Done)], end: u64) -> Records {
    let mut records = Records::new();
    for (_, done) in done.iter().take_while(|(lsn, _)| *lsn <= end) {
        match done {
            Done::Commit(writes) => writes.iter().for_each(|(key, value)| {
                match value {
                    Some(value) => records.insert(key.clone(), value.clone()),
                    None => records.remove(key),
                };
            }),
            Done::Maps(numbers) => records.retain(|(map, _), _| numbers.contains(map)),
        }
    }
    records
}

/// Panics if these are other records than those of the model; names the keys.
fn assert_same(found: &Records, expected: &Records, when: &str) {
    let keys = found.keys().chain(expected.keys());
    let differing: Vec<_> = keys
        .filter(|key| found.get(*key) != expected.get(*key))
        .map(|key| {
            let [found, expected] = [found, expected]
                .map(|records| records.get(key).map(|value| (value.len(), value.first().copied())));
            let (map, key) = (key.0, key.1.escape_ascii().to_string());
            format!("map {map}, {key}: {found:?}, expected {expected:?}")
        })
        .collect();
    assert!(differing.is_empty(), "{when}: {differing:#?}");
}

/// Commits some writes of a few keys.
fn commit_some<D: Domain>(
    component: &Component<D>,
    random: &mut Random,
    done: &mut Vec<(u64, Done)>,
) -> Result<u64> {
    let numbers: Vec<_> = component.maps().list().maps.iter().map(|map| map.number).collect();
    let mut writes = BTreeMap::new();
    for _ in 0..=random.below(4) {
        let map = numbers[random.below(numbers.len() as u64) as usize];
        let key = format!("key {}", random.below(20)).into_bytes();
        let value = match random.one_in(4) {
            true => None,
            false => Some(vec![done.len() as u8; random.below(900) as usize]),
        };
        writes.insert((map, key), value);
    }
    let mut transaction = component.begin();
    for ((map, key), value) in &writes {
        match value {
            Some(value) => transaction.put(*map, key, value)?,
            None => transaction.remove(*map, key)?,
        }
    }
    let lsn = transaction.commit()?;
    done.push((lsn, Done::Commit(writes.into_iter().collect())));
    Ok(lsn)
}

/// What a power cut may find: the directory, the LSN that was durable, and what was done by then.
struct Cut {
    durable: u64,
    image: Simulated,
}

/// Cuts the power before each operation from now on, in several ways.
fn cut_at_each_operation<D: Domain>(
    directory: &Simulated,
    component: &Arc<Component<D>>,
    seed: u64,
) -> Arc<Mutex<Vec<Cut>>> {
    let cuts = Arc::new(Mutex::new(Vec::new()));
    let (noted, watched, random) = (cuts.clone(), directory.clone(), Mutex::new(Random::new(seed)));
    let component = Arc::downgrade(component);
    directory.on_operation(move |operation, _| {
        let reads = [Operation::Open, Operation::List, Operation::Read];
        let Some(component) = component.upgrade() else { return Ok(()) };
        if !reads.contains(&operation) {
            let durable = component.log().durable_lsn();
            let mut random = random.lock().expect("a lock");
            for kept in [Kept::Nothing, Kept::All, Kept::Some] {
                let image = watched.cut_power(kept, &mut random);
                noted.lock().expect("a lock").push(Cut { durable, image });
            }
        }
        Ok::<(), io::Error>(())
    });
    cuts
}

fn all_of_each_durable_commit_is_there_after_a_power_cut<D: Domain>(kind: Kind<D>) {
    let mut random = Random::new(9);
    let directory = Simulated::new();
    let component = Arc::new(create(kind, &directory));
    let cuts = cut_at_each_operation(&directory, &component, 3);
    let mut done = Vec::new();
    let relist = |component: &Component<D>, done: &mut Vec<_>| {
        let list = component.maps().list();
        let lsn = component.log_maps(&list).expect("a list");
        done.push((lsn, Done::Maps(list.maps.iter().map(|map| map.number).collect())));
    };
    for number in 1..=2 {
        component.maps().add(number);
        relist(&component, &mut done);
    }
    for round in 0..120_u64 {
        let lsn = commit_some(&component, &mut random, &mut done).expect("commits");
        if random.one_in(5) {
            component.sync(lsn).expect("synced");
        }
        match round {
            30 | 70 | 71 | 110 => write_image(&component).expect("an image"),
            50 => {
                component.maps().add(3);
                relist(&component, &mut done);
            }
            80 => {
                component.settle().expect("settles");
                component.maps().maps.write().expect("a lock").remove(&1);
                relist(&component, &mut done);
            }
            _ => {}
        }
    }
    let cuts = std::mem::take(&mut *cuts.lock().expect("a lock"));
    assert!(cuts.len() > 100, "{} power cuts", cuts.len());
    let mut over_images = 0;
    for (number, cut) in cuts.iter().enumerate() {
        let (rebuilt, end, replayed) = rebuild(kind, &cut.image).unwrap_or_else(|error| {
            panic!("the image of power cut {number} is not readable: {error}")
        });
        assert!(end >= cut.durable, "power cut {number}: {end} of {}", cut.durable);
        let when = format!("power cut {number} at LSN {end}, {replayed:?}");
        assert_same(&dump(&rebuilt), &model(&done, end), &when);
        over_images += usize::from(replayed.image_records > 0);
    }
    assert!(over_images > 20, "{over_images} of them over an image");
}

/// The pool is lost again and again, also while it is built anew.
#[test]
fn a_pool_that_is_lost_again_and_again_goes_on() {
    let mut random = Random::new(21);
    let mut directory = Simulated::new();
    let mut component = create(bztree::<Killed>(), &directory);
    component.maps().add(1);
    let mut done = Vec::new();
    let lsn = component.log_maps(&component.maps().list()).expect("a list");
    component.sync(lsn).expect("synced");
    done.push((lsn, Done::Maps(vec![1])));
    for round in 0..30 {
        let mut durable = component.log().durable_lsn();
        for _ in 0..random.below(20) {
            let lsn = commit_some(&component, &mut random, &mut done).expect("commits");
            if random.one_in(6) {
                component.sync(lsn).expect("synced");
                durable = lsn;
            }
            if random.one_in(12) {
                write_image(&component).expect("an image");
                durable = durable.max(component.log().durable_lsn());
            }
        }
        directory = directory.cut_power(Kept::Some, &mut random);
        // Once without an end: nothing of what is there may be lost by it.
        let (_, end, _) = rebuild(bztree::<Killed>(), &directory).expect("rebuilds");
        assert!(end >= durable, "round {round}: {end} of {durable}");
        directory = directory.cut_power(Kept::Some, &mut random);
        let (rebuilt, again, _) = rebuild(bztree::<Killed>(), &directory).expect("rebuilds");
        assert_eq!(again, end, "round {round}");
        assert_same(&dump(&rebuilt), &model(&done, end), &format!("round {round}"));
        done.retain(|(lsn, _)| *lsn <= end);
        component = rebuilt;
    }
    assert!(done.len() > 100, "{}", done.len());
}

#[test]
fn what_an_image_has_released_does_not_come_back_at_a_power_cut() {
    let mut random = Random::new(22);
    let directory = Simulated::new();
    let component = create(bztree::<Killed>(), &directory);
    component.maps().add(1);
    component.log_maps(&component.maps().list()).expect("a list");
    let count = |directory: &Simulated, begin: &str| {
        let names = directory.names().expect("a list of names");
        names.iter().filter(|name| name.starts_with(begin)).count()
    };
    for _ in 0..2 {
        let segments = count(&directory, "segment-");
        while count(&directory, "segment-") < segments + 3 {
            let lsn = commit_some(&component, &mut random, &mut Vec::new()).expect("commits");
            component.sync(lsn).expect("synced");
        }
        write_image(&component).expect("an image");
        for kept in [Kept::Nothing, Kept::Some, Kept::All] {
            let cut = directory.cut_power(kept, &mut random);
            assert_eq!((count(&cut, "image-"), count(&cut, "segment-")), (1, 1), "{kept:?}");
        }
    }
}

/// The disk refuses a removal behind an image. A later opening goes on with the removals.
#[test]
fn removals_behind_an_image_that_were_interrupted_are_resumed() {
    let mut random = Random::new(23);
    // The first renaming is that of the image itself.
    for refused_at in 1..6 {
        let directory = Simulated::new();
        let component = create(bztree::<Killed>(), &directory);
        component.maps().add(1);
        component.log_maps(&component.maps().list()).expect("a list");
        let names = || directory.names().expect("a list of names");
        let count = |begin: &str| names().iter().filter(|name| name.starts_with(begin)).count();
        let mut commit = || {
            let lsn = commit_some(&component, &mut random, &mut Vec::new()).expect("commits");
            component.sync(lsn).expect("synced");
        };
        commit();
        write_image(&component).expect("an image");
        while count("segment-") < 5 {
            commit();
        }
        // Spare segments are renamed, the others and the images are removed.
        let released = AtomicU64::new(0);
        directory.on_operation(move |operation, _| match operation {
            Operation::Remove | Operation::Rename
                if released.fetch_add(1, Ordering::Relaxed) >= refused_at =>
            {
                Err(io::Error::from_raw_os_error(5))
            }
            _ => Ok(()),
        });
        write_image(&component).expect_err("a removal is refused");
        assert!(count("image-") + count("segment-") > 2);
        directory.on_operation(|_, _| Ok(()));
        component.release_behind_image().expect("released");
        assert_eq!((count("image-"), count("segment-")), (1, 1), "{:?}", names());
        let operations = Arc::new(AtomicU64::new(0));
        let counted = operations.clone();
        directory.on_operation(move |operation, _| {
            let is_change = matches!(
                operation,
                Operation::Remove | Operation::Rename | Operation::SyncDirectory
            );
            counted.fetch_add(u64::from(is_change), Ordering::Relaxed);
            Ok(())
        });
        component.release_behind_image().expect("nothing to release");
        assert_eq!(operations.load(Ordering::Relaxed), 0);
    }
}

/// Threads move amounts between accounts in two maps, while images are written. After a power cut
/// at any time the sum is what it was, and each transfer is there that was synced.
#[test]
fn no_transfer_is_there_by_half_after_a_power_cut_under_threads() {
    const THREADS: u64 = 3;
    const ACCOUNTS: u64 = 12;
    let account = |number: u64| (1 + number % 2, format!("account {number}").into_bytes());
    let amount_in = |value: Option<&Vec<u8>>| {
        value.map_or(0, |value| u64::from_le_bytes(*value.first_chunk().expect("eight bytes")))
    };
    let directory = Simulated::new();
    let component = create(bztree::<Killed>(), &directory);
    [1, 2].into_iter().for_each(|number| component.maps().add(number));
    component.log_maps(&component.maps().list()).expect("a list");
    let begin = |transaction: &mut pando_tc::Transaction<'_, Killed, Grove<Killed>>| {
        (0..ACCOUNTS).try_for_each(|number| {
            let (map, key) = account(number);
            transaction.put(map, &key, &1_000_u64.to_le_bytes())
        })
    };
    let ((), lsn) = component.transaction(begin).expect("commits");
    component.sync(lsn).expect("synced");

    // Of each thread, how many of its transfers are synced.
    let synced: [AtomicU64; THREADS as usize] = Default::default();
    let is_over = AtomicBool::new(false);
    let mut cuts = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (component, synced, is_over) = (&component, &synced, &is_over);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for count in 1_u64.. {
                    if is_over.load(ORDER) {
                        break;
                    }
                    let [from, to] = [random.below(ACCOUNTS), random.below(ACCOUNTS)];
                    let body = |transaction: &mut pando_tc::Transaction<'_, _, _>| {
                        let mut change = |number, by: i64| {
                            let (map, key) = account(number);
                            let now = amount_in(transaction.get(map, &key)?.as_ref());
                            let now = now.wrapping_add_signed(by);
                            transaction.put(map, &key, &now.to_le_bytes())
                        };
                        change(from, -1)?;
                        change(to, 1)?;
                        let key = format!("count {thread}").into_bytes();
                        transaction.put(1, &key, &count.to_le_bytes())
                    };
                    match component.transaction(body) {
                        Ok(((), lsn)) if count.is_multiple_of(3) => {
                            component.sync(lsn).expect("synced");
                            synced[thread as usize].store(count, ORDER);
                        }
                        Ok(_) | Err(Error::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let component = &component;
        let is_over = &is_over;
        scope.spawn(move || {
            while !is_over.load(ORDER) {
                write_image(component).expect("an image");
            }
        });
        let mut random = Random::new(77);
        for _ in 0..60 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let before = [0, 1, 2].map(|thread: usize| synced[thread].load(ORDER));
            cuts.push((before, directory.cut_power(Kept::Some, &mut random)));
        }
        is_over.store(true, ORDER);
    });
    let mut over_images = 0;
    for (number, (synced, image)) in cuts.into_iter().enumerate() {
        let (rebuilt, _, replayed) = rebuild(bztree::<Killed>(), &image).expect("rebuilds");
        over_images += u64::from(replayed.image_records > 0);
        let records = dump(&rebuilt);
        let sum: u64 = (0..ACCOUNTS).map(|number| amount_in(records.get(&account(number)))).sum();
        assert_eq!(sum, ACCOUNTS * 1_000, "power cut {number}");
        for (thread, synced) in synced.into_iter().enumerate() {
            let found = amount_in(records.get(&(1, format!("count {thread}").into_bytes())));
            assert!(found >= synced, "power cut {number}: {found} of {synced}");
        }
    }
    assert!(over_images > 0);
}

/// The disk refuses an operation while an image is written: the former one stays, and the next
/// image succeeds.
#[test]
fn an_image_that_the_disk_refuses_changes_nothing() {
    let mut random = Random::new(5);
    for refused_at in 0.. {
        let directory = Simulated::new();
        let component = create(bztree::<Killed>(), &directory);
        component.maps().add(1);
        let lsn = component.log_maps(&component.maps().list()).expect("a list");
        let mut done = vec![(lsn, Done::Maps(vec![1]))];
        let mut commit = || {
            let lsn = commit_some(&component, &mut random, &mut done).expect("commits");
            component.sync(lsn).expect("synced");
        };
        commit();
        write_image(&component).expect("an image");
        commit();
        let operations = AtomicU64::new(0);
        directory.on_operation(move |_, _| match operations.fetch_add(1, ORDER) == refused_at {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        });
        let written = write_image(&component);
        directory.on_operation(|_, _| Ok(()));
        let (_, end, _) =
            rebuild(bztree::<Killed>(), &directory.cut_power(Kept::All, &mut Random::new(1)))
                .expect("rebuilds");
        assert_eq!(end, component.log().durable_lsn());
        write_image(&component).expect("an image");
        let left = directory.names().expect("names");
        assert_eq!(left.iter().filter(|name| name.starts_with("new-")).count(), 0, "{left:?}");
        let (rebuilt, ..) = rebuild(bztree::<Killed>(), &directory).expect("rebuilds");
        assert_same(&dump(&rebuilt), &model(&done, end), "after the image");
        if written.is_ok() {
            break;
        }
    }
}

/// The disk is slower than many threads that commit: each waits for room in the tail, and none is
/// refused.
#[test]
fn a_slow_disk_holds_writers_up_and_refuses_none() {
    const THREADS: u64 = 40;
    let directory = Simulated::new();
    let component = create(bztree::<Killed>(), &directory);
    component.maps().add(1);
    component.log_maps(&component.maps().list()).expect("a list");
    directory.on_operation(|operation, _| {
        if operation == Operation::Sync {
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
        Ok(())
    });
    let value = vec![7; 8_000];
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (component, value) = (&component, &value);
            scope.spawn(move || {
                for number in 0..10_u64 {
                    let key = [thread.to_be_bytes(), number.to_be_bytes()].concat();
                    let put = component.transaction(|tx| tx.put(1, &key, value));
                    put.expect("commits");
                }
            });
        }
    });
    component.settle().expect("settles");
    let (rebuilt, ..) = rebuild(bztree::<Killed>(), &directory).expect("rebuilds");
    assert_eq!(dump(&rebuilt).len() as u64, THREADS * 10);
}

/// A map that is listed and cannot be read is not left out: the log has its records, and they would
/// be gone with it.
#[test]
fn an_image_without_a_map_is_not_taken() {
    let mut random = Random::new(4);
    let directory = Simulated::new();
    let component = create(bztree::<Killed>(), &directory);
    component.maps().add(1);
    let lsn = component.log_maps(&component.maps().list()).expect("a list");
    let mut done = vec![(lsn, Done::Maps(vec![1]))];
    for _ in 0..10 {
        commit_some(&component, &mut random, &mut done).expect("commits");
    }
    component.settle().expect("settles");
    let list = component.maps().list();
    let taken = component.maps().maps.write().expect("a lock").remove(&1).expect("the map");
    let image = component.write_image(|| Ok::<_, Error>(list), &AtomicBool::new(false));
    assert!(matches!(image, Err(Error::UnknownMap { map: 1 })), "{image:?}");
    component.maps().maps.write().expect("a lock").insert(1, taken);
    let (rebuilt, end, _) = rebuild(bztree::<Killed>(), &directory).expect("rebuilds");
    assert_same(&dump(&rebuilt), &model(&done, end), "without an image");
}

/// A damaged image is told by its name.
#[test]
fn a_damaged_image_is_an_error_that_names_it() {
    let directory = Simulated::new();
    let component = create(bztree::<Killed>(), &directory);
    component.maps().add(1);
    component.log_maps(&component.maps().list()).expect("a list");
    commit_some(&component, &mut Random::new(1), &mut Vec::new()).expect("commits");
    component.settle().expect("settles");
    write_image(&component).expect("an image");
    let names = directory.names().expect("names");
    let name = names.iter().find(|name| name.starts_with("image-")).expect("an image");
    assert!(directory.damage(name, |bytes| bytes[60] ^= 1));
    let error = rebuild(bztree::<Killed>(), &directory).map(drop).expect_err("damage");
    assert!(error.to_string().contains(name.as_str()), "{error}");
}
