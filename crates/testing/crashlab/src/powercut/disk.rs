//! An ordinary disk of the virtual machine, with a write cache that a power cut loses.
//!
//! QEMU records each write to the disk, and each flush of its cache, in a file (its block driver
//! `blklogwrites`). After the cut the disk is built from the state before the boot and that record:
//! everything that was written before the last flush, and of the later writes each sector with a
//! probability of one half. A raw file alone would keep too much, since the host has it all.
//!
//! The record has the format of Linux's `dm-log-writes`, in sectors of 512 bytes:
//!
//! ```text
//! sector 0  0        8        16       24
//!           magic    version  entries  bytes of a sector
//! entry     0        8        16       24
//!           sector   sectors  flags    zero; the sectors that were written follow
//! ```
//!
//! `flags` has bit 0 if the cache was flushed (of the disk: then all entries so far are durable),
//! and bit 1 if this write is durable by itself.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use pando_index::random::Random;

const SECTOR_BYTES: usize = 512;
const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSHED: u64 = 1;
const DURABLE: u64 = 2;

/// How many sectors a power cut has kept, of those that were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sectors {
    /// Written before a flush.
    pub flushed: u64,
    /// Written later, and kept.
    pub kept: u64,
    /// Written later, and lost.
    pub lost: u64,
}

/// A write to the disk.
struct Write {
    sector: u64,
    bytes: Vec<u8>,
    is_durable: bool,
}

/// Changes the file `disk` from the state before the boot to the state after a power cut. `record`
/// has the writes in between.
pub fn cut(disk: &Path, record: &Path, random: &mut Random) -> io::Result<Sectors> {
    let (record, disk) = (File::open(record)?, OpenOptions::new().write(true).open(disk)?);
    let put = |write: &Write, index: usize| {
        let sector = &write.bytes[index * SECTOR_BYTES..(index + 1) * SECTOR_BYTES];
        disk.write_all_at(sector, (write.sector + index as u64) * SECTOR_BYTES as u64)
    };
    let mut sectors = Sectors::default();
    let mut pending: Vec<Write> = Vec::new();
    let apply = |pending: &mut Vec<Write>, sectors: &mut Sectors| {
        pending.drain(..).try_for_each(|write| {
            sectors.flushed += (write.bytes.len() / SECTOR_BYTES) as u64;
            (0..write.bytes.len() / SECTOR_BYTES).try_for_each(|index| put(&write, index))
        })
    };
    let mut at = 1;
    if word(&record, 0, 0)? != Some(MAGIC) {
        return Ok(sectors);
    }
    while let Some(header) = words(&record, at)? {
        let [sector, count, flags, _] = header;
        if header == [0; 4] {
            break;
        }
        if flags & FLUSHED != 0 {
            apply(&mut pending, &mut sectors)?;
        }
        let mut bytes = vec![0; count as usize * SECTOR_BYTES];
        match record.read_exact_at(&mut bytes, (at + 1) * SECTOR_BYTES as u64) {
            // The machine was killed before it had recorded the write.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            read => read?,
        }
        if count > 0 {
            pending.push(Write { sector, bytes, is_durable: flags & DURABLE != 0 });
        }
        at += 1 + count;
    }
    for write in &pending {
        for index in 0..write.bytes.len() / SECTOR_BYTES {
            if write.is_durable || random.one_in(2) {
                put(write, index)?;
                sectors.kept += 1;
            } else {
                sectors.lost += 1;
            }
        }
    }
    Ok(sectors)
}

/// The four words at the start of a sector; `None` behind the end of the file.
fn words(file: &File, sector: u64) -> io::Result<Option<[u64; 4]>> {
    let mut words = [0; 4];
    for (index, word_of) in words.iter_mut().enumerate() {
        let Some(found) = word(file, sector, index)? else { return Ok(None) };
        *word_of = found;
    }
    Ok(Some(words))
}

fn word(file: &File, sector: u64, index: usize) -> io::Result<Option<u64>> {
    let mut bytes = [0; 8];
    match file.read_exact_at(&mut bytes, sector * SECTOR_BYTES as u64 + index as u64 * 8) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        read => read.map(|()| Some(u64::from_le_bytes(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(record: &mut Vec<u8>, sector: u64, bytes: &[u8], flags: u64) {
        let mut header =
            [sector, (bytes.len() / SECTOR_BYTES) as u64, flags, 0].map(u64::to_le_bytes).concat();
        header.resize(SECTOR_BYTES, 0);
        record.extend(header);
        record.extend(bytes);
    }

    #[test]
    fn what_was_flushed_is_kept_and_some_of_the_rest_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let [disk, path] = ["disk", "record"].map(|name| folder.path().join(name));
        std::fs::write(&disk, vec![0; 1000 * SECTOR_BYTES]).unwrap();
        let mut record = [MAGIC, 1, 0, SECTOR_BYTES as u64].map(u64::to_le_bytes).concat();
        record.resize(SECTOR_BYTES, 0);
        entry(&mut record, 3, &[1; 4 * SECTOR_BYTES], 0);
        entry(&mut record, 0, &[], FLUSHED);
        entry(&mut record, 4, &[2; SECTOR_BYTES], DURABLE);
        entry(&mut record, 100, &[3; 400 * SECTOR_BYTES], 0);
        std::fs::write(&path, &record).unwrap();
        let sectors = cut(&disk, &path, &mut Random::new(5)).unwrap();
        assert_eq!((sectors.flushed, sectors.kept + sectors.lost), (4, 401));
        let found = std::fs::read(&disk).unwrap();
        let sector = |number: usize| found[number * SECTOR_BYTES];
        assert_eq!([2, 3, 4, 5, 6, 7].map(sector), [0, 1, 2, 1, 1, 0]);
        let kept = (100..500).filter(|&number| sector(number) == 3).count() as u64;
        assert!(kept + 1 == sectors.kept && (150..250).contains(&kept), "{sectors:?}");
    }
}
