//! A process that writes to a shared pool, and says which of its rounds are complete.
//!
//! Round N of worker W inserts key (W, N), removes key (W, N - [`WINDOW`]), adds one to the
//! worker's counter and to the counter of all, and then says N. So after a kill, a reader knows
//! which keys must be there, to within one round.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use pando::{Map, Pool};

/// The variable with the worker's arguments, in the process of a worker.
const VARIABLE: &str = "PANDO_SHARED_WORKER";
/// The first round of a worker that creates and drops maps instead.
const DROPS_MAPS: u64 = u64::MAX;
/// Keys that a worker has in the map.
pub const WINDOW: u64 = 300;

/// The test that is the worker's `main`.
#[test]
fn works_if_it_is_a_worker() {
    let Ok(arguments) = std::env::var(VARIABLE) else { return };
    let mut parts = arguments.splitn(3, ' ');
    let worker: u8 = parts.next().unwrap().parse().unwrap();
    let first: u64 = parts.next().unwrap().parse().unwrap();
    let pool = super::open(Path::new(parts.next().unwrap()));
    let mut out = std::io::stdout().lock();
    if first == DROPS_MAPS {
        writeln!(out, "ready").unwrap();
        drop_maps(&pool, worker);
    }
    let map = pool.open_map("main").unwrap();
    writeln!(out, "ready").unwrap();
    for round in first.. {
        work(&map, worker, round);
        writeln!(out, "{round}").unwrap();
    }
}

/// Creates a map, fills it and drops it, for ever.
fn drop_maps(pool: &Pool, worker: u8) -> ! {
    let name = format!("dropped-{worker}");
    loop {
        let map = pool.map(&name).unwrap();
        for key in 0..500_u32 {
            map.upsert(key.to_be_bytes(), [worker; 200]).unwrap();
        }
        drop(map);
        pool.drop_map(&name).unwrap();
    }
}

fn work(map: &Map, worker: u8, round: u64) {
    let value = vec![worker; 20 + (round % 200) as usize];
    map.upsert(key(worker, round), &value).unwrap();
    if let Some(old) = round.checked_sub(WINDOW) {
        map.remove(key(worker, old)).unwrap();
    }
    add_one(map, &counter(worker));
    add_one(map, b"all");
}

fn add_one(map: &Map, key: &[u8]) {
    map.modify(key, |found, counted| {
        counted.extend_from_slice((count_in(found) + 1).to_string().as_bytes());
        true
    })
    .unwrap();
}

fn count_in(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| std::str::from_utf8(value).unwrap().parse().unwrap())
}

pub fn key(worker: u8, round: u64) -> Vec<u8> {
    [b"w", &[worker][..], &round.to_be_bytes()].concat()
}

fn counter(worker: u8) -> Vec<u8> {
    vec![b'c', worker]
}

/// The count of a worker.
pub fn count_of(map: &Map, worker: u8) -> u64 {
    count_in(map.get(counter(worker)).unwrap().as_deref())
}

/// The count of all.
pub fn count_of_all(map: &Map) -> u64 {
    count_in(map.get(b"all").unwrap().as_deref())
}

/// A running worker.
pub struct Worker {
    pub number: u8,
    child: Child,
    /// Reads what the worker says; its result is the last complete round.
    reads: JoinHandle<u64>,
}

impl Worker {
    /// Starts worker `number` at round `first`; returns when it has opened the pool.
    pub fn start(path: &Path, number: u8, first: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker::works_if_it_is_a_worker", "--nocapture"])
            .env(VARIABLE, format!("{number} {first} {}", path.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.by_ref().map_while(Result::ok).any(|line| line.ends_with("ready")));
        let reads = std::thread::spawn(move || {
            let rounds = lines.map_while(Result::ok).filter_map(|line| line.parse().ok());
            rounds.last().unwrap_or(first - 1)
        });
        Self { number, child, reads }
    }

    /// Starts worker `number`, which creates and drops maps.
    pub fn start_to_drop_maps(path: &Path, number: u8) -> Self {
        Self::start(path, number, DROPS_MAPS)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it; returns the last complete round.
    pub fn kill(mut self) -> u64 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reads.join().unwrap()
    }

    /// Sends it a signal, such as STOP.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.pid().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}
