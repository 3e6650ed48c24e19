//! Bytes a record after a fill with random keys, as a table of sides and sizes.
//!
//! For an index in a pool, all that the pool has used, and in brackets what its file takes, room
//! for growth included; for a map on the heap, the heap's growth.

use indicatif::ProgressBar;

use crate::compare::{self, Entrant, Plan};
use crate::error::Error;
use crate::report::count;

/// Fills each side with each number of records, one after the other, and makes the table.
pub fn table(
    plan: &Plan,
    sizes: &[u64],
    entrants: &[Entrant],
    progress: &ProgressBar,
) -> Result<String, Error> {
    let mut out =
        String::from("bytes a record of 8-byte keys and values, after a random fill (its file)\n");
    out += &format!("  {:<20}", "side");
    for &records in sizes {
        out += &format!(" {:>17}", count(records));
    }
    out.push('\n');
    for entrant in entrants {
        out += &format!("  {:<20}", entrant.name);
        for &records in sizes {
            let plan = Plan { records, ..plan.clone() };
            progress.reset();
            let space = compare::bytes_per_record(&plan, entrant, progress)?;
            let used = space.used.map_or("-".to_owned(), |bytes| format!("{bytes:.1}"));
            let file = space.files.map_or(String::new(), |bytes| format!(" ({bytes:.1})"));
            out += &format!(" {:>17}", used + &file);
        }
        out.push('\n');
    }
    Ok(out)
}
