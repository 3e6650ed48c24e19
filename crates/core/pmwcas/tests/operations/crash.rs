//! A crash at every write of an operation, and at every write of the recovery after it. All words
//! change or none, each block belongs to its word or is free, and a success that was returned is
//! kept.

use std::path::Path;
use std::sync::Arc;

use pando_pmem::testing::{CutShort, kill_after};
use pando_pmem::{Domain, OpenPool, Pool};
use pando_pmwcas::{Pmwcas, Policy};

use super::common::{
    active, change, crash, create, folder, give, holds, open, over, raw, read, room, stamped, word,
};

pub const BYTES: u64 = 9000;
/// Plain words are 0..4, words with blocks 10..14.
const BLOCK_WORD: u64 = 10;

/// One operation of a test: the number of plain words, and the policies of the words with blocks.
#[derive(Clone, Debug)]
pub struct Shape {
    pub plain: u64,
    pub blocks: Vec<Policy>,
    pub owned: bool,
    pub succeeds: bool,
}

pub fn prepare<D: Domain>(pmwcas: &Pmwcas<D>, shape: &Shape) {
    for at in 0..shape.plain {
        assert!(change(pmwcas, &[(at, 0, 10 + at)]));
    }
    for (at, policy) in shape.blocks.iter().enumerate() {
        // A word whose new block is freed after a failure starts empty: an insert.
        if *policy != Policy::FreeNewOnFailure {
            give(pmwcas, BLOCK_WORD + at as u64, BYTES, 1);
        }
    }
}

pub fn execute<D: Domain>(pmwcas: &Pmwcas<D>, shape: &Shape) -> bool {
    let guard = pmwcas.pool().pin().unwrap();
    let mut operation = pmwcas.allocate(&guard).unwrap();
    for at in 0..shape.plain {
        // The last word does not match.
        let wrong = u64::from(!shape.succeeds && at + 1 == shape.plain);
        operation.add_word(word(at), 10 + at + wrong, 20 + at).unwrap();
    }
    for (at, policy) in (BLOCK_WORD..).zip(&shape.blocks) {
        let old = read(pmwcas, at);
        let entry = operation.reserve_entry(word(at), old, *policy).unwrap();
        if *policy != Policy::FreeOldOnSuccess {
            operation.activate(entry, stamped(&guard, BYTES, 2));
        }
    }
    if shape.owned {
        let owned = operation.own_block(0, Policy::FreeNewOnFailure).unwrap();
        let block = stamped(&guard, BYTES, 2);
        let off = block.off();
        // Reached only through another word, like a split's sibling through its parent.
        operation.add_word(word(BLOCK_WORD + 9), 0, off).unwrap();
        operation.activate(owned, block);
    }
    operation.execute()
}

/// Whether the pool holds the new state; fails if it holds neither the old nor the new one.
pub fn check(pmwcas: &Pmwcas<CutShort>, shape: &Shape, most: usize, label: &str) -> bool {
    let new = check_words(pmwcas, shape, label);
    let pool = pmwcas.pool();
    assert_eq!(pool.usage().unwrap().claimed_chunks, 0, "{label}: chunks without an owner");
    assert_eq!(room(pool, BYTES), most - active(pool).len(), "{label}: room");
    new
}

/// The same for the words, and the active blocks.
pub fn check_words(pmwcas: &Pmwcas<CutShort>, shape: &Shape, label: &str) -> bool {
    let plain: Vec<u64> = (0..shape.plain).map(|at| raw(pmwcas, at)).collect();
    let new = plain.first().map_or(raw(pmwcas, BLOCK_WORD), |&value| value / 10 - 1) != 0;
    let base = if new && shape.plain > 0 { 20 } else { 10 };
    assert!(plain.iter().zip(base..).all(|(&found, value)| found == value), "{label}: {plain:?}");
    let pool = pmwcas.pool();
    let mut named = Vec::new();
    for (at, policy) in (BLOCK_WORD..).zip(&shape.blocks) {
        let off = raw(pmwcas, at);
        let stamp = 1 + u8::from(new);
        let empty = (new && *policy == Policy::FreeOldOnSuccess)
            || (!new && *policy == Policy::FreeNewOnFailure);
        assert_eq!(off == 0, empty, "{label}: word {at} holds {off:#x}");
        assert!(off == 0 || holds(pool, off, BYTES, stamp), "{label}: content of word {at}");
        named.extend((off != 0).then_some(off));
    }
    let owned = raw(pmwcas, BLOCK_WORD + 9);
    assert_eq!(owned != 0, new && shape.owned, "{label}: the owned block");
    named.extend((owned != 0).then_some(owned));
    named.sort_unstable();
    assert_eq!(active(pool), named, "{label}: allocated against named");
    new
}

fn cut_recovery(image: &Path, writes: u64) -> bool {
    let opened = kill_after(writes, || {
        over(Pool::<CutShort>::open(image, &OpenPool::default()).unwrap())
    });
    let was_cut = opened.is_none();
    opened.into_iter().for_each(crash);
    was_cut
}

fn crash_everywhere(shape: &Shape) {
    let folder = folder();
    let most = room(create::<CutShort>(&folder.path().join("empty")).pool(), BYTES);
    let (mut finished, mut writes, mut recoveries) = (false, 0, 0);
    let (mut seen_old, mut seen_new) = (false, false);
    while !finished {
        let path = folder.path().join("pool");
        let pmwcas = create::<CutShort>(&path);
        prepare(&pmwcas, shape);
        let result = kill_after(writes, || execute(&pmwcas, shape));
        crash(pmwcas);
        assert!(result.is_none_or(|result| result == shape.succeeds));
        finished = result.is_some();
        let (mut cut, mut recovery_writes) = (true, 0);
        while cut {
            let image = folder.path().join("image");
            std::fs::copy(&path, &image).unwrap();
            cut = cut_recovery(&image, recovery_writes);
            let label = format!("{shape:?}, killed at {writes}, recovery at {recovery_writes}");
            let pmwcas = open::<CutShort>(&image);
            let new = check(&pmwcas, shape, most, &label);
            assert!(!finished || new == shape.succeeds, "{label}: not what was returned");
            // Words and descriptors can be used, and another recovery changes nothing.
            crash(pmwcas);
            let pmwcas = open::<CutShort>(&image);
            assert_eq!(check(&pmwcas, shape, most, &label), new, "{label}: recovered otherwise");
            (seen_old, seen_new) = (seen_old || !new, seen_new || new);
            crash(pmwcas);
            recovery_writes += 1;
            recoveries += 1;
        }
        std::fs::remove_file(&path).unwrap();
        writes += 1;
    }
    println!("{shape:?}: {} writes, {recoveries} recoveries", writes - 1);
    assert!(seen_old && seen_new == shape.succeeds);
}

#[test]
fn a_crash_at_every_write_of_plain_words() {
    for plain in 1..=4 {
        for succeeds in [true, false] {
            crash_everywhere(&Shape { plain, blocks: vec![], owned: false, succeeds });
        }
    }
}

#[test]
fn a_crash_at_every_write_of_one_word_with_a_block() {
    for policy in [Policy::FreeOne, Policy::FreeNewOnFailure, Policy::FreeOldOnSuccess] {
        for succeeds in [true, false] {
            crash_everywhere(&Shape { plain: 1, blocks: vec![policy], owned: false, succeeds });
        }
    }
}

#[test]
fn a_crash_at_every_write_of_four_entries_with_blocks() {
    let blocks = vec![Policy::FreeOne, Policy::FreeOldOnSuccess];
    for succeeds in [true, false] {
        crash_everywhere(&Shape { plain: 1, blocks: blocks.clone(), owned: true, succeeds });
    }
}

/// The single-word operation: one write. So the word holds the old or the new value, and the new
/// one after the operation has returned.
#[test]
fn a_crash_at_every_write_of_a_single_word() {
    let folder = folder();
    for writes in 0.. {
        let path = folder.path().join("pool");
        let pmwcas = create::<CutShort<true>>(&path);
        let exchanged = kill_after(writes, || {
            let guard = pmwcas.pool().pin().unwrap();
            pmwcas.compare_exchange(&guard, word(0), 0, 5).unwrap();
        });
        crash(pmwcas);
        let pmwcas = open::<CutShort<true>>(&path);
        let found = read(&pmwcas, 0);
        assert!(found == 5 || (found == 0 && exchanged.is_none()), "{found}");
        drop(pmwcas);
        std::fs::remove_file(&path).unwrap();
        if exchanged.is_some() {
            assert!(writes >= 2);
            break;
        }
    }
}

/// With write-backs: a crash at every write, with dirty bits, and a status that is dirty first.
#[test]
fn a_crash_at_every_write_with_dirty_bits() {
    let folder = folder();
    for succeeds in [true, false] {
        for writes in 0.. {
            let path = folder.path().join("pool");
            let pmwcas = create::<CutShort<true>>(&path);
            let words = [(0, 0, 5), (1, 0, 6), (50, u64::from(!succeeds), 7)];
            let result = kill_after(writes, || change(&pmwcas, &words));
            crash(pmwcas);
            let pool: Arc<Pool<CutShort<true>>> = Pool::open(&path, &OpenPool::default()).unwrap();
            let pmwcas = over(pool);
            let found = [0, 1, 50].map(|at| read(&pmwcas, at));
            match result {
                Some(result) => assert_eq!(result, succeeds),
                None => assert!(found == [0; 3] || (found == [5, 6, 7] && succeeds), "{found:?}"),
            }
            assert!(result.is_none() || found == if succeeds { [5, 6, 7] } else { [0; 3] });
            assert!(change(&pmwcas, &[(0, found[0], 1), (1, found[1], 1), (50, found[2], 1)]));
            drop(pmwcas);
            std::fs::remove_file(&path).unwrap();
            if result.is_some() {
                break;
            }
        }
    }
}
