//! Figures of transactional maps that a comparison of systems cannot express: commits of several
//! keys, scans of snapshots, and the rebuild of a lost pool. All are of BzTrees, by the public API.
//!
//! Each round takes a measure and the one that it is divided by one after the other. The ratio is
//! taken within a round. On a machine that is busy with other work, use the ratio on core: that of
//! the keys per second of core time.
//!
//! | file, from the lowest up | content |
//! | --- | --- |
//! | `row` | the plan, a measure and its row |
//! | `loaded` | a pool with records, and threads that use it for a time |
//! | `commits` | commits of four keys, divided by upserts |
//! | `snapshots` | scans of a snapshot beside writers, divided by scans of the map |
//! | `rebuild` | the rebuild of a pool whose file is gone |

mod commits;
mod loaded;
mod rebuild;
mod row;
mod snapshots;

pub use row::{Plan, Row};

use crate::figures::{Bars, Figures};
use crate::spread::Spread;
use crate::systems::entry::BuildError;

/// Takes all measures of `plan`.
///
/// # Errors
///
/// Those of a pool, and a scan or a rebuild that finds other records than it must.
pub fn measure(plan: &Plan) -> Result<Vec<Row>, BuildError> {
    let mut rows = commits::measure(plan)?;
    rows.extend(snapshots::measure(plan)?);
    rows.extend(rebuild::measure(plan)?);
    Ok(rows)
}

/// The table of the rows.
pub fn figures(rows: &[Row]) -> Figures {
    let shown = |spread: Option<Spread>, divisor: f64| {
        spread.map_or_else(String::new, |Spread { median, min, max }| {
            let [median, min, max] = [median, min, max].map(|figure| figure / divisor);
            Spread { median, min, max }.to_string()
        })
    };
    let line = |row: &Row| {
        vec![
            row.measure.clone(),
            row.base.unwrap_or_default().to_owned(),
            shown(row.ratio, 1.0),
            shown(row.on_core_ratio, 1.0),
            shown(row.per_second, 1e3),
            shown(row.latency_ns, 1e3),
        ]
    };
    let bar = |row: &Row| Some((row.measure.clone(), row.ratio?));
    let columns = ["measure", "divided by", "ratio", "on core", "thousand a second", "µs"];
    Figures {
        title: "Transactions".to_owned(),
        about: "the median of the rounds, and the least and the greatest".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.iter().map(line).collect(),
        plots: vec![Bars {
            title: "Ratios".to_owned(),
            unit: "",
            bars: rows.iter().filter_map(bar).collect(),
        }],
    }
}
