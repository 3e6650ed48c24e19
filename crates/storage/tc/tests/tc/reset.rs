//! A new log for a pool whose log is not used any more, and crashes until it is in use.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pando_device::simulated::{Kept, Simulated};
use pando_device::{Directory, Operation};
use pando_index::random::Random;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_log::{Error as LogError, Log, LogOptions, adopt, recover};
use pando_pmem::testing::kill_after;
use pando_pmem::{CreateOptions, Pool, layout};
use pando_tc::{
    Error, ListedMap, MapList, Maps, Rebuild, TransactionComponent, TransactionalMap, replay,
    value_of, verify,
};

use crate::common::{Component, Killed, anonymous, bztree, commit, open_over};

/// The only map of a component, number 1.
struct One(Arc<dyn RangeIndex>);

impl Maps for One {
    type Lent<'maps> = &'maps dyn RangeIndex;

    fn map(&self, number: u64) -> Option<&dyn RangeIndex> {
        (number == 1).then_some(&*self.0)
    }
}

impl Rebuild for One {
    fn relist(&mut self, _: &MapList) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Ok(())
    }

    fn index(&self, number: u64) -> Option<Arc<dyn RangeIndex>> {
        (number == 1).then(|| self.0.clone())
    }
}

fn list() -> MapList {
    let (name, kind, options, number) = ("second".to_owned(), 1, [0; 4], 1);
    let maps = vec![ListedMap { name, kind, options, number }];
    MapList { version: 0, max_bytes: 1 << 26, maps }
}

/// The values of a map by key.
fn records(index: &dyn RangeIndex) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut records = BTreeMap::new();
    let mut cursor = index.scan(KeyRange::all(), Order::Ascending).expect("a cursor");
    while let Some((key, value)) = cursor.next().expect("read") {
        records.extend(value_of(value).map(|value| (key.to_vec(), value.to_vec())));
    }
    records
}

/// The number of the new log.
const NEW: u128 = 43;

/// The records of the map that is built anew from a directory, as the new log of this pool.
fn rebuilt(directory: &dyn Directory, pool_id: u128) -> BTreeMap<Vec<u8>, Vec<u8>> {
    adopt(directory, NEW, pool_id).expect("adopted");
    let mut one = One(anonymous(bztree::<Killed>()).maps().shared(1));
    replay(directory, &mut one).expect("a log");
    records(&*one.0)
}

/// A component of a new pool whose log is in `former`, with two records.
fn with_records(former: &Simulated) -> Component<Killed> {
    let create = CreateOptions { max_bytes: 1 << 26, ..CreateOptions::default() };
    let pool = Pool::<Killed>::anonymous(&create).expect("memory");
    let component = open_over(bztree::<Killed>(), pool, |pool| {
        let (directory, options) = (Arc::new(former.clone()), LogOptions::default());
        Log::create(pool, layout::LOG_OFF, directory, (42, 0), options)
    });
    for (key, value) in [(&b"ash"[..], "1"), (b"elm", "2"), (b"oak", "3"), (b"elm", "4")] {
        let lsn = commit(&component, &[(1, key, Some(value.as_bytes()))]).expect("commits");
        if value == "2" {
            component.sync(lsn).expect("synced");
        }
    }
    commit(&component, &[(1, b"ash", None)]).expect("commits");
    component
}

type Crashes = Arc<Mutex<Vec<Simulated>>>;

/// The directory as kills and power cuts leave it before each operation that changes it, until
/// room for a segment is allocated.
fn crash_at_each_operation(directory: &Simulated) -> Crashes {
    let (crashes, watched) = (Crashes::default(), directory.clone());
    let (noted, random) = (crashes.clone(), Mutex::new(Random::new(7)));
    let has_ended = AtomicBool::new(false);
    directory.on_operation(move |operation, _| {
        if operation == Operation::Allocate {
            has_ended.store(true, Ordering::Relaxed);
        }
        let is_read = [Operation::Open, Operation::List, Operation::Read].contains(&operation);
        if !is_read && !has_ended.load(Ordering::Relaxed) {
            let mut random = random.lock().expect("a lock");
            let mut crashes = noted.lock().expect("a lock");
            crashes.push(watched.after_kill());
            for kept in [Kept::Nothing, Kept::Some, Kept::All] {
                crashes.push(watched.cut_power(kept, &mut random));
            }
        }
        Ok::<(), io::Error>(())
    });
    crashes
}

/// The crashes so far.
fn taken(crashes: &Crashes) -> Vec<Simulated> {
    std::mem::take(&mut *crashes.lock().expect("a lock"))
}

fn over_tail(
    pool: Arc<Pool<Killed>>,
    index: Arc<dyn RangeIndex>,
) -> TransactionComponent<Killed, One> {
    let tail = Log::open_tail(pool, layout::LOG_OFF, LogOptions::default()).expect("a tail");
    TransactionComponent::over_tail(tail, One(index)).expect("settles")
}

fn write(tail: &TransactionComponent<Killed, One>, directory: &Simulated) -> Result<(), Error> {
    let directory: Arc<dyn Directory> = Arc::new(directory.clone());
    tail.write_new_log(&directory, NEW, &list())
}

#[test]
fn a_crash_while_a_new_log_is_written_leaves_no_log_and_it_is_written_again() {
    let mut random = Random::new(5);
    let [former, new] = [(); 2].map(|()| Simulated::new());
    let component = with_records(&former);
    let pool_id = component.log().pool().pool_id();
    let tail = over_tail(component.log().pool().clone(), component.maps().shared(1));
    let crashes = crash_at_each_operation(&new);
    write(&tail, &new).expect("a new log");
    new.on_operation(|_, _| Ok(()));
    let expected = |component: &Component<Killed>| records(&*component.maps().shared(1));
    let before = expected(&component);
    assert_eq!(before.len(), 2);
    for kept in [Kept::Nothing, Kept::Some, Kept::All] {
        assert_eq!(rebuilt(&new.cut_power(kept, &mut random), pool_id), before, "{kept:?}");
    }
    let crashes = taken(&crashes);
    assert!(crashes.len() > 30, "{} crashes", crashes.len());
    let (mut empty, mut proposed) = (0, 0);
    for (number, cut) in crashes.iter().enumerate() {
        // The pool has its former log, so this directory is none.
        match verify(cut).expect_err("no log") {
            Error::Log(LogError::NotALog { .. }) => empty += 1,
            Error::Log(LogError::Proposed { log_id: NEW, .. }) => proposed += 1,
            other => panic!("crash {number}: {other}"),
        }
        if number % 8 == 7 {
            // The former log goes on meanwhile.
            let value: &[u8] = if number % 16 == 7 { b"5" } else { b"a longer one" };
            commit(&component, &[(1, b"fir", Some(value))]).expect("commits");
        }
        write(&tail, cut).expect("written again");
        let after = cut.cut_power(Kept::Nothing, &mut random);
        assert_eq!(rebuilt(&after, pool_id), expected(&component), "crash {number}");
    }
    assert!(empty > 5 && proposed > 10, "{empty} and {proposed}");
    // Nothing was done to the former log.
    let newest = component.newest_lsn().expect("a slot");
    component.sync(newest).expect("synced");
    let read = recover(&former, 0, &mut |_, _| Ok(())).expect("a log");
    assert_eq!(read.end_lsn(), newest);
    // And nothing of another log is replaced.
    for (name, of_pool) in [
        ("image-0000000000000009", None),
        ("proposal", Some(pool_id + 1)),
        ("manifest", Some(pool_id + 1)),
        ("manifest", Some(pool_id)),
    ] {
        let directory = Simulated::new();
        match of_pool {
            Some(of_pool) => {
                let (id, options) = ((NEW, 0), LogOptions::default());
                pando_log::create_files(&directory, of_pool, id, options).expect("proposed");
                if name == "manifest" {
                    adopt(&directory, NEW, of_pool).expect("adopted");
                }
            }
            None => drop(directory.create(name).expect("created")),
        }
        let refused = write(&tail, &directory).expect_err("another log");
        assert!(matches!(refused, Error::Log(LogError::NotEmpty { .. })), "{refused}");
        assert!(directory.names().expect("listed").contains(&name.to_owned()));
    }
}

/// A write of one key is killed before each of its writes. The new log has what the pool shows.
#[test]
fn a_new_log_has_what_a_killed_write_of_one_key_has_left() {
    let mut seen = [false; 2];
    for writes in 0.. {
        let [former, new] = [(); 2].map(|()| Simulated::new());
        let component = Arc::new(with_records(&former));
        let (pool, index) = (component.log().pool().clone(), component.maps().shared(1));
        let map = TransactionalMap::new(component.clone(), 1, index.clone()).expect("a map");
        let has_ended = kill_after(writes, || map.put(b"elm", b"new").expect("writes")).is_some();
        let tail = over_tail(pool.clone(), index.clone());
        let shown = tail.get(1, b"elm").expect("read");
        let is_new = shown.as_deref() == Some(b"new");
        assert!(is_new || (shown.as_deref() == Some(b"4") && !has_ended), "{writes}: {shown:?}");
        seen[usize::from(is_new)] = true;
        write(&tail, &new).expect("a new log");
        let rebuilt = rebuilt(&new, pool.pool_id());
        assert_eq!(rebuilt.get(&b"elm"[..]), shown.as_ref(), "before write {writes}");
        assert_eq!(rebuilt, records(&*index), "before write {writes}");
        if has_ended {
            break;
        }
    }
    assert_eq!(seen, [true; 2]);
}

/// The superblock names the new log, and the pool is lost or opened again.
#[test]
fn a_crash_before_a_new_log_is_in_use_leaves_the_new_log() {
    let [former, new] = [(); 2].map(|()| Simulated::new());
    let component = with_records(&former);
    let (pool, index) = (component.log().pool().clone(), component.maps().shared(1));
    let pool_id = pool.pool_id();
    let before = records(&*index);
    drop(component);
    write(&over_tail(pool.clone(), index.clone()), &new).expect("a new log");

    let crashes = crash_at_each_operation(&new);
    Log::replace(&pool, layout::LOG_OFF, &new, NEW).expect("replaced");
    let replacing = taken(&crashes);
    let directory = Arc::new(new.clone());
    let log = Log::open(pool, layout::LOG_OFF, directory, LogOptions::default()).expect("opens");
    let component = TransactionComponent::open(log, One(index.clone())).expect("opens");
    let mut transaction = component.begin();
    transaction.put(1, b"fir", b"5").expect("put");
    let lsn = transaction.commit().expect("commits");
    component.sync(lsn).expect("synced");
    let (opening, expected) = (taken(&crashes), records(&*index));
    assert!(replacing.len() > 16 && opening.len() > 3 && expected.len() == before.len() + 1);
    let mut proposed = 0;
    for (number, crash) in replacing.iter().enumerate() {
        proposed += u64::from(verify(crash).is_err());
        assert_eq!(rebuilt(crash, pool_id), before, "crash {number}");
    }
    assert!(proposed > 3, "{proposed}");
    // Now it needs no superblock.
    for crash in &opening {
        verify(crash).expect("a log");
        assert_eq!(rebuilt(crash, pool_id), before);
    }
    let image = new.cut_power(Kept::Nothing, &mut Random::new(1));
    verify(&image).expect("a log");
    assert_eq!(rebuilt(&image, pool_id), expected);
}
