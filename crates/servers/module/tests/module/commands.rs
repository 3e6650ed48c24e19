//! Each command, its replies and its errors.

use std::time::{Duration, Instant};

use crate::server::{Site, eventually, info, say, text};
use crate::wire::{Value, words};

#[test]
fn records_are_set_read_and_removed_in_order() {
    let site = Site::with_aof();
    let server = site.start();
    let client = &mut server.connect();
    for (line, reply) in [
        ("PANDO.SET m b 2", "1"),
        ("PANDO.SET m b 3", "0"),
        ("PANDO.MSET m a 1 c 4 a 5", "2"),
        ("PANDO.GET m a", "5"),
        ("PANDO.GET m x", "-"),
        ("PANDO.GET none x", "-"),
        ("PANDO.MGET m a x c", "5 - 4"),
        ("PANDO.RANGE m - +", "a 5 b 3 c 4"),
        ("PANDO.RANGE m (a [c LIMIT 1", "b 3"),
        ("PANDO.RANGE m [b (c KEYS", "b"),
        ("PANDO.RANGE m [c [a", ""),
        ("PANDO.REVRANGE m + - KEYS", "c b a"),
        ("PANDO.REVRANGE m (c -", "b 3 a 5"),
        ("PANDO.COUNT m", "3"),
        ("PANDO.COUNT m (a +", "2"),
        ("PANDO.COUNT none", "0"),
        ("PANDO.FIRST m", "a 5"),
        ("PANDO.LAST m", "c 4"),
        ("PANDO.FIRST none", "-"),
        ("PANDO.SCAN m 0 COUNT 2 KEYS", ">b a b"),
        ("PANDO.SCAN m >b COUNT 2", "0 c 4"),
        ("PANDO.INCRBY m b -4", "-1"),
        ("PANDO.INCRBY m n 9223372036854775807", "9223372036854775807"),
        ("PANDO.INCRBY m n 1", "ERR increment or decrement would overflow"),
        ("PANDO.CAS m a IF 4 SET 6", "0"),
        ("PANDO.CAS m a IF 5 SET 6", "1"),
        ("PANDO.CAS m z IFABSENT SET 1", "1"),
        ("PANDO.CAS m z IFABSENT SET 2", "0"),
        ("PANDO.CAS m z IF 1 DEL", "1"),
        ("PANDO.DEL m n x", "1"),
        ("PANDO.POPMIN m", "a 6"),
        ("PANDO.POPMAX m 5", "c 4 b -1"),
        ("EXISTS m", "0"),
        ("PANDO.POPMIN m", ""),
        ("SET text 1", "OK"),
        ("PANDO.SET text a 1", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("PANDO.SET m a", "ERR wrong number of arguments for 'pando.set' command"),
        ("PANDO.RANGE m a b", "ERR min or max is neither -, + nor a key behind [ or ("),
        ("PANDO.SCAN m x", "ERR a cursor is 0, or a text that PANDO.SCAN has returned"),
        ("PANDO.INCRBY m a 01", "ERR value is not an integer or out of range"),
        ("COMMAND GETKEYS PANDO.APPLY 2 k1 k2 SET 1 x y", "k1 k2"),
        ("COMMAND GETKEYS PANDO.LOAD k1 x k2 y", "k1 k2"),
        ("PANDO.SET m a 1", "1"),
        ("TYPE m", "pando-map"),
    ] {
        assert_eq!(say(client, line), reply, "{line}");
    }
    for bytes in [(16 << 10) + 1, 40_000] {
        let long = vec![b'x'; bytes];
        for (command, reply) in [("PANDO.GET", "-"), ("PANDO.MGET", "-"), ("PANDO.DEL", "0")] {
            let found =
                client.ask(&[command.into(), b"m".to_vec(), long.clone()]).expect("a reply");
            assert_eq!(text(&found.value), reply, "{command}");
        }
    }
    let long = vec![b'x'; (16 << 10) + 1];
    let refused = client.ask(&[b"PANDO.SET".to_vec(), b"m".to_vec(), long, b"".to_vec()]);
    assert!(refused.expect("a reply").value.is_error());
}

#[test]
fn replies_of_resp3_are_maps_and_long_reads_are_as_short_ones() {
    let site = Site::with_aof();
    let server = site.start();
    let client = &mut server.connect();
    let mut load = words("PANDO.MSET m");
    for number in 0..3000 {
        load.extend([format!("{number:04}").into_bytes(), b"v".to_vec()]);
    }
    assert_eq!(client.ask(&load).expect("a reply").value.number(), Some(3000));
    client.say("HELLO 3");
    let all = client.say("PANDO.RANGE m - +");
    assert!(matches!(&all, Value::Values(b'%', values) if values.len() == 6000), "{all:?}");
    assert_eq!(say(client, "PANDO.COUNT m [1000 (2500"), "1500");
    // In MULTI the same reads run on the main thread.
    client.say("MULTI");
    client.say("PANDO.RANGE m - +");
    client.say("PANDO.STAT m CHECKSUM");
    let both = client.say("EXEC");
    assert_eq!(both.values()[0], all);
    assert_eq!(both.values()[1], client.say("PANDO.STAT m CHECKSUM"));
    // Few records that are long, and more reads at once than may wait.
    for field in ["l1", "l2", "l3"] {
        let set = [b"PANDO.SET".to_vec(), b"long".to_vec(), field.into(), vec![b'v'; 500_000]];
        assert!(!client.ask(&set).expect("a reply").value.is_error());
    }
    let whole = client.say("PANDO.RANGE long - +");
    assert!(matches!(&whole, Value::Values(b'%', values) if values.len() == 6), "three records");
    let some = client.say("PANDO.MGET long l3 x l1 l2");
    let lengths: Vec<_> = some.values().iter().map(|value| value.bytes().len()).collect();
    assert_eq!(lengths, [500_000, 0, 500_000, 500_000]);
    let others: Vec<_> = (0..400)
        .map(|_| {
            let mut other = server.connect();
            other.send_all([&words("PANDO.COUNT m - +")[..]].into_iter()).expect("sent");
            other
        })
        .collect();
    for mut other in others {
        assert_eq!(other.receive().expect("a reply").value.number(), Some(3000));
    }
    let mut seen = 0;
    let mut cursor = "0".to_owned();
    loop {
        let reply = client.say(&format!("PANDO.SCAN m {cursor} COUNT 700 KEYS"));
        seen += reply.values()[1].values().len();
        cursor = String::from_utf8_lossy(reply.values()[0].bytes()).into_owned();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen, 3000);
}

#[test]
fn a_batch_with_a_receipt_is_applied_once() {
    let site = Site::with_aof();
    let mut server = site.start();
    let batch = "PANDO.APPLY 2 {t}a {t}b RECEIPT s 5 SET 1 x 1 SET 2 y 2 IFABSENT 1 x";
    let client = &mut server.connect();
    assert_eq!(say(client, batch), "APPLIED");
    assert_eq!(say(client, "PANDO.DEL {t}a x"), "1");
    assert_eq!(say(client, batch), "REPEATED");
    assert_eq!(say(client, "PANDO.GET {t}a x"), "-");
    let other = "PANDO.APPLY 1 {t}a RECEIPT s 5 SET 1 x 2";
    assert!(say(client, other).starts_with("ERR the session's sequence 5"));
    assert!(say(client, "PANDO.APPLY 1 {t}a RECEIPT s 4 SET 1 x 2").starts_with("ERR"));
    assert_eq!(say(client, "PANDO.APPLY 1 {t}b IF 1 y 3 SET 1 y 4"), "CONDITION");
    assert_eq!(
        say(client, "PANDO.APPLY 1 {t}b IF 3 y 3 SET 1 y 4"),
        "ERR the index of a key is 3; allowed are 1 to 1"
    );
    // The receipt moves with the key, keeps it alive, and survives a kill, a dump and a rewrite.
    assert_eq!(say(client, "RENAME {t}a {t}c"), "OK");
    assert_eq!(say(client, "EXISTS {t}c"), "1");
    assert_eq!(say(client, "COPY {t}c {t}a"), "1");
    drop(server);
    server = site.start();
    let client = &mut server.connect();
    assert_eq!(say(client, batch), "REPEATED");
    // Only the newest 128 receipts of a session stay.
    for sequence in 6..140 {
        let line = format!("PANDO.APPLY 1 {{t}}a RECEIPT s {sequence} SET 1 n {sequence}");
        assert_eq!(say(client, &line), "APPLIED");
    }
    assert!(say(client, "PANDO.STAT {t}a").contains("receipts 128"));
    assert!(say(client, batch).starts_with("ERR the session's sequence 5"));
}

#[test]
fn a_pool_or_policy_that_has_no_room_for_a_map_refuses_it_before_any_effect() {
    let site = Site::with_aof();
    let server = site.start();
    let client = &mut server.connect();
    assert_eq!(say(client, "PANDO.SET m a 1"), "1");
    assert_eq!(say(client, "CONFIG SET pando.max-bytes 1kb"), "OK");
    let size = info(client, "aof_current_size");
    assert!(say(client, "PANDO.SET m b 1").starts_with("OOM the pool uses "));
    assert_eq!(say(client, "PANDO.GET m b"), "-");
    assert_eq!(info(client, "aof_current_size"), size, "a refused write is not replicated");
    assert_eq!(say(client, "PANDO.DEL m x"), "0");
    assert_eq!(info(client, "aof_current_size"), size, "a write without effect is not replicated");
    let dump = client.say("DUMP m").bytes().to_vec();
    assert_eq!(say(client, "CONFIG SET pando.max-bytes 0"), "OK");
    assert_eq!(say(client, "CONFIG SET maxmemory-policy allkeys-lru maxmemory 1gb"), "OK");
    assert!(say(client, "PANDO.SET n a 1").starts_with("ERR maxmemory-policy is allkeys-lru"));
    assert!(client.say("COPY m n").is_error());
    let mut restore = words("RESTORE n 0");
    restore.push(dump);
    assert!(client.ask(&restore).expect("a reply").value.is_error());
    assert_eq!(say(client, "EXISTS n"), "0");
    assert_eq!(say(client, "PANDO.SET m a 2"), "0");
    let warned = "the server may remove maps from now on";
    assert_eq!(site.log().matches(warned).count(), 1);
    assert_eq!(say(client, "CONFIG SET maxmemory 2gb"), "OK");
    assert_eq!(site.log().matches(warned).count(), 1, "once");
    assert_eq!(say(client, "CONFIG SET maxmemory-policy volatile-lru"), "OK");
    assert_eq!(say(client, "PANDO.SET n a 1"), "1");
}

#[test]
fn keyspace_events_and_watches_tell_of_changes() {
    let site = Site::with_aof();
    let server = site.start();
    let (client, listener) = (&mut server.connect(), &mut server.connect());
    client.say("CONFIG SET notify-keyspace-events KEA");
    listener.say("PSUBSCRIBE __keyevent@0__:*");
    client.say("PANDO.SET m a 1");
    client.say("PANDO.SET m a 1");
    client.say("PANDO.DEL m a");
    let mut events = Vec::new();
    for _ in 0..3 {
        let message = listener.receive().expect("a message").value;
        let channel = String::from_utf8_lossy(message.values()[2].bytes()).into_owned();
        events.push(channel.rsplit(':').next().unwrap_or_default().to_owned());
    }
    assert_eq!(events, ["pando.set", "pando.del", "del"]);
    client.say("WATCH m");
    server.connect().say("PANDO.SET m a 1");
    client.say("MULTI");
    client.say("PING");
    assert_eq!(say(client, "EXEC"), "-");
}

/// In a full pool, writes that add are refused, names still change, and deletes make room.
#[test]
fn a_full_pool_refuses_writes_and_takes_deletes_and_names() {
    let site = Site::with_aof();
    let server = site.start_with(&["--pando.pool-bytes", "24mb"]);
    let client = &mut server.connect();
    let large = |name: &str, bytes: usize| {
        let mut command = words(&format!("PANDO.MSET {name}"));
        for field in ["a", "b"] {
            command.extend([field.into(), vec![b'v'; bytes / 2]]);
        }
        command
    };
    assert_eq!(client.ask(&large("large", 5 << 20)).expect("a reply").value.number(), Some(2));
    let mut dump = words("RESTORE restored 0");
    dump.push(client.say("DUMP large").bytes().to_vec());
    // Each piece of a payload needs room, and a copy needs all of it.
    let number = |client: &mut _, field| info(client, field).parse::<u64>().expect("a number");
    let limit = number(client, "pando_used_bytes") + (1 << 20);
    assert_eq!(say(client, &format!("CONFIG SET pando.max-bytes {limit}")), "OK");
    for command in [&dump, &words("COPY large copy"), &large("new", 2 << 20)] {
        assert!(client.ask(command).expect("a reply").value.is_error());
    }
    assert_eq!(say(client, "EXISTS restored copy new"), "0");
    eventually("the removal of garbage", || info(client, "pando_garbage") == "0");
    assert_eq!(say(client, "CONFIG SET pando.max-bytes 0"), "OK");
    let mut full = None;
    for number in 0..100 {
        let mut command = words(&format!("PANDO.MSET m{number}"));
        for field in 0..50 {
            command.extend([format!("{field:03}").into_bytes(), vec![b'v'; 10_000]]);
        }
        let reply = client.ask(&command).expect("a reply").value;
        if reply.is_error() {
            assert!(reply.bytes().starts_with(b"OOM "), "{reply:?}");
            full = Some(number);
            break;
        }
    }
    let full = full.expect("the pool is full");
    assert!(full > 7, "{full} maps fill it");
    // Even if a little room is left, it is not for much.
    for command in [large("new", (79 << 20) / 10), words("COPY large copy"), dump] {
        let reply = client.ask(&command).expect("a reply").value;
        assert!(reply.is_error(), "{reply:?}");
    }
    // Most of the reserve of 8 MiB is left: blocks are longer than their records.
    assert!(
        number(client, "pando_used_bytes") <= number(client, "pando_allowed_bytes") + (1 << 20)
    );
    assert_eq!(say(client, "RENAME m0 renamed"), "OK");
    assert_eq!(say(client, "EXPIREAT m1 4000000000"), "1");
    assert_eq!(say(client, "PANDO.DEL m2 000"), "1");
    assert_eq!(say(client, "UNLINK m3 m4 m5"), "3");
    eventually("room", || say(client, "PANDO.SET new a 1") == "1");
    let digest = say(client, "DEBUG DIGEST");
    drop(server);
    let server = site.start();
    let client = &mut server.connect();
    assert_eq!(say(client, "DEBUG DIGEST"), digest);
    assert_eq!(say(client, "EXISTS m0 renamed new m3"), "2");
}

/// Rules of users: the keys of commands, and a category where the server has such calls.
#[test]
fn users_get_keys_and_a_category() {
    let site = Site::with_aof();
    let server = site.start();
    let client = &mut server.connect();
    let has_category = !client.say("ACL CAT pando").is_error();
    let commands = if has_category { "+@pando" } else { "+pando.get +pando.set +pando.apply" };
    assert_eq!(say(client, &format!("ACL SETUSER u on nopass {commands} %R~r:* %RW~w:*")), "OK");
    for (line, is_allowed) in [
        ("pando.get r:1 a", true),
        ("pando.set r:1 a b", false),
        ("pando.set w:1 a b", true),
        ("pando.apply 2 w:1 w:2 set 1 a b", true),
        ("pando.apply 2 w:1 r:2 set 1 a b", false),
    ] {
        assert_eq!(say(client, &format!("ACL DRYRUN u {line}")) == "OK", is_allowed, "{line}");
    }
    if has_category {
        assert!(say(client, "ACL CAT read").contains("pando.get"));
        assert!(say(client, "ACL CAT write").contains("pando.set"));
    }
}

/// Only the records that one commit may remove are read, however many are asked for.
#[test]
fn a_pop_of_too_many_bytes_is_refused_and_removes_nothing() {
    let site = Site::with_aof();
    let server = site.start();
    let client = &mut server.connect();
    for key in 0..6_u8 {
        let words = [b"PANDO.SET".to_vec(), b"m".to_vec(), vec![key], vec![key; 4 << 20]];
        assert_eq!(text(&client.ask(&words).expect("a reply").value), "1");
    }
    for command in ["PANDO.POPMIN m 6", "PANDO.POPMAX m 9223372036854775807"] {
        assert!(say(client, command).starts_with("ERR the first 4 records have more than 16 MiB"));
    }
    assert_eq!(say(client, "PANDO.COUNT m"), "6");
}

/// A command may name many keys, also the same ones again.
#[test]
fn a_batch_over_many_keys_is_applied_at_once() {
    let site = Site::with_aof();
    let server = site.start();
    let client = &mut server.connect();
    let mut command = vec![b"PANDO.APPLY".to_vec(), b"40000".to_vec()];
    command.extend((0..40_000).map(|key| format!("m{}", key % 20_000).into_bytes()));
    command.extend(["SET", "1", "a", "first"].map(|word| word.as_bytes().to_vec()));
    command.extend(["SET", "20001", "b", "again"].map(|word| word.as_bytes().to_vec()));
    assert_eq!(text(&client.ask(&command).expect("a reply").value), "APPLIED");
    assert_eq!(say(client, "PANDO.RANGE m0 - +"), "a first b again");
    assert_eq!(say(client, "EXISTS m1"), "0");
}

/// The guard against eviction needs no command, which an operator may have renamed.
#[test]
fn a_policy_that_evicts_maps_is_seen_without_the_command_config() {
    for (policy, may_create) in [("allkeys-lru", false), ("volatile-lru", true)] {
        let site = Site::with_aof();
        let memory = ["--maxmemory", "1gb", "--maxmemory-policy", policy];
        let server = site.start_with(&[&["--rename-command", "CONFIG", ""], &memory[..]].concat());
        let client = &mut server.connect();
        assert!(client.say("CONFIG GET maxmemory").is_error());
        let reply = say(client, "PANDO.SET m a 1");
        match may_create {
            true => assert_eq!(reply, "1"),
            false => assert!(reply.starts_with("ERR maxmemory-policy is allkeys-lru"), "{reply}"),
        }
    }
}

/// SHUTDOWN waits for no read: neither for those that are queued, nor for the end of one that runs.
#[test]
fn a_shutdown_does_not_wait_for_long_reads() {
    let site = Site::with_aof();
    let server = site.start();
    let client = &mut server.connect();
    for part in 0..10 {
        let mut load = words("PANDO.MSET m");
        for number in 0..10_000 {
            load.extend([format!("{part}{number:04}").into_bytes(), b"v".to_vec()]);
        }
        assert_eq!(client.ask(&load).expect("a reply").value.number(), Some(10_000));
    }
    let begun = Instant::now();
    assert!(!client.say("PANDO.STAT m CHECKSUM").is_error());
    let of_one = begun.elapsed();
    let others: Vec<_> = (0..250)
        .map(|_| {
            let mut other = server.connect();
            let read = words("PANDO.STAT m CHECKSUM");
            other.send_all([&read[..]].into_iter()).expect("sent");
            other
        })
        .collect();
    // All of them are read before the next reply to a new client.
    assert_eq!(say(&mut server.connect(), "PING"), "PONG");
    let begun = Instant::now();
    assert!(client.ask(&words("SHUTDOWN NOSAVE")).is_err());
    let waited = begun.elapsed();
    assert!(waited < 30 * of_one + Duration::from_secs(2), "{waited:?}, and a read {of_one:?}");
    drop(others);
    assert!(!site.log().contains("not closed cleanly"), "{}", site.log());
}
