//! Hashes.

use super::words::{Lists, from_template};
use crate::common::oracle::{Oracle, Step};
use crate::common::random::Random;

const ERRORS: &str = "\
HSET
HSET h a
HSET h a 1 b
HMSET h a 1 b
HSET h a 1
HSCAN h x
HSCAN h 99999999999999999999
HSCAN h -
HSCAN h 0x10
HSCAN h 0 COUNT 0
HSCAN h 0 COUNT x
HSCAN h 0 MATCH
HSCAN h 0 TYPE hash
HSCAN h 0 MATCH a COUNT
HSCAN h +0
HSCAN none -1
HSCAN none 0 COUNT
HSCAN none 0 FOO
HRANDFIELD h x
HRANDFIELD h 1 FOO
HRANDFIELD h 1 WITHVALUES FOO
HRANDFIELD h 9223372036854775807 WITHVALUES
HRANDFIELD h -9223372036854775808
HRANDFIELD h 0
HRANDFIELD h 0 WITHVALUES
HRANDFIELD none
HRANDFIELD none 5
HINCRBYFLOAT h a inf
HINCRBYFLOAT h a nan
HINCRBYFLOAT h a x
HINCRBYFLOAT h a 1e4932
HINCRBYFLOAT h a 1e4932
HSET h a inf
HINCRBYFLOAT h a 1
HSET h a 9223372036854775807
HINCRBY h a 1
HINCRBY h a x
SET s 1
HINCRBY s a x
HINCRBY s a 1
HGETALL none
HKEYS none
HVALS none
HRANDFIELD s 1";

#[test]
fn errors() {
    Oracle::start().compare_lines(ERRORS.lines());
}

const KEYS: &[&str] = &["h", "i", "s"];
const FIELDS: &[&str] = &["a", "b", "c", "dd", "eee"];
const VALUES: &[&str] =
    &["1", "-7", "x", "2.5", "9223372036854775807", "0", "1e3", "inf", "nan", "01", "long-value"];
const LISTS: Lists = &[("key", KEYS), ("field", FIELDS), ("other", FIELDS), ("value", VALUES)];

const TEMPLATES: &str = "\
SET {key} 1
SUNIONSTORE {key} none
HSET {key} {field}
2 HSET {key} {field} {value}
HSET {key} {field} {value} {other} 5
HMSET {key} {field} {value} {other}
HMSET {key} {field} {value} {other} 17
HSETNX {key} {field} {value}
HGET {key} {field}
HMGET {key} {field} {other} {field}
HDEL {key} {field}
HDEL {key} {field} {other} {field}
HLEN {key}
HEXISTS {key} {field}
~ HKEYS {key}
~ HVALS {key}
~ HGETALL {key}
HSTRLEN {key} {field}
HINCRBY {key} {field} {value}
HINCRBYFLOAT {key} {field} {value}
~ HSCAN {key} 0
~ HSCAN {key} 0 MATCH {field}* COUNT 1000
~ HRANDFIELD {key} 100
~ HRANDFIELD {key} 100 WITHVALUES";

pub fn step(random: &mut Random) -> Step {
    from_template(random, TEMPLATES, LISTS)
}

#[test]
fn generated_commands() {
    Oracle::start().compare(60, 120, step);
}
