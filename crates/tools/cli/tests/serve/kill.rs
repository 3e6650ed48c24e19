//! `kill -9` of a server under load. Every acknowledged write is there afterwards; writes of
//! several keys or of several pieces of a string are there as a whole, and so are the commands of a
//! transaction. Collections have as many elements as they say, keys still expire, and the pool is
//! consistent.
//!
//! With a log, each second kill is a power cut too: the pool's file is removed, and the server
//! builds it anew from the files of its log. (Those keep everything that the process wrote;
//! `pando-crashlab powercut` loses the bytes that were not synced.)
//!
//! A store has three times as many bytes as memory for its pages.
//!
//! A few kills here; `cargo test --release -p pando-cli --test serve -- --ignored` is 200 in each
//! mode.

use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use pando_server::testing::load::{Known, increments, request, verify, write};

use crate::server::{Client, Server};

/// Connections that write at once.
const WRITERS: usize = 4;

/// How replies to writes wait for the log, and whether a power cut undoes acknowledged ones.
#[derive(Clone, Copy, Debug)]
struct Mode {
    /// `None` for a pool without a log.
    sync: Option<&'static str>,
    may_lose: bool,
    is_store: bool,
}

const POOL: Mode = Mode { sync: None, may_lose: false, is_store: false };
const MODES: [Mode; 5] = [
    POOL,
    Mode { sync: Some("always"), ..POOL },
    Mode { sync: Some("everysec"), may_lose: true, ..POOL },
    Mode { sync: Some("no"), may_lose: true, ..POOL },
    Mode { is_store: true, ..POOL },
];

/// Strings that fill a store, and bytes of each.
const FILLERS: usize = 3_200;
const FILLER_BYTES: usize = 15_000;

/// The key and value of a string that nobody changes.
fn filler(number: usize) -> (String, String) {
    (format!("filler:{number}"), format!("{number:05}").repeat(FILLER_BYTES / 5))
}

fn kills(count: u64, mode: Mode) {
    let folder =
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
    let (pool, socket) = (folder.path().join("pool"), folder.path().join("socket"));
    let option = if mode.is_store { "--store" } else { "--pool" };
    let log = folder.path().join("log");
    let (socket_path, log_path) = (socket.to_string_lossy(), log.to_string_lossy());
    let mut arguments = vec!["--port", "0", "--unix", &socket_path];
    if let Some(sync) = mode.sync {
        arguments.extend(["--log", &log_path, "--sync", sync]);
    }
    if mode.is_store {
        arguments.extend(["--memory", "16M"]);
    }
    let known: Vec<_> = (0..WRITERS).map(|_| Mutex::new(Known::default())).collect();
    let mut sent = 0;
    for round in 0..count {
        let mut server = Server::start_at(option, &pool, &arguments);
        let mut client = Client::unix(&socket);
        for number in 0..if mode.is_store { FILLERS } else { 0 } {
            let (key, value) = filler(number);
            match round {
                0 => drop(client.ask(&["SET", &key, &value])),
                // Most are on the disk alone.
                _ if number as u64 % 10 == round % 10 => {
                    assert_eq!(client.ask(&["GET", &key]), [value], "{key}");
                }
                _ => {}
            }
        }
        let has_lost = mode.may_lose && is_power_cut(mode, round);
        for (writer, known) in known.iter().enumerate() {
            let mut known = known.lock().expect("not poisoned");
            if has_lost {
                verify(&mut client, writer, &Known { acknowledged: 0, ..*known });
                *known = Known::default();
                continue;
            }
            verify(&mut client, writer, &known);
            // What was in doubt is settled by what was found: from here on all that was sent counts
            // as carried out, or is overwritten. A counter starts anew.
            let counted = increments(known.sent).to_string();
            client.ask(&["SET", &format!("counter:{writer}"), &counted]);
            for lost in known.acknowledged..known.sent {
                for words in request(writer, lost) {
                    if words[0] != "INCR" {
                        client.ask(&words.iter().map(String::as_str).collect::<Vec<_>>());
                    }
                }
            }
            known.acknowledged = known.sent;
        }
        if has_lost {
            client.ask(&["FLUSHALL"]);
        }
        let sent_before = sum_of_sent(&known);
        thread::scope(|scope| {
            for (writer, known) in known.iter().enumerate() {
                let client = Client::unix(&socket);
                scope.spawn(move || write(client, writer, known, |_, _| ()));
            }
            // Different moments, the same in every run.
            thread::sleep(Duration::from_millis(20 + round * 37 % 180));
            server.kill();
        });
        sent += sum_of_sent(&known) - sent_before;
        if is_power_cut(mode, round + 1) {
            std::fs::remove_file(&pool).expect("removed");
            continue;
        }
        let check = Command::new(env!("CARGO_BIN_EXE_pando"))
            .arg(option)
            .arg(&pool)
            .arg("check")
            .output()
            .expect("check runs");
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    }
    assert!(sent > count * 100, "{mode:?}: only {sent} requests were sent");
}

/// Whether the kill before this round was a power cut.
fn is_power_cut(mode: Mode, round: u64) -> bool {
    mode.sync.is_some() && round > 0 && round.is_multiple_of(2)
}

fn sum_of_sent(known: &[Mutex<Known>]) -> u64 {
    known.iter().map(|known| known.lock().expect("not poisoned").sent).sum()
}

#[test]
fn what_a_killed_server_acknowledged_is_there() {
    for mode in MODES {
        kills(5, mode);
    }
}

#[test]
#[ignore = "two hundred kills in each mode take about eight minutes"]
fn what_a_server_acknowledged_is_there_after_each_of_200_kills() {
    for mode in MODES {
        kills(200, mode);
    }
}
