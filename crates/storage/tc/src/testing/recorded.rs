//! What one transaction has read and written, and the transactions that record it.

use std::collections::{BTreeMap, BTreeSet};

use pando_index::random::Random;

/// A transaction. Each value that it writes names it.
pub type Id = u64;

/// The transaction before all others: a key that no one has written has its version.
pub const NONE: Id = 0;

/// A key: the number of its map, and its own. A history removes no key, because two removals leave
/// nothing by which a reader could tell them apart.
pub type Place = (u64, u64);

/// The version of each key, as the transaction that wrote it. A key that is absent has [`NONE`].
pub type State = BTreeMap<Place, Id>;

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
    /// Each key that it wrote, with the version that it read there before.
    pub writes: State,
}

/// A transaction of the system under test.
pub trait Access {
    /// Why it has failed.
    type Error;

    /// The version of a key.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn get(&mut self, place: Place) -> Result<Id, Self::Error>;

    /// Gives a key a version.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn put(&mut self, place: Place, id: Id) -> Result<(), Self::Error>;

    /// All keys of a map that are present, by a scan.
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

    /// Reads all keys of maps `0..maps`, `keys` in each.
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
            let place = (number % maps, number / maps);
            self.read(place, get(place)?);
            if random.one_in(8) {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Reads, replaces and scans keys of maps `0..maps`, `keys` in each.
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
            let map = random.below(maps);
            let mut found: State = (0..keys).map(|key| ((map, key), NONE)).collect();
            found.extend(access.scan(map)?.into_iter().map(|(key, id)| ((map, key), id)));
            found.into_iter().for_each(|(place, id)| self.read(place, id));
        }
        for _ in 0..1 + random.below(3) {
            let place = (random.below(maps), random.below(keys));
            let id = access.get(place)?;
            self.read(place, id);
            if id != self.id && random.one_in(2) {
                access.put(place, self.id)?;
                self.writes.insert(place, id);
            }
            if random.one_in(3) {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}
