//! What one transaction has read and written, and the transactions that record it.
//!
//! # Removals
//!
//! A removal is a version of its key, like a value. But a key that is absent names no transaction,
//! and two removals of a key would look the same. So each key has a *marker*: another key of the
//! same map, whose value names the transaction that removed the key last. The version of a key is
//! the one in its value or, if the key is absent, the one in its marker; [`NONE`] if there is
//! neither. These rules keep a marker right:
//!
//! | transaction | does | the marker |
//! | --- | --- | --- |
//! | puts a key | writes the key alone | stays; it does not count while the key is there |
//! | removes a key | removes it, and writes the marker | names the transaction |
//! | announces a removal | finds the key, and writes its marker | names the transaction that is to remove it |
//! | performs it | finds the key, and its own name in the marker; removes the key alone | names it already |
//!
//! The last two let a transaction remove a key and write nothing else. Both are serializable: the
//! first fails if the key is removed meanwhile, and the second one fails if another transaction
//! has written the marker. If a crash comes between the two, the key is there, and its marker does
//! not count.
//!
//! A transaction that finds a key absent reads two keys. If another one changes both in between,
//! the version is one that the key has had, and the commit fails.

use std::collections::{BTreeMap, BTreeSet};

use pando_index::random::Random;

/// A transaction. Each value that it writes names it.
pub type Id = u64;

/// The transaction before all others: a key that no one has written has its version.
pub const NONE: Id = 0;

/// A key: the number of its map, and its own.
pub type Place = (u64, u64);

/// The version of each key, as the transaction that wrote or removed it. A key that is not listed
/// has [`NONE`].
pub type State = BTreeMap<Place, Id>;

/// The distance of a marker from its key: all keys have smaller numbers.
const TO_MARKER: u64 = 100;

/// The marker of a key.
fn marker((map, key): Place) -> Place {
    debug_assert!(key < TO_MARKER, "a marker has none");
    (map, key + TO_MARKER)
}

/// The versions of keys, from what all keys and markers name that are present.
pub fn versions(found: impl IntoIterator<Item = (Place, Id)>) -> State {
    let (mut state, markers): (State, State) =
        found.into_iter().partition(|((_, key), _)| *key < TO_MARKER);
    for ((map, key), id) in markers {
        state.entry((map, key - TO_MARKER)).or_insert(id);
    }
    state
}

/// What a transaction has read and written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// The transaction; not [`NONE`].
    pub id: Id,
    /// Whether it has snapshot isolation; otherwise it is serializable. One that writes nothing is
    /// serializable with either: it takes place at the instant of its snapshot.
    pub is_over_snapshot: bool,
    /// The versions of others that it read.
    pub reads: BTreeSet<(Place, Id)>,
    /// Each key that it wrote or removed, with the version that it read there before.
    pub writes: State,
}

/// A transaction of the system under test.
pub trait Access {
    /// Why it has failed.
    type Error;

    /// What the value of a key or marker names; [`NONE`] if it is absent.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn get(&mut self, place: Place) -> Result<Id, Self::Error>;

    /// Gives a key or marker a value that names this.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn put(&mut self, place: Place, id: Id) -> Result<(), Self::Error>;

    /// Removes a key.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn remove(&mut self, place: Place) -> Result<(), Self::Error>;

    /// All keys and markers of a map that are present, by a scan.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn scan(&mut self, map: u64) -> Result<Vec<(u64, Id)>, Self::Error>;
}

impl Recorded {
    /// A transaction that has done nothing yet.
    pub fn new(id: Id, is_over_snapshot: bool) -> Self {
        Self { id, is_over_snapshot, ..Self::default() }
    }

    /// Notes the version that it has read.
    pub fn read(&mut self, place: Place, id: Id) {
        if id != self.id {
            self.reads.insert((place, id));
        }
    }

    /// Reads a key, and its marker if it is absent: whether it is present, and its version. `get`
    /// is that of [`Access`].
    pub(super) fn find<E>(
        &mut self,
        place: Place,
        mut get: impl FnMut(Place) -> Result<Id, E>,
    ) -> Result<(bool, Id), E> {
        let (is_present, id) = match get(place)? {
            NONE => (false, get(marker(place))?),
            id => (true, id),
        };
        self.read(place, id);
        Ok((is_present, id))
    }

    /// Puts a key that has the version `old`.
    pub(super) fn put<A: Access>(
        &mut self,
        (place, old): (Place, Id),
        access: &mut A,
    ) -> Result<(), A::Error> {
        access.put(place, self.id)?;
        self.writes.entry(place).or_insert(old);
        Ok(())
    }

    /// Removes a key that has the version `old`, and writes its marker.
    pub(super) fn remove<A: Access>(
        &mut self,
        (place, old): (Place, Id),
        access: &mut A,
    ) -> Result<(), A::Error> {
        access.remove(place)?;
        access.put(marker(place), self.id)?;
        self.writes.entry(place).or_insert(old);
        Ok(())
    }

    /// Scans a map, and notes the versions of its first `keys` keys.
    pub(super) fn scan<A: Access>(
        &mut self,
        map: u64,
        keys: u64,
        access: &mut A,
    ) -> Result<(), A::Error> {
        let mut found: State = (0..keys).map(|key| ((map, key), NONE)).collect();
        let scanned = access.scan(map)?.into_iter().map(|(key, id)| ((map, key), id));
        found.extend(versions(scanned));
        found.into_iter().for_each(|(place, id)| self.read(place, id));
        Ok(())
    }

    /// Reads all keys of maps `0..maps`, `keys` in each. `get` is that of [`Access`].
    ///
    /// # Errors
    ///
    /// Those of `get`.
    pub fn read_all<E>(
        &mut self,
        random: &mut Random,
        (maps, keys): (u64, u64),
        mut get: impl FnMut(Place) -> Result<Id, E>,
    ) -> Result<(), E> {
        for number in 0..maps * keys {
            self.find((number % maps, number / maps), &mut get)?;
            if random.one_in(8) {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Reads, replaces, removes and scans keys of maps `0..maps`, `keys` in each.
    ///
    /// # Errors
    ///
    /// Those of `access`.
    pub fn work<A: Access>(
        &mut self,
        random: &mut Random,
        (maps, keys): (u64, u64),
        access: &mut A,
    ) -> Result<(), A::Error> {
        if random.one_in(4) {
            self.scan(random.below(maps), keys, access)?;
        }
        for _ in 0..1 + random.below(3) {
            let place = (random.below(maps), random.below(keys));
            let (is_present, id) = self.find(place, |place| access.get(place))?;
            // Seldom what it has written itself, too.
            if random.one_in(if id == self.id { 8 } else { 2 }) {
                // An absent key is seldom removed.
                match random.one_in(if is_present { 3 } else { 16 }) {
                    true => self.remove((place, id), access)?,
                    false => self.put((place, id), access)?,
                }
            }
            if random.one_in(3) {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Announces that this transaction is to remove a key, in another one before it; false if the
    /// key is absent. Both must be serializable.
    ///
    /// # Errors
    ///
    /// Those of `access`.
    pub fn announce_removal<A: Access>(
        &self,
        place: Place,
        access: &mut A,
    ) -> Result<bool, A::Error> {
        let is_present = access.get(place)? != NONE;
        if is_present {
            access.put(marker(place), self.id)?;
        }
        Ok(is_present)
    }

    /// Removes a key and writes nothing else, after the announcement was committed; nothing if
    /// another transaction came in between.
    ///
    /// # Errors
    ///
    /// Those of `access`.
    pub fn remove_announced<A: Access>(
        &mut self,
        place: Place,
        access: &mut A,
    ) -> Result<(), A::Error> {
        let (present, announced) = (access.get(place)?, access.get(marker(place))?);
        // No transaction has removed the key in the name of this one. If the marker says so, the
        // version is one that was never there.
        self.reads.insert((place, if present == NONE { announced } else { present }));
        if present != NONE && announced == self.id {
            access.remove(place)?;
            self.writes.insert(place, present);
        }
        Ok(())
    }
}
