//! A pool is opened, used and closed, in various orders: a thread that pinned early stays known.

use std::sync::Arc;

use pando_pmem::testing::{CutShort, kill_after};
use pando_pmem::{OpenPool, Pool, Process};

use super::common::{change, crash, create, folder_and_pool, open, options, over, raw, word};

/// The opening thread reads the pool before it opens PMwCAS, as a tool may.
#[test]
fn a_thread_that_pinned_before_pmwcas_was_opened_still_counts() {
    let pool: Arc<Pool<Process>> = Pool::anonymous(&options()).unwrap();
    drop(pool.pin().unwrap());
    let pmwcas = over(Arc::clone(&pool));
    let guard = pool.pin().unwrap();
    let shown = pool.participants();
    let pinned = shown.iter().filter(|found| found.pinned_for_epochs.is_some()).count();
    assert_eq!(pinned, 1, "its guard holds nothing back: {shown:?}");
    drop(guard);
    drop(pmwcas);
}

#[test]
fn an_operation_of_a_thread_that_pinned_early_is_recovered() {
    for writes in 0.. {
        let (_folder, path) = folder_and_pool();
        let pool: Arc<Pool<CutShort>> = Pool::create(&path, &options()).unwrap();
        drop(pool.pin().unwrap());
        let pmwcas = over(pool);
        let finished = kill_after(writes, || change(&pmwcas, &[(0, 0, 1), (1, 0, 1)]));
        crash(pmwcas);
        let pmwcas = open::<CutShort>(&path);
        let found = [0, 1].map(|at| raw(&pmwcas, at));
        assert!(found == [0, 0] || found == [1, 1], "killed at {writes}: {found:x?}");
        if finished.is_some() {
            break;
        }
    }
}

#[test]
fn recovery_counts_what_it_did_and_looks_at_no_more_than_was_used() {
    let (_folder, path) = folder_and_pool();
    let (mut forward, mut back) = (0, 0);
    for writes in 0.. {
        let pmwcas = create::<CutShort>(&path);
        let finished = kill_after(writes, || change(&pmwcas, &[(0, 0, 1), (1, 0, 1)]));
        crash(pmwcas);
        let pmwcas = open::<CutShort>(&path);
        let recovered = pmwcas.recovered();
        assert!(recovered.participants <= 1, "{recovered:?}");
        assert!(recovered.rolled_forward + recovered.rolled_back <= 1, "{recovered:?}");
        forward += recovered.rolled_forward;
        back += recovered.rolled_back;
        assert_eq!(raw(&pmwcas, 0) == 1, recovered.rolled_forward == 1 || finished.is_some());
        drop(pmwcas);
        std::fs::remove_file(&path).unwrap();
        if finished.is_some() {
            break;
        }
    }
    assert!(forward > 0 && back > 0, "{forward} forward, {back} back");
}

/// Damaged bytes in descriptors: no panic, and words that hold no reference stay unchanged.
#[test]
fn rotten_descriptors_do_not_stop_an_opening() {
    use std::os::unix::fs::FileExt;
    let mut random = super::common::random(0x0207);
    for _ in 0..300 {
        let (_folder, path) = folder_and_pool();
        let pmwcas = create::<Process>(&path);
        assert!(change(&pmwcas, &[(100, 0, 77), (101, 0, 77), (102, 0, 77)]));
        crash(pmwcas);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        for _ in 0..1 + random.below(40) {
            let status = (1 + random.below(6)) << 48 | random.below(4);
            let value = [random.below(u64::MAX), random.below(1 << 20) * 8, status, 3, word(100)]
                [random.below(5) as usize];
            let place = 32_768 + random.below(256) * 8;
            file.write_all_at(&value.to_le_bytes(), place).unwrap();
        }
        let pool = Pool::<Process>::open(&path, &OpenPool::default()).unwrap();
        let pmwcas = over(pool);
        assert_eq!([100, 101, 102].map(|at| raw(&pmwcas, at)), [77; 3]);
    }
}
