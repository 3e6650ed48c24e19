//! Maps of the keyspace, for commands.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::failure::{Failure, Result};
use crate::layout::{MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_VALUE_BYTES, NEVER};
use crate::log;
use crate::redis::{Class, Ctx, Found};
use crate::settings;
use crate::state::{Phase, STATE};
use crate::store::{Changed, Changes, Store, Target};
use crate::stub::Stub;

/// The pool.
pub fn store() -> Result<Arc<Store>> {
    STATE.store().ok_or(Failure::NotReady)
}

/// Whether a write has no effect on the pool: the append-only file is loaded, and the pool has
/// precedence. Keys that the command sets get a placeholder, so that the other commands of the file
/// find the keys that they have found before. The end of the start replaces it.
pub fn is_ignored(ctx: Ctx<'_>, names: &[&[u8]]) -> bool {
    if STATE.phase() != Phase::PoolFirst {
        return false;
    }
    for name in names {
        if let Found::Absent = ctx.find(name) {
            STATE.placeholders.fetch_add(1, Ordering::Relaxed);
            ctx.set(name, Stub::placeholder(), NEVER);
        }
    }
    true
}

/// The map of a key; none if the key is absent.
pub fn map(ctx: Ctx<'_>, name: &[u8]) -> Result<Option<Arc<Stub>>> {
    match ctx.access(name) {
        Found::Absent => Ok(None),
        Found::Map(stub, _) => Ok(Some(stub)),
        Found::Other => Err(Failure::WrongType),
    }
}

/// The map of a key that a command may change. On a replica that takes writes, a key that has
/// expired is absent, but stays in the keyspace until a write deletes it. So it is deleted before
/// the commit: if it was deleted later, the name of the new map would be taken for the old one's.
fn map_to_change(ctx: Ctx<'_>, name: &[u8]) -> Result<Option<Arc<Stub>>> {
    let found = map(ctx, name)?;
    let flags = ctx.flags();
    if found.is_none() && flags.is_replica() && !flags.is_replicated() {
        ctx.delete_expired(name);
    }
    Ok(found)
}

pub fn check_key(key: &[u8]) -> Result<()> {
    match key.len() {
        ..=MAX_KEY_BYTES => Ok(()),
        bytes => Err(Failure::KeyTooLong(bytes)),
    }
}

pub fn check_value(value: &[u8]) -> Result<()> {
    match value.len() {
        ..=MAX_VALUE_BYTES => Ok(()),
        bytes => Err(Failure::ValueTooLong(bytes)),
    }
}

/// A number of a client.
pub fn integer(word: &[u8]) -> Result<i64> {
    canonical(word).ok_or(Failure::NotAnInteger)
}

/// An integer without leading zeros, plus or spaces.
pub fn canonical(word: &[u8]) -> Option<i64> {
    let integer: i64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    (integer.to_string().as_bytes() == word).then_some(integer)
}

/// The changes of one key.
pub struct Change<'name> {
    pub name: &'name [u8],
    pub stub: Option<Arc<Stub>>,
    pub changes: Changes,
}

impl<'name> Change<'name> {
    pub fn new(ctx: Ctx<'_>, name: &'name [u8]) -> Result<Self> {
        Ok(Self { name, stub: map_to_change(ctx, name)?, changes: Changes::default() })
    }

    /// The value of a record now.
    pub fn value(&self, store: &Store, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match &self.stub {
            Some(stub) => Ok(store.get(stub.number(), crate::layout::Kind::Record, key)?),
            None => Ok(None),
        }
    }
}

/// The keys of a command. A key that is named twice has one change.
#[derive(Default)]
pub struct Keys<'name> {
    pub changes: Vec<Change<'name>>,
    places: HashMap<&'name [u8], usize>,
}

impl<'name> Keys<'name> {
    /// The place of the key's change.
    pub fn place(&mut self, ctx: Ctx<'_>, name: &'name [u8]) -> Result<usize> {
        if let Some(&place) = self.places.get(name) {
            return Ok(place);
        }
        self.changes.push(Change::new(ctx, name)?);
        self.places.insert(name, self.changes.len() - 1);
        Ok(self.changes.len() - 1)
    }
}

/// Whether a write that adds may begin. A command of the primary, or of a file, always may.
fn check_room(ctx: Ctx<'_>, store: &Store, changes: &[Change<'_>]) -> Result<()> {
    let (mut records, mut bytes) = (0, 0);
    for edit in changes.iter().flat_map(|change| change.changes.iter()) {
        if let Some(value) = edit.value {
            records += 1;
            bytes += (edit.key.len() + value.len()) as u64;
        }
    }
    if records == 0 {
        return Ok(());
    }
    let flags = ctx.flags();
    if flags.is_replicated() || flags.is_loading() {
        return Ok(());
    }
    settings::check_room(store, records, bytes)?;
    // An evicted map is gone, and its memory is not what `maxmemory` counts.
    if changes.iter().any(|change| change.stub.is_none()) {
        settings::check_policy()?;
    }
    Ok(())
}

/// Whether the names of the maps may change as they have to: a map that is created gets an entry in
/// the directory, and one that becomes empty loses it. A late change of the same name comes first.
fn check_names(ctx: Ctx<'_>, store: &Store, changes: &[Change<'_>]) -> Result<()> {
    let database = ctx.database();
    for Change { name, stub, changes } in changes {
        let removed = changes.iter().filter(|edit| edit.value.is_none()).count() as u64;
        let may_change = match stub {
            None if name.len() > MAX_NAME_BYTES => return Err(Failure::NameTooLong(name.len())),
            None => true,
            Some(stub) => {
                let head = stub.head(store)?;
                head.records + head.receipts <= removed
            }
        };
        if may_change
            && STATE.names.is_late(database, name)
            && let Some(collector) = STATE.collector()
            && let Err(error) = STATE.names.set_all(ctx, store, collector)
            && STATE.names.is_late(database, name)
        {
            return Err(Failure::Late(error));
        }
    }
    Ok(())
}

/// Commits the changes at once, and then changes the keyspace and publishes `event` for each key
/// that has changed. A failure has changed nothing.
pub fn commit(
    ctx: Ctx<'_>,
    store: &Store,
    changes: &[Change<'_>],
    event: &str,
) -> Result<Vec<Changed>> {
    check_room(ctx, store, changes)?;
    check_names(ctx, store, changes)?;
    let database = ctx.database();
    let mut targets = Vec::with_capacity(changes.len());
    for Change { name, stub, changes } in changes {
        let existing = match stub {
            Some(stub) => Some((stub.number(), stub.head(store)?)),
            None => None,
        };
        targets.push((Target { database, name, existing }, changes));
    }
    let all = store.change(&targets)?;
    for (change, changed) in changes.iter().zip(&all).filter(|(_, changed)| changed.is_change) {
        let name = change.name;
        let is_emptied = changed.head.is_empty();
        match &change.stub {
            Some(stub) if is_emptied => {
                stub.set_removed();
                ctx.delete(name);
            }
            Some(stub) => stub.set_head(changed.head),
            None if is_emptied => {}
            None => ctx.set(name, Stub::new(changed.number, Some(changed.head)), NEVER),
        }
        ctx.signal(name);
        ctx.notify(Class::Module, event, name);
        if is_emptied {
            ctx.notify(Class::Generic, "del", name);
        }
    }
    Ok(all)
}

/// Sends a command to replicas and to the append-only file. If the server has none of that name,
/// they would differ silently, so it ends.
pub fn send(ctx: Ctx<'_>, command: &str, words: &[&[u8]]) {
    if !ctx.replicate(command, words) {
        log::fatal(&format!(
            "{command} cannot be replicated: PANDO keys need it under its own name; remove its \
             rename-command from the configuration"
        ));
    }
}

/// Sends a change of one key to replicas and to the append-only file. A key that has become empty
/// is deleted there by a command that all versions of the key's value allow.
pub fn replicate(ctx: Ctx<'_>, name: &[u8], all: &[Changed], command: impl FnOnce()) {
    if all.iter().any(|changed| changed.is_change) {
        match all.iter().all(|changed| changed.head.is_empty()) {
            true => send(ctx, "DEL", &[name]),
            false => command(),
        }
    }
}
