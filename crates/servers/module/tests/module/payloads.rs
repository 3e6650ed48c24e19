//! DUMP, RESTORE and what an attacker may send.

use crate::server::{Site, eventually, info, say};
use crate::wire::{Client, Value, words};

/// The checksum of Redis's payloads: CRC-64 of Jones, reflected.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc: u64, &byte| {
        (0..8).fold(crc ^ u64::from(byte), |crc, _| {
            let carry = if crc & 1 == 1 { 0x95ac_9329_ac4b_c9b5 } else { 0 };
            (crc >> 1) ^ carry
        })
    })
}

fn restore(client: &mut Client, key: &str, payload: &[u8]) -> Value {
    let mut command = words(&format!("RESTORE {key} 0"));
    command.extend([payload.to_vec(), b"REPLACE".to_vec()]);
    client.ask(&command).expect("the server lives").value
}

#[test]
fn dumps_restore_everywhere_and_those_that_are_too_long_never() {
    let site = Site::with_aof();
    let server = site.start();
    let client = &mut server.connect();
    client.say("PANDO.APPLY 1 m RECEIPT s 1 SET 1 a 1 SET 1 b 2");
    let dump = client.say("DUMP m").bytes().to_vec();
    assert_eq!(restore(client, "n", &dump).bytes(), b"OK");
    assert_eq!(say(client, "PANDO.RANGE n - +"), "a 1 b 2");
    assert_eq!(say(client, "PANDO.APPLY 1 n RECEIPT s 1 SET 1 a 1 SET 1 b 2"), {
        // The digest is of the whole command, with its key.
        "ERR the session's sequence 1 was used for another batch, or is not kept any more"
    });
    let digest = say(client, "DEBUG DIGEST-VALUE m");
    assert_eq!(say(client, "DEBUG DIGEST-VALUE n"), digest);
    assert!(say(client, "MEMORY USAGE m").parse::<u64>().is_ok_and(|bytes| bytes > 80));
    client.say("CONFIG SET pando.max-dump-bytes 10");
    let refused = client.say("DUMP m").bytes().to_vec();
    assert!(restore(client, "n", &refused).is_error());
    assert_eq!(say(client, "PANDO.COUNT n"), "2", "the key is as before");
}

/// Payloads with damaged bytes and a correct checksum. They are refused, or they are maps; the
/// server lives, and nothing stays behind.
#[test]
fn damaged_payloads_harm_nothing() {
    let site = Site::with_aof();
    let server = site.start();
    let client = &mut server.connect();
    client.say("PANDO.APPLY 1 m RECEIPT session 1 SET 1 key1 value1 SET 1 key2 value2");
    let dump = client.say("DUMP m").bytes().to_vec();
    let body = &dump[..dump.len() - 8];
    assert_eq!(crc64(body).to_le_bytes(), dump[body.len()..]);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound as u64) as usize
    };
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..3000 {
        let mut bytes = body.to_vec();
        // The two bytes of the version at the end, and the number of the type at the beginning,
        // are Redis's own.
        let last = bytes.len() - 2;
        for _ in 0..=next(3) {
            match next(4) {
                0 => bytes[10 + next(last - 10)] = next(256) as u8,
                1 => bytes[10 + next(last - 10)] ^= 1 << next(8),
                2 => {
                    let at = 10 + next(last - 10);
                    bytes.insert(at, next(256) as u8);
                }
                _ if bytes.len() > 20 => drop(bytes.remove(10 + next(bytes.len() - 12))),
                _ => {}
            }
        }
        let checksum = crc64(&bytes);
        bytes.extend(checksum.to_le_bytes());
        match restore(client, "n", &bytes).is_error() {
            true => refused += 1,
            false => {
                accepted += 1;
                assert!(!client.say("PANDO.RANGE n - +").is_error());
            }
        }
    }
    assert!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused");
    client.say("DEL n");
    eventually("the removal of garbage", || info(client, "pando_garbage") == "0");
    assert_eq!(say(client, "PANDO.RANGE m - +"), "key1 value1 key2 value2");
}

/// Both forms of the append-only file, and a save on the main thread, contain whole maps.
#[test]
fn files_contain_whole_maps() {
    for preamble in ["yes", "no"] {
        let site = Site::with_aof();
        let server = site.start_with(&["--aof-use-rdb-preamble", preamble]);
        let client = &mut server.connect();
        for map in 0..20 {
            let mut command = words(&format!("PANDO.MSET m{map}"));
            for number in 0..500 {
                command.extend([format!("{number:05}").into_bytes(), vec![b'v'; 400]]);
            }
            assert_eq!(client.ask(&command).expect("a reply").value.number(), Some(500));
        }
        client.say("PANDO.APPLY 1 m0 RECEIPT s 1 SET 1 a 1");
        let digest = say(client, "DEBUG DIGEST");
        client.say("BGREWRITEAOF");
        // Writes beside the save are not in its snapshot, but in the file behind it.
        client.say("PANDO.SET m1 beside 1");
        client.say("PANDO.DEL m1 beside");
        eventually("the rewrite", || info(client, "aof_rewrite_in_progress") == "0");
        assert_eq!(info(client, "aof_last_bgrewrite_status"), "ok", "{}", site.log());
        assert_eq!(say(client, "DEBUG RELOAD"), "OK");
        assert_eq!(say(client, "DEBUG DIGEST"), digest);
        drop(server);
        let server = site.start();
        assert_eq!(say(&mut server.connect(), "DEBUG DIGEST"), digest, "after a kill");
        drop(server);
        std::fs::remove_file(site.path("pando.pool")).expect("no pool");
        let server = site.start();
        assert_eq!(say(&mut server.connect(), "DEBUG DIGEST"), digest, "from the files");
    }
}

/// A save whose snapshot keeps too much fails, and no write does. The next save succeeds.
#[test]
fn a_save_that_holds_back_too_much_fails_and_writes_go_on() {
    // Redis itself refuses writes after a failed save, unless it is told not to.
    let options = ["--save", "1000 1000", "--stop-writes-on-bgsave-error", "no"];
    let site = Site::new(&options);
    let server = site.start_with(&["--pando.snapshot-bytes", "10kb"]);
    let client = &mut server.connect();
    for map in 0..40 {
        client.say(&format!("PANDO.SET m{map} a {map}"));
    }
    // The child waits between two keys, in microseconds.
    client.say("CONFIG SET rdb-key-save-delay 20000");
    assert_eq!(say(client, "BGSAVE"), "Background saving started");
    for round in 0..500 {
        assert_eq!(say(client, &format!("PANDO.SET big f{round} {round}")).parse::<u8>(), Ok(1));
        assert_eq!(say(client, &format!("PANDO.SET m{} a x{round}", round % 40)), "0");
    }
    eventually("the end of the save", || info(client, "rdb_bgsave_in_progress") == "0");
    assert_eq!(info(client, "rdb_last_bgsave_status"), "err");
    assert!(
        site.log().contains("is not saved: the server's snapshot was revoked"),
        "{}",
        site.log()
    );
    let unfinished = || {
        let files = std::fs::read_dir(site.path("")).expect("the folder");
        files.flatten().any(|file| file.file_name().to_string_lossy().starts_with("temp-"))
    };
    assert!(!unfinished(), "the child has left its file");
    client.say("CONFIG SET rdb-key-save-delay 0");
    client.say("BGSAVE");
    eventually("the end of the save", || info(client, "rdb_bgsave_in_progress") == "0");
    assert_eq!(info(client, "rdb_last_bgsave_status"), "ok");
}

/// A save on the main thread that fails leaves the good file, and the pool has all maps.
#[test]
fn a_save_on_the_main_thread_that_fails_keeps_the_old_file() {
    let site = Site::new(&["--save", "1000 1000", "--pando.save-after-start", "no"]);
    let server = site.start();
    let client = &mut server.connect();
    assert_eq!(say(client, "PANDO.SET m a 1"), "1");
    assert_eq!(say(client, "SAVE"), "OK");
    let good = std::fs::read(site.path("dump.rdb")).expect("the file");
    assert_eq!(say(client, "PANDO.SET n a 1"), "1");
    site.fail("dump");
    // A dump that fails is a payload that nobody accepts.
    let dump = client.say("DUMP m").bytes().to_vec();
    assert!(restore(client, "other", &dump).is_error());
    assert!(client.ask(&words("SAVE")).is_err());
    site.fail("");
    drop(server);
    assert_eq!(std::fs::read(site.path("dump.rdb")).expect("the file"), good);
    let server = site.start();
    assert_eq!(say(&mut server.connect(), "PANDO.GET n a"), "1");
}
