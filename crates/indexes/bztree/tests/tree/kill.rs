//! kill -9 of a real process with four concurrent writers, repeatedly on one pool.
//!
//! A child process (this binary again) opens the pool. Each of its threads does inserts, updates,
//! upserts, removes and compare-exchanges on keys of its own, which share leaves with the keys of
//! other threads. It acknowledges each operation through a pipe after the call has returned. The
//! parent kills the child at a random instant, opens the pool and compares: the keys of a thread
//! have the records after its last acknowledged operation, or after the next one. The pool has no
//! other records, and no block is leaked. The next round continues with the same pool.
//!
//! Both sides draw a thread's operations from the same seed and state, so an acknowledgement is a
//! number. `PANDO_KILLS=300 cargo test --release -p pando-bztree --test tree kill:: --
//! --nocapture` is the long run; `PANDO_SEED` replays the operations and the delays.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::scenario::{Answer, Op, long, short};
use crate::common::watchdog::seed;
use crate::common::{Fixture, Records, abandon, check, dump, folder_and_pool, small_nodes};
use pando_index::RangeIndex;
use pando_index::random::Random;
use pando_pmem::Process;

const WRITERS: u64 = 4;
/// Keys that each writer owns.
const KEYS: u64 = 250;
/// The most bytes of the pool: it must not grow with the number of kills.
const MAX_BYTES: u64 = 64 << 20;
/// The longest life of a child, in microseconds.
const LIFE_US: u64 = 40_000;
/// The arguments of a child: the pool's path, and the seed of the round.
const CHILD: &str = "PANDO_KILL_CHILD";

/// A key of `writer`. Neighbours in order belong to different writers.
fn key(writer: u64, index: u64) -> Vec<u8> {
    let number = index * WRITERS + writer;
    if index.is_multiple_of(3) { long(number) } else { short(number) }
}

/// A value that shows whether it is whole: a number, then bytes that follow from it and the key.
fn value(key: &[u8], number: u64) -> Vec<u8> {
    let bytes = match number % 5 {
        0 => 200 + number % 1500,
        1 => number % 8,
        _ => number % 100,
    };
    let mix = key.iter().fold(7, |mix: u64, &byte| mix.rotate_left(7) ^ u64::from(byte));
    let mut stream = Random::new(number ^ mix);
    let mut value = number.to_le_bytes().to_vec();
    value.extend((0..bytes).map(|_| stream.draw() as u8));
    value
}

fn is_whole(found_key: &[u8], found: &[u8]) -> bool {
    let number = found.first_chunk().map(|number| u64::from_le_bytes(*number));
    number.is_some_and(|number| value(found_key, number) == found)
}

/// One writer: its records, and the source of its operations.
struct Writer {
    number: u64,
    records: Records,
    random: Random,
    done: u64,
}

impl Writer {
    fn all(records: &Records, round_seed: u64) -> Vec<Self> {
        let owner = |number: u64| {
            let own = |index| {
                let key = key(number, index);
                records.get(&key).map(|value| (key, value.clone()))
            };
            let records = (0..KEYS).filter_map(own).collect();
            Self { number, records, random: Random::new(round_seed ^ number << 32), done: 0 }
        };
        (0..WRITERS).map(owner).collect()
    }

    /// The next operation, applied to the model, and its expected answer.
    fn step(&mut self) -> (Op, Answer) {
        let key = key(self.number, self.random.below(KEYS));
        let new = value(&key, self.random.draw() >> 1);
        // Phases of growth and of shrinking, so that leaves split and merge.
        let shrinking = self.done / 400 % 2 == 1;
        let op = match (self.random.below(10), self.records.get(&key)) {
            (0..3, _) if !shrinking => Op::Insert(key, new),
            (0..5, _) if shrinking => Op::Remove(key),
            (3 | 4, _) => Op::Upsert(key, new),
            (5 | 6, _) => Op::Update(key, new),
            (7 | 8, Some(found)) => Op::Exchange(key, found.clone(), new),
            (9, _) => Op::Remove(key),
            _ => Op::Insert(key, new),
        };
        let answer = op.apply(&mut self.records);
        self.done += 1;
        (op, answer)
    }
}

/// The child: writes until it is killed.
#[test]
fn child() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let (round_seed, path) = order.split_once(' ').expect("a seed and a path");
    let round_seed = round_seed.parse().expect("a seed");
    // If a thread panics, the others must not continue.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("the child panics: {panic}");
        std::process::abort();
    }));
    let fixture = Fixture::<Process>::reopen(&PathBuf::from(path));
    let writers = Writer::all(&dump(&fixture.index), round_seed);
    std::thread::scope(|scope| {
        for mut writer in writers {
            let tree = &fixture.index;
            scope.spawn(move || {
                let mut reads = Random::new(round_seed ^ !writer.number);
                loop {
                    let (op, answer) = writer.step();
                    assert_eq!(op.run(tree), answer, "{op:?}");
                    let acknowledgement = writer.number << 56 | writer.done;
                    let mut pipe = std::io::stdout().lock();
                    pipe.write_all(&acknowledgement.to_le_bytes()).expect("the parent listens");
                    pipe.flush().expect("the parent listens");
                    drop(pipe);
                    let other = key(reads.below(WRITERS), reads.below(KEYS));
                    let found = tree.get(&other).expect("reads");
                    assert!(found.is_none_or(|found| is_whole(&other, &found)), "half a record");
                }
            });
        }
    });
}

/// Runs a child for `life` and kills it; returns how many operations each writer acknowledged.
fn run_and_kill(path: &Path, round_seed: u64, life: Duration) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "kill::child", "--nocapture", "--quiet"])
        .env(CHILD, format!("{round_seed} {}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut pipe = child.stdout.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        pipe.read_to_end(&mut received).expect("a pipe");
        received
    });
    std::thread::sleep(life);
    child.kill().expect("kills");
    let status = child.wait().expect("waits");
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert_eq!(signal, Some(9), "the child ended by itself: {status}");
    let received = reader.join().expect("reads");
    let mut acknowledged = vec![0; WRITERS as usize];
    // The test runner's own line comes first; then whole acknowledgements.
    let start = received.windows(14).position(|at| at == b"running 1 test");
    let binary = start.map_or(&[][..], |start| received.get(start + 15..).unwrap_or_default());
    for word in binary.as_chunks::<8>().0 {
        let word = u64::from_le_bytes(*word);
        let (writer, done) = ((word >> 56) as usize, word & (u64::MAX >> 8));
        assert_eq!(acknowledged[writer] + 1, done, "an acknowledgement is missing");
        acknowledged[writer] = done;
    }
    acknowledged
}

/// Compares the keys of a writer with its last acknowledged operation, or the next one.
fn verify_writer(mut writer: Writer, acknowledged: u64, found: &Records, label: &str) {
    let own = Writer::all(found, 0).swap_remove(writer.number as usize).records;
    while writer.done < acknowledged {
        writer.step();
    }
    if own == writer.records {
        return;
    }
    let before = writer.records.clone();
    let (next, _) = writer.step();
    if own == writer.records {
        return;
    }
    let differs = |key: &&Vec<u8>| own.get(*key) != before.get(*key);
    let keys: Vec<_> = own.keys().chain(before.keys()).filter(differs).collect();
    panic!(
        "{label}, writer {}: after {acknowledged} acknowledged operations and perhaps {next:?}, \
         these keys differ: {keys:?}",
        writer.number
    );
}

fn recover(path: &Path) -> (Fixture<Process>, Duration) {
    let start = Instant::now();
    let fixture = Fixture::<Process>::reopen(path);
    fixture.index.get(&key(0, 0)).expect("reads");
    (fixture, start.elapsed())
}

#[test]
fn kill_9_of_four_writers_loses_nothing_acknowledged() {
    let kills: u64 =
        std::env::var("PANDO_KILLS").map_or(20, |text| text.parse().expect("a number"));
    let seed = seed("kill");
    let mut random = Random::new(seed);
    let (_folder, path) = folder_and_pool();
    drop(Fixture::<Process>::create(&path, MAX_BYTES, small_nodes()));
    let mut records = Records::new();
    let mut times = Vec::new();
    let (mut operations, mut silent) = (0, 0);
    let (mut forward, mut back) = (0, 0);
    for round in 0..kills {
        let label = format!("PANDO_SEED={seed}, kill {round}");
        let round_seed = random.draw();
        let acknowledged =
            run_and_kill(&path, round_seed, Duration::from_micros(random.below(LIFE_US)));
        let (fixture, time) = recover(&path);
        check(&fixture);
        let found = dump(&fixture.index);
        for (key, value) in &found {
            assert!(is_whole(key, value), "{label}: half a record at {key:?}");
        }
        let writers = Writer::all(&records, round_seed);
        let owned: usize = Writer::all(&found, 0).iter().map(|writer| writer.records.len()).sum();
        assert_eq!(owned, found.len(), "{label}: a key that nobody wrote");
        for (writer, &acknowledged) in writers.into_iter().zip(&acknowledged) {
            verify_writer(writer, acknowledged, &found, &label);
        }
        let done: u64 = acknowledged.iter().sum();
        operations += done;
        silent += u64::from(done == 0);
        if !fixture.pool.was_clean() {
            times.push(time);
        }
        let recovered = fixture.index.catalog.recovered();
        forward += recovered.rolled_forward;
        back += recovered.rolled_back;
        records = found;
        if round % 50 == 49 {
            println!("after {} kills: {:?}", round + 1, fixture.pool.usage().expect("a slot"));
        }
        if random.below(2) == 0 {
            abandon(fixture);
        }
    }
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let slowest = times.last().copied().unwrap_or_default();
    let size_bytes = path.metadata().expect("the pool").len();
    println!(
        "{kills} kills, {operations} acknowledged operations, {silent} kills before the first; \
         {forward} operations completed and {back} undone by recovery; opening to first get after \
         a kill: median {median:?}, slowest {slowest:?}; pool of {size_bytes} bytes, {} records",
        records.len()
    );
}
