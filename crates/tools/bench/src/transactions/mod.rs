//! Figures of transactional maps that a comparison of systems cannot express: commits of several
//! keys, scans of snapshots, and the rebuild of a lost pool. All are of BzTrees, by the public API.
//!
//! Each round takes a measure and the one that it is divided by one after the other. The ratio is
//! taken within a round. On a machine that is busy with other work, use the ratio on core: that of
//! the keys per second of core time.
//!
//! | file, from the lowest up | content |
//! | --- | --- |
//! | `loaded` | a pool with records, and threads that use it for a time |
//! | `commits` | commits of four keys, divided by upserts |
//! | `snapshots` | scans of a snapshot beside writers, divided by scans of the map |
//! | `rebuild` | the rebuild of a pool whose file is gone |

mod commits;
mod loaded;
mod rebuild;
mod snapshots;

use crate::measure::{Plan, Row};
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
