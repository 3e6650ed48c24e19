//! Commands that write. They run on the main thread, and replicate the values that they have set:
//! no clock, no random number and no old value decides the effect of a replicated command. So a
//! replica, or an append-only file that lacks an unacknowledged write, gets the same values. A
//! command that empties a map is replicated as DEL.

use pando::Order;

use super::access::{
    Change, Keys, canonical, check_key, check_value, commit, integer, is_ignored, replicate, send,
    store,
};
use super::failure::{Failure, Result};
use super::read::ends;
use crate::layout::MAX_KEY_BYTES;
use crate::payload::edits;
use crate::redis::Ctx;

pub fn set(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    let [_, _, _] = words else { return Err(Failure::Usage("PANDO.SET key field value")) };
    put(ctx, words, "pando.set")
}

pub fn mset(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    if words.len() < 3 || words.len().is_multiple_of(2) {
        return Err(Failure::Usage("PANDO.MSET key field value [field value ...]"));
    }
    put(ctx, words, "pando.mset")
}

/// Sets the records behind the key, and replies with the number of new ones.
fn put(ctx: Ctx<'_>, words: &[&[u8]], event: &str) -> Result<()> {
    let Some((name, records)) = words.split_first() else { return Ok(()) };
    if is_ignored(ctx, &[name]) {
        ctx.reply_integer(0);
        return Ok(());
    }
    let store = store()?;
    let mut change = Change::new(ctx, name)?;
    for record in records.chunks_exact(2) {
        let &[key, value] = record else { continue };
        check_key(key)?;
        check_value(value)?;
        change.changes.put(key, value);
    }
    let all = commit(ctx, &store, &[change], event)?;
    if all.iter().any(|changed| changed.is_change) {
        ctx.replicate_verbatim();
    }
    ctx.reply_count(all.iter().map(|changed| changed.added).sum());
    Ok(())
}

pub fn del(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    let Some((name, keys)) = words.split_first().filter(|(_, keys)| !keys.is_empty()) else {
        return Err(Failure::Usage("PANDO.DEL key field [field ...]"));
    };
    if is_ignored(ctx, &[]) {
        ctx.reply_integer(0);
        return Ok(());
    }
    let store = store()?;
    let mut change = Change::new(ctx, name)?;
    // A longer key is absent.
    let keys = keys.iter().filter(|key| key.len() <= MAX_KEY_BYTES);
    keys.for_each(|key| change.changes.remove(key));
    let all = match change.stub {
        Some(_) => commit(ctx, &store, &[change], "pando.del")?,
        None => Vec::new(),
    };
    replicate(ctx, name, &all, || ctx.replicate_verbatim());
    ctx.reply_count(all.iter().map(|changed| changed.removed).sum());
    Ok(())
}

pub fn incrby(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    let [name, key, by] = words else {
        return Err(Failure::Usage("PANDO.INCRBY key field increment"));
    };
    let by = integer(by)?;
    check_key(key)?;
    if is_ignored(ctx, &[]) {
        ctx.reply_integer(0);
        return Ok(());
    }
    let store = store()?;
    let mut change = Change::new(ctx, name)?;
    let old = match change.value(&store, key)? {
        Some(value) => canonical(&value).ok_or(Failure::ValueNotAnInteger)?,
        None => 0,
    };
    let new = old.checked_add(by).ok_or(Failure::Overflow)?;
    let text = new.to_string();
    change.changes.put(key, text.as_bytes());
    if commit(ctx, &store, &[change], "pando.incrby")?.iter().any(|changed| changed.is_change) {
        send(ctx, "PANDO.SET", &[name, key, text.as_bytes()]);
    }
    ctx.reply_integer(new);
    Ok(())
}

pub fn cas(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    const USAGE: Failure = Failure::Usage("PANDO.CAS key field IF value|IFABSENT SET value|DEL");
    let is = |word: &[u8], wanted: &str| word.eq_ignore_ascii_case(wanted.as_bytes());
    let [name, key, rest @ ..] = words else { return Err(USAGE) };
    let (expected, rest) = match rest {
        [word, expected, rest @ ..] if is(word, "IF") => (Some(*expected), rest),
        [word, rest @ ..] if is(word, "IFABSENT") => (None, rest),
        _ => return Err(USAGE),
    };
    let new = match rest {
        [word, new] if is(word, "SET") => Some(*new),
        [word] if is(word, "DEL") => None,
        _ => return Err(USAGE),
    };
    check_key(key)?;
    check_value(new.unwrap_or_default())?;
    if is_ignored(ctx, &[]) {
        ctx.reply_integer(0);
        return Ok(());
    }
    let store = store()?;
    let mut change = Change::new(ctx, name)?;
    if change.value(&store, key)?.as_deref() != expected {
        ctx.reply_integer(0);
        return Ok(());
    }
    match new {
        Some(new) => change.changes.put(key, new),
        None => change.changes.remove(key),
    }
    let all = commit(ctx, &store, &[change], "pando.cas")?;
    replicate(ctx, name, &all, || match new {
        Some(new) => send(ctx, "PANDO.SET", &[name, key, new]),
        None => send(ctx, "PANDO.DEL", &[name, key]),
    });
    ctx.reply_integer(1);
    Ok(())
}

fn pop(ctx: Ctx<'_>, words: &[&[u8]], order: Order, usage: &'static str) -> Result<()> {
    let (name, count) = match words {
        [name] => (name, 1),
        [name, count] => (name, u64::try_from(integer(count)?).map_err(|_| Failure::NotAnInteger)?),
        _ => return Err(Failure::Usage(usage)),
    };
    if is_ignored(ctx, &[]) {
        ctx.reply_map(0);
        return Ok(());
    }
    let store = store()?;
    let mut change = Change::new(ctx, name)?;
    let records = match &change.stub {
        Some(stub) => ends(&store, stub, order, count)?,
        None => Vec::new(),
    };
    if !records.is_empty() {
        records.iter().for_each(|(key, _)| change.changes.remove(key));
        let event = if order == Order::Ascending { "pando.popmin" } else { "pando.popmax" };
        let all = commit(ctx, &store, &[change], event)?;
        let mut words = vec![*name];
        words.extend(records.iter().map(|(key, _)| key.as_slice()));
        replicate(ctx, name, &all, || send(ctx, "PANDO.DEL", &words));
    }
    ctx.reply_map(records.len());
    for (key, value) in &records {
        ctx.reply_bytes(key);
        ctx.reply_bytes(value);
    }
    Ok(())
}

pub fn popmin(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    pop(ctx, words, Order::Ascending, "PANDO.POPMIN key [count]")
}

pub fn popmax(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    pop(ctx, words, Order::Descending, "PANDO.POPMAX key [count]")
}

/// Applies payloads of records and receipts, all in one commit: what PANDO.APPLY replicates, and an
/// append-only file without an RDB base has.
pub fn load(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    if words.is_empty() || !words.len().is_multiple_of(2) {
        return Err(Failure::Usage("PANDO.LOAD key payload [key payload ...]"));
    }
    let names: Vec<&[u8]> = words.iter().step_by(2).copied().collect();
    if is_ignored(ctx, &names) {
        ctx.reply_simple("OK");
        return Ok(());
    }
    let store = store()?;
    let mut keys = Keys::default();
    for pair in words.chunks_exact(2) {
        let &[name, payload] = pair else { continue };
        let at = keys.place(ctx, name)?;
        for edit in edits(payload) {
            keys.changes[at].changes.add(edit?);
        }
    }
    let all = commit(ctx, &store, &keys.changes, "pando.load")?;
    if all.iter().any(|changed| changed.is_change) {
        ctx.replicate_verbatim();
    }
    ctx.reply_simple("OK");
    Ok(())
}
