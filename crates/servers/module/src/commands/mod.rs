//! The commands `PANDO.*`: a table, and a file for each kind.

mod access;
mod apply;
mod failure;
mod read;
mod write;

use failure::{Failure, Result};

use crate::log;
use crate::redis::{Command, Ctx, KeyUse, Keys};

/// Replies with the error of a command. Redis passes over an error of a command of the primary, or
/// of the append-only file, and the data would differ from then on: the server ends instead.
fn refuse(ctx: Ctx<'_>, flags: &str, failure: &Failure) {
    let of_call = ctx.flags();
    if flags.contains("write") && (of_call.is_replicated() || of_call.is_loading()) {
        log::fatal(&format!(
            "a write of the primary, or of the append-only file, cannot be applied, and to go on \
             without it would lose data; the server ends: {failure}"
        ));
    }
    ctx.reply_error(&failure.to_string());
}

/// Makes the function of a table's row: it replies with the error, if there is one.
macro_rules! replying {
    ($handler:path, $flags:literal) => {
        |ctx: Ctx<'_>, words: &[&[u8]]| {
            let result: Result<()> = $handler(ctx, words);
            if let Err(failure) = result {
                refuse(ctx, $flags, &failure);
            }
        }
    };
}

/// Rows: name, flags, arity, keys, their use, function, summary, complexity.
macro_rules! table {
    ($($name:literal $flags:literal $arity:literal $keys:ident $key_use:ident $handler:path,
       $summary:literal, $complexity:literal;)*) => {
        /// All commands.
        pub const COMMANDS: &[Command] = &[$(Command {
            name: $name,
            flags: $flags,
            arity: $arity,
            keys: Keys::$keys,
            key_use: KeyUse::$key_use,
            summary: $summary,
            complexity: $complexity,
            run: replying!($handler, $flags),
        }),*];
    };
}

table! {
    "pando.set" "write deny-oom fast" 4 First Writes write::set,
        "Sets the value of a field; the reply is 1 if the field is new", "O(log n)";
    "pando.get" "readonly fast" 3 First Reads read::get,
        "The value of a field", "O(log n)";
    "pando.mget" "readonly fast" -3 First Reads read::mget,
        "The values of fields", "O(m log n) for m fields";
    "pando.mset" "write deny-oom" -4 First Writes write::mset,
        "Sets the values of fields at once; the reply is the number of new ones",
        "O(m log n) for m fields";
    "pando.del" "write fast" -3 First Deletes write::del,
        "Removes fields at once; the reply is their number", "O(m log n) for m fields";
    "pando.incrby" "write deny-oom fast" 4 First ReadsAndWrites write::incrby,
        "Adds to the integer of a field", "O(log n)";
    "pando.cas" "write deny-oom fast" -5 First ReadsAndWrites write::cas,
        "Sets or removes a field if it has a value, or is absent", "O(log n)";
    "pando.range" "readonly" -4 First Reads read::range,
        "The records between two fields, in order", "O(log n + m) for m records";
    "pando.revrange" "readonly" -4 First Reads read::revrange,
        "The records between two fields, in descending order", "O(log n + m) for m records";
    "pando.scan" "readonly" -3 First Reads read::scan,
        "Some records from a cursor on, in order", "O(log n + m) for m records";
    "pando.count" "readonly fast" -2 First Reads read::count,
        "The number of records, of all or of a range", "O(1), or O(log n + m) for m records";
    "pando.first" "readonly fast" 2 First Reads read::first,
        "The record with the smallest field", "O(log n)";
    "pando.last" "readonly fast" 2 First Reads read::last,
        "The record with the largest field", "O(log n)";
    "pando.popmin" "write fast" -2 First ReadsAndWrites write::popmin,
        "Removes and returns the records with the smallest fields", "O(m log n) for m records";
    "pando.popmax" "write fast" -2 First ReadsAndWrites write::popmax,
        "Removes and returns the records with the largest fields", "O(m log n) for m records";
    "pando.stat" "readonly" -2 First Reads read::stat,
        "The figures of a map, and a checksum of its records", "O(1), or O(n) with CHECKSUM";
    "pando.apply" "write deny-oom" -6 Counted ReadsAndWrites apply::apply,
        "Conditions and writes of several keys at once, exactly once with a receipt",
        "O(m log n) for m operations";
    "pando.load" "write deny-oom" -3 EachSecond Writes write::load,
        "Internal: applies payloads of records and receipts", "O(m log n) for m records";
}
