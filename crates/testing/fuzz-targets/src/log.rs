//! The files of a log, and the recovery of a lost pool from them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use pando::{DomainChoice, LogFiles, MapOptions, Pool, PoolOptions};
use pando_pmem::{LogName, OpenPool, Process};

use crate::damaged::{open_and_use, write};
use crate::input::Input;
use crate::scratch::Scratch;

/// Most edits of the files.
const MAX_EDITS: usize = 32;
/// Blocks of a segment begin at multiples of this.
const BLOCK_ALIGN: usize = 4096;
/// Bytes of a chunk of an image before its payload.
const CHUNK_HEADER_BYTES: usize = 32;

/// The files of a directory, by name.
type Files = BTreeMap<String, Vec<u8>>;

/// Each edit changes a byte of a file, cuts it, or corrects the checksum of a part. The log is
/// verified. Then the pool is recovered, which must have the same result: an error, or a pool that
/// is consistent.
pub fn log(data: &[u8]) {
    let mut input = Input::new(data);
    let mut files = files().clone();
    let names: Vec<_> = files.keys().cloned().collect();
    for _ in 0..MAX_EDITS {
        if input.is_empty() {
            break;
        }
        let how = input.byte();
        let name = &names[usize::from(how / 16) % names.len()];
        let Some(bytes) = files.get_mut(name).filter(|bytes| !bytes.is_empty()) else { continue };
        let at = input.number(3) as usize % bytes.len();
        match how % 16 {
            0 => bytes.truncate(at),
            1 => drop(files.remove(name)),
            2..6 => bytes[at] ^= 1 << (input.byte() % 8),
            6..8 => bytes[at] = input.byte(),
            8 => {
                let word = input.number(8).to_le_bytes();
                let end = bytes.len().min(at + 8);
                bytes[at..end].copy_from_slice(&word[..end - at]);
            }
            _ => reseal(name, bytes, at),
        }
    }
    let scratch = Scratch::new();
    let directory = scratch.path("log");
    write_all(&files, &directory);
    let verified = LogFiles::at(&directory).verify();
    let path = scratch.path("pool");
    let options =
        PoolOptions::new().domain(DomainChoice::Process).log(&directory).max_bytes(4 << 20);
    match Pool::open(&path, &options) {
        Ok(pool) => {
            assert!(verified.is_ok(), "recovered a log that cannot be verified: {verified:?}");
            assert!(pool.check().expect("checks").is_consistent());
            pool.close().expect("closes");
            open_and_use(&path, None);
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(!path.exists(), "a pool is left behind: {error}");
        }
    }
}

/// Writes the log of [`pools`] to a new directory.
pub(crate) fn write_files(directory: &Path) {
    write_all(files(), directory);
}

fn write_all(files: &Files, directory: &Path) {
    std::fs::create_dir(directory).expect("creates");
    for (name, bytes) in files {
        write(bytes, &directory.join(name));
    }
}

/// Corrects the checksum of the part of the file `name` in which `at` lies.
fn reseal(name: &str, bytes: &mut [u8], at: usize) {
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u32::from_le_bytes(*word)) as usize
    };
    let (from, length, crc_at, crc_bytes) = if name == "manifest" {
        (0, bytes.len(), 8, 8)
    } else if name.starts_with("segment-") {
        let from = at / BLOCK_ALIGN * BLOCK_ALIGN;
        (from, word(bytes, from + 8), 12, 4)
    } else {
        // The chunk in which the byte lies.
        let (mut from, mut length) = (0, 0);
        while from + length <= at && from + length < bytes.len() {
            from += length;
            length = CHUNK_HEADER_BYTES.saturating_add(word(bytes, from + 8));
        }
        (from, length, 12, 4)
    };
    let Some(part) = from.checked_add(length).and_then(|end| bytes.get_mut(from..end)) else {
        return;
    };
    if part.len() < crc_at + crc_bytes {
        return;
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&part[..crc_at]);
    if name != "manifest" {
        hasher.update(&[0; 4]);
    }
    hasher.update(&part[crc_at + crc_bytes..]);
    let crc = u64::from(hasher.finalize()).to_le_bytes();
    part[crc_at..crc_at + crc_bytes].copy_from_slice(&crc[..crc_bytes]);
}

/// A log with an image, some blocks behind it, and maps that were dropped.
fn files() -> &'static Files {
    &closed().1
}

/// The pool of [`files`], and the same pool with a proposal to replace the log.
pub(crate) fn pools() -> &'static [Vec<u8>] {
    &closed().0
}

fn closed() -> &'static ([Vec<u8>; 2], Files) {
    static CLOSED: OnceLock<([Vec<u8>; 2], Files)> = OnceLock::new();
    CLOSED.get_or_init(|| {
        let scratch = Scratch::new();
        let directory = scratch.path("log");
        let options = PoolOptions::new().log(&directory).max_bytes(4 << 20);
        let path = scratch.path("pool");
        let pool = Pool::create(&path, &options).expect("creates");
        let map = |name, index| {
            let options = MapOptions::new().transactional(true).index(index);
            pool.map_with(name, &options).expect("a map")
        };
        let (oak, ash) = (map("oak", "bztree"), map("ash", "skiplist"));
        pool.map("plain").expect("a map");
        drop(map("gone", "nbtree"));
        for index in 0..40_u64 {
            oak.upsert(index.to_be_bytes(), vec![7; index as usize]).expect("writes");
        }
        pool.write_image().expect("an image");
        pool.drop_map("gone").expect("drops");
        for index in 0..8_u64 {
            let key = index.to_be_bytes();
            let both = pool.transaction(|tx| {
                tx.remove(&oak, key)?;
                tx.put(&ash, key, b"moved")
            });
            both.expect("commits");
            pool.sync().expect("syncs");
        }
        drop((oak, ash));
        pool.close().expect("closes");
        let read = |name: &str| {
            let mut bytes = std::fs::read(directory.join(name)).expect("reads");
            // Without the zeros of a segment that are not written yet.
            let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            bytes.truncate(used.next_multiple_of(BLOCK_ALIGN).min(bytes.len()));
            bytes
        };
        let listed = std::fs::read_dir(Path::new(&directory)).expect("lists");
        let names = listed.map(|entry| entry.expect("an entry").file_name());
        let names = names.map(|name| name.into_string().expect("text"));
        let files = names.filter(|name| name != "lock").map(|name| (name.clone(), read(&name)));
        let files = files.collect();
        let pool = std::fs::read(&path).expect("reads");
        ([pool, proposed(&path)], files)
    })
}

/// The pool at `path`, with a proposal to replace its log.
fn proposed(path: &Path) -> Vec<u8> {
    let pool = pando_pmem::Pool::<Process>::open(path, &OpenPool::default()).expect("opens");
    let log = LogName { id: 7, path: path.with_extension("log") };
    pool.propose_log(&log).expect("proposes");
    drop(pool);
    std::fs::read(path).expect("reads")
}
