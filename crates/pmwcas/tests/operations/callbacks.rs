//! Finalize callbacks: run once, after the epoch, with what the operation was; again after a crash.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pando_pmem::Process;
use pando_pmwcas::{Error, Finalization, FinalizedWord, Pmwcas, Policy};

use super::common::{active, crash, create, folder, give, in_memory, open, raw, stamped, word};

type Seen = Mutex<Vec<(bool, Vec<FinalizedWord>)>>;

/// An operation with callback 0: word 0 to a new block, word 1 from zero to 1 or a failure.
fn replace_block(pmwcas: &Pmwcas<Process>, old: u64, succeed: bool) -> u64 {
    let guard = pmwcas.pool().pin().unwrap();
    let mut operation = pmwcas.allocate_with_callback(&guard, 0).unwrap();
    let entry = operation.reserve_entry(word(0), old, Policy::FreeOne).unwrap();
    let unsettled = raw(pmwcas, 1);
    operation.add_word(word(1), unsettled + u64::from(!succeed), unsettled + 1).unwrap();
    let new = operation.activate(entry, stamped(&guard, 100, 2));
    assert_eq!(operation.execute(), succeed);
    new
}

/// Lets epochs pass, and callbacks run as operations with callbacks are allocated.
fn let_epochs_pass(pmwcas: &Pmwcas<Process>) {
    for _ in 0..10 {
        let guard = pmwcas.pool().pin().unwrap();
        guard.collect();
        pmwcas.allocate_with_callback(&guard, 0).unwrap().discard();
    }
}

static IN_ORDER: Seen = Mutex::new(Vec::new());

fn note_in_order(end: &Finalization<'_, '_, Process>) {
    IN_ORDER.lock().unwrap().push((end.succeeded, end.words.to_vec()));
}

#[test]
fn a_callback_runs_once_and_after_the_epoch() {
    let pmwcas = in_memory::<Process>(1, &[note_in_order]);
    let old = give(&pmwcas, 0, 100, 1);
    let reader = Arc::clone(&pmwcas);
    let (pinned, wait_pinned) = std::sync::mpsc::channel();
    let (go_on, wait_go_on) = std::sync::mpsc::channel::<()>();
    let reader = std::thread::spawn(move || {
        let _guard = reader.pool().pin().unwrap();
        pinned.send(()).unwrap();
        let _ = wait_go_on.recv();
    });
    wait_pinned.recv().unwrap();
    let new = replace_block(&pmwcas, old, true);
    assert!(pmwcas.pool().active_block(new).is_some());
    for _ in 0..3 {
        let guard = pmwcas.pool().pin().unwrap();
        guard.collect();
        pmwcas.allocate_with_callback(&guard, 0).unwrap().discard();
    }
    assert!(IN_ORDER.lock().unwrap().is_empty(), "run while a reader may look");
    assert!(pmwcas.pool().active_block(old).is_some(), "freed while a reader may look");
    drop(go_on);
    reader.join().unwrap();
    let_epochs_pass(&pmwcas);
    let failed = replace_block(&pmwcas, new, false);
    let_epochs_pass(&pmwcas);
    let words = |old, new, count| {
        let first = FinalizedWord { off: word(0), old, new };
        vec![first, FinalizedWord { off: word(1), old: count, new: 1 + u64::from(count == 2) }]
    };
    let seen = IN_ORDER.lock().unwrap();
    assert_eq!(*seen, [(true, words(old, new, 0)), (false, words(new, failed, 2))]);
    assert_eq!(active(pmwcas.pool()), [new]);
}

static AFTER_CRASH: AtomicU64 = AtomicU64::new(0);

fn count_after_crash(end: &Finalization<'_, '_, Process>) {
    assert!(end.succeeded && end.words.len() == 2);
    AFTER_CRASH.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_callback_that_a_crash_overtakes_runs_at_recovery() {
    let folder = folder();
    let path = folder.path().join("pool");
    let pmwcas = create::<Process>(&path, &[count_after_crash]);
    let old = give(&pmwcas, 0, 100, 1);
    let new = replace_block(&pmwcas, old, true);
    crash(pmwcas);
    let pmwcas = open::<Process>(&path, &[count_after_crash]);
    assert_eq!(AFTER_CRASH.load(Ordering::Relaxed), 1);
    assert_eq!(active(pmwcas.pool()), [new]);
    crash(pmwcas);
    drop(open::<Process>(&path, &[count_after_crash]));
    assert_eq!(AFTER_CRASH.load(Ordering::Relaxed), 1, "run again although it was done");
}

static AFTER_CLOSE: AtomicU64 = AtomicU64::new(0);

fn count_after_close(_: &Finalization<'_, '_, Process>) {
    AFTER_CLOSE.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_callback_that_an_orderly_close_overtakes_runs_at_the_next_opening() {
    let folder = folder();
    let path = folder.path().join("pool");
    let pmwcas = create::<Process>(&path, &[count_after_close]);
    let old = give(&pmwcas, 0, 100, 1);
    let new = replace_block(&pmwcas, old, true);
    drop(pmwcas);
    let pmwcas = open::<Process>(&path, &[count_after_close]);
    assert!(pmwcas.pool().was_clean());
    assert_eq!(AFTER_CLOSE.load(Ordering::Relaxed), 1, "the callback was lost");
    assert_eq!(active(pmwcas.pool()), [new], "the old block leaked");
    // The descriptor is free again too: the thread has all of its own.
    let guard = pmwcas.pool().pin().unwrap();
    let all: Vec<_> = (0..7).map(|_| pmwcas.allocate(&guard).unwrap()).collect();
    assert_eq!(all.len(), 7);
}

fn ignore(_: &Finalization<'_, '_, Process>) {}

#[test]
fn a_table_that_is_too_long_is_refused() {
    let pool = pando_pmem::Pool::anonymous(&super::common::options()).unwrap();
    let error =
        Pmwcas::open(pool, &[ignore as fn(&Finalization<'_, '_, Process>); 17]).unwrap_err();
    assert!(matches!(error, Error::NoSuchCallback { found: 17, known: 16 }), "{error}");
}
