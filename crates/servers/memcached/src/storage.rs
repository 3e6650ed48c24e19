//! The storage and counting operations on a value, for the text protocol and the meta commands.

use pando_keyspace::failure::{NO_MEMORY, Result};
use pando_keyspace::layout::Kind;
use pando_keyspace::stripes::Access;
use pando_keyspace::{Store, Transaction};

use crate::item::{self, About, Found, Marks};
use crate::parse;
use crate::state::Serving;

/// The condition and the way of storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Always.
    Set,
    /// If there is no value.
    Add,
    /// If there is a value.
    Replace,
    /// After the existing value.
    Append,
    /// Before the existing value.
    Prepend,
    /// If the existing value has the given cas.
    Compare,
}

/// A value to be stored.
#[derive(Debug)]
pub(crate) struct Write {
    /// Its key.
    pub key: Vec<u8>,
    /// The condition and the way.
    pub mode: Mode,
    /// The client's flags.
    pub flags: u32,
    /// The expiry time, in milliseconds of the store's clock.
    pub expires_at: Option<u64>,
    /// The required cas of the existing value; 0 for none.
    pub cas: u64,
    /// Whether an older cas is allowed; then the new value is stale at once.
    pub may_be_stale: bool,
    /// Whether the key arrived in base64.
    pub is_binary_key: bool,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The value is stored with this cas.
    Done(u64),
    /// The condition is false.
    Refused,
    /// The existing value has another cas.
    OtherCas,
    /// There is no value to compare with.
    Missing,
}

/// A transaction on one key, whose stripe is locked.
pub(crate) fn begin<'server>(
    server: &Serving<'server>,
    key: &[u8],
    access: Access,
) -> Result<Transaction<'server>> {
    let stripes = std::iter::once(Store::stripe_of_key(key)).collect();
    let held = server.store.lock(stripes, access)?;
    server.may_write.set(server.may_write.get() || access == Access::Exclusive);
    Ok(server.store.begin(held, server.store.clock().now_ms()))
}

/// As [`begin`], for a command that may need memory. At the memory limit keys are evicted, or the
/// command is refused.
pub(crate) fn begin_storing<'server>(
    server: &Serving<'server>,
    key: &[u8],
) -> Result<Transaction<'server>> {
    match server.store.make_room()? {
        true => begin(server, key, Access::Exclusive),
        false => Err(NO_MEMORY),
    }
}

/// Stores a value if its condition holds. `max_item_bytes` limits its length.
pub(crate) fn store(
    server: &Serving<'_>,
    write: &Write,
    bytes: &[u8],
    max_item_bytes: usize,
) -> Result<Outcome> {
    let mut transaction = begin_storing(server, &write.key)?;
    // `set` does not depend on the existing value.
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

/// Removes the value at a key if memcached's clients can see one, and returns whether they could.
pub(crate) fn delete(server: &Serving<'_>, key: &[u8]) -> Result<bool> {
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

/// The result of a count.
#[derive(Debug)]
pub(crate) enum Counted {
    /// The number, and the new value, which must be put.
    Number(u64, About, Vec<u8>),
    /// The existing value is not a number.
    NotANumber,
    /// The existing value has another cas.
    Exists,
    /// There is no value. The key's content may be a collection.
    NotFound(Found),
}

/// Counts up or down; `cas` as in [`Write`]. Counting up wraps at 2⁶⁴, and counting down stops at
/// 0. If the number is shorter than the value, spaces after it keep the length.
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
    // In memcached's order: an empty value is refused before its cas is compared.
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
        // Memcached creates a new value then.
        bytes = digits.to_vec();
        about.marks = Marks::default();
    }
    about.cas = item::new_cas(transaction.store());
    Ok(Counted::Number(number, about, bytes))
}

/// Changes the expiry time of the value at a key, and returns whether there is one.
pub(crate) fn touch(server: &Serving<'_>, key: &[u8], expires_at: Option<u64>) -> Result<bool> {
    let mut transaction = begin(server, key, Access::Exclusive)?;
    let Found::Item(about, bytes) = item::find(&transaction, key)? else { return Ok(false) };
    item::put(&mut transaction, key, &About { expires_at, ..about }, &bytes)?;
    transaction.commit()?;
    Ok(true)
}
