//! Keys of Rust types, in their own order, prefixes of tuples, and values of Rust types.

use std::error::Error;

use pando::{Json, Pool, PoolOptions};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Lake {
    name: String,
    cubic_kilometres: f64,
}

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

    // A number for each name; each step of an entry is atomic.
    let visits = pool.map("visits")?.typed::<String>().with_values::<u64>();
    for name in ["Baikal", "Vostok", "Baikal"] {
        visits.entry(name)?.and_modify(|count| *count += 1).or_insert(1)?;
    }
    assert_eq!(visits.get("Baikal")?, Some(2));

    // Any type of serde, as JSON: the feature `json`.
    let lakes = pool.map("lakes")?.typed::<u32>().with_values::<Json<Lake>>();
    lakes.put(1, Lake { name: "Baikal".to_owned(), cubic_kilometres: 23_600.0 })?;
    let baikal = lakes.get(1)?.ok_or("it is gone")?;
    println!("{} has {} cubic kilometres", baikal.name, baikal.cubic_kilometres);
    Ok(())
}
