//! Threads that pause at any write, while others finish, reuse descriptors and restore old values.
//! When they continue, their remaining steps must change nothing.

use std::sync::Arc;

use pando_pmem::Domain;
use pando_pmem::testing::{CutShort, Paused};
use pando_pmwcas::Pmwcas;

use super::common::{change, create, folder, in_memory, open, read, settled, within_bounds};

type Words = &'static [(u64, u64, u64)];
type Meanwhile<D> = fn(&Pmwcas<D>) -> Option<bool>;
type After<D> = fn(&Pmwcas<D>);
const THREE: Words = &[(0, 0, 5), (1, 0, 5), (2, 0, 5)];

/// Pauses an operation at every write. `meanwhile` returns the result that the operation must have,
/// if that is known.
fn pause_everywhere<D: Domain>(meanwhile: Meanwhile<D>, after: After<D>) {
    for writes in 0.. {
        let pmwcas = in_memory::<D>(1);
        let victim = Arc::clone(&pmwcas);
        let paused = Paused::start(writes, move || change(&victim, THREE));
        if paused.is_done() {
            assert!(paused.resume());
            assert!(writes > 8);
            return;
        }
        within_bounds("meanwhile", move || {
            let expected = meanwhile(&pmwcas);
            let result = paused.resume();
            assert!(expected.is_none_or(|expected| expected == result), "paused at {writes}");
            after(&pmwcas);
        });
    }
}

fn all_domains(
    process: (Meanwhile<CutShort>, After<CutShort>),
    adr: (Meanwhile<CutShort<true>>, After<CutShort<true>>),
) {
    pause_everywhere(process.0, process.1);
    pause_everywhere(adr.0, adr.1);
}

fn only_read<D: Domain>(pmwcas: &Pmwcas<D>) -> Option<bool> {
    // The first word is taken first, so a read of it decides whether the operation takes place.
    let found = [0, 1, 2].map(|at| read(pmwcas, at));
    assert!(found == [0; 3] || found == [5; 3], "{found:?}");
    // No other thread changes a word, so it must succeed.
    Some(true)
}

fn all_are_five<D: Domain>(pmwcas: &Pmwcas<D>) {
    assert_eq!([0, 1, 2].map(|at| settled(pmwcas, at)), [5; 3]);
}

#[test]
fn an_operation_paused_anywhere_among_readers_succeeds() {
    all_domains((only_read, all_are_five), (only_read, all_are_five));
}

fn change_one<D: Domain>(pmwcas: &Pmwcas<D>) -> Option<bool> {
    let found = read(pmwcas, 1);
    assert!(change(pmwcas, &[(1, found, 9)]));
    // If its new value was read, it has succeeded; otherwise its word was changed first.
    Some(found == 5)
}

fn nine_in_the_middle<D: Domain>(pmwcas: &Pmwcas<D>) {
    let found = [0, 1, 2].map(|at| settled(pmwcas, at));
    assert!(found == [0, 9, 0] || found == [5, 9, 5], "{found:?}");
}

#[test]
fn an_operation_paused_anywhere_and_overtaken_tells_the_truth() {
    all_domains((change_one, nine_in_the_middle), (change_one, nine_in_the_middle));
}

/// Changes the words away and back: many operations, and in the end the old values again.
fn away_and_back<D: Domain>(pmwcas: &Pmwcas<D>) -> Option<bool> {
    let start = read(pmwcas, 0);
    for round in 0..20 {
        let from = if round == 0 { start } else { 100 + round };
        assert!(change(pmwcas, &[0, 1, 2].map(|at| (at, from, 101 + round))));
    }
    assert!(change(pmwcas, &[0, 1, 2].map(|at| (at, 120, 0))));
    // It always found the old values, or was helped: it cannot have failed.
    Some(true)
}

fn not_torn<D: Domain>(pmwcas: &Pmwcas<D>) {
    let found = [0, 1, 2].map(|at| settled(pmwcas, at));
    // 0 if it succeeded before the other operations, 5 if it succeeded after them.
    assert!(found == [0; 3] || found == [5; 3], "{found:?}");
}

#[test]
fn an_operation_paused_anywhere_while_its_old_values_go_and_come_back_is_whole() {
    all_domains((away_and_back, not_torn), (away_and_back, not_torn));
}

/// The owner pauses at one write, a helper at another. The owner continues, finishes, and reuses
/// its descriptor many times with the same words and the same old values. Then the helper
/// continues.
#[test]
fn a_helper_that_comes_late_to_a_recycled_descriptor_does_no_harm() {
    let mut pairs = 0;
    for owner_writes in 0.. {
        for helper_writes in 0.. {
            let pmwcas = in_memory::<CutShort<true>>(1);
            let own = Arc::clone(&pmwcas);
            let owner = Paused::start(owner_writes, move || {
                let first = change(&own, THREE);
                // Descriptors are used in turn, so the first one is soon in use again.
                for _ in 0..9 {
                    assert!(change(&own, &[(0, 5, 0), (1, 5, 0), (2, 5, 0)]));
                    assert!(change(&own, THREE));
                }
                assert!(change(&own, &[(0, 5, 0), (1, 5, 0), (2, 5, 0)]));
                first
            });
            let owner_done = owner.is_done();
            let help = Arc::clone(&pmwcas);
            let helper = Paused::start(helper_writes, move || {
                (read(&help, 0), read(&help, 1), read(&help, 2))
            });
            let helper_done = helper.is_done();
            within_bounds("late", move || {
                assert!(owner.resume(), "the owner failed, spuriously");
                let (first, second, third) = helper.resume();
                assert!([first, second, third].iter().all(|&seen| seen == 0 || seen == 5));
                assert_eq!([0, 1, 2].map(|at| settled(&pmwcas, at)), [0; 3], "a late install stayed");
                assert!(change(&pmwcas, THREE));
            });
            pairs += 1;
            if helper_done {
                break;
            }
            assert!(!owner_done || helper_writes == 0, "nothing was in the way of the reader");
        }
        if owner_writes > 45 {
            break;
        }
    }
    println!("{pairs} pairs of pauses");
    assert!(pairs > 100, "{pairs}");
}

/// A crash while an owner has stopped at one write and its helper at another: recovery also settles
/// the word that only the helper's record names.
#[test]
fn a_crash_while_a_helper_stands_at_any_write_is_recovered() {
    let folder = folder();
    let (path, image) = (folder.path().join("pool"), folder.path().join("image"));
    let mut helped_halfway = 0;
    for owner_writes in 8.. {
        let mut owner_done = false;
        for helper_writes in 0.. {
            let pmwcas = Arc::new(create::<CutShort<true>>(&path));
            let own = Arc::clone(&pmwcas);
            let owner = Paused::start(owner_writes, move || change(&own, THREE));
            owner_done = owner.is_done();
            let help = Arc::clone(&pmwcas);
            // Compares the first word only.
            let helper = Paused::start(helper_writes, move || change(&help, &[(0, 0, 0)]));
            let helper_done = helper.is_done();
            std::fs::copy(&path, &image).unwrap();
            helped_halfway += u64::from(!owner_done && !helper_done);
            assert!(owner.resume());
            helper.resume();
            drop(pmwcas);
            let recovered = open::<CutShort<true>>(&image);
            // Checked before a read, which would help: recovery alone leaves no reference.
            let found = [0, 1, 2].map(|at| settled(&recovered, at) & !(1 << 61));
            let label = format!("owner at {owner_writes}, helper at {helper_writes}");
            assert!(found == [0; 3] || found == [5; 3], "{label}: {found:x?}");
            assert!(change(&recovered, &[0, 1, 2].map(|at| (at, found[0], 7))), "{label}");
            drop(recovered);
            std::fs::remove_file(&path).unwrap();
            std::fs::remove_file(&image).unwrap();
            if helper_done {
                break;
            }
        }
        if owner_done {
            break;
        }
    }
    assert!(helped_halfway > 30, "{helped_halfway}");
}
