//! Gives a pool a new log, in the place of one that is lost, foreign or damaged, or is to be in
//! another directory. The pool's file is whole: it is trusted, and not open elsewhere.
//!
//! | step | file | a crash leaves |
//! | --- | --- | --- |
//! | open the pool, as each opening does | `pando_pmem` | the pool with its former log |
//! | propose a new number and the directory in the superblock, or the number that a reset that was cut short has proposed for this directory | `pool/log.rs` | the same |
//! | open the tail without the files of the former log; undecided commits fail, or are committed if they are bare and installed; all are undone or complete | `TransactionComponent::over_tail` | the same, as any opening may find it |
//! | propose the new log behind the newest commit, in its directory; write an image of all transactional maps there | `TransactionComponent::write_new_log` | the same, and a directory with a proposal, which the next reset to it replaces |
//! | name the new log in the superblock, by one store, **which decides**; sync it | `pool/log.rs` | before: the former log; after: the new one, which the next opening puts in place |
//! | make the proposal a log; put its control block in the place of the former one; free the blocks of that | `Log::replace` | the same |
//!
//! * Nothing of the former log is used or changed: neither its files, nor what its control block
//!   says of them. So before the deciding step the pool opens as before, if that log is there.
//! * From the deciding step on, the new log rebuilds the pool alone, since the image is durable. So
//!   the deciding step is also the step for a power cut.
//! * Commits that follow have higher LSNs than all before: the new log begins behind the newest
//!   one. So each stamp in the maps is settled for the new log, and no LSN comes twice.
//! * The directory is that of a log only from the last step on: a proposal that no superblock names
//!   is none (`pando_log`, `replace.rs`). Else an opening with this directory, but without the
//!   pool's file, would build an old state of the pool.
//! * Files in the directory are removed only if there is a proposal of this pool, and it is not the
//!   log that the superblock names. No such log was ever in use.

use std::path::Path;

use pando_log::{Log, LogOptions, log_id_of};
use pando_pmem::layout::LOG_OFF;
use pando_pmem::{Domain, LogName, draw_id};
use pando_tc::{Maps, TransactionComponent};
use pando_tree::maps::Catalog;

use super::log_directory::LogDirectory;
use super::map_list::map_list;
use crate::Error;

/// Does the steps up to the deciding one. The new log is in the directory `log`, or where the
/// superblock says. Returns its directory, with which the pool's opening does the last step.
pub(super) fn reset<D: Domain, M: Maps>(
    catalog: &Catalog<D>,
    maps: M,
    log: Option<&Path>,
) -> Result<LogDirectory, Error> {
    let pool = catalog.pool_handle();
    let former = pool.log_name().ok_or(Error::NoLog)?;
    let directory = LogDirectory::open_or_create(log.unwrap_or(&former.path))?;
    let is_named = match log_id_of(directory.files().as_ref()) {
        Ok(log_id) | Err(pando_log::Error::Proposed { log_id, .. }) => log_id == former.id,
        Err(_) => false,
    };
    let is_decided =
        is_named && !Log::has_id(pool, LOG_OFF, former.id).map_err(pando_tc::Error::from)?;
    if is_decided {
        // A reset that was cut short has come to its last step.
        return Ok(directory);
    }
    let is_here = |proposed: &LogName| proposed.path == directory.path();
    let name = match pool.proposed_log().filter(is_here) {
        Some(proposed) => proposed,
        None => {
            let id = draw_id(pool.path()).map_err(Error::of_pool)?;
            LogName { id, path: directory.path().to_owned() }
        }
    };
    // Also one that was proposed before: it may not be durable.
    pool.propose_log(&name).map_err(Error::of_pool)?;
    let tail = Log::open_tail(pool.clone(), LOG_OFF, LogOptions::default());
    let tail = tail.map_err(pando_tc::Error::from)?;
    let component = TransactionComponent::over_tail(tail, maps)?;
    component.write_new_log(&directory.files(), name.id, &map_list(catalog)?)?;
    pool.replace_log().map_err(Error::of_pool)?;
    Ok(directory)
}
