//! The operations of the writers, drawn from a seed, and the model that gives their result.
//!
//! The killed process and the checking process compute the same. The steps of a [`Writer`] follow
//! from a seed and from the content of the pool at its start. So an acknowledgement is a number,
//! and the number determines the expected content.
//!
//! All writers write the map [`MAIN`]. Each owns a part of its keys, in the same leaves as the keys
//! of others. Each writer also owns a few maps that it creates, fills and drops. No other writer
//! changes its keys and maps, so its own operations determine its part of the pool.
//!
//! Keys and values are text, and a reader can see whether they are complete. A key begins with its
//! number, a value with its version, and the rest of each follows from these. In every second run
//! of neighbouring keys, keys and values have eight bytes, for leaves that are made for such
//! records.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use pando::{Error, Map, MapOptions, Pool};

use pando_index::random::Random;

/// The map that all writers share.
pub const MAIN: u64 = 0;
/// The map that `pando load` fills. The writers do not use it.
pub const LOADED: u64 = u64::MAX;
/// The maps of the transactions whose history is recorded. The other operations do not use them.
pub const RECORDED: [u64; 2] = [u64::MAX - 2, u64::MAX - 1];
/// The map that makes a store larger than its memory ([`filled`](super::filled)).
pub const FILLED: u64 = u64::MAX - 3;
/// Keys that each writer owns in [`MAIN`].
const KEYS: u64 = 100;
/// Number of them with long values while a pool grows.
const LONG_KEYS: u64 = 8;
/// Maps that each writer owns, and keys in each.
const MAPS: u64 = 3;
const MAP_KEYS: u64 = 40;
/// Neighbouring keys with the same kind of records. The keys of growing pools are of the first run.
const RUN: u64 = 200;
/// The class of a version whose value is long enough to make a pool grow.
const LONG: u64 = 15;

/// The main activity of the writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// Inserts, updates, upserts, deletes and compare-exchanges of small records.
    Mixed,
    /// The same with values of 16 to 256 KiB, so that the pool grows.
    Growing,
    /// Creating and dropping maps, and writing to them.
    Catalog,
    /// Transactions of all writers over the same few keys, with their history
    /// ([`transactions`](super::transactions)).
    Transactions,
}

/// What the writers do.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Their main activity.
    pub profile: Profile,
    /// Whether they also move values from key to key, each in one transaction.
    pub is_transactional: bool,
}

/// The records of a map: versions by the numbers of their keys.
pub type Records = BTreeMap<u64, u64>;

/// The content of a pool: records by the numbers of their maps.
pub type State = BTreeMap<u64, Records>;

/// A map's name.
pub fn map_name(map: u64) -> String {
    format!("map-{map}")
}

/// The number in a map's name.
pub fn map_number(name: &str) -> Option<u64> {
    name.strip_prefix("map-")?.parse().ok()
}

/// Whether keys have eight bytes.
fn is_eight(key: u64) -> bool {
    key / RUN % 2 == 1
}

/// Whether the values of a key have eight bytes. Those of a file of lines are text, and those of
/// the filled map are long.
fn has_eight(map: u64, key: u64) -> bool {
    is_eight(key) && map != LOADED && map != FILLED
}

/// The bytes of a key. One in three is long.
pub fn key(number: u64) -> Vec<u8> {
    let mut key = format!("{number:08}").into_bytes();
    if number.is_multiple_of(3) && !is_eight(number) {
        key.extend(letters(number, 100));
    }
    key
}

/// The number of a key, if the key is complete.
pub fn key_number(found: &[u8]) -> Option<u64> {
    let number = std::str::from_utf8(found.get(..8)?).ok()?.parse().ok()?;
    (key(number) == found).then_some(number)
}

/// Whether long values fit a store.
static ARE_SHORT: AtomicBool = AtomicBool::new(false);

/// From now on long values have at most 15 KiB, as in a store.
pub fn shorten_values() {
    ARE_SHORT.store(true, Ordering::Relaxed);
}

/// The value of a version of a record. The version's last hexadecimal digit selects the length.
pub fn value(map: u64, key: u64, version: u64) -> Vec<u8> {
    if has_eight(map, key) {
        return version.to_le_bytes().to_vec();
    }
    let class = version % 16;
    let length = match class {
        0..10 => (version >> 4) % 100,
        10..13 => (version >> 4) % 8,
        13..LONG => 200 + (version >> 4) % 1500,
        // Relaxed: set before any value is made. Only a store has the filled map.
        _ if map == FILLED || ARE_SHORT.load(Ordering::Relaxed) => {
            (8 << 10) + (version >> 4) % (7 << 10)
        }
        _ => (16 << 10) + (version >> 4) % (240 << 10),
    };
    let mut value = format!("{version:016x}").into_bytes();
    value.extend(letters(version ^ key.rotate_left(32) ^ map.rotate_left(48), length));
    value
}

/// The version of a value, if the value is complete.
pub fn version(map: u64, key: u64, found: &[u8]) -> Option<u64> {
    if has_eight(map, key) {
        return found.try_into().map(u64::from_le_bytes).ok();
    }
    let version = u64::from_str_radix(std::str::from_utf8(found.get(..16)?).ok()?, 16).ok()?;
    (value(map, key, version) == found).then_some(version)
}

fn letters(seed: u64, count: u64) -> impl Iterator<Item = u8> {
    let mut random = Random::new(seed);
    let eight = move |_| random.draw().to_le_bytes().map(|byte| b'a' + byte % 26);
    (0..count.div_ceil(8)).flat_map(eight).take(count as usize)
}

/// A version whose value is not long, or one whose value is, from a random number.
pub fn version_of(drawn: u64, is_long: bool) -> u64 {
    match is_long {
        true => drawn | LONG,
        // One of the other classes, each with the same probability.
        false => (drawn & !LONG) | (drawn % LONG),
    }
}

/// A pool with its writers' maps.
#[derive(Clone, Copy, Debug)]
pub struct Maps<'open> {
    /// The pool.
    pub pool: &'open Pool,
    /// Its map [`MAIN`].
    pub main: &'open Map,
    /// The options of new maps.
    pub options: &'open MapOptions,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    kind: Kind,
    map: u64,
    key: u64,
    version: u64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Insert,
    Update,
    Upsert,
    Remove,
    Exchange {
        expected: u64,
    },
    /// Removes the key, and gives the version to another one.
    Move {
        to: u64,
    },
    CreateMap,
    DropMap,
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It took effect.
    Done,
    /// The key was present.
    Exists,
    /// The key was absent.
    Missing,
}

impl Op {
    /// The map that it drops, if it is a drop.
    #[cfg(test)]
    pub fn dropped_map(&self) -> Option<u64> {
        matches!(self.kind, Kind::DropMap).then_some(self.map)
    }

    /// Applies it to a model.
    fn apply(&self, state: &mut State) -> Answer {
        match self.kind {
            Kind::CreateMap => {
                state.insert(self.map, Records::new());
                return Answer::Done;
            }
            Kind::DropMap => {
                state.remove(&self.map);
                return Answer::Done;
            }
            _ => {}
        }
        let records = state.entry(self.map).or_default();
        let is_there = records.contains_key(&self.key);
        match self.kind {
            Kind::Insert if is_there => return Answer::Exists,
            Kind::Update | Kind::Remove | Kind::Exchange { .. } | Kind::Move { .. }
                if !is_there =>
            {
                return Answer::Missing;
            }
            Kind::Move { to } => {
                records.remove(&self.key);
                records.insert(to, self.version)
            }
            Kind::Remove => records.remove(&self.key),
            _ => records.insert(self.key, self.version),
        };
        Answer::Done
    }

    /// Applies it to a pool.
    pub fn run(&self, maps: Maps<'_>) -> Result<Answer, Error> {
        let Maps { pool, main, options } = maps;
        let name = map_name(self.map);
        match self.kind {
            Kind::CreateMap => return pool.map_with(&name, options).map(|_| Answer::Done),
            Kind::DropMap => return pool.drop_map(&name).map(|()| Answer::Done),
            _ => {}
        }
        let map = if self.map == MAIN { main.clone() } else { pool.open_map(&name)? };
        let (key_bytes, new) = (key(self.key), value(self.map, self.key, self.version));
        let done = match self.kind {
            Kind::Insert => map.insert(&key_bytes, &new),
            Kind::Update => map.update(&key_bytes, &new),
            Kind::Remove => map
                .remove(&key_bytes)
                .and_then(|removed| if removed { Ok(()) } else { Err(Error::KeyNotFound) }),
            Kind::Exchange { expected } => {
                map.compare_exchange(&key_bytes, value(self.map, self.key, expected), &new)
            }
            Kind::Move { to } => pool.transaction(|tx| {
                if tx.get(&map, &key_bytes)?.is_none() {
                    return Err(Error::KeyNotFound);
                }
                tx.remove(&map, &key_bytes)?;
                tx.put(&map, key(to), value(self.map, to, self.version))
            }),
            _ if self.version.is_multiple_of(2) => map.put(&key_bytes, &new),
            _ => map.upsert(&key_bytes, &new).map(|_| ()),
        };
        match done {
            Ok(()) => Ok(Answer::Done),
            Err(Error::KeyExists) => Ok(Answer::Exists),
            Err(Error::KeyNotFound) => Ok(Answer::Missing),
            Err(error) => Err(error),
        }
    }
}

/// One writer: its part of the pool, and the source of its operations.
#[derive(Clone, Debug)]
pub struct Writer {
    /// The number of the writer.
    pub number: u64,
    /// The content of its part of the pool.
    pub state: State,
    /// The number of operations that it has begun.
    pub count: u64,
    writers: u64,
    style: Style,
    random: Random,
}

impl Writer {
    /// All writers of a pool that holds `state`.
    pub fn all(state: &State, writers: u64, style: Style, seed: u64) -> Vec<Self> {
        let mut random = Random::new(seed);
        (0..writers)
            .map(|number| Self {
                number,
                state: part(state, writers, number),
                count: 0,
                writers,
                style,
                random: Random::new(random.draw()),
            })
            .collect()
    }

    /// The next operation, applied to the model, and its expected result.
    pub fn step(&mut self) -> (Op, Answer) {
        let op = self.choose();
        self.count += 1;
        (op, op.apply(&mut self.state))
    }

    /// A key of [`MAIN`], of any writer.
    pub fn any_key(&self, random: &mut Random) -> u64 {
        random.below(KEYS * self.writers)
    }

    fn choose(&mut self) -> Op {
        if self.style.profile == Profile::Catalog && !self.random.one_in(4) {
            let map = 1 + self.number + self.writers * self.random.below(MAPS);
            let op = |kind| Op { kind, map, key: 0, version: 0 };
            if !self.state.contains_key(&map) {
                return op(Kind::CreateMap);
            }
            if self.random.one_in(20) {
                return op(Kind::DropMap);
            }
            let key = self.random.below(MAP_KEYS);
            // Another key of the same map.
            return self.choose_record(map, key, (key + 1) % MAP_KEYS);
        }
        let keys = if self.style.profile == Profile::Growing { LONG_KEYS } else { KEYS };
        let own = |key: u64| key * self.writers + self.number;
        let key = self.random.below(keys);
        let (key, next) = (own(key), own((key + 1) % keys));
        self.choose_record(MAIN, key, next)
    }

    /// An operation on `key`; `next` is another key of the writer.
    fn choose_record(&mut self, map: u64, key: u64, next: u64) -> Op {
        let is_long = self.style.profile == Profile::Growing;
        let version = version_of(self.random.draw(), is_long);
        // Periods of growth and of shrinking, so that leaves split and merge.
        let is_shrinking = self.style.profile == Profile::Mixed && self.count / 400 % 2 == 1;
        let found = self.state.get(&map).and_then(|records| records.get(&key)).copied();
        let kind = match (self.random.below(10), found) {
            (0..3, _) if !is_shrinking => Kind::Insert,
            (0..5, _) if is_shrinking => Kind::Remove,
            (3, _) if self.style.is_transactional => Kind::Move { to: next },
            (3 | 4, _) => Kind::Upsert,
            (5 | 6, _) => Kind::Update,
            (7 | 8, Some(expected)) => Kind::Exchange { expected },
            (9, _) => Kind::Remove,
            _ => Kind::Insert,
        };
        Op { kind, map, key, version }
    }
}

/// The part of `state` that a writer owns. The parts of all writers, [`LOADED`], [`RECORDED`] and
/// [`FILLED`] make the whole.
pub fn part(state: &State, writers: u64, number: u64) -> State {
    let mut own: State = state
        .iter()
        .filter(|&(&map, _)| map != MAIN && map < FILLED && (map - 1) % writers == number)
        .map(|(&map, records)| (map, records.clone()))
        .collect();
    let main = state.get(&MAIN).into_iter().flatten();
    let is_own = |&(&key, _): &(&u64, &u64)| key % writers == number;
    own.insert(MAIN, main.filter(is_own).map(|(&key, &version)| (key, version)).collect());
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_records_are_told_from_torn_ones() {
        for version in 0..64 {
            let whole = value(3, 5, version);
            assert_eq!(super::version(3, 5, &whole), Some(version));
            assert_eq!(super::version(3, 6, &whole), (whole.len() == 16).then_some(version));
            let mut torn = whole;
            if let Some(last) = torn.get_mut(16) {
                *last = 0;
                assert_eq!(super::version(3, 5, &torn), None);
            }
        }
        assert_eq!(key_number(&key(3)), Some(3));
        assert_eq!(key_number(&key(3)[..50]), None);
        let (short, text) = (value(MAIN, RUN, 7), value(LOADED, RUN, 7));
        assert_eq!((key(RUN).len(), short.len()), (8, 8));
        assert_eq!(super::version(MAIN, RUN, &short), Some(7));
        assert_eq!(super::version(MAIN, RUN, &short[..7]), None);
        assert_eq!(super::version(LOADED, RUN, &text), Some(7));
    }
}
