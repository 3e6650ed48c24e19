//! A crash before every write of every operation and structure modification (traps 1, 4, 5, 6).
//!
//! For each scenario a pool is prepared. Then, for n = 0, 1, 2, ... until the operation completes:
//! a copy of the pool is opened, the operation is killed before its n-th write, and the pool is
//! opened again. The tree must be consistent, with no block leaked or missing, and have exactly its
//! records from before or from after the operation. Then it is used. Recovery itself is killed
//! before each of its writes too.
//!
//! `cargo test -p pando-bztree --test tree crash:: -- --nocapture` prints the cut points.

use std::collections::BTreeSet;
use std::path::Path;

use pando_tree::maps::KnownKind;

use crate::common::scenario::{self, Answer, Op, Scenario};
use crate::common::watchdog::seed;
use crate::common::{Fixture, NAME, Records, abandon, check, dump, folder};
use pando_bztree::BzTrees;
use pando_index::random::Random;
use pando_pmem::Domain;
use pando_pmem::testing::{CutShort, count_writes, kill_after};
use pando_tree::testing::dies_after;

/// Small, so that the chunk table and the caches of the process are small too.
const MAX_BYTES: u64 = 8 << 20;
/// For one in so many cuts of an operation, recovery is cut at every write too.
const RECOVERY_EVERY: u64 = 8;
/// One in so many is followed by a second crash, in the operation's second attempt.
const AGAIN_EVERY: u64 = 3;
/// One in so many scenarios is run with a dead process.
const PART: u64 = 6;

/// Like `Adr`: with dirty bits in words that may not be durable.
type WithWriteBack = CutShort<true>;

/// The number of cuts of a scenario.
#[derive(Default)]
struct Cuts {
    operation: u64,
    recovery: u64,
    again: u64,
}

struct Crash<'scenario> {
    scenario: &'scenario Scenario,
    before: Records,
    after: Records,
    answer: Answer,
}

impl<'scenario> Crash<'scenario> {
    fn of(scenario: &'scenario Scenario) -> Self {
        let (before, after, answer) = scenario.expected();
        Self { scenario, before, after, answer }
    }

    /// Checks that the tree is consistent and has its records from before or after.
    fn verify<D: Domain>(&self, fixture: &Fixture<D>, label: &str) {
        check(fixture);
        let found = dump(&fixture.index);
        let name = self.scenario.name;
        assert!(
            found == self.before || found == self.after,
            "{name}, {label}: neither all nor nothing: {} records before, {} after, {} found",
            self.before.len(),
            self.after.len(),
            found.len()
        );
    }

    /// Checks that the tree works: the operation can be finished, and neighbours are inserted and
    /// removed.
    fn use_it<D: Domain>(&self, fixture: &Fixture<D>, label: &str) {
        let name = self.scenario.name;
        if self.answer == Answer::Done && dump(&fixture.index) == self.before {
            assert_eq!(self.scenario.act.run(&fixture.index), Answer::Done, "{name}, {label}");
        }
        assert!(dump(&fixture.index) == self.after, "{name}, {label}: after a second attempt");
        let near = |key: &Vec<u8>| [key.as_slice(), b"~"].concat();
        let sample = self.after.keys().step_by(self.after.len() / 12 + 1);
        let acted = self.scenario.act.key().to_vec();
        let keys: BTreeSet<_> = sample.chain([&acted]).map(near).collect();
        for (index, key) in keys.iter().enumerate() {
            let value = if index % 2 == 0 { scenario::inline(9) } else { scenario::pointed(9) };
            assert_eq!(Op::Insert(key.clone(), value).run(&fixture.index), Answer::Done);
        }
        assert_eq!(dump(&fixture.index).len(), self.after.len() + keys.len(), "{name}, {label}");
        for key in &keys {
            assert_eq!(
                Op::Remove(key.clone()).run(&fixture.index),
                Answer::Done,
                "{name}, {label}"
            );
        }
        assert!(dump(&fixture.index) == self.after, "{name}, {label}: after use");
        check(fixture);
    }

    /// Runs the operation on the pool at `path` and kills it after `writes`; returns whether it
    /// finished.
    fn cut<D: Domain>(&self, path: &Path, writes: u64) -> bool {
        let fixture = Fixture::<D>::reopen(path);
        let ended = kill_after(writes, || self.scenario.act.run(&fixture.index));
        abandon(fixture);
        match ended {
            Some(answer) => {
                assert_eq!(answer, self.answer, "{}: the operation's answer", self.scenario.name);
                true
            }
            None => false,
        }
    }

    /// Opens copies of the pool at `crashed`, each killed before another write, and then one that
    /// is killed repeatedly, where each attempt continues after the last one. Returns the number of
    /// writes of recovery.
    fn cut_recovery<D: Domain>(&self, crashed: &Path, copy: &Path) -> u64 {
        let mut writes = 0;
        loop {
            duplicate(crashed, copy);
            let opened = kill_after(writes, || Fixture::<D>::reopen(copy));
            let finished = opened.is_some();
            if let Some(fixture) = opened {
                abandon(fixture);
            }
            self.verify(
                &Fixture::<D>::reopen(copy),
                &format!("recovery killed before write {writes}"),
            );
            if finished {
                break;
            }
            writes += 1;
        }
        duplicate(crashed, copy);
        for budget in 0..=writes {
            if let Some(fixture) = kill_after(budget, || Fixture::<D>::reopen(copy)) {
                self.verify(&fixture, "recovery killed again and again");
                self.use_it(&fixture, "recovery killed again and again");
                return writes;
            }
        }
        panic!(
            "{}: a recovery that was cut short takes more than {writes} writes",
            self.scenario.name
        )
    }
}

fn duplicate(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("room in the temporary folder");
}

fn explore<D: Domain>(scenario: &Scenario, random: &mut Random) -> Cuts {
    let crash = Crash::of(scenario);
    let folder = folder();
    let prepared = folder.path().join("prepared");
    let fixture = Fixture::<D>::create(&prepared, MAX_BYTES, scenario.options);
    scenario.prepare(&fixture.index);
    check(&fixture);
    drop(fixture);
    let (path, copy) = (folder.path().join("crashed"), folder.path().join("copy"));
    let mut cuts = Cuts::default();
    for writes in 0.. {
        duplicate(&prepared, &path);
        let finished = crash.cut::<D>(&path, writes);
        let label = format!("killed before write {writes}");
        if writes % RECOVERY_EVERY == 0 {
            cuts.recovery += crash.cut_recovery::<D>(&path, &copy);
        }
        if writes % AGAIN_EVERY == 1 && crash.answer == Answer::Done && !finished {
            duplicate(&path, &copy);
            let fixture = Fixture::<D>::reopen(&copy);
            let done = dump(&fixture.index) == crash.after;
            let limit = random.below(writes + 20);
            if !done {
                let _ = kill_after(limit, || scenario.act.run(&fixture.index));
                cuts.again += 1;
            }
            abandon(fixture);
            let fixture = Fixture::<D>::reopen(&copy);
            let label = format!("{label}, then before write {limit}");
            crash.verify(&fixture, &label);
            crash.use_it(&fixture, &label);
        }
        let fixture = Fixture::<D>::reopen(&path);
        crash.verify(&fixture, &label);
        if finished {
            assert!(dump(&fixture.index) == crash.after, "{}: finished, and lost", scenario.name);
        }
        crash.use_it(&fixture, &label);
        if finished {
            break;
        }
        cuts.operation += 1;
    }
    cuts
}

fn explore_all<D: Domain>(test: &str, scenarios: &[Scenario]) {
    let mut random = Random::new(seed(test));
    let mut total = Cuts::default();
    for scenario in scenarios {
        let cuts = explore::<D>(scenario, &mut random);
        println!(
            "{:36} {:5} cuts, {:5} of recovery, {:4} second crashes",
            scenario.name, cuts.operation, cuts.recovery, cuts.again
        );
        total.operation += cuts.operation;
        total.recovery += cuts.recovery;
        total.again += cuts.again;
    }
    println!(
        "{test}: {} scenarios, {} cuts, {} of recovery, {} second crashes",
        scenarios.len(),
        total.operation,
        total.recovery,
        total.again
    );
}

fn in_both_domains(test: &str, scenarios: fn() -> Vec<Scenario>) {
    explore_all::<CutShort>(test, &scenarios());
    explore_all::<WithWriteBack>(&format!("{test}, with write-back"), &scenarios());
}

/// For about one in twelve writes of the operation: a process that shares the pool dies before it,
/// and another one goes on.
fn explore_dead_process(scenario: &Scenario, random: &mut Random) -> u64 {
    let crash = Crash::of(scenario);
    let folder = folder();
    let prepared = folder.path().join("prepared");
    let fixture = Fixture::<CutShort>::create(&prepared, MAX_BYTES, scenario.options);
    scenario.prepare(&fixture.index);
    drop(fixture);
    let path = folder.path().join("shared");
    let (mut writes, mut deaths) = (random.below(12), 0);
    loop {
        duplicate(&prepared, &path);
        let live = Fixture::<CutShort>::share(&path);
        let (act, answer) = (scenario.act.clone(), crash.answer);
        let died = dies_after::<CutShort, BzTrees>(&path, writes, move |tree| {
            assert_eq!(act.run(tree), answer);
        });
        let label = format!("a process died before write {writes}");
        let found = dump(&live.index);
        live.recover_dead();
        assert!(dump(&live.index) == found, "{}, {label}: changed later", scenario.name);
        crash.verify(&live, &label);
        assert!(died || found == crash.after, "{}: done, and lost", scenario.name);
        crash.use_it(&live, &label);
        drop(live);
        check(&Fixture::<CutShort>::reopen(&path));
        if !died {
            return deaths;
        }
        deaths += 1;
        writes += 1 + random.below(24);
    }
}

#[test]
fn a_process_dies_at_a_write_of_every_operation_and_modification() {
    let mut random = Random::new(seed("dead processes"));
    let scenarios = [
        scenario::operations(),
        scenario::leaf_modifications(),
        scenario::inner_modifications(),
        scenario::runs(),
        scenario::edges(),
    ]
    .concat();
    // The thread of each dead process stays, with its mappings. The system allows 65,530 of them,
    // and the tests of stopped threads need most. So a run takes some scenarios; each has a seed of
    // its own.
    let some = scenarios.iter().skip(random.below(PART) as usize).step_by(PART as usize);
    let deaths: Vec<_> = some.map(|scenario| explore_dead_process(scenario, &mut random)).collect();
    println!("{} scenarios, {} deaths", deaths.len(), deaths.iter().sum::<u64>());
}

pando_index::tests! {
    fn a_crash_at_every_write_of_every_operation =>
        in_both_domains("operations", scenario::operations);
    fn a_crash_at_every_write_of_consolidation_leaf_split_and_leaf_merge =>
        in_both_domains("leaf modifications", scenario::leaf_modifications);
    fn a_crash_at_every_write_of_inner_split_inner_merge_and_root_collapse =>
        in_both_domains("inner modifications", scenario::inner_modifications);
    fn a_crash_at_every_write_in_range_leaves => in_both_domains("ranges", scenario::ranges);
    fn a_crash_at_every_write_of_a_run_of_records => in_both_domains("runs", scenario::runs);
    fn a_crash_at_every_write_with_giant_records_and_empty_leaves =>
        in_both_domains("edges", scenario::edges);
}

/// Trap 6: a crash while the map is created leaves the whole map or none.
#[test]
fn a_crash_at_every_write_of_creating_a_tree() {
    let folder = folder();
    let (empty, path) = (folder.path().join("empty"), folder.path().join("crashed"));
    let options = pando_pmem::CreateOptions { max_bytes: MAX_BYTES, initial_bytes: 0 };
    drop(pando_pmem::Pool::<CutShort>::create(&empty, &options).expect("a pool"));
    let mut cuts = 0;
    loop {
        duplicate(&empty, &path);
        let created = kill_after(cuts, || Fixture::<CutShort>::reopen(&path));
        let finished = created.is_some();
        if let Some(fixture) = created {
            abandon(fixture);
        }
        let fixture = Fixture::<CutShort>::reopen(&path);
        check(&fixture);
        assert_eq!(dump(&fixture.index), Records::new());
        assert_eq!(Op::Insert(b"key".into(), b"value".into()).run(&fixture.index), Answer::Done);
        check(&fixture);
        if finished {
            break;
        }
        cuts += 1;
    }
    println!("creating a tree: {cuts} cuts");
}

/// Continues with a map that was dropped when its thread was interrupted.
fn free_dropped(fixture: &Fixture<CutShort>) {
    let catalog = &fixture.index.catalog;
    let dropped = catalog.dropped_maps(&fixture.pool.pin().expect("a slot"));
    for entry in dropped {
        if entry.header.is_ok() {
            catalog.free_map(&KnownKind::of::<BzTrees>(), &entry, &|| false).expect("is freed");
        }
    }
    // Of a map with an erased header, the header block remains.
    catalog.free_dropped(&|| false).expect("is freed");
}

/// A crash while a tree is dropped leaves the map with some of its records, or no map.
#[test]
fn a_crash_at_every_write_of_dropping_a_tree() {
    let folder = folder();
    let (full, path) = (folder.path().join("full"), folder.path().join("crashed"));
    let fixture = Fixture::<CutShort>::create(&full, MAX_BYTES, crate::common::small_nodes());
    for op in scenario::inserts_then_removes(30, scenario::long, scenario::pointed, true) {
        if let Op::Insert(..) = op {
            op.run(&fixture.index);
        }
    }
    let before = dump(&fixture.index);
    drop(fixture);
    let mut cuts = 0;
    loop {
        duplicate(&full, &path);
        let fixture = Fixture::<CutShort>::reopen(&path);
        let dropped = kill_after(cuts, || {
            let guard = fixture.pool.pin().expect("a slot");
            let entry =
                fixture.index.catalog.find_map(&guard, NAME).expect("a catalog").expect("the map");
            fixture.index.catalog.drop_index::<BzTrees>(&entry).expect("drops");
        });
        abandon(fixture);
        // If the tree was dropped, it is created again.
        let fixture = Fixture::<CutShort>::reopen(&path);
        free_dropped(&fixture);
        check(&fixture);
        let left = dump(&fixture.index);
        assert!(left.iter().all(|(key, value)| before.get(key) == Some(value)));
        assert_eq!(Op::Upsert(b"key".into(), b"value".into()).run(&fixture.index), Answer::Done);
        check(&fixture);
        if dropped.is_some() {
            assert!(left.is_empty());
            break;
        }
        cuts += 1;
    }
    println!("dropping a tree: {cuts} cuts");
}

/// The harness itself: a kill after n writes leaves n writes.
#[test]
fn a_kill_comes_at_the_write_that_was_asked_for() {
    let scenario = &scenario::operations()[0];
    let fixture = crate::common::Fixture::<CutShort>::anonymous(scenario.options);
    scenario.prepare(&fixture.index);
    let (killed, writes) = count_writes(|| kill_after(3, || scenario.act.run(&fixture.index)));
    assert_eq!(killed, None);
    assert!(writes >= 4, "three writes, and the one that did not take place: {writes}");
}
