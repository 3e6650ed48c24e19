//! The access of commands to their keys: whether a command shows the contents of a key, and whether
//! it changes them. Rules with `%R~` and `%W~` need the difference. The tables follow Redis 7.0's
//! key specifications.

use pando_net::access::Access;

use crate::spec::{Arguments, Spec, flags};

pub(crate) const READS: Access = Access { reads: true, writes: false };
pub(crate) const WRITES: Access = Access { reads: false, writes: true };
pub(crate) const BOTH: Access = Access { reads: true, writes: true };
const NEITHER: Access = Access { reads: false, writes: false };

/// The access of `command` to the key at index `place` of its arguments.
pub(crate) fn of(command: &Spec, arguments: &Arguments<'_>, place: usize) -> Access {
    let is_first = command.keys.places(arguments).min() == Some(place);
    let first_and_others = |first, others| if is_first { first } else { others };
    match command.name {
        "set" => {
            let mut options = arguments.iter().skip(3);
            if options.any(|option| option.eq_ignore_ascii_case(b"get")) { BOTH } else { WRITES }
        }
        "copy" => first_and_others(READS, WRITES),
        "rename" | "renamenx" | "smove" => first_and_others(BOTH, WRITES),
        "bitop" | "sdiffstore" | "sinterstore" | "sunionstore" | "zdiffstore" | "zinterstore"
        | "zrangestore" | "zunionstore" => first_and_others(WRITES, READS),
        _ if command.flags.has(flags::ONLY_ABOUT) => NEITHER,
        _ if command.flags.has(flags::ONLY_CHANGES) => WRITES,
        _ if command.flags.has(flags::WRITE) => BOTH,
        _ => READS,
    }
}

/// The flags that `COMMAND GETKEYSANDFLAGS` replies for this key.
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
