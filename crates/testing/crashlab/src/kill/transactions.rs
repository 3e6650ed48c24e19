//! Transactions over a few keys, each told before its commit and after it.
//!
//! The reader of the messages checks the history, also over kills ([`pando_tc::testing`]). What is
//! told before the commit has left the process, so a version that is found later is never one of an
//! unknown transaction.

use std::time::Instant;

use pando::{Error, Isolation, Map, MapOptions, Pool, Transaction};
use pando_index::random::Random;
use pando_tc::testing::{Access, Id, NONE, Place, Recorded};

use super::message::{Message, Voice};
use super::workload::{self, RECORDED, map_name, version_of};

/// The maps, and the keys of each.
const SIZE: (u64, u64) = (RECORDED.len() as u64, 6);

type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// The maps of the transactions, made if there are none.
pub fn maps(pool: &Pool, options: &MapOptions) -> Result<[Map; 2], Error> {
    let [first, second] = RECORDED.map(|map| pool.map_with(&map_name(map), options));
    Ok([first?, second?])
}

/// Runs and tells transactions.
#[derive(Clone, Copy, Debug)]
pub struct Recorder<'open> {
    /// The pool.
    pub pool: &'open Pool,
    /// Its maps [`RECORDED`].
    pub maps: &'open [Map; 2],
    /// Where they are told.
    pub voice: &'open Voice,
    /// Messages that are lost at a power cut after they were sent.
    pub queue: u64,
    /// Whether commits are buffered, so that each must be synced before its end is told.
    pub is_buffered: bool,
}

/// A transaction whose keys and values are numbers.
struct Numbers<'transaction, 'pool> {
    transaction: &'transaction mut Transaction<'pool>,
    maps: &'transaction [Map; 2],
}

/// The version of a value.
fn version((map, key): Place, value: &[u8]) -> Result<Id, Trouble> {
    let version = workload::version(RECORDED[map as usize], key, value);
    version.ok_or_else(|| format!("a transaction reads a torn value, map {map}, key {key}").into())
}

impl Access for Numbers<'_, '_> {
    type Error = Trouble;

    fn get(&mut self, place: Place) -> Result<Id, Trouble> {
        let (map, key) = place;
        let value = self.transaction.get(&self.maps[map as usize], workload::key(key))?;
        value.map_or(Ok(NONE), |value| version(place, &value))
    }

    fn put(&mut self, (map, key): Place, id: Id) -> Result<(), Trouble> {
        let value = workload::value(RECORDED[map as usize], key, id);
        Ok(self.transaction.put(&self.maps[map as usize], workload::key(key), &value)?)
    }

    fn remove(&mut self, (map, key): Place) -> Result<(), Trouble> {
        Ok(self.transaction.remove(&self.maps[map as usize], workload::key(key))?)
    }

    fn scan(&mut self, map: u64) -> Result<Vec<(u64, Id)>, Trouble> {
        let records = self.transaction.range(&self.maps[map as usize], ..);
        let numbers = records.map(|record| {
            let (key, value) = record?;
            let key = workload::key_number(&key).ok_or("a transaction scans a torn key")?;
            Ok((key, version((map, key), &value)?))
        });
        numbers.collect()
    }
}

impl Recorder<'_> {
    /// Runs transactions until then.
    pub fn run(self, mut random: Random, until: Instant) -> Result<(), Trouble> {
        while Instant::now() < until {
            self.one(&mut random)?;
        }
        Ok(())
    }

    fn one(self, random: &mut Random) -> Result<(), Trouble> {
        let isolation = *random.pick(&[Isolation::Serializable, Isolation::Snapshot]);
        let id = version_of(random.draw(), false);
        let mut recorded = Recorded::new(id, isolation == Isolation::Snapshot);
        let announced = match isolation == Isolation::Serializable && random.one_in(6) {
            true => self.announce_removal(&recorded, random)?,
            false => None,
        };
        let mut transaction = self.pool.begin_with(isolation)?;
        let mut numbers = Numbers { transaction: &mut transaction, maps: self.maps };
        match (announced, random.one_in(6)) {
            (Some(place), _) => recorded.remove_announced(place, &mut numbers)?,
            (None, true) => recorded.read_all(random, SIZE, |place| numbers.get(place))?,
            (None, false) => recorded.work(random, SIZE, &mut numbers)?,
        }
        self.voice.say_through(&Message::committing(&recorded), self.queue)?;
        let lsn = match transaction.commit() {
            Ok(lsn) => Some(lsn),
            Err(Error::Conflict { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(lsn) = lsn.filter(|_| self.is_buffered) {
            self.pool.sync_to(lsn)?;
        }
        self.voice.say(&Message::Committed { id, lsn })?;
        Ok(())
    }

    /// Announces the removal of some key, if the key is there and no other transaction is in the
    /// way. Nothing is told: the announcement counts only once the removal has committed.
    fn announce_removal(
        self,
        recorded: &Recorded,
        random: &mut Random,
    ) -> Result<Option<Place>, Trouble> {
        let place = (random.below(SIZE.0), random.below(SIZE.1));
        let mut transaction = self.pool.begin_with(Isolation::Serializable)?;
        let mut numbers = Numbers { transaction: &mut transaction, maps: self.maps };
        if !recorded.announce_removal(place, &mut numbers)? {
            return Ok(None);
        }
        match transaction.commit() {
            Ok(_) => Ok(Some(place)),
            Err(Error::Conflict { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
