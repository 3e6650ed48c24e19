//! What the tests share: a reference index that is right by construction, a small plan, a system
//! with a fault (`mutant.rs`), and the program itself.

#![allow(dead_code, reason = "each test file takes what it needs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pando_bench::conditions::Conditions;
use pando_bench::operation_mix::OperationMix;
use pando_bench::plan::Plan;
use pando_bench::record::Shape;

pub mod mutant;

/// Every mix on two thousand records, in about a second.
pub fn small_plan() -> Plan {
    Plan {
        mixes: OperationMix::ALL.to_vec(),
        records: 2_000,
        threads: vec![1, 3],
        keys: None,
        shape: Shape::EIGHT,
        rounds: 1,
        time: Duration::from_millis(10),
        batch: 120,
        sample_every: 4,
        rate_ops_per_second: None,
        seed: 1,
        time_limit: None,
        conditions: Conditions::here(Path::new("/dev/shm")),
    }
}

/// Runs the program with `arguments`: whether it succeeded, its standard output and its standard
/// error.
pub fn bench(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_pando-bench")).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}
