//! The tour, on Debian's text and on files of the user's.

mod common;

use common::Folder;

/// What a tour that held has said, in this order.
const STEPS: [&str; 14] = [
    "data set", "pool", "load", "kill", "open", "verified", "verified", "finish", "scan", "scan",
    "delete", "check", "reopen", "summary",
];

fn steps(told: &str) -> Vec<&str> {
    told.lines().filter(|line| !line.starts_with(' ')).map(|line| line[..10].trim()).collect()
}

#[test]
fn debians_text_survives_the_kill() {
    let folder = Folder::new();
    let told = folder.ok(&["tour", "--records", "20000", "--writers", "3", "--pool", "tour.pool"]);
    assert_eq!(steps(&told), STEPS, "{told}");
    assert!(!folder.path("tour.pool").exists());
}

/// The log's directory is created and removed; one that is there is refused and stays.
#[test]
fn a_tour_with_a_log_removes_it() {
    let folder = Folder::new();
    let tour = ["tour", "--records", "20000", "--pool", "tour.pool", "--log", "tour.log"];
    let told = folder.ok(&tour);
    assert_eq!(steps(&told), STEPS, "{told}");
    assert!(!folder.path("tour.pool").exists() && !folder.path("tour.log").exists());
    let told = folder.ok(&[&tour[..], &["--keep"]].concat());
    assert!(told.contains("kept      tour.pool\nkept      tour.log\n"), "{told}");
    let refused = folder.fails(2, &["tour", "--pool", "other.pool", "--log", "tour.log"]);
    assert!(refused.contains("tour.log exists"), "{refused}");
    folder.ok(&["log", "verify", "--pool", "tour.pool"]);
    assert!(!folder.path("other.pool").exists());
}

#[test]
fn a_file_of_ones_own_is_toured_and_the_pool_kept() {
    let folder = Folder::new();
    let tsv: String = (0..20_000).map(|number| format!("{number}\tvalue {number}\n")).collect();
    folder.write("mine.tsv", tsv);
    let told = folder.ok(&["tour", "mine.tsv", "--pool", "mine.pool", "--keep"]);
    assert!(told.contains("20,000 records of mine.tsv") && told.contains("SIGKILL"), "{told}");
    assert_eq!(
        folder.ok(&["scan", "--pool", "mine.pool", "--map", "tour"]).lines().count(),
        10_000
    );
}

#[test]
fn a_pool_that_is_there_is_not_toured_over() {
    let folder = Folder::with_records("a\t1\n");
    let refused = folder.fails(3, &["tour", "--records", "10000", "--pool", "pando.pool"]);
    assert!(refused.contains("is there already"), "{refused}");
    assert_eq!(folder.ok(&["get", "a"]), "1\n");
}

#[test]
fn a_file_too_small_to_be_killed_midway_is_refused() {
    let folder = Folder::new();
    folder.write("small.txt", "one\ntwo\n");
    let refused = folder.fails(2, &["tour", "small.txt"]);
    assert!(refused.contains("has 2 records"), "{refused}");
}
