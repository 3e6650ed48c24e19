//! Damage to the image of a pool, and the use of a damaged pool.

use std::path::Path;

use pando::{DomainChoice, Error, Map, MapOptions, Order, Pool, PoolOptions};
use pando_pmem::layout::{
    CATALOG_OFF, CHUNK_BYTES, CHUNK_TABLE_OFF, CONTROL_OFF, DESCRIPTORS_OFF, Geometry,
    PARTICIPANTS_OFF,
};
use pando_pmem::superblock::{LOG_NAMES_OFF, STATE_OFF, SUPERBLOCK_BYTES, seal};

use crate::input::Input;

/// Most edits of one image.
const MAX_EDITS: usize = 64;

/// Edits `image`. `input` gives the place and the change of each edit.
pub(crate) fn damage(image: &mut Vec<u8>, input: &mut Input<'_>) {
    let has_log = image.get(LOG_NAMES_OFF as usize).is_some_and(|&byte| byte != 0);
    let superblock_is_resealed = input.byte() % 2 == 1;
    for _ in 0..MAX_EDITS {
        if input.is_empty() {
            break;
        }
        let how = input.byte();
        let off = place(image, how % 8, input);
        let Some(word) = image.get(off..off + 8).and_then(|word| word.first_chunk()) else {
            continue;
        };
        let found = u64::from_le_bytes(*word);
        let new = match how / 8 % 8 {
            0 | 1 => found ^ 1 << (input.byte() % 64),
            2 => input.number(8),
            // Generations and lengths are in upper halves.
            3 => found & u64::from(u32::MAX) | input.number(2) << 32,
            4 => found.wrapping_add(input.number(2)),
            5 => 1 << (input.byte() % 64),
            // Another word of the pool.
            6 => {
                let region = input.byte() % 8;
                let from = place(image, region, input);
                let word = image.get(from..from + 8).and_then(|word| word.first_chunk());
                word.map_or(0, |word| u64::from_le_bytes(*word))
            }
            _ => {
                let left = image.len() as u64 - (input.number(3) % image.len() as u64);
                image.truncate(left as usize);
                continue;
            }
        };
        image[off..off + 8].copy_from_slice(&new.to_le_bytes());
    }
    if superblock_is_resealed {
        reseal(image);
        if has_log {
            reseal_log_names(image);
        }
    }
}

/// The offset of a word in one of the regions of a pool.
fn place(image: &[u8], region: u8, input: &mut Input<'_>) -> usize {
    let chunks_off = Geometry::new(4 << 20).chunks_off;
    let (from, bytes) = match region {
        0 => (0, SUPERBLOCK_BYTES as u64),
        // With the directory of the participant table.
        1 => (CONTROL_OFF, 320),
        2 => (PARTICIPANTS_OFF, 256),
        3 => (CATALOG_OFF, 64),
        4 => (DESCRIPTORS_OFF, 2_048),
        5 => (CHUNK_TABLE_OFF, 512),
        // The headers of slabs.
        6 => {
            let chunk = input.number(1) % 16;
            (chunks_off + chunk * CHUNK_BYTES, 512)
        }
        _ => (chunks_off, image.len() as u64 - chunks_off.min(image.len() as u64)),
    };
    // In the larger regions only words that are not zero are damaged.
    let start = input.number(3) % bytes.max(1) / 8 * 8 + from;
    let end = (from + bytes).min(image.len() as u64);
    let held = |&off: &u64| {
        image
            .get(off as usize..off as usize + 8)
            .is_some_and(|word| word.iter().any(|&byte| byte != 0))
    };
    let found = if region < 6 { None } else { (start..end).step_by(8).take(512).find(held) };
    found.unwrap_or(start) as usize
}

/// Corrects the checksums of the superblock.
fn reseal(image: &mut [u8]) {
    let Some(block) = image.first_chunk_mut::<SUPERBLOCK_BYTES>() else { return };
    let state_at = STATE_OFF as usize;
    block[12..16].fill(0);
    let checksum = crc32fast::hash(&block[..128]);
    block[12..16].copy_from_slice(&checksum.to_le_bytes());
    for at in (state_at..state_at + 48).step_by(8) {
        let mut word = [0; 8];
        word[..6].copy_from_slice(&block[at..at + 6]);
        block[at..at + 8].copy_from_slice(&seal(u64::from_le_bytes(word)).to_le_bytes());
    }
}

/// Corrects the checksums of the names of the log and of the proposed log.
fn reseal_log_names(image: &mut [u8]) {
    let names = image.get_mut(128..STATE_OFF as usize).unwrap_or_default();
    for name in names.chunks_exact_mut(1_920) {
        name[20..24].fill(0);
        let checksum = crc32fast::hash(name);
        name[20..24].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Writes `image` to a new file. Pages of zeros become holes.
pub(crate) fn write(image: &[u8], path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create_new(path).expect("creates");
    file.set_len(image.len() as u64).expect("sets the length");
    for (index, page) in image.chunks(4096).enumerate() {
        if page != &[0; 4096][..page.len()] {
            file.write_all_at(page, index as u64 * 4096).expect("writes");
        }
    }
}

/// Opens the pool, checks it and uses it. If the check finds no problem, the answers must agree
/// with each other. Otherwise the calls must only end. `log` is the directory of the log, if it is
/// not where the pool says.
pub(crate) fn open_and_use(path: &Path, log: Option<&Path>) {
    let options = PoolOptions::new().domain(DomainChoice::Process);
    let options = log.iter().fold(options, |options, log| options.log(log));
    let pool = match Pool::open(path, &options) {
        Ok(pool) => pool,
        // The damaged pool names no log, or the list of its maps for the log has a damaged map,
        // which is told by its slot.
        Err(Error::NoLog | Error::Damaged(_)) if log.is_some() => return,
        Err(error) => {
            let message = error.to_string();
            let mut names = log.into_iter().chain([path]).map(|name| name.display().to_string());
            let is_named = names.any(|name| message.contains(&name));
            assert!(is_named, "no file is named: {message}");
            return;
        }
    };
    let maps = pool.maps();
    let stat = pool.stat();
    let report = pool.check();
    let (Ok(maps), Ok(_), Ok(report)) = (maps, stat, report) else { return };
    // Salvage copies the readable records out of any pool, in order and each key once.
    for info in &maps {
        let mut last: Option<Vec<u8>> = None;
        let visit = |key: &[u8], _: &[u8]| {
            assert!(last.as_deref().is_none_or(|last| last < key), "{key:?} is out of order");
            last = Some(key.to_vec());
        };
        let copied = match info.damage {
            None => pool.salvage(&info.name, visit),
            Some(_) => pool.salvage_slot(info.slot, &MapOptions::new(), visit),
        };
        if let Ok(copied) = copied {
            assert!(!report.is_consistent() || copied.is_consistent(), "{:?}", copied.problems);
        }
    }
    let is_consistent = report.is_consistent();
    for info in &maps {
        match pool.open_map(&info.name) {
            Ok(map) if is_consistent => use_map(&map),
            Ok(map) => use_damaged_map(&map),
            Err(_) => {}
        }
    }
    let report = match pool.check() {
        Err(_) if log.is_some() => return,
        checked => checked.expect("checks"),
    };
    assert!(!is_consistent || report.is_consistent(), "after use: {:?}", report.problems);
}

/// The keys that a scan finds before an error.
fn scanned_keys(map: &Map, order: Order) -> impl Iterator<Item = Vec<u8>> {
    let mut scan = map.range(..);
    std::iter::from_fn(move || {
        let record = scan.next_record_in(order).ok()?;
        record.map(|(key, _)| key.to_vec())
    })
}

/// Reads and changes the records that it finds. Each call must end, with any answer.
fn use_damaged_map(map: &Map) {
    let mut keys = vec![Vec::new(), b"key/0001/x".to_vec(), 7_u64.to_be_bytes().to_vec()];
    for order in [Order::Ascending, Order::Descending] {
        keys.extend(scanned_keys(map, order).step_by(7));
    }
    let _ = map.len();
    for key in keys.iter().take(100) {
        let _ = map.get(key);
        let _ = map.upsert(key, [9; 200]);
        let _ = map.insert([key, &b"~"[..]].concat(), [7; 8]);
        let _ = map.remove(key);
    }
}

/// Reads all records, by scans and by gets, and changes some. A write may return an error.
fn use_map(map: &Map) {
    let ascending: Vec<_> = scanned_keys(map, Order::Ascending).collect();
    let mut descending: Vec<_> = scanned_keys(map, Order::Descending).collect();
    descending.reverse();
    assert!(ascending == descending, "the scans in both directions differ");
    assert!(ascending.is_sorted_by(|left, right| left < right), "keys do not ascend");
    for key in &ascending {
        assert!(map.get(key).expect("reads").is_some(), "{key:?} is scanned and not found");
    }
    for key in ascending.iter().step_by(3) {
        let _ = map.upsert([key, &b"~"[..]].concat(), [9; 200]);
        let _ = map.remove(key);
    }
}
