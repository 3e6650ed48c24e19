//! Full sync, replication, and a cluster.

use crate::server::{Site, eventually, info, say};
use crate::wire::words;

const AOF: &[&str] = &["--appendonly", "yes", "--save", "", "--repl-diskless-sync-delay", "0"];

#[test]
fn a_replica_gets_all_maps_follows_and_is_equal_after_kills() {
    let (first, second) = (Site::at_port(AOF), Site::at_port(AOF));
    let primary = first.start();
    let client = &mut primary.connect();
    for map in 0..5 {
        let mut command = words(&format!("PANDO.MSET m{map}"));
        for number in 0..1000 {
            command.extend([format!("{number:05}").into_bytes(), vec![b'v'; 100]]);
        }
        client.ask(&command).expect("a reply");
    }
    let replica_of = format!("127.0.0.1 {}", first.port.expect("a port"));
    let options = ["--replicaof", &replica_of];
    let mut replica = second.start_with(&options);
    let is_online = |replica: &crate::server::Server| {
        info(&mut replica.connect(), "master_link_status") == "up"
    };
    eventually("the full sync", || is_online(&replica));
    for round in 0..3 {
        for line in [
            "PANDO.INCRBY m0 counter 1",
            "PANDO.CAS m1 00000 IF x SET y",
            "PANDO.CAS m1 cas IFABSENT SET y",
            "PANDO.POPMIN m2 3",
            "RENAME m3 m9",
            "RENAME m9 m3",
            "COPY m4 m5 REPLACE",
            "PANDO.APPLY 2 m0 m1 RECEIPT s 7 SET 1 a 1 SET 2 b 2",
            "EXPIRE m5 1000",
            "PANDO.SET brief a 1",
            "PANDO.POPMAX brief",
        ] {
            client.say(line);
        }
        eventually("WAIT", || say(client, "WAIT 1 5000") == "1");
        let digest = say(client, "DEBUG DIGEST");
        eventually("equality", || say(&mut replica.connect(), "DEBUG DIGEST") == digest);
        for map in 0..6 {
            let line = format!("PANDO.STAT m{map} CHECKSUM");
            let strip = |text: String| {
                let (head, tail) = text
                    .split_once(" number ")
                    .map(|(head, tail)| (head.to_owned(), tail.to_owned()))
                    .expect("figures");
                (head, tail.split_once(' ').map(|(_, sum)| sum.to_owned()))
            };
            assert_eq!(strip(say(client, &line)), strip(say(&mut replica.connect(), &line)));
        }
        if round < 2 {
            // A kill of the replica: it takes its maps from the pool, and then a full sync.
            drop(replica);
            replica = second.start_with(&options);
            eventually("another full sync", || is_online(&replica));
        }
    }
    // The replica's pool is complete: without its primary it starts with all maps.
    let digest = say(client, "DEBUG DIGEST");
    drop(replica);
    let alone = second.start();
    assert_eq!(say(&mut alone.connect(), "DEBUG DIGEST"), digest);
}

/// A replica that is killed while it loads a full sync has an incomplete pool, which the next start
/// does not take its maps from. It gets them by another full sync.
#[test]
fn a_replica_that_is_killed_in_a_full_sync_is_equal_after_the_next_one() {
    let first = Site::at_port(AOF);
    let primary = first.start();
    let client = &mut primary.connect();
    for map in 0..20 {
        client.say(&format!("PANDO.MSET m{map} a {map} b 1"));
    }
    let digest = say(client, "DEBUG DIGEST");
    let replica_of = format!("127.0.0.1 {}", first.port.expect("a port"));
    let options = ["--replicaof", &replica_of];
    for place in ["flush after commit:1", "fill:7", "names after commit:1"] {
        let second = Site::at_port(AOF);
        // It has data of its own before.
        let alone = second.start_with(&["--appendfsync", "always"]);
        alone.connect().say("PANDO.SET own a 1");
        alone.connect().say("SET text 1");
        drop(alone);
        second.dies(place, &options);
        // Without its primary it has its old data, of all types.
        let alone = second.start();
        assert!(second.log().contains("a load of files was interrupted"), "{place}");
        assert_eq!(say(&mut alone.connect(), "PANDO.GET own a"), "1", "{place}");
        assert_eq!(say(&mut alone.connect(), "GET text"), "1", "{place}");
        drop(alone);
        let replica = second.start_with(&options);
        eventually("the full sync", || info(&mut replica.connect(), "master_link_status") == "up");
        assert_eq!(say(&mut replica.connect(), "DEBUG DIGEST"), digest, "{place}");
        eventually("the removal of garbage", || {
            info(&mut replica.connect(), "pando_garbage") == "0"
        });
    }
}

/// A replica takes values of its primary beyond its own limits. If it cannot, it ends: Redis would
/// go on without the value.
#[test]
fn a_replica_makes_each_value_of_its_primary_or_ends() {
    let (first, second) = (Site::at_port(AOF), Site::at_port(AOF));
    let primary = first.start();
    let client = &mut primary.connect();
    let replica_of = format!("127.0.0.1 {}", first.port.expect("a port"));
    let options = ["--replicaof", &replica_of];
    let restore = |client: &mut crate::wire::Client, name: &str| {
        let mut command = words(&format!("RESTORE {name} 0"));
        command.push(client.say("DUMP m").bytes().to_vec());
        assert_eq!(client.ask(&command).expect("a reply").value.bytes(), b"OK");
    };
    let replica = second.start_with(&options);
    let follower = &mut replica.connect();
    eventually("the full sync", || info(follower, "master_link_status") == "up");
    assert_eq!(say(follower, "CONFIG SET pando.max-bytes 1kb"), "OK");
    assert_eq!(say(client, "PANDO.SET m a 1"), "1");
    assert_eq!(say(client, "COPY m copied"), "1");
    restore(client, "restored");
    eventually("WAIT", || say(client, "WAIT 1 5000") == "1");
    assert_eq!(say(follower, "EXISTS m copied restored"), "3");
    assert_eq!(say(follower, "DEBUG DIGEST"), say(client, "DEBUG DIGEST"));
    drop(replica);
    for is_copy in [true, false] {
        let replica = second.start_with(&options);
        let follower = &mut replica.connect();
        eventually("the full sync", || info(follower, "master_link_status") == "up");
        second.fail("fill");
        match is_copy {
            true => assert_eq!(say(client, "COPY m other"), "1"),
            false => restore(client, "another"),
        }
        eventually("the end", || follower.ask(&words("PING")).is_err());
        assert!(second.log().contains("to go on without it would lose data"), "{}", second.log());
        second.fail("");
    }
}

/// Redis lets no module refuse a replica, so the log tells of one that a restart would harm.
#[test]
fn a_primary_without_the_append_only_file_warns_of_its_replicas() {
    let (first, second) = (Site::at_port(&["--save", "", AOF[4], AOF[5]]), Site::at_port(AOF));
    let primary = first.start();
    let replica_of = format!("127.0.0.1 {}", first.port.expect("a port"));
    let replica = second.start_with(&["--replicaof", &replica_of]);
    eventually("the full sync", || info(&mut replica.connect(), "master_link_status") == "up");
    eventually("the warning", || first.log().contains("primary without `appendonly yes`"));
    drop(primary);
}

/// A key that has another type on a replica cannot take a write of the primary.
#[test]
fn a_replica_whose_key_has_another_type_ends() {
    let (first, second) = (Site::at_port(AOF), Site::at_port(AOF));
    let primary = first.start();
    let replica_of = format!("127.0.0.1 {}", first.port.expect("a port"));
    let replica = second.start_with(&["--replicaof", &replica_of, "--replica-read-only", "no"]);
    let follower = &mut replica.connect();
    eventually("the full sync", || info(follower, "master_link_status") == "up");
    assert_eq!(say(follower, "SET key text"), "OK");
    // Clients of a replica that takes writes may send anything.
    assert!(say(follower, "PANDO.SET key a 1").starts_with("WRONGTYPE"));
    assert!(follower.say("RESTORE other 0 payload").is_error());
    assert_eq!(say(&mut primary.connect(), "PANDO.SET key a 1"), "1");
    eventually("the end", || follower.ask(&words("PING")).is_err());
    assert!(second.log().contains("cannot be applied"), "{}", second.log());
}

/// On a replica, nothing deletes a key that has expired but the primary.
#[test]
fn a_replica_starts_with_maps_that_have_expired_meanwhile() {
    let (first, second) = (Site::at_port(AOF), Site::at_port(AOF));
    let primary = first.start();
    let client = &mut primary.connect();
    let replica_of = format!("127.0.0.1 {}", first.port.expect("a port"));
    let options = ["--replicaof", &replica_of];
    let mut replica = second.start_with(&options);
    let link = |replica: &crate::server::Server| info(&mut replica.connect(), "master_link_status");
    eventually("the full sync", || link(&replica) == "up");
    for line in ["PANDO.SET short a 1", "PEXPIRE short 1500", "PANDO.SET long a 1"] {
        assert_eq!(say(client, line), "1");
    }
    eventually("the maps", || say(&mut replica.connect(), "DBSIZE") == "2");
    drop(replica);
    // The primary does not answer, so that no full sync replaces the maps.
    drop(primary);
    std::thread::sleep(std::time::Duration::from_secs(2));
    replica = second.start_with(&options);
    let client = &mut replica.connect();
    assert_eq!(say(client, "PANDO.GET long a"), "1");
    assert_eq!(say(client, "PANDO.GET short a"), "-");
    assert_eq!(say(client, "BGREWRITEAOF"), "Background append only file rewriting started");
    eventually("the rewrite", || info(client, "aof_rewrite_in_progress") == "0");
    assert_eq!(info(client, "aof_last_bgrewrite_status"), "ok");
}

/// On a replica that takes writes, a key that has expired is there until a write removes it.
#[test]
fn a_write_to_an_expired_key_of_a_replica_survives_a_kill() {
    let (first, second) = (Site::at_port(AOF), Site::at_port(AOF));
    let primary = first.start();
    let client = &mut primary.connect();
    let replica_of = format!("127.0.0.1 {}", first.port.expect("a port"));
    let replica = second.start_with(&["--replicaof", &replica_of, "--replica-read-only", "no"]);
    let follower = &mut replica.connect();
    eventually("the full sync", || info(follower, "master_link_status") == "up");
    let writes = [
        "PANDO.SET m0 b 2",
        "PANDO.APPLY 1 m1 SET 1 b 2",
        "PANDO.INCRBY m2 b 2",
        "PANDO.CAS m3 b IFABSENT SET 2",
    ];
    for map in 0..writes.len() {
        assert_eq!(say(client, &format!("PANDO.SET m{map} a 1")), "1");
        assert_eq!(say(client, &format!("PEXPIRE m{map} 1500")), "1");
    }
    eventually("the maps", || say(follower, "DBSIZE") == "4");
    // Without its primary, the replica gets no DEL.
    drop(primary);
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(say(follower, "DBSIZE"), "4");
    let check = |client: &mut crate::wire::Client| {
        for (map, write) in writes.iter().enumerate() {
            assert_eq!(say(client, &format!("PANDO.RANGE m{map} - +")), "b 2", "{write}");
        }
    };
    for write in writes {
        assert!(!follower.say(write).is_error(), "{write}");
    }
    check(follower);
    drop(replica);
    check(&mut second.start().connect());
}

/// The limits of a replica that takes writes hold for its clients, and not for its primary.
#[test]
fn a_full_replica_refuses_values_of_its_clients_and_goes_on() {
    let (first, second) = (Site::at_port(AOF), Site::at_port(AOF));
    let primary = first.start();
    let client = &mut primary.connect();
    let replica_of = format!("127.0.0.1 {}", first.port.expect("a port"));
    let replica = second.start_with(&["--replicaof", &replica_of, "--replica-read-only", "no"]);
    let follower = &mut replica.connect();
    eventually("the full sync", || info(follower, "master_link_status") == "up");
    assert_eq!(say(client, "PANDO.SET m a 1"), "1");
    let mut restore = words("RESTORE own 0");
    restore.push(client.say("DUMP m").bytes().to_vec());
    let copy = words("COPY m own");
    eventually("WAIT", || say(client, "WAIT 1 5000") == "1");
    for place in ["", "fill"] {
        match place {
            "" => assert_eq!(say(follower, "CONFIG SET pando.max-bytes 1kb"), "OK"),
            place => second.fail(place),
        }
        for command in [&restore, &copy] {
            assert!(follower.ask(command).expect("a reply").value.is_error(), "{place:?}");
        }
        assert_eq!(say(follower, "EXISTS own"), "0");
        if place.is_empty() {
            // Several commands at once, with others behind the one that is looked at.
            let mut theirs = restore.clone();
            theirs[1] = b"restored".to_vec();
            let batch = [words("COPY m copied"), theirs, words("MULTI"), words("COPY m other")];
            let batch = [&batch[..], &[words("EXEC"), words("SET text 1")]].concat();
            client.send_all(batch.iter().map(Vec::as_slice)).expect("sent");
            for command in &batch {
                assert!(!client.receive().expect("a reply").value.is_error(), "{command:?}");
            }
            eventually("WAIT", || say(client, "WAIT 1 5000") == "1");
            assert_eq!(say(follower, "EXISTS copied restored other text"), "4");
            assert_eq!(say(follower, "CONFIG SET pando.max-bytes 0"), "OK");
        }
    }
    second.fail("");
    assert_eq!(follower.ask(&restore).expect("a reply").value.bytes(), b"OK");
    second.fail("fill");
    assert_eq!(say(client, "COPY m another"), "1");
    eventually("the end", || follower.ask(&words("PING")).is_err());
    assert!(second.log().contains("to go on without it would lose data"), "{}", second.log());
}

/// A full sync would write the files of a replica anew. One that becomes a primary gets none.
#[test]
fn a_replica_that_is_promoted_after_a_start_writes_its_files_anew() {
    let site = Site::at_port(AOF);
    let server = site.start();
    assert_eq!(say(&mut server.connect(), "PANDO.SET m a 1"), "1");
    drop(server);
    let server = site.start_with(&["--replicaof", "127.0.0.1 1"]);
    let client = &mut server.connect();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(info(client, "aof_rewrites"), "0");
    assert_eq!(say(client, "REPLICAOF NO ONE"), "OK");
    eventually("a rewrite", || info(client, "aof_rewrites") == "1");
    eventually("its end", || info(client, "pando_save_pending") == "0");
}
