//! Commands that a signal ends: they say their last words, and the tour removes its files.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use common::Folder;
use rustix::process::{Pid, Signal, kill_process};

/// Starts the command with three pipes.
fn start(folder: &Folder, arguments: &[&str]) -> Child {
    // A shell may have started the tests with this signal ignored, and the command would inherit
    // that. A handler is not inherited.
    signal_hook::flag::register(signal_hook::consts::SIGINT, Default::default()).unwrap();
    let mut command = folder.command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Ends the command by a signal; the rest of its standard error, up to the end of its children.
fn end(mut child: Child, signal: Signal, mut errors: impl Read) -> String {
    kill_process(Pid::from_child(&child), signal).unwrap();
    let mut told = String::new();
    errors.read_to_string(&mut told).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()), "{told}");
    told
}

/// Ends a tour while its child loads. Its pool, whether the folder of this pool is there, and its
/// last words.
fn ended_tour(folder: &Folder, options: &[&str], signal: Signal) -> (PathBuf, bool, String) {
    let mut tour = start(folder, &[&["tour", "--writers", "1"], options].concat());
    let errors = tour.stderr.take().unwrap();
    let mut lines = BufReader::new(tour.stdout.take().unwrap()).lines().map(Result::unwrap);
    let pool = lines.find_map(|line| Some(line.strip_prefix("pool ")?.trim().to_owned())).unwrap();
    assert!(lines.any(|line| line.starts_with("load ")), "the tour loads");
    let pool = folder.path(&pool);
    assert!(pool.exists());
    let told = end(tour, signal, errors);
    // The child that loads has ended without a complaint.
    assert_eq!(told.lines().count(), 1, "{told}");
    let has_folder = pool.parent().unwrap().exists();
    (pool, has_folder, told)
}

#[test]
fn an_interrupted_tour_removes_its_files() {
    let folder = Folder::new();
    for signal in [Signal::INT, Signal::TERM] {
        let (pool, has_folder, told) = ended_tour(&folder, &[], signal);
        assert!(!pool.exists() && !has_folder, "{}", pool.display());
        assert_eq!(told, "pando: interrupted; the tour's files are removed\n");
    }
    // Files of others stay, also beside its pool.
    let others = ["own.pool.tsv", "data-set", "pando.pool"];
    others.iter().for_each(|name| folder.write(name, "of another one"));
    let options = ["--pool", "own.pool", "--log", "own.log"];
    let (pool, _, told) = ended_tour(&folder, &options, Signal::INT);
    assert!(!pool.exists() && told.contains("removed"), "{told}");
    let mut left: Vec<_> =
        std::fs::read_dir(folder.path("")).unwrap().map(Result::unwrap).collect();
    left.sort_by_key(|entry| entry.file_name());
    let names: Vec<_> = left.iter().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["data-set", "own.pool.tsv", "pando.pool"]);
    assert!(left.iter().all(|entry| std::fs::read(entry.path()).unwrap() == b"of another one"));
}

#[test]
fn an_interrupted_tour_keeps_its_files_on_request() {
    let folder = Folder::new();
    let (pool, has_folder, told) = ended_tour(&folder, &["--keep"], Signal::INT);
    assert!(pool.exists() && has_folder && told.contains(&pool.display().to_string()), "{told}");
    std::fs::remove_dir_all(pool.parent().unwrap()).unwrap();
}

#[test]
fn an_interrupted_load_says_how_far_it_came() {
    let folder = Folder::new();
    let mut load = start(&folder, &["load", "-", "--create"]);
    let mut input = load.stdin.take().unwrap();
    let mut errors = BufReader::new(load.stderr.take().unwrap());
    // Lines come until the load shows its progress; then it waits for more.
    let (told, lines) = thread::scope(|scope| {
        let progress = scope.spawn(|| {
            let mut line = String::new();
            errors.read_line(&mut line).unwrap();
            line
        });
        let mut lines = 0;
        while !progress.is_finished() {
            writeln!(input, "key {lines}\tvalue").unwrap();
            lines += 1;
            thread::sleep(Duration::from_millis(20));
        }
        (progress.join().unwrap(), lines)
    });
    assert!(told.starts_with("loaded ") && told.contains("records/s"), "{told}");
    let told = end(load, Signal::INT, errors);
    let (_, behind) = told.split_once(": loaded ").unwrap();
    let loaded: usize = behind.split(' ').next().unwrap().replace(',', "").parse().unwrap();
    assert!(told.starts_with("pando: interrupted after ") && told.contains("again"), "{told}");
    // The records are there, and maybe one that was written at the end.
    let count: usize = folder.ok(&["scan", "--count"]).trim().parse().unwrap();
    assert!((1..=count).contains(&loaded) && count <= lines, "{loaded} of {count}: {told}");
    drop(input);
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let folder = Folder::new();
    let command = "trap '' INT; exec \"$0\" load - --create";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", command, env!("CARGO_BIN_EXE_pando")]).current_dir(folder.path(""));
    let mut load = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = load.stdin.take().unwrap();
    input.write_all(b"a\t1\n").unwrap();
    while !folder.path("pando.pool").exists() {
        thread::sleep(Duration::from_millis(20));
    }
    // By then a command that takes the signal would have a handler.
    thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&load), Signal::INT).unwrap();
    input.write_all(b"b\t2\n").unwrap();
    drop(input);
    assert!(load.wait().unwrap().success());
    assert_eq!(folder.ok(&["scan", "--keys-only"]), "a\nb\n");
}
