//! A client that does not know whether its last write took place sends it again: it is applied
//! once.

use std::error::Error;

use pando::{MapOptions, Outcome, Pool, PoolOptions, WriteBatch};

/// Runs the example in anonymous memory.
pub fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::volatile(&PoolOptions::new())?;
    let accounts = pool.map_with("accounts", &MapOptions::new().transactional(true))?;
    accounts.insert("ash", "70")?;

    // The client keeps the number of its session, and that of its batch.
    let session = pool.new_session()?;
    let (id, number) = (session.id(), 1);
    let batch =
        WriteBatch::new().require(&accounts, "ash", Some(b"70")).put(&accounts, "ash", "60");
    session.apply(number, &batch)?;

    // After a crash it asks, or sends the batch again.
    let session = pool.session(id)?;
    session.apply(number, &batch)?;
    assert_eq!(accounts.get("ash")?, Some(b"60".to_vec()));
    match session.outcome(number)? {
        Outcome::Applied { .. } => println!("batch {number} of session {id} is applied"),
        other => return Err(format!("expected a receipt, not {other:?}").into()),
    }
    Ok(())
}
