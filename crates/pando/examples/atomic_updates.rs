//! Atomic changes of one key: a counter, a compare-exchange, and a queue.

use std::error::Error;
use std::thread;

use pando::{Error as PandoError, Pool, PoolOptions};

/// Runs the example in anonymous memory.
pub fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::volatile(&PoolOptions::new())?;

    // Each of four threads counts to 250: no increment is lost.
    let visits = pool.map("visits")?;
    let increment = |count: &mut Vec<u8>| {
        let number = count.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        *count = (number + 1).to_le_bytes().to_vec();
    };
    thread::scope(|scope| {
        let count = || -> Result<(), PandoError> {
            (0..250).try_for_each(|_| {
                visits.entry("page").and_modify(increment).or_insert(1_u64.to_le_bytes()).map(drop)
            })
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    assert_eq!(visits.get("page")?, Some(1_000_u64.to_le_bytes().to_vec()));

    // The error of a failed compare-exchange has the actual value.
    let leader = pool.map("leader")?;
    leader.insert("now", "ash")?;
    match leader.compare_exchange("now", "elm", "oak") {
        Err(PandoError::ValueMismatch { actual, .. }) => {
            println!("the leader is {}", actual.escape_ascii());
        }
        other => return Err(format!("expected a mismatch, not {other:?}").into()),
    }

    // Each record of a queue comes to one caller.
    let queue = pool.map("queue")?.typed::<u64>();
    for number in 0..3 {
        queue.insert(number, format!("job {number}"))?;
    }
    while let Some((number, job)) = queue.pop_first()? {
        println!("{number}: {}", job.escape_ascii());
    }
    Ok(())
}
