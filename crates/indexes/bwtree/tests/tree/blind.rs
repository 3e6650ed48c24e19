//! Blind writes in a tree whose pages are in a store.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use pando_bwtree::{PageState, PageWrite, StoredBwTrees};
use pando_index::RangeIndex;
use pando_index::random::Random;

use crate::common::stored::{
    Domain, Hook, MAX_PARTS, Source, Tree, as_it_is, check, dump, evict_all, evict_leaves, get,
    pages, parts_of, put, put_blind, remove, reopened, tree_of, tree_with, write_until_done,
};
use crate::common::{Fixture, Records, key};

/// Random writes, blind and others, reads, writes of pages and evictions: the tree has the records
/// of a model, and so has the store.
#[test]
fn blind_writes_among_others() {
    for seed in 0..12 {
        let (fixture, source) = tree_of(200);
        let tree = &fixture.index;
        let mut model: BTreeMap<u64, Vec<u8>> = (0..200).map(|n| (n, b"first".to_vec())).collect();
        let mut random = Random::new(seed);
        for step in 0..4_000_u64 {
            let number = random.below(250);
            let value = vec![step as u8; random.below(20) as usize];
            match random.below(100) {
                0..50 => {
                    put_blind(tree, number, &value);
                    model.insert(number, value);
                }
                50..60 => {
                    put(tree, number, &value);
                    model.insert(number, value);
                }
                60..75 => {
                    let removed = tree.remove(&key(number)).expect("written");
                    assert_eq!(removed, model.remove(&number).is_some(), "{seed}, {step}");
                }
                75..85 => {
                    assert_eq!(get(tree, number).as_ref(), model.get(&number), "{seed}, {step}");
                }
                85..90 => write_until_done(tree, &source),
                90..94 => {
                    write_until_done(tree, &source);
                    evict_leaves(tree);
                }
                94 => evict_all(tree),
                _ => {
                    let pages = pages(tree, PageState::Written);
                    if let Some(&page) = pages.get(random.below(pages.len() as u64 + 1) as usize) {
                        tree.evict(page).expect("a slot");
                    }
                }
            }
            if step % 500 == 0 {
                let expected: Records =
                    model.iter().map(|(number, value)| (key(*number), value.clone())).collect();
                write_until_done(tree, &source);
                check(&source);
                assert!(reopened(&source) == expected, "the store, {seed}, {step}");
                assert!(dump(tree) == expected, "{seed}, {step}");
            }
        }
    }
}

fn reads(source: &Source) -> u64 {
    source.0.reads.load(Ordering::Relaxed)
}

/// All pages are in the store alone, but the inner ones.
fn evicted(leaf_bytes: u32, records: u64) -> (Fixture<Domain, StoredBwTrees>, Source) {
    let (fixture, source) = tree_with(leaf_bytes, records);
    write_until_done(&fixture.index, &source);
    evict_leaves(&fixture.index);
    (fixture, source)
}

/// Blind writes, reads of what they have written, and writes of their pages read nothing, until
/// the store takes no more deltas of a page; a read of another key reads the page.
#[test]
fn a_blind_write_reads_nothing() {
    let (fixture, source) = evicted(1024, 200);
    let tree = &fixture.index;
    let before = source.0.images().clone();
    for round in 0..MAX_PARTS as u8 - 1 {
        [70, 77, 79].into_iter().for_each(|number| put_blind(tree, number, &[round]));
        put_blind(tree, 77, &[round, round]);
        put(tree, 77, &[round, 7]);
        assert_eq!(get(tree, 77), Some(vec![round, 7]));
        remove(tree, 79);
        assert_eq!(get(tree, 79), None);
        write_until_done(tree, &source);
        evict_leaves(tree);
    }
    assert_eq!(reads(&source), 0);
    let images = source.0.images().clone();
    let grown: Vec<_> =
        images.iter().filter(|(page, parts)| before[page].len() < parts.len()).collect();
    assert!(grown.iter().all(|(_, parts)| parts.len() == MAX_PARTS), "{grown:?}");
    // The page is written whole now, with one read.
    put_blind(tree, 77, b"last");
    write_until_done(tree, &source);
    assert_eq!((reads(&source), parts_of(&source, 77).1.len()), (1, 1));
    check(&source);
    // A read of a key beside it loads the page below the write.
    put_blind(tree, 77, b"at last");
    assert_eq!((get(tree, 76), get(tree, 78)), (Some(b"first".to_vec()), Some(b"first".to_vec())));
    assert_eq!((reads(&source), get(tree, 77)), (2, Some(b"at last".to_vec())));
    write_until_done(tree, &source);
    assert_eq!(parts_of(&source, 77).1.len(), 2, "it is still written as a delta");
    assert_eq!(reopened(&source), dump(tree));
}

/// Writes and evicts the partial page of 78, and leaves another one.
fn replaced_by_another(tree: Tree, source: &Source) -> Hook {
    let kept = source.clone();
    Box::new(move || {
        put_blind(&tree, 78, b"second");
        write_until_done(&tree, &kept);
        evict_leaves(&tree);
        put_blind(&tree, 79, b"second");
    })
}

/// While a thread reads the parts of a page for its partial page, another one writes the page,
/// evicts it, and leaves another partial page: the parts are not those below it.
#[test]
fn a_load_below_another_partial_page_installs_nothing() {
    let (fixture, source) = evicted(1024, 200);
    let tree = fixture.another_handle();
    put_blind(&tree, 77, b"second");
    *source.0.after_read.lock().unwrap() = Some(replaced_by_another(tree, &source));
    let tree = &fixture.index;
    assert_eq!(get(tree, 76), Some(b"first".to_vec()));
    (77..80).for_each(|number| assert_eq!(get(tree, number), Some(b"second".to_vec()), "{number}"));
}

/// The same, after the thread has seen the version again: by then it has read the page's word.
#[test]
fn the_word_of_a_partial_page_is_read_before_its_version() {
    let (fixture, source) = evicted(1024, 200);
    let tree = fixture.another_handle();
    put_blind(&tree, 77, b"second");
    *source.0.after_second_version.lock().unwrap() = Some(replaced_by_another(tree, &source));
    let tree = &fixture.index;
    assert_eq!(get(tree, 76), Some(b"first".to_vec()));
    assert!(source.0.after_second_version.lock().unwrap().is_none(), "it was called");
    (77..80).for_each(|number| assert_eq!(get(tree, number), Some(b"second".to_vec()), "{number}"));
}

/// The same while the parts are read so that the page can be written whole.
#[test]
fn parts_of_another_time_are_not_written_with_a_partial_page() {
    let (fixture, source) = evicted(1024, 200);
    let tree = fixture.another_handle();
    for round in 1..MAX_PARTS as u8 {
        put_blind(&tree, 77, &[round]);
        write_until_done(&tree, &source);
        evict_leaves(&tree);
    }
    put_blind(&tree, 77, b"second");
    let kept = source.clone();
    *source.0.after_read.lock().unwrap() = Some(Box::new(move || {
        // Whole, and then as deltas again.
        for _ in 0..MAX_PARTS {
            put_blind(&tree, 78, b"second");
            write_until_done(&tree, &kept);
            evict_leaves(&tree);
        }
        put_blind(&tree, 79, b"second");
    }));
    let tree = &fixture.index;
    (0..3).for_each(|_| write_until_done(tree, &source));
    assert!(pages(tree, PageState::Changed).is_empty());
    assert_eq!(reopened(&source), dump(tree));
    (77..80).for_each(|number| assert_eq!(get(tree, number), Some(b"second".to_vec()), "{number}"));
}

/// A removed record stays removed, though many blind writes follow it.
#[test]
fn a_partial_page_does_not_forget_a_removed_record() {
    let (fixture, source) = evicted(4096, 1000);
    let tree = &fixture.index;
    put_blind(tree, 77, b"second");
    remove(tree, 77);
    for number in (60..100).filter(|number| *number != 77) {
        put_blind(tree, number, b"third");
        assert_eq!(get(tree, 77), None);
    }
    write_until_done(tree, &source);
    evict_leaves(tree);
    assert_eq!((get(tree, 77), get(tree, 99)), (None, Some(b"third".to_vec())));
    assert_eq!(reopened(&source).len(), 999);
}

/// A page whose parts are needed and cannot be read is named; the other pages are written.
#[test]
fn a_partial_page_on_a_page_that_cannot_be_read_stays() {
    let (fixture, source) = evicted(1024, 200);
    let tree = &fixture.index;
    let (page, _) = parts_of(&source, 77);
    for round in 1..=MAX_PARTS as u8 {
        put_blind(tree, 77, &[round]);
        put_blind(tree, 150, &[round]);
        if usize::from(round) == MAX_PARTS {
            break;
        }
        write_until_done(tree, &source);
        evict_leaves(tree);
    }
    source.0.unreadable.set(page).expect("once");
    let changed = pages(tree, PageState::Changed);
    assert_eq!(changed.len(), 2);
    let append = |writes: &mut dyn FnMut() -> Option<Vec<PageWrite>>| {
        source.0.write(writes().expect("the last capture"));
    };
    let (captured, _) = tree.capture((&changed, false), &mut as_it_is, append).expect("a slot");
    tree.mark_written(&captured).expect("a slot");
    assert_eq!(captured.failed.iter().map(|(page, _)| *page).collect::<Vec<_>>(), [page]);
    assert_eq!(pages(tree, PageState::Changed), [page]);
    assert_eq!(get(tree, 77), Some(vec![MAX_PARTS as u8]));
    let error = tree.get(&key(76)).expect_err("it must be read").to_string();
    assert!(error.contains("does not answer"), "{error}");
}

/// Pages that get new records blindly are split in time.
#[test]
fn blind_writes_do_not_grow_a_page_for_ever() {
    let (fixture, source) = evicted(1024, 200);
    let tree = &fixture.index;
    let mut random = Random::new(7);
    for round in 0..200_u64 {
        for _ in 0..20 {
            let new = [&key(random.below(200))[..], &random.draw().to_be_bytes()].concat();
            RangeIndex::put(tree, &new, &[round as u8; 20]).expect("written");
        }
        write_until_done(tree, &source);
        write_until_done(tree, &source);
        evict_leaves(tree);
    }
    check(&source);
    let images = source.0.images();
    let longest = images.values().map(|parts| parts.iter().map(Vec::len).sum::<usize>()).max();
    assert!(longest < Some(6 * 1024), "{longest:?}");
    drop(images);
    assert_eq!(dump(tree).len(), 4_200);
}
