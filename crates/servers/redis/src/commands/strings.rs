//! Whole strings: GET, SET and similar commands.

use std::ops::ControlFlow;

use pando_keyspace::failure::{Result, WRONG_TYPE, fail};
use pando_keyspace::layout::{Content, Head, LongString, Memcached};
use pando_keyspace::{Store, Transaction};

use super::set_options::{ExpiryForm, Options, expiry};
use crate::commands::command::{Command, Context, commands};
use crate::resp::reply::Reply;
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["string": (READ | FAST), ONE]
    "get", 2, "1.0.0", get, "Get the value of a key";
    ["string": (WRITE | FAST), ONE]
    "getdel", 2, "6.2.0", getdel, "Get the value of a key and delete the key";
    "getex", -2, "6.2.0", getex, "Get the value of a key and optionally set its expiration";
    ["string": (WRITE | DENYOOM | FAST), ONE]
    "getset", 3, "1.0.0", getset, "Set the string value of a key and return its old value";
    ["string": (WRITE | DENYOOM | FAST | ONLY_CHANGES), ONE]
    "setnx", 3, "1.0.0", setnx, "Set the value of a key, only if the key does not exist";
    ["string": (READ | FAST), ALL]
    "mget", -2, "1.0.0", mget, "Get the values of all the given keys";
    ["string": (WRITE | DENYOOM | ONLY_CHANGES), PAIRS]
    "mset", -3, "1.0.1", mset, "Set multiple keys to multiple values";
    "msetnx", -3, "1.0.1", msetnx,
        "Set multiple keys to multiple values, only if none of the keys exist";
    ["string": (WRITE | DENYOOM | ONLY_CHANGES), ONE]
    "psetex", 4, "2.6.0", psetex, "Set the value and expiration in milliseconds of a key";
    "setex", 4, "2.0.0", setex, "Set the value and expiration of a key";
    ["string": (WRITE | DENYOOM), ONE]
    "set", -3, "1.0.0", set, "Set the string value of a key";
};

/// A string to change, and its properties that stay.
#[derive(Debug, Default)]
pub(super) struct Changing {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its expiry time.
    pub expires_at: Option<u64>,
    /// The data of memcached.
    pub memcached: Option<Memcached>,
}

impl Changing {
    /// Copies the string at `key`.
    pub(super) fn find(context: &Context<'_, '_>, key: &[u8]) -> Result<Option<Self>> {
        let found = context.transaction.head(context.space, key, |head| {
            let Some(head) = head else { return Ok(None) };
            let Head { expires_at, memcached, .. } = head;
            let (bytes, long) = match head.content {
                Content::String(bytes) => (bytes.to_vec(), None),
                Content::Long(long) => (Vec::new(), Some(long)),
                Content::Collection(..) => return Err(WRONG_TYPE),
            };
            Ok(Some((Self { bytes, expires_at, memcached }, long)))
        })?;
        let Some((mut found, long)) = found? else { return Ok(None) };
        if let Some(long) = long {
            found.bytes = context.transaction.gather(long)?;
        }
        Ok(Some(found))
    }

    /// Puts the changed string.
    pub(super) fn put(&self, context: &mut Context<'_, '_>, key: &[u8]) -> Result<()> {
        let Self { ref bytes, expires_at, memcached } = *self;
        put_changed(context, key, bytes, expires_at, memcached)
    }
}

/// Puts a changed string with this expiry time and this former data of memcached.
pub(super) fn put_changed(
    context: &mut Context<'_, '_>,
    key: &[u8],
    bytes: &[u8],
    expires_at: Option<u64>,
    memcached: Option<Memcached>,
) -> Result<()> {
    let memcached = memcached.map(|former| renewed(context.transaction.store(), former));
    let head = Head { expires_at, memcached, content: Content::String(bytes) };
    context.transaction.put_head(context.space, key, &head)
}

/// The data of memcached for a changed string.
pub(super) fn renewed(store: &Store, former: Memcached) -> Memcached {
    Memcached { cas: store.new_cas(), ..former }
}

fn get(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    reply_value(context, arguments[1]).map(|_| ())
}

/// Replies the value of `key`, and returns whether it exists.
fn reply_value(context: &mut Context<'_, '_>, key: &[u8]) -> Result<bool> {
    let reply = &mut *context.reply;
    let found = context.transaction.head(context.space, key, |head| {
        match head.map(|head| head.content) {
            Some(Content::String(bytes)) => {
                reply.bulk(bytes);
                Ok((true, None))
            }
            Some(Content::Long(long)) => Ok((true, Some(long))),
            Some(Content::Collection(..)) => Err(WRONG_TYPE),
            None => {
                reply.null();
                Ok((false, None))
            }
        }
    })?;
    let (is_there, long) = found?;
    if let Some(long) = long {
        reply_long(context.transaction, context.reply, long)?;
    }
    Ok(is_there)
}

/// Replies a long string.
pub(crate) fn reply_long(
    transaction: &Transaction<'_>,
    reply: &mut Reply,
    long: LongString,
) -> Result<()> {
    reply.begin_bulk(long.bytes);
    transaction.read_pieces(long, 0..long.bytes, |bytes| {
        reply.part_of_bulk(bytes);
        ControlFlow::Continue(())
    })?;
    reply.end_bulk();
    Ok(())
}

fn getdel(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    if reply_value(context, arguments[1])? {
        context.transaction.remove_head(context.space, arguments[1])?;
    }
    Ok(())
}

fn getset(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    reply_value(context, arguments[1])?;
    context.transaction.put_head(context.space, arguments[1], &Head::string(arguments[2]))
}

fn getex(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let key = arguments[1];
    let options = Options::of_getex(&arguments[2..])?;
    if options.expires.is_none() && !options.persists {
        return reply_value(context, key).map(|_| ());
    }
    if !reply_value(context, key)? {
        return Ok(());
    }
    let expires_at =
        options.expires.map(|at| expiry(context.transaction, "getex", at)).transpose()?;
    if expires_at.is_some_and(|at_ms| at_ms <= context.transaction.now_ms()) {
        context.transaction.remove_head(context.space, key)?;
        return Ok(());
    }
    let former = context
        .transaction
        .head(context.space, key, |head| head.and_then(|head| head.expires_at))?;
    if expires_at != former {
        context.transaction.change_expiry(context.space, key, expires_at)?;
    }
    Ok(())
}

fn mget(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let Context { transaction, reply, .. } = context;
    reply.array(arguments.len() - 1);
    transaction.heads(context.space, &arguments[1..], |head| {
        match head.map(|head| head.content) {
            Some(Content::String(bytes)) => reply.bulk(bytes),
            Some(Content::Long(long)) => reply_long(transaction, reply, long)?,
            Some(Content::Collection(..)) | None => reply.null(),
        }
        Ok(true)
    })
}

fn set(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (key, value) = (arguments[1], arguments[2]);
    if arguments.len() > 3 {
        let options = Options::of_set(&arguments[3..])?;
        return set_with(context, "set", key, value, &options);
    }
    context.transaction.put_string(context.space, key, &Head::string(value))?;
    context.reply.ok();
    Ok(())
}

fn set_with(
    context: &mut Context<'_, '_>,
    command: &str,
    key: &[u8],
    value: &[u8],
    options: &Options<'_>,
) -> Result<()> {
    let expires_at =
        options.expires.map(|at| expiry(context.transaction, command, at)).transpose()?;
    if options.is_get {
        reply_value(context, key)?;
    }
    let former =
        context.transaction.head(context.space, key, |head| head.map(|head| head.expires_at))?;
    if options.is_nx && former.is_some() || options.is_xx && former.is_none() {
        if !options.is_get {
            context.reply.null();
        }
        return Ok(());
    }
    if expires_at.is_some_and(|at_ms| at_ms <= context.transaction.now_ms()) {
        // The new expiry time is in the past, so the key is removed.
        context.transaction.remove_head(context.space, key)?;
    } else {
        let kept = former.flatten().filter(|_| options.keeps_ttl);
        let head = Head { expires_at: expires_at.or(kept), ..Head::string(value) };
        context.transaction.put_head(context.space, key, &head)?;
    }
    if !options.is_get {
        context.reply.ok();
    }
    Ok(())
}

fn setex(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let expires = Some((ExpiryForm::InSeconds, arguments[2]));
    let options = Options { expires, ..Options::default() };
    set_with(context, "setex", arguments[1], arguments[3], &options)
}

fn psetex(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let expires = Some((ExpiryForm::InMilliseconds, arguments[2]));
    let options = Options { expires, ..Options::default() };
    set_with(context, "psetex", arguments[1], arguments[3], &options)
}

fn setnx(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let is_there = exists(context, arguments[1])?;
    if !is_there {
        context.transaction.put_head(context.space, arguments[1], &Head::string(arguments[2]))?;
    }
    context.reply.integer(i64::from(!is_there));
    Ok(())
}

/// Whether `key` exists.
pub(super) fn exists(context: &Context<'_, '_>, key: &[u8]) -> Result<bool> {
    context.transaction.head(context.space, key, |head| head.is_some())
}

fn mset(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (pairs, rest) = arguments[1..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(fail("ERR wrong number of arguments for 'mset' command"));
    }
    for [key, value] in pairs {
        context.transaction.put_head(context.space, key, &Head::string(value))?;
    }
    context.reply.ok();
    Ok(())
}

fn msetnx(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (pairs, rest) = arguments[1..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(fail("ERR wrong number of arguments for 'msetnx' command"));
    }
    for [key, _] in pairs {
        if exists(context, key)? {
            context.reply.integer(0);
            return Ok(());
        }
    }
    for [key, value] in pairs {
        context.transaction.put_head(context.space, key, &Head::string(value))?;
    }
    context.reply.integer(1);
    Ok(())
}
