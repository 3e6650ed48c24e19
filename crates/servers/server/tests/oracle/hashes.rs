//! Hashes.

use crate::common::oracle::{Equal, Oracle, Step};
use crate::common::random::Random;
use crate::common::wire::words;

const KEYS: &[&str] = &["h", "i", "s"];
const FIELDS: &[&str] = &["a", "b", "c", "dd", "eee"];
const VALUES: &[&str] =
    &["1", "-7", "x", "2.5", "9223372036854775807", "0", "1e3", "inf", "nan", "01", "long-value"];

pub fn step(random: &mut Random) -> Step {
    let key = *random.pick(KEYS);
    let field = *random.pick(FIELDS);
    let other = *random.pick(FIELDS);
    let value = *random.pick(VALUES);
    let (line, equal) = match random.below(25) {
        0 => (format!("SET {key} 1"), Equal::Bytes),
        1 => (format!("SUNIONSTORE {key} none"), Equal::Bytes),
        2 => (format!("HSET {key} {field}"), Equal::Bytes),
        3 | 4 => (format!("HSET {key} {field} {value}"), Equal::Bytes),
        5 => (format!("HSET {key} {field} {value} {other} 5"), Equal::Bytes),
        6 => (format!("HMSET {key} {field} {value} {other}"), Equal::Bytes),
        7 => (format!("HMSET {key} {field} {value} {other} 17"), Equal::Bytes),
        8 => (format!("HSETNX {key} {field} {value}"), Equal::Bytes),
        9 => (format!("HGET {key} {field}"), Equal::Bytes),
        10 => (format!("HMGET {key} {field} {other} {field}"), Equal::Bytes),
        11 => (format!("HDEL {key} {field}"), Equal::Bytes),
        12 => (format!("HDEL {key} {field} {other} {field}"), Equal::Bytes),
        13 => (format!("HLEN {key}"), Equal::Bytes),
        14 => (format!("HEXISTS {key} {field}"), Equal::Bytes),
        15 => (format!("HKEYS {key}"), Equal::Elements),
        16 => (format!("HVALS {key}"), Equal::Elements),
        17 => (format!("HGETALL {key}"), Equal::Elements),
        18 => (format!("HSTRLEN {key} {field}"), Equal::Bytes),
        19 => (format!("HINCRBY {key} {field} {value}"), Equal::Bytes),
        20 => (format!("HINCRBYFLOAT {key} {field} {value}"), Equal::Bytes),
        21 => (format!("HSCAN {key} 0"), Equal::Elements),
        22 => (format!("HSCAN {key} 0 MATCH {field}* COUNT 1000"), Equal::Elements),
        23 => (format!("HRANDFIELD {key} 100"), Equal::Elements),
        _ => (format!("HRANDFIELD {key} 100 WITHVALUES"), Equal::Elements),
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
        "HSET",
        "HSET h a",
        "HSET h a 1 b",
        "HMSET h a 1 b",
        "HSET h a 1",
        "HSCAN h x",
        "HSCAN h 99999999999999999999",
        "HSCAN h -",
        "HSCAN h 0x10",
        "HSCAN h 0 COUNT 0",
        "HSCAN h 0 COUNT x",
        "HSCAN h 0 MATCH",
        "HSCAN h 0 TYPE hash",
        "HSCAN h 0 MATCH a COUNT",
        "HSCAN h +0",
        "HSCAN none -1",
        "HSCAN none 0 COUNT",
        "HSCAN none 0 FOO",
        "HRANDFIELD h x",
        "HRANDFIELD h 1 FOO",
        "HRANDFIELD h 1 WITHVALUES FOO",
        "HRANDFIELD h 9223372036854775807 WITHVALUES",
        "HRANDFIELD h -9223372036854775808",
        "HRANDFIELD h 0",
        "HRANDFIELD h 0 WITHVALUES",
        "HRANDFIELD none",
        "HRANDFIELD none 5",
        "HINCRBYFLOAT h a inf",
        "HINCRBYFLOAT h a nan",
        "HINCRBYFLOAT h a x",
        "HINCRBYFLOAT h a 1e4932",
        "HINCRBYFLOAT h a 1e4932",
        "HSET h a inf",
        "HINCRBYFLOAT h a 1",
        "HSET h a 9223372036854775807",
        "HINCRBY h a 1",
        "HINCRBY h a x",
        "SET s 1",
        "HINCRBY s a x",
        "HINCRBY s a 1",
        "HGETALL none",
        "HKEYS none",
        "HVALS none",
        "HRANDFIELD s 1",
    ]);
}
