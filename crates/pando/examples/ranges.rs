//! Ranges: bounds, both directions, prefixes, and scans that go on while others write.

use std::error::Error;

use pando::{Pool, PoolOptions};

/// Runs the example in anonymous memory.
pub fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::volatile(&PoolOptions::new())?;
    let words = pool.map("words")?;
    for word in ["alder", "ash", "aspen", "beech", "birch", "oak"] {
        words.insert(word, "")?;
    }
    let keys = |scan: pando::Scan<'_>| -> Result<Vec<String>, Box<dyn Error>> {
        scan.map(|record| Ok(String::from_utf8(record?.0)?)).collect()
    };
    assert_eq!(keys(words.range("as".."b"))?, ["ash", "aspen"]);
    assert_eq!(keys(words.prefix("b"))?, ["beech", "birch"]);

    // From both ends; the two meet in the middle.
    let mut scan = words.range(..);
    let first = scan.next().ok_or("empty")??.0;
    let last = scan.next_back().ok_or("empty")??.0;
    println!("{} .. {}", first.escape_ascii(), last.escape_ascii());

    // A scan holds nothing between its records: the map may change meanwhile.
    words.remove("ash")?;
    words.insert("elm", "")?;
    assert_eq!(scan.count(), 4);
    Ok(())
}
