//! All keys of a database: KEYS, SCAN, RANDOMKEY.
//!
//! These commands lock nothing, so other clients write meanwhile. A key that exists from the begin
//! of the scan to its end is found. A key that is created, removed or renamed meanwhile may be
//! found.

use std::ops::ControlFlow;

use pando_keyspace::failure::Result;
use pando_keyspace::layout::HASH_BITS;
use pando_net::glob;

use super::integers;
use crate::commands::command::{Command, Context, commands};
use crate::decimal;
use crate::errors::{NOT_AN_INTEGER, SYNTAX};
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["generic": (READ | DANGEROUS), NONE]
    "keys", 2, "1.0.0", keys, "Find all keys matching the given pattern";
    ["generic": (READ), NONE]
    "scan", -2, "2.8.0", scan, "Incrementally iterate the keys space";
    "randomkey", 1, "1.0.0", randomkey, "Return a random key from the keyspace";
};

/// The default of SCAN's COUNT: the number of heads to visit.
const DEFAULT_COUNT: i64 = 10;

/// A filter of names.
struct Wanted<'request> {
    /// `None` selects all.
    pattern: Option<&'request [u8]>,
}

impl<'request> Wanted<'request> {
    fn new(pattern: &'request [u8]) -> Self {
        Self { pattern: (pattern != b"*").then_some(pattern) }
    }

    fn has(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name, false))
    }
}

fn keys(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let wanted = Wanted::new(arguments[1]);
    let (transaction, space) = (&*context.transaction, context.space);
    context.reply.sized(
        |reply, count| reply.array(count),
        |reply| {
            let mut count = 0;
            transaction.visit_heads(space, 0, |_, key, _| {
                if wanted.has(key) {
                    reply.bulk(key);
                    count += 1;
                }
                ControlFlow::Continue(())
            })?;
            Ok(count)
        },
    )
}

/// The options of SCAN.
struct ScanOptions<'request> {
    wanted: Wanted<'request>,
    count: u64,
    kind: Option<&'request [u8]>,
}

impl<'request> ScanOptions<'request> {
    fn read(mut words: &[&'request [u8]]) -> Result<Self> {
        let mut options =
            Self { wanted: Wanted::new(b"*"), count: DEFAULT_COUNT as u64, kind: None };
        while let [word, rest @ ..] = words {
            let [value, behind @ ..] = rest else { return Err(SYNTAX) };
            words = behind;
            match word.to_ascii_lowercase().as_slice() {
                b"match" => options.wanted = Wanted::new(value),
                b"count" => {
                    let count = decimal::parse_i64(value).ok_or(NOT_AN_INTEGER)?;
                    options.count = u64::try_from(count.max(0)).unwrap_or(0);
                    if options.count == 0 {
                        return Err(SYNTAX);
                    }
                }
                b"type" => options.kind = Some(value),
                _ => return Err(SYNTAX),
            }
        }
        Ok(options)
    }
}

fn scan(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let cursor = integers::cursor(arguments[1])?;
    let options = ScanOptions::read(&arguments[2..])?;
    let (transaction, space) = (&*context.transaction, context.space);
    let (mut next, mut looked, mut last) = (0, 0, None);
    let mut found = Vec::new();
    transaction.visit_heads(space, cursor.saturating_sub(1), |hash, key, head| {
        // A cursor cannot separate keys of the same hash, so they are returned together.
        if looked >= options.count && last != Some(hash) {
            next = hash + 1;
            return ControlFlow::Break(());
        }
        (looked, last) = (looked + 1, Some(hash));
        let is_kind = options
            .kind
            .is_none_or(|kind| kind.eq_ignore_ascii_case(head.kind().name().as_bytes()));
        if is_kind && options.wanted.has(key) {
            found.push(key.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    context.reply.array(2);
    context.reply.bulk(next.to_string().as_bytes());
    context.reply.array(found.len());
    for key in &found {
        context.reply.bulk(key);
    }
    Ok(())
}

fn randomkey(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    let mut found = None;
    for first_hash in [fastrand::u64(..1 << HASH_BITS), 0] {
        context.transaction.visit_heads(context.space, first_hash, |_, key, _| {
            found = Some(key.to_vec());
            ControlFlow::Break(())
        })?;
        if found.is_some() {
            break;
        }
    }
    context.reply.bulk_or_null(found.as_deref());
    Ok(())
}
