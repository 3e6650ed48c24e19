//! The N-th allocation fails, for every N, in every operation and structure modification.
//!
//! These requests can fail: a reservation of a block, room in the file as the pool grows, a
//! descriptor. (The activation of a reserved block cannot.) A test refuses either one request, so
//! that later requests of the same operation succeed, or all from the N-th on. The operation then
//! either took place or returned an error with the reason. It changed nothing or everything, and
//! leaked nothing; deletes are never refused. A second attempt succeeds. The same holds after the
//! pool is closed, or left as by a crash.
//!
//! `cargo test -p pando-bztree --test tree allocation_failure:: -- --nocapture` prints the
//! failures.

use std::cell::Cell;
use std::path::PathBuf;

use crate::common::scenario::{self, Answer, Op, Scenario, inline, long, pointed, short};
use crate::common::watchdog::seed;
use crate::common::{Fixture, Records, abandon, check, dump, folder, folder_and_pool, small_nodes};
use pando_bztree::{BzTree, BzTrees};
use pando_index::Error;
use pando_index::random::Random;
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::{Guard, Process, Reservation, block_bytes};
use pando_tree::maps::slots::MapEntry;

const MAX_BYTES: u64 = 16 << 20;
/// Which requests are refused: one, or all from that one on.
const COUNTS: [u64; 2] = [1, u64::MAX];

const NO_DESCRIPTOR: &str = "no descriptor";

/// Sets which requests are refused.
fn named(resource: Resource, granted: u64, count: u64) -> String {
    let all = if count == 1 { "" } else { " and all after it" };
    format!("{resource:?} {granted} refused{all}")
}

fn assert_clear(error: &Error, label: &str) {
    let Error::Storage(cause) = error else { panic!("{label}: {error}") };
    let message = cause.to_string();
    let known = ["the pool is full", "the file system is full", "all descriptors"];
    assert!(known.iter().any(|begin| message.starts_with(begin)), "{label}: {message}");
}

/// Reserves all room that the pool has without growth, so that the next request must grow it.
fn take_all_room<'guard, 'pool>(
    guard: &'guard Guard<'pool, Process>,
) -> Vec<Reservation<'guard, 'pool, Process>> {
    let mut taken = Vec::new();
    let sizes = std::iter::successors(Some(block_bytes(1)), |size| Some(block_bytes(size + 1)));
    for bytes in sizes.take_while(|&bytes| bytes <= 64 << 10) {
        let (blocks, _) = refuse(Resource::FileRoom, 0, u64::MAX, || {
            std::iter::from_fn(|| guard.reserve(bytes).ok()).collect::<Vec<_>>()
        });
        taken.extend(blocks);
    }
    taken
}

/// A scenario, the records of its tree before and after, and its prepared pool.
struct Trial<'scenario> {
    scenario: &'scenario Scenario,
    before: Records,
    after: Records,
    answer: Answer,
    folder: tempfile::TempDir,
    failures: u64,
}

impl<'scenario> Trial<'scenario> {
    fn of(scenario: &'scenario Scenario) -> Self {
        let folder = folder();
        let path = folder.path().join("prepared");
        let fixture = Fixture::<Process>::create(&path, MAX_BYTES, scenario.options);
        scenario.prepare(&fixture.index);
        check(&fixture);
        let (before, after, answer) = scenario.expected();
        Self { scenario, before, after, answer, folder, failures: 0 }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("pool")
    }

    fn fresh(&self) -> Fixture<Process> {
        let (prepared, path) = (self.folder.path().join("prepared"), self.path());
        std::fs::copy(prepared, &path).expect("room in the temporary folder");
        Fixture::reopen(&path)
    }

    /// Checks that the outcome is all or nothing, and the tree is consistent.
    fn judge(&mut self, fixture: &Fixture<Process>, outcome: Result<Answer, Error>, label: &str) {
        let expected = match outcome {
            Ok(answer) => {
                assert_eq!(answer, self.answer, "{label}");
                &self.after
            }
            Err(error) => {
                assert_clear(&error, label);
                self.failures += 1;
                &self.before
            }
        };
        check(fixture);
        assert!(dump(&fixture.index) == *expected, "{label}: neither all nor nothing");
    }

    /// Checks that the operation succeeds now, if it has not succeeded yet.
    fn finish(&self, fixture: &Fixture<Process>, label: &str) {
        if dump(&fixture.index) == self.before {
            assert_eq!(self.scenario.act.run(&fixture.index), self.answer, "{label}");
        }
        check(fixture);
        assert!(dump(&fixture.index) == self.after, "{label}: after a second attempt");
    }

    /// Runs the operation by `attempt` on a fresh tree, then finishes it at once, after a clean
    /// close, or after a crash.
    fn run(
        &mut self,
        label: &str,
        attempt: impl Fn(&Fixture<Process>, &Op) -> Result<Answer, Error>,
    ) {
        for ending in ["at once", "after a close", "after a crash"] {
            let label = format!("{}, {label}, {ending}", self.scenario.name);
            let fixture = self.fresh();
            let outcome = attempt(&fixture, &self.scenario.act);
            let is_delete = matches!(self.scenario.act, Op::Remove(_));
            if let (true, Err(error)) = (is_delete && !label.contains(NO_DESCRIPTOR), &outcome) {
                panic!("{label}: a delete was refused: {error}");
            }
            self.judge(&fixture, outcome, &label);
            let fixture = match ending {
                "at once" => fixture,
                "after a close" => {
                    drop(fixture);
                    Fixture::reopen(&self.path())
                }
                _ => {
                    abandon(fixture);
                    Fixture::reopen(&self.path())
                }
            };
            self.finish(&fixture, &label);
        }
    }

    /// Refuses every request for `resource` in turn. With `full`, the pool must grow even for the
    /// first block.
    fn refuse_each(&mut self, resource: Resource, full: bool) {
        for count in COUNTS {
            for granted in 0.. {
                let was_refused = Cell::new(false);
                self.run(&named(resource, granted, count), |fixture, act| {
                    let guard = fixture.pool.pin().expect("a slot");
                    let _room = full.then(|| take_all_room(&guard));
                    let (outcome, refused) =
                        refuse(resource, granted, count, || act.try_run(&fixture.index));
                    was_refused.set(refused);
                    outcome
                });
                if !was_refused.get() {
                    break;
                }
            }
        }
    }

    /// Runs the operation while this thread holds every descriptor.
    fn refuse_descriptors(&mut self) {
        self.run(NO_DESCRIPTOR, |fixture, act| {
            let guard = fixture.pool.pin().expect("a slot");
            let catalog = &fixture.index.catalog;
            let held: Vec<_> = std::iter::from_fn(|| catalog.allocate(&guard).ok()).collect();
            assert!(!held.is_empty());
            act.try_run(&fixture.index)
        });
    }
}

fn fail_all(test: &str, scenarios: &[Scenario]) {
    for scenario in scenarios {
        let mut trial = Trial::of(scenario);
        trial.refuse_each(Resource::Block, false);
        trial.refuse_each(Resource::FileRoom, true);
        trial.refuse_descriptors();
        println!("{test}: {:36} {:3} failures", scenario.name, trial.failures);
    }
}

pando_index::tests! {
    fn every_allocation_of_every_operation_fails =>
        fail_all("operations", &scenario::operations());
    fn every_allocation_of_consolidation_leaf_split_and_leaf_merge_fails =>
        fail_all("leaf modifications", &scenario::leaf_modifications());
    fn every_allocation_in_range_leaves_fails => fail_all("ranges", &scenario::ranges());
    fn every_allocation_of_inner_split_inner_merge_and_root_collapse_fails =>
        fail_all("inner modifications", &scenario::inner_modifications());
    fn every_allocation_with_giant_records_and_empty_leaves_fails =>
        fail_all("edges", &scenario::edges());
}

/// Many operations, each with one of its requests refused, or all from one on.
#[test]
fn a_long_run_with_refusals_loses_nothing() {
    let seed = seed("a long run with refusals");
    for (round, key) in [short as fn(u64) -> Vec<u8>, long].into_iter().enumerate() {
        let (_folder, path) = folder_and_pool();
        let mut fixture = Fixture::<Process>::create(&path, MAX_BYTES, small_nodes());
        let mut random = Random::new(seed ^ round as u64);
        let mut records = Records::new();
        let mut failures = 0;
        for turn in 0..20_000 {
            let key = key(random.below(2_000));
            let value = if random.below(3) == 0 { pointed(turn as u8) } else { inline(turn as u8) };
            // First the tree grows, then it shrinks.
            let removes = 1 + turn / 5_000;
            let op = match random.below(8) {
                draw if draw < removes => Op::Remove(key),
                draw if draw < 5 => Op::Insert(key, value),
                _ => Op::Upsert(key, value),
            };
            let (granted, count) = (random.below(4), COUNTS[random.below(2) as usize]);
            let attempt = || op.try_run(&fixture.index);
            match refuse(Resource::Block, granted, count, attempt).0 {
                Ok(answer) => assert_eq!(answer, op.apply(&mut records), "turn {turn}"),
                Err(error) => {
                    assert!(!matches!(op, Op::Remove(_)), "turn {turn}: {error}");
                    assert_clear(&error, "a long run");
                    failures += 1;
                }
            }
            if turn % 1_000 == 0 {
                check(&fixture);
                assert!(dump(&fixture.index) == records, "turn {turn}");
                match random.below(2) {
                    0 => abandon(fixture),
                    _ => drop(fixture),
                }
                fixture = Fixture::reopen(&path);
            }
        }
        check(&fixture);
        assert!(dump(&fixture.index) == records);
        println!("{failures} failures, {} records at last", records.len());
    }
}

/// Applies `change` to the catalog of a pool with a tree in it, with each request refused in turn;
/// then without refusals, if it failed. `is_done` says after each attempt whether the change is
/// there.
fn fail_catalog_change(
    prepare: impl Fn(&Fixture<Process>),
    change: impl Fn(&Fixture<Process>) -> Result<(), Box<dyn std::error::Error>>,
    is_done: impl Fn(&Fixture<Process>) -> bool,
) {
    let (_folder, path) = folder_and_pool();
    let both = [Resource::Block, Resource::FileRoom];
    let mut failures = 0;
    for (resource, count) in both.into_iter().flat_map(|one| COUNTS.map(|count| (one, count))) {
        for granted in 0.. {
            let label = named(resource, granted, count);
            let fixture = Fixture::<Process>::create(&path, MAX_BYTES, small_nodes());
            for op in scenario::inserts(50, long, pointed) {
                op.run(&fixture.index);
            }
            let bystander = dump(&fixture.index);
            prepare(&fixture);
            let guard = fixture.pool.pin().expect("a slot");
            let room = (resource == Resource::FileRoom).then(|| take_all_room(&guard));
            let (outcome, was_refused) = refuse(resource, granted, count, || change(&fixture));
            drop(room);
            drop(guard);
            assert!(was_refused || outcome.is_ok(), "{label}: {outcome:?}");
            check(&fixture);
            assert_eq!(is_done(&fixture), outcome.is_ok(), "{label}: {outcome:?}");
            abandon(fixture);
            let fixture = Fixture::<Process>::reopen(&path);
            check(&fixture);
            assert_eq!(is_done(&fixture), outcome.is_ok(), "{label}: {outcome:?}");
            if outcome.is_err() {
                change(&fixture).unwrap_or_else(|error| panic!("{label}, again: {error}"));
            }
            check(&fixture);
            assert!(is_done(&fixture), "{label}");
            assert!(dump(&fixture.index) == bystander, "{label}: the other map's records");
            drop(fixture);
            std::fs::remove_file(&path).expect("removes the pool");
            failures += u64::from(outcome.is_err());
            if !was_refused {
                break;
            }
        }
    }
    println!("{failures} failures");
}

const OTHER: &str = "other";

fn find_other(fixture: &Fixture<Process>) -> Option<(MapEntry, BzTree<Process>)> {
    let guard = fixture.pool.pin().expect("a slot");
    let catalog = &fixture.index.catalog;
    let entry = catalog.find_map(&guard, OTHER).ok()??;
    let tree = catalog.open_entry::<BzTrees>(&entry).expect("an undamaged map");
    Some((entry, tree))
}

fn create_other(fixture: &Fixture<Process>) -> Result<(), Box<dyn std::error::Error>> {
    fixture.index.catalog.find_or_create_index::<BzTrees>(OTHER, small_nodes())?;
    Ok(())
}

#[test]
fn every_allocation_of_creating_a_map_fails() {
    fail_catalog_change(|_| {}, create_other, |fixture| find_other(fixture).is_some());
}

#[test]
fn every_allocation_of_dropping_a_map_fails() {
    let fill = |fixture: &Fixture<Process>| {
        create_other(fixture).expect("creates");
        let (_, tree) = find_other(fixture).expect("the map");
        for op in scenario::inserts(60, long, pointed) {
            op.run(&tree);
        }
    };
    let drop_other = |fixture: &Fixture<Process>| {
        let (entry, _) = find_other(fixture).expect("the map");
        Ok(fixture.index.catalog.drop_index::<BzTrees>(&entry)?)
    };
    fail_catalog_change(fill, drop_other, |fixture| find_other(fixture).is_none());
}
