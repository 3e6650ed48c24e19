//! The manifest: which pool or store a log belongs to.
//!
//! ```text
//! byte      0        8        16       24       32       40       48       56
//! 0         magic    crc      pool id           log id            generat. segment
//! 64        former pool id    after    owner
//! ```
//!
//! `crc` is the CRC-32 of all bytes, with itself taken as zero; `segment` the bytes of a segment.
//! `after` is the LSN before the first record of the log. The former pool is the one that the pool
//! replaces; zero once the pool has its name.
//!
//! `owner` is 0 if the log belongs to a pool, and 1 if it belongs to a store, whose pool has only
//! the tail. The log of a store that an earlier version has created has 0 until its next manifest.
//! So a pool refuses 1; and a store takes 0 only if its pages name this log.
//!
//! The manifest changes as a whole: a new file is written, synced, and put in the place of the old
//! one by a rename, whose directory is then synced. A crash leaves the old manifest or the new one.
//!
//! The file `proposal` has the same bytes. It becomes the manifest of a new log when the superblock
//! of the pool names this log (`replace.rs`).

use std::ops::RangeInclusive;

use pando_device::Directory;
use pando_pmem::mutant;

use crate::block::BLOCK_ALIGN;
use crate::error::{Error, Result};
use crate::segments;

const NAME: &str = "manifest";
const PROPOSAL: &str = "proposal";
/// The first eight bytes of a manifest.
const MAGIC: [u8; 8] = *b"PANDOlm1";
const BYTES: usize = 96;
/// Bytes that a segment may have.
pub(crate) const SEGMENT_BYTES: RangeInclusive<u64> = 64 << 10..=1 << 30;
/// The generation of a new log.
pub(crate) const FIRST_GENERATION: u64 = 1;
const CRC_AT: usize = 8;
const AFTER_AT: usize = 80;
const OWNER_AT: usize = 88;
// No byte of a manifest is without a meaning.
const _: () = assert!(AFTER_AT + 8 == OWNER_AT && OWNER_AT + 8 == BYTES);

/// Whose log it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// A pool's: the log has commits to its maps, and lists of these maps.
    #[default]
    Pool,
    /// A store's: without the store's pages the log is of no use.
    Store,
}

impl Owner {
    fn encode(self) -> u64 {
        match self {
            Self::Pool => 0,
            Self::Store => 1,
        }
    }

    fn decode(word: u64) -> Option<Self> {
        match word {
            0 => Some(Self::Pool),
            1 => Some(Self::Store),
            _ => None,
        }
    }
}

/// What a manifest says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// The pool that has the log's tail.
    pub pool_id: u128,
    pub log_id: u128,
    /// The log's generation: raised by one when the log is recovered, and when it is opened after a
    /// failed write or sync.
    pub generation: u64,
    pub segment_bytes: u64,
    /// The lost pool in whose place the pool is being built; zero if there is none.
    pub former_pool_id: u128,
    /// The LSN before the first record of the log.
    pub after_lsn: u64,
    pub owner: Owner,
}

fn checksum(bytes: &[u8; BYTES]) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..CRC_AT]);
    hasher.update(&bytes[CRC_AT + 8..]);
    u64::from(hasher.finalize())
}

impl Manifest {
    fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[16..32].copy_from_slice(&self.pool_id.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.log_id.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.generation.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[64..80].copy_from_slice(&self.former_pool_id.to_le_bytes());
        bytes[AFTER_AT..OWNER_AT].copy_from_slice(&self.after_lsn.to_le_bytes());
        bytes[OWNER_AT..].copy_from_slice(&self.owner.encode().to_le_bytes());
        let crc = checksum(&bytes);
        bytes[CRC_AT..CRC_AT + 8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; BYTES]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(*bytes[at..].first_chunk()?));
        let id = |at: usize| Some(u128::from_le_bytes(*bytes[at..].first_chunk()?));
        if !bytes.starts_with(&MAGIC) || word(CRC_AT)? != checksum(bytes) {
            return None;
        }
        let segment_bytes = word(56)?;
        let is_allowed =
            SEGMENT_BYTES.contains(&segment_bytes) && segment_bytes.is_multiple_of(BLOCK_ALIGN);
        is_allowed.then_some(Self {
            pool_id: id(16)?,
            log_id: id(32)?,
            generation: word(48)?,
            segment_bytes,
            former_pool_id: id(64)?,
            after_lsn: word(AFTER_AT)?,
            owner: Owner::decode(word(OWNER_AT)?)?,
        })
    }

    /// The manifest of a new log.
    pub fn of_new(
        pool_id: u128,
        (log_id, after_lsn): (u128, u64),
        (owner, segment_bytes): (Owner, u64),
    ) -> Self {
        let (generation, former_pool_id) = (FIRST_GENERATION, 0);
        Self { pool_id, log_id, generation, segment_bytes, former_pool_id, after_lsn, owner }
    }

    /// Refuses to let a pool use the log of a store, which is in `directory`.
    pub fn check_owner(&self, user: Owner, directory: &dyn Directory) -> Result<()> {
        match (self.owner, user) {
            (Owner::Store, Owner::Pool) if !mutant!("log-of-a-store-taken") => {
                Err(Error::OfStore { path: directory.path() })
            }
            _ => Ok(()),
        }
    }

    /// Makes `directory` the new log of this manifest, durably. It has no files of another log;
    /// perhaps it has those of a creation of this one that a crash has cut short.
    pub fn create(&self, directory: &dyn Directory) -> Result<()> {
        if let Some(name) = segments::names(directory)?.into_iter().next() {
            return Err(Error::NotEmpty { path: directory.path(), name });
        }
        match Self::find(directory)? {
            Some(found) if found == *self => Ok(()),
            Some(found) if (found.pool_id, found.log_id) != (self.pool_id, self.log_id) => {
                Err(Error::NotEmpty { path: directory.path(), name: NAME.to_owned() })
            }
            _ => {
                segments::remove_unnamed(directory)?;
                self.store(directory)
            }
        }
    }

    /// Makes this the proposal in `directory`, durably. The directory has no files of a log;
    /// perhaps it has a proposal of the same pool, which is replaced.
    pub fn propose(&self, directory: &dyn Directory) -> Result<()> {
        let not_empty = |name: String| Err(Error::NotEmpty { path: directory.path(), name });
        if let Some(name) = segments::names(directory)?.into_iter().next() {
            return not_empty(name);
        }
        match Self::load(directory) {
            Ok(_) => return not_empty(NAME.to_owned()),
            Err(Error::Proposed { pool_id, .. }) if pool_id != self.pool_id => {
                return not_empty(PROPOSAL.to_owned());
            }
            Err(Error::NotALog { .. } | Error::Proposed { .. }) => {}
            Err(error) => return Err(error),
        }
        segments::remove_unnamed(directory)?;
        self.store_as(PROPOSAL, directory)
    }

    /// Makes the proposal in `directory` its manifest, durably.
    pub fn take_proposal(directory: &dyn Directory) -> Result<()> {
        directory.replace(PROPOSAL, NAME)?;
        segments::sync_names(directory)
    }

    /// Makes this the manifest of the log in `directory`, durably.
    pub fn store(&self, directory: &dyn Directory) -> Result<()> {
        self.store_as(NAME, directory)
    }

    fn store_as(&self, target: &str, directory: &dyn Directory) -> Result<()> {
        let (name, file) = segments::create_unnamed(directory)?;
        file.write_at(&self.encode(), 0)?;
        file.sync()?;
        directory.replace(&name, target)?;
        segments::sync_names(directory)
    }

    /// The same manifest without a former pool, made durable if it has one.
    pub fn without_former_pool(self, directory: &dyn Directory) -> Result<Self> {
        let without = Self { former_pool_id: 0, ..self };
        if without != self {
            without.store(directory)?;
        }
        Ok(without)
    }

    /// The manifest of the log in `directory`, if there is one.
    pub fn find(directory: &dyn Directory) -> Result<Option<Self>> {
        match Self::load(directory) {
            Err(Error::NotALog { .. }) => Ok(None),
            loaded => loaded.map(Some),
        }
    }

    /// The manifest of the log in `directory`.
    pub fn load(directory: &dyn Directory) -> Result<Self> {
        if let Some(manifest) = Self::read(NAME, directory)? {
            return Ok(manifest);
        }
        let path = directory.path();
        match Self::read(PROPOSAL, directory)? {
            Some(Self { log_id, pool_id, .. }) => Err(Error::Proposed { path, log_id, pool_id }),
            None => Err(Error::NotALog { path }),
        }
    }

    /// The manifest in the file `name`, if there is one.
    fn read(name: &str, directory: &dyn Directory) -> Result<Option<Self>> {
        let file = match directory.open_read_only(name) {
            Err(error) if error.is_not_found() => return Ok(None),
            opened => opened?,
        };
        let mut bytes = [0; BYTES];
        let size = file.size_bytes()?;
        if size == BYTES as u64 {
            file.read_at(&mut bytes, 0)?;
        }
        let damaged = || Error::Damaged {
            path: format!("{}/{name}", directory.path()),
            what: format!("its {size} bytes are no manifest of a log"),
        };
        Self::decode(&bytes).ok_or_else(damaged).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use pando_device::simulated::Simulated;

    use super::*;

    fn example() -> Manifest {
        let (pool_id, log_id) = (7 << 70 | 1, 9 << 80 | 2);
        let (former_pool_id, after_lsn) = (5 << 90 | 4, 640);
        let (generation, segment_bytes, owner) = (3, 1 << 20, Owner::Pool);
        Manifest { pool_id, log_id, generation, segment_bytes, former_pool_id, after_lsn, owner }
    }

    fn of_store() -> Manifest {
        Manifest { owner: Owner::Store, ..example() }
    }

    /// Fails on any change of the format: then the magic number must change with it.
    #[test]
    fn golden_manifest() {
        assert_eq!(crc32fast::hash(&example().encode()), GOLDEN, "the format changed");
        let bytes = of_store().encode();
        assert_eq!(bytes[88..], 1_u64.to_le_bytes(), "the format changed");
        assert_eq!(bytes[16..88], example().encode()[16..88], "the format changed");
    }
    const GOLDEN: u32 = 486_399_098;

    #[test]
    fn any_flipped_bit_of_a_manifest_is_found() {
        for manifest in [example(), of_store()] {
            let bytes = manifest.encode();
            assert_eq!(Manifest::decode(&bytes), Some(manifest));
            for bit in 0..BYTES * 8 {
                let mut damaged = bytes;
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Manifest::decode(&damaged), None, "bit {bit}");
            }
        }
    }

    /// A manifest with a right checksum and an owner that no version has written.
    #[test]
    fn an_unknown_owner_is_refused() {
        for owner in [2_u64, 1 << 32, u64::MAX] {
            let mut bytes = example().encode();
            bytes[OWNER_AT..].copy_from_slice(&owner.to_le_bytes());
            let crc = checksum(&bytes);
            bytes[CRC_AT..CRC_AT + 8].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(Manifest::decode(&bytes), None, "{owner}");
        }
    }

    /// A manifest with a right checksum and a size that no log has.
    #[test]
    fn a_size_of_segments_that_is_not_allowed_is_refused() {
        for segment_bytes in [0, 4096, (64 << 10) + 1, 2 << 30] {
            let manifest = Manifest { segment_bytes, ..example() };
            assert_eq!(Manifest::decode(&manifest.encode()), None, "{segment_bytes}");
        }
    }

    #[test]
    fn a_missing_and_a_damaged_manifest_are_told_apart() {
        let directory = Simulated::new();
        let missing = Manifest::load(&directory).expect_err("there is none");
        assert!(matches!(missing, Error::NotALog { .. }), "{missing}");
        example().store(&directory).expect("stored");
        assert_eq!(Manifest::load(&directory).expect("a manifest"), example());
        for change in [(|bytes| bytes.truncate(95)) as fn(&mut Vec<u8>), |bytes| bytes[20] ^= 1] {
            assert!(directory.damage(NAME, change));
            let damaged = Manifest::load(&directory).expect_err("it is damaged");
            assert!(matches!(damaged, Error::Damaged { .. }), "{damaged}");
        }
    }
}
