//! The files of a page store.

use std::sync::{Arc, OnceLock};

use pando_device::Directory;
use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_lss::{Group, PageStore, PageStoreOptions};

use crate::input::Input;

/// Most edits of the files.
const MAX_EDITS: usize = 32;
/// Blocks of a segment, and the places of the superblock, begin at multiples of this.
const ALIGN: usize = 4096;
const OPTIONS: PageStoreOptions = PageStoreOptions {
    segment_bytes: 64 << 10,
    ceiling_percent: 200,
    max_bytes: 16 << 16,
    checkpoint_bytes: 128 << 10,
};

/// Each edit changes a byte of a file, cuts it, or corrects a checksum. Then the store is opened:
/// an error, or a store whose pages are read or told as damaged, and that can be used and opened
/// again.
pub fn page_store(data: &[u8]) {
    let mut input = Input::new(data);
    let image = store().cut_power(Kept::All, &mut Random::new(1));
    let names = image.names().expect("names");
    let mut is_forged = false;
    for _ in 0..MAX_EDITS {
        if input.is_empty() {
            break;
        }
        let how = input.byte();
        is_forged |= how % 16 >= 10;
        let name = &names[usize::from(how / 16) % names.len()];
        let at = input.number(3) as usize;
        let value = input.number(8);
        image.damage(name, |bytes| {
            let at = at % bytes.len().max(1);
            let end = bytes.len().min(at + 8);
            match how % 16 {
                0 => bytes.truncate(at),
                1..6 if at < end => bytes[at] ^= 1 << (value % 8),
                6..8 if at < end => bytes[at] = value as u8,
                8..10 => bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]),
                _ => reseal(name, bytes, at),
            }
        });
    }
    let opened = || PageStore::open(Arc::new(image.clone()), OPTIONS);
    let Ok((store, _)) = opened() else { return };
    let damaged = store.check_pages().len();
    for pid in 0..20 {
        let Ok(ticket) = store.append(Group::new().base(pid, vec![1; 2000])) else { return };
        if store.wait(&ticket).is_err() {
            return;
        }
    }
    let _ = store.clean();
    if store.sync().is_err() {
        return;
    }
    let left = store.check_pages().len();
    assert!(left <= damaged, "{left} damaged pages, before {damaged}");
    drop(store);
    let (store, _) = match opened() {
        Ok(opened) => opened,
        // A forged block may contradict what the store has written since.
        Err(_) if is_forged => return,
        Err(error) => panic!("a store that was used: {error}"),
    };
    for pid in 0..20 {
        assert_eq!(store.read(pid).expect("reads"), Some(vec![vec![1; 2000]]));
    }
}

/// Corrects the checksum of the part of the file `name` in which `at` lies, and that of its block.
fn reseal(name: &str, bytes: &mut [u8], at: usize) {
    let from = at / ALIGN * ALIGN;
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u32::from_le_bytes(*word)) as usize
    };
    let seal = |bytes: &mut [u8], crc_at: usize, from: usize, end: usize| {
        if let Some(covered) = bytes.get(from..end) {
            let crc = crc32fast::hash(covered).to_le_bytes();
            bytes[crc_at..crc_at + 4].copy_from_slice(&crc);
        }
    };
    let all = bytes.len();
    if name == "superblock" {
        seal(bytes, from + 8, from + 12, from + 64);
    } else if name.starts_with("checkpoint-") {
        seal(bytes, 8, 12, all);
    } else {
        let end = from.saturating_add(word(bytes, from + 8));
        let mut part = from + 64;
        while part + 32 <= end.min(all) {
            let length = word(bytes, part + 16);
            seal(bytes, part, part + 4, part.saturating_add(length));
            part = part.saturating_add(length.next_multiple_of(32).max(32));
        }
        seal(bytes, from + 12, from + 16, end);
    }
}

/// A store with a checkpoint, blocks behind it, and pages of several parts.
fn store() -> &'static Simulated {
    static STORE: OnceLock<Simulated> = OnceLock::new();
    STORE.get_or_init(|| {
        let directory = Simulated::new();
        let store = PageStore::create(Arc::new(directory.clone()), 42, OPTIONS).expect("creates");
        for round in 0..40 {
            let (pid, other) = (round % 15, round * 7 % 15);
            let group = Group::new().base(pid, vec![round as u8; 900]).delta(pid, "delta");
            store.append(group.base(other, vec![2; 300]).free(14)).expect("appends");
            if round % 10 == 5 {
                store.sync().expect("syncs");
            }
            if round == 25 {
                store.checkpoint(b"client").expect("a checkpoint");
            }
        }
        store.sync().expect("syncs");
        directory
    })
}
