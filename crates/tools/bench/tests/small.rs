//! Everything runs small, so that it keeps working. Counts are asserted, never times.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use std::time::Duration;

use common::mutant::{Mutant, Mutation, system};
use common::small_plan;
use indicatif::ProgressBar;
use pando_bench::compare;
use pando_bench::error::{Error, Fault};
use pando_bench::keys::key_of;
use pando_bench::operation_mix::OperationMix;
use pando_bench::plan::{NamedSystem, Plan};
use pando_bench::program::Program;
use pando_bench::record::Shape;
use pando_bench::recovery::{self, RecoveryPlan};
use pando_bench::systems::index::Indexed;
use pando_bench::systems::ours::{OURS, ours_called};
use pando_bench::systems::{self, BuildOptions, SystemEntry};
use pando_bench::{costs, report, space, verify};
use pando_index::conformance::Reference;

/// The systems that can be built by name and take part in every mix, and the reference index behind
/// the adapter. Those that wait for a medium are left to the test of the peers.
fn all_systems(shape: Shape) -> Vec<NamedSystem> {
    let options = BuildOptions::default();
    let takes = |entry: &&SystemEntry| {
        let is_able = systems::is_built(entry.name) && entry.can_descend;
        let waits = [":sync", ":synced", ":pipelined"].iter().any(|end| entry.name.ends_with(end));
        is_able && !waits && (entry.limits)(shape).is_ok()
    };
    let named = systems::SYSTEMS.iter().filter(takes).map(|entry| NamedSystem {
        name: entry.name.to_owned(),
        build: systems::builder(entry.name.parse().unwrap(), shape, &options),
    });
    named.chain([system("reference", || Indexed::new(Reference::default()))]).collect()
}

#[test]
fn every_mix_runs_on_every_system() {
    let plan = small_plan();
    let systems = all_systems(Shape::EIGHT);
    let progress = ProgressBar::hidden();
    let rows = compare::run(&plan, &systems, &progress).unwrap();
    assert_eq!(rows.len(), systems.len() * plan.mixes.len() * plan.threads.len());
    assert_eq!(Some(progress.position()), progress.length(), "a tick for every slice");
    for row in &rows {
        assert!(row.operations > 0 && row.latency_samples > 0, "{row:?}");
        assert_eq!(row.scaling.is_some(), row.threads == 3);
        assert!(row.ratio_min <= row.ratio_to_first && row.ratio_to_first <= row.ratio_max);
        match row.operation_mix.as_str() {
            "load" => assert_eq!(row.operations, plan.records),
            "insert" | "delete" | "ycsb-d" | "ycsb-e" => assert_eq!(row.operations, plan.batch),
            _ => {}
        }
        if row.system == systems[0].name {
            assert_eq!(row.ratio_to_first, 1.0);
        }
    }
    let table = report::table(&rows);
    assert!(systems.iter().all(|system| table.contains(&system.name)), "{table}");
}

/// Those that cannot go backwards, in all mixes that do not ask for it.
#[test]
fn systems_that_only_ascend_run_the_other_mixes() {
    let options = BuildOptions::default();
    let names =
        ["congee", "bf-tree", "bf-tree:log"].into_iter().filter(|name| systems::is_built(name));
    let systems: Vec<NamedSystem> = names
        .map(|name| NamedSystem {
            name: name.to_owned(),
            build: systems::builder(name.parse().unwrap(), Shape::EIGHT, &options),
        })
        .collect();
    if systems.is_empty() {
        return;
    }
    let mut plan = small_plan();
    plan.mixes.retain(|mix| !mix.is_descending());
    assert!(plan.mixes.len() > 6);
    let rows = compare::run(&plan, &systems, &ProgressBar::hidden()).unwrap();
    assert_eq!(rows.len(), systems.len() * plan.mixes.len() * plan.threads.len());
    assert!(rows.iter().all(|row| row.operations > 0));
}

#[test]
fn every_choice_of_keys_runs() {
    for keys in ["zipfian:0.5", "zipfian:1.2", "monotonic", "latest"] {
        let plan = Plan { keys: Some(keys.parse().unwrap()), ..small_plan() };
        let systems = [system("reference", || Indexed::new(Reference::default()))];
        let rows = compare::run(&plan, &systems, &ProgressBar::hidden()).unwrap();
        assert!(rows.iter().all(|row| row.keys == keys), "{keys}");
    }
}

#[test]
fn records_of_any_size_run_on_every_system_that_takes_them() {
    for (key_bytes, value_bytes) in [(128, 8), (20, 44)] {
        let shape = Shape { key_bytes, value_bytes };
        let plan = Plan { shape, threads: vec![2], ..small_plan() };
        let rows = compare::run(&plan, &all_systems(shape), &ProgressBar::hidden()).unwrap();
        assert!(rows.iter().any(|row| row.system == "bztree"));
    }
}

#[test]
fn an_open_loop_keeps_to_its_rate() {
    let rate = Some(2_000.0);
    let plan = Plan { mixes: vec![OperationMix::READ], rate_ops_per_second: rate, ..small_plan() };
    let rows = compare::run(&plan, &all_systems(Shape::EIGHT), &ProgressBar::hidden()).unwrap();
    for row in rows {
        // Every operation is timed, and so is the wait of those that were due and not begun.
        assert_eq!(row.latency_samples, row.operations + row.due_not_begun);
    }
}

#[test]
fn a_system_that_is_too_slow_for_a_rate_is_charged_for_what_it_did_not_begin() {
    // Due are 250 in a slice of 50 ms; each takes 2 ms.
    let rate = Some(5_000.0);
    let time = Duration::from_millis(50);
    let mixes = vec![OperationMix::READ, OperationMix::INSERT];
    let plan = Plan {
        mixes,
        records: 200,
        threads: vec![1],
        time,
        rate_ops_per_second: rate,
        ..small_plan()
    };
    let slow = system("slow", || Mutant::new(Mutation::SleepInGet(Duration::from_millis(2))));
    let rows = compare::run(&plan, &[slow], &ProgressBar::hidden()).unwrap();
    let [read, insert] = &rows[..] else { panic!("{rows:?}") };
    assert!(read.due_not_begun > read.operations, "{read:?}");
    assert_eq!(read.latency_samples, read.operations + read.due_not_begun);
    let waited = format!("{} operations were due and not begun", read.due_not_begun);
    assert!(report::table(&rows).contains(&waited), "{}", report::table(&rows));
    // All of a counted slice are done.
    assert_eq!((insert.due_not_begun, insert.latency_samples), (0, plan.batch));
}

#[test]
fn json_lines_carry_every_field() {
    let plan = Plan { mixes: vec![OperationMix::READ], threads: vec![1], ..small_plan() };
    let systems = all_systems(Shape::EIGHT);
    let rows = compare::run(&plan, &systems, &ProgressBar::hidden()).unwrap();
    let text = report::json_lines(&rows);
    assert_eq!(text.lines().count(), systems.len());
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        for field in "version system operation_mix keys records threads cpu_model kernel pool_file_system durability ops_per_second p50_ns p99_ns p999_ns max_ns \
                      bytes_per_record file_bytes_per_record due_not_begun ratio_to_first ratio_min ratio_max rounds"
            .split_whitespace()
        {
            assert!(row.get(field).is_some(), "{field} in {line}");
        }
        // Pools in files are known by their names.
        let system = row["system"].as_str().unwrap();
        let is_ours =
            system.starts_with("bztree") || ["crossbeam-skiplist", "reference"].contains(&system);
        if is_ours {
            assert_eq!(row["file_bytes_per_record"].is_null(), !system.contains(':'), "{system}");
        }
    }
}

/// What the benchmark finds in a mutant.
fn caught(mutation: Mutation, mixes: &[OperationMix]) -> Fault {
    let plan = Plan { mixes: mixes.to_vec(), ..small_plan() };
    let systems = [
        system("right", || Indexed::new(Reference::default())),
        system("mutant", move || Mutant::new(mutation)),
    ];
    match compare::run(&plan, &systems, &ProgressBar::hidden()) {
        Err(Error::Fault { system, fault, .. }) => {
            assert_eq!(system, "mutant");
            fault
        }
        other => panic!("{mutation:?} was not caught: {other:?}"),
    }
}

#[test]
fn a_lost_insert_is_caught_and_named() {
    // The load is checked by its count; a later insert too.
    let early = caught(Mutation::ForgetInsert(7), &[OperationMix::READ]);
    assert!(matches!(early, Fault::Lost { number: 0..2_000, .. }), "{early}");
    let late = caught(Mutation::ForgetInsert(2_050), &[OperationMix::INSERT]);
    assert!(matches!(late, Fault::Lost { number: 2_000..2_120, .. }), "{late}");
}

#[test]
fn a_lost_delete_is_caught_and_named() {
    let fault = caught(Mutation::ForgetDelete(50), &[OperationMix::DELETE]);
    let key = key_of(50);
    assert!(matches!(fault, Fault::Invented { key: found, .. } if found == key), "{fault}");
}

#[test]
fn an_invented_key_is_caught_and_named() {
    let fault = caught(Mutation::InventKey(50), &[OperationMix::READ]);
    let is_next = |key: u64| (0..2_000).any(|number| key_of(number).wrapping_add(1) == key);
    assert!(matches!(fault, Fault::Invented { key, .. } if is_next(key)), "{fault}");
}

#[test]
fn a_wrong_value_is_caught_and_named() {
    let fault = caught(Mutation::WrongValue(500), &[OperationMix::READ]);
    assert!(matches!(fault, Fault::WrongValue { .. }), "{fault}");
}

#[test]
fn a_gap_in_a_scan_is_caught() {
    let short = caught(Mutation::SkipInScan(20), &[OperationMix::SCAN10]);
    assert!(matches!(short, Fault::ShortScan { .. }), "{short}");
}

#[test]
fn a_panic_is_caught() {
    let fault = caught(Mutation::PanicInInsert(7), &[OperationMix::READ]);
    assert!(matches!(fault, Fault::Panicked), "{fault}");
}

#[test]
fn the_final_scan_names_the_key() {
    use pando_bench::keys::value_of;
    use pando_bench::record::Records;
    use pando_bench::subject::Subject;
    use pando_bench::system::System;
    use pando_bench::systems::btreemap::LockedIntegers;

    let (system, records) = (LockedIntegers::default(), Records::default());
    for key in (0..100).filter(|&number| number != 42).map(key_of) {
        system.insert_new(&key.to_be_bytes(), &value_of(key, 0).to_le_bytes()).unwrap();
    }
    let lost = verify::all(system.any(), records, &(0..100)).unwrap_err();
    assert!(matches!(lost, Fault::Lost { key, .. } if key == key_of(42)), "{lost}");
    assert!(lost.to_string().contains("record 42"), "{lost}");
    let invented = verify::all(system.any(), records, &(0..99)).unwrap_err();
    assert!(matches!(invented, Fault::Invented { key, .. } if key == key_of(99)), "{invented}");
}

/// One key in a million is dropped, and the count is a lie: only reads can find out. The record is
/// near the end of the loaded ones, and the million is not reached, so that the test is small;
/// by hand: `PANDO_BENCH_PLANT_RECORDS=2000000`.
#[test]
fn a_key_in_a_million_is_missed_and_named() {
    let records = std::env::var("PANDO_BENCH_PLANT_RECORDS")
        .map_or(20_000, |text| text.parse::<u64>().unwrap());
    let victim = records.min(1_000_000) - 7;
    let plan = Plan { records, mixes: vec![OperationMix::READ], threads: vec![2], ..small_plan() };
    let system = system("mutant", move || Mutant::new(Mutation::ForgetOneInAMillion(victim)));
    let found = compare::run(&plan, &[system], &ProgressBar::hidden());
    let Err(Error::Fault { system, fault, .. }) = found else { panic!("it was not caught") };
    let Fault::Lost { number, .. } = fault else { panic!("not a lost key: {fault}") };
    assert_eq!((system.as_str(), number % 1_000_000), ("mutant", victim));
    assert!(fault.to_string().contains(&format!("record {number}")), "{fault}");
}

#[test]
fn impossible_plans_are_refused() {
    let systems = all_systems(Shape::EIGHT);
    let plan = Plan { mixes: vec![OperationMix::DELETE], batch: 1_000, ..small_plan() };
    let refused = compare::run(&plan, &systems, &ProgressBar::hidden());
    assert!(matches!(refused, Err(Error::TooManyDeletes { .. })));
}

#[test]
fn costs_are_counted() {
    let costs = costs::count("bztree", &Reference::default(), 500, 100).unwrap();
    assert_eq!(costs.len(), 4);
    // The reference writes into no pool.
    assert!(costs.iter().all(|cost| cost.flushes.mean == 0.0 && cost.lines_read.mean == 0.0));
    let table = costs::figures(&costs).text();
    assert!(table.contains("15") && table.contains("insert"), "{table}");
}

/// One line for the record, one for the slot that makes it count; a delete writes no record.
#[test]
fn what_a_tree_writes_back_for_an_operation() {
    let ours = ours_called("bztree").unwrap();
    let index = ours.counting(&BuildOptions::default()).unwrap();
    let costs = costs::count(ours.name, &*index, 2_000, 2_000).unwrap();
    let medians =
        |cost: &costs::Cost| (cost.flushes.median, cost.fences.median, cost.lines_written.median);
    let found: Vec<_> =
        costs.iter().map(|cost| (cost.published.operation, medians(cost))).collect();
    let expected = [("get", 0.0), ("update", 2.0), ("insert", 2.0), ("delete", 1.0)];
    assert_eq!(found, expected.map(|(operation, each)| (operation, (each, each, each))));
    for cost in costs {
        let published = cost.published.flushes.unwrap_or(0) as f64;
        assert!(cost.flushes.mean <= published && cost.lines_read.mean > 0.0, "{cost:?}");
    }
}

#[test]
fn a_killed_pool_comes_back() {
    for ours in OURS {
        let plan = RecoveryPlan {
            ours,
            records: 2_000,
            cycles: 3,
            program: Program {
                executable: env!("CARGO_BIN_EXE_pando-bench").into(),
                prefix: Vec::new(),
            },
            build: BuildOptions::default(),
            seed: 1,
        };
        let all = recovery::measure(&plan, &ProgressBar::hidden()).unwrap();
        assert_eq!(all.len(), 3);
        assert!(
            all.iter().all(|reopened| 0 < reopened.open_ns && reopened.open_ns < reopened.total_ns)
        );
    }
}

#[test]
fn space_is_a_table_of_systems_and_sizes() {
    let systems = all_systems(Shape::EIGHT);
    let rows =
        space::measure(&small_plan(), &[1_000, 2_000], &systems, &ProgressBar::hidden()).unwrap();
    assert_eq!(rows.len(), 2 * systems.len());
    let table = space::figures(&rows).text();
    assert!(table.contains("reference") && table.contains("2k"), "{table}");
}
