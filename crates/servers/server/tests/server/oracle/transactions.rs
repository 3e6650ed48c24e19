//! MULTI, EXEC and WATCH.

use std::time::Duration;

use super::words::{integer, key, spoil, value};
use crate::common::oracle::{Equal, Oracle, Step};
use crate::common::random::Random;
use crate::common::wire::Words;

pub fn step(random: &mut Random) -> Step {
    let name = random.name(
        "multi multi exec exec exec discard watch watch unwatch set set get incrby append del \
         rename copy mset hset hdel sadd zadd exists type dbsize select persist flushdb",
    );
    let mut words: Words = vec![name.into()];
    match name {
        "watch" | "del" | "exists" => {
            words.extend((0..1 + random.below(3)).map(|_| key(random)));
        }
        "set" => {
            words.extend([key(random), value(random)]);
            if random.once_in(6) {
                words.extend([b"PXAT".to_vec(), b"99999999999000".to_vec()]);
            }
        }
        "append" => words.extend([key(random), value(random)]),
        "get" | "type" | "persist" => words.push(key(random)),
        "incrby" => words.extend([key(random), integer(random)]),
        "rename" | "copy" => words.extend([key(random), key(random)]),
        "mset" => words.extend([key(random), value(random), key(random), value(random)]),
        "hset" => words.extend([key(random), random.word(&["f", "g"]), value(random)]),
        "hdel" | "sadd" => words.extend([key(random), random.word(&["f", "g"])]),
        "zadd" => words.extend([key(random), b"1".to_vec(), random.word(&["f", "g"])]),
        "select" => words.push(random.word(&["0", "1", "16"])),
        _ => {}
    }
    (spoil(random, words), Equal::Bytes).into()
}

#[test]
fn generated_commands() {
    Oracle::start().compare(60, 120, step);
}

/// The expiry of a watched key is a change, whether the key is already removed or not. A key that
/// had expired before is not changed.
#[test]
fn watched_keys_that_expire() {
    let mut oracle = Oracle::start();
    let replies = oracle.clients().map(|client| {
        let mut replies = Vec::new();
        let mut say = |line: &str| replies.push(client.say(line));
        say("SET alive 1 PX 30");
        say("WATCH alive absent");
        std::thread::sleep(Duration::from_millis(40));
        say("MULTI");
        say("SET other 1");
        say("EXEC");
        say("SET expired 1 PX 1");
        std::thread::sleep(Duration::from_millis(3));
        say("WATCH expired");
        std::thread::sleep(Duration::from_millis(250));
        say("MULTI");
        say("SET other 2");
        say("EXEC");
        say("GET other");
        replies
    });
    assert_eq!(replies[0], replies[1]);
}

/// At the memory limit no command is queued, and a queue is not executed.
#[test]
fn a_transaction_without_memory() {
    Oracle::start().compare_lines([
        "SET key 1",
        "CONFIG SET maxmemory 1",
        "SET key 2",
        "GET key",
        "DEL key",
        "MULTI",
        "GET key",
        "EXEC",
        "MULTI",
        "MULTI",
        "DISCARD",
        "CONFIG SET maxmemory 0",
        "MULTI",
        "SET key 3",
        "EXEC",
    ]);
}
