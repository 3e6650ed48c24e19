//! A map that makes a store larger than its memory, and a thread that keeps the cache busy.
//!
//! The records of the writers would fit the cache: no page of theirs would be evicted, and none
//! would be read again. So the map [`FILLED`] is longer than the cache. It is filled in ascending
//! order and does not change afterwards. While the writers write, a thread reads it at random, so
//! that their pages are written and evicted. The thread also makes checkpoints: these truncate the
//! log.

use std::time::Instant;

use pando::{Error, Map, MapOptions, Pool};
use pando_index::random::Random;

use super::workload::{self, FILLED, Records, map_name, version_of};

/// Records, of 12 KiB on average: more than the memory of a store.
const RECORDS: u64 = 2_000;
/// Records of a commit: a commit may have 128 KiB.
const RECORDS_A_COMMIT: u64 = 8;
/// Reads per checkpoint, on average.
const READS_A_CHECKPOINT: u64 = 50;

type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// The version of a key. Its value is long.
fn version(key: u64) -> u64 {
    version_of(Random::new(key).draw(), true)
}

/// The map, filled. It is made if there is none.
pub fn fill(pool: &Pool, options: &MapOptions) -> Result<Map, Error> {
    let map = pool.map_with(&map_name(FILLED), options)?;
    // Commits survive in their order, so with the last record all are there.
    if map.read(workload::key(RECORDS - 1), |_| ())?.is_some() {
        return Ok(map);
    }
    for first in (0..RECORDS).step_by(RECORDS_A_COMMIT as usize) {
        pool.transaction(|transaction| {
            (first..RECORDS.min(first + RECORDS_A_COMMIT)).try_for_each(|key| {
                let value = workload::value(FILLED, key, version(key));
                transaction.put(&map, workload::key(key), &value)
            })
        })?;
    }
    Ok(map)
}

/// Reads records of the map, and makes checkpoints, until then.
pub fn use_cache(
    pool: &Pool,
    map: &Map,
    mut random: Random,
    until: Instant,
) -> Result<(), Trouble> {
    while Instant::now() < until {
        let key = random.below(RECORDS);
        let is_right = |found: &[u8]| workload::version(FILLED, key, found) == Some(version(key));
        if map.read(workload::key(key), is_right)? != Some(true) {
            return Err(format!("a get does not find the record {key} that was filled in").into());
        }
        if random.one_in(READS_A_CHECKPOINT) {
            pool.write_image()?;
        }
    }
    Ok(())
}

/// Checks the content of the map. If it `is_complete`, no record may be missing; otherwise it is
/// the result of the first commits.
pub fn verify(found: Option<&Records>, is_complete: bool) -> Result<(), String> {
    let records = found.into_iter().flatten();
    if let Some((key, _)) = records
        .zip(0..)
        .find(|&((&key, &found), at)| key != at || found != version(key))
        .map(|(record, _)| record)
    {
        return Err(format!("filled map: the record {key} is wrong, or one before it is missing"));
    }
    let count = found.map_or(0, Records::len) as u64;
    let is_right = match is_complete {
        true => count == RECORDS,
        false => count <= RECORDS && count.is_multiple_of(RECORDS_A_COMMIT),
    };
    match is_right {
        true => Ok(()),
        false => Err(format!("filled map: it has {count} records of {RECORDS}")),
    }
}

#[cfg(test)]
mod tests {
    use pando::PoolOptions;

    use super::*;

    fn records(count: u64) -> Records {
        (0..count).map(|key| (key, version(key))).collect()
    }

    #[test]
    fn a_part_of_a_commit_is_a_fault() {
        assert_eq!(verify(Some(&records(RECORDS)), true), Ok(()));
        assert_eq!(verify(Some(&records(2 * RECORDS_A_COMMIT)), false), Ok(()));
        assert_eq!(verify(None, false), Ok(()));
        assert!(verify(None, true).is_err());
        assert!(verify(Some(&records(RECORDS - RECORDS_A_COMMIT)), true).is_err());
        assert!(verify(Some(&records(RECORDS_A_COMMIT - 1)), false).is_err());
        assert!(verify(Some(&records(RECORDS + RECORDS_A_COMMIT)), false).is_err());
        let mut changed = records(RECORDS);
        changed.insert(7, 7);
        assert!(verify(Some(&changed), true).is_err());
    }

    #[test]
    fn it_is_filled_once() {
        let options = PoolOptions::new().max_bytes(96 << 20);
        let pool = Pool::volatile(&options).unwrap();
        let options = MapOptions::new().transactional(true);
        let map = fill(&pool, &options).unwrap();
        assert_eq!(map.len().unwrap(), RECORDS);
        drop((map, fill(&pool, &options).unwrap()));
        let state = crate::kill::look::state(&pool).unwrap();
        assert_eq!(verify(state.get(&FILLED), true), Ok(()));
    }
}
