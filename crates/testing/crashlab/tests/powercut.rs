//! A short run of `powercut`: a cut in each mode, a cut of a store, and the refusal of a pool that
//! is not on persistent memory and has no log. Without a virtual machine the test is skipped with a
//! note. With `PANDO_REQUIRE` it fails.

use std::io::Write;
use std::process::Command;

fn cut(words: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pando-crashlab"));
    command.args(["powercut", "--cycles", "1", "--persistence"]).args(words).output().expect("runs")
}

#[test]
fn a_power_cut_in_each_mode_loses_nothing_acknowledged() {
    // The first one builds the machine, if there is none.
    let first = cut(&["cpu"]);
    let complained = String::from_utf8_lossy(&first.stderr);
    if complained.contains("cannot run: ") && std::env::var_os("PANDO_REQUIRE").is_none() {
        // Directly to standard error: the test harness hides the output of a test that passes.
        writeln!(std::io::stderr(), "note: no power was cut; {complained}").unwrap();
        return;
    }
    // A machine boots on one processor.
    let others: [&[&str]; 3] = [&["mem-ctrl"], &["disk"], &["disk", "--transactional", "--store"]];
    let others = others.map(|words| std::thread::spawn(move || cut(words)));
    let others = others.map(|other| other.join().expect("joins"));
    for output in [first].into_iter().chain(others) {
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}{complained}");
        assert_eq!(said.matches("power cuts").count(), 1, "{said}");
        println!("{said}");
    }
}

/// A store is on a disk, so its power cannot be cut in the other modes.
#[test]
fn a_store_in_another_mode_is_refused() {
    let output = cut(&["cpu", "--transactional", "--store"]);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(complained.contains("--persistence cpu with --store"), "{complained}");
}

/// Called by its name, the verb fails if there is no virtual machine.
#[test]
fn a_machine_that_cannot_be_had_is_a_failure() {
    // In its own folder the program would find the machine that an earlier run has built.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("target/debug/pando-crashlab");
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_pando-crashlab"), &program).unwrap();
    let output = Command::new(program).arg("powercut").env("PATH", folder.path()).output().unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(complained.contains("cannot run: there is no virtual machine: "), "{complained}");
}
