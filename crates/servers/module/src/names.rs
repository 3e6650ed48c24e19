//! Keeps the directory in the pool equal to the keyspace.
//!
//! Redis changes the keyspace in its own commands: DEL, RENAME, EXPIRE, RESTORE, eviction. It tells
//! the module by callbacks (a key is unlinked, loaded, copied) and by notifications. A name that
//! may have changed is *noted*. At the notification that ends the command, the entry of each noted
//! name is set to the state of the keyspace, in one commit, before the reply is sent. A command
//! without a notification is caught up with before the event loop sleeps.
//!
//! | step of a command | in the pool | a kill leaves |
//! | --- | --- | --- |
//! | `PANDO.*` commits | records, head and entry, in one commit | all of it, or nothing |
//! | then the stub is set or deleted | | the next start rebuilds it |
//! | DEL, UNLINK, expiry, eviction, SET over a map: the stub is unlinked | | the map |
//! | their notification | no entry, the map is garbage; one commit | no map |
//! | RENAME, MOVE: both names change in the keyspace | | the old name |
//! | `rename_to`, `move_to` | both entries; one commit | the new name |
//! | RESTORE, COPY: records are written without a name | listed as garbage | nothing |
//! | `restore`, `copy_to` | the entry; it is not garbage any more; one commit | the map |
//! | EXPIRE, PERSIST | the expiry of the entry | |
//!
//! `rename_from` and `move_from` come first, when both names have changed already. They are
//! passed over, or the commit of the old name alone would make the map garbage.
//!
//! One case leaves neither value: SET over a map changes the directory before Redis writes its
//! append-only file, and no callback comes between that file and the reply.
//!
//! If the pool refuses such a commit (its file system is full), its names are *late*. They are
//! tried again from time to time, and at the end of the server. Until then a kill brings the old
//! names back.
//!
//! The names of one command are a *group*, which is set in one commit: the old name of a RENAME
//! without the new one would make the map garbage. A command that changes a late name takes its
//! group over. So no name is in two groups, and groups can be set in any order. Several are set in
//! one commit; if that is refused, each is tried alone, so none holds up another.
//!
//! A node of a cluster that loses a slot removes many names at once, without notifications. If they
//! are too many for one commit, those of maps without another name are removed in several. A kill
//! in between leaves some of the maps.
//!
//! A name has up to 4 MiB, so that a commit has room for some. Commands that make a map refuse a
//! longer one. RENAME cannot be refused by a module: it ends the server before its reply.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::garbage::Collector;
use crate::layout::{Entry, MAX_NAME_BYTES};
use crate::log;
use crate::redis::{Ctx, Found};
use crate::store::Store;

/// A load, and the late groups, are set in commits of about so many names, or bytes of names.
const MANY: usize = 64;
const MANY_BYTES: usize = 1 << 20;

/// A commit has at most so many bytes of names, old and new ones together. The pool takes 16 MiB.
const MAX_COMMIT_BYTES: usize = 15 << 20;

/// Longer groups are set in several commits of so many removals, or bytes of their names.
const MANY_REMOVALS: usize = 10_000;
const MANY_REMOVED_BYTES: usize = 4 << 20;

/// The pause after a refusal.
const PAUSE: Duration = Duration::from_millis(100);

/// Refusals are in the log so often.
const WARNING: Duration = Duration::from_secs(10);

/// A database, and the name of a key.
type Name = (u32, Vec<u8>);

/// Names that are set in one commit.
#[derive(Debug, Default)]
struct Group {
    names: BTreeSet<Name>,
    /// The maps that they have lost.
    lost: BTreeSet<u64>,
    /// Of the names.
    bytes: usize,
}

impl Group {
    fn add(&mut self, name: Name) {
        let bytes = name.1.len();
        if self.names.insert(name) {
            self.bytes += bytes;
        }
    }

    fn absorb(&mut self, other: Group) {
        other.names.into_iter().for_each(|name| self.add(name));
        self.lost.extend(other.lost);
    }

    fn is_large(&self) -> bool {
        self.names.len() >= MANY || self.bytes >= MANY_BYTES
    }
}

/// The names that may differ from the directory.
#[derive(Debug, Default)]
struct Noted {
    /// Those of the command that runs, or of a load.
    fresh: Group,
    /// Those that the pool has refused, in the order in which they are tried again.
    late: BTreeMap<u64, Group>,
    /// The group of each late name.
    places: BTreeMap<Name, u64>,
    /// The place of the next group.
    next: u64,
    retry_at: Option<Instant>,
    warn_at: Option<Instant>,
}

impl Noted {
    const fn new() -> Self {
        Self {
            fresh: Group { names: BTreeSet::new(), lost: BTreeSet::new(), bytes: 0 },
            late: BTreeMap::new(),
            places: BTreeMap::new(),
            next: 0,
            retry_at: None,
            warn_at: None,
        }
    }

    fn take_late(&mut self, place: u64) -> Option<Group> {
        let group = self.late.remove(&place)?;
        for name in &group.names {
            self.places.remove(name);
        }
        Some(group)
    }

    /// The fresh names, with the late groups that have some of them.
    fn take_fresh(&mut self) -> Option<Group> {
        let mut group = std::mem::take(&mut self.fresh);
        let places: BTreeSet<u64> =
            group.names.iter().filter_map(|name| self.places.get(name).copied()).collect();
        for place in places {
            group.absorb(self.take_late(place).unwrap_or_default());
        }
        (!group.names.is_empty()).then_some(group)
    }

    /// Late groups for one commit. Those from `end` on were tried already.
    fn take_some(&mut self, end: u64) -> Vec<Group> {
        let (mut groups, mut names, mut bytes) = (Vec::new(), 0, 0);
        while names < MANY && bytes < MANY_BYTES {
            let place = self.late.first_key_value().map(|(&place, _)| place);
            let Some(place) = place.filter(|&place| place < end) else { break };
            let Some(group) = self.take_late(place) else { break };
            names += group.names.len();
            bytes += group.bytes;
            groups.push(group);
        }
        groups
    }

    fn put_late(&mut self, group: Group) {
        let place = self.next;
        self.next += 1;
        self.places.extend(group.names.iter().map(|name| (name.clone(), place)));
        self.late.insert(place, group);
    }

    fn len(&self) -> usize {
        self.fresh.names.len() + self.places.len()
    }
}

/// The names that may differ from the directory.
#[derive(Debug)]
pub struct Names {
    noted: Mutex<Noted>,
    /// A look at a key may delete it, because it has expired, and lead here again.
    is_at_work: AtomicBool,
}

impl Names {
    pub const fn new() -> Self {
        Self { noted: Mutex::new(Noted::new()), is_at_work: AtomicBool::new(false) }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a name. `lost` is the map that it has had.
    pub fn note(&self, database: u32, name: &[u8], lost: Option<u64>) {
        let mut noted = self.noted();
        noted.fresh.add((database, name.to_vec()));
        noted.fresh.lost.extend(lost);
    }

    /// How many names are noted.
    pub fn len(&self) -> usize {
        self.noted().len()
    }

    /// Whether names are to be set now.
    pub fn are_due(&self) -> bool {
        let noted = self.noted();
        let is_retry_due = || noted.retry_at.is_none_or(|at| Instant::now() >= at);
        !noted.fresh.names.is_empty() || !noted.late.is_empty() && is_retry_due()
    }

    /// Whether the pool has refused a change of this name.
    pub fn is_late(&self, database: u32, name: &[u8]) -> bool {
        let noted = self.noted();
        !noted.places.is_empty() && noted.places.contains_key(&(database, name.to_vec()))
    }

    /// Whether a load has noted so many names that it is time to set them.
    pub fn are_many(&self) -> bool {
        self.noted().fresh.is_large()
    }

    /// Exchanges two databases, whose directories are exchanged too.
    pub fn swap(&self, one: u32, other: u32) {
        let swapped = |(database, name): Name| match database {
            database if database == one => (other, name),
            database if database == other => (one, name),
            database => (database, name),
        };
        let mut noted = self.noted();
        let Noted { fresh, late, places, .. } = &mut *noted;
        for group in std::iter::once(fresh).chain(late.values_mut()) {
            group.names = std::mem::take(&mut group.names).into_iter().map(swapped).collect();
        }
        let all = std::mem::take(places).into_iter();
        *places = all.map(|(name, place)| (swapped(name), place)).collect();
    }

    /// Sets the entries of the noted names, and tries late ones again if it is time.
    pub fn set(&self, ctx: Ctx<'_>, store: &Store, collector: &Collector) {
        // A refusal is in the log, and the names stay noted.
        let _ = self.try_set(ctx, store, collector, false);
    }

    /// Sets the entries of all noted names; an error if the pool refuses any.
    pub fn set_all(
        &self,
        ctx: Ctx<'_>,
        store: &Store,
        collector: &Collector,
    ) -> Result<(), pando::Error> {
        self.try_set(ctx, store, collector, true)
    }

    fn try_set(
        &self,
        ctx: Ctx<'_>,
        store: &Store,
        collector: &Collector,
        with_late: bool,
    ) -> Result<(), pando::Error> {
        // Relaxed: only the main thread comes here.
        if self.is_at_work.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let before = ctx.database();
        let mut result = Ok(());
        let (end, is_retry_due) = {
            let noted = self.noted();
            (noted.next, noted.retry_at.is_none_or(|at| Instant::now() >= at))
        };
        // A look may note more.
        for _ in 0..4 {
            let Some(mut group) = self.noted().take_fresh() else { break };
            if let Err(error) = set(ctx, store, collector, &mut group) {
                self.refused(group, &error);
                result = Err(error);
            }
        }
        if with_late || is_retry_due {
            result = result.and(self.retry(ctx, store, collector, end));
        }
        ctx.select(before);
        self.is_at_work.store(false, Ordering::Relaxed);
        result
    }

    /// Tries the late groups before `end`, until the pool refuses each of several.
    fn retry(
        &self,
        ctx: Ctx<'_>,
        store: &Store,
        collector: &Collector,
        end: u64,
    ) -> Result<(), pando::Error> {
        let mut result = Ok(());
        loop {
            let mut groups = self.noted().take_some(end);
            if groups.len() > 1 {
                let mut all = Group::default();
                for Group { names, lost, .. } in &groups {
                    names.iter().for_each(|name| all.add(name.clone()));
                    all.lost.extend(lost);
                }
                if set(ctx, store, collector, &mut all).is_ok() {
                    continue;
                }
            }
            let (count, mut refused) = (groups.len(), 0);
            for mut group in groups.drain(..) {
                if let Err(error) = set(ctx, store, collector, &mut group) {
                    self.refused(group, &error);
                    result = Err(error);
                    refused += 1;
                }
            }
            if refused == count {
                return result;
            }
        }
    }

    /// Keeps a group for later.
    fn refused(&self, group: Group, error: &pando::Error) {
        let mut noted = self.noted();
        noted.put_late(group);
        let now = Instant::now();
        noted.retry_at = Some(now + PAUSE);
        if noted.warn_at.is_none_or(|at| now >= at) {
            noted.warn_at = Some(now + WARNING);
            let names = noted.len();
            drop(noted);
            log::warning(&format!(
                "the names of {names} keys are not stored yet; a kill would bring the old ones \
                 back: {error}"
            ));
        }
    }
}

/// A name that has no map any more, and the number of the one that it had.
#[derive(Clone, Copy)]
struct Removal<'group> {
    database: u32,
    name: &'group [u8],
    number: u64,
}

/// Sets the names of a group in one commit, or in several if they are too many removals. After an
/// error the group has the names that differ.
fn set(
    ctx: Ctx<'_>,
    store: &Store,
    collector: &Collector,
    group: &mut Group,
) -> Result<(), pando::Error> {
    let (mut changes, mut removals) = (Vec::new(), Vec::new());
    let mut named = BTreeSet::new();
    let mut lost = group.lost.clone();
    let (mut bytes, mut removed_bytes) = (0, 0);
    for (database, name) in &group.names {
        ctx.select(*database);
        let wanted = match ctx.find(name) {
            Found::Map(stub, expiry_ms) if !stub.is_placeholder() => {
                Some(Entry { number: stub.number(), expiry_ms })
            }
            _ => None,
        };
        if wanted.is_some() && name.len() > MAX_NAME_BYTES {
            log::fatal(&format!(
                "a map has got a name of {} bytes, and the pool takes up to {MAX_NAME_BYTES}; the \
                 server ends before it replies, and the next start has the old name",
                name.len()
            ));
        }
        let present = store.entry(*database, name)?;
        match (wanted, present) {
            (None, Some(Entry { number, .. })) => {
                removed_bytes += name.len();
                removals.push(Removal { database: *database, name, number });
            }
            _ if wanted != present => {
                bytes += (1 + usize::from(present.is_some())) * name.len();
                changes.push((*database, name.as_slice(), wanted));
            }
            _ => {}
        }
        named.extend(wanted.map(|entry| entry.number));
        lost.extend(present.map(|entry| entry.number));
    }
    lost.retain(|number| !named.contains(number));
    let is_long = removals.len() > MANY_REMOVALS || bytes + removed_bytes > MAX_COMMIT_BYTES;
    let (mut alone, together): (Vec<_>, Vec<_>) =
        removals.into_iter().partition(|removal| is_long && !named.contains(&removal.number));
    bytes += together.iter().map(|removal| removal.name.len()).sum::<usize>();
    changes.extend(together.iter().map(|removal| (removal.database, removal.name, None)));
    if bytes > MAX_COMMIT_BYTES {
        log::fatal(&format!(
            "the names that change together have {bytes} bytes, and the pool takes up to \
             {MAX_COMMIT_BYTES} in one commit; the server ends, and the next start has the old ones"
        ));
    }
    let stored = remove_alone(store, collector, &mut alone, &mut lost).and_then(|()| {
        let lost: Vec<u64> = lost.iter().copied().collect();
        store.set_entries(changes.iter().copied(), &lost)
    });
    if let Err(error) = stored {
        let left = alone.iter().map(|removal| (removal.database, removal.name, None));
        let mut differing = Group { lost, ..Group::default() };
        changes
            .into_iter()
            .chain(left)
            .for_each(|(database, name, _)| differing.add((database, name.to_vec())));
        *group = differing;
        return Err(error);
    }
    named.into_iter().for_each(|number| collector.named(number));
    lost.into_iter().for_each(|number| collector.released(number));
    Ok(())
}

/// Removes entries whose maps have no other name, in commits that the pool has room for. What is
/// done is taken out of `removals`, and the maps out of `lost`.
fn remove_alone(
    store: &Store,
    collector: &Collector,
    removals: &mut Vec<Removal<'_>>,
    lost: &mut BTreeSet<u64>,
) -> Result<(), pando::Error> {
    while !removals.is_empty() {
        let (mut count, mut bytes) = (0, 0);
        for removal in removals.iter().rev().take(MANY_REMOVALS) {
            bytes += removal.name.len();
            count += 1;
            if bytes >= MANY_REMOVED_BYTES {
                break;
            }
        }
        let some = &removals[removals.len() - count..];
        let numbers: Vec<u64> = some.iter().map(|removal| removal.number).collect();
        let entries = some.iter().map(|removal| (removal.database, removal.name, None));
        store.set_entries(entries, &numbers)?;
        for number in numbers {
            lost.remove(&number);
            collector.released(number);
        }
        removals.truncate(removals.len() - count);
    }
    Ok(())
}
