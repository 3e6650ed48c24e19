//! A transaction over two maps: all of it takes place, or nothing.

use std::error::Error;

use pando::{MapOptions, Pool, PoolOptions};

fn amount(value: Option<Vec<u8>>) -> u64 {
    value.and_then(|bytes| Some(u64::from_le_bytes(*bytes.first_chunk()?))).unwrap_or(0)
}

/// Runs the example in anonymous memory.
pub fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::volatile(&PoolOptions::new())?;
    let options = MapOptions::new().transactional(true);
    let accounts = pool.map_with("accounts", &options)?;
    let journal = pool.map_with("journal", &options)?;
    accounts.insert("ash", 100_u64.to_le_bytes())?;

    // The closure runs again if another transaction has changed what it has read.
    pool.transaction(|tx| {
        let ash = amount(tx.get(&accounts, "ash")?);
        let elm = amount(tx.get(&accounts, "elm")?);
        let sum = ash.min(30);
        tx.put(&accounts, "ash", (ash - sum).to_le_bytes())?;
        tx.put(&accounts, "elm", (elm + sum).to_le_bytes())?;
        tx.put(&journal, "0001", format!("ash to elm: {sum}"))
    })?;
    assert_eq!(amount(accounts.get("ash")?), 70);
    assert_eq!(amount(accounts.get("elm")?), 30);
    println!("{}", journal.get("0001")?.unwrap_or_default().escape_ascii());
    Ok(())
}
