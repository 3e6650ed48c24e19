//! `evict`: ends a process that shares the pool.

use pando::Pool;

use crate::arguments::PoolArguments;
use crate::arguments::upkeep::EvictArguments;
use crate::failure::Failure;
use crate::output::Output;

/// Kills the process, and prints that it has ended.
pub fn run(pool: &PoolArguments, arguments: &EvictArguments) -> Result<(), Failure> {
    // Only a shared pool has such processes.
    let pool = Pool::open(pool.path_or_default()?, &pool.options().shared(true))?;
    pool.evict(arguments.pid)?;
    pool.close()?;
    let mut output = Output::new();
    output.line(format_args!("process {} has ended, and is recovered", arguments.pid))?;
    output.flush()
}
