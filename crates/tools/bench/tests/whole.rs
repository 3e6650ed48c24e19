//! The parts of a run that are more than a comparison: the same operations on every system,
//! replays, limits of time, the page.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use common::mutant::{Mutant, Mutation, system};
use common::small_plan;
use indicatif::ProgressBar;
use pando_bench::compare;
use pando_bench::conditions::Conditions;
use pando_bench::error::Error;
use pando_bench::key_sampler::{KeyChoice, KeySampler};
use pando_bench::keys::value_of;
use pando_bench::operation_mix::{OperationMix, Work};
use pando_bench::page::{self, Section};
use pando_bench::plan::Plan;
use pando_bench::record::Records;
use pando_bench::replay;
use pando_bench::slice::Slice;
use pando_bench::subject;
use pando_bench::system::{Order, Refusal, Scan, System};
use pando_bench::systems::btreemap::LockedBytes;
use pando_bench::systems::{self, BuildOptions, Builder};

/// An operation, its key, and its value or limit.
type Asked = (&'static str, Vec<u8>, Vec<u8>);
/// What a system was asked, in order.
type Log = Mutex<Vec<Asked>>;

/// A right map that keeps a log.
struct Recorded {
    map: LockedBytes,
    log: Log,
}

impl Recorded {
    fn note(&self, what: &'static str, key: &[u8], value: &[u8]) {
        self.log.lock().unwrap().push((what, key.to_vec(), value.to_vec()));
    }
}

impl System for Recorded {
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        self.note("insert", key, value);
        self.map.insert_new(key, value)
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.note("upsert", key, value);
        self.map.upsert(key, value)
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        self.note("get", key, b"");
        self.map.get(key, visit)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        self.note("delete", key, b"");
        self.map.delete(key)
    }

    fn scan(&self, scan: Scan<'_>, visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        let what = if order == Order::Ascending { "scan" } else { "scan-reverse" };
        self.note(what, from, &limit.to_le_bytes());
        self.map.scan(scan, visit)
    }

    fn count(&self) -> Result<u64, Refusal> {
        self.map.count()
    }
}

/// What a system is asked in a slice of `mix` by one thread.
fn asked(mix: OperationMix, keys: KeyChoice) -> Vec<Asked> {
    let system = Recorded { map: LockedBytes::default(), log: Log::default() };
    let (records, live) = (Records::default(), 0..500);
    for key in live.clone().map(|number| records.key(number)) {
        let value = value_of(key, 0);
        assert!(system.map.insert_new(&key.to_be_bytes(), &value.to_le_bytes()).unwrap());
    }
    let target = match mix.work {
        Work::Load | Work::Insert | Work::ReadBatch | Work::UpdateBatch | Work::Blend(_) => {
            500..550
        }
        Work::Delete => 0..50,
    };
    let sampler = KeySampler::new(keys, 500);
    let slice = Slice {
        mix,
        threads: 1,
        records,
        live,
        target,
        time: Duration::from_millis(5),
        warm_up: Duration::ZERO,
        keys,
        sampler: &sampler,
        seed: 7,
        sample_every: 1,
        rate_ops_per_second: None,
    };
    let outcome = subject::run(&system, &slice).unwrap();
    let log = system.log.into_inner().unwrap();
    assert!(log.len() as u64 >= outcome.operations && outcome.operations > 0, "{mix}");
    log
}

#[test]
fn one_seed_gives_the_same_operations_on_every_system() {
    for &mix in OperationMix::ALL {
        for keys in [KeyChoice::Uniform, KeyChoice::Zipfian { theta: 1.1 }, KeyChoice::Latest] {
            let (left, right) = (asked(mix, keys), asked(mix, keys));
            // A timed slice ends at another operation on each system; a counted one does not.
            assert!(!mix.is_counted() || left.len() == right.len(), "{mix}");
            let different = left.iter().zip(&right).find(|(left, right)| left != right);
            assert_eq!(different, None, "{mix}, {keys} keys");
        }
    }
}

fn replayed(text: &str) -> Result<Vec<pando_bench::report::Row>, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("operations.txt");
    std::fs::write(&path, text).unwrap();
    let operations = replay::read(&path)?;
    let shape = replay::shape_of(&operations);
    let options = BuildOptions::default();
    let named = |name: &str| -> (String, Builder) {
        (name.to_owned(), systems::builder(name.parse().unwrap(), shape, &options))
    };
    let systems = ["bztree", "crossbeam-skiplist", "btreemap"].map(named);
    let conditions = Conditions::here(&options.pool_dir);
    replay::run(&operations, "operations", &systems, &conditions, &ProgressBar::hidden())
}

#[test]
fn a_record_that_a_system_invents_during_a_replay_is_named() {
    let text = b"insert aaaaaaaa 11111111\ninsert bbbbbbbb 22222222\nget aaaaaaaa\n";
    let operations = replay::parse::parse(text).unwrap();
    let build = || -> Builder { Box::new(|| Ok(Box::new(Mutant::new(Mutation::InventKey(1))))) };
    let systems = [("mutant".to_owned(), build())];
    let conditions = Conditions::here(Path::new("/dev/shm"));
    let found = replay::run(&operations, "text", &systems, &conditions, &ProgressBar::hidden());
    let found = found.unwrap_err().to_string();
    assert!(found.contains("mutant") && found.contains("invented key \"bbbbbbbc\""), "{found}");
}

#[test]
fn a_file_of_operations_is_answered_alike() {
    let text = "insert apple red\ninsert pear green\ninsert apple red\nget apple\nget plum\n\
                update pear yellow\nupdate plum blue\nscan a 10\nscan-reverse z 1\ndelete apple\n\
                delete apple\nscan a 1\nget pear\n";
    let rows = replayed(text).unwrap();
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row.operations == 13 && row.records == 1), "{rows:?}");
    let eight = "insert 12345678 abcdefgh\nget 12345678\nscan 00000000 5\n";
    assert_eq!(replayed(eight).unwrap()[0].key_bytes, 8);
    let error = replayed("get a\nput a b\n").unwrap_err().to_string();
    assert!(error.contains("line 2") && error.contains("insert, update"), "{error}");
    assert!(matches!(replayed("# nothing\n"), Err(Error::Line { .. })));
}

#[test]
fn a_limit_of_time_leaves_out_rounds_but_not_the_first() {
    let plan = Plan {
        mixes: vec![OperationMix::READ, OperationMix::LOAD],
        threads: vec![1],
        rounds: 50,
        time_limit: Some(Duration::from_nanos(1)),
        ..small_plan()
    };
    let systems = [system("map", LockedBytes::default)];
    let rows = compare::run(&plan, &systems, &ProgressBar::hidden()).unwrap();
    assert!(rows.iter().all(|row| row.rounds == 1), "{rows:?}");
}

#[test]
fn the_page_stands_alone_and_shows_everything() {
    let plan = Plan { mixes: vec![OperationMix::READ, OperationMix::INSERT], ..small_plan() };
    let names = ["bztree", "btreemap", "a <system>"];
    let systems = names.map(|name| system(name, LockedBytes::default));
    let rows = compare::run(&plan, &systems, &ProgressBar::hidden()).unwrap();
    let section = Section::Comparison { title: "In memory".to_owned(), rows };
    let page = page::page(&[section], &plan.conditions).unwrap();
    // For each mix: ratios, throughput by threads, latencies.
    assert_eq!(page.matches("<svg").count(), 6);
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert!(page.contains("a &lt;system&gt;") && !page.contains("<system>"));
    for part in ["BzTree, on anonymous memory", "nothing", &plan.conditions.kernel] {
        assert!(page.contains(part), "{part}");
    }
    let fetched = ["<script", "<link", "src=", "@import", "url("];
    assert!(fetched.iter().all(|tag| !page.contains(tag)));
}
