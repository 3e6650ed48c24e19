//! What the storage and counting commands do to a value, in the text protocol and by meta commands
//! alike.

use pando_keyspace::failure::{NO_MEMORY, Result};
use pando_keyspace::layout::Kind;
use pando_keyspace::stripes::Access;
use pando_keyspace::{Store, Transaction};

use crate::item::{self, About, Found, Marks};
use crate::parse;
use crate::state::Server;

/// Under which condition a value is stored, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Whatever is there.
    Set,
    /// If nothing is there.
    Add,
    /// If a value is there.
    Replace,
    /// Behind the value that is there.
    Append,
    /// Before the value that is there.
    Prepend,
    /// If the value that is there has the cas that was named.
    Compare,
}

/// A value to be stored.
#[derive(Debug)]
pub(crate) struct Write {
    /// Where.
    pub key: Vec<u8>,
    /// How.
    pub mode: Mode,
    /// The client's flags.
    pub flags: u32,
    /// When it expires, in milliseconds of the store's clock.
    pub expires_at: Option<u64>,
    /// The cas that the value there must have; 0 for none.
    pub cas: u64,
    /// Whether an older cas will do, for a value that is stale at once.
    pub may_be_stale: bool,
    /// Whether the key came in base64.
    pub is_binary_key: bool,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is there, with this cas.
    Done(u64),
    /// The condition did not hold.
    Refused,
    /// The value there has another cas.
    OtherCas,
    /// There is no value whose cas could match.
    Missing,
}

/// A transaction on one key, whose stripe is locked.
pub(crate) fn begin<'server>(
    server: Server<'server>,
    key: &[u8],
    access: Access,
) -> Result<Transaction<'server>> {
    let stripes = std::iter::once(Store::stripe_of_key(key)).collect();
    let held = server.store.lock(stripes, access)?;
    Ok(server.store.begin(held, server.store.clock().now_ms()))
}

/// As [`begin`], of one that may write: if there is no more memory, keys go or it is refused.
pub(crate) fn begin_storing<'server>(
    server: Server<'server>,
    key: &[u8],
) -> Result<Transaction<'server>> {
    match server.store.make_room()? {
        true => begin(server, key, Access::Exclusive),
        false => Err(NO_MEMORY),
    }
}

/// Stores a value, if its condition holds. A value may be so long as `max_item_bytes` says.
pub(crate) fn store(
    server: Server<'_>,
    write: &Write,
    bytes: &[u8],
    max_item_bytes: usize,
) -> Result<Outcome> {
    let mut transaction = begin_storing(server, &write.key)?;
    // A value that is set whatever is there needs no look.
    let found = match write.mode {
        Mode::Set => Found::Nothing,
        _ => item::find(&transaction, &write.key)?,
    };
    let key_mark = if write.is_binary_key { Marks::BINARY_KEY } else { Marks::default() };
    let mut about = About {
        flags: write.flags,
        cas: item::new_cas(server.store),
        marks: key_mark,
        expires_at: write.expires_at,
    };
    let joined;
    let bytes = match (write.mode, found) {
        (Mode::Set, _) | (Mode::Add, Found::Nothing) | (Mode::Replace, Found::Item(..)) => bytes,
        (Mode::Compare, Found::Item(former, _)) => {
            if write.may_be_stale && write.cas != 0 && write.cas < former.cas {
                about.expires_at = former.expires_at;
                about.marks = about.marks.with(Marks::STALE);
                if former.marks.has(Marks::WON) {
                    about.marks = about.marks.with(Marks::WON);
                }
            } else if write.cas != former.cas {
                return Ok(Outcome::OtherCas);
            }
            bytes
        }
        (Mode::Append | Mode::Prepend, Found::Item(former, there)) => {
            if write.cas != 0 && write.cas != former.cas {
                return Ok(Outcome::OtherCas);
            }
            let whole = there.len().saturating_add(bytes.len());
            if item::item_bytes(&write.key, former.flags, whole) > max_item_bytes {
                return Ok(Outcome::Refused);
            }
            joined = match write.mode {
                Mode::Append => [&there, bytes].concat(),
                _ => [bytes, &there].concat(),
            };
            about.flags = former.flags;
            about.expires_at = former.expires_at;
            about.marks = Marks::default();
            &joined
        }
        (Mode::Compare, _) => return Ok(Outcome::Missing),
        _ => return Ok(Outcome::Refused),
    };
    item::put(&mut transaction, &write.key, &about, bytes)?;
    transaction.commit()?;
    Ok(Outcome::Done(about.cas))
}

/// Removes the value at a key, if memcached's clients can see one; whether they could.
pub(crate) fn delete(server: Server<'_>, key: &[u8]) -> Result<bool> {
    let mut transaction = begin(server, key, Access::Exclusive)?;
    let space = transaction.space(item::DATABASE);
    let is_there = transaction
        .head(space, key, |head| head.is_some_and(|head| head.kind() == Kind::String))?;
    if is_there {
        transaction.remove_head(space, key)?;
        transaction.commit()?;
    }
    Ok(is_there)
}

/// What became of a count.
#[derive(Debug)]
pub(crate) enum Counted {
    /// The number, and the value that now is to be put.
    Number(u64, About, Vec<u8>),
    /// The value there is no number.
    NotANumber,
    /// The value there has another cas.
    Exists,
    /// There is no value; what there is, if that is anything.
    NotFound(Found),
}

/// Counts up or down; `cas` as in [`Write`]. Up goes round at 2⁶⁴, down stops at 0. The value keeps
/// its length if the number is shorter: spaces follow it.
pub(crate) fn count(
    transaction: &Transaction<'_>,
    key: &[u8],
    is_up: bool,
    delta: u64,
    cas: u64,
) -> Result<Counted> {
    let (mut about, mut bytes) = match item::find(transaction, key)? {
        Found::Item(about, bytes) => (about, bytes),
        other => return Ok(Counted::NotFound(other)),
    };
    // In memcached's order: the cas of an empty value is not looked at.
    if bytes.is_empty() {
        return Ok(Counted::NotANumber);
    }
    if cas != 0 && cas != about.cas {
        return Ok(Counted::Exists);
    }
    let Some(number) = parse::parse_u64(&bytes) else { return Ok(Counted::NotANumber) };
    let number = if is_up { number.wrapping_add(delta) } else { number.saturating_sub(delta) };
    let mut text = itoa::Buffer::new();
    let digits = text.format(number).as_bytes();
    if digits.len() <= bytes.len() {
        bytes.fill(b' ');
        bytes[..digits.len()].copy_from_slice(digits);
    } else {
        // Memcached makes a new value then.
        bytes = digits.to_vec();
        about.marks = Marks::default();
    }
    about.cas = item::new_cas(transaction.store());
    Ok(Counted::Number(number, about, bytes))
}

/// Gives the value at a key another time to expire; whether there is one.
pub(crate) fn touch(server: Server<'_>, key: &[u8], expires_at: Option<u64>) -> Result<bool> {
    let mut transaction = begin(server, key, Access::Exclusive)?;
    let Found::Item(about, bytes) = item::find(&transaction, key)? else { return Ok(false) };
    item::put(&mut transaction, key, &About { expires_at, ..about }, &bytes)?;
    transaction.commit()?;
    Ok(true)
}
