//! Power safety on any disk: a pool with a log, and a backup of it.

use std::error::Error;
use std::fs;

use pando::{Acknowledge, MapOptions, Pool, PoolOptions};

/// Runs the example in a new folder.
pub fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let options = PoolOptions::new().max_bytes(64 << 20).log(path("grove.log"));

    let pool = Pool::create(path("grove.pool"), &options)?;
    let trees = pool.map_with("trees", &MapOptions::new().transactional(true))?;
    // Returns when the record survives the process; a thread writes the log behind it.
    trees.insert("ash", "Fraxinus")?;
    // Returns when the record, and all before it, survive a power cut.
    let synced = trees.clone().acknowledge(Acknowledge::Synced)?;
    synced.insert("elm", "Ulmus")?;
    pool.backup(path("backup"))?;
    drop((trees, synced, pool));

    // As after a power cut with a pool on tmpfs: its file is gone, and its log is there.
    fs::remove_file(path("grove.pool"))?;
    let pool = Pool::open_or_create(path("grove.pool"), &options)?;
    assert!(pool.stat()?.recovery.from_log);
    assert_eq!(pool.open_map("trees")?.len()?, 2);
    println!("recovered {} commits", pool.stat()?.recovery.commits);
    Ok(())
}
