//! Strings.

use super::words::{float, integer, key, spoil, value};
use crate::common::oracle::{Equal, Oracle, Step};
use crate::common::random::Random;
use crate::common::wire::Words;

/// Seconds in the far future, in the past, or not a number.
fn seconds(random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => integer_but_small(random),
        _ => random.word(&["1000", "1001", "5000", "100000"]),
    }
}

/// An integer, but not a small positive one: such a key would expire during the test.
pub fn integer_but_small(random: &mut Random) -> Vec<u8> {
    loop {
        let integer = integer(random);
        let number = std::str::from_utf8(&integer).ok().and_then(|text| text.parse::<i64>().ok());
        if !number.is_some_and(|number| (1..1_000_000).contains(&number)) {
            return integer;
        }
    }
}

fn milliseconds(random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => integer_but_small(random),
        _ => random.word(&["1000000", "1001000", "5000000"]),
    }
}

/// A timestamp since 1970: in the past, in thousands of years, or not a number.
fn timestamp(random: &mut Random, is_ms: bool) -> Vec<u8> {
    let far = if is_ms { "99999999999000" } else { "99999999999" };
    let over = if is_ms { "1000000" } else { "1000" };
    match random.below(4) {
        0 => integer_but_small(random),
        1 => over.into(),
        _ => far.into(),
    }
}

fn set_options(random: &mut Random, words: &mut Words) {
    for _ in 0..random.below(4) {
        match random.below(9) {
            0 => words.push(random.word(&["NX", "nx"])),
            1 => words.push(random.word(&["XX", "Xx"])),
            2 => words.push(random.word(&["GET", "get"])),
            3 => words.push(random.word(&["KEEPTTL", "keepttl"])),
            4 => words.push(random.word(&["PERSIST", "foo", "", "ex"])),
            5 => words.extend([b"EX".to_vec(), seconds(random)]),
            6 => words.extend([b"px".to_vec(), milliseconds(random)]),
            7 => words.extend([b"EXAT".to_vec(), timestamp(random, false)]),
            _ => words.extend([b"PXAT".to_vec(), timestamp(random, true)]),
        }
    }
}

pub fn step(random: &mut Random, has_hashes: bool) -> Step {
    let mut equal = Equal::Bytes;
    let name = random.name(
        "get set set set setnx setex psetex getset getdel getex mget mset msetnx append \
         strlen getrange substr setrange incr decr incrby decrby incrbyfloat lcs ttl pttl \
         expiretime hset del object",
    );
    let name = if name == "hset" && !has_hashes { "ping" } else { name };
    let mut words: Words = vec![name.into(), key(random)];
    match name {
        "set" => {
            words.push(value(random));
            set_options(random, &mut words);
        }
        "getex" => set_options(random, &mut words),
        "setnx" | "getset" | "append" => words.push(value(random)),
        "setex" => words.extend([seconds(random), value(random)]),
        "psetex" => words.extend([milliseconds(random), value(random)]),
        "mget" => words.extend((0..random.below(4)).map(|_| key(random))),
        "mset" | "msetnx" => {
            words.push(value(random));
            for _ in 0..random.below(3) {
                words.extend([key(random), value(random)]);
            }
        }
        "getrange" | "substr" => words.extend([integer(random), integer(random)]),
        "setrange" => {
            let offset = match random.below(3) {
                0 => integer_but_small(random),
                _ => random.below(20).to_string().into_bytes(),
            };
            words.extend([offset, value(random)]);
        }
        "incrby" | "decrby" => words.push(integer(random)),
        "incrbyfloat" => words.push(float(random)),
        "lcs" => {
            words.push(key(random));
            for _ in 0..random.below(4) {
                words.push(random.word(&["IDX", "len", "WITHMATCHLEN", "MINMATCHLEN", "2", "foo"]));
            }
        }
        "ttl" | "expiretime" => equal = Equal::Times(1),
        "pttl" => equal = Equal::Times(1000),
        "hset" if random.once_in(2) => words.extend([b"f".to_vec(), b"v".to_vec()]),
        "hset" => words = vec![b"hset".to_vec(), b"h".to_vec()],
        "object" => words.insert(1, random.word(&["freq", "help", "foo"])),
        _ => {}
    }
    (spoil(random, words), equal).into()
}

#[test]
fn generated_commands() {
    let mut oracle = Oracle::start();
    // Without hashes there are no values of a wrong type.
    let has_hashes = oracle.has("hset");
    oracle.compare(400, 60, |random| step(random, has_hashes));
}

/// An offset near the limit of long strings, near the end of a piece, or far away.
fn far_offset(random: &mut Random) -> usize {
    let about = *random.pick(&[0, 16_000, 31_990, 32_000, 48_000, 64_000, 90_000]);
    match random.below(3) {
        0 => random.below(100_000),
        _ => about + random.below(12),
    }
}

fn long_value(random: &mut Random) -> Vec<u8> {
    let bytes = match random.below(3) {
        0 => random.below(12),
        _ => far_offset(random),
    };
    let fill = *random.pick(b"\0\xFFab");
    let mut value = vec![fill; bytes];
    for _ in 0..random.below(4).min(bytes) {
        let at = random.below(bytes);
        value[at] = random.number() as u8;
    }
    value
}

fn long_step(random: &mut Random) -> Step {
    let name = random.name(
        "set append append setrange setrange setbit setbit getbit getrange getrange strlen \
         bitcount bitpos bitop get mget getset getdel getex mset rename copy del unlink incr \
         incrbyfloat type expire persist sadd multi exec exec discard",
    );
    let name_of_key = |random: &mut Random| random.word(&["a", "b", "c"]);
    let mut words: Words = vec![name.into(), name_of_key(random)];
    let index = |random: &mut Random| match random.below(4) {
        0 => format!("-{}", far_offset(random)),
        _ => far_offset(random).to_string(),
    };
    match name {
        "set" | "getset" => words.push(long_value(random)),
        "append" if random.once_in(2) => words.push(random.bytes(3)),
        "append" => words.push(long_value(random)),
        "setrange" => {
            words.push(far_offset(random).to_string().into());
            words.push(if random.once_in(2) { random.bytes(3) } else { long_value(random) });
        }
        "setbit" => {
            let bit = 8 * far_offset(random) + random.below(8);
            words.extend([bit.to_string().into(), random.word(&["0", "1"])]);
        }
        "getbit" => words.push((8 * far_offset(random) + random.below(8)).to_string().into()),
        "getrange" => words.extend([index(random).into(), index(random).into()]),
        "bitcount" if random.once_in(2) => {
            words.extend([index(random).into(), index(random).into()]);
            if random.once_in(2) {
                words.push(random.word(&["bit", "byte"]));
            }
        }
        "bitpos" => {
            words.push(random.word(&["0", "1"]));
            words.extend((0..random.below(3)).map(|_| index(random).into_bytes()));
        }
        "bitop" => {
            words.insert(1, random.word(&["and", "or", "xor", "not"]));
            words.extend((0..1 + random.below(2)).map(|_| name_of_key(random)));
        }
        "mget" => words.extend([name_of_key(random), name_of_key(random)]),
        "mset" => words.extend([long_value(random), name_of_key(random), long_value(random)]),
        "getex" => words.extend([b"EX".to_vec(), b"100000".to_vec()]),
        "rename" => words.push(name_of_key(random)),
        "copy" => words.extend([name_of_key(random), b"REPLACE".to_vec()]),
        "incrbyfloat" => words.push(b"1".to_vec()),
        "expire" => words.push(b"100000".to_vec()),
        "sadd" => words.push(b"member".to_vec()),
        "multi" | "exec" | "discard" => words.truncate(1),
        _ => {}
    }
    (words, Equal::Bytes).into()
}

/// Lengths near the limit above which our server stores strings in pieces.
#[test]
fn long_strings() {
    Oracle::start().compare(25, 80, long_step);
}

#[test]
fn sums_of_long_doubles() {
    let step = |random: &mut Random| {
        let key = random.word(&["a", "b"]);
        let words = match random.below(6) {
            0 => vec![b"set".to_vec(), key, float(random)],
            1 => vec![b"get".to_vec(), key],
            _ => vec![b"incrbyfloat".to_vec(), key, float(random)],
        };
        (words, Equal::Bytes).into()
    };
    Oracle::start().compare(200, 100, step);
}

#[test]
fn strings_end_at_their_limit() {
    Oracle::start().compare_lines([
        "setrange a 536870911 x",
        "strlen a",
        "getrange a 536870900 -1",
        "append a x",
        "setrange a 536870912 x",
        "setrange a 536870911 xy",
        "setrange b 9223372036854775807 x",
        "setrange b 536870912 x",
        "exists b",
        "del a",
    ]);
}
