//! What a command does with each of its keys, as rules with `%R~` and `%W~` tell apart: whether it
//! shows what is in the key, and whether it changes it. The tables follow Redis 7.0's key
//! specifications.

use crate::spec::{Arguments, Spec, flags};

/// What is done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// What is in it gets out.
    pub reads: bool,
    /// It changes.
    pub writes: bool,
}

pub(crate) const READS: Access = Access { reads: true, writes: false };
pub(crate) const WRITES: Access = Access { reads: false, writes: true };
pub(crate) const BOTH: Access = Access { reads: true, writes: true };
const NEITHER: Access = Access { reads: false, writes: false };

/// Commands that tell about a key and not what is in it.
const ONLY_ABOUT: &[&str] = &[
    "exists",
    "hexists",
    "hlen",
    "hstrlen",
    "llen",
    "scard",
    "sismember",
    "strlen",
    "touch",
    "type",
    "watch",
    "zcard",
    "usage",
    "encoding",
    "freq",
    "idletime",
    "refcount",
];

/// Commands that change a key and tell nothing of what was in it.
const ONLY_CHANGE: &[&str] = &[
    "append",
    "del",
    "expire",
    "expireat",
    "geoadd",
    "hdel",
    "hmset",
    "hset",
    "hsetnx",
    "linsert",
    "lpush",
    "lpushx",
    "lrem",
    "lset",
    "ltrim",
    "mset",
    "msetnx",
    "persist",
    "pexpire",
    "pexpireat",
    "pfadd",
    "psetex",
    "restore",
    "rpush",
    "rpushx",
    "sadd",
    "setex",
    "setnx",
    "setrange",
    "srem",
    "unlink",
    "zadd",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
];

/// Commands whose first key is written and the others read.
const INTO_FIRST: &[&str] = &[
    "bitop",
    "geosearchstore",
    "sdiffstore",
    "sinterstore",
    "sunionstore",
    "zdiffstore",
    "zinterstore",
    "zrangestore",
    "zunionstore",
];

/// Commands that take from the first key and put into the second.
const FROM_FIRST: &[&str] =
    &["blmove", "brpoplpush", "lmove", "rename", "renamenx", "rpoplpush", "smove"];

/// What `command` does with the key at `place`.
pub(crate) fn of(command: &Spec, arguments: &Arguments<'_>, place: usize) -> Access {
    let name = command.name;
    let is_first = command.keys.places(arguments).min() == Some(place);
    match name {
        "set" => {
            let mut options = arguments.iter().skip(3);
            if options.any(|option| option.eq_ignore_ascii_case(b"get")) { BOTH } else { WRITES }
        }
        "copy" => {
            if is_first {
                READS
            } else {
                WRITES
            }
        }
        _ if INTO_FIRST.contains(&name) => {
            if is_first {
                WRITES
            } else {
                READS
            }
        }
        _ if FROM_FIRST.contains(&name) => {
            if is_first {
                BOTH
            } else {
                WRITES
            }
        }
        "pfmerge" => {
            if is_first {
                BOTH
            } else {
                READS
            }
        }
        _ if ONLY_ABOUT.contains(&name) => NEITHER,
        _ if ONLY_CHANGE.contains(&name) => WRITES,
        _ if command.flags.has(flags::WRITE) => BOTH,
        _ => READS,
    }
}

/// The words that `COMMAND GETKEYSANDFLAGS` has for it.
pub(crate) fn words(command: &Spec, arguments: &Arguments<'_>, place: usize) -> Vec<&'static str> {
    let Access { reads, writes } = of(command, arguments, place);
    let first = match (reads, writes) {
        (_, false) => "RO",
        (true, true) => "RW",
        (false, true) if matches!(command.name, "set" | "mset" | "setex" | "psetex") => "OW",
        (false, true) if matches!(command.name, "del" | "unlink") => "RM",
        (false, true) => "RW",
    };
    let mut words = vec![first];
    if reads {
        words.push("access");
    }
    if writes {
        words.push(if first == "RM" { "delete" } else { "update" });
    }
    words
}
