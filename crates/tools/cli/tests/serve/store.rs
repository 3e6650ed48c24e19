//! A server of a store: data larger than memory.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::server::{Client, Server};

/// Of a value: more than four times the memory together.
const VALUES: usize = 9_000;
const VALUE_BYTES: usize = 8_000;

fn value(number: usize) -> String {
    format!("{number:08}").repeat(VALUE_BYTES / 8)
}

#[test]
fn a_server_of_a_store_has_more_keys_than_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let options = "store = \"data\"\nmemory = \"16M\"\nsync = \"always\"\nport = 0\n\
                   unix = \"socket\"\nsnapshot = \"kept.snapshot\"\n";
    fs::write(path("pando.toml"), options).expect("written");
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        command.args(["serve", "--config"]).arg(path("pando.toml"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Server { child: child.expect("the server starts") }
    };
    let mut server = start();
    let mut client = Client::unix(&path("socket"));
    for (name, set) in [
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("maxmemory", "16777216"),
        ("maxmemory-policy", "noeviction"),
    ] {
        assert_eq!(client.ask(&["CONFIG", "GET", name]), [name, set]);
    }
    // The error reply to a command.
    let refused = |words: &str| {
        let mut stream = UnixStream::connect(path("socket")).expect("connects");
        stream.write_all(format!("{words}\r\n").as_bytes()).expect("sends");
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply).expect("receives");
        assert!(reply.starts_with('-'), "{reply}");
        reply
    };
    let reply = refused("CONFIG SET maxmemory 1gb");
    assert!(reply.contains("--memory"), "{reply}");
    for first in (0..VALUES).step_by(500) {
        for number in first..first + 500 {
            client.send(&["SET", &format!("key:{number}"), &value(number)]).expect("sends");
        }
        (0..500).for_each(|_| drop(client.receive().expect("stored")));
    }
    // Pieces of a long string, and what a store does not take.
    let long = "long string ".repeat(100_000);
    client.ask(&["SET", "long", &long]);
    client.ask(&["APPEND", "long", &long]);
    client.ask(&["SET", "middle", &long[..20_000]]);
    let reply = refused(&format!("HSET hash field {}", "x".repeat(20_000)));
    assert!(reply.contains("longer than the 16368 bytes"), "{reply}");
    client.ask(&["HSET", "hash", "field", &long[..16_000]]);
    client.ask(&["EXPIRE", "key:7", "1000"]);
    client.ask(&["SAVE"]);

    let check = |client: &mut Client| {
        while client.ask(&["INFO", "keyspace"])[0].contains("counting:1") {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(client.ask(&["DBSIZE"]), [(VALUES + 3).to_string()]);
        for number in (0..VALUES).step_by(97) {
            assert_eq!(client.ask(&["GET", &format!("key:{number}")]), [value(number)], "{number}");
        }
        assert_eq!(client.ask(&["GET", "long"]), [format!("{long}{long}")]);
        assert_eq!(client.ask(&["GETRANGE", "middle", "15990", "-1"]), [&long[15_990..20_000]]);
        assert_eq!(client.ask(&["HSTRLEN", "hash", "field"]), ["16000"]);
        let left: i64 = client.ask(&["TTL", "key:7"])[0].parse().expect("a number");
        assert!((900..=1000).contains(&left), "{left}");
    };
    check(&mut client);
    server.kill();
    let mut server = start();
    let mut client = Client::unix(&path("socket"));
    // No event loop counts the keys.
    let reply = refused("DBSIZE");
    assert!(reply.starts_with("-BUSY"), "{reply}");
    check(&mut client);
    server.kill();

    // Without the store, an empty one is not created in the place of the snapshot's keys.
    fs::remove_dir_all(path("data")).expect("removed");
    // As the mount point of a disk that is not mounted.
    fs::create_dir(path("data")).expect("created");
    let serve = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        command.args(["serve", "--config"]).arg(path("pando.toml")).args(more);
        command
    };
    let refused = serve(&[]).output().expect("it runs");
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(words.contains("there is no store") && words.contains("--restore"), "{words}");
    let snapshot = path("kept.snapshot").display().to_string();
    let child =
        serve(&["--restore", &snapshot]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut server = Server { child: child.expect("the server starts") };
    let mut client = Client::unix(&path("socket"));
    check(&mut client);
    client.send(&["SHUTDOWN"]).expect("sends");
    assert!(server.child.wait().expect("ends").success());
    let mut server = start();
    check(&mut Client::unix(&path("socket")));
    server.kill();
}

#[test]
fn options_that_a_store_does_not_take_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    for (words, reason) in [
        (&["--store", "data", "serve", "--recover"][..], "--recover is for a pool"),
        (&["--store", "data", "serve", "--index", "nbtree"], "--index is for a pool"),
        (&["--store", "data", "serve", "--max-bytes", "1G"], "--max-bytes is for a pool"),
        (&["--store", "data", "serve", "--set", "maxmemory=1gb"], "--memory limits"),
        (&["--store", "data", "--memory", "1M", "serve"], "16777216"),
        (&["--store", "data", "--pool", "pool", "serve"], "--store takes none of --pool"),
        (&["--memory", "64M", "serve"], "name it by --store"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        let ran = command.args(words).args(["--port", "0"]).current_dir(folder.path()).output();
        let ran = ran.expect("it runs");
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success() && errors.contains(reason), "{words:?}: {errors}");
    }
}
