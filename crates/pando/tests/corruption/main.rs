//! Pools that are damaged at random, and then used.
//!
//! For each kind of index some small pools are built (`images.rs`). A case copies one of them,
//! damages one to three words of the copy, half of them in metadata that is in use (`damage.rs`),
//! opens it and calls every operation of the library (`usage.rs`). An error is as good as an
//! answer. Failures are a panic, a signal, an operation that does not end, and a scan whose keys do
//! not ascend.
//!
//! Cases run in a child process, so that the parent sees a signal and can kill a case that does not
//! end. The child prints which case it begins and how it ended. If the child dies, the parent
//! starts another one with the next case. A case is determined by the kind and its number. To
//! repeat a failure:
//!
//! ```text
//! PANDO_CORRUPTION=bztree:17 cargo test -p pando-kv --test corruption -- one_case --nocapture
//! ```
//!
//! `docs/verify.md` lists the damage that no check finds: records carry no checksum.

mod damage;
mod images;
mod usage;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use images::{Image, RANGED, TRANSACTIONAL};

/// Cases of each kind.
const CASES: u64 = 2_000;
/// Further cases of each kind, in the longer test.
const MORE_CASES: u64 = 40_000;
/// A case takes some milliseconds. The limits of steps in the indexes end most endless loops; this
/// limit ends the others.
const LONGEST_CASE: Duration = Duration::from_secs(60);
/// The variable with the work of a child: the kind, the first case, and the case before which it
/// ends.
const ORDER: &str = "PANDO_CORRUPTION_ORDER";
/// Names one case to be run in this process.
const ONE: &str = "PANDO_CORRUPTION";

/// How a case ended.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// An error or a report named the damage.
    Detected,
    /// No error: the damage hit bytes that no operation read, or a record's bytes.
    Unseen,
    /// A failure.
    Failed(String),
}

/// Runs a case.
fn run(images: &[Image], kind: &str, case: u64) -> Outcome {
    pando_tree::checked::lower_attempts(50);
    let mut choices = damage::Choices::new(kind, case);
    let image = &images[choices.below(images.len() as u64) as usize];
    let damaged = damage::damaged(image, &mut choices);
    static PANIC: Mutex<String> = Mutex::new(String::new());
    std::panic::set_hook(Box::new(|info| *PANIC.lock().expect("no panic here") = info.to_string()));
    let used =
        catch_unwind(AssertUnwindSafe(|| usage::open_and_use(image, &damaged, &mut choices)));
    drop(std::panic::take_hook());
    match used {
        Ok(Ok(true)) => Outcome::Detected,
        Ok(Ok(false)) => Outcome::Unseen,
        Ok(Err(wrong)) => Outcome::Failed(wrong),
        Err(_) => Outcome::Failed(PANIC.lock().expect("no panic here").replace('\n', " ")),
    }
}

/// The child's work. Without the variable there is none.
#[test]
fn child() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let mut parts = order.split(':');
    let mut part = || parts.next().expect("kind, first case and end");
    let (kind, first, end) = (part(), part(), part());
    let images = images::build(kind);
    for case in first.parse::<u64>().expect("a number")..end.parse().expect("a number") {
        println!("\nbegin {case}");
        match run(&images, kind, case) {
            Outcome::Detected => println!("detected {case}"),
            Outcome::Unseen => println!("unseen {case}"),
            Outcome::Failed(what) => println!("failed {case} {what}"),
        }
    }
}

/// The one case that the variable names. Without the variable there is none.
#[test]
fn one_case() {
    let Ok(named) = std::env::var(ONE) else { return };
    let (kind, case) = named.split_once(':').expect("kind:case");
    let outcome = run(&images::build(kind), kind, case.parse().expect("a number"));
    println!("{named}: {outcome:?}");
    assert!(!matches!(outcome, Outcome::Failed(_)));
}

/// The reports of the children.
#[derive(Default)]
struct Tally {
    detected: u64,
    unseen: u64,
    failed: BTreeMap<u64, String>,
}

fn start_child(kind: &str, cases: &Range<u64>) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(ORDER, format!("{kind}:{}:{}", cases.start, cases.end))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a child")
}

/// Runs a child until it is done, or has died; the first case that is left.
fn supervise(kind: &str, cases: Range<u64>, tally: &mut Tally) -> u64 {
    let mut child = start_child(kind, &cases);
    let output = child.stdout.take().expect("is piped");
    let (sender, lines) = channel();
    let reader = std::thread::spawn(move || {
        BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .for_each(|line| drop(sender.send(line)));
    });
    let mut running = None;
    let mut next = cases.start;
    let is_stuck = loop {
        let line = match lines.recv_timeout(LONGEST_CASE) {
            Ok(line) => line,
            Err(error) => break error == RecvTimeoutError::Timeout,
        };
        let Some((word, rest)) = line.split_once(' ') else { continue };
        let (number, what) = rest.split_once(' ').unwrap_or((rest, ""));
        let Ok(case) = number.parse() else { continue };
        match word {
            "begin" => {
                (running, next) = (Some(case), case + 1);
                continue;
            }
            "detected" => tally.detected += 1,
            "unseen" => tally.unseen += 1,
            "failed" => drop(tally.failed.insert(case, what.to_owned())),
            _ => continue,
        }
        running = None;
    };
    if is_stuck {
        child.kill().expect("kills");
    }
    let status = child.wait().expect("waits");
    reader.join().expect("reads");
    if let Some(case) = running {
        let how = if is_stuck { "does not end".to_owned() } else { status.to_string() };
        tally.failed.insert(case, how);
        return next;
    }
    assert!(status.success(), "the child of {kind} ended between two cases: {status}");
    cases.end
}

/// Runs cases of a kind. At least `least` of 1,000 cases must be detected. Whether all tests
/// passed.
fn check(kind: &str, cases: Range<u64>, least: u64) -> bool {
    let mut tally = Tally::default();
    let mut next = cases.start;
    while next < cases.end {
        next = supervise(kind, next..cases.end, &mut tally);
    }
    let Tally { detected, unseen, failed } = tally;
    println!("{kind}: {detected} cases detected, {unseen} unseen");
    for (case, what) in &failed {
        println!("PANDO_CORRUPTION={kind}:{case}: {what}");
    }
    let least = least * (cases.end - cases.start) / 1_000;
    if detected < least {
        println!("{kind}: at least {least} cases must be detected");
    }
    failed.is_empty() && detected >= least
}

/// The kinds, and the least number of cases in 1,000 whose damage must be detected.
const KINDS: [(&str, u64); 7] = [
    ("bztree", 450),
    ("nbtree", 390),
    ("wbtree", 490),
    ("skiplist", 650),
    ("bwtree", 460),
    (TRANSACTIONAL, 400),
    (RANGED, 470),
];

fn check_some(kind: &str) {
    let (_, least) = KINDS.iter().find(|(name, _)| *name == kind).expect("a kind");
    assert!(check(kind, 0..CASES, *least));
}

#[test]
fn a_damaged_bztree_is_refused_or_used_without_harm() {
    check_some("bztree");
}

#[test]
fn a_damaged_bztree_with_range_leaves_is_refused_or_used_without_harm() {
    check_some(RANGED);
}

#[test]
fn a_damaged_nbtree_is_refused_or_used_without_harm() {
    check_some("nbtree");
}

#[test]
fn a_damaged_wbtree_is_refused_or_used_without_harm() {
    check_some("wbtree");
}

#[test]
fn a_damaged_skiplist_is_refused_or_used_without_harm() {
    check_some("skiplist");
}

#[test]
fn a_damaged_bwtree_is_refused_or_used_without_harm() {
    check_some("bwtree");
}

#[test]
fn a_damaged_transactional_map_is_refused_or_used_without_harm() {
    check_some(TRANSACTIONAL);
}

#[test]
#[ignore = "takes minutes; `.ci/long damage` runs it"]
fn many_damaged_pools_are_refused_or_used_without_harm() {
    let cases = CASES..CASES + MORE_CASES;
    let failed = KINDS.map(|(kind, least)| !check(kind, cases.clone(), least));
    assert_eq!(failed, [false; KINDS.len()], "of {KINDS:?}");
}
