//! Properties that no comparison with another server shows: keys that expire with time, the data
//! after `kill -9` and a new start, scans during writes, space that is returned to the file system.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::mounted::Mounted;
use crate::common::programs::{self, Running};
use crate::common::random::Random;
use crate::common::wire::{Client, Value};

/// The longest time for an expected event.
const PATIENCE: Duration = Duration::from_secs(20);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn number(client: &mut Client, line: &str) -> i64 {
    let reply = client.say(line);
    reply.number().unwrap_or_else(|| panic!("{line}: {reply:?}"))
}

fn text(client: &mut Client, line: &str) -> String {
    let reply = client.say(line);
    assert!(!reply.is_error(), "{line}: {reply:?}");
    String::from_utf8_lossy(reply.bytes()).into_owned()
}

#[test]
fn keys_expire_as_time_goes_by() {
    let server = programs::pando();
    let mut client = server.connect();
    for line in ["set a v px 80", "psetex b 80 v", "set c v", "pexpire c 80", "set d v"] {
        client.say(line);
    }
    client.say("getex d px 80");
    until("a key that is persisted in time", || {
        client.say("set forever v px 80");
        number(&mut client, "persist forever") == 1
    });
    let left_ms = number(&mut client, "pttl a");
    assert!((1..=80).contains(&left_ms) || left_ms == -2, "{left_ms}");
    until("expiry", || number(&mut client, "exists a b c d") == 0);
    for key in ["a", "b", "c", "d"] {
        assert_eq!(client.say(&format!("get {key}")), Value::Nothing(b'$'));
        assert_eq!(number(&mut client, &format!("pttl {key}")), -2);
        assert_eq!(text(&mut client, &format!("type {key}")), "none");
        assert!(client.say(&format!("rename {key} e")).is_error());
        assert_eq!(number(&mut client, &format!("copy {key} e")), 0);
        assert_eq!(number(&mut client, &format!("persist {key}")), 0);
    }
    assert_eq!(client.say("keys *").values().len(), 1);
    assert_eq!(client.say("scan 0").values()[1].values().len(), 1);
    assert_eq!(text(&mut client, "randomkey"), "forever");
    // The sweep removes them.
    until("the sweep", || number(&mut client, "dbsize") == 1);
    assert_eq!(text(&mut client, "get forever"), "v");
    // An expired key does not exist for commands.
    client.say("set a v px 1");
    until("expiry", || number(&mut client, "exists a") == 0);
    assert_eq!(text(&mut client, "set a w nx"), "OK");
    assert_eq!(number(&mut client, "ttl a"), -1);
}

#[test]
fn a_server_that_was_killed_comes_back_with_keys_and_their_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = folder.path().join("pool");
    let start = || -> (Running, Client) {
        let server = programs::pando_on(Some(&pool));
        let client = server.connect();
        (server, client)
    };
    let (server, mut client) = start();
    for key in 0..50 {
        client.say(&format!("set k{key} {key}"));
    }
    for line in ["set short v px 150", "set long v ex 1000", "del k0 k1", "rename k2 renamed"] {
        client.say(line);
    }
    for line in ["select 1", "set other v", "swapdb 1 2", "select 3", "set gone v", "flushdb"] {
        assert_eq!(text(&mut client, line), "OK");
    }
    client.say("select 0");
    client.say("move k3 5");
    let at_ms = number(&mut client, "pexpiretime long");
    server.kill();
    std::thread::sleep(Duration::from_millis(200));

    let (server, mut client) = start();
    assert_eq!(client.say("get short"), Value::Nothing(b'$'));
    assert!(number(&mut client, "pexpiretime long").abs_diff(at_ms) <= 3);
    assert!((900..=1000).contains(&number(&mut client, "ttl long")));
    assert_eq!(text(&mut client, "get renamed"), "2");
    until("the sweep", || number(&mut client, "dbsize") == 48);
    for (database, keys) in [(1, 0), (2, 1), (3, 0), (5, 1)] {
        client.say(&format!("select {database}"));
        assert_eq!(number(&mut client, "dbsize"), keys, "database {database}");
    }
    client.say("select 0");
    client.say("flushall");
    server.kill();

    let (_server, mut client) = start();
    for database in 0..16 {
        client.say(&format!("select {database}"));
        assert_eq!(number(&mut client, "dbsize"), 0, "database {database}");
        assert_eq!(client.say("keys *").values().len(), 0, "database {database}");
    }
}

#[test]
fn counts_stay_right_whatever_is_done() {
    let server = programs::pando();
    let mut client = server.connect();
    let mut random = Random::new(20);
    // After the first time it is counted, not read.
    assert_eq!(number(&mut client, "dbsize"), 0);
    for _ in 0..2000 {
        let (one, other) = (random.below(30), random.below(30));
        let line = match random.below(12) {
            0 => format!("del k{one} k{other}"),
            1 => format!("rename k{one} k{other}"),
            2 => format!("copy k{one} k{other} replace"),
            3 => format!("move k{one} 1"),
            4 => format!("getdel k{one}"),
            5 => format!("expire k{one} -1"),
            6 if random.once_in(10) => "swapdb 0 1".to_owned(),
            7 if random.once_in(20) => "flushdb".to_owned(),
            8 => format!("msetnx k{one} v k{other} v"),
            _ => format!("set k{one} v"),
        };
        let in_multi = random.once_in(4);
        if in_multi {
            client.say("multi");
        }
        client.say(&line);
        if in_multi {
            client.say("set k0 v");
            client.say("dbsize");
            let replies = client.say("exec");
            let names = client.say("keys *").values().len() as i64;
            assert_eq!(replies.values()[2].number(), Some(names), "{line}");
        }
        let names = client.say("keys *").values().len() as i64;
        assert_eq!(number(&mut client, "dbsize"), names, "{line}");
    }
}

#[test]
fn a_transaction_sees_the_databases_that_it_changes() {
    let server = programs::pando();
    let mut client = server.connect();
    client.say("set before v");
    for line in
        ["multi", "set a v", "flushdb", "dbsize", "set b v", "keys *", "swapdb 0 1", "keys *"]
    {
        client.say(line);
    }
    let replies = client.say("exec");
    let replies = replies.values();
    assert_eq!(replies[2].number(), Some(0));
    assert_eq!(replies[4].values(), [Value::Bytes(b'$', b"b".to_vec())]);
    assert_eq!(replies[6].values(), []);
    assert_eq!(number(&mut client, "dbsize"), 0);
    client.say("select 1");
    assert_eq!(number(&mut client, "dbsize"), 1);
}

#[test]
fn a_scan_finds_what_is_there_throughout() {
    const STABLE: usize = 400;
    let server = programs::pando();
    let mut client = server.connect();
    for key in 0..STABLE {
        client.say(&format!("set stable{key} v"));
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (mut client, is_over) = (server.connect(), &is_over);
            scope.spawn(move || {
                let mut random = Random::new(writer);
                while !is_over.load(Ordering::Relaxed) {
                    let (one, other) = (random.below(500), random.below(500));
                    client.say(&match random.below(5) {
                        0 => format!("set stable{} w", one % STABLE),
                        1 => format!("del moving{one}"),
                        2 => format!("rename moving{one} moving{other}"),
                        3 => format!("expire stable{} 1000", one % STABLE),
                        _ => format!("mset moving{one} v moving{other} v"),
                    });
                }
            });
        }
        for round in 0..10 {
            let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
            loop {
                let reply = client.say(&format!("scan {cursor} count {}", 5 + round * 10));
                let [next, names] = reply.values() else { panic!("{reply:?}") };
                found.extend(names.values().iter().map(|name| name.bytes().to_vec()));
                cursor = String::from_utf8_lossy(next.bytes()).into_owned();
                if cursor == "0" {
                    break;
                }
            }
            found.retain(|name| name.starts_with(b"stable"));
            let found_once = found.len();
            found.sort();
            found.dedup();
            assert_eq!((found.len(), found_once), (STABLE, STABLE), "round {round}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn counters_lose_nothing() {
    let server = programs::pando();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = server.connect();
            scope.spawn(move || (0..500).for_each(|_| drop(client.say("incrby shared 3"))));
        }
    });
    assert_eq!(number(&mut server.connect(), "get shared"), 4 * 500 * 3);
}

/// A pool for a server, of at most `max_mib` MiB. The reserve of the server is a share of it.
fn small_pool(path: &Path, max_mib: u64) {
    let pool = pando::Pool::create(path, &pando::PoolOptions::new().max_bytes(max_mib << 20));
    pool.expect("a pool").close().expect("closes");
}

/// The bytes of the file system that a pool occupies.
fn occupied(pool: &Path) -> u64 {
    pool.metadata().expect("a file").blocks() * 512
}

/// Sets strings of a number of bytes, and returns how many were refused.
fn fill(client: &mut Client, names: std::ops::Range<usize>, bytes: usize) -> usize {
    let value = vec![b'x'; bytes];
    let mut refused = 0;
    for names in names.collect::<Vec<_>>().chunks(100) {
        let set = |name: &usize| vec![b"SET".to_vec(), name.to_string().into(), value.clone()];
        let requests: Vec<_> = names.iter().map(set).collect();
        client.send_all(requests.iter().map(Vec::as_slice)).expect("sends");
        for _ in names {
            refused += usize::from(client.receive().expect("a reply").value.is_error());
        }
    }
    refused
}

#[test]
fn a_file_gets_smaller_when_keys_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = folder.path().join("pool");
    small_pool(&pool, 64);
    let server = programs::pando_on(Some(&pool));
    let mut client = server.connect();
    let ways: [&[&str]; 4] =
        [&["flushall"], &["flushall async"], &["flushdb"], &["unlink long", "memory purge"]];
    for ways in ways {
        if ways.len() == 1 {
            assert_eq!(fill(&mut client, 0..9000, 3000), 0);
            (0..2000).for_each(|field| drop(client.say(&format!("hset hash {field} value"))));
        } else {
            let value = vec![b'y'; 30_000_000];
            client.ask(&[b"SET".to_vec(), b"long".to_vec(), value]).expect("a reply");
        }
        let before = occupied(&pool);
        assert!(before > 25_000_000, "{before} bytes");
        for way in ways {
            assert!(!client.say(way).is_error(), "{way}");
        }
        // The space after the last used chunk stays. It is one step of growth: a sixteenth.
        let left = before / 10 + before / 16;
        until(ways[0], || occupied(&pool) < left);
        let info = text(&mut client, "info memory");
        let occupied = info.lines().find_map(|line| line.strip_prefix("pool_occupied:"));
        let occupied: u64 =
            occupied.and_then(|occupied| occupied.trim().parse().ok()).expect("a figure");
        assert!(occupied < left, "{occupied}");
    }
}

/// Writes zeros until the file system is full.
fn fill_file_system(path: &Path) -> File {
    let mut file = File::create(path).expect("a file");
    for bytes in [1 << 20, 1 << 12] {
        while file.write_all(&vec![1; bytes]).is_ok() {}
    }
    file
}

#[test]
fn room_that_went_back_to_a_file_system_that_is_full_now_stops_no_server() {
    let Some(mounted) = Mounted::tmpfs(24 << 20) else { return };
    let pool = mounted.path().join("pool");
    small_pool(&pool, 64);
    let server = programs::pando_on(Some(&pool));
    let mut client = server.connect();
    assert_eq!(fill(&mut client, 0..5000, 3000), 0);
    let before = occupied(&pool);
    let kept = |name: &usize| name.is_multiple_of(50);
    (0..5000).filter(|name| !kept(name)).for_each(|name| drop(client.say(&format!("del {name}"))));
    until("room", || occupied(&pool) < before / 2);
    let filler = fill_file_system(&mounted.path().join("filler"));
    let mut there: BTreeSet<usize> = (0..5000).filter(kept).collect();
    let mut refused = 0;
    for name in 5000..7000 {
        let reply = match name % 4 {
            0 => client.say(&format!("hset hash{name} field value")),
            1 => client.say(&format!("setrange {name} {} x", name * 10)),
            _ => client.say(&format!("set {name} {}", "x".repeat(name / 2))),
        };
        match reply.is_error() {
            true => refused += 1,
            false => drop(there.insert(name)),
        }
    }
    assert!(refused > 0, "the file system was not full");
    server.kill();

    let server = programs::pando_on(Some(&pool));
    let mut client = server.connect();
    for &name in &there {
        let (line, bytes) = match (name, name % 4) {
            (..5000, _) => (format!("strlen {name}"), 3000),
            (_, 0) => (format!("hstrlen hash{name} field"), 5),
            (_, 1) => (format!("strlen {name}"), name * 10 + 1),
            _ => (format!("strlen {name}"), name / 2),
        };
        assert_eq!(number(&mut client, &line), bytes as i64, "{line}");
    }
    filler.set_len(0).expect("cuts");
    until("room", || fill(&mut client, 8000..8100, 3000) == 0);
}
