//! Captures of pages that a change of structure changes (`captures.rs`, `pages.rs` and
//! `multi_word.rs` of `pando-bwtree`). `stored.rs`, here, has the steps.
//!
//! The change is a PMwCAS of two pages and of the count of changes. At each place in the order of
//! groups, the store has both pages as they were before it, or both as they are afterwards.
//!
//! | ordering | pairs with | what that ensures |
//! | --- | --- | --- |
//! | the release of the words of a change | the acquiring loads of the count and of the words | a capture that reads the new count finds the change listed and both pages changed; a capture that reads a changed page finds another count in its check |
//!
//! Acquire and release are enough, also for two captures at once: the check compares the count.
//!
//! One change is modelled, which fails if a capture interrupts it.

use loom::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::explore;
use crate::stored::{Code, Parts, Stored, UNFENCED, spawn};

const STRUCTURE: Parts = Parts { blocks: false, structure: true, table: false };
/// The root's word is before the count in the order of addresses.
const ROOT: [bool; 2] = [true, false];
const OTHER: [bool; 2] = [false, true];
const BOTH: [bool; 2] = [true, true];

/// A thread changes both pages. Another one writes pages into the store meanwhile, and the other
/// page afterwards.
fn during_change(code: Code, wanted: [bool; 2]) {
    explore(Some(3), move || {
        let stored = Stored::new(code, STRUCTURE);
        let writer = spawn(&stored, |stored| stored.split());
        stored.flush(0, wanted);
        writer.join().unwrap();
        stored.flush(0, wanted.map(|is_wanted| !is_wanted));
        stored.check();
    });
}

/// After a change of both pages, two threads write one each into the store.
fn after_change(code: Code) {
    explore(Some(2), move || {
        let stored = Stored::new(code, STRUCTURE);
        assert!(stored.split());
        let other = spawn(&stored, |stored| stored.flush(1, ROOT));
        stored.flush(0, OTHER);
        other.join().unwrap();
        stored.check();
    });
}

/// A thread changes both pages, and two others write one each into the store.
fn two_captures(code: Code) {
    explore(Some(1), move || {
        let stored = Stored::new(code, STRUCTURE);
        let writer = spawn(&stored, |stored| stored.split());
        let other = spawn(&stored, |stored| stored.flush(1, ROOT));
        stored.flush(0, OTHER);
        writer.join().unwrap();
        other.join().unwrap();
        stored.check();
    });
}

#[test]
fn a_group_has_both_sides_of_a_change_or_none() {
    for wanted in [ROOT, OTHER, BOTH] {
        during_change(UNFENCED, wanted);
    }
}

model_tests! { after_change, UNFENCED;
    holds fn a_change_is_listed_until_it_is_written {}
    fails fn a_change_leaves_the_list_after_its_group_is_written { unlists_late: false }
}

model_tests! { two_captures, UNFENCED;
    holds fn two_groups_have_both_sides_of_a_change_or_none {}
}

model_tests! { |code| during_change(code, ROOT), UNFENCED;
    fails fn a_change_is_listed_before_it_takes_place { lists_first: false }
}

model_tests! { |code| during_change(code, OTHER), UNFENCED;
    fails fn a_change_changes_the_count { counts: false }
    fails fn a_capture_reads_the_count_before_the_list { counts_first: false }
    fails fn a_change_must_release { change: Acquire }
    fails fn a_capture_reads_with_acquire { read: Relaxed }
}

model_tests! { |code| during_change(code, BOTH), UNFENCED;
    fails fn a_capture_amid_a_change_writes_nothing { checks_count: false }
}
