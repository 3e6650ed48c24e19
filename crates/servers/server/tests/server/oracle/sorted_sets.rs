//! Sorted sets.

use super::words::{Lists, from_template};
use crate::common::oracle::{Equal, Oracle, Step};
use crate::common::random::Random;
use crate::common::wire::words;

const ERRORS: &str = "\
ZADD z
ZADD z 1
ZADD z NX XX 1 a
ZADD z NX GT 1 a
ZADD z GT LT 1 a
ZADD z XX GT LT 1 a
ZADD z INCR 1 a 2 b
ZADD z 1 a 2
ZADD z NX CH
ZADD z 1e400 a
ZADD z 1e-400 a
ZADD z inf a
ZADD z INCR -inf a
ZINCRBY z -inf a
ZADD z XX INCR 1 none
ZADD none XX 1 a
GET none
ZADD z -0 zero
ZSCORE z zero
ZRANGE z 0 -1 WITHSCORES
ZADD z 0 zero
ZSCORE z zero
ZSCAN z 0
ZRANGE z 0 1 LIMIT 0 1
ZRANGE z 0 1 LIMIT 0 -1
ZRANGE z - + BYLEX WITHSCORES
ZRANGE z a b
ZRANGE z a b BYSCORE
ZRANGE z a b BYLEX
ZRANGE z 0 1 BYSCORE LIMIT 0
ZRANGE z 0 1 BYSCORE LIMIT a b
ZRANGE z 0 1 FOO
ZRANGESTORE d z 0 1 WITHSCORES
ZRANGEBYSCORE z 0 1 BYSCORE
ZREVRANGE z 0 -1 REV
ZRANGEBYSCORE z nan 1
ZRANGEBYSCORE z 1e400 inf
ZRANGEBYSCORE z ( 2
ZPOPMIN z x
ZPOPMIN z -1
ZPOPMIN z 1 2
ZPOPMIN none
ZPOPMIN none 2
ZRANDMEMBER z x
ZRANDMEMBER z 1 FOO
ZRANDMEMBER z -4611686018427387905 WITHSCORES
ZRANDMEMBER none
ZRANDMEMBER none 1
ZUNION 0 z
ZUNION a z
ZUNION 2 z
ZUNIONSTORE d 0 z
ZDIFFSTORE d -1 z
ZINTERCARD 0 z
ZDIFF 1 z WEIGHTS 1
ZUNION 1 z WEIGHTS a
ZUNION 1 z WEIGHTS
ZUNION 1 z WEIGHTS 1 2
ZUNION 1 z AGGREGATE FOO
ZUNIONSTORE d 1 z WITHSCORES
ZINTERCARD 1 z LIMIT -1
ZINTERCARD 1 z FOO
SET str 1
ZUNION 2 z str
ZPOPMIN str 0
ZUNIONSTORE str 1 none
GET str
ZRANGESTORE d none 0 1";

#[test]
fn errors() {
    Oracle::start().compare_lines(ERRORS.lines());
}

const KEYS: &[&str] = &["y", "z", "w", "set", "str"];
const MEMBERS: &[&str] = &["a", "b", "c", "d", "ee", "f"];
const SCORES: &[&str] = &[
    "1", "2", "2", "-1.5", "0", "inf", "-inf", "0.1", "3e10", "0x10", "1e-7", "17.25", "nan", "x",
];
const ENDS: &[&str] = &["1", "(1", "2", "-inf", "+inf", "(0.1", "17.25", "(inf", "-1.5", "x"];
const RANKS: &[&str] = &["0", "1", "2", "-1", "-2", "-5", "9", "x"];
const LEX_ENDS: &[&str] = &["-", "+", "[a", "(a", "[b", "(c", "[ee", "(zz", "[", "x"];
const OPTIONS: &[&str] =
    &["", "NX", "XX", "GT", "LT", "CH", "NX CH", "XX CH GT", "INCR", "XX INCR"];
const LETTERS: &[&str] = &["a", "b", "c"];
const LIMITS: &[&str] = &["", "LIMIT {0..2} {0..3}", "LIMIT {-1..2} {-2..1}"];
const LISTS: Lists = &[
    ("key", KEYS),
    ("other", KEYS),
    ("third", KEYS),
    ("score", SCORES),
    ("another_score", SCORES),
    ("member", MEMBERS),
    ("another", MEMBERS),
    ("low", ENDS),
    ("high", ENDS),
    ("first", RANKS),
    ("last", RANKS),
    ("lex_low", LEX_ENDS),
    ("lex_high", LEX_ENDS),
    ("options", OPTIONS),
    ("limit", LIMITS),
    ("0..2", &["0", "1", "2"]),
    ("0..3", &["0", "1", "2", "3"]),
    ("-1..2", &["-1", "0", "1", "2"]),
    ("-2..1", &["-2", "-1", "0", "1"]),
    ("with_scores", &["", "WITHSCORES"]),
    ("reverse", &["", "REV"]),
    ("weights", &["", "WEIGHTS 2 0.5", "WEIGHTS -1 inf", "WEIGHTS 1 x"]),
    ("aggregate", &["", "AGGREGATE SUM", "AGGREGATE MIN", "AGGREGATE MAX"]),
    ("number", &["0", "1", "2", "3"]),
    ("one", &["", "{a}", "{a}{b}"]),
    ("two", &["", "{c}", "{c}{d}"]),
    ("a", LETTERS),
    ("b", LETTERS),
    ("c", LETTERS),
    ("d", LETTERS),
];

const TEMPLATES: &str = "\
SET str 1
SADD set a b ee
SUNIONSTORE {key} none
6 ZADD {key} {options} {score} {member} {another_score} {another}
4 ZADD {key} {options} {score} {member}
ZINCRBY {key} {score} {member}
ZREM {key} {member} {another}
ZCARD {key}
ZSCORE {key} {member}
ZMSCORE {key} {member} {another}
ZRANK {key} {member}
ZREVRANK {key} {member}
ZCOUNT {key} {low} {high}
ZRANGE {key} {first} {last} {reverse} {with_scores}
2 ZRANGE {key} {low} {high} BYSCORE {reverse} {limit} {with_scores}
ZREVRANGE {key} {first} {last} {with_scores}
ZRANGEBYSCORE {key} {low} {high} {with_scores} {limit}
ZREVRANGEBYSCORE {key} {low} {high} {with_scores} {limit}
ZREMRANGEBYRANK {key} {first} {last}
ZREMRANGEBYSCORE {key} {low} {high}
ZPOPMIN {key}
ZPOPMAX {key} {number}
ZPOPMIN {key} {number}
ZUNION 2 {key} {other} {weights} {aggregate} {with_scores}
ZINTER 2 {key} {other} {weights} {aggregate} {with_scores}
ZDIFF 2 {key} {other} {with_scores}
ZUNIONSTORE {third} 2 {key} {other} {weights} {aggregate}
ZINTERSTORE {third} 2 {key} {other} {weights} {aggregate}
ZDIFFSTORE {third} 2 {key} {other}
ZINTERCARD 2 {key} {other} LIMIT {number}
ZRANGESTORE {third} {key} {first} {last} {reverse}
ZRANGESTORE {third} {key} {low} {high} BYSCORE {reverse} {limit}
~ ZSCAN {key} 0
~ ZRANDMEMBER {key} 100 {with_scores}
ZUNION 3 {key} {other} {third} {aggregate} WITHSCORES
ZRANGE {key} {low} {high} {limit} {with_scores}
ZLEXCOUNT lex {lex_low} {lex_high}";

pub fn step(random: &mut Random) -> Step {
    from_template(random, TEMPLATES, LISTS)
}

#[test]
fn generated_commands() {
    Oracle::start().compare(150, 120, step);
}

/// All members have the same score.
const LEXICAL: &str = "\
4 ZADD z 0 x{one} 0 {two}y
ZLEXCOUNT z {lex_low} {lex_high}
ZRANGEBYLEX z {lex_low} {lex_high} {limit}
ZREVRANGEBYLEX z {lex_high} {lex_low} {limit}
ZRANGE z {lex_low} {lex_high} BYLEX {limit}
ZRANGE z {lex_high} {lex_low} BYLEX REV {limit}
ZRANGESTORE t z {lex_low} {lex_high} BYLEX {limit}
ZRANGEBYLEX z [x{one} ({two}z
ZREMRANGEBYLEX z [x{one} (x{two}";

#[test]
fn generated_lexical_commands() {
    Oracle::start().compare(60, 100, |random| from_template(random, LEXICAL, LISTS));
}

fn step_in_many(random: &mut Random) -> Step {
    let name = |random: &mut Random| format!("m{}", random.below(400));
    let score = |random: &mut Random| format!("{}", random.below(200) as f64 / 8.0);
    let rank = |random: &mut Random| random.below(500) as i64 - 250;
    let line = match random.below(14) {
        0..=4 => {
            let pairs = (0..40).map(|_| format!("{} {}", score(random), name(random)));
            format!("ZADD z {}", pairs.collect::<Vec<_>>().join(" "))
        }
        5 => format!("ZRANK z {}", name(random)),
        6 => format!("ZREVRANK z {}", name(random)),
        7 => format!("ZCOUNT z {} {}", score(random), score(random)),
        8 => format!("ZRANGE z {} {} WITHSCORES", rank(random), rank(random)),
        9 => format!("ZREVRANGE z {} {}", rank(random), rank(random)),
        10 => format!("ZRANGE z {} {} BYSCORE LIMIT 3 7", score(random), score(random)),
        11 => format!("ZREMRANGEBYRANK z {} {}", random.below(300), random.below(300)),
        12 => format!("ZREM z {} {}", name(random), name(random)),
        _ => format!("ZUNIONSTORE y 2 z y WEIGHTS 0.5 {}", score(random)),
    };
    (words(&line), Equal::Bytes).into()
}

#[test]
fn generated_commands_on_many_members() {
    Oracle::start().compare(15, 80, step_in_many);
}
