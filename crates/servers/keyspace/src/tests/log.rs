//! Stores whose pool has a log: commits, power cuts, and a log that cannot be written.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use super::mounted::Mounted;
use super::*;
use crate::broken_disk::{break_disk, mend_disk};
use crate::log_sync::SyncMode;

/// Wakes a thread that waits in [`wait`].
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a task.
fn wait<Answer>(task: impl Future<Output = Answer>) -> Answer {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut task = std::pin::pin!(task);
    loop {
        if let Poll::Ready(answer) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
            return answer;
        }
        std::thread::park();
    }
}

/// A folder with a pool and its log.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn open(&self, sync: SyncMode) -> Store {
        let path = self.path("a.pool");
        let options = StoreOptions { sync, ..options_at(&path, true) };
        Store::open(Some(&path), &options).expect("a store")
    }

    /// Removes all but the files that the log has now.
    fn cut_power(&self, store: Store) {
        let (log, copy) = (self.path("a.log"), self.path("copy"));
        fs::create_dir(&copy).expect("created");
        for file in fs::read_dir(&log).expect("a directory") {
            let file = file.expect("a file");
            match fs::copy(file.path(), copy.join(file.file_name())) {
                // The log has renamed a spare segment meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                copied => drop(copied.expect("copied")),
            }
        }
        drop(store);
        fs::remove_file(self.path("a.pool")).expect("removed");
        fs::remove_dir_all(&log).expect("removed");
        fs::rename(copy, log).expect("renamed");
    }
}

fn acknowledge(store: &Store) -> Result<bool> {
    wait(store.log().expect("it has a log").until_acknowledged())
}

/// All records but the ones of the store's own.
fn dump(store: &Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    let own = own_keys::own("")[0];
    let records = store.map.range(..).map(|record| record.expect("reads"));
    records.filter(|(key, _)| key[0] != own).collect()
}

fn refusal(store: &Store) -> String {
    let wanted = [Store::stripe_of_key(b"key")].into_iter().collect();
    let locked = store.lock(wanted, Access::Exclusive).map(drop);
    locked.expect_err("it is refused").to_string()
}

#[test]
fn a_power_cut_leaves_what_was_acknowledged() {
    let place = Place::new();
    let store = place.open(SyncMode::Always);
    assert!(store.log().is_some() && store.make_room().expect("looks"));
    let before = records(&store);
    write_all_kinds(&store, 200_000);
    assert!(acknowledge(&store).expect("synced"));
    place.cut_power(store);

    let store = place.open(SyncMode::No);
    assert_eq!(store.starts(), 2);
    assert_all_kinds_happened(&store, 200_000, before);
    set(&store, 0, b"key", b"1", None);
    assert!(!acknowledge(&store).expect("at once"));
    wait(store.log().expect("a log").until_durable()).expect("synced");
    place.cut_power(store);
    assert_eq!(get(&place.open(SyncMode::No), 0, b"key").as_deref(), Some(&b"1"[..]));
}

/// The writes of a transaction, with its expiry entries, happen together or not at all.
#[test]
fn a_refused_commit_has_written_nothing() {
    let place = Place::new();
    let store = place.open(SyncMode::No);
    let later = Some(store.clock().now_ms() + 1_000_000);
    set(&store, 0, b"removed", b"old", later);
    set(&store, 0, b"replaced", b"old", later);
    let keys: [&[u8]; 3] = [b"removed", b"replaced", b"new"];
    let before = dump(&store);
    let mut refused = 0;
    loop {
        let wanted = keys.iter().map(|key| Store::stripe_of_key(key)).collect();
        let held = store.lock(wanted, Access::Exclusive).expect("locks");
        let mut transaction = store.begin(held, store.clock().now_ms());
        transaction.gather_commands();
        assert!(transaction.remove_head(0, b"removed").expect("removes"));
        transaction.put_head(0, b"replaced", &Head::string(b"new")).expect("puts");
        let head = Head { expires_at: later, ..Head::string(b"new") };
        transaction.put_head(0, b"new", &head).expect("puts");
        refuse(&store, refused, 1);
        if transaction.commit().is_ok() {
            break;
        }
        refused += 1;
        assert!(dump(&store) == before, "{refused} writes");
    }
    // Three heads, two removed expiry entries, and a new one.
    assert_eq!(refused, 6);
    assert_eq!(dump(&store).len(), 3);
    assert_eq!(get(&store, 0, b"new").as_deref(), Some(&b"new"[..]));
}

#[test]
fn a_log_that_stops_ends_writes_and_not_reads() {
    for mode in [SyncMode::Always, SyncMode::EverySecond, SyncMode::No] {
        let place = Place::new();
        let store = place.open(mode);
        set(&store, 0, b"key", b"1", None);
        wait(store.log().expect("a log").until_durable()).expect("synced");
        break_disk(&place.path("a.log"), &place.path("kept"));
        set(&store, 0, b"key", b"2", None);
        let acknowledged = acknowledge(&store);
        assert_eq!(acknowledged.is_err(), mode == SyncMode::Always, "{mode:?}: {acknowledged:?}");
        let failed = match acknowledged {
            Err(failed) => failed,
            Ok(_) => wait(store.log().expect("a log").until_durable()).expect_err("it fails"),
        };
        let words = failed.to_string();
        assert!(
            words.starts_with("MISCONF a power cut may undo the writes of this command: "),
            "{words}"
        );
        assert!(words.ends_with("Check the disk, then restart the server"), "{words}");
        assert!(refusal(&store).starts_with("MISCONF writes are refused: "));
        assert!(store.refuses_writes() && store.log().is_some_and(|log| log.failure().is_some()));
        assert_eq!(get(&store, 0, b"key").as_deref(), Some(&b"2"[..]));
        let _ = store.close();

        mend_disk(&place.path("a.log"), &place.path("kept"));
        let store = place.open(mode);
        assert!(!store.refuses_writes());
        assert_eq!(get(&store, 0, b"key").as_deref(), Some(&b"2"[..]));
        set(&store, 0, b"key", b"3", None);
        acknowledge(&store).expect("synced");
    }
}

/// A new segment of the log needs 64 MiB, and the log may have one in reserve.
#[test]
fn a_full_disk_of_the_log_refuses_writes_until_it_has_room() {
    let Some(disk) = Mounted::tmpfs(300 << 20) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let pool = options().pool.log(disk.path().join("log"));
    let options = StoreOptions { pool, sync: SyncMode::Always, ..options() };
    let store = Store::open(Some(&path), &options).expect("a store");
    let mut other = fs::File::create(disk.path().join("other")).expect("created");
    while other.write_all(&[1; 1 << 20]).is_ok() {}
    drop(other);
    let value = vec![7; 1 << 20];
    let fill = |number: u64| -> Result<bool> {
        let key = (number % 20).to_le_bytes();
        let held =
            store.lock([Store::stripe_of_key(&key)].into_iter().collect(), Access::Exclusive);
        let mut transaction = store.begin(held?, store.clock().now_ms());
        transaction.put_head(0, &key, &Head::string(&value))?;
        transaction.commit()?;
        drop(transaction);
        acknowledge(&store)
    };
    let (number, failed) = (0..)
        .find_map(|number| fill(number).err().map(|failed| (number, failed)))
        .expect("the disk is full");
    assert!((10..200).contains(&number), "{number}");
    let words = failed.to_string();
    assert!(words.starts_with("MISCONF "), "{words}");
    assert!(refusal(&store).contains("accepted again when the log can be written"));
    assert!(get(&store, 0, &0u64.to_le_bytes()).is_some());

    fs::remove_file(disk.path().join("other")).expect("removed");
    // An attempt that has begun before may still fail.
    let is_written = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        wait(store.log().expect("a log").until_durable()).is_ok()
    });
    assert!(is_written && !store.refuses_writes());
    fill(number).expect("writes");
    store.close().expect("closes");
}
