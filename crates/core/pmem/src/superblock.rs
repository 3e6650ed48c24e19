//! The superblock: the facts about a file that are checked before anything else in it is used.
//!
//! ```text
//! byte      0        8        16       24       32       40       48       56
//! 0         magic    ver|crc  pool id           max size chunk    particip descr.
//! 64        zero, reserved for later versions
//! 128       name 0 of a log, 1,920 bytes
//! 2,048     name 1 of a log, 1,920 bytes
//! 3,968     state    size     boot 0   boot 1   boot 2   log      zero, reserved
//! 4,032     zero, reserved
//!
//! name      0                 16       24 ..
//!           log id            len|crc  path of the log's directory, then zeros
//! ```
//!
//! * Bytes 0 to 127 never change after creation. `crc` (upper half of word 1) is the CRC-32 of
//!   them all, with itself taken as zero.
//! * `state`, `size`, `log` and the boot id change in place, each by one 8-byte store, so none can
//!   be torn. Each carries a check in its top 16 bits: the low 16 bits of the CRC-32 of its other
//!   48 bits. So a flipped bit is found.
//! * `state` is the generation (32 bits), the clean flag (bit 32), and whether writes of that
//!   generation survive power loss (bit 33), according to the domain and the medium.
//! * `size` is the number of pages that the file has for certain.
//! * `log` is zero if the pool has no log; then both names are zeros. It is 1 if name 0 is that of
//!   its log, and 2 if name 1 is ([`LogName`]). Bit 2 says that the other name is *proposed*: the
//!   log is to be replaced by that one (`pool/log.rs`). `len` is the length of the path, `crc` the
//!   CRC-32 of the name's 1,920 bytes, with itself taken as zero. The other name may be torn.
//! * Order of writes when a pool is opened: boot id, then `state` with the clean flag off. Until
//!   `state` says that the pool is in use, the boot id is not used.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::layout::{
    CHUNK_BYTES, FIRST_PARTICIPANTS, MAX_POOL_BYTES, MIN_POOL_BYTES, PAGE_BYTES, PARTITION_BYTES,
};
use crate::log_name::LogName;

/// The first eight bytes of every pool.
pub const MAGIC: [u8; 8] = *b"PANDOaSp";
/// The format version that this library writes, and the only one that it reads.
pub const FORMAT_VERSION: u32 = 5;
/// Bytes of the superblock.
pub const SUPERBLOCK_BYTES: usize = 4096;

const CRC_AT: usize = 12;
const FIXED_BYTES: usize = 128;
/// Bytes that the checksum covers in versions before 5.
const FORMER_FIXED_BYTES: usize = 3968;
/// Bytes of the name of a log.
pub(crate) const LOG_NAME_BYTES: usize = 1920;
/// Bytes of a name at which its length and its checksum are.
const LOG_PATH_LEN_AT: usize = 16;
const LOG_NAME_CRC_AT: usize = 20;
const LOG_PATH_AT: usize = 24;
/// Longest path of a log's directory, in bytes.
pub const MAX_LOG_PATH_BYTES: usize = LOG_NAME_BYTES - LOG_PATH_AT;
/// Offset of the generation and the clean flag.
pub const STATE_OFF: u64 = 3968;
/// Offset of the size of the pool.
pub const SIZE_OFF: u64 = 3976;
/// Offset of the boot id, three words.
pub const BOOT_OFF: u64 = 3984;
/// Offset of the word that says which name is that of the log.
pub const LOG_NAMES_OFF: u64 = 4008;
const MUTABLE_OFF: usize = STATE_OFF as usize;
const MUTABLE_END: usize = 4016;
const CLEAN_BIT: u64 = 1 << 32;
const SURVIVES_POWER_BIT: u64 = 1 << 33;
const PAYLOAD_MASK: u64 = (1 << 48) - 1;

const _: () = {
    assert!(FIXED_BYTES.is_multiple_of(64) && LOG_NAME_BYTES.is_multiple_of(64));
    assert!(FIXED_BYTES + 2 * LOG_NAME_BYTES == MUTABLE_OFF);
    assert!(BOOT_OFF + 24 == LOG_NAMES_OFF && LOG_NAMES_OFF + 8 == MUTABLE_END as u64);
};

/// Which of the two names is that of the pool's log, and whether the other is proposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogNames {
    /// The number of the name, 0 or 1; none if the pool has no log.
    pub current: Option<u64>,
    /// Whether the log is to be replaced by the other name's.
    pub is_proposed: bool,
}

impl LogNames {
    const PROPOSED: u64 = 4;

    /// The word.
    pub fn word(self) -> u64 {
        let current = self.current.map_or(0, |number| number + 1);
        seal(current | if self.is_proposed { Self::PROPOSED } else { 0 })
    }

    /// What a word says, without its check; `None` for a word that says nothing.
    pub fn of_word(word: u64) -> Option<Self> {
        match word & PAYLOAD_MASK {
            0 => Some(Self::default()),
            payload @ (1 | 2 | 5 | 6) => Some(Self {
                current: Some((payload & 3) - 1),
                is_proposed: payload & Self::PROPOSED != 0,
            }),
            _ => None,
        }
    }

    /// The offset of name `number`.
    pub fn name_off(number: u64) -> u64 {
        FIXED_BYTES as u64 + number * LOG_NAME_BYTES as u64
    }
}

fn name_checksum(name: &[u8; LOG_NAME_BYTES]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&name[..LOG_NAME_CRC_AT]);
    hasher.update(&[0; 4]);
    hasher.update(&name[LOG_PATH_AT..]);
    hasher.finalize()
}

impl LogName {
    /// Refuses a path that is longer than its place.
    pub(crate) fn check(&self) -> Result<()> {
        let path_bytes = self.path.as_os_str().len();
        if path_bytes <= MAX_LOG_PATH_BYTES {
            return Ok(());
        }
        Err(Error::BadOption {
            option: "bytes of the log's path",
            found: path_bytes as u64,
            allowed: format!("1 to {MAX_LOG_PATH_BYTES}"),
        })
    }

    /// The bytes on media. The path has at most [`MAX_LOG_PATH_BYTES`].
    pub(crate) fn encode(&self) -> [u8; LOG_NAME_BYTES] {
        let mut name = [0; LOG_NAME_BYTES];
        let path = self.path.as_os_str().as_bytes();
        name[..16].copy_from_slice(&self.id.to_le_bytes());
        name[LOG_PATH_LEN_AT..LOG_NAME_CRC_AT].copy_from_slice(&(path.len() as u32).to_le_bytes());
        name[LOG_PATH_AT..LOG_PATH_AT + path.len()].copy_from_slice(path);
        let checksum = name_checksum(&name);
        name[LOG_NAME_CRC_AT..LOG_PATH_AT].copy_from_slice(&checksum.to_le_bytes());
        name
    }

    /// The name with these bytes; `None` if they are not as they were written.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let name: &[u8; LOG_NAME_BYTES] = bytes.try_into().ok()?;
        let half = |at: usize| Some(u32::from_le_bytes(*name[at..].first_chunk()?));
        let id = u128::from_le_bytes(*name.first_chunk()?);
        let path = name[LOG_PATH_AT..].get(..half(LOG_PATH_LEN_AT)? as usize)?;
        let is_whole = half(LOG_NAME_CRC_AT)? == name_checksum(name) && id != 0;
        is_whole.then(|| Self { id, path: OsStr::from_bytes(path).into() })
    }
}

/// The boot id of a system. Zero, the id of no boot, if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BootId(pub u128);

impl BootId {
    /// Whether both are known, and of the same boot.
    pub fn is_same(self, other: Self) -> bool {
        self == other && self != Self::default()
    }
}

/// The decoded superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// A number that no other pool has.
    pub pool_id: u128,
    /// The limit of the pool's size, in bytes.
    pub max_bytes: u64,
    /// The log, if the pool has one.
    pub log: Option<LogName>,
    /// Raised by one whenever the pool is opened.
    pub generation: u32,
    /// Whether the pool was closed cleanly.
    pub clean: bool,
    /// Whether writes of this generation survive power loss.
    pub survives_power: bool,
    /// Bytes that the file has for certain.
    pub size_bytes: u64,
    /// The boot in which the pool was opened last.
    pub boot_id: BootId,
}

/// A 48-bit payload with 16 bits of its checksum on top.
pub fn seal(payload: u64) -> u64 {
    payload | (payload_check(payload) << 48)
}

fn payload_check(payload: u64) -> u64 {
    u64::from(crc32fast::hash(&payload.to_le_bytes()[..6]) & 0xFFFF)
}

/// The word that holds `generation`, the clean flag, and whether writes survive power loss.
pub fn state_word(generation: u32, clean: bool, survives_power: bool) -> u64 {
    let clean = if clean { CLEAN_BIT } else { 0 };
    let survives_power = if survives_power { SURVIVES_POWER_BIT } else { 0 };
    seal(u64::from(generation) | clean | survives_power)
}

/// The word that holds the size of the pool.
pub fn size_word(size_bytes: u64) -> u64 {
    seal(size_bytes / PAGE_BYTES)
}

/// The three words that hold a boot id.
pub fn boot_words(boot_id: BootId) -> [u64; 3] {
    [0, 48, 96].map(|shift| seal((boot_id.0 >> shift) as u64 & PAYLOAD_MASK))
}

/// The size that `word` holds, a result of [`size_word`].
pub fn size_of_word(word: u64) -> u64 {
    (word & PAYLOAD_MASK) * PAGE_BYTES
}

fn word_at(block: &[u8; SUPERBLOCK_BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&block[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn fixed_checksum(block: &[u8; SUPERBLOCK_BYTES], bytes: usize) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&block[..CRC_AT]);
    hasher.update(&[0; 4]);
    hasher.update(&block[CRC_AT + 4..bytes]);
    hasher.finalize()
}

impl Superblock {
    /// The bytes on media.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut block = [0; SUPERBLOCK_BYTES];
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        block[16..32].copy_from_slice(&self.pool_id.to_le_bytes());
        let fixed = [self.max_bytes, CHUNK_BYTES, FIRST_PARTICIPANTS as u64, PARTITION_BYTES];
        for (index, value) in fixed.into_iter().enumerate() {
            block[32 + index * 8..40 + index * 8].copy_from_slice(&value.to_le_bytes());
        }
        let mut names = LogNames::default();
        if let Some(name) = &self.log {
            names.current = Some(0);
            block[FIXED_BYTES..FIXED_BYTES + LOG_NAME_BYTES].copy_from_slice(&name.encode());
        }
        let checksum = fixed_checksum(&block, FIXED_BYTES);
        block[CRC_AT..CRC_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        let [boot_0, boot_1, boot_2] = boot_words(self.boot_id);
        let mutable = [
            state_word(self.generation, self.clean, self.survives_power),
            size_word(self.size_bytes),
            boot_0,
            boot_1,
            boot_2,
            names.word(),
        ];
        for (index, value) in mutable.into_iter().enumerate() {
            let at = MUTABLE_OFF + index * 8;
            block[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        block
    }

    /// Checks every bit of `found`, the first bytes of the file at `path`, and decodes it.
    pub fn decode(path: &Path, found: &[u8]) -> Result<Self> {
        let path = || path.to_path_buf();
        if found.len() < 8 || found[..8] != MAGIC {
            return Err(Error::NotAPool {
                path: path(),
                found: found[..found.len().min(8)].to_vec(),
                expected: MAGIC,
            });
        }
        let Some(block) = found.first_chunk::<SUPERBLOCK_BYTES>() else {
            return Err(Error::Truncated {
                path: path(),
                found_bytes: found.len() as u64,
                expected_bytes: SUPERBLOCK_BYTES as u64,
            });
        };
        let version = word_at(block, 8) as u32;
        if version > FORMAT_VERSION {
            return Err(Error::NewerVersion {
                path: path(),
                found: version,
                supported: FORMAT_VERSION,
            });
        }
        let found_checksum = u64::from((word_at(block, 8) >> 32) as u32);
        let bytes = if version < FORMAT_VERSION { FORMER_FIXED_BYTES } else { FIXED_BYTES };
        let computed = u64::from(fixed_checksum(block, bytes));
        if found_checksum != computed {
            return Err(Error::DamagedSuperblock {
                path: path(),
                part: "the fixed part",
                found: found_checksum,
                computed,
            });
        }
        if version < FORMAT_VERSION {
            return Err(Error::OlderVersion {
                path: path(),
                found: version,
                supported: FORMAT_VERSION,
            });
        }
        let field = |field, at: usize, allowed: u64| match word_at(block, at) {
            value if value == allowed => Ok(()),
            value => Err(Error::BadField {
                path: path(),
                field,
                found: value,
                allowed: allowed.to_string(),
            }),
        };
        field("bytes of a chunk", 40, CHUNK_BYTES)?;
        field("participant slots", 48, FIRST_PARTICIPANTS as u64)?;
        field("bytes of a descriptor partition", 56, PARTITION_BYTES)?;
        let max_bytes = word_at(block, 32);
        if !(MIN_POOL_BYTES..=MAX_POOL_BYTES).contains(&max_bytes)
            || !max_bytes.is_multiple_of(CHUNK_BYTES)
        {
            return Err(Error::BadField {
                path: path(),
                field: "the largest size",
                found: max_bytes,
                allowed: format!(
                    "{MIN_POOL_BYTES} to {MAX_POOL_BYTES}, in multiples of {CHUNK_BYTES}"
                ),
            });
        }
        let unsealed = |part, at: usize| {
            let word = word_at(block, at);
            let payload = word & PAYLOAD_MASK;
            let computed = payload_check(payload);
            if word >> 48 == computed {
                Ok(payload)
            } else {
                Err(Error::DamagedSuperblock { path: path(), part, found: word >> 48, computed })
            }
        };
        let state = unsealed("the state", STATE_OFF as usize)?;
        let pages = unsealed("the size", SIZE_OFF as usize)?;
        let mut boot_id = 0;
        for (index, shift) in [0, 48, 96].into_iter().enumerate() {
            let part = unsealed("the boot id", BOOT_OFF as usize + index * 8)?;
            boot_id |= u128::from(part) << shift;
        }
        let names = unsealed("which log is the pool's", LOG_NAMES_OFF as usize)?;
        let names = LogNames::of_word(names).ok_or_else(|| Error::BadField {
            path: path(),
            field: "which log is the pool's",
            found: names,
            allowed: "0, 1, 2, 5 or 6".into(),
        })?;
        let log = match names.current {
            None => None,
            Some(number) => {
                let at = LogNames::name_off(number) as usize;
                let name = &block[at..at + LOG_NAME_BYTES];
                Some(LogName::decode(name).ok_or_else(|| Error::DamagedSuperblock {
                    path: path(),
                    part: "the name of the log",
                    found: word_at(block, at + LOG_PATH_LEN_AT) >> 32,
                    computed: u64::from(name.try_into().map_or(0, name_checksum)),
                })?)
            }
        };
        // Names that were never written.
        let is_reserved =
            |at: usize| at >= MUTABLE_END || (names.current.is_none() && at < MUTABLE_OFF);
        let mut rest = FIXED_BYTES..SUPERBLOCK_BYTES;
        if let Some(at) = rest.find(|&at| is_reserved(at) && block[at] != 0) {
            return Err(Error::BadField {
                path: path(),
                field: "a reserved byte",
                found: u64::from(block[at]),
                allowed: "0".into(),
            });
        }
        if state & !(SURVIVES_POWER_BIT | CLEAN_BIT | u64::from(u32::MAX)) != 0 {
            return Err(Error::BadField {
                path: path(),
                field: "the state",
                found: state,
                allowed: "a generation and two flags".into(),
            });
        }
        let mut pool_id = [0; 16];
        pool_id.copy_from_slice(&block[16..32]);
        Ok(Self {
            pool_id: u128::from_le_bytes(pool_id),
            max_bytes,
            log,
            generation: state as u32,
            clean: state & CLEAN_BIT != 0,
            survives_power: state & SURVIVES_POWER_BIT != 0,
            size_bytes: pages * PAGE_BYTES,
            boot_id: BootId(boot_id),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Superblock {
        Superblock {
            pool_id: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
            max_bytes: 1 << 30,
            log: None,
            generation: 7,
            clean: true,
            survives_power: true,
            size_bytes: 1 << 20,
            boot_id: BootId(0xfedc_ba98_7654_3210_0123_4567_89ab_cdef),
        }
    }

    /// Fails on any change of the format: then the version must change too.
    #[test]
    fn golden_superblock() {
        let block = example().encode();
        assert_eq!(crc32fast::hash(&block), GOLDEN, "the format of the superblock changed");
    }
    const GOLDEN: u32 = 962_383_572;

    fn with_log() -> Superblock {
        let log = LogName { id: 7 << 64 | 9, path: "/var/lib/grove.log".into() };
        Superblock { log: Some(log), ..example() }
    }

    #[test]
    fn golden_superblock_with_a_log() {
        let block = with_log().encode();
        assert_eq!(crc32fast::hash(&block), GOLDEN_LOG, "the format of the superblock changed");
    }
    const GOLDEN_LOG: u32 = 2_109_760_503;

    #[test]
    fn decodes_what_it_encodes() {
        let path = "p/".repeat(MAX_LOG_PATH_BYTES / 2);
        let longest = LogName { id: 1, path: path.into() };
        for pool in [example(), with_log(), Superblock { log: Some(longest), ..example() }] {
            assert_eq!(Superblock::decode(Path::new("p"), &pool.encode()).unwrap(), pool);
        }
    }

    #[test]
    fn a_path_longer_than_its_place_is_refused() {
        let mut name = with_log().log.expect("a log").encode();
        name[LOG_PATH_LEN_AT + 2] = 1;
        let checksum = name_checksum(&name);
        name[LOG_NAME_CRC_AT..LOG_PATH_AT].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(LogName::decode(&name), None);
    }

    #[test]
    fn any_flipped_bit_of_the_name_of_the_log_is_an_error() {
        let block = with_log().encode();
        let (from, to) = (FIXED_BYTES, FIXED_BYTES + LOG_NAME_BYTES);
        for bit in (from * 8..to * 8).chain(LOG_NAMES_OFF as usize * 8..MUTABLE_END * 8) {
            let mut damaged = block;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(Path::new("p"), &damaged).is_err(), "bit {bit}");
        }
    }

    /// A name that is only proposed may be torn.
    #[test]
    fn the_other_name_is_not_looked_at() {
        let mut block = with_log().encode();
        block[FIXED_BYTES + LOG_NAME_BYTES..MUTABLE_OFF].fill(0xA5);
        for is_proposed in [false, true] {
            let word = LogNames { current: Some(0), is_proposed }.word();
            block[LOG_NAMES_OFF as usize..MUTABLE_END].copy_from_slice(&word.to_le_bytes());
            assert_eq!(Superblock::decode(Path::new("p"), &block).unwrap(), with_log());
        }
    }

    #[test]
    fn any_flipped_bit_is_an_error() {
        let block = example().encode();
        for bit in 0..SUPERBLOCK_BYTES * 8 {
            let mut damaged = block;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(Path::new("p"), &damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn any_truncation_is_an_error() {
        let block = example().encode();
        for len in 0..SUPERBLOCK_BYTES {
            let error = Superblock::decode(Path::new("p"), &block[..len]).unwrap_err();
            let expected = if len < 8 {
                matches!(error, Error::NotAPool { .. })
            } else {
                matches!(error, Error::Truncated { .. })
            };
            assert!(expected, "{len} bytes: {error}");
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut block = example().encode();
        block[8] = 9;
        let error = Superblock::decode(Path::new("p"), &block).unwrap_err();
        assert!(matches!(error, Error::NewerVersion { found: 9, .. }), "{error}");
    }
}
