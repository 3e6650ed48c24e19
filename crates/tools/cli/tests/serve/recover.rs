//! A server whose machine went down: what it says, how it is recovered, also if that is killed
//! midway; and what the log says of starts and ends.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use pando_pmem::superblock::{self, BootId};

use crate::server::{Client, Server};

const KEYS: u32 = 3000;

/// Makes a pool that was not closed one that was open when the machine went down.
pub fn boot_another(pool: &Path) {
    let file = OpenOptions::new().write(true).open(pool).expect("opens");
    for (index, word) in superblock::boot_words(BootId(7 << 70)).into_iter().enumerate() {
        let at = superblock::BOOT_OFF + index as u64 * 8;
        file.write_all_at(&word.to_le_bytes(), at).expect("writes");
    }
}

/// The end of a command that does not serve.
fn refused(pool: &Path, before: &[&str], behind: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
    command.arg("--pool").arg(pool).args(before).arg("serve").args(behind);
    let Output { status, stderr, .. } = command.output().expect("it runs");
    assert!(!status.success());
    String::from_utf8(stderr).expect("text")
}

#[test]
fn a_server_whose_machine_went_down_says_how_it_is_recovered_and_is() {
    let folder =
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
    let (pool, socket) = (folder.path().join("pool"), folder.path().join("socket"));
    let arguments = ["--port", "0", "--unix", &socket.to_string_lossy()];
    let mut server = Server::start(&pool, &arguments);
    let mut client = Client::unix(&socket);
    let value = "x".repeat(500);
    for key in 0..KEYS {
        client.ask(&["SET", &key.to_string(), &value]);
    }
    server.kill();
    boot_another(&pool);

    let command = format!("`pando --pool {} serve --recover`", pool.display());
    for said in [refused(&pool, &[], &arguments), refused(&pool, &["--salvage"], &arguments)] {
        assert!(said.contains(&command), "{said}");
    }
    let recovering = [&arguments[..], &["--recover"]].concat();
    for after_ms in [0, 10, 30, 60] {
        let mut server = Server::start(&pool, &recovering);
        thread::sleep(Duration::from_millis(after_ms));
        server.kill();
    }
    let _server = Server::start(&pool, &recovering);
    let mut client = Client::unix(&socket);
    assert_eq!(client.ask(&["DBSIZE"]), [KEYS.to_string()]);
    assert_eq!(client.ask(&["GET", "7"]), [value]);
    let names = std::fs::read_dir(folder.path()).expect("a folder");
    let names = names.map(|entry| entry.expect("an entry").file_name().into_string());
    let names: Vec<String> = names.map(|name| name.expect("text")).collect();
    let kept = names.iter().filter(|name| name.starts_with("pool.untrusted-")).count();
    assert_eq!(kept, 1, "{names:?}");
    assert!(!names.iter().any(|name| name.contains("recovering")), "{names:?}");
}

#[test]
fn a_server_without_its_pool_begins_with_its_snapshot_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pool, socket) = (folder.path().join("pool"), folder.path().join("socket"));
    let arguments = ["--port", "0", "--unix", &socket.to_string_lossy()];
    let recovering = [&arguments[..], &["--recover"]].concat();
    // Without pool and snapshot it begins without keys.
    let mut server = Server::start(&pool, &recovering);
    let mut client = Client::unix(&socket);
    for key in 0..KEYS {
        client.ask(&["SET", &key.to_string(), "x"]);
    }
    client.ask(&["SAVE"]);
    server.kill();
    std::fs::write(&pool, [0; 4096]).expect("written");
    let no_pool = refused(&pool, &[], &recovering);
    assert!(no_pool.contains("is not a pool") && no_pool.contains("away"), "{no_pool}");
    std::fs::remove_file(&pool).expect("removed");
    let missing = refused(&pool, &[], &arguments);
    assert!(missing.contains("serve --recover") && missing.contains("pool.snapshot"), "{missing}");
    assert!(!pool.exists());
    let _server = Server::start(&pool, &recovering);
    let mut client = Client::unix(&socket);
    assert_eq!(client.ask(&["DBSIZE"]), [KEYS.to_string()]);
}

#[test]
fn the_log_says_what_was_opened_when_the_server_is_ready_and_why_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = folder.path().join("pool");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
    command.arg("--pool").arg(&pool).args(["serve", "--port", "0", "--unix"]);
    command.arg(folder.path().join("socket")).stderr(Stdio::piped());
    let mut server = command.spawn().expect("the server starts");
    let mut lines = BufReader::new(server.stderr.take().expect("its log")).lines();
    let mut log = String::new();
    for line in lines.by_ref() {
        let line = line.expect("text");
        log += &(line.clone() + "\n");
        if line.contains("ready") {
            break;
        }
    }
    assert!(log.contains("pool opened"), "{log}");
    assert!(log.contains(&pool.display().to_string()) && log.contains("guarantee="), "{log}");
    for signal in ["-HUP", "-TERM"] {
        let sent = Command::new("kill").args([signal, &server.id().to_string()]).status();
        assert!(sent.expect("it runs").success());
        if signal == "-HUP" {
            let told = lines.next().expect("a line").expect("text");
            assert!(told.contains("SIGHUP is ignored"), "{told}");
        }
    }
    let rest: Vec<String> = lines.map(|line| line.expect("text")).collect();
    let rest = rest.join("\n");
    assert!(rest.contains("SIGTERM") && rest.contains("the pool is closed"), "{rest}");
    assert!(server.wait().expect("it ends").success());
}
