//! Bytes per record after a fill with random keys, as a table of systems and numbers of records.
//!
//! For an index in a pool: the used bytes of the pool. For a map on the heap: the growth of the
//! heap. In brackets: the bytes of the system's files, with space for growth.

use indicatif::ProgressBar;
use serde::Serialize;

use crate::compare;
use crate::error::Error;
use crate::figures::{Bars, Figures};
use crate::plan::{NamedSystem, Plan};
use crate::spread::Spread;
use crate::units::{bytes, count};

/// One system with one number of records; one line of JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The system's name.
    pub system: String,
    /// Number of records.
    pub records: u64,
    /// Length of a key in bytes.
    pub key_bytes: usize,
    /// Length of a value in bytes.
    pub value_bytes: usize,
    /// Bytes per record: used bytes of the pool, otherwise the growth of the heap.
    pub bytes_per_record: Option<f64>,
    /// Bytes per record that the file system has allocated for the system's files, if it has any.
    pub file_bytes_per_record: Option<f64>,
}

/// Fills each system with each number of records of `sizes`, one after the other.
pub fn measure(
    plan: &Plan,
    sizes: &[u64],
    systems: &[NamedSystem],
    progress: &ProgressBar,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::with_capacity(systems.len() * sizes.len());
    for system in systems {
        for &records in sizes {
            let plan = Plan { records, ..plan.clone() };
            progress.reset();
            let space = compare::bytes_per_record(&plan, system, progress)?;
            rows.push(Row {
                system: system.name.clone(),
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

/// The table of the rows: a line for each system, a column for each number of records.
pub fn figures(rows: &[Row]) -> Figures {
    let (mut systems, mut sizes) = (Vec::new(), Vec::new());
    for row in rows {
        if !systems.contains(&&row.system) {
            systems.push(&row.system);
        }
        if !sizes.contains(&row.records) {
            sizes.push(row.records);
        }
    }
    let of = |system: &str, records: u64| {
        rows.iter().find(|row| row.system == system && row.records == records)
    };
    let shown = |row: &Row| match row.file_bytes_per_record {
        None => bytes(row.bytes_per_record),
        files => format!("{} ({})", bytes(row.bytes_per_record), bytes(files)),
    };
    let line = |&system: &&String| {
        let cells = sizes.iter().map(|&records| of(system, records).map_or(String::new(), shown));
        [system.clone()].into_iter().chain(cells).collect()
    };
    let plot = |&records: &u64| {
        let known = |&system: &&String| {
            let bytes = of(system, records)?.bytes_per_record?;
            Some((system.clone(), Spread::of(&[bytes])))
        };
        let bars = systems.iter().filter_map(known).collect();
        Bars { title: format!("{} records", count(records)), unit: "bytes a record", bars }
    };
    let (key_bytes, value_bytes) =
        rows.first().map_or((0, 0), |row| (row.key_bytes, row.value_bytes));
    Figures {
        title: "Bytes a record".to_owned(),
        about: format!(
            "keys of {key_bytes} and values of {value_bytes} bytes, after a random fill; in brackets: the files of the system"
        ),
        columns: ["system".to_owned()]
            .into_iter()
            .chain(sizes.iter().map(|&records| count(records)))
            .collect(),
        rows: systems.iter().map(line).collect(),
        plots: sizes.iter().map(plot).collect(),
    }
}
