//! Keys of any type, and databases.

use super::strings::integer_but_small;
use super::words::{integer, key, spoil, value};
use crate::common::oracle::{Equal, Oracle, Step};
use crate::common::random::Random;
use crate::common::wire::{Client, Value, Words, words};

fn database(random: &mut Random) -> Vec<u8> {
    match random.below(5) {
        0 => random.word(&["16", "-1", "x", "", "99999999999", "9223372036854775808"]),
        _ => random.word(&["0", "1", "2", "0"]),
    }
}

fn pattern(random: &mut Random) -> Vec<u8> {
    match random.below(3) {
        0 => (0..random.below(6)).map(|_| *random.pick(b"abc*?[]^-\\d")).collect(),
        _ => random.word(&["*", "a", "?", "[a-c]", "[^a]*", "**", "\\a", "a*", "", "[b"]),
    }
}

fn expiry_words(random: &mut Random, name: &str) -> Words {
    let mut words = vec![match name {
        "expire" | "pexpire" if random.once_in(3) => integer_but_small(random),
        // Times are spread widely, so comparisons do not depend on milliseconds.
        "expire" => (1_000 + random.below(10_000_000)).to_string().into_bytes(),
        "pexpire" => (1_000_000 + random.below(10_000_000_000)).to_string().into_bytes(),
        "expireat" => random.word(&["99999999", "99999999999", "99999999998", "0", "-1", "x"]),
        _ => random.word(&["99999999999000", "99999999999001", "1", "-1", "9223372036854775807"]),
    }];
    for _ in 0..random.below(3) {
        words.push(random.word(&["NX", "xx", "GT", "LT", "lt", "foo"]));
    }
    words
}

fn step(random: &mut Random, has_hashes: bool) -> Step {
    let mut equal = Equal::Bytes;
    let name = random.name(
        "set set get mset del unlink exists touch type expire pexpire expireat pexpireat ttl \
         pttl expiretime pexpiretime persist rename renamenx copy copy move keys randomkey \
         dbsize flushdb flushall swapdb select scan object object hset",
    );
    let name = if name == "hset" && !has_hashes { "ping" } else { name };
    let mut words: Words = vec![name.into()];
    match name {
        "set" => {
            words.extend([key(random), value(random)]);
            if random.once_in(3) {
                let seconds = 1_000 + random.below(10_000_000);
                words.extend([b"EX".to_vec(), seconds.to_string().into_bytes()]);
            }
        }
        "mset" => words.extend([key(random), value(random), key(random), value(random)]),
        "get" | "type" | "persist" => words.push(key(random)),
        "del" | "unlink" | "exists" | "touch" => {
            words.extend((0..1 + random.below(3)).map(|_| key(random)));
        }
        "ttl" | "expiretime" => {
            words.push(key(random));
            equal = Equal::Times(1);
        }
        "pttl" | "pexpiretime" => {
            words.push(key(random));
            equal = Equal::Times(1000);
        }
        "expire" | "pexpire" | "expireat" | "pexpireat" => {
            words.push(key(random));
            words.extend(expiry_words(random, name));
        }
        "rename" | "renamenx" => words.extend([key(random), key(random)]),
        "copy" => {
            words.extend([key(random), key(random)]);
            for _ in 0..random.below(3) {
                match random.below(3) {
                    0 => words.push(random.word(&["REPLACE", "replace", "foo", "db"])),
                    _ => words.extend([b"DB".to_vec(), database(random)]),
                }
            }
        }
        "move" => words.extend([key(random), database(random)]),
        "keys" => {
            words.push(pattern(random));
            equal = Equal::Elements;
        }
        "randomkey" => equal = Equal::Kind,
        "flushdb" | "flushall" if random.once_in(2) => {
            words.push(random.word(&["async", "SYNC", "foo"]));
        }
        "flushall" => words = vec![b"ping".to_vec()],
        "swapdb" => words.extend([database(random), database(random)]),
        "select" => words.push(database(random)),
        "scan" => {
            // Only a scan that ends in one call is equal.
            words.extend([random.word(&["0", "0", "0", "x", "", "1x", " 1"]), b"COUNT".to_vec()]);
            words.push(random.word(&["1000", "1000", "1000", "0", "-1", "x"]));
            for _ in 0..random.below(3) {
                match random.below(4) {
                    0 => words.extend([b"TYPE".to_vec(), random.word(&["string", "HASH", "foo"])]),
                    1 => words.push(random.word(&["foo", "match", "type"])),
                    _ => words.extend([b"MATCH".to_vec(), pattern(random)]),
                }
            }
            equal = Equal::Elements;
        }
        "object" => {
            let subcommand = random.word(&["refcount", "freq", "help", "foo"]);
            words.push(subcommand);
            // Redis's reply depends on the history of the value.
            equal = Equal::Numbers;
            if random.once_in(20) {
                words.push(integer(random));
            } else {
                words.push(key(random));
            }
        }
        "hset" => words.extend([key(random), random.word(&["f", "g"]), b"v".to_vec()]),
        _ => {}
    }
    let words = spoil(random, words);
    if name == "scan" && words.get(1).is_none_or(|cursor| cursor != b"0") {
        // After another cursor each server has its own order.
        equal = Equal::Kind;
    }
    (words, equal).into()
}

#[test]
fn generated_commands() {
    let mut oracle = Oracle::start();
    // Without hashes there are no values of a wrong type.
    let has_hashes = oracle.has("hset");
    oracle.compare(400, 80, |random| step(random, has_hashes));
}

#[test]
fn encodings_of_strings_that_were_just_set() {
    let mut steps = Vec::new();
    for value in ["1", "-17", "9223372036854775808", "01", "x"] {
        steps.push((words(&format!("set a {value}")), Equal::Bytes).into());
        steps.push((words("object encoding a"), Equal::Bytes).into());
        steps.push((words("object refcount a"), Equal::Bytes).into());
    }
    for bytes in [43, 44, 45] {
        steps.push((words(&format!("set a {}", "x".repeat(bytes))), Equal::Bytes).into());
        steps.push((words("object encoding a"), Equal::Bytes).into());
    }
    Oracle::start().compare_steps(&steps);
}

#[test]
fn time_is_the_systems() {
    let mut oracle = Oracle::start();
    let [ours, theirs] = oracle.clients().map(|client| client.say("time"));
    let seconds = |reply: &Value| reply.values()[0].number().expect("seconds");
    assert_eq!(ours.values().len(), 2);
    assert!(seconds(&ours).abs_diff(seconds(&theirs)) <= 2);
    assert!(ours.values()[1].number().is_some_and(|micros| (0..1_000_000).contains(&micros)));
}

fn scan_all(client: &mut Client, options: &str) -> Vec<Vec<u8>> {
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let reply = client.say(&format!("scan {cursor} {options}"));
        let [next, names] = reply.values() else { panic!("{reply:?}") };
        found.extend(names.values().iter().map(|name| name.bytes().to_vec()));
        cursor = String::from_utf8(next.bytes().to_vec()).expect("text");
        if cursor == "0" {
            found.sort();
            return found;
        }
    }
}

#[test]
fn whole_scans_find_the_same() {
    let mut oracle = Oracle::start();
    for options in ["", "count 1", "count 7 match k1*", "count 1000", "type string", "type hash"] {
        let found = oracle.clients().map(|client| {
            for number in 0..300 {
                client.say(&format!("set k{number} v"));
            }
            scan_all(client, options)
        });
        let mut theirs = found[1].clone();
        // Redis may return a key twice.
        theirs.dedup();
        assert_eq!(found[0], theirs, "{options}");
    }
}

/// Name, arity, flags, first key, last key, step and categories of a command and its subcommands.
fn entry(reply: &Value) -> Vec<Value> {
    let sorted = |value: &Value| {
        let mut values = value.values().to_vec();
        values.sort();
        Value::Values(b'*', values)
    };
    let fields = reply.values();
    if fields.len() < 10 {
        return fields.to_vec();
    }
    let mut entry = fields[..6].to_vec();
    entry[2] = sorted(&fields[2]);
    entry.push(sorted(&fields[6]));
    let mut subcommands: Vec<_> = fields[9].values().iter().map(entry_of_subcommand).collect();
    subcommands.sort();
    entry.extend(subcommands);
    entry
}

fn entry_of_subcommand(reply: &Value) -> Value {
    Value::Values(b'*', entry(reply))
}

#[test]
fn commands_are_described_as_redis_does() {
    let mut oracle = Oracle::start();
    for name in "get getdel getex getset mget mset msetnx psetex set setex setnx append strlen getrange \
                 substr setrange incr decr incrby decrby incrbyfloat lcs setbit getbit bitcount bitpos \
                 bitop del unlink exists touch type expire pexpire expireat pexpireat ttl pttl \
                 expiretime pexpiretime persist time rename renamenx copy move keys scan randomkey \
                 object dbsize flushdb flushall swapdb"
        .split_ascii_whitespace()
    {
        let [ours, theirs] =
            oracle.clients().map(|client| client.say(&format!("command info {name}")));
        assert_eq!(entry(&ours.values()[0]), entry(&theirs.values()[0]), "{name}");
    }
}
