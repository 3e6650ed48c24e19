//! Keys of Rust types, in their own order, and prefixes of tuples.

use std::error::Error;

use pando::{Pool, PoolOptions};

/// Runs the example in anonymous memory.
pub fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::volatile(&PoolOptions::new())?;

    // Country, height in metres.
    let peaks = pool.map("peaks")?.typed::<(String, u32)>();
    peaks.insert(("ch", 4_634), "Dufourspitze")?;
    peaks.insert(("ch", 4_545), "Dom")?;
    peaks.insert(("de", 2_962), "Zugspitze")?;
    let of_switzerland: Vec<_> = peaks.prefix(("ch",)).collect::<Result<_, _>>()?;
    assert_eq!(of_switzerland[0].0, ("ch".to_owned(), 4_545));
    assert_eq!(peaks.range(("ch", 4_600)..).count(), 2);

    // Negative numbers come first, unlike in the order of their bytes.
    let depths = pool.map("depths")?.typed::<i64>();
    for depth in [3, -11, 0] {
        depths.put(depth, depth.to_string())?;
    }
    let ascending: Vec<i64> =
        depths.range(..).map(|record| Ok(record?.0)).collect::<Result<_, pando::Error>>()?;
    println!("{ascending:?}");
    assert_eq!(ascending, [-11, 0, 3]);
    Ok(())
}
