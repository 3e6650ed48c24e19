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
//! If the pool refuses such a commit (its file system is full), the names stay noted, and are tried
//! again at each further notification. Until then a kill brings the old names back.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::garbage::Collector;
use crate::layout::Entry;
use crate::log;
use crate::redis::{Ctx, Found};
use crate::store::Store;

/// Names are set in commits of at most so many while files are loaded.
const MANY: usize = 64;

/// The names that may have changed: the maps that they have lost.
type Noted = BTreeMap<(u32, Vec<u8>), Vec<u64>>;

/// The names that may differ from the directory.
#[derive(Debug, Default)]
pub struct Names {
    noted: Mutex<Noted>,
    /// A look at a key may delete it, because it has expired, and lead here again.
    is_at_work: AtomicBool,
}

impl Names {
    pub const fn new() -> Self {
        Self { noted: Mutex::new(BTreeMap::new()), is_at_work: AtomicBool::new(false) }
    }

    /// Notes a name. `lost` is the map that it has had.
    pub fn note(&self, database: u32, name: &[u8], lost: Option<u64>) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.entry((database, name.to_vec())).or_default().extend(lost);
    }

    /// How many names are noted.
    pub fn len(&self) -> usize {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether a load has noted so many names that it is time to set them.
    pub fn are_many(&self) -> bool {
        self.len() >= MANY
    }

    /// Exchanges two databases.
    pub fn swap(&self, one: u32, other: u32) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let swapped = |database: u32| match database {
            database if database == one => other,
            database if database == other => one,
            database => database,
        };
        let all = std::mem::take(&mut *noted).into_iter();
        *noted = all.map(|((database, name), lost)| ((swapped(database), name), lost)).collect();
    }

    /// Forgets the names, whose databases were emptied.
    pub fn forget(&self, is_emptied: impl Fn(u32) -> bool, collector: &Collector) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|(database, _), lost| {
            let is_kept = !is_emptied(*database);
            if !is_kept {
                // Those in the old directory are garbage with it; the others are listed.
                lost.iter().for_each(|&number| collector.released(number));
            }
            is_kept
        });
    }

    /// Sets the entries of the noted names.
    pub fn set(&self, ctx: Ctx<'_>, store: &Store, collector: &Collector) {
        // Relaxed: only the main thread comes here.
        if self.is_at_work.swap(true, Ordering::Relaxed) {
            return;
        }
        let before = ctx.database();
        // A look may note more.
        for _ in 0..4 {
            let noted = {
                let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *noted)
            };
            if noted.is_empty() {
                break;
            }
            if let Err(error) = set(ctx, store, collector, &noted) {
                log::warning(&format!(
                    "the names of {} keys are not stored yet; a kill would bring the old ones back: {error}",
                    noted.len()
                ));
                let mut later = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
                for (name, lost) in noted {
                    match later.entry(name) {
                        Place::Vacant(place) => drop(place.insert(lost)),
                        Place::Occupied(mut place) => place.get_mut().extend(lost),
                    }
                }
                break;
            }
        }
        ctx.select(before);
        self.is_at_work.store(false, Ordering::Relaxed);
    }
}

fn set(
    ctx: Ctx<'_>,
    store: &Store,
    collector: &Collector,
    noted: &Noted,
) -> Result<(), pando::Error> {
    let mut changes = Vec::new();
    let mut named = Vec::new();
    let mut lost = Vec::new();
    for ((database, name), numbers) in noted {
        ctx.select(*database);
        let wanted = match ctx.find(name) {
            Found::Map(stub, expiry_ms) if !stub.is_placeholder() => {
                Some(Entry { number: stub.number(), expiry_ms })
            }
            _ => None,
        };
        let present = store.entry(*database, name)?;
        if wanted != present {
            changes.push((*database, name.as_slice(), wanted));
        }
        named.extend(wanted.map(|entry| entry.number));
        lost.extend(numbers.iter().copied());
        lost.extend(present.map(|entry| entry.number));
    }
    lost.sort_unstable();
    lost.dedup();
    lost.retain(|number| !named.contains(number));
    store.set_entries(changes.into_iter(), &lost)?;
    named.into_iter().for_each(|number| collector.named(number));
    lost.into_iter().for_each(|number| collector.released(number));
    Ok(())
}
