//! A short run of each exploration. The option `--minutes` makes longer runs.

#[path = "lab/project.rs"]
mod project;

use std::collections::HashSet;
use std::process::Command;
use std::time::Duration;

use pando_crashlab::mutate::sites;

fn run(args: &[&str]) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_pando-crashlab")).args(args).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}\n{said}\n{complained}");
    println!("{said}");
}

#[test]
fn a_slice_of_every_crash() {
    // With a part of the cuts and images of each run, a trial has time for several runs.
    run(&["explore", "--minutes", "0.8", "--jobs", "2", "--cuts", "48", "--images", "4"]);
}

#[test]
fn a_slice_of_every_schedule() {
    run(&["schedule", "--minutes", "0.4", "--jobs", "1"]);
}

#[test]
fn a_borrowed_descriptor_is_on_record() {
    // Also if the owner of the descriptor has not made its slot known to recovery yet.
    let trial = ["--index", "pmwcas", "--scenario", "borrowed-descriptors", "--domain", "adr"];
    run(&[&["explore", "--minutes", "0.15"][..], &trial[..]].concat());
}

#[test]
fn a_span_is_claimed_before_it_is_on_record() {
    let trial = ["--index", "allocator", "--scenario", "stale-claim", "--domain", "adr"];
    run(&[&["explore", "--minutes", "0.1"][..], &trial[..]].concat());
}

#[test]
fn a_missing_write_back_is_seen() {
    let trials = ["pmwcas/2-words-2-threads/adr".to_owned(), "allocator/slabs/adr".to_owned()];
    let verdicts = sites::all(&trials, 1, Duration::from_secs(10), 1).expect("trials that run");
    let seen: HashSet<&str> = verdicts.seen_files().collect();
    for file in ["crates/core/pmwcas/src/direct.rs", "crates/core/pmem/src/alloc/exchange.rs"] {
        assert!(seen.contains(file), "{file}\n{}", verdicts.table());
    }
}

#[test]
fn a_trial_that_is_not_there_is_refused_with_the_names_of_those_that_are() {
    let output = Command::new(env!("CARGO_BIN_EXE_pando-crashlab"))
        .args(["explore", "--index", "btree"])
        .output()
        .expect("runs");
    assert!(!output.status.success());
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(complained.contains("bztree/leaf-split/adr"), "{complained}");
}
