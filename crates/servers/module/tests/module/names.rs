//! Changes of names that the pool refuses, as a full file system does.

use crate::server::{Site, eventually, info, say};
use crate::wire::{Client, words};

/// A place of the module that fails for each commit of names.
const ALL: &str = "names before commit";

fn late(client: &mut Client) -> String {
    info(client, "pando_names_not_stored")
}

/// One name that is refused holds up no other, and is stored when the pool takes it.
#[test]
fn refused_names_are_stored_later_and_hold_up_no_others() {
    let site = Site::with_aof();
    let mut server = site.start();
    let client = &mut server.connect();
    for map in 0..200 {
        client.say(&format!("PANDO.SET m{map} a {map}"));
    }
    // The pool refuses one name.
    site.fail("name bad");
    assert_eq!(say(client, "RENAME m0 bad"), "OK");
    assert_eq!(say(client, "RENAME m1 good"), "OK");
    assert_eq!(say(client, "UNLINK m2"), "1");
    assert_eq!(late(client), "2");
    // Maps under late names change, but a commit may not empty one, and not make another.
    assert_eq!(say(client, "PANDO.SET bad b 1"), "1");
    assert!(say(client, "PANDO.DEL bad a b").starts_with("OOM an earlier change of the key"));
    assert!(say(client, "PANDO.SET m0 a 1").starts_with("OOM an earlier change of the key"));
    drop(server);
    server = site.start();
    let client = &mut server.connect();
    assert_eq!(say(client, "PANDO.RANGE m0 - +"), "a 0 b 1");
    assert_eq!(say(client, "EXISTS bad m1 m2 good"), "1");

    // All are refused, and stored when there is room: chains of names too.
    site.fail(ALL);
    for map in 10..150 {
        assert_eq!(say(client, &format!("RENAME m{map} n{map}")), "OK");
    }
    for line in ["RENAME n10 o10", "RENAME o10 p10", "RENAME m150 n11", "UNLINK n12"] {
        assert!(!client.say(line).is_error(), "{line}");
    }
    assert_ne!(late(client), "0");
    site.fail("");
    eventually("room", || late(client) == "0");
    let digest = say(client, "DEBUG DIGEST");
    drop(server);
    server = site.start();
    let client = &mut server.connect();
    assert_eq!(say(client, "DEBUG DIGEST"), digest);
    assert_eq!(say(client, "PANDO.GET p10 a"), "10");
    assert_eq!(say(client, "PANDO.GET n11 a"), "150");
    eventually("the removal of garbage", || info(client, "pando_garbage") == "0");

    // A server that ends in order tries once more.
    site.fail(ALL);
    assert_eq!(say(client, "RENAME p10 q10"), "OK");
    assert_eq!(late(client), "2");
    site.fail("");
    let _ = client.ask(&words("SHUTDOWN NOSAVE"));
    drop(server);
    server = site.start();
    assert_eq!(say(&mut server.connect(), "PANDO.GET q10 a"), "10");
}

/// A flush removes all maps of the directory, so a map that has moved away must be known before.
#[test]
fn a_flush_with_refused_names_ends_the_server_and_no_map_is_lost() {
    let site = Site::with_aof();
    let server = site.start();
    let client = &mut server.connect();
    assert_eq!(say(client, "PANDO.SET m a 1"), "1");
    site.fail(ALL);
    assert_eq!(say(client, "MOVE m 1"), "1");
    assert!(client.ask(&words("FLUSHDB")).is_err());
    site.fail("");
    drop(server);
    let server = site.start();
    let client = &mut server.connect();
    assert_eq!(say(client, "PANDO.GET m a"), "1");
    assert_eq!(say(client, "MOVE m 1"), "1");
    assert_eq!(say(client, "FLUSHDB"), "OK");
    client.say("SELECT 1");
    eventually("the removal of garbage", || info(client, "pando_garbage") == "0");
    assert_eq!(say(client, "PANDO.GET m a"), "1");
}

/// A load whose names are not stored does not make the pool complete.
#[test]
fn a_load_whose_names_are_refused_gives_the_files_precedence_again() {
    let site = Site::with_aof();
    let server = site.start();
    let client = &mut server.connect();
    for map in 0..70 {
        client.say(&format!("PANDO.SET m{map} a {map}"));
    }
    client.say("BGREWRITEAOF");
    eventually("the rewrite", || {
        info(client, "aof_rewrite_in_progress") == "0" && info(client, "aof_rewrites") != "0"
    });
    let digest = say(client, "DEBUG DIGEST");
    drop(server);
    std::fs::remove_file(site.path("pando.pool")).expect("no pool");
    site.fail(ALL);
    site.dies("none:1", &[]);
    site.fail("");
    let server = site.start();
    assert!(site.log().contains("a load of files was interrupted"), "{}", site.log());
    assert_eq!(say(&mut server.connect(), "DEBUG DIGEST"), digest);
}

/// A commit has room for long names, up to a limit.
#[test]
fn names_beyond_the_limit_are_refused_or_end_the_server_before_any_effect() {
    let site = Site::with_aof();
    let mut server = site.start();
    let client = &mut server.connect();
    let with = |line: &str, bytes: usize, rest: &str| {
        let mut command = words(line);
        command.push(vec![b'n'; bytes]);
        command.extend(words(rest));
        command
    };
    let (longest, longer) = (4 << 20, (4 << 20) + 1);
    assert_eq!(say(client, "PANDO.SET m a 1"), "1");
    let dump = client.say("DUMP m").bytes().to_vec();
    let mut restore = with("RESTORE", longer, "0");
    restore.push(dump);
    for command in [with("PANDO.SET", longer, "a 1"), with("COPY m", longer, ""), restore] {
        let reply = client.ask(&command).expect("a reply").value;
        assert!(reply.is_error() || reply.number() == Some(0), "{reply:?}");
    }
    // One below the limit goes over another one.
    let over = with("RENAME m", longest, "");
    assert_eq!(client.ask(&over).expect("a reply").value.bytes(), b"OK");
    assert_eq!(late(client), "0");
    assert_eq!(client.ask(&with("RENAME", longest, "m")).expect("a reply").value.bytes(), b"OK");
    assert!(client.ask(&with("RENAME m", longer, "")).is_err());
    drop(server);
    server = site.start();
    let client = &mut server.connect();
    assert_eq!(say(client, "DBSIZE"), "1");
    assert_eq!(say(client, "PANDO.GET m a"), "1");
    assert_eq!(say(client, "UNLINK m"), "1");
    assert_eq!(late(client), "0");
}

/// Records that cannot be removed at once are removed later, by the same server.
#[test]
fn garbage_whose_removal_fails_is_tried_again() {
    let site = Site::with_aof();
    let server = site.start();
    let client = &mut server.connect();
    for map in 0..3 {
        client.say(&format!("PANDO.SET m{map} a 1"));
    }
    site.fail("garbage");
    assert_eq!(say(client, "UNLINK m0 m1"), "2");
    eventually("a refusal", || site.log().contains("is removed later"));
    assert_eq!(say(client, "SELECT 1"), "OK");
    assert_eq!(say(client, "FLUSHALL"), "OK");
    assert_ne!(info(client, "pando_garbage"), "0");
    site.fail("");
    eventually("the removal of garbage", || info(client, "pando_garbage") == "0");
}
