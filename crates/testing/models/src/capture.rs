//! Captures, marks, evictions and loads of one page that is in a store (`captures.rs`, `stored.rs`
//! and `load.rs` of `pando-bwtree`, whose first pages say why they hold).
//! `stored.rs`, here, has the steps.
//!
//! | ordering | pairs with | what that ensures |
//! | --- | --- | --- |
//! | a full barrier between the number of a capture and its loads of words | the sequentially consistent load of the count of captures, in the check of an earlier capture | the later capture reads no word older than the earlier one did |
//! | the release of the CAS that captures a word | the acquiring load of the word in `mark_written` | a mark that sees the flag of a later capture sees its number |
//! | the release of a mark | the acquiring loads of `evict` and `load` | the store has the state that is evicted, and a load finds it |
//! | the release of a change | each acquiring load of a word | a thread that finds a link finds the chain |
//!
//! The barrier is a fence: the language does not order an acquiring load behind a sequentially
//! consistent read-modify-write. (On x86-64 the instruction that takes the number is one.)
//!
//! Behind the barrier, neither the number nor the reservation of a place needs an ordering. An
//! eviction needs none, because it replaces the value of a mark, which has released.

use loom::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::explore;
use crate::stored::{AS_WRITTEN, CAPTURED, Code, Parts, Stored, UNFENCED, WRITTEN, spawn};

const PAGE: [bool; 2] = [true, false];
const BLOCKS: Parts = Parts { blocks: true, structure: false, table: false };
const TABLE: Parts = Parts { blocks: false, structure: false, table: true };

/// Two threads write the page into the store, and a third one changes it.
fn two_captures(code: Code) {
    explore(Some(2), move || {
        let stored = Stored::new(code, Parts::default());
        let writer = spawn(&stored, |stored| stored.write(0));
        let other = spawn(&stored, |stored| stored.flush(1, PAGE));
        stored.flush(0, PAGE);
        other.join().unwrap();
        writer.join().unwrap();
        stored.check();
    });
}

/// A thread writes the page into the store, another one changes it, and a third one evicts it.
fn eviction(code: Code) {
    explore(Some(3), move || {
        let stored = Stored::new(code, TABLE);
        let writer = spawn(&stored, |stored| stored.write(0));
        let evictor = spawn(&stored, |stored| {
            if let Some(state) = stored.evict(0) {
                assert_eq!(stored.read_store(0), state, "the store lacks an evicted state");
            }
        });
        stored.flush(0, PAGE);
        writer.join().unwrap();
        evictor.join().unwrap();
        stored.check();
    });
}

/// Two threads write the page into the store. A third one evicts it, loads it and changes it.
fn eviction_and_load(code: Code) {
    explore(Some(2), move || {
        let stored = Stored::new(code, TABLE);
        let other = spawn(&stored, |stored| stored.flush(1, PAGE));
        let evictor = spawn(&stored, |stored| {
            if let Some(state) = stored.evict(0) {
                assert_eq!(stored.read_store(0), state, "the store lacks an evicted state");
            }
            stored.load(0);
            stored.write(0);
        });
        stored.flush(0, PAGE);
        other.join().unwrap();
        evictor.join().unwrap();
        stored.check();
    });
}

/// A thread loads the page. Another one loads it, changes it, writes it and evicts it.
fn overtaken_load(code: Code) {
    explore(Some(3), move || {
        let stored = Stored::new(code, TABLE);
        stored.flush(0, PAGE);
        stored.evict(0).expect("it is written");
        let loader = spawn(&stored, |stored| stored.load(0));
        stored.load(0);
        stored.write(0);
        stored.flush(0, PAGE);
        stored.evict(0);
        loader.join().unwrap();
        stored.check();
    });
}

/// The page is absent. A thread loads it, lets it count as changed, writes and evicts it, while
/// another one loads it, and a third one changes it.
fn written_again(code: Code) {
    explore(Some(2), move || {
        let stored = Stored::new(code, TABLE);
        stored.flush(0, PAGE);
        stored.evict(0).expect("it is written");
        let loader = spawn(&stored, |stored| stored.load(0));
        let writer = spawn(&stored, |stored| stored.write(0));
        stored.load(0);
        stored.unmark(0);
        stored.flush(0, PAGE);
        if let Some(state) = stored.evict(0) {
            assert!(stored.read_store(0) >= state, "the store lacks an evicted state");
        }
        loader.join().unwrap();
        writer.join().unwrap();
        stored.check();
    });
}

/// The page is changed twice, the second time into its former block, if that may be used again.
fn change_twice(stored: &Stored) {
    if let Some(freed) = stored.write(0) {
        stored.write_again(0, freed);
    }
}

/// The page was captured, and its group appended. While the thread marks it, another thread changes
/// it twice, and a third one captures it and stops.
fn later_capture(code: Code) {
    explore(Some(2), move || {
        let stored = Stored::new(code, BLOCKS);
        let mut captured = stored.capture(0, PAGE);
        stored.append(0, &mut captured);
        let writer = spawn(&stored, change_twice);
        let later = spawn(&stored, |stored| stored.capture(1, PAGE));
        stored.finish(0, &captured);
        writer.join().unwrap();
        later.join().unwrap();
        stored.check();
    });
}

/// A thread captures the page and gives up. Another one writes it, and a third one changes it
/// twice.
fn earlier_capture(code: Code) {
    explore(Some(2), move || {
        let stored = Stored::new(code, BLOCKS);
        let writer = spawn(&stored, change_twice);
        let later = spawn(&stored, |stored| stored.flush(1, PAGE));
        stored.capture(0, PAGE);
        stored.give_up(0);
        writer.join().unwrap();
        later.join().unwrap();
        stored.check();
    });
}

/// A thread writes the page into the store, and another one changes it twice. Fewer threads than
/// above find a read of a block that is used again.
fn images(code: Code) {
    explore(Some(3), move || {
        let stored = Stored::new(code, BLOCKS);
        let writer = spawn(&stored, change_twice);
        stored.flush(0, PAGE);
        writer.join().unwrap();
        stored.check();
    });
}

/// The store has the page, and two threads change it. One of them writes it, and so does a third
/// one: as deltas.
fn deltas(code: Code) {
    explore(Some(2), move || {
        let stored = Stored::new(code, Parts::default());
        stored.flush(0, PAGE);
        let writer = spawn(&stored, |stored| {
            stored.write(0);
            stored.write(0);
        });
        let other = spawn(&stored, |stored| {
            stored.write(0);
            stored.flush(1, PAGE);
        });
        stored.flush(0, PAGE);
        other.join().unwrap();
        writer.join().unwrap();
        stored.flush(0, PAGE);
        stored.check();
    });
}

model_tests! { deltas, AS_WRITTEN;
    holds fn a_delta_has_all_changes_that_the_store_lacks {}
    fails fn a_captured_page_is_not_a_written_one { kept_in_chain: WRITTEN | CAPTURED }
    fails fn a_delta_of_a_capture_that_was_overtaken_is_not_written { checks_last: false }
}

model_tests! { two_captures, AS_WRITTEN;
    holds fn a_later_group_has_no_earlier_state {}
    /// The load of a word may take place before other threads see the number.
    fails fn a_capture_reads_words_behind_a_barrier { has_barrier: false }
    fails fn a_capture_looks_at_the_count_of_captures_sequentially_consistently
        { look_fenced: false }
    fails fn a_capture_that_was_overtaken_writes_nothing { checks_last: false }
    fails fn a_capture_looks_after_its_place_is_reserved { reserves_first: false }
    fails fn a_write_clears_the_flags { clears_flags: false }
    fails fn a_change_must_release { change: Acquire }
}

model_tests! { eviction, UNFENCED;
    holds fn an_evicted_page_is_in_the_store {}
    fails fn a_page_is_marked_after_its_group_is_written { waits: false }
    fails fn only_written_pages_are_evicted { evicts_written: false }
    fails fn a_mark_must_release { mark: Acquire }
    fails fn an_eviction_reads_the_word_with_acquire { read: Relaxed }
}

model_tests! { eviction_and_load, AS_WRITTEN;
    holds fn a_page_that_was_evicted_is_loaded_and_changed {}
}

model_tests! { written_again, AS_WRITTEN;
    holds fn a_page_that_is_written_again_is_in_the_store_in_its_newest_state {}
    fails fn a_page_that_is_written_again_is_evicted_when_it_is_written { evicts_written: false }
}

model_tests! { overtaken_load, UNFENCED;
    holds fn a_load_that_was_overtaken_installs_nothing {}
    fails fn each_eviction_has_another_stamp { stamps: false }
    fails fn a_load_reads_the_word_with_acquire { read: Relaxed }
}

model_tests! { later_capture, UNFENCED;
    holds fn a_mark_is_of_the_state_that_was_written {}
    fails fn a_mark_looks_at_the_count_of_captures { mark_looks: false }
    fails fn a_mark_looks_after_it_has_read_the_word { looks_late: false }
    fails fn a_mark_is_pinned { mark_pins: false }
    fails fn a_mark_reads_the_word_with_acquire { read: Relaxed }
    fails fn a_captured_word_must_release { capture: Acquire }
}

model_tests! { earlier_capture, AS_WRITTEN;
    holds fn an_earlier_capture_captures_no_block_that_is_used_again {}
    fails fn a_capture_is_pinned { capture_pins: false }
    fails fn a_capture_pins_before_it_takes_its_number { pins_first: false }
}

model_tests! { images, UNFENCED;
    holds fn images_are_of_blocks_that_are_not_used_again {}
    fails fn a_capture_unpins_after_its_images { unpins_late: false }
}
