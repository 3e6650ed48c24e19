//! The catalog: its words, and headers of maps with correct checksums.

use pando::{DomainChoice, Error, MapOptions, Pool, PoolOptions};
use pando_pmem::layout::{CATALOG_OFF, CATALOG_SLOTS};
use pando_tree::maps::slots::{HEADER_BYTES, MAX_NAME_BYTES, MapHeader};

use crate::damaged::{open_and_use, write};
use crate::images::images;
use crate::input::Input;
use crate::scratch::Scratch;

/// Most edits of one image.
const MAX_EDITS: usize = 16;

/// The bits of a slot's word with the offset of the header.
const BLOCK_MASK: u64 = (1 << 48) - 1;
/// The bits of a word with an operation in flight, which may leave the slot empty.
const UNDER_WAY: u64 = 0b11 << 61;
/// Offset of the options in a header.
const OPTIONS_AT: usize = 64 + 32;

/// Each edit changes a catalog word, or the header that the word names: one byte, or the whole
/// header. The pool is opened, checked and used. Each slot that is not empty must be listed. Then
/// maps are created and dropped.
pub fn catalog(data: &[u8]) {
    let mut input = Input::new(data);
    let mut image = images()[0].clone();
    let slot_word = |slot: usize| word(&image, CATALOG_OFF as usize + slot * 8);
    let words = [0, 1].map(slot_word);
    let slots = words.map(|word| (word & BLOCK_MASK) as usize);
    for _ in 0..MAX_EDITS {
        if input.is_empty() {
            break;
        }
        let how = input.byte();
        let slot = usize::from(how >> 4) % 2;
        let header = slots[slot];
        match how % 4 {
            0 => {
                let at = CATALOG_OFF as usize + input.number(2) as usize % 1_024 * 8;
                let value = match how & 12 {
                    0 => words[slot],
                    4 => words[slot] ^ 1 << (input.byte() % 64),
                    8 => input.number(8),
                    _ => header as u64,
                };
                image[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            1 => {
                let at = header + input.number(2) as usize % HEADER_BYTES as usize;
                image[at] ^= input.byte();
            }
            _ => {
                let root = if how & 8 == 0 { word(&image, header) } else { input.number(6) };
                let kind = if how & 4 == 0 { 1 } else { input.number(8) };
                let options = [0, 1, 2, 3].map(|at| {
                    let found = word(&image, header + OPTIONS_AT + at * 8);
                    found ^ input.number(usize::from(how >> 5))
                });
                let name_bytes = usize::from(input.byte()) % (MAX_NAME_BYTES + 1);
                let name = String::from_utf8_lossy(input.bytes(name_bytes));
                if name.len() <= MAX_NAME_BYTES {
                    let made = MapHeader { name: name.into_owned(), kind, options, number: 0 };
                    let made = made.encode(slot as u64, root);
                    image[header..header + made.len()].copy_from_slice(&made);
                }
            }
        }
    }
    let scratch = Scratch::new();
    let path = scratch.path("pool");
    write(&image, &path);
    all_are_listed(&image, &path);
    open_and_use(&path, None);
    change_maps(&path);
}

/// Checks that each slot that is not empty is listed, as a map or as a damaged map.
fn all_are_listed(image: &[u8], path: &std::path::Path) {
    let options = PoolOptions::new().domain(DomainChoice::Process);
    let Ok(pool) = Pool::open(path, &options) else { return };
    let listed = pool.maps().expect("lists");
    for slot in 0..CATALOG_SLOTS {
        let found = word(image, CATALOG_OFF as usize + slot * 8);
        let is_listed = listed.iter().any(|map| map.slot == slot as u64);
        assert!(is_listed || found == 0 || found & UNDER_WAY != 0, "slot {slot}: {found:#x}");
    }
}

fn word(image: &[u8], at: usize) -> u64 {
    let bytes = image.get(at..at + 8).and_then(|word| word.first_chunk());
    bytes.map_or(0, |word| u64::from_le_bytes(*word))
}

/// Creates a map, and drops the maps of a consistent pool. An error is as good as an answer here.
fn change_maps(path: &std::path::Path) {
    let options = PoolOptions::new().domain(DomainChoice::Process);
    let Ok(pool) = Pool::open(path, &options) else { return };
    let is_consistent = pool.check().is_ok_and(|report| report.is_consistent());
    let is_damaged = pool.maps().expect("lists").iter().any(|map| map.damage.is_some());
    let is_there = pool.maps().expect("lists").iter().any(|map| map.name == "made");
    match pool.map("made") {
        Ok(map) => {
            assert!(is_there || !is_damaged, "a damaged map may have that name");
            map.upsert(b"key", b"value").expect("writes");
            assert_eq!(map.get(b"key").expect("reads").as_deref(), Some(&b"value"[..]));
        }
        Err(error) => assert!(!is_damaged || matches!(error, Error::Damaged(_)) || is_there),
    }
    if !is_consistent {
        return;
    }
    for (index, info) in pool.maps().expect("lists").into_iter().enumerate() {
        let _ = match index % 2 {
            0 => pool.drop_map(&info.name),
            _ => pool.drop_slot(info.slot, &MapOptions::new()),
        };
    }
}
