//! Sets.

use crate::common::oracle::{Equal, Oracle, Step};
use crate::common::random::Random;
use crate::common::wire::words;

const KEYS: &[&str] = &["p", "q", "r", "t", "str"];
const MEMBERS: &[&str] = &["a", "b", "c", "1", "2", "-3", "dd"];

pub fn step(random: &mut Random) -> Step {
    let key = *random.pick(KEYS);
    let other = *random.pick(KEYS);
    let third = *random.pick(KEYS);
    let member = *random.pick(MEMBERS);
    let another = *random.pick(MEMBERS);
    let number = random.below(4);
    let (line, equal) = match random.below(26) {
        0 => ("SET str 1".to_owned(), Equal::Bytes),
        1 => (format!("SUNIONSTORE {key} none"), Equal::Bytes),
        2..=4 => (format!("SADD {key} {member} {another}"), Equal::Bytes),
        5 => (format!("SADD {key} {member}"), Equal::Bytes),
        6 => (format!("SREM {key} {member} {another}"), Equal::Bytes),
        7 => (format!("SCARD {key}"), Equal::Bytes),
        8 => (format!("SISMEMBER {key} {member}"), Equal::Bytes),
        9 => (format!("SMISMEMBER {key} {member} {another}"), Equal::Bytes),
        10 => (format!("SMEMBERS {key}"), Equal::Elements),
        11 => (format!("SMOVE {key} {other} {member}"), Equal::Bytes),
        12 => (format!("SINTER {key} {other}"), Equal::Elements),
        13 => (format!("SUNION {key} {other} {third}"), Equal::Elements),
        14 => (format!("SDIFF {key} {other} {third}"), Equal::Elements),
        15 => (format!("SINTERSTORE {key} {other} {third}"), Equal::Bytes),
        16 => (format!("SUNIONSTORE {key} {other} {third}"), Equal::Bytes),
        17 => (format!("SDIFFSTORE {key} {other} {third}"), Equal::Bytes),
        18 => (format!("SINTERCARD {number} {key} {other}"), Equal::Bytes),
        19 => (format!("SINTERCARD 2 {key} {other} LIMIT {number}"), Equal::Bytes),
        20 => (format!("SSCAN {key} 0 COUNT 1000"), Equal::Elements),
        21 => (format!("SSCAN {key} 0 MATCH {member} COUNT 1000"), Equal::Elements),
        22 => (format!("SPOP {key} 100"), Equal::Elements),
        23 => (format!("SRANDMEMBER {key} 100"), Equal::Elements),
        24 => (format!("SPOP {key} 0"), Equal::Bytes),
        _ => (format!("GET {key}"), Equal::Bytes),
    };
    (words(&line), equal).into()
}

#[test]
fn generated_commands() {
    Oracle::start().compare(60, 120, step);
}

#[test]
fn errors() {
    Oracle::start().compare_lines(&[
        "SADD s",
        "SADD s a b c",
        "SPOP s -1",
        "SPOP s x",
        "SPOP s 1 2",
        "SPOP none",
        "SPOP none 1",
        "SPOP none 0",
        "SRANDMEMBER s x",
        "SRANDMEMBER s 1 2",
        "SRANDMEMBER s -9223372036854775808",
        "SRANDMEMBER none",
        "SRANDMEMBER none 1",
        "SRANDMEMBER s 0",
        "SINTERCARD 0 s",
        "SINTERCARD x s",
        "SINTERCARD 2 s",
        "SINTERCARD 1 s LIMIT -1",
        "SINTERCARD 1 s LIMIT x",
        "SINTERCARD 1 s LIMIT",
        "SINTERCARD 1 s FOO 1",
        "SINTERCARD 1 s LIMIT 2 LIMIT 1",
        "SET str 1",
        "SINTER none str",
        "SMOVE none str a",
        "SMOVE s str a",
        "SMOVE str s a",
        "SMOVE s s a",
        "SMOVE s s zzz",
        "SMEMBERS none",
        "SINTER none s",
        "SMISMEMBER none a b",
        "SMISMEMBER str a",
        "SSCAN str 0",
        "SSCAN none 0",
    ]);
}
