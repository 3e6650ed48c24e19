//! The papers' experiments, traces and emulated media run small, so that they do not rot; counts
//! and the shape of what comes out are asserted, never times.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;
#[path = "../../bench/tests/common/mutant.rs"]
mod mutant;

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::papers_command;
use indicatif::ProgressBar;
use mutant::{Mutant, Mutation, system};
use pando_bench::plan::NamedSystem;
use pando_bench::record::Shape;
use pando_bench::systems::{self, BuildOptions};
use pando_papers::arrays::array::{Array, Method};
use pando_papers::arrays::slice::{Checked, Slice, Subject as _};
use pando_papers::arrays::{self, report};
use pando_papers::outcome::{Line, Outcome};
use pando_papers::traces::game::{self, Game};
use pando_papers::traces::runner::{self, Fault};
use pando_papers::traces::{Trace, command};
use pando_papers::{self as papers, EXPERIMENTS, Error, Settings, sizes};
use pando_pmem::Process;
use pando_pmem::counting::Counting;
use pando_pmem::emulated::Delays;
use pando_pmwcas::Algorithm;

fn settings() -> Settings {
    Settings {
        records: Some(2_000),
        threads: Some(vec![1, 2]),
        time: Some(Duration::from_millis(5)),
        rounds: Some(2),
        seed: 1,
        build: BuildOptions::default(),
        prefix: Vec::new(),
    }
}

/// A medium that is a little slower; all tests of this process have the same.
fn slow_build() -> BuildOptions {
    let delays = Delays { write_back_ns: 20, read_line_ns: 20 };
    BuildOptions { delays, ..BuildOptions::default() }
}

fn run(name: &str) -> Outcome {
    papers::run(name, &settings(), &ProgressBar::hidden()).unwrap().1
}

#[test]
fn every_experiment_has_a_name_of_its_own() {
    let mut names: Vec<_> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
    assert_eq!(
        names.len(),
        36,
        "8 of BzTree, 2 of PMwCAS, 6 of wB+-Tree, 10 of NBTree, 5 of Bw-tree and 5 of our own"
    );
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 36);
    for experiment in EXPERIMENTS {
        assert!(experiment.name.starts_with(&format!("{}:", experiment.paper.short)));
        assert!(!experiment.differs.is_empty(), "{}", experiment.name);
    }
}

/// Units of what takes time; all others are of counts.
const TIMED_UNITS: [&str; 2] = ["ns", "req/s"];

/// What a figure in this unit can be, on whatever machine, of however few records.
fn plausible(unit: &str) -> RangeInclusive<f64> {
    match unit {
        // A ratio of two systems, of which neither is a thousand times the other.
        "x" => 1e-3..=1e3,
        // Also a cost, which may be negative: the difference of two systems within that ratio.
        "%" => -1e5..=1e5,
        // From a tick of a clock to a second.
        "ns" => 0.1..=1e9,
        "req/s" => 1.0..=1e9,
        // At least a key and a value of four bytes each; at most a chunk for a record.
        "bytes a record" => 8.0..=65_536.0,
        // Counts for an operation, or of records.
        _ => 0.0..=1e9,
    }
}

#[test]
fn every_experiment_that_is_built_runs_and_shows_both_figures() {
    for experiment in EXPERIMENTS {
        // These have tests of their own: the profile needs `perf`, and the other one runs the
        // program again, which this test is not.
        if matches!(experiment.name, "bztree:fig9" | "bwtree:recovery") {
            continue;
        }
        let outcome = run(experiment.name);
        assert!(outcome.lines.iter().any(|line| line.ours.is_some()), "{}", experiment.name);
        assert!(!outcome.conditions.is_empty(), "{}", experiment.name);
        for line in &outcome.lines {
            assert!(line.paper.is_some() || line.ours.is_some(), "{line:?}");
            if let Some(ours) = &line.ours {
                assert!(ours.min <= ours.median && ours.median <= ours.max, "{line:?}");
                let plausible = plausible(line.unit);
                assert!(plausible.contains(&ours.min), "{}: {line:?}", experiment.name);
                assert!(plausible.contains(&ours.max), "{}: {line:?}", experiment.name);
            }
        }
        // What is measured in two rounds is not twice the same; what is written down is.
        let measured = |line: &&Line| line.ours.as_ref().is_some_and(|ours| ours.min < ours.max);
        let is_timed = outcome.lines.iter().any(|line| TIMED_UNITS.contains(&line.unit));
        let is_measured = outcome.lines.iter().filter(measured).count() > 0;
        // The time of figure 11 is that of a model, from what was counted.
        let is_computed = experiment.name == "wbtree:fig11";
        assert!(
            is_measured || is_computed || !is_timed,
            "{}: {:?}",
            experiment.name,
            outcome.lines
        );
        // Sizes of arrays and records that a paper's figure is of are larger than a test's.
        // The store's cache and its cleaning are not in the paper at all.
        const WITHOUT: [&str; 5] =
            ["pmwcas:fig5", "bztree:table2", "bwtree:options", "bwtree:cache", "bwtree:clean"];
        if !WITHOUT.contains(&experiment.name) {
            assert!(outcome.lines.iter().any(|line| line.paper.is_some()), "{}", experiment.name);
        }
        let text = papers::report::text(experiment, &outcome);
        assert!(text.contains(experiment.title) && text.contains("differs"), "{text}");
        let mut json = String::new();
        papers::report::json(experiment, &outcome, &mut json);
        assert_eq!(json.lines().count(), outcome.lines.len());
        for line in json.lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(row["experiment"], experiment.name);
            for field in ["what", "unit", "paper", "ours", "conditions"] {
                assert!(row.get(field).is_some(), "{field} in {line}");
            }
        }
    }
}

/// The figures of the lines that end so, by the text before.
fn figures_of<'run>(outcome: &'run Outcome, ending: &str) -> Vec<(&'run str, f64)> {
    let of = |line: &'run Line| Some((line.what.strip_suffix(ending)?, line.ours.as_ref()?.median));
    outcome.lines.iter().filter_map(of).collect()
}

/// With more data than the least memory of a store, a smaller cache misses more.
#[test]
fn a_smaller_cache_of_the_store_misses_more() {
    let settings = Settings {
        records: Some(250_000),
        time: Some(Duration::from_millis(100)),
        rounds: Some(1),
        ..settings()
    };
    let outcome = papers::run("bwtree:cache", &settings, &ProgressBar::hidden()).unwrap().1;
    let misses = figures_of(&outcome, ": misses");
    let uniform: Vec<_> = misses.iter().filter(|(what, _)| what.contains("uniform")).collect();
    assert!(uniform.len() >= 2, "{misses:?}");
    assert!(uniform.windows(2).all(|pair| pair[0].1 < pair[1].1), "{misses:?}");
    let reads = figures_of(&outcome, ": disk reads");
    assert!(reads.iter().any(|(_, reads)| *reads > 0.0), "{reads:?}");
}

#[test]
fn deltas_write_less_than_whole_pages() {
    let settings = Settings { records: Some(150_000), rounds: Some(1), ..settings() };
    let outcome = papers::run("bwtree:flush", &settings, &ProgressBar::hidden()).unwrap().1;
    let ratios = figures_of(&outcome, ": bytes of pages, ratio");
    assert!(ratios.len() == 4 && ratios.iter().all(|(_, ratio)| *ratio < 0.9), "{ratios:?}");
    let reads = figures_of(&outcome, ": disk reads");
    let [(_, deltas), (_, whole)] = reads[..] else { panic!("not two stores: {reads:?}") };
    assert!(deltas > whole && whole == 1.0, "{reads:?}");
}

#[test]
fn cleaning_moves_more_if_more_is_live() {
    let settings = Settings { records: Some(20_000), rounds: Some(1), ..settings() };
    let outcome = papers::run("bwtree:clean", &settings, &ProgressBar::hidden()).unwrap().1;
    let moved = figures_of(&outcome, ": moved");
    assert_eq!(moved.len(), 15, "{moved:?}");
    for of_pattern in moved.chunks(5) {
        assert!(of_pattern[0].1 < of_pattern[4].1, "{of_pattern:?}");
    }
}

#[test]
fn a_store_is_killed_and_opened_again_after_logs_of_several_lengths() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("rows.jsonl");
    let (succeeded, out, error) = papers_command(&[
        "bwtree:recovery",
        "--records",
        "2k",
        "--rounds",
        "1",
        "--json",
        json.to_str().unwrap(),
    ]);
    assert!(succeeded, "{error}");
    assert!(out.contains("8k records, 4k updates: to the first get"), "{out}");
    let rows = std::fs::read_to_string(json).unwrap();
    let mut logs = Vec::new();
    for row in rows.lines() {
        let row: serde_json::Value = serde_json::from_str(row).unwrap();
        assert_eq!(row["experiment"], "bwtree:recovery");
        if row["unit"] == "MiB" {
            logs.push(row["ours"]["median"].as_f64().unwrap());
        }
    }
    assert_eq!(logs.len(), 10, "two stores, and five logs: {logs:?}");
    assert!(logs[2..].chunks(2).all(|both| both[0] > 0.0 && both[1] > 0.0), "{logs:?}");
}

#[test]
fn experiments_are_listed_and_unknown_ones_named() {
    let (succeeded, _, error) = papers_command(&["nbtree:fig99"]);
    assert!(!succeeded && error.contains("nbtree:fig99"), "{error}");
    let (succeeded, out, _) = papers_command(&[]);
    assert!(succeeded);
    assert!(EXPERIMENTS.iter().all(|experiment| out.contains(experiment.name)), "{out}");
}

#[test]
fn delays_put_the_durable_system_on_an_emulated_medium_or_are_refused() {
    let settings = Settings { build: slow_build(), ..settings() };
    for experiment in EXPERIMENTS {
        let run = || papers::run(experiment.name, &settings, &ProgressBar::hidden());
        if experiment.takes_delays {
            let outcome = run().unwrap().1;
            let is_slow = outcome.lines.iter().any(|line| line.what.contains("slow"));
            let is_adr = outcome.lines.iter().any(|line| line.what.contains("adr"));
            assert!(is_slow && !is_adr, "{:?}", outcome.lines);
            assert!(outcome.lines.iter().any(|line| line.what.contains("cost of persistence")
                || line.what.contains("cost of durability")));
        } else {
            let error = run().unwrap_err();
            assert!(error.to_string().contains("pmwcas:fig5"), "{error}");
        }
    }
    for words in [
        "bztree:fig4 --write-back-ns 5",
        "trace game --players 10 --systems bztree --read-line-ns 5",
        "pmwcas --domains adr --read-line-ns 5",
    ] {
        let (succeeded, out, error) = papers_command(&words.split(' ').collect::<Vec<_>>());
        assert!(!succeeded && out.is_empty(), "{words}: {out}");
        assert!(error.contains("slow"), "{words}: {error}");
    }
    let (succeeded, out, error) = papers_command(&[
        "trace",
        "game",
        "--players",
        "50",
        "--operations",
        "500",
        "--systems",
        "bztree:slow,bztree:adr",
        "--write-back-ns",
        "30",
    ]);
    assert!(succeeded && out.contains("bztree:slow"), "{error}");
    assert!(error.contains("emulated media 30 ns"), "{error}");
}

#[test]
fn a_pmwcas_takes_what_its_protocol_says() {
    let build = BuildOptions::default();
    let counted = |algorithm, method| {
        let array = Checked::new(Array::<Counting>::new(1 << 16, algorithm, &build).unwrap());
        let cost = array.count(method, 1, 200, 7).unwrap();
        array.check().unwrap();
        cost
    };
    for words in [1, 2, 3, 4] {
        // A swap to claim the descriptor, one to decide, one to clear the status' dirty bit; for
        // each word two to install, one for the value, one to clear the dirty bit.
        let paper = counted(Algorithm::Rdcss, Method::Pmwcas(words));
        assert_eq!(paper.swaps, 3.0 + 4.0 * words as f64, "{words} words");
        assert!(paper.flushes >= paper.lines_written && paper.fences >= 4.0, "{paper:?}");
        // One to claim, one to decide; for each word one to install, one for the value.
        let direct = counted(Algorithm::Direct, Method::Pmwcas(words));
        assert_eq!(direct.swaps, 2.0 + 2.0 * words as f64, "{words} words");
        assert_eq!(direct.fences, 2.0, "{direct:?}");
        assert!(direct.flushes <= paper.flushes);
    }
    let cas = counted(Algorithm::Direct, Method::SingleCas);
    assert_eq!((cas.swaps, cas.flushes, cas.fences, cas.lines_written), (2.0, 1.0, 1.0, 1.0));
}

#[test]
fn an_array_run_has_a_row_for_each_cell() {
    let plan = arrays::Plan {
        arrays: vec![8, 1_000],
        methods: vec![Method::SingleCas, Method::Pmwcas(4)],
        threads: vec![1, 3],
        domains: arrays::plan::DOMAINS.to_vec(),
        rounds: 2,
        time: Duration::from_millis(3),
        counted: 20,
        seed: 1,
        build: slow_build(),
    };
    let progress = ProgressBar::hidden();
    let rows = arrays::run(&plan, &progress).unwrap();
    assert_eq!(rows.len(), 2 * 2 * 2 * plan.domains.len());
    assert_eq!(Some(progress.position()), progress.length(), "a tick for every slice");
    for row in &rows {
        assert!(row.attempts > 0 && row.success_rate > 0.0 && row.success_rate <= 1.0, "{row:?}");
        assert!(row.ratio_min <= row.ratio_to_first && row.ratio_to_first <= row.ratio_max);
        let by_transactions = row.domain == "process";
        assert_eq!(row.cost.is_none(), by_transactions, "{row:?}");
        assert!(row.cost.is_none_or(|cost| cost.swaps >= 1.0));
        if row.threads == 1 {
            assert_eq!(row.success_rate, 1.0, "nobody else was there: {row:?}");
        }
    }
    assert!(report::table(&rows).contains("PMwCAS of 4 words, array of 1k words"));
    let error = arrays::run(&arrays::Plan { arrays: vec![3], ..plan }, &progress).unwrap_err();
    assert!(error.to_string().contains("at least 4"), "{error}");
}

#[test]
fn a_word_that_was_changed_behind_pmwcas_is_noticed() {
    let build = BuildOptions::default();
    let array = Checked::new(Array::<Process>::new(100, Algorithm::Direct, &build).unwrap());
    let slice =
        Slice { method: Method::Pmwcas(2), threads: 2, time: Duration::from_millis(2), seed: 1 };
    assert!(array.slice(&slice).unwrap().successes > 0);
    array.check().unwrap();
    let word = array.array().word(50);
    word.store(word.load(Ordering::Acquire) + 1, Ordering::Release);
    assert!(matches!(array.check(), Err(Error::WrongSum { words: 100, .. })));
}

#[test]
fn operations_have_the_pmwcas_sizes_that_are_watched() {
    let kinds = sizes::count(3_000, &BuildOptions::default()).unwrap();
    let plain = |name: &str| {
        let kind = kinds.iter().find(|kind| kind.name == name).unwrap();
        assert_eq!(kind.sequences.values().sum::<u64>(), 3_000, "{name}");
        kind.plain().unwrap().0.to_vec()
    };
    for name in ["insert", "delete", "update, inlined payload"] {
        assert_eq!(plain(name), [0; 0], "{name}: one word decides, without a PMwCAS");
    }
    // The pointer, and that the leaf is as it was.
    assert_eq!(plain("update, record pointer"), [2]);
    let insert = &kinds[0];
    assert!(insert.sequences.len() > 1, "some inserts split: {insert:?}");
}

fn systems(names: &[&str], trace: &Trace) -> Vec<NamedSystem> {
    let shape = Shape { key_bytes: trace.key_bytes(), value_bytes: trace.value_bytes() };
    let system = |name: &&str| NamedSystem {
        name: (*name).to_owned(),
        build: systems::builder(name.parse().unwrap(), shape, &BuildOptions::default()),
    };
    names.iter().map(system).collect()
}

#[test]
fn a_trace_runs_on_every_system_that_takes_its_shape() {
    let game = game::trace(&Game { players: 300, operations: 3_000, seed: 1 });
    let shape = Shape { key_bytes: game.key_bytes(), value_bytes: game.value_bytes() };
    let takes = |entry: &&systems::SystemEntry| (entry.limits)(shape).is_ok();
    let names: Vec<_> = systems::SYSTEMS.iter().filter(takes).map(|entry| entry.name).collect();
    assert!(names.contains(&"bztree:slow"));
    let systems: Vec<_> = systems(&names, &game)
        .into_iter()
        // A peer that is not compiled in.
        .filter(|system| (system.build)().is_ok())
        .collect();
    let plan = runner::Plan { threads: 3, parts: 4 };
    let progress = ProgressBar::hidden();
    let rows = runner::run(&game, &systems, &plan, &progress).unwrap();
    assert_eq!(Some(progress.position()), progress.length());
    assert_eq!(rows.len(), systems.len());
    for row in &rows {
        assert_eq!((row.records, row.operations, row.threads, row.parts), (300, 3_000, 3, 4));
        assert!(row.ratio_min <= row.ratio_to_first && row.ratio_to_first <= row.ratio_max);
    }
    assert!(command::table(&rows).contains("bztree"));
}

#[test]
fn deletes_of_a_trace_are_checked_too_and_a_lost_record_is_named() {
    let mut trace = Trace::new("deletes", 8, 8);
    for key in 0..50_u64 {
        let key = trace.add_key(&key.to_be_bytes()).unwrap();
        trace.put(key);
        trace.put(key);
        if key.is_multiple_of(2) {
            trace.delete(key);
            trace.get(key);
        }
    }
    let system = (systems(&["bztree"], &trace)[0].build)().unwrap();
    runner::run_steps(system.any(), &trace, trace.steps(), 2).unwrap();
    runner::check(system.any(), &trace).unwrap();
    // One more round of the same inserts meets keys that are there.
    let again = runner::run_steps(system.any(), &trace, trace.steps(), 1).unwrap_err();
    assert!(matches!(again, Fault::Invented { .. }), "{again}");
    let empty = (systems(&["btreemap"], &trace)[0].build)().unwrap();
    let lost = runner::check(empty.any(), &trace).unwrap_err();
    assert!(matches!(&lost, Fault::Lost { key, .. } if !key.is_empty()), "{lost}");
}

#[test]
fn a_record_that_a_system_invents_during_a_trace_is_named() {
    let mut trace = Trace::new("inserts", 8, 8);
    for key in (0..500_u64).step_by(10) {
        let key = trace.add_key(&key.to_be_bytes()).unwrap();
        trace.put(key);
    }
    let system = system("mutant", || Mutant::new(Mutation::InventKey(7)));
    let plan = runner::Plan { threads: 1, parts: 2 };
    let found = runner::run(&trace, &[system], &plan, &ProgressBar::hidden()).unwrap_err();
    let runner::Error::Fault { fault: Fault::Invented { key, .. }, .. } = &found else {
        panic!("not an invented key: {found}")
    };
    // Seven inserts came before the one of 70.
    assert_eq!(key, &format!("{:016x}", 71), "{found}");
}

#[test]
fn the_dedup_trace_is_made_of_files_and_written_as_text() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), vec![3; 10_000]).unwrap();
    let (path, text) = (folder.path().to_str().unwrap(), folder.path().join("text"));
    let common = ["trace", "dedup", "--chunk-bytes", "256", "--files", path];
    let (succeeded, out, error) = papers_command(&[&common[..], &["--parts", "2"]].concat());
    assert!(succeeded && out.contains("keys of 20 and values of 44 bytes"), "{out}{error}");
    let (succeeded, _, error) =
        papers_command(&[&common[..], &["--write", text.to_str().unwrap()]].concat());
    assert!(succeeded, "{error}");
    let text = std::fs::read_to_string(text).unwrap();
    assert!(text.lines().all(|line| line.starts_with("get ") || line.starts_with("insert ")));
    let (succeeded, _, error) =
        papers_command(&["trace", "dedup", "--files", "/nonexistent/folder"]);
    assert!(!succeeded && error.contains("/nonexistent/folder"), "{error}");
}
