//! Sets.

use super::words::{Lists, from_template};
use crate::common::oracle::{Oracle, Step};
use crate::common::random::Random;

const ERRORS: &str = "\
SADD s
SADD s a b c
SPOP s -1
SPOP s x
SPOP s 1 2
SPOP none
SPOP none 1
SPOP none 0
SRANDMEMBER s x
SRANDMEMBER s 1 2
SRANDMEMBER s -9223372036854775808
SRANDMEMBER none
SRANDMEMBER none 1
SRANDMEMBER s 0
SINTERCARD 0 s
SINTERCARD x s
SINTERCARD 2 s
SINTERCARD 1 s LIMIT -1
SINTERCARD 1 s LIMIT x
SINTERCARD 1 s LIMIT
SINTERCARD 1 s FOO 1
SINTERCARD 1 s LIMIT 2 LIMIT 1
SET str 1
SINTER none str
SMOVE none str a
SMOVE s str a
SMOVE str s a
SMOVE s s a
SMOVE s s zzz
SMEMBERS none
SINTER none s
SMISMEMBER none a b
SMISMEMBER str a
SSCAN str 0
SSCAN none 0";

#[test]
fn errors() {
    Oracle::start().compare_lines(ERRORS.lines());
}

const KEYS: &[&str] = &["p", "q", "r", "t", "str"];
const MEMBERS: &[&str] = &["a", "b", "c", "1", "2", "-3", "dd"];
const LISTS: Lists = &[
    ("key", KEYS),
    ("other", KEYS),
    ("third", KEYS),
    ("member", MEMBERS),
    ("another", MEMBERS),
    ("number", &["0", "1", "2", "3"]),
];

const TEMPLATES: &str = "\
SET str 1
SUNIONSTORE {key} none
3 SADD {key} {member} {another}
SADD {key} {member}
SREM {key} {member} {another}
SCARD {key}
SISMEMBER {key} {member}
SMISMEMBER {key} {member} {another}
~ SMEMBERS {key}
SMOVE {key} {other} {member}
~ SINTER {key} {other}
~ SUNION {key} {other} {third}
~ SDIFF {key} {other} {third}
SINTERSTORE {key} {other} {third}
SUNIONSTORE {key} {other} {third}
SDIFFSTORE {key} {other} {third}
SINTERCARD {number} {key} {other}
SINTERCARD 2 {key} {other} LIMIT {number}
~ SSCAN {key} 0 COUNT 1000
~ SSCAN {key} 0 MATCH {member} COUNT 1000
~ SPOP {key} 100
~ SRANDMEMBER {key} 100
SPOP {key} 0
GET {key}";

pub fn step(random: &mut Random) -> Step {
    from_template(random, TEMPLATES, LISTS)
}

#[test]
fn generated_commands() {
    Oracle::start().compare(60, 120, step);
}
