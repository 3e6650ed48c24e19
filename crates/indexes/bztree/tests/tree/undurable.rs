//! A reader that finds a record whose slot a power cut may still lose writes the slot back before
//! it returns the record.
//!
//! A thread writes a record and pauses before each of its writes in turn. A slot that it has just
//! settled has its dirty bit: the slot's line may not be on the medium. Another thread then reads
//! the key, and the power is cut. The pool must give the same answer again after it is opened.
//!
//! In a range leaf, a value that replaces another one has no dirty bit. So there every line is lost
//! that the thread has changed, and only the reader's write-backs count.

use std::sync::Arc;

use crate::common::scenario::{Op, inline, short};
use crate::common::{Fixture, check, in_arena, power_cut, small_nodes};
use pando_bztree::{BzTree, BzTrees, Numbers, Options};
use pando_index::{Error, KeyRange, Order, RangeIndex};
use pando_pmem::Pool;
use pando_pmem::testing::{Arena, CutShort, Paused, written_back};
use pando_pmwcas::DIRTY;
use pando_tree::testing::read_after_a_kill;

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

fn by_group(tree: &BzTree<WithWriteBack>, key: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    let mut visit = |at: usize, value: Option<&[u8]>| {
        if at == 0 {
            found = value.map(<[u8]>::to_vec);
        }
    };
    tree.read_many(&[key, b"another"], &mut visit).expect("gets");
    found
}

/// Only whether the key is present: a write that is refused in either case says so.
fn by_refusal(tree: &BzTree<WithWriteBack>, key: &[u8]) -> Option<Vec<u8>> {
    match tree.compare_exchange(key, &[0xEE; 8], &[0xEE; 8]) {
        Err(Error::KeyNotFound) => None,
        Err(Error::ValueMismatch) => Some(Vec::new()),
        other => panic!("{other:?}"),
    }
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
        let (arena, fixture) = in_arena::<WithWriteBack>(POOL_BYTES);
        for number in 1..=3 {
            fixture.index.insert(&short(number), &inline(number as u8)).expect("there is room");
        }
        let before = arena.read(0, POOL_BYTES as usize);
        let (its, op) = (fixture.clone(), write.clone());
        let victim = Paused::start(writes, move || op.run(&its.index));
        let is_done = victim.is_done();
        let (image, lost) = without_dirty_lines(&arena, &before);
        let (found, lines) = written_back(|| read(&fixture.index, write.key()));
        let cut = power_cut(&arena, &image, &lines);
        let opened = Pool::open_in(&cut).expect("opens");
        let recovered = Fixture::<WithWriteBack>::of(opened, Options::default());
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

fn ranges() -> Options {
    Options { numbers: Numbers::Ranged, ..Options::default() }
}

/// Keys in the range leaf of the tests below.
const KEYS: u64 = 40;
/// Of the same class as the value before: one CAS.
const OTHER: [u8; 8] = [9, 9, 9, 9, 9, 9, 9, 2];

/// What happens between the pause of the writer and the read: `None`, or a kill of the writer's
/// process, whose pool is in the arena. Returns the tree of the process that comes after it.
type Meanwhile = fn(killed: &Arena) -> Option<Fixture<WithWriteBack>>;

/// Pauses `write` in a range leaf before each of its writes. `read` reads its key, in the tree of
/// `meanwhile` if there is one. Then the power is cut, so that everything is lost that only
/// `write` has written back.
fn read_undurable_in_range(write: &Op, read: Read, meanwhile: Meanwhile) {
    let mut has_written_back = false;
    for writes in 0.. {
        let arena = Arena::new(POOL_BYTES).expect("memory");
        let pool = Pool::create_in(&arena).expect("a pool");
        let fixture = Arc::new(Fixture::<WithWriteBack>::of(pool, ranges()));
        for number in 1..=KEYS {
            fixture.index.insert(&short(number), &inline(2)).expect("there is room");
        }
        let before = arena.read(0, POOL_BYTES as usize);
        let (its, op) = (fixture.clone(), write.clone());
        let victim = Paused::start(writes, move || op.run(&its.index));
        if victim.is_done() {
            victim.resume();
            break;
        }
        let killed = Arena::new(POOL_BYTES).expect("memory");
        killed.write(0, &arena.read(0, POOL_BYTES as usize));
        let ((found, at), lines) = written_back(|| match meanwhile(&killed) {
            Some(again) => (read(&again.index, write.key()), &killed),
            None => (read(&fixture.index, write.key()), &arena),
        });
        let cut = power_cut(at, &before, &lines);
        let opened = Pool::open_in(&cut).expect("opens");
        let recovered = Fixture::<WithWriteBack>::of(opened, ranges());
        let label = format!("{write:?}, paused before write {writes}");
        assert_eq!(read(&recovered.index, write.key()), found, "{label}: the answer was lost");
        check(&recovered);
        has_written_back |= !lines.is_empty();
        victim.resume();
    }
    assert!(has_written_back, "{write:?}: the reader has written nothing back");
}

fn for_each_write_and_read(meanwhile: Meanwhile) {
    for write in [Op::Update(short(2), OTHER.to_vec()), Op::Remove(short(2))] {
        for read in [by_get, by_scan, by_group, by_refusal] {
            read_undurable_in_range(&write, read, meanwhile);
        }
    }
}

#[test]
fn what_was_read_in_a_range_leaf_is_there_after_a_power_cut() {
    for_each_write_and_read(|_| None);
}

/// The caches keep what a killed process has not written back, and a new process reads it.
#[test]
fn what_was_read_after_a_kill_is_there_after_a_power_cut() {
    for_each_write_and_read(|killed| {
        let opened = Pool::open_in(killed).expect("opens");
        Some(Fixture::of(opened, ranges()))
    });
}

/// So it is if the new process has written to other lines of the leaf before.
#[test]
fn what_was_read_after_a_kill_and_writes_is_there_after_a_power_cut() {
    for_each_write_and_read(|killed| {
        let opened = Pool::open_in(killed).expect("opens");
        let fixture = Fixture::<WithWriteBack>::of(opened, ranges());
        for number in KEYS / 2..=KEYS {
            fixture.index.update(&short(number), &OTHER).expect("there is room");
        }
        Some(fixture)
    });
}

/// The same in the paper's leaves.
#[test]
fn what_was_read_after_a_kill_in_a_sorted_leaf_is_there_after_a_power_cut() {
    (1..10).for_each(|records| read_after_a_kill::<BzTrees>(small_nodes(), records));
}
