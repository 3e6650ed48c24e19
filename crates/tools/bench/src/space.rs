//! Bytes a record after a fill with random keys, as a table of sides and sizes.
//!
//! For an index in a pool, all that the pool has used; for a map on the heap, the heap's growth.
//! In brackets what the side's files take, room for growth included.

use indicatif::ProgressBar;
use serde::Serialize;

use crate::compare::{self, Entrant, Plan};
use crate::error::Error;
use crate::figures::{Bars, Figures};
use crate::report::{Spread, bytes, count};

/// One side with one number of records; one line of JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The side's name.
    pub side: String,
    /// Records that it was filled with.
    pub records: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Bytes a record: what a pool has used, otherwise the heap's growth.
    pub bytes_per_record: Option<f64>,
    /// Bytes a record that the file system has given to the side's files, if it has any.
    pub file_bytes_per_record: Option<f64>,
}

/// Fills each side with each number of records of `sizes`, one after the other.
pub fn measure(
    plan: &Plan,
    sizes: &[u64],
    entrants: &[Entrant],
    progress: &ProgressBar,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::with_capacity(entrants.len() * sizes.len());
    for entrant in entrants {
        for &records in sizes {
            let plan = Plan { records, ..plan.clone() };
            progress.reset();
            let space = compare::bytes_per_record(&plan, entrant, progress)?;
            rows.push(Row {
                side: entrant.name.clone(),
                records,
                key_bytes: plan.shape.key_bytes,
                value_bytes: plan.shape.value_bytes,
                bytes_per_record: space.used,
                file_bytes_per_record: space.files,
            });
        }
    }
    Ok(rows)
}

/// The rows for people: a line a side, a column a size.
pub fn figures(rows: &[Row]) -> Figures {
    let (mut sides, mut sizes) = (Vec::new(), Vec::new());
    for row in rows {
        if !sides.contains(&&row.side) {
            sides.push(&row.side);
        }
        if !sizes.contains(&row.records) {
            sizes.push(row.records);
        }
    }
    let of = |side: &str, records: u64| {
        rows.iter().find(|row| row.side == side && row.records == records)
    };
    let shown = |row: &Row| match row.file_bytes_per_record {
        None => bytes(row.bytes_per_record),
        files => format!("{} ({})", bytes(row.bytes_per_record), bytes(files)),
    };
    let line = |&side: &&String| {
        let cells = sizes.iter().map(|&records| of(side, records).map_or(String::new(), shown));
        [side.clone()].into_iter().chain(cells).collect()
    };
    let plot = |&records: &u64| {
        let known = |&side: &&String| {
            let bytes = of(side, records)?.bytes_per_record?;
            Some((side.clone(), Spread::of(&[bytes])))
        };
        let bars = sides.iter().filter_map(known).collect();
        Bars { title: format!("{} records", count(records)), unit: "bytes a record", bars }
    };
    let (key_bytes, value_bytes) =
        rows.first().map_or((0, 0), |row| (row.key_bytes, row.value_bytes));
    Figures {
        title: "Bytes a record".to_owned(),
        about: format!(
            "keys of {key_bytes} and values of {value_bytes} bytes, after a random fill; in brackets what the side's files take"
        ),
        columns: ["side".to_owned()]
            .into_iter()
            .chain(sizes.iter().map(|&records| count(records)))
            .collect(),
        rows: sides.iter().map(line).collect(),
        plots: sizes.iter().map(plot).collect(),
    }
}
