//! A snapshot: the records of one moment, in all maps, while others write.

use std::error::Error;

use pando::{MapOptions, Pool, PoolOptions};

/// Runs the example in anonymous memory.
pub fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::volatile(&PoolOptions::new())?;
    let stock = pool.map_with("stock", &MapOptions::new().transactional(true))?;
    stock.insert("apples", "3")?;
    stock.insert("pears", "5")?;

    let snapshot = pool.snapshot()?;
    stock.put("apples", "0")?;
    stock.remove("pears")?;

    assert_eq!(snapshot.get(&stock, "apples")?, Some(b"3".to_vec()));
    let records = snapshot.dump(|map, key, value| {
        println!("{map}: {}: {}", key.escape_ascii(), value.escape_ascii());
        Ok::<(), pando::Error>(())
    })?;
    assert_eq!(records, 2);
    // Until it is dropped, the pool keeps the old values.
    drop(snapshot);
    assert_eq!(stock.len()?, 1);
    Ok(())
}
