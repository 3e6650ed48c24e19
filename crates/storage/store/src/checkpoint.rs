//! Checkpoints of a store: the LSN from which an opening replays the log.
//!
//! The page store keeps these bytes with its own checkpoint, under its checksum. Numbers are
//! little-endian.
//!
//! ```text
//! byte 0          8                 24
//!      redo LSN   number of the log
//! ```
//!
//! | step | a crash leaves |
//! | --- | --- |
//! | read the durable LSN of the log: it becomes the redo LSN | the former checkpoint |
//! | write all pages that have changed | the former checkpoint, and later pages |
//! | make a checkpoint of the page store, with the redo LSN | the former checkpoint or this one |
//! | truncate the log up to the redo LSN | segments that the next truncation removes |
//!
//! A commit up to the redo LSN was installed before that was read, so the pages have its versions,
//! or later ones. All commits behind it are in the log, or are above its durable LSN; and a page
//! has no version above the durable LSN of its time (`durable.rs` of `pando-tc`). So the replay of
//! the log over the pages gives what was durable, also if pages are later than the checkpoint.
//!
//! If a page could not be read when the log was replayed, the page lacks commits. Then no
//! checkpoint is made, so that the log keeps them.

use pando_pmem::{Domain, mutant};
use pando_tc::TransactionComponent;

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::maps::StoreMaps;

const BYTES: usize = 24;

/// Where the replay of the log begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Redo {
    pub lsn: u64,
    pub log_id: u128,
}

impl Redo {
    pub fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&self.lsn.to_le_bytes());
        bytes[8..].copy_from_slice(&self.log_id.to_le_bytes());
        bytes
    }

    /// Checked. `None` for a page store without a checkpoint of a store.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let what = || Error::Damaged {
            what: format!("its checkpoint has {} bytes of the log, and not {BYTES}", bytes.len()),
        };
        let bytes: &[u8; BYTES] = bytes.try_into().map_err(|_| what())?;
        let (lsn, log_id) = bytes.split_at(8);
        let lsn = lsn.try_into().map(u64::from_le_bytes).map_err(|_| what())?;
        let log_id = log_id.try_into().map(u128::from_le_bytes).map_err(|_| what())?;
        Ok(Some(Self { lsn, log_id }))
    }
}

/// Makes a checkpoint; where the replay begins now. One thread at a time calls it.
pub(crate) fn make<D: Domain>(
    component: &TransactionComponent<D, StoreMaps<D>>,
    cache: &Cache<D>,
) -> Result<Redo> {
    cache.check_replayed()?;
    let log = component.log();
    let early = log.durable_lsn();
    if mutant!("store-log-truncated-first") {
        log.truncate(early)?;
    }
    cache.write_all()?;
    let lsn = if mutant!("store-redo-lsn-read-late") { log.durable_lsn() } else { early };
    let redo = Redo { lsn, log_id: log.log_id() };
    cache.pages.checkpoint(&redo.encode())?;
    log.truncate(lsn)?;
    Ok(redo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let redo = Redo { lsn: 0x0102, log_id: 0x0304 };
        let mut bytes = [0; BYTES];
        (bytes[0], bytes[1], bytes[8], bytes[9]) = (2, 1, 4, 3);
        assert_eq!(redo.encode(), bytes);
        assert_eq!(Redo::decode(&bytes).expect("whole"), Some(redo));
        assert_eq!(Redo::decode(&[]).expect("none"), None);
    }

    #[test]
    fn other_lengths_are_told() {
        for length in [1, 8, 23, 25, 64] {
            Redo::decode(&vec![0; length]).expect_err("damaged");
        }
    }
}
