//! The catalog: its words, and headers of maps whose checksums are right.

use pando::{DomainChoice, Pool, PoolOptions};
use pando_pmem::catalog::{HEADER_BYTES, MAX_NAME_BYTES, MapHeader};
use pando_pmem::layout::CATALOG_OFF;

use crate::damaged::{open_and_use, write};
use crate::images::images;
use crate::input::Input;
use crate::scratch::Scratch;

/// Edits of one image.
const MAX_EDITS: usize = 16;

/// Each edit is of a catalog word, or of the header that one names: a byte of it, or all of it
/// anew. The pool is opened, looked at and used; then maps are made and dropped.
pub fn catalog(data: &[u8]) {
    let mut input = Input::new(data);
    let mut image = images()[0].clone();
    let slots = [0, 1].map(|slot| word(&image, CATALOG_OFF as usize + slot * 8) as usize);
    for _ in 0..MAX_EDITS {
        if input.is_empty() {
            break;
        }
        let how = input.byte();
        let header = slots[usize::from(how >> 4) % 2];
        match how % 4 {
            0 => {
                let at = CATALOG_OFF as usize + input.number(2) as usize % 1_024 * 8;
                let value = if how & 8 == 0 { header as u64 } else { input.number(8) };
                image[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            1 => {
                let at = header + input.number(2) as usize % HEADER_BYTES as usize;
                image[at] ^= input.byte();
            }
            _ => {
                let root = if how & 8 == 0 { word(&image, header + 16) } else { input.number(6) };
                let kind = if how & 4 == 0 { 1 } else { input.number(8) };
                let options = [0, 1, 2, 3].map(|at| {
                    let found = word(&image, header + 32 + at * 8);
                    found ^ input.number(usize::from(how >> 5))
                });
                let name_bytes = usize::from(input.byte()) % (MAX_NAME_BYTES + 1);
                let name = String::from_utf8_lossy(input.bytes(name_bytes));
                if name.len() <= MAX_NAME_BYTES {
                    let made = MapHeader { name: name.into_owned(), kind, options }.encode(root);
                    image[header..header + made.len()].copy_from_slice(&made);
                }
            }
        }
    }
    let scratch = Scratch::new();
    let path = scratch.path("pool");
    write(&image, &path);
    open_and_use(&path);
    change_maps(&path);
}

fn word(image: &[u8], at: usize) -> u64 {
    let bytes = image.get(at..at + 8).and_then(|word| word.first_chunk());
    bytes.map_or(0, |word| u64::from_le_bytes(*word))
}

/// Makes a map and drops what is sound. Errors are as good as answers here.
fn change_maps(path: &std::path::Path) {
    let options = PoolOptions::new().domain(DomainChoice::Process);
    let Ok(pool) = Pool::open(path, &options) else { return };
    let is_sound = pool.check().is_ok_and(|report| report.is_sound());
    if let Ok(map) = pool.map("made") {
        map.upsert(b"key", b"value").expect("writes");
        assert_eq!(map.get(b"key").expect("reads").as_deref(), Some(&b"value"[..]));
    }
    if !is_sound {
        return;
    }
    for info in pool.maps().expect("lists") {
        let _ = pool.drop_map(&info.name);
    }
}
