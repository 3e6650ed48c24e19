//! `compact`: returns unused room to the file system.

use indicatif::BinaryBytes;

use crate::arguments::PoolArguments;
use crate::arguments::upkeep::CompactArguments;
use crate::failure::Failure;
use crate::output;

/// Compacts the pool, and prints the size of its file before and after.
pub fn run(pool: &PoolArguments, arguments: &CompactArguments) -> Result<(), Failure> {
    let compacted = pool.open()?.compact()?;
    output::report(&compacted, arguments.json, |compacted, output| {
        output.line(format_args!(
            "the file took {} and takes {}; its length is {}",
            BinaryBytes(compacted.before_bytes),
            BinaryBytes(compacted.after_bytes),
            BinaryBytes(compacted.size_bytes)
        ))
    })
}
