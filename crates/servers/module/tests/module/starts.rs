//! Which of pool and files has precedence at a start.

use crate::server::{Site, eventually, info, module, say};
use crate::wire::words;

/// What the append-only file has got since its base was written.
const PART: &str = "appendonlydir/appendonly.aof.1.incr.aof";

/// Maps, names and expiries in two databases.
fn fill(client: &mut crate::wire::Client) {
    for line in [
        "PANDO.MSET m a 1 b 2",
        "PANDO.SET old x 1",
        "RENAME old new",
        "EXPIRE new 1000",
        "COPY m copied",
        "PANDO.SET gone x 1",
        "UNLINK gone",
        "PANDO.SET moved x 1",
        "MOVE moved 3",
        "SELECT 3",
        "PANDO.SET m in 3",
        "SELECT 0",
        "RPUSH list 1 2",
    ] {
        assert!(!client.say(line).is_error(), "{line}");
    }
}

fn check(client: &mut crate::wire::Client) {
    for (line, reply) in [
        ("PANDO.RANGE m - +", "a 1 b 2"),
        ("PANDO.RANGE new - +", "x 1"),
        ("PANDO.RANGE copied - +", "a 1 b 2"),
        ("EXISTS old gone moved", "0"),
        ("SELECT 3", "OK"),
        ("PANDO.RANGE m - +", "in 3"),
        ("PANDO.RANGE moved - +", "x 1"),
        ("DBSIZE", "2"),
        ("SELECT 0", "OK"),
    ] {
        assert_eq!(say(client, line), reply, "{line}");
    }
    let ttl: i64 = say(client, "TTL new").parse().expect("a number");
    assert!((1..=1000).contains(&ttl), "{ttl}");
}

/// After a kill the pool has precedence, whatever the files have, and the files are then written
/// anew: they alone give the same maps.
#[test]
fn the_pool_has_precedence_over_old_truncated_and_missing_files() {
    for damage in ["none", "truncated", "missing"] {
        let site = Site::with_aof();
        let server = site.start_with(&["--pando.save-after-start", "no"]);
        fill(&mut server.connect());
        drop(server);
        let folder = site.path("appendonlydir");
        match damage {
            "missing" => std::fs::remove_dir_all(&folder).expect("no files"),
            "truncated" => {
                let part = folder.join("appendonly.aof.1.incr.aof");
                let whole = std::fs::read(&part).expect("the file");
                std::fs::write(&part, &whole[..whole.len() / 3]).expect("a part");
            }
            _ => {}
        }
        let server = site.start();
        let client = &mut server.connect();
        check(client);
        if damage == "none" {
            assert_eq!(say(client, "LRANGE list 0 -1"), "1 2");
            assert!(!site.log().contains("CRITICAL"), "{}", site.log());
        }
        assert_eq!(info(client, "pando_start_maps"), "5");
        eventually("the rewrite", || info(client, "aof_rewrite_in_progress") == "0");
        drop(server);
        std::fs::remove_file(site.path("pando.pool")).expect("no pool");
        let server = site.start();
        check(&mut server.connect());
        assert_eq!(info(&mut server.connect(), "pando_start_maps"), "0");
    }
}

#[test]
fn files_have_precedence_without_a_pool_and_when_the_operator_says_so() {
    let site = Site::new(&["--save", "1000 1000"]);
    let server = site.start();
    let client = &mut server.connect();
    fill(client);
    assert_eq!(say(client, "SAVE"), "OK");
    assert_eq!(say(client, "PANDO.SET m c 3"), "1");
    drop(server);
    // The pool has the newest write, and the file does not.
    let server = site.start_with(&["--pando.save-after-start", "no"]);
    assert_eq!(say(&mut server.connect(), "PANDO.GET m c"), "3");
    drop(server);
    // With `pando.restore` the state of the file comes back, and the old pool is kept aside.
    std::fs::copy(site.path("dump.rdb"), site.path("kept.rdb")).expect("a copy");
    let server = site.start_with(&["--pando.restore", "yes", "--dbfilename", "kept.rdb"]);
    let client = &mut server.connect();
    assert!(site.path("pando.pool.old").is_file());
    check(client);
    // A clean end and a start: the pool has precedence, although the file is of the old pool.
    let _ = client.ask(&words("SHUTDOWN NOSAVE"));
    drop(server);
    let server = site.start_with(&["--dbfilename", "kept.rdb"]);
    assert_eq!(info(&mut server.connect(), "pando_start_maps"), "5");
}

#[test]
fn a_file_of_another_pool_is_refused_with_both_ways_out() {
    let (site, other) = (Site::new(&["--save", "1000 1000"]), Site::new(&["--save", "1000 1000"]));
    for site in [&site, &other] {
        let server = site.start();
        fill(&mut server.connect());
        assert_eq!(say(&mut server.connect(), "SAVE"), "OK");
    }
    std::fs::copy(other.path("dump.rdb"), site.path("dump.rdb")).expect("a copy");
    let log = site.refused(&[]);
    assert!(log.contains("is the pool"), "{log}");
    assert!(log.contains("move the files of the server away"), "{log}");
    assert!(log.contains("set pando.restore yes for one start"), "{log}");
    // Both ways work.
    std::fs::rename(site.path("dump.rdb"), site.path("away.rdb")).expect("a rename");
    check(&mut site.start().connect());
    let _ = std::fs::rename(site.path("away.rdb"), site.path("dump.rdb"));
    check(&mut site.start_with(&["--pando.restore", "yes"]).connect());
}

/// A pool that a file was loaded into does not go on with a later file of the same origin: it lacks
/// what was written in between.
#[test]
fn a_later_file_of_an_origin_that_was_loaded_once_is_refused() {
    let (origin, site) = (Site::new(&["--save", "1000 1000"]), Site::new(&["--save", "1000 1000"]));
    let server = origin.start();
    let client = &mut server.connect();
    fill(client);
    assert_eq!(say(client, "SAVE"), "OK");
    std::fs::copy(origin.path("dump.rdb"), site.path("dump.rdb")).expect("a copy");
    for _ in 0..2 {
        check(&mut site.start_with(&["--pando.save-after-start", "no"]).connect());
    }
    assert_eq!(say(client, "PANDO.SET m later 1"), "1");
    assert_eq!(say(client, "SAVE"), "OK");
    std::fs::copy(origin.path("dump.rdb"), site.path("dump.rdb")).expect("a copy");
    let log = site.refused(&[]);
    assert!(log.contains("was not loaded into"), "{log}");
}

/// A supervisor starts the server again, with the same parameters.
#[test]
fn a_restore_that_fails_twice_keeps_the_pool_that_it_moved_aside() {
    let site = Site::new(&["--save", "1000 1000"]);
    let server = site.start();
    let client = &mut server.connect();
    fill(client);
    assert_eq!(say(client, "SAVE"), "OK");
    assert_eq!(say(client, "PANDO.SET m newest 1"), "1");
    drop(server);
    let whole = std::fs::read(site.path("dump.rdb")).expect("the file");
    std::fs::write(site.path("dump.rdb"), &whole[..whole.len() / 2]).expect("a part");
    for _ in 0..2 {
        site.refused(&["--pando.restore", "yes"]);
    }
    std::fs::remove_file(site.path("dump.rdb")).expect("no file");
    std::fs::rename(site.path("pando.pool.old"), site.path("pando.pool")).expect("a rename");
    let server = site.start();
    assert_eq!(say(&mut server.connect(), "PANDO.GET m newest"), "1");
}

#[test]
fn an_older_copy_of_the_pool_is_refused() {
    let site = Site::new(&["--save", "1000 1000"]);
    let server = site.start();
    fill(&mut server.connect());
    drop(server);
    std::fs::copy(site.path("pando.pool"), site.path("copy.pool")).expect("a copy");
    let server = site.start_with(&["--pando.save-after-start", "no"]);
    assert_eq!(say(&mut server.connect(), "SAVE"), "OK");
    drop(server);
    std::fs::rename(site.path("copy.pool"), site.path("pando.pool")).expect("a rename");
    let log = site.refused(&[]);
    assert!(log.contains("the pool is an older copy"), "{log}");
}

#[test]
fn two_servers_do_not_share_a_pool_and_a_node_needs_the_append_only_file() {
    let site = Site::with_aof();
    let _server = site.start();
    let other = Site::with_aof();
    let path = site.path("pando.pool").display().to_string();
    let log = other.refused(&["--pando.pool", &path]);
    assert!(log.contains("no start: "), "{log}");
    let log = other.refused(&["--pando.pool", &path, "--pando.restore", "yes"]);
    assert!(log.contains("no start: "), "{log}");
    assert!(site.path("pando.pool").is_file());
    let node = Site::new(&["--save", "", "--appendonly", "no"]);
    let log = node.refused(&["--replicaof", "127.0.0.1 1"]);
    assert!(log.contains("needs `appendonly yes`"), "{log}");
    std::fs::write(node.path("pando.pool"), "something else").expect("a file");
    let log = node.refused(&[]);
    assert!(log.contains("pando.restore yes"), "{log}");
}

/// MODULE LOAD: commands right behind it see the maps of the pool, and their writes stay. A server
/// that has keys already is not mixed with a pool.
#[test]
fn a_module_that_is_loaded_later_serves_the_pool_at_once_or_refuses() {
    let site = Site::new(&["--save", "", "--pando.save-after-start", "no"]);
    let server = site.start();
    assert_eq!(say(&mut server.connect(), "PANDO.SET m a 1"), "1");
    drop(server);
    let plain = Site::new(&["--save", ""]);
    std::fs::rename(site.path("pando.pool"), plain.path("pando.pool")).expect("a rename");
    let load = format!("MODULE LOAD {}", module().display());
    let server = plain.start_without_module();
    let client = &mut server.connect();
    client.say("SELECT 3");
    client.say("SET text 1");
    assert!(client.say(&load).is_error());
    assert!(plain.log().contains("the server has 1 keys already"), "{}", plain.log());
    assert_eq!(say(client, "DEL text"), "1");
    let lines = [load.as_str(), "SELECT 0", "PANDO.GET m a", "PANDO.SET m b 2", "PANDO.COUNT m"];
    let commands: Vec<_> = lines.iter().map(|line| words(line)).collect();
    client.send_all(commands.iter().map(Vec::as_slice)).expect("sent");
    let mut replies = Vec::new();
    for _ in &lines {
        replies.push(crate::server::text(&client.receive().expect("a reply").value));
    }
    assert_eq!(replies, ["OK", "OK", "1", "1", "2"], "{}", plain.log());
    drop(server);
    std::fs::rename(plain.path("pando.pool"), site.path("pando.pool")).expect("a rename");
    assert_eq!(say(&mut site.start().connect(), "PANDO.RANGE m - +"), "a 1 b 2");
}

/// A pool of another program is refused, and no map is made in it.
#[test]
fn a_pool_of_another_program_stays_as_it_is() {
    let site = Site::with_aof();
    let options = pando::PoolOptions::new();
    let pool = pando::Pool::create(site.path("pando.pool"), &options).expect("a pool");
    pool.map("trees").expect("a map");
    pool.close().expect("closed");
    let log = site.refused(&[]);
    assert!(log.contains("set pando.restore yes for one start"), "{log}");
    let pool = pando::Pool::open(site.path("pando.pool"), &options).expect("the pool");
    let names: Vec<_> = pool.maps().expect("maps").into_iter().map(|map| map.name).collect();
    assert_eq!(names, ["trees"]);
}

/// Redis does not repeat a rewrite that has failed. Until one succeeds, what the append-only file
/// gets does not follow from what it has.
#[test]
fn a_rewrite_that_fails_after_a_start_is_repeated() {
    let site = Site::with_aof();
    let server = site.start_with(&["--pando.save-after-start", "no"]);
    let client = &mut server.connect();
    assert_eq!(say(client, "SET m text"), "OK");
    std::fs::copy(site.path(PART), site.path("old")).expect("a copy");
    assert_eq!(say(client, "DEL m"), "1");
    assert_eq!(say(client, "PANDO.SET m a 1"), "1");
    assert_eq!(info(client, "pando_save_pending"), "0");
    drop(server);
    std::fs::rename(site.path("old"), site.path(PART)).expect("the old file");
    site.fail("save");
    let server = site.start();
    let client = &mut server.connect();
    eventually("a failure", || info(client, "aof_last_bgrewrite_status") == "err");
    assert_eq!(info(client, "pando_save_pending"), "1");
    eventually("the line", || site.log().contains("the next attempt is in 1 s"));
    site.fail("");
    eventually("the repetition", || info(client, "pando_save_pending") == "0");
    assert_eq!(info(client, "aof_last_bgrewrite_status"), "ok");
    assert_eq!(say(client, "PANDO.SET m b 2"), "1");
    drop(server);
    std::fs::remove_file(site.path("pando.pool")).expect("no pool");
    let server = site.start();
    assert_eq!(say(&mut server.connect(), "PANDO.RANGE m - +"), "a 1 b 2");
}

/// Redis refuses writes after a failed BGSAVE, until one succeeds.
#[test]
fn a_bgsave_that_fails_after_a_start_is_repeated() {
    let site = Site::new(&["--save", "1000 1000"]);
    let server = site.start();
    assert_eq!(say(&mut server.connect(), "PANDO.SET m a 1"), "1");
    drop(server);
    site.fail("save");
    // A server that refuses writes refuses PING too, by which the start is noticed.
    let server = site.start_with(&["--stop-writes-on-bgsave-error", "no"]);
    let client = &mut server.connect();
    eventually("a failure", || info(client, "rdb_last_bgsave_status") == "err");
    assert_eq!(say(client, "CONFIG SET stop-writes-on-bgsave-error yes"), "OK");
    assert!(say(client, "PANDO.SET m b 2").starts_with("MISCONF"));
    assert_eq!(info(client, "pando_save_pending"), "1");
    site.fail("");
    eventually("the repetition", || info(client, "pando_save_pending") == "0");
    assert_eq!(say(client, "PANDO.SET m b 2"), "1");
    drop(server);
    std::fs::remove_file(site.path("pando.pool")).expect("no pool");
    let server = site.start();
    assert_eq!(say(&mut server.connect(), "PANDO.RANGE m - +"), "a 1");
}

/// The files may have maps although the pool has none.
#[test]
fn files_with_maps_that_the_pool_has_lost_are_written_anew() {
    let site = Site::with_aof();
    let server = site.start();
    let client = &mut server.connect();
    assert_eq!(say(client, "PANDO.SET m a 1"), "1");
    std::fs::copy(site.path(PART), site.path("old")).expect("a copy");
    assert_eq!(say(client, "DEL m"), "1");
    drop(server);
    std::fs::rename(site.path("old"), site.path(PART)).expect("the old file");
    let server = site.start();
    let client = &mut server.connect();
    eventually("the rewrite", || info(client, "aof_rewrite_in_progress") == "0");
    assert_eq!(say(client, "PANDO.SET m b 2"), "1");
    drop(server);
    std::fs::remove_file(site.path("pando.pool")).expect("no pool");
    let server = site.start();
    assert_eq!(say(&mut server.connect(), "PANDO.RANGE m - +"), "b 2");
}

/// A pool with the map `m`, and a payload of the map.
fn pool_and_payload() -> (Site, Vec<u8>) {
    let site = Site::new(&["--save", "", "--pando.save-after-start", "no"]);
    let server = site.start();
    let client = &mut server.connect();
    assert_eq!(say(client, "PANDO.SET m a 1"), "1");
    let payload = client.say("DUMP m").bytes().to_vec();
    drop(server);
    (site, payload)
}

/// Commands right behind MODULE LOAD act on the maps of the pool, and their effect stays.
#[test]
fn commands_right_behind_module_load_find_the_maps_of_the_pool() {
    let load = format!("MODULE LOAD {}", module().display());
    for (command, look, reply) in [
        ("FLUSHALL", "EXISTS m", "0"),
        ("RESTORE n 0", "PANDO.GET n a", "1"),
        ("RENAME m n", "PANDO.GET n a", "1"),
        ("COPY m n", "PANDO.GET n a", "1"),
        ("UNLINK m", "EXISTS m", "0"),
        ("EXPIREAT m 4000000000", "EXPIRETIME m", "4000000000"),
    ] {
        let (site, payload) = pool_and_payload();
        let plain = Site::new(&["--save", ""]);
        std::fs::rename(site.path("pando.pool"), plain.path("pando.pool")).expect("a rename");
        let server = plain.start_without_module();
        let client = &mut server.connect();
        let mut commands = [words(&load), words(command), words(look)];
        if command.starts_with("RESTORE") {
            commands[1].push(payload);
        }
        client.send_all(commands.iter().map(Vec::as_slice)).expect("sent");
        let replies = commands.map(|_| crate::server::text(&client.receive().expect("it").value));
        assert!(!replies[1].starts_with("ERR"), "{command}: {replies:?}");
        assert_eq!(replies[2], reply, "{command}: {replies:?}");
        drop(server);
        std::fs::rename(plain.path("pando.pool"), site.path("pando.pool")).expect("a rename");
        assert_eq!(say(&mut site.start().connect(), look), reply, "{command}");
    }
}

/// A replica that is connected gets no full sync when its primary, or itself, gets maps from a
/// pool.
#[test]
fn a_module_that_is_loaded_later_does_not_serve_a_pool_beside_replicas() {
    const AOF: &[&str] = &["--appendonly", "yes", "--save", "", "--repl-diskless-sync-delay", "0"];
    let load = format!("MODULE LOAD {}", module().display());
    let (first, second) = (Site::at_port(AOF), Site::at_port(AOF));
    let (origin, _) = pool_and_payload();
    for site in [&first, &second] {
        std::fs::copy(origin.path("pando.pool"), site.path("pando.pool")).expect("a copy");
    }
    let (primary, replica) = (first.start_without_module(), second.start_without_module());
    let (client, follower) = (&mut primary.connect(), &mut replica.connect());
    let port = first.port.expect("a port");
    assert_eq!(say(follower, &format!("REPLICAOF 127.0.0.1 {port}")), "OK");
    eventually("the full sync", || info(follower, "master_link_status") == "up");
    for (site, client) in [(&first, &mut *client), (&second, follower)] {
        assert!(client.say(&load).is_error());
        assert!(site.log().contains("would differ"), "{}", site.log());
        assert_eq!(say(client, "DBSIZE"), "0");
    }
    // A replica that has gone away may come back without a full sync.
    drop(replica);
    eventually("no replica", || info(client, "connected_slaves") == "0");
    assert!(client.say(&load).is_error());
    assert_eq!(say(client, "CONFIG SET repl-backlog-ttl 1"), "OK");
    eventually("no backlog", || info(client, "repl_backlog_active") == "0");
    assert_eq!(say(client, &load), "OK");
    assert_eq!(say(client, "PANDO.GET m a"), "1");
    // The append-only file gets the maps too.
    eventually("the rewrite", || info(client, "pando_save_pending") == "0");
    drop(primary);
    std::fs::remove_file(first.path("pando.pool")).expect("no pool");
    assert_eq!(say(&mut first.start().connect(), "PANDO.GET m a"), "1");
}
