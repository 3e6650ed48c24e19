//! Commits of four keys, divided by upserts of as many keys.

use pando::{Error, Map, Pool};

use super::loaded::{Done, Hands, Loaded, Place, options, repeat};
use crate::measure::{Figure, Measure, Plan, Row};
use crate::systems::entry::BuildError;

/// Keys of a commit.
const KEYS: usize = 4;
/// One operation in this many is timed.
const SAMPLE_EVERY: u64 = 16;

/// Measures commits in a pool without a log.
pub fn measure(plan: &Plan) -> Result<Vec<Row>, BuildError> {
    let loaded = Loaded::new(Place::new(plan)?, &options(plan), plan.records, plan)?;
    let (pool, map) = (&loaded.pool, &loaded.map);
    let rate = |keys: f64| {
        move |done: Done| Figure::Rate {
            per_second: done.per_second * keys,
            per_core_second: done.per_core_second * keys,
        }
    };
    let commits = |threads: usize| {
        repeat(plan, threads, plan.records, SAMPLE_EVERY, |hands| commit(pool, map, hands))
            .map(rate(KEYS as f64))
    };
    let upserts_of = "upserts, 1 thread";
    let mut alone = Measure::new(upserts_of, None);
    let mut of_four = Measure::new("commits of 4 keys, 1 thread", Some(upserts_of));
    let mut beside = Measure::new("commits of 4 keys while a snapshot lives", Some(upserts_of));
    let mut of_two =
        Measure::new("commits of 4 keys, 2 threads", Some("commits of 4 keys, 1 thread"));
    for _ in 0..plan.rounds {
        let upserts = repeat(plan, 1, plan.records, SAMPLE_EVERY, |hands| {
            let (key, value) = hands.record();
            map.upsert(key, value).map(drop)
        })
        .map(rate(1.0))?;
        alone.rounds.push((upserts, None));
        let one = commits(1)?;
        of_four.rounds.push((one, Some(upserts)));
        of_two.rounds.push((commits(2)?, Some(one)));
        let snapshot = pool.snapshot()?;
        beside.rounds.push((commits(1)?, Some(upserts)));
        drop(snapshot);
    }
    let all = [alone, of_four, beside, of_two];
    Ok(all.into_iter().map(|measure| measure.row(plan.records, plan)).collect())
}

/// Gives four random keys new values in one commit.
fn commit(pool: &Pool, map: &Map, hands: &mut Hands) -> Result<(), Error> {
    pool.transaction(|transaction| {
        (0..KEYS).try_for_each(|_| {
            let (key, value) = hands.record();
            transaction.put(map, key, value)
        })
    })
}
