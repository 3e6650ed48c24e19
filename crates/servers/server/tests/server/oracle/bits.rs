//! Strings as bits.

use super::words::{integer, key, spoil, value};
use crate::common::oracle::{Equal, Oracle, Step};
use crate::common::random::Random;
use crate::common::wire::Words;

fn small(random: &mut Random) -> Vec<u8> {
    match random.below(5) {
        0 => random.word(&["-1", "x", "", "4294967296", "9223372036854775807"]),
        _ => random.below(100).to_string().into_bytes(),
    }
}

fn step(random: &mut Random, has_hashes: bool) -> Step {
    let name = random.name("set setbit getbit bitcount bitcount bitpos bitpos bitop get hset");
    let name = if name == "hset" && !has_hashes { "ping" } else { name };
    let mut words: Words = vec![name.into(), key(random)];
    match name {
        "set" if random.once_in(2) => {
            words.push((0..random.below(6)).map(|_| *random.pick(&[0, 0xFF, 0x80, 1])).collect());
        }
        "set" => words.push(value(random)),
        "setbit" => words.extend([small(random), random.word(&["0", "1", "1", "2", "x", ""])]),
        "getbit" => words.push(small(random)),
        "bitcount" => {
            words.extend((0..random.below(3)).map(|_| integer(random)));
            if words.len() == 4 && random.once_in(2) {
                words.push(random.word(&["BIT", "byte", "foo"]));
            }
        }
        "bitpos" => {
            words.push(random.word(&["0", "1", "0", "1", "2", "x"]));
            words.extend((0..random.below(3)).map(|_| integer(random)));
            if words.len() == 5 && random.once_in(2) {
                words.push(random.word(&["BIT", "byte", "foo"]));
            }
        }
        "bitop" => {
            words.insert(1, random.word(&["and", "OR", "xor", "not", "foo"]));
            words.extend((0..1 + random.below(3)).map(|_| key(random)));
        }
        "hset" => words = vec![b"hset".to_vec(), b"d".to_vec(), b"f".to_vec(), b"v".to_vec()],
        _ => {}
    }
    (spoil(random, words), Equal::Bytes).into()
}

#[test]
fn generated_commands() {
    let mut oracle = Oracle::start();
    // Without hashes there are no values of a wrong type.
    let has_hashes = oracle.has("hset");
    oracle.compare(200, 60, |random| step(random, has_hashes));
}
