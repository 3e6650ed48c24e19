//! A process that dies at any of its writes, and the next opening; also recovery that is
//! interrupted itself. (The crash lab explores the same with several threads and with lost lines.)

use std::path::Path;
use std::sync::atomic::Ordering;

use pando_index::random::Random;
use pando_index::{Error, KeyRange, Order, RangeIndex, Upserted};
use pando_nbtree::{NbTree, NbTrees};
use pando_pmem::testing::{CutShort, kill_after};
use pando_pmem::{Adr, Domain, OpenPool, Pool, Process};
use pando_tree::maps::{Catalog, Tree};
use pando_tree::testing::read_after_a_kill;

use crate::common::{Fixture, NAME, Records, check, dump, folder_and_pool, small_nodes};

/// A key of eight bytes, or a longer or shorter one.
fn key(number: u64) -> Vec<u8> {
    let mut key = (number << 40).to_be_bytes().to_vec();
    match number % 5 {
        1 => key.extend_from_slice(&[b'l'; 40]),
        3 => key.truncate(8 - number as usize % 2),
        _ => {}
    }
    key
}

/// A value of eight bytes with any top bits, or another.
fn value(number: u64) -> Vec<u8> {
    match number % 4 {
        0 => vec![number as u8; number as usize % 60],
        _ => number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes().to_vec(),
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert(u64),
    Update(u64),
    Upsert(u64),
    Remove(u64),
}

impl Op {
    fn run<D: Domain>(self, tree: &NbTree<D>, stamp: u64) -> Result<bool, Error> {
        match self {
            Self::Insert(number) => tree.insert(&key(number), &value(stamp)).map(|()| true),
            Self::Update(number) => tree.update(&key(number), &value(stamp)).map(|()| true),
            Self::Upsert(number) => {
                tree.upsert(&key(number), &value(stamp)).map(|done| done == Upserted::Updated)
            }
            Self::Remove(number) => tree.remove(&key(number)),
        }
    }

    fn apply(self, records: &mut Records, stamp: u64) {
        let (Self::Insert(number)
        | Self::Update(number)
        | Self::Upsert(number)
        | Self::Remove(number)) = self;
        let (key, value) = (key(number), value(stamp));
        match self {
            Self::Insert(_) if records.contains_key(&key) => {}
            Self::Update(_) if !records.contains_key(&key) => {}
            Self::Remove(_) => drop(records.remove(&key)),
            _ => drop(records.insert(key, value)),
        }
    }
}

fn draw(random: &mut Random, keys: u64) -> Op {
    let number = random.below(keys);
    match random.below(8) {
        0..3 => Op::Insert(number),
        3 => Op::Update(number),
        4 => Op::Upsert(number),
        _ => Op::Remove(number),
    }
}

/// A process dies at each of the writes of many consecutive operations: the records are those
/// before or after the interrupted operation, and no block has leaked.
fn dies_at_every_write<const WRITE_BACK: bool>() {
    let (_folder, path) = folder_and_pool();
    let mut fixture = Fixture::<CutShort<WRITE_BACK>>::create(&path, 64 << 20, small_nodes());
    let mut records = Records::new();
    let mut random = Random::new(7);
    for stamp in 0..140 {
        // First growth, and then mostly removes, so that leaves are emptied.
        let number = random.below(64);
        let op = if stamp < 60 {
            Op::Upsert(number)
        } else if stamp < 110 {
            Op::Remove(number)
        } else {
            draw(&mut random, 64)
        };
        let mut after = records.clone();
        op.apply(&mut after, stamp);
        for writes in 0.. {
            let done = kill_after(writes, || op.run(&fixture.index, stamp));
            if done.is_none() {
                crash(&mut fixture, &path);
            }
            check(&fixture);
            let found = dump(&fixture.index);
            if done.is_some() {
                assert_eq!(found, after, "{op:?} of {stamp} returned {done:?}");
                break;
            }
            assert!(found == after || found == records, "{op:?} of {stamp}, cut at {writes}");
            if found == after {
                break;
            }
        }
        records = after;
    }
}

/// Drops the tree as a crash would, and opens it again.
fn crash<D: Domain>(fixture: &mut Fixture<D>, path: &Path) {
    let create = pando_pmem::CreateOptions { max_bytes: 1 << 24, ..Default::default() };
    let empty = Fixture::of(Pool::anonymous(&create).expect("memory"), small_nodes());
    let old = std::mem::replace(fixture, empty);
    old.pool.clone().abandon();
    drop(old);
    *fixture = Fixture::reopen(path);
}

#[test]
fn a_process_may_die_at_every_write() {
    dies_at_every_write::<false>();
}

#[test]
fn a_process_that_writes_back_may_die_at_every_write() {
    dies_at_every_write::<true>();
}

/// Recovery is cut at each of its writes, in turn, and run again.
#[test]
fn recovery_may_be_cut_short() {
    let (_folder, path) = folder_and_pool();
    let fixture = Fixture::<CutShort>::create(&path, 64 << 20, small_nodes());
    let mut records = Records::new();
    for stamp in 0..200 {
        Op::Insert(stamp).run(&fixture.index, stamp).expect("an insert");
        Op::Insert(stamp).apply(&mut records, stamp);
    }
    // A split that is interrupted in its link phase, so that words are closed.
    let cut = (0..).find(|&writes| {
        let stamp = 1_000 + writes;
        let done = kill_after(60 + writes % 40, || Op::Insert(stamp).run(&fixture.index, stamp));
        if done.is_some() {
            Op::Insert(stamp).apply(&mut records, stamp);
        }
        done.is_none()
    });
    assert!(cut.is_some());
    fixture.pool.clone().abandon();
    drop(fixture);
    for writes in 0.. {
        let opened = kill_after(writes, || {
            let pool = Pool::<CutShort>::open(&path, &OpenPool::default()).expect("opens");
            // A pool that is left here cannot be opened again.
            let catalog = std::sync::Arc::new(Catalog::open(pool.clone()).expect("recovers"));
            let tree = catalog.find_index::<pando_nbtree::NbTrees>(NAME).expect("a map");
            let is_there = tree.is_some();
            pool.abandon();
            is_there
        });
        if opened.is_some() {
            break;
        }
    }
    let fixture = Fixture::<Process>::reopen(&path);
    check(&fixture);
    let mut found = dump(&fixture.index);
    found.retain(|key, _| records.contains_key(key));
    assert_eq!(found, records);
}

/// More leaves than one thread surveys alone.
#[test]
fn a_large_tree_is_surveyed_by_several_threads() {
    const RECORDS: u64 = 60_000;
    let (_folder, path) = folder_and_pool();
    let fixture = Fixture::<Process>::create(&path, 1 << 30, small_nodes());
    let number = |at: u64| at.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for at in 0..RECORDS {
        fixture.index.insert(&number(at).to_be_bytes(), &at.to_le_bytes()).expect("an insert");
    }
    drop(fixture);
    let fixture = Fixture::<Adr>::reopen(&path);
    check(&fixture);
    assert_eq!(fixture.index.len().expect("counts"), RECORDS);
    for at in 0..RECORDS {
        let found = fixture.index.get(&number(at).to_be_bytes()).expect("reads");
        assert_eq!(found.as_deref(), Some(&at.to_le_bytes()[..]));
    }
}

/// A chain of leaves that is a cycle is detected after a few rounds, also if no leaf has a record.
#[test]
fn a_chain_in_a_circle_is_found_in_no_time() {
    for has_record in [false, true] {
        let fixture = Fixture::<Process>::in_file(small_nodes());
        if has_record {
            fixture.index.insert(b"12345678", b"12345678").expect("an insert");
        }
        let leaf = fixture.index.audit().expect("audits").blocks[0].off;
        let catalog = fixture.index.catalog.clone();
        drop(fixture.index);
        fixture.pool.word(leaf).store(leaf, Ordering::Release);
        let tree = catalog.find_index::<NbTrees>(NAME).expect("a map").expect("is there");
        let refused = tree.get(b"12345678").expect_err("is damaged").to_string();
        assert!(refused.contains("has no end"), "{refused}");
        let audit = tree.audit().expect("audits");
        assert!(!audit.is_consistent() && audit.blocks.len() < 1 << 17, "{}", audit.blocks.len());
    }
}

/// A slot's slice that is not the beginning of its long key would order it in two ways, and scans
/// would not end.
#[test]
fn a_slice_that_is_not_its_keys_is_refused() {
    for at in [0, 1, 7] {
        let fixture = Fixture::<Process>::in_file(small_nodes());
        fixture.index.insert(b"a key of more than eight bytes", b"value").expect("an insert");
        let leaf = fixture.index.audit().expect("audits").blocks[0].off;
        let catalog = fixture.index.catalog.clone();
        drop(fixture.index);
        let slice = u64::from_be_bytes(*b"a key of");
        let words = (leaf..leaf + 1024).step_by(8).map(|off| fixture.pool.word(off));
        let found: Vec<_> = words.filter(|word| word.load(Ordering::Relaxed) == slice).collect();
        let [word] = found[..] else { panic!("{} words have the slice", found.len()) };
        word.store(slice ^ 1 << (8 * at), Ordering::Release);
        let tree = catalog.find_index::<NbTrees>(NAME).expect("a map").expect("is there");
        let refused = tree.get(b"12345678").expect_err("is damaged").to_string();
        assert!(refused.contains("damaged"), "{refused}");
        let mut cursor = tree.scan(KeyRange::all(), Order::Ascending).expect("a scan");
        cursor.next().expect_err("is damaged");
        assert!(!tree.audit().expect("audits").is_consistent(), "byte {at}");
    }
}

/// A map that was found, and then dropped before it was opened.
#[test]
fn a_map_that_was_dropped_meanwhile_is_not_opened() {
    let fixture = Fixture::<Process>::in_file(small_nodes());
    let catalog = fixture.index.catalog.clone();
    let guard = fixture.pool.pin().expect("a slot");
    let entry = catalog.find_map(&guard, NAME).expect("a catalog").expect("is there");
    catalog.drop_index::<NbTrees>(&entry).expect("is dropped");
    drop(fixture.index);
    let refused = catalog.open_entry::<NbTrees>(&entry).expect_err("is gone").to_string();
    assert!(refused.contains("dropped meanwhile"), "{refused}");
}

/// A damaged pointer leads into another map: the tree with the pointer is refused, and nothing of
/// the other map is written, neither a record whose bits look like those of PMwCAS, nor a leaf that
/// is being replaced.
#[test]
fn a_chain_that_leads_into_another_map_changes_nothing_there() {
    // With the dirty bit of PMwCAS, and without its other bits.
    const LOOKS_DIRTY: u64 = 1 << 61 | 7;
    const CLOSED: u64 = 1 << 63;
    let fixture = Fixture::<Process>::in_file(small_nodes());
    let catalog = fixture.index.catalog.clone();
    let other = catalog.find_or_create_index::<NbTrees>("other", small_nodes()).expect("a map");
    for number in 0..6u64 {
        let record = (number.to_be_bytes(), LOOKS_DIRTY.to_le_bytes());
        other.insert(&record.0, &record.1).expect("an insert");
        fixture.index.insert(&(100 + number).to_be_bytes(), &record.1).expect("an insert");
    }
    let block = |tree: &NbTree<_>| tree.audit().expect("audits").blocks[0];
    let (own, foreign) = (block(&fixture.index), block(&other));
    drop(fixture.index);
    // As during a replacement.
    let word = |at: u64| fixture.pool.word(foreign.off + at);
    let value_at = (64..foreign.bytes)
        .step_by(8)
        .find(|&at| word(at).load(Ordering::Acquire) == LOOKS_DIRTY)
        .expect("a value word");
    word(value_at).store(LOOKS_DIRTY | CLOSED, Ordering::Release);
    let bytes = || fixture.pool.load_bytes(foreign.off, foreign.bytes);
    let before = bytes();
    for at in (0..foreign.bytes).step_by(8) {
        fixture.pool.word(own.off).store(foreign.off + at, Ordering::Release);
        let tree = catalog.find_index::<NbTrees>(NAME).expect("a map").expect("is there");
        assert!(tree.get(&[1; 8]).is_err(), "is believed: {at}");
        assert!(bytes() == before, "another map was changed, by a pointer to its byte {at}");
    }
}

/// Each bit of the header and of the first slots of a leaf, and of the entry word, is damaged in
/// turn: opening, walking and reading do not panic, and a refusal says what is wrong.
#[test]
fn damaged_blocks_are_refused_or_harmless() {
    use pando_pmem::testing::Arena;
    let arena = Arena::new(4 << 20).expect("memory");
    let entry_off;
    let off = {
        let pool = Pool::<Process>::create_in(&arena).expect("a pool");
        let fixture = Fixture::of(pool, small_nodes());
        for at in 0..4 {
            Op::Insert(at).run(&fixture.index, at).expect("an insert");
        }
        let guard = fixture.pool.pin().expect("a slot");
        let entry =
            fixture.index.catalog.find_map(&guard, NAME).expect("a catalog").expect("is there");
        entry_off = entry.root_off();
        fixture.index.audit().expect("audits").blocks[0].off
    };
    for at in (off..off + 192).step_by(8).chain([entry_off]) {
        let undamaged = arena.word(at);
        let flipped = [0, 3, 17, 47, 48, 49, 60, 61, 62, 63].map(|bit| undamaged ^ 1 << bit);
        for damaged in flipped.into_iter().chain([0]) {
            arena.set_word(at, damaged);
            let before = arena.read(0, arena.bytes() as usize);
            let pool = Pool::<Process>::open_in(&arena).expect("opens");
            let catalog = std::sync::Arc::new(Catalog::open(pool).expect("recovers"));
            let tree = catalog.find_index::<NbTrees>(NAME).expect("a map").expect("is there");
            let audit = tree.audit().expect("audits");
            if tree.get(&key(1)).is_err() {
                assert!(!audit.is_consistent(), "refused without a problem: {at:#x}: {damaged:#x}");
            }
            drop((tree, catalog));
            arena.write(0, &before);
            arena.set_word(at, undamaged);
        }
    }
}

#[test]
fn what_was_read_after_a_kill_is_there_after_a_power_cut() {
    (1..10).for_each(|records| read_after_a_kill::<NbTrees>(small_nodes(), records));
}
