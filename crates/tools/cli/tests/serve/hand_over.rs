//! A server gives way to its successor: nobody who connects is refused, nothing acknowledged is
//! lost, and the process keeps its number.

use std::io::ErrorKind;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pando_server::testing::free_port;

use crate::server::{Client, Server};

const HAND_OVERS: usize = 3;

/// A field of INFO, from whoever answers next.
fn info(port: u16, name: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(30);
    let info = loop {
        match Client::patient_tcp(port).try_ask(&["INFO", "server"]) {
            Ok(info) => break info.concat(),
            Err(error) => assert!(Instant::now() < deadline, "no answer: {error}"),
        }
    };
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} is in\n{info}")).trim().to_owned()
}

/// Connects anew for every write until it is told to stop: the numbers whose write was
/// acknowledged, and how many connections ended without a reply.
fn write(port: u16, writer: usize, is_over: &AtomicBool) -> (Vec<u64>, u64) {
    let (mut acknowledged, mut lost) = (Vec::new(), 0);
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        number += 1;
        let tried = Client::tcp(port).and_then(|mut client| {
            client.try_ask(&["SET", &format!("{writer}:{number}"), &number.to_string()])
        });
        match tried {
            Ok(_) => acknowledged.push(number),
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::ConnectionRefused, "write {number}");
                lost += 1;
            }
        }
    }
    (acknowledged, lost)
}

#[test]
fn nobody_is_refused_while_a_server_gives_way_to_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pool, snapshot) = (folder.path().join("pool"), folder.path().join("snapshot"));
    let port = free_port();
    let port_word = port.to_string();
    // Its successors have the same arguments, and begin with what there is all the same.
    let source = folder.path().join("source");
    let arguments = ["--port", &port_word, "--snapshot", &snapshot.to_string_lossy()];
    let mut first = Server::start(&source, &arguments);
    Client::patient_tcp(port).ask(&["SET", "restored", "1"]);
    Client::patient_tcp(port).ask(&["SAVE"]);
    first.kill();
    let arguments = ["--port", &port_word, "--restore", &snapshot.to_string_lossy()];
    let server = Server::start(&pool, &arguments);
    let process = info(port, "process_id");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let is_over = &is_over;
                scope.spawn(move || write(port, writer, is_over))
            })
            .collect();
        for _ in 0..HAND_OVERS {
            thread::sleep(Duration::from_millis(150));
            let before = info(port, "run_id");
            let process = server.child.id().to_string();
            let told = Command::new("kill").args(["-USR2", &process]).status();
            assert!(told.expect("kill runs").success());
            let deadline = Instant::now() + Duration::from_secs(30);
            while info(port, "run_id") == before {
                assert!(Instant::now() < deadline, "nobody took over");
                thread::sleep(Duration::from_millis(5));
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let mut client = Client::patient_tcp(port);
        for (writer, thread) in writers.into_iter().enumerate() {
            let (acknowledged, lost) = thread.join().expect("no write was refused");
            assert!(acknowledged.len() > 50, "{} writes", acknowledged.len());
            assert!(lost <= HAND_OVERS as u64, "{lost} connections ended without a reply");
            for number in acknowledged {
                let found = client.ask(&["GET", &format!("{writer}:{number}")]);
                assert_eq!(found, [number.to_string()], "writer {writer}");
            }
        }
        assert_eq!(client.ask(&["GET", "restored"]), ["1"]);
    });
    assert_eq!(info(port, "process_id"), process);
}
