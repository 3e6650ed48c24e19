//! The values of the data type: saves, loads, copies and frees.
//!
//! ```text
//! a map      form 1, pieces (strings), an empty string, records, receipts
//! a refusal  form 0: a map that is too long for DUMP. No load accepts it.
//! identity   pool, 16 bytes; number of the save         (auxiliary data of an RDB file)
//! ```
//!
//! Every RDB file and every base of an append-only file contains whole maps, and never stubs.

use std::sync::atomic::Ordering;

use crate::child;
use crate::kill_point::fail_point;
use crate::layout::{Head, Kind, MAX_NAME_BYTES, client_key};
use crate::log;
use crate::payload::{Checker, Edit, Malformed, edits};
use crate::pieces;
use crate::redis::{Ctx, Digest, Io, ServerInfo, VERSION, kill_this_process};
use crate::settings;
use crate::state::{Phase, STATE};
use crate::store::{ALL, RECORD_BYTES, Store};
use crate::stub::Stub;

/// What ends a map in a payload that must not be loaded.
const WRONG_COUNT: u64 = u64::MAX;

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Pool(#[from] pando::Error),
    #[error("the value is malformed: {0}")]
    Malformed(#[from] Malformed),
    #[error("the value ends early")]
    Short,
    #[error(transparent)]
    Full(#[from] settings::Full),
    #[error(transparent)]
    Evicts(#[from] settings::Evicts),
    #[error("it has version {0} of the type; this module reads {VERSION}")]
    Version(i32),
    #[error("its name has {0} bytes; allowed are up to {MAX_NAME_BYTES}")]
    Name(usize),
    /// The end of the start removes each stub without a map, before any save.
    #[error("it was in a file, and is not in the pool")]
    Placeholder,
    #[error("the module is not ready")]
    NotReady,
}

fn check_name(name: &[u8]) -> Result<(), Failure> {
    match name.len() {
        ..=MAX_NAME_BYTES => Ok(()),
        bytes => Err(Failure::Name(bytes)),
    }
}

/// Whether a client of this replica sends the command that runs. The server does not say so to the
/// callbacks of a value. But while a command of the primary runs, the replica has read more of the
/// stream than it has applied. If a part of a later command has arrived too, that is also so for a
/// client's command, which then counts as the primary's.
fn is_certainly_of_client() -> bool {
    let info = ServerInfo::of("replication");
    let read = info.number("slave_read_repl_offset");
    read.is_some() && read == info.number("slave_repl_offset")
}

/// Whether the value comes from the primary, or from a file. Such a value is never refused.
fn is_replicated() -> bool {
    let flags = Ctx::server_flags();
    let takes_writes = flags.is_replica() && !flags.is_read_only();
    flags.is_loading() || flags.is_replica() && !(takes_writes && is_certainly_of_client())
}

/// Reports a value that is not made. Redis passes over such an error of its primary, or of the
/// append-only file, and the data would differ from then on: the server ends instead.
fn refuse(what: &str, failure: &Failure) {
    let flags = Ctx::server_flags();
    // A client of a replica that takes writes may send anything.
    let is_of_client = flags.is_replica()
        && !flags.is_read_only()
        && matches!(
            failure,
            Failure::Malformed(_) | Failure::Short | Failure::Version(_) | Failure::Name(_)
        );
    // A full sync that fails is tried again by Redis, from the beginning. The files of a start from
    // the pool decide nothing.
    let is_tried_again = flags.is_transferring() || STATE.phase() == Phase::PoolFirst;
    if is_replicated() && !is_of_client && !is_tried_again {
        log::fatal(&format!(
            "{what} is not made, and to go on without it would lose data of the primary, or of the \
             append-only file; the server ends: {failure}"
        ));
    }
    log::warning(&format!("{what} is not made: {failure}"));
}

/// A name in the log.
fn shown(name: &[u8]) -> String {
    let (start, is_cut) = match name.split_at_checked(100) {
        Some((start, [_, ..])) => (start, "..."),
        _ => (name, ""),
    };
    format!("{:?}{is_cut}", String::from_utf8_lossy(start))
}

fn describe(io: Io<'_>) -> String {
    match io.name() {
        Some((database, name)) => {
            format!("the map {} of database {database}", shown(&name))
        }
        None => "a map".to_owned(),
    }
}

/// Reads a map. While the pool has precedence, its bytes are skipped.
pub fn load(io: Io<'_>, version: i32) -> Option<Stub> {
    let loaded = if version == VERSION { try_load(io) } else { Err(Failure::Version(version)) };
    loaded.inspect_err(|failure| refuse(&describe(io), failure)).ok()
}

fn try_load(io: Io<'_>) -> Result<Stub, Failure> {
    match io.load_number().ok_or(Failure::Short)? {
        1 => {}
        0 => {
            return Err(
                Malformed::Refused("it was too long for DUMP (pando.max-dump-bytes)").into()
            );
        }
        form => return Err(Malformed::Form(form).into()),
    }
    if STATE.phase() == Phase::PoolFirst {
        while !io.load_bytes().ok_or(Failure::Short)?.is_empty() {}
        io.load_number().and(io.load_number()).ok_or(Failure::Short)?;
        STATE.placeholders.fetch_add(1, Ordering::Relaxed);
        return Ok(Stub::placeholder());
    }
    let (store, collector) = STATE.parts().ok_or(Failure::NotReady)?;
    if !is_replicated() {
        settings::check_policy()?;
        settings::check_room(&store, 0, 0)?;
    }
    let name = io.name();
    check_name(name.as_ref().map_or(&[], |(_, name)| name))?;
    let number = store.create_unnamed()?;
    collector.released(number);
    match fill(io, &store, number) {
        Ok(head) => {
            if let Some((database, name)) = name {
                STATE.names.note(database, &name, None);
            }
            Ok(Stub::new(number, Some(head)))
        }
        Err(failure) => {
            collector.freed(number);
            Err(failure)
        }
    }
}

fn fill(io: Io<'_>, store: &Store, number: u64) -> Result<Head, Failure> {
    let mut checker = Checker::default();
    let mut head = Head::default();
    let has_limit = !is_replicated();
    loop {
        let piece = io.load_bytes().ok_or(Failure::Short)?;
        if piece.is_empty() {
            break;
        }
        let edits = checker.piece(&piece)?;
        count(&mut head, &edits);
        if has_limit {
            settings::check_room(store, edits.len() as u64, piece.len() as u64)?;
        }
        store.fill(number, edits.into_iter())?;
    }
    let records = io.load_number().ok_or(Failure::Short)?;
    let receipts = io.load_number().ok_or(Failure::Short)?;
    checker.end(records, receipts)?;
    store.set_head(number, head)?;
    Ok(head)
}

/// Adds edits of new keys to the figures.
fn count(head: &mut Head, edits: &[Edit<'_>]) {
    for edit in edits {
        match edit.kind {
            Kind::Receipt => head.receipts += 1,
            _ => head.records += 1,
        }
        head.bytes += (edit.key.len() + edit.value.map_or(0, <[u8]>::len)) as u64;
    }
}

/// Hands the pieces of a map to `sink`, in the server or in its child, and returns the counts.
fn write(stub: &Stub, mut sink: impl FnMut(&[u8])) -> Result<(u64, u64), child::Failure> {
    let store = STATE.store().ok_or(child::Failure::NoSnapshot)?;
    if store.has_forked() {
        return child::fetch(stub.number(), sink);
    }
    fail_point("dump")?;
    let pinned = store.pin("a dump")?;
    let records = pinned.scan(stub.number(), Kind::Record, ALL);
    let receipts = pinned.scan(stub.number(), Kind::Receipt, ALL);
    pieces::write(records, receipts, |piece| {
        sink(piece);
        Ok(())
    })
}

/// Ends a process that cannot save. A child is killed, which Redis takes for a failed save. If the
/// main thread saves, the server ends: Redis would replace the last good file, and the pool has all
/// maps. Otherwise it is a DUMP, whose payload is made unreadable instead.
fn fail(io: Io<'_>, failure: &dyn std::fmt::Display) {
    let what = format!("{} is not saved: {failure}", describe(io));
    if STATE.store().is_none_or(|store| store.has_forked()) {
        log::warning(&what);
        kill_this_process();
    }
    if STATE.is_saving.load(Ordering::Relaxed) {
        log::fatal(&format!("{what}; the server ends, so that the old file stays"));
    }
    log::warning(&what);
}

/// The counts that a stub says, if it knows them.
fn is_as_known(stub: &Stub, counts: (u64, u64)) -> bool {
    stub.known_head().is_none_or(|head| (head.records, head.receipts) == counts)
}

/// Writes a map to an RDB file or a payload.
pub fn save(io: Io<'_>, stub: &Stub) {
    let Some(store) = STATE.store() else { return fail(io, &Failure::NotReady) };
    if stub.is_placeholder() {
        fail(io, &Failure::Placeholder);
        return io.save_number(0);
    }
    let is_dump = !store.has_forked() && !STATE.is_saving.load(Ordering::Relaxed);
    if is_dump {
        let found = stub.head(&store).map_or(u64::MAX, |head| head.bytes);
        let allowed = settings::max_dump_bytes();
        if found > allowed {
            log::warning(&format!(
                "{} has {found} bytes, and DUMP takes {allowed} (pando.max-dump-bytes): the \
                 payload will be refused",
                describe(io)
            ));
            io.save_number(0);
            return;
        }
    }
    io.save_number(1);
    let written = write(stub, |piece| io.save_bytes(piece));
    io.save_bytes(&[]);
    let (records, receipts) = match written {
        Ok(counts) if is_as_known(stub, counts) => counts,
        Ok(counts) => {
            fail(
                io,
                &format!(
                    "it has {counts:?} records and receipts, and {:?} are known",
                    stub.known_head()
                ),
            );
            (WRONG_COUNT, WRONG_COUNT)
        }
        Err(failure) => {
            fail(io, &failure);
            (WRONG_COUNT, WRONG_COUNT)
        }
    };
    io.save_number(records);
    io.save_number(receipts);
}

/// Writes commands to an append-only file without an RDB base.
pub fn rewrite(io: Io<'_>, name: &[u8], stub: &Stub) {
    if stub.is_placeholder() {
        return fail(io, &Failure::Placeholder);
    }
    let written = write(stub, |piece| io.emit("PANDO.LOAD", name, piece));
    match written {
        Ok(counts) if is_as_known(stub, counts) => {}
        Ok(counts) => fail(io, &format!("it has {counts:?} records and receipts")),
        Err(failure) => fail(io, &failure),
    }
}

/// A copy of a map. Its name is noted.
pub fn copy(database: u32, name: &[u8], stub: &Stub) -> Option<Stub> {
    if STATE.phase() == Phase::PoolFirst {
        STATE.placeholders.fetch_add(1, Ordering::Relaxed);
        return Some(Stub::placeholder());
    }
    let (store, collector) = STATE.parts()?;
    let copied = || -> Result<Stub, Failure> {
        check_name(name)?;
        let head = stub.head(&store)?;
        if !is_replicated() {
            settings::check_policy()?;
            settings::check_room(&store, head.records + head.receipts, head.bytes)?;
        }
        let number = store.create_unnamed()?;
        collector.released(number);
        let fill = || -> Result<(), Failure> {
            let records = store.scan(stub.number(), Kind::Record, ALL);
            let receipts = store.scan(stub.number(), Kind::Receipt, ALL);
            pieces::write(records, receipts, |piece| -> Result<(), Failure> {
                let edits = edits(piece).collect::<Result<Vec<_>, _>>()?;
                Ok(store.fill(number, edits.into_iter())?)
            })?;
            Ok(store.set_head(number, head)?)
        };
        if let Err(failure) = fill() {
            collector.freed(number);
            return Err(failure);
        }
        Ok(Stub::new(number, Some(head)))
    };
    let copied = copied().inspect_err(|failure| {
        refuse(&format!("the copy {}", shown(name)), failure);
    });
    STATE.names.note(database, name, None);
    copied.ok()
}

/// Adds the records to a digest.
pub fn digest(digest: Digest<'_>, stub: &Stub) {
    let Some(store) = STATE.store() else { return };
    for kind in [Kind::Record, Kind::Receipt] {
        let mut scan = store.scan(stub.number(), kind, ALL);
        loop {
            match scan.next_record() {
                Ok(Some((key, value))) => digest.add(client_key(key), value),
                Ok(None) => break,
                Err(error) => {
                    log::warning(&format!("a digest is incomplete: {error}"));
                    break;
                }
            }
        }
    }
}

/// Bytes of the pool and of process memory for a map, nearly.
pub fn mem_usage(stub: &Stub) -> usize {
    let head = STATE.store().and_then(|store| stub.head(&store).ok()).unwrap_or_default();
    let in_pool = head.bytes + RECORD_BYTES * (head.records + head.receipts);
    usize::try_from(in_pool).unwrap_or(usize::MAX).saturating_add(size_of::<Stub>())
}

/// The keyspace has freed the stub, perhaps on another thread. Only stubs of maps have an effect,
/// and those that were unlinked or never named before (`garbage.rs`). So a flush leaves the pool
/// alone here, and so does the load of files while the pool has precedence: its stubs are
/// placeholders.
pub fn free(stub: &Stub) {
    if stub.is_placeholder() {
        STATE.placeholders.fetch_sub(1, Ordering::Relaxed);
    } else if !stub.is_removed()
        && let Some(collector) = STATE.collector()
    {
        collector.freed(stub.number());
    }
}

/// A name loses the map.
pub fn unlink(database: u32, name: &[u8], stub: &Stub) {
    if stub.is_placeholder() || stub.is_removed() || STATE.phase() == Phase::PoolFirst {
        return;
    }
    if let Some(collector) = STATE.collector() {
        collector.unlinked(stub.number());
        STATE.names.note(database, name, Some(stub.number()));
    }
}

/// Writes the identity of the pool and the number of the save to an RDB file.
pub fn save_identity(io: Io<'_>) {
    let Some(store) = STATE.store() else { return fail(io, &Failure::NotReady) };
    let save = match store.has_forked() {
        true => child::save_number(),
        false => store.saves().ok(),
    };
    match save {
        Some(save) => {
            io.save_bytes(&store.id());
            io.save_number(save);
        }
        None => fail(io, &child::Failure::NoSnapshot),
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads that of an RDB file. A start at which the pool has precedence refuses a file that does
/// not belong to the pool.
pub fn load_identity(io: Io<'_>, version: i32) -> bool {
    let read = || Some((io.load_bytes()?, io.load_number()?));
    let Some((id, save)) = read().filter(|_| version == VERSION) else {
        log::warning("the identity in an RDB file is malformed, or of another version");
        return false;
    };
    let Ok(id) = <[u8; 16]>::try_from(&*id) else {
        log::warning(&format!(
            "the identity in an RDB file has {} bytes; 16 are allowed",
            id.len()
        ));
        return false;
    };
    let Some(store) = STATE.store() else { return false };
    let accept = || -> Result<bool, pando::Error> {
        let is_ours = id == store.id();
        if STATE.phase() != Phase::PoolFirst {
            if !is_ours {
                store.set_loaded(id, save)?;
            }
            return Ok(true);
        }
        let pool = settings::pool();
        let ways_out = format!(
            "to go on with the pool, move the files of the server away; to go on with the files, \
             set pando.restore yes for one start, or move {} away",
            pool.display()
        );
        if !is_ours && store.loaded(id)? != Some(save) {
            log::warning(&format!(
                "an RDB file has the number {save} of the pool {}, and was not loaded into {}, which is \
                 the pool {}; {ways_out}",
                hex(&id),
                pool.display(),
                hex(&store.id())
            ));
            return Ok(false);
        }
        let latest = store.saves()?;
        if is_ours && save > latest {
            log::warning(&format!(
                "an RDB file has the number {save}, and the latest save of {} has {latest}, so the \
                 pool is an older copy; {ways_out}",
                pool.display()
            ));
            return Ok(false);
        }
        Ok(true)
    };
    accept().unwrap_or_else(|error| {
        log::warning(&format!("the identity of an RDB file cannot be checked: {error}"));
        false
    })
}
