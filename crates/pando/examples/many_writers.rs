//! Many threads write to one map, and none waits for another.

use std::error::Error;
use std::thread;

use pando::{Pool, PoolOptions};

const THREADS: u64 = 8;
const RECORDS: u64 = 1_000;

/// Runs the example in anonymous memory.
pub fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::volatile(&PoolOptions::new())?;
    let numbers = pool.map("numbers")?.typed::<u64>();
    thread::scope(|scope| {
        let numbers = &numbers;
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    (0..RECORDS).try_for_each(|record| {
                        numbers.insert(record * THREADS + thread, thread.to_string())
                    })
                })
            })
            .collect();
        writers.into_iter().try_for_each(|writer| writer.join().unwrap_or(Ok(())))
    })?;
    assert_eq!(numbers.len()?, THREADS * RECORDS);
    println!("{} records by {THREADS} threads", numbers.len()?);
    Ok(())
}
