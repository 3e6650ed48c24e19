//! Readers beside writers: they see no control bits, no half of an operation, and no value that
//! goes back.

use std::sync::atomic::{AtomicBool, Ordering};

use pando_pmem::Domain;
use pando_pmwcas::{MAX_VALUE, Policy};

use super::common::{give, in_each_domain, in_memory, is_full, raw, settled, word};

fn pairs<D: Domain>() {
    let pmwcas = in_memory::<D>(1);
    let done = AtomicBool::new(false);
    // Two words of one line, and two far apart.
    let sets: [[u64; 2]; 2] = [[0, 1], [3, 90]];
    let writer = |set: [u64; 2]| {
        for _ in 0..20_000 {
            let guard = pmwcas.pool().pin().unwrap();
            let value = pmwcas.read(&guard, word(set[0]));
            let mut operation = pmwcas.allocate(&guard).unwrap();
            for at in set {
                operation.add_word(word(at), value, value + 1).unwrap();
            }
            operation.execute();
        }
    };
    let reader = |set: [u64; 2]| {
        let (mut last, mut agreed) = ([0, 0], 0);
        while !done.load(Ordering::Relaxed) {
            let guard = pmwcas.pool().pin().unwrap();
            let found = set.map(|at| pmwcas.read(&guard, word(at)));
            assert!(found.iter().all(|&value| value <= MAX_VALUE));
            assert!(found[0] >= last[0] && found[1] >= last[1], "{last:?} became {found:?}");
            // Read later, so it is at least as new as the first.
            assert!(found[1] >= found[0], "{found:?}");
            last = found;
            let mut compare = pmwcas.allocate(&guard).unwrap();
            for (at, value) in set.into_iter().zip(found) {
                compare.add_word(word(at), value, value).unwrap();
            }
            if compare.execute() {
                assert_eq!(found[0], found[1], "half an operation was seen");
                agreed += 1;
            }
        }
        agreed
    };
    std::thread::scope(|scope| {
        let (writer, reader) = (&writer, &reader);
        let readers: Vec<_> = sets.map(|set| scope.spawn(move || reader(set))).into();
        let writers = sets.iter().chain(&sets).map(|&set| scope.spawn(move || writer(set)));
        writers.collect::<Vec<_>>().into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
        assert!(readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>() > 0);
    });
    for set in sets {
        assert_eq!(settled(&pmwcas, set[0]), settled(&pmwcas, set[1]));
    }
}

#[test]
fn readers_see_pairs_whole() {
    in_each_domain!(pairs);
}

/// Writers replace blocks and free the old ones. Readers with a guard find each block as it was
/// published: eight words of one number, which only rises.
fn replaced_blocks<D: Domain>() {
    const THREADS: u64 = 3;
    let pmwcas = in_memory::<D>(4);
    for at in 0..2 {
        give(&pmwcas, at, 64, 0);
    }
    let done = AtomicBool::new(false);
    let content =
        |off: u64| [0, 8, 56].map(|at| pmwcas.pool().word(off + at).load(Ordering::Acquire));
    let writer = |own: u64| {
        let mut replaced = 0;
        for round in 0..6_000_u64 {
            let guard = pmwcas.pool().pin().unwrap();
            let at = (own + round) % 2;
            let old = pmwcas.read(&guard, word(at));
            let next = content(old)[0] + 1;
            let mut block = match guard.reserve(64) {
                Ok(block) => block,
                Err(error) if is_full(&error) => continue,
                Err(error) => panic!("{error}"),
            };
            block.write(0, &next.to_le_bytes().repeat(8));
            block.flush(0, 64);
            let mut operation = pmwcas.allocate(&guard).unwrap();
            let entry = operation.reserve_entry(word(at), old, Policy::FreeOne).unwrap();
            operation.activate(entry, block);
            replaced += u64::from(operation.execute());
        }
        replaced
    };
    let reader = || {
        let mut last = [0, 0];
        while !done.load(Ordering::Relaxed) {
            let guard = pmwcas.pool().pin().unwrap();
            for at in 0..2 {
                let off = pmwcas.read(&guard, word(at));
                let found = content(off);
                std::thread::yield_now();
                assert_eq!(found, content(off), "a block was reused under a reader");
                assert!(found.iter().all(|&word| word == found[0]), "{found:?}");
                assert!(found[0] >= last[at as usize]);
                last[at as usize] = found[0];
            }
        }
    };
    let replaced: u64 = std::thread::scope(|scope| {
        let (writer, reader) = (&writer, &reader);
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        let writers: Vec<_> = (0..THREADS).map(|own| scope.spawn(move || writer(own))).collect();
        let replaced = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        replaced
    });
    let values: u64 = (0..2).map(|at| content(raw(&pmwcas, at))[0]).sum();
    assert_eq!(values, replaced, "a success was lost or counted twice");
    let mut named: Vec<u64> = (0..2).map(|at| raw(&pmwcas, at)).collect();
    named.sort_unstable();
    assert_eq!(super::common::active(pmwcas.pool()), named, "blocks leaked");
}

#[test]
fn blocks_are_not_reused_under_readers_and_none_leaks() {
    in_each_domain!(replaced_blocks);
}
