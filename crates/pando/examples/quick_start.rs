//! A pool with one map: write, read, scan, and open again.

use std::error::Error;

use pando::{Pool, PoolOptions};

/// Runs the example in a new folder.
pub fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("grove.pool");

    let pool = Pool::create(&path, &PoolOptions::new())?;
    let trees = pool.map("trees")?;
    trees.insert("aspen", "Populus tremuloides")?;
    trees.insert("oak", "Quercus robur")?;
    trees.upsert("oak", "Quercus petraea")?;
    assert!(trees.remove("aspen")?);
    assert_eq!(trees.get("aspen")?, None);
    // All handles must be gone before the pool is closed.
    drop(trees);
    pool.close()?;

    let pool = Pool::open(&path, &PoolOptions::new())?;
    for record in pool.open_map("trees")?.range(..) {
        let (key, value) = record?;
        println!("{}: {}", key.escape_ascii(), value.escape_ascii());
    }
    println!("{}", pool.stat()?.guarantee);
    Ok(())
}
