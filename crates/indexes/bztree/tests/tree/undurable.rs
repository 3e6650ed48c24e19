//! A reader that finds a record whose slot a power cut may still lose writes the slot back before
//! it returns the record.
//!
//! A thread writes a record and pauses before each of its writes in turn. A slot that it has just
//! settled has its dirty bit: the slot's line may not be on the medium. Another thread then reads
//! the key, and the power is cut. The pool must give the same answer again after it is opened.

use crate::common::scenario::{Op, inline, short};
use crate::common::{Planted, check, in_arena, power_cut};
use pando_bztree::{BzTree, Options};
use pando_index::{KeyRange, Order, RangeIndex};
use pando_pmem::Pool;
use pando_pmem::testing::{Arena, CutShort, Paused, written_back};
use pando_pmwcas::DIRTY;

/// Like `Adr`: with dirty bits.
type WithWriteBack = CutShort<true>;
type Read = fn(&BzTree<WithWriteBack>, &[u8]) -> Option<Vec<u8>>;

const POOL_BYTES: u64 = 4 << 20;
const LINE_BYTES: usize = 64;

fn by_get(tree: &BzTree<WithWriteBack>, key: &[u8]) -> Option<Vec<u8>> {
    tree.get(key).expect("a get")
}

fn by_scan(tree: &BzTree<WithWriteBack>, key: &[u8]) -> Option<Vec<u8>> {
    let mut cursor = tree.scan(KeyRange::all(), Order::Ascending).expect("a scan");
    while let Some((found, value)) = cursor.next().expect("the next record") {
        if found == key {
            return Some(value.to_vec());
        }
    }
    None
}

/// The content of the pool after a power cut: each line that has a dirty word has its content of
/// `before`.
fn without_dirty_lines(arena: &Arena, before: &[u8]) -> (Vec<u8>, u64) {
    let mut image = arena.read(0, arena.bytes() as usize);
    let mut lost = 0;
    for (new, old) in image.chunks_mut(LINE_BYTES).zip(before.chunks(LINE_BYTES)) {
        let words = new.as_chunks::<8>().0.iter().zip(old.as_chunks::<8>().0);
        let mut changed = words.filter(|(new, old)| new != old);
        if changed.any(|(new, _)| u64::from_le_bytes(*new) & DIRTY != 0) {
            new.copy_from_slice(old);
            lost += 1;
        }
    }
    (image, lost)
}

/// Pauses `write` before each of its writes, reads its key and cuts the power. Returns how often
/// the slot was not durable when the key was read.
fn read_undurable(write: &Op, read: Read) -> u64 {
    let mut undurable = 0;
    for writes in 0.. {
        let (arena, planted) = in_arena::<WithWriteBack>(POOL_BYTES);
        for number in 1..=3 {
            planted.index.insert(&short(number), &inline(number as u8)).expect("there is room");
        }
        let before = arena.read(0, POOL_BYTES as usize);
        let (its, op) = (planted.clone(), write.clone());
        let victim = Paused::start(writes, move || op.run(&its.index));
        let is_done = victim.is_done();
        let (image, lost) = without_dirty_lines(&arena, &before);
        let (found, lines) = written_back(|| read(&planted.index, write.key()));
        let cut = power_cut(&arena, &image, &lines);
        let opened = Pool::open_in(&cut).expect("opens");
        let recovered = Planted::<WithWriteBack>::of(opened, Options::default());
        let label = format!("{write:?}, paused before write {writes}");
        assert_eq!(read(&recovered.index, write.key()), found, "{label}: the answer was lost");
        check(&recovered);
        assert!(lost <= 1, "{label}: only the slot is dirty");
        undurable += lost;
        victim.resume();
        if is_done {
            break;
        }
    }
    undurable
}

#[test]
fn what_was_read_is_there_after_a_power_cut() {
    let writes =
        [Op::Insert(short(4), inline(9)), Op::Update(short(2), inline(9)), Op::Remove(short(2))];
    for write in writes {
        for read in [by_get, by_scan] {
            assert!(read_undurable(&write, read) > 0, "{write:?} has left no dirty slot");
        }
    }
}
