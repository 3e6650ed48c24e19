//! A process dies at every write of an operation, while another one has the pool open. That one, or
//! a third one that dies at every write of the recovery, ends the operation. All words change or
//! none, each block belongs to its word or is free, and the words and descriptors can be used.

use std::path::Path;
use std::sync::Arc;

use pando_pmem::testing::{CutShort, run_until_stopped};
use pando_pmem::{Domain, OpenPool, Pool};
use pando_pmwcas::{Algorithm, Pmwcas, Policy};

use super::common::{
    active, change, create, folder, folder_and_pool, give, holds, over, raw, read, stamped,
    within_bounds, word,
};
use super::crash::{Shape, check, check_words, execute, prepare};

fn shared<D: Domain>(path: &Path) -> Arc<Pmwcas<D>> {
    let options = OpenPool { shared: true, ..OpenPool::default() };
    Arc::new(over(Pool::open(path, &options).unwrap()))
}

/// Runs `work` in a process that dies before write number `writes`; whether it died.
fn dies_after(
    path: &Path,
    writes: u64,
    work: impl FnOnce(&Pmwcas<CutShort>) + Send + 'static,
) -> bool {
    let process = shared::<CutShort>(path);
    let runs = process.clone();
    let is_done = run_until_stopped(writes, move || work(&runs));
    process.pool().drop_locks_like_a_kill();
    // The thread has the process for ever, so nothing is closed.
    std::mem::forget(process);
    !is_done
}

/// Takes censuses until no lost block is left.
fn find_lost(pmwcas: &Pmwcas<CutShort>) {
    for _ in 0..20 {
        pmwcas.pool().reclaim().unwrap();
        pmwcas.pool().step_census().unwrap();
    }
}

/// How many descriptors are in use, apart from the records of helpers.
fn in_use(pmwcas: &Pmwcas<CutShort>) -> usize {
    let guard = pmwcas.pool().pin().unwrap();
    let all = pmwcas.pool().participants_high() * 7;
    let mut claimed = Vec::new();
    while let Ok(descriptor) = pmwcas.allocate(&guard) {
        claimed.push(descriptor);
    }
    // Only those of this process's slots can be claimed.
    let slots = pmwcas.pool().participants_high();
    let own = (0..slots).filter(|&slot| pmwcas.pool().is_own_slot(slot)).count();
    assert!(claimed.len() <= own * 7 && all >= own * 7);
    own * 7 - claimed.len()
}

fn die_everywhere(shape: &Shape, recovery_dies: bool) {
    let folder = folder();
    let path = folder.path().join("pool");
    let (mut writes, mut recovery_writes, mut recoveries) = (0, 0, 0);
    let (mut seen_old, mut seen_new) = (false, false);
    loop {
        let pmwcas = create::<CutShort>(&path);
        let most = super::common::room(pmwcas.pool(), super::crash::BYTES);
        prepare(&pmwcas, shape);
        drop(pmwcas);
        let live = shared::<CutShort>(&path);
        let executed = shape.clone();
        let died = dies_after(&path, writes, move |process| {
            assert_eq!(execute(process, &executed), executed.succeeds);
        });
        let label = format!("{shape:?}, died at {writes}, recovery at {recovery_writes}");
        let cut = recovery_dies
            && dies_after(&path, recovery_writes, |process| {
                process.recover_dead().unwrap();
            });
        recoveries += 1;
        assert!(live.recover_dead().unwrap() >= 1, "{label}");
        assert_eq!(live.pool().processes().unwrap().len(), 1, "{label}");
        assert_eq!(in_use(&live), 0, "{label}");
        let new = check_words(&live, shape, &label);
        assert!(died || new == shape.succeeds, "{label}: not what was returned");
        (seen_old, seen_new) = (seen_old || !new, seen_new || new);
        // The words can be changed, and changed back.
        for at in 0..shape.plain {
            let found = read(&live, at);
            assert!(change(&live, &[(at, found, 1), (at + 40, 0, 1)]), "{label}");
            assert!(change(&live, &[(at, 1, found), (at + 40, 1, 0)]), "{label}");
        }
        // Blocks that only the dead processes knew are found, and no others.
        find_lost(&live);
        assert_eq!(check(&live, shape, most, &label), new, "{label}: after a census");
        drop(live);
        let alone = super::common::open::<CutShort>(&path);
        assert_eq!(check(&alone, shape, most, &label), new, "{label}: after the last has left");
        drop(alone);
        std::fs::remove_file(&path).unwrap();
        match (cut, died) {
            (true, _) => recovery_writes += 1,
            (false, true) => (writes, recovery_writes) = (writes + 1, 0),
            (false, false) => break,
        }
    }
    println!("{shape:?}: {writes} writes, {recoveries} recoveries");
    assert!(seen_old && seen_new == shape.succeeds);
}

#[test]
fn a_process_dies_at_every_write_of_plain_words() {
    for plain in [1, 3] {
        for succeeds in [true, false] {
            die_everywhere(&Shape { plain, blocks: vec![], owned: false, succeeds }, plain == 3);
        }
    }
}

#[test]
fn a_process_dies_at_every_write_of_four_entries_with_blocks() {
    let blocks = vec![Policy::FreeOne, Policy::FreeOldOnSuccess];
    for succeeds in [true, false] {
        let shape = Shape { plain: 1, blocks: blocks.clone(), owned: true, succeeds };
        die_everywhere(&shape, true);
    }
}

/// The block of the word is replaced by another one; both are spans of several chunks.
#[test]
fn a_process_dies_at_every_write_while_it_replaces_a_span() {
    const SPAN_BYTES: u64 = 150_000;
    let replace = |process: &Pmwcas<CutShort>| {
        let guard = process.pool().pin().unwrap();
        let mut operation = process.allocate(&guard).unwrap();
        let old = process.read(&guard, word(0));
        let entry = operation.reserve_entry(word(0), old, Policy::FreeOne).unwrap();
        operation.activate(entry, stamped(&guard, SPAN_BYTES, 2));
        // The last word does not match in half of the cases.
        operation.add_word(word(1), 0, 1).unwrap();
        operation.execute()
    };
    for matches in [true, false] {
        for writes in 0.. {
            let (_folder, path) = folder_and_pool();
            drop(create::<CutShort>(&path));
            let live = shared::<CutShort>(&path);
            give(&live, 0, SPAN_BYTES, 1);
            assert!(matches || change(&live, &[(1, 0, 5)]));
            let died = dies_after(&path, writes, move |process| {
                assert_eq!(replace(process), matches);
            });
            live.recover_dead().unwrap();
            find_lost(&live);
            let label = format!("matches: {matches}, died at {writes}");
            let off = raw(&live, 0);
            let is_new = holds(live.pool(), off, SPAN_BYTES, 2);
            assert!(is_new || holds(live.pool(), off, SPAN_BYTES, 1), "{label}");
            assert_eq!(active(live.pool()), [off], "{label}");
            let usage = live.pool().usage().unwrap();
            assert_eq!((usage.span_chunks, usage.claimed_chunks), (3, 0), "{label}");
            drop(live);
            let alone = super::common::open::<CutShort>(&path);
            assert_eq!(active(alone.pool()), [off], "{label}");
            if !died {
                assert_eq!(is_new, matches);
                break;
            }
        }
    }
}

/// The live process needs the words before the dead one is recovered, and recovers it afterwards.
#[test]
fn operations_of_a_dead_process_hold_up_nobody_before_its_recovery() {
    for writes in 0.. {
        let (_folder, path) = folder_and_pool();
        drop(create::<CutShort>(&path));
        let live = shared::<CutShort>(&path);
        let died = dies_after(&path, writes, |process| {
            assert!(change(process, &[(0, 0, 5), (1, 0, 5), (2, 0, 5)]));
        });
        within_bounds("process", move || {
            let found = read(&live, 0);
            assert!(found == 5 || found == 0 && died);
            assert!(change(&live, &[(1, found, 6), (2, found, 6)]));
            assert_eq!(live.recover_dead().unwrap(), 1);
            assert_eq!([0, 1, 2].map(|at| raw(&live, at)), [found, 6, 6]);
            assert_eq!(in_use(&live), 0);
        });
        if !died {
            assert!(writes > 4);
            return;
        }
    }
}

/// A helper dies in the middle of another process's operation.
#[test]
fn a_helper_that_dies_leaves_no_word_unsettled() {
    // Only the paper's algorithm has helpers as a rule. The thread of each dead process stays.
    let step = if super::ALGORITHM == Algorithm::Rdcss { 1 } else { 6 };
    let writes = || (0..24).step_by(step);
    for (owner_writes, helper_writes) in
        writes().flat_map(|owner| writes().map(move |helper| (owner, helper)))
    {
        let (_folder, path) = folder_and_pool();
        drop(create::<CutShort>(&path));
        let live = shared::<CutShort>(&path);
        let owner = shared::<CutShort>(&path);
        let runs = owner.clone();
        run_until_stopped(owner_writes, move || {
            change(&runs, &[(0, 0, 5), (1, 0, 5)]);
        });
        dies_after(&path, helper_writes, |helper| {
            // It meets the owner in word 0, before the owner has come to word 1.
            change(helper, &[(0, 0, 7), (2, 0, 7)]);
        });
        // The owner is stopped, and not dead.
        live.recover_dead().unwrap();
        // No conditional reference of the helper's record is left: the record's next user would
        // overwrite it. (The first of eight descriptors is the record.)
        let is_record = |word: u64| word & 1 << 62 != 0 && word.is_multiple_of(8);
        assert!(![0, 1, 2].iter().any(|&at| is_record(raw(&live, at))));
        let label = format!("owner at {owner_writes}, helper at {helper_writes}");
        let found = read(&live, 0);
        assert!([0, 5, 7].contains(&found), "{label}: {found}");
        assert_eq!(read(&live, 2) == 7, found == 7, "{label}");
        owner.pool().drop_locks_like_a_kill();
        live.recover_dead().unwrap();
        let words = [0, 1, 2].map(|at| raw(&live, at));
        assert!([[0; 3], [5, 5, 0], [7, 0, 7]].contains(&words), "{label}: {words:?}");
        let guard = live.pool().pin().unwrap();
        assert_eq!(live.compare_exchange(&guard, word(1), words[1], 9), Ok(()));
        std::mem::forget(owner);
    }
}
