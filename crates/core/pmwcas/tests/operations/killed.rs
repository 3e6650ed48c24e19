//! A process is killed while its threads change words: every operation took place or did not. On
//! processors with hardware transactions, most operations are transactions, which need no recovery.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use pando_index::random::Random;
use pando_pmem::layout::CATALOG_OFF;
use pando_pmem::{CreateOptions, OpenPool, Pool, Process};
use pando_pmwcas::Pmwcas;

/// The variable with the pool's file, set for the process that is killed.
const CHILD: &str = "PANDO_KILLED_POOL";
const WORDS: u64 = 16;
const EACH: u64 = 1_000_000;
const KILLS: u64 = 12;

fn word(index: u64) -> u64 {
    CATALOG_OFF + index * 8
}

fn open(path: &Path) -> Pmwcas<Process> {
    Pmwcas::open(Pool::open(path, &OpenPool::default()).unwrap()).unwrap()
}

/// Moves one from word to word, among three, without end.
fn transfer(pmwcas: &Pmwcas<Process>, seed: u64) {
    let mut random = Random::new(seed);
    loop {
        let first = random.below(WORDS);
        let places = [first, (first + 1 + random.below(4)) % WORDS, (first + 7) % WORDS];
        let guard = pmwcas.pool().pin().unwrap();
        let found = places.map(|at| pmwcas.read(&guard, word(at)));
        let mut operation = pmwcas.allocate(&guard).unwrap();
        operation.add_word(word(places[0]), found[0], found[0] - 2).unwrap();
        operation.add_word(word(places[1]), found[1], found[1] + 1).unwrap();
        operation.add_word(word(places[2]), found[2], found[2] + 1).unwrap();
        operation.execute();
    }
}

#[test]
fn a_kill_leaves_every_operation_whole() {
    if let Some(path) = std::env::var_os(CHILD) {
        let pmwcas = &open(Path::new(&path));
        println!("open");
        std::thread::scope(|scope| {
            (0..4).for_each(|seed| drop(scope.spawn(move || transfer(pmwcas, seed))))
        });
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = folder.path().join("pool");
    let options = CreateOptions { max_bytes: 1 << 20, initial_bytes: 0 };
    let pmwcas = Pmwcas::<Process>::open(Pool::create(&path, &options).unwrap()).unwrap();
    for at in 0..WORDS {
        let guard = pmwcas.pool().pin().unwrap();
        pmwcas.compare_exchange(&guard, word(at), 0, EACH).unwrap();
    }
    drop(pmwcas);
    let mut moved = 0;
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::a_kill_leaves_every_operation_whole", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(said.map_while(Result::ok).any(|line| line.contains("open")));
        std::thread::sleep(Duration::from_millis(3 + kill));
        child.kill().unwrap();
        child.wait().unwrap();
        let pmwcas = open(&path);
        assert!(!pmwcas.pool().was_clean());
        let guard = pmwcas.pool().pin().unwrap();
        let words: Vec<u64> = (0..WORDS).map(|at| pmwcas.read(&guard, word(at))).collect();
        assert_eq!(words.iter().sum::<u64>(), WORDS * EACH, "after kill {kill}: {words:?}");
        moved += words.iter().filter(|&&value| value != EACH).count();
        drop(guard);
    }
    assert!(moved > 0, "nothing was ever changed");
}
