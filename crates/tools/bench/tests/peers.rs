//! Every peer in this build, and every transactional map of Pando, does the operations of the
//! harness correctly. One thread compares it with a `BTreeMap`, and four threads use it at once. If
//! its writes survive a crash of the process, it is also tested after kill -9.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use pando_bench::keys::key_of;
use pando_bench::record::Shape;
use pando_bench::subject::Subject;
use pando_bench::system::{Order, Refusal, Scan};
use pando_bench::systems::peers::{self, PEERS};
use pando_bench::systems::transactional::POOL;
use pando_bench::systems::{ALWAYS_BUILT, BuildOptions, Durability, SYSTEMS, SystemEntry, ours};

/// Shapes that every adapter has a form for; a peer is asked for those that it takes.
const SHAPES: [Shape; 4] = [
    Shape { key_bytes: 8, value_bytes: 8 },
    Shape { key_bytes: 8, value_bytes: 100 },
    Shape { key_bytes: 16, value_bytes: 100 },
    Shape { key_bytes: 128, value_bytes: 4096 },
];
/// Records of a test of one system at one shape.
const RECORDS: u64 = 1_200;
/// Threads that write at once.
const THREADS: u64 = 4;
/// Records that the child of a crash test has acknowledged when it is killed.
const ACKNOWLEDGED: usize = 600;

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// A system that refuses nothing.
struct Probe(Box<dyn Subject>);

impl Probe {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> bool {
        self.0.any().insert_new(key, value).unwrap()
    }

    fn upsert(&self, key: &[u8], value: &[u8]) {
        self.0.any().upsert(key, value).unwrap();
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut found = None;
        let is_there = self.0.any().get(key, &mut |value| found = Some(value.to_vec())).unwrap();
        assert_eq!(is_there, found.is_some(), "a get says whether it visited");
        found
    }

    fn delete(&self, key: &[u8]) -> bool {
        self.0.any().delete(key).unwrap()
    }

    fn scan(&self, from: &[u8], limit: u64, order: Order) -> Result<Records, Refusal> {
        let mut records = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| records.push((key.to_vec(), value.to_vec()));
        self.0.any().scan(Scan { from, limit, order }, &mut visit)?;
        Ok(records)
    }

    fn count(&self) -> u64 {
        self.0.any().count().unwrap()
    }

    fn file_bytes(&self) -> Option<u64> {
        self.0.file_bytes()
    }
}

fn build(peer: &SystemEntry, shape: Shape, folder: Option<&Path>) -> Probe {
    let options = BuildOptions::default();
    let built = if is_ours(peer) {
        ours::build(peer.name, &options, folder)
    } else if ALWAYS_BUILT.iter().any(|always| always.name == peer.name) {
        (peer.build)(peer.name, shape, &options)
    } else {
        peers::build(peer.name, shape, &options, folder)
    };
    Probe(built.unwrap_or_else(|refusal| panic!("{} of {shape:?}: {refusal}", peer.name)))
}

/// Whether it is one of the transactional maps of Pando.
fn is_ours(entry: &SystemEntry) -> bool {
    let suffixes = [":transactional", ":buffered", ":synced", ":pipelined"];
    suffixes.iter().any(|suffix| entry.name.ends_with(suffix))
}

/// The peers in this build and Pando's transactional maps, each with the shapes that it takes.
/// `PANDO_PEER` names one alone.
fn built() -> impl Iterator<Item = (&'static SystemEntry, Shape)> {
    let only = std::env::var("PANDO_PEER").ok();
    let peers = PEERS.iter().filter(|peer| peers::is_built(peer.name));
    SYSTEMS
        .iter()
        .filter(|entry| is_ours(entry))
        .chain(ALWAYS_BUILT)
        .chain(peers)
        .filter(move |peer| only.as_ref().is_none_or(|only| only == peer.name))
        .flat_map(|peer| SHAPES.map(|shape| (peer, shape)))
        .filter(|(peer, shape)| (peer.limits)(*shape).is_ok())
}

/// The same with a name for messages, which is printed.
fn built_and_named() -> impl Iterator<Item = (&'static SystemEntry, Shape, String)> {
    built().map(|(peer, shape)| {
        let what = format!("{} of {shape:?}", peer.name);
        println!("{what}");
        (peer, shape, what)
    })
}

/// `bytes` bytes that begin with `head` and go on with what follows from `number`.
fn filled(head: [u8; 8], number: u64, bytes: usize) -> Vec<u8> {
    let mut all = head.to_vec();
    let mut bits = number;
    while all.len() < bytes {
        bits = key_of(bits);
        all.extend_from_slice(&bits.to_le_bytes());
    }
    all.truncate(bytes);
    all
}

fn key(shape: Shape, number: u64) -> Vec<u8> {
    filled(key_of(number).to_be_bytes(), number, shape.key_bytes)
}

fn value(shape: Shape, number: u64, version: u64) -> Vec<u8> {
    let own = key_of(number) ^ version;
    filled(own.to_le_bytes(), own, shape.value_bytes)
}

/// What a scan owes.
fn due(model: &BTreeMap<Vec<u8>, Vec<u8>>, from: &[u8], limit: usize, order: Order) -> Records {
    let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
    match order {
        Order::Ascending => model.range(from.to_vec()..).take(limit).map(owned).collect(),
        Order::Descending => model.range(..=from.to_vec()).rev().take(limit).map(owned).collect(),
    }
}

/// How often an operation is tried. A fault of a peer that is on record (docs/peers.md) may be met
/// once, but not stay.
fn tries(peer: &SystemEntry) -> usize {
    if peer.name == "masstree" { 100 } else { 1 }
}

fn check_scans(
    system: &Probe,
    peer: &SystemEntry,
    shape: Shape,
    model: &BTreeMap<Vec<u8>, Vec<u8>>,
    what: &str,
) {
    // Keys that are there, that were deleted, that never were; the ends, and beyond them.
    let mut starts: Vec<_> =
        (0..RECORDS + 40).step_by(37).map(|number| key(shape, number)).collect();
    starts.extend([vec![0; shape.key_bytes], vec![0xFF; shape.key_bytes]]);
    starts.extend(model.first_key_value().map(|(key, _)| key.clone()));
    starts.extend(model.last_key_value().map(|(key, _)| key.clone()));
    for order in [Order::Ascending, Order::Descending] {
        for (from, limit) in starts.iter().flat_map(|from| [0, 1, 10, 300].map(|n| (from, n))) {
            match system.scan(from, limit, order) {
                Ok(mut found) => {
                    let due = due(model, from, limit as usize, order);
                    for _ in 1..tries(peer) {
                        if found == due {
                            break;
                        }
                        found = system.scan(from, limit, order).unwrap();
                    }
                    let first_wrong = found.iter().zip(&due).find(|(found, due)| found != due);
                    let keys = first_wrong.map(|(found, due)| (&found.0, &due.0));
                    assert!(
                        found == due,
                        "{what}: a scan of {limit} from {from:02x?}, {order:?}, gave {} records, \
                         due {}; first wrong key and the due one {keys:02x?}",
                        found.len(),
                        due.len()
                    );
                }
                Err(refusal) => {
                    assert!(order == Order::Descending && !peer.can_descend, "{what}: {refusal}");
                    assert!(refusal.to_string().contains("upwards only"), "{what}: {refusal}");
                }
            }
        }
    }
    let all = system.scan(&vec![0; shape.key_bytes], u64::MAX, Order::Ascending).unwrap();
    assert!(all.into_iter().eq(model.clone()), "{what}: the full scan");
    if peer.can_descend {
        let all = system.scan(&vec![0xFF; shape.key_bytes], u64::MAX, Order::Descending).unwrap();
        assert!(all.into_iter().rev().eq(model.clone()), "{what}: the full scan downwards");
    }
    assert_eq!(system.count(), model.len() as u64, "{what}: the count");
}

#[test]
fn each_operation_is_right() {
    for (peer, shape, what) in built_and_named() {
        let system = build(peer, shape, None);
        let mut model = BTreeMap::new();
        check_scans(&system, peer, shape, &model, &what);
        for number in 0..RECORDS {
            let (key, value) = (key(shape, number), value(shape, number, 0));
            assert!(system.insert_new(&key, &value), "{what}: insert {number}");
            model.insert(key, value);
        }
        for number in 0..RECORDS {
            let other = value(shape, number, 9);
            assert!(!system.insert_new(&key(shape, number), &other), "{what}: duplicate {number}");
        }
        check_scans(&system, peer, shape, &model, &what);
        for number in (0..RECORDS).step_by(2) {
            let (key, value) = (key(shape, number), value(shape, number, 1));
            system.upsert(&key, &value);
            assert!(model.insert(key, value).is_some());
        }
        for number in (0..RECORDS).step_by(3) {
            let key = key(shape, number);
            assert!(system.delete(&key), "{what}: delete {number}");
            assert!(!system.delete(&key), "{what}: second delete {number}");
            model.remove(&key);
        }
        for number in 0..RECORDS + 100 {
            let key = key(shape, number);
            assert_eq!(system.get(&key), model.get(&key).cloned(), "{what}: get {number}");
        }
        check_scans(&system, peer, shape, &model, &what);
        for number in (0..RECORDS).step_by(6) {
            let (key, value) = (key(shape, number), value(shape, number, 2));
            assert!(system.insert_new(&key, &value), "{what}: insert {number} again");
            model.insert(key, value);
        }
        check_scans(&system, peer, shape, &model, &what);
        let is_durable = peer.durability != Durability::None;
        assert!(!is_durable || system.file_bytes() > Some(0), "{what}: files");
    }
}

#[test]
fn threads_do_not_disturb_each_other() {
    for (peer, shape, what) in built_and_named() {
        let system = build(peer, shape, None);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (system, what) = (&system, &what);
                scope.spawn(move || {
                    let own = || (thread..RECORDS).step_by(THREADS as usize);
                    for number in own() {
                        let (key, value) = (key(shape, number), value(shape, number, 0));
                        assert!(system.insert_new(&key, &value), "{what}: insert {number}");
                    }
                    for number in own() {
                        system.upsert(&key(shape, number), &value(shape, number, 1));
                        let found = system.get(&key(shape, number));
                        assert_eq!(found, Some(value(shape, number, 1)), "{what}: get {number}");
                        let is_right = || {
                            let from = key(shape, number);
                            let near = system.scan(&from, 10, Order::Ascending).unwrap();
                            near.first().is_some_and(|(found, _)| *found == from)
                                && near.is_sorted_by(|before, after| before.0 < after.0)
                        };
                        let found = (0..tries(peer)).any(|_| is_right());
                        assert!(found, "{what}: scan from {number}");
                    }
                    for number in own().filter(|number| number % 3 == 0) {
                        // The same, of its deletes.
                        let gone =
                            || peer.name == "masstree" && system.get(&key(shape, number)).is_none();
                        let is_deleted =
                            (0..tries(peer)).any(|_| system.delete(&key(shape, number)));
                        assert!(is_deleted || gone(), "{what}: delete {number}");
                    }
                });
            }
        });
        let left = (0..RECORDS).filter(|number| number % 3 != 0);
        let model = left.map(|number| (key(shape, number), value(shape, number, 1))).collect();
        check_scans(&system, peer, shape, &model, &what);
    }
}

/// What the child writes: insert `number`, and once in four delete the one before it.
fn deleted_by(number: u64) -> Option<u64> {
    (number % 4 == 3).then(|| number - 1)
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    for (peer, shape) in built() {
        // Peers in memory have nothing to come back from.
        let has_files = peer.durability != Durability::None || peer.name.ends_with(":lazy");
        if !has_files {
            continue;
        }
        let what = format!("{} of {shape:?}", peer.name);
        let folder = tempfile::tempdir_in(BuildOptions::default().pool_dir).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_child_that_is_killed", "--ignored", "--nocapture"])
            .env("PANDO_PEER", peer.name)
            .env("PANDO_FOLDER", folder.path())
            .env("PANDO_SHAPE", format!("{}/{}", shape.key_bytes, shape.value_bytes))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let number = |line: String| line.strip_prefix("wrote ")?.parse::<u64>().ok();
        let mut wrote: Vec<u64> = lines.by_ref().filter_map(number).take(ACKNOWLEDGED).collect();
        child.kill().unwrap();
        // What it said before it died counts, though nobody had listened yet.
        wrote.extend(lines.filter_map(number));
        child.wait().unwrap();
        assert!(
            wrote.len() >= ACKNOWLEDGED,
            "{what}: the child ended after {} writes",
            wrote.len()
        );
        if is_ours(peer) && peer.durability == Durability::PowerLoss {
            // The log alone has all of them: tmpfs loses the pool with the power.
            std::fs::remove_file(folder.path().join(POOL)).unwrap();
        }
        let system = match std::panic::catch_unwind(|| build(peer, shape, Some(folder.path()))) {
            Ok(system) => system,
            Err(_) if peer.durability == Durability::None => {
                println!("{what}: nothing to open after kill -9");
                continue;
            }
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let is_right = |number: &u64| {
            let is_deleted =
                deleted_by(number + 1) == Some(*number) && wrote.contains(&(number + 1));
            // The child may have deleted this one without having said so.
            let may_be_deleted = deleted_by(number + 1) == Some(*number);
            match system.get(&key(shape, *number)) {
                Some(found) => !is_deleted && found == value(shape, *number, 0),
                None => may_be_deleted,
            }
        };
        let lost = wrote.iter().filter(|number| !is_right(number)).count();
        println!("{what}: of {} acknowledged writes {lost} are lost", wrote.len());
        if peer.durability != Durability::None {
            assert_eq!(lost, 0, "{what}: lost of {} acknowledged writes", wrote.len());
        }
    }
}

#[test]
#[ignore = "the process that another test kills"]
fn the_child_that_is_killed() {
    let Ok(folder) = std::env::var("PANDO_FOLDER") else { return };
    let shape = std::env::var("PANDO_SHAPE").unwrap();
    let (key_bytes, value_bytes) = shape.split_once('/').unwrap();
    let shape =
        Shape { key_bytes: key_bytes.parse().unwrap(), value_bytes: value_bytes.parse().unwrap() };
    let name = std::env::var("PANDO_PEER").unwrap();
    let peer = SYSTEMS.iter().find(|peer| peer.name == name).unwrap();
    let system = build(peer, shape, Some(Path::new(&folder)));
    let mut out = std::io::stdout().lock();
    writeln!(out).unwrap();
    for number in 0.. {
        assert!(system.insert_new(&key(shape, number), &value(shape, number, 0)));
        if let Some(number) = deleted_by(number) {
            assert!(system.delete(&key(shape, number)));
        }
        // An error here is a parent that is gone.
        if writeln!(out, "wrote {number}").is_err() {
            return;
        }
    }
}
