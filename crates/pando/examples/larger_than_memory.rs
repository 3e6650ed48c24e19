//! A store: its maps may be larger than memory.

use std::error::Error;

use pando::Store;

/// Memory for pages. A store of this example is small; the calls are the same for a large one.
const MEMORY_BYTES: u64 = 16 << 20;

/// Runs the example in a new folder.
pub fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("store");

    let store = Store::open(&path, MEMORY_BYTES)?;
    let words = store.map("words")?.typed::<u64>();
    for number in 0..5_000 {
        // Does not read the page of the record first.
        words.put(number, format!("word {number}"))?;
    }
    // Until here the records survive a kill, and from here a power cut.
    store.sync()?;
    drop(words);
    store.close()?;

    let store = Store::open(&path, MEMORY_BYTES)?;
    let words = store.open_map("words")?.typed::<u64>();
    assert_eq!(words.get(4_999)?, Some(b"word 4999".to_vec()));
    let stat = store.stat()?.store.ok_or("a store has figures of one")?;
    println!("{} bytes of pages are live", stat.live_bytes);
    Ok(())
}
