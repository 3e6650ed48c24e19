//! A tree whose pages are in a store: steps of other threads between two steps of a load, of a
//! capture, and of a mark.

use pando_bwtree::{Options, PageState, PageWrite, Picture, Pictured, StoredBwTrees};
use pando_index::{KeyRange, Order, RangeIndex};
use pando_pmem::testing::between;
use pando_tree::maps::Tree as _;

use crate::common::stored::{
    Domain, Source, Tree, as_it_is, change_77, check, dump, evict_all, evict_leaves, get, pages,
    parts_of, put, put_blind, remove, reopened, tree, tree_of, tree_with,
    tree_with_short_page_of_77, write_all, write_until_done, written,
};
use crate::common::{Fixture, key};

#[test]
fn pages_are_written_evicted_loaded_and_restored() {
    let (fixture, source) = tree();
    let tree = &fixture.index;
    let changed = pages(tree, PageState::Changed);
    assert!(changed.len() > 10);
    for &page in &changed {
        assert_eq!(tree.evict(page).expect("a slot"), 0, "it is not written");
    }
    assert!(write_all(tree, &source));
    check(&source);
    assert_eq!(pages(tree, PageState::Written), changed);
    evict_all(tree);
    assert_eq!(pages(tree, PageState::Written), [0], "only the root stays");
    assert_eq!(get(tree, 77), Some(b"first".to_vec()));
    put(tree, 77, b"second");
    assert_eq!(pages(tree, PageState::Changed).len(), 1);
    (100..200).for_each(|number| assert!(tree.remove(&key(number)).expect("removed")));
    assert!(write_all(tree, &source));
    check(&source);
    // Another pool gets the pages.
    let other = Fixture::<Domain, StoredBwTrees>::anonymous(Options::default());
    other.index.connect(Box::new(source.clone())).expect("a tree in a store");
    let numbers: Vec<u32> = source.0.images().keys().copied().collect();
    other.index.restore(numbers).expect("it has the root");
    assert_eq!(other.index.len().expect("read"), 100);
    assert_eq!(get(&other.index, 77), Some(b"second".to_vec()));
    // It gives free numbers to new pages.
    (200..2000).for_each(|number| put(&other.index, number, b"third"));
    assert!(write_all(&other.index, &source));
    check(&source);
    assert_eq!(other.index.len().expect("read"), 1900);
}

/// A page whose records change is written as deltas, each with what has changed since the state
/// that was written, until it has as many parts as it may have. Loads and evictions in between make
/// no difference.
#[test]
fn a_page_is_written_as_deltas() {
    for evicts in [false, true] {
        let (fixture, source) = tree_with_short_page_of_77();
        let tree = &fixture.index;
        let write = || {
            assert!(write_all(tree, &source));
            if evicts {
                evict_all(tree);
            }
            check(&source);
            parts_of(&source, 77).1
        };
        let base = write();
        assert_eq!(base.len(), 1);
        put(tree, 77, b"second");
        put(tree, 77, b"third");
        let second = write();
        assert_eq!((&second[..1], second.len()), (&base[..], 2));
        // One record of the page, as it is now.
        let delta = [&[8, 0, 5, 0], &key(77)[..], b"third"].concat();
        assert_eq!((second[1][8], &second[1][16..]), (1, &delta[..]));
        remove(tree, 77);
        let third = write();
        assert_eq!((&third[..2], third.len()), (&second[..], 3));
        assert_eq!(&third[2][16..], [&[8, 0, 0xFF, 0xFF], &key(77)[..]].concat());
        assert_eq!(get(tree, 77), None);
        assert_eq!(reopened(&source), dump(tree));
        put(tree, 77, b"fourth");
        assert_eq!(write().len(), 1, "three parts are the most here");
        assert_eq!(reopened(&source), dump(tree));
    }
}

/// A change that the store has got as a delta of a page that was not marked then, since it had
/// changed again, is in the next delta too.
#[test]
fn a_delta_has_all_changes_since_the_last_mark() {
    let (fixture, source) = tree_with_short_page_of_77();
    let tree = &fixture.index;
    let changed = change_77(tree, &source);
    let writes = tree.capture((&changed, false), &mut as_it_is, |writes| {
        let writes = writes().expect("the last capture");
        put(tree, 76, b"third");
        // The group is refused, or the thread stops.
        drop(writes);
    });
    writes.expect("a slot").1.expect("changes");
    assert!(write_all(tree, &source));
    assert_eq!(parts_of(&source, 77).1.len(), 2);
    assert_eq!(reopened(&source), dump(tree));
}

/// The root gets the chain of its last leaf, of which the store has a state under another number:
/// right before, another thread writes the leaf and changes it.
#[test]
fn a_root_that_has_the_chain_of_its_child_is_written_whole() {
    for access in 0.. {
        let (fixture, source) = tree_of(60);
        let tree = &fixture.index;
        assert!(write_all(tree, &source));
        // There is room for one change of structure: the last merge, and not the root's collapse.
        source.0.most_group_bytes.set(170 << 10).expect("set once");
        for number in (1..60).rev() {
            remove(tree, number);
            assert!(write_all(tree, &source));
            if source.0.images().len() == 2 {
                break;
            }
        }
        assert_eq!(source.0.images().len(), 2, "the root has one child");
        let (other, kept) = (fixture.another_handle(), source.clone());
        let meanwhile = move || {
            write_until_done(&other, &kept);
            put(&other, 0, b"between");
        };
        let has_collapsed = || tree.pages_from(0, 10_000).expect("a slot").0.len() == 1;
        let mut numbers = 1..60;
        let is_within = between(access, meanwhile, || {
            numbers.any(|number| {
                remove(tree, number);
                has_collapsed()
            });
        });
        assert!(has_collapsed());
        write_until_done(tree, &source);
        check(&source);
        assert_eq!(reopened(&source), dump(tree), "before access {access}");
        if !is_within {
            return;
        }
    }
}

/// Records are added to pages that are written, evicted and loaded again before each consolidation:
/// they are split all the same.
#[test]
fn pages_that_are_evicted_before_they_are_consolidated_do_not_grow() {
    let (fixture, source) = tree_of(10);
    let tree = &fixture.index;
    for number in (0..2000).rev() {
        put(tree, number, b"value");
        if number % 2 == 0 {
            write_until_done(tree, &source);
            evict_all(tree);
        }
    }
    let longest = source.0.images().values().map(Vec::len).max().expect("pages");
    // A leaf that is just not split, with its deltas.
    assert!(longest < 256 + 512 + 100, "{longest} bytes");
    check(&source);
    assert_eq!(tree.len().expect("read"), 2000);
}

/// Between the read of an image and its installation, the page is loaded, changed, written and
/// evicted by another thread.
#[test]
fn a_load_that_was_overtaken_installs_nothing() {
    let (fixture, source) = written();
    evict_leaves(&fixture.index);
    let (tree, kept) = (fixture.index.clone(), source.clone());
    let hook = move || {
        put(&tree, 77, b"other");
        assert!(write_all(&tree, &kept));
        evict_leaves(&tree);
    };
    *source.0.after_read.lock().expect("no panic") = Some(Box::new(hook));
    assert_eq!(get(&fixture.index, 77), Some(b"other".to_vec()));
}

/// Between the capture of pages and their place in the order of groups, another thread captures
/// later states, and writes them.
#[test]
fn a_capture_that_was_overtaken_writes_nothing() {
    let (fixture, source) = tree();
    let tree = &fixture.index;
    let changed = change_77(tree, &source);
    let (captured, is_empty) = tree
        .capture((&changed, false), &mut as_it_is, |writes| {
            put(tree, 77, b"third");
            assert!(write_all(tree, &source));
            writes().map(|writes| source.0.write(writes)).is_none()
        })
        .expect("a slot");
    assert!(is_empty.expect("a change"), "the later state was written before");
    assert_eq!(tree.mark_written(&captured).expect("a slot"), 0);
    evict_all(tree);
    assert_eq!(get(tree, 77), Some(b"third".to_vec()));
}

/// Between the capture of pages and their place, a page is split: the group would have one half.
#[test]
fn a_capture_amid_a_change_of_structure_writes_nothing() {
    let (fixture, source) = tree();
    let tree = &fixture.index;
    let changed = change_77(tree, &source);
    let before = pages(tree, PageState::Written).len();
    let (_, is_empty) = tree
        .capture((&changed, false), &mut as_it_is, |writes| {
            for number in 0..40 {
                let between = [&key(77)[..], &[number]].concat();
                tree.upsert(&between, b"between").expect("written");
            }
            writes().is_none()
        })
        .expect("a slot");
    assert!(pages(tree, PageState::Changed).len() > 4 && before > 10, "pages were split");
    assert!(is_empty.expect("a change"), "the count of changes is another one");
    assert!(write_all(tree, &source));
    check(&source);
}

/// A page changes after its capture: the captured state is written, and the page stays changed. If
/// another capture came between, no page is marked by the earlier one.
#[test]
fn a_page_that_changes_after_its_capture_is_not_marked() {
    let (fixture, source) = written();
    let tree = &fixture.index;
    put(tree, 77, b"other");
    put(tree, 150, b"other");
    let changed = pages(tree, PageState::Changed);
    assert_eq!(changed.len(), 2);
    let capture = || {
        let writes =
            tree.capture((&changed, false), &mut as_it_is, |writes| writes().expect("the last"));
        let (captured, writes) = writes.expect("a slot");
        source.0.write(writes.expect("changes"));
        captured
    };
    let first = capture();
    put(tree, 77, b"third");
    assert_eq!(tree.mark_written(&first).expect("a slot"), 1);
    assert_eq!(pages(tree, PageState::Changed).len(), 1);
    evict_all(tree);
    assert_eq!(get(tree, 77), Some(b"third".to_vec()));
    assert_eq!(get(tree, 150), Some(b"other".to_vec()));
    let (second, third) = (capture(), capture());
    assert_eq!(tree.mark_written(&second).expect("a slot"), 0, "it is not the last capture");
    assert_eq!(tree.mark_written(&third).expect("a slot"), 1);
    assert!(pages(tree, PageState::Changed).is_empty());
}

/// Images have two records as they were before: their pages are written so, and stay changed.
#[test]
fn a_page_whose_image_is_of_an_earlier_time_stays_changed() {
    let (fixture, source) = written();
    let tree = &fixture.index;
    put(tree, 77, b"second");
    put(tree, 150, b"second");
    put(tree, 1000, b"new");
    let changed = pages(tree, PageState::Changed);
    let mut before = |key_of: &[u8], value: &[u8]| {
        Ok(match value {
            b"new" => Pictured::Absent,
            _ if key_of == key(77) => Pictured::With(b"first".to_vec()),
            _ => Pictured::AsItIs,
        })
    };
    // Alone, it is left out if that is asked for.
    let append =
        |writes: &mut dyn FnMut() -> Option<Vec<PageWrite>>| writes().expect("the last capture");
    let (captured, writes) = tree.capture((&changed, true), &mut before, append).expect("a slot");
    let page_of_77 = captured.unmarked[captured.unmarked.len() - 1];
    let is_of_it = |write: &PageWrite| match write {
        PageWrite::Image(number, _) | PageWrite::Delta(number, _) | PageWrite::Free(number) => {
            *number == page_of_77
        }
    };
    assert!(!writes.expect("the page of 150").iter().any(is_of_it));
    let writes = tree.capture((&changed, false), &mut before, append);
    let (captured, writes) = writes.expect("a slot");
    source.0.write(writes.expect("changes"));
    tree.mark_written(&captured).expect("a slot");
    assert_eq!(captured.unmarked.len(), 2, "the pages of 77 and 1000");
    assert_eq!(pages(tree, PageState::Changed).len(), 2);
    assert!(pages(tree, PageState::Changed).iter().all(|page| captured.unmarked.contains(page)));
    evict_all(tree);
    check(&source);
    assert_eq!(get(tree, 77), Some(b"second".to_vec()));
    assert_eq!(get(tree, 150), Some(b"second".to_vec()));
    assert_eq!(get(tree, 1000), Some(b"new".to_vec()));
    let reopened = reopened(&source);
    assert_eq!(reopened.get(&key(77)[..]), Some(&b"first".to_vec()));
    assert_eq!(reopened.get(&key(150)[..]), Some(&b"second".to_vec()));
    assert_eq!(reopened.get(&key(1000)[..]), None);
    assert!(write_all(tree, &source));
    evict_all(tree);
    assert_eq!(get(tree, 1000), Some(b"new".to_vec()));
}

/// A picture that another thread overtakes when its time is fixed: it has the record of 77 as it
/// was before.
struct Overtaken<F>(Option<F>);

impl<F: FnOnce()> Picture for Overtaken<F> {
    fn begin(&mut self) {
        self.0.take().into_iter().for_each(|meanwhile| meanwhile());
    }

    fn of(&mut self, key_of: &[u8], _: &[u8]) -> pando_index::Result<Pictured> {
        Ok(match key_of == key(77) {
            true => Pictured::With(b"first".to_vec()),
            false => Pictured::AsItIs,
        })
    }
}

/// Between the time as of which a capture has records and its place, another thread writes the page
/// as of a later time: the earlier picture is not written.
#[test]
fn an_earlier_picture_does_not_come_behind_a_later_one() {
    let (fixture, source) = tree_with_short_page_of_77();
    let tree = &fixture.index;
    let changed = change_77(tree, &source);
    let mut picture = Overtaken(Some(|| {
        // Twice: then the page has as many parts as it may have.
        assert!(write_all(tree, &source));
        put(tree, 76, b"third");
        assert!(write_all(tree, &source));
        put(tree, 76, b"fourth");
    }));
    let written = tree.capture((&changed, false), &mut picture, |writes| {
        writes().map(|writes| source.0.write(writes)).is_some()
    });
    assert_eq!(written.expect("a slot").1, Some(false), "the capture is out of date");
    assert!(write_all(tree, &source));
    assert_eq!(reopened(&source), dump(tree));
}

/// A page that was loaded from several parts is written whole. One that has changed, or of which
/// only a part is there, is not: it would be written as a delta.
#[test]
fn a_page_that_is_written_again_has_one_part() {
    let (fixture, source) = tree_with(1024, 200);
    let tree = &fixture.index;
    assert!(write_all(tree, &source));
    evict_all(tree);
    put(tree, 17, b"second");
    assert!(write_all(tree, &source));
    let leaf = *source.0.images().iter().find(|(_, parts)| parts.len() > 1).expect("a delta").0;
    assert!(!tree.unmark(leaf).expect("a slot"), "it has a delta in the pool");
    evict_all(tree);
    assert!(!tree.unmark(leaf).expect("a slot"), "it is absent");
    put_blind(tree, 17, b"third");
    assert!(write_all(tree, &source));
    assert!(!tree.unmark(leaf).expect("a slot"), "it is a partial page");
    evict_all(tree);
    assert_eq!(get(tree, 17), Some(b"third".to_vec()));
    assert!(tree.unmark(leaf).expect("a slot"));
    assert_eq!(pages(tree, PageState::Changed), [leaf]);
    assert!(!tree.unmark(leaf).expect("a slot"), "it counts as changed");
    assert!(!tree.unmark(u32::MAX).expect("a slot"), "there is no such page");
    assert!(write_all(tree, &source));
    assert_eq!(source.0.images()[&leaf].len(), 1);
    check(&source);
    assert!(reopened(&source) == dump(tree));
}

/// Pages that lead to what cannot be there, and a page that is not there.
#[test]
fn damaged_images_are_errors_that_name_the_page() {
    let (fixture, source) = written();
    let tree = &fixture.index;
    evict_all(tree);
    let images = source.0.images().clone();
    let leaf = *images.keys().last().expect("pages");
    for (image, told) in [(Some(vec![1; 40]), "is damaged"), (None, "does not exist")] {
        match image {
            Some(image) => drop(source.0.images().insert(leaf, vec![image])),
            None => drop(source.0.images().remove(&leaf)),
        }
        let errors: Vec<String> =
            (0..200).filter_map(|number| Some(tree.get(&key(number)).err()?.to_string())).collect();
        assert!(!errors.is_empty() && errors.len() < 100, "other pages can be read");
        for error in errors {
            assert!(error.contains(&format!("page {leaf}")) && error.contains(told), "{error}");
        }
    }
    source.0.images().insert(leaf, images[&leaf].clone());
    assert_eq!(tree.len().expect("read"), 200);
    assert!(tree.audit().is_err(), "only a part could be walked");
}

/// A step of a thread.
type Step = fn(&Tree, &Source);

const STEPS: [(&str, Step); 12] = [
    ("get", |tree, _| assert!(get(tree, 17).is_some())),
    ("scan", |tree, _| {
        for order in [Order::Ascending, Order::Descending] {
            let mut cursor = tree.scan(KeyRange::all(), order).expect("a scan");
            let mut found = 0;
            while let Some((key, _)) = cursor.next().expect("a record") {
                found += usize::from(key < &[0, 0, 0, 0, 0, 0, 0, 20]);
            }
            assert!(found >= 20, "{order:?}: {found} of 20 keys that stay");
        }
    }),
    ("update", |tree, _| put(tree, 17, b"updated")),
    ("split", |tree, _| {
        (0..30).for_each(|number| {
            let between = [&key(17)[..], &[number]].concat();
            tree.upsert(&between, b"between").expect("written");
        });
    }),
    ("merge", |tree, _| {
        (20..60).for_each(|number| remove(tree, number));
    }),
    ("write", write_until_done),
    ("write and evict", |tree, source| {
        write_until_done(tree, source);
        evict_all(tree);
    }),
    ("update, write and evict", |tree, source| {
        put(tree, 17, b"other");
        write_until_done(tree, source);
        evict_all(tree);
    }),
    ("merge, write and evict", |tree, source| {
        (20..60).for_each(|number| remove(tree, number));
        write_until_done(tree, source);
        evict_all(tree);
    }),
    ("unmark, write and evict", |tree, source| {
        pages(tree, PageState::Written).into_iter().for_each(|number| {
            tree.unmark(number).expect("a slot");
        });
        write_until_done(tree, source);
        evict_all(tree);
    }),
    ("blind write", |tree, _| put_blind(tree, 17, b"blind")),
    ("blind writes, write and evict", |tree, source| {
        (15..22).for_each(|number| put_blind(tree, number, b"blind too"));
        write_until_done(tree, source);
        evict_all(tree);
    }),
];

/// The pages before the steps.
#[derive(Clone, Copy, Debug)]
enum Before {
    Changed,
    Evicted,
    Partial,
}

/// Each step, with each other one of another thread before its accesses to shared memory: the pages
/// that are written then are one tree, with the records that the pool has.
#[test]
fn steps_of_another_thread_between_two_accesses() {
    let mut interrupted = 0;
    for (name, step) in STEPS {
        for (other_name, other) in STEPS {
            for before in [Before::Changed, Before::Evicted, Before::Partial] {
                let mut access = 0;
                for round in 0.. {
                    let (fixture, source) = tree_of(60);
                    write_until_done(&fixture.index, &source);
                    match before {
                        Before::Changed => put(&fixture.index, 33, b"changed"),
                        Before::Evicted => evict_all(&fixture.index),
                        Before::Partial => {
                            evict_leaves(&fixture.index);
                            [16, 19, 33]
                                .into_iter()
                                .for_each(|number| put_blind(&fixture.index, number, b"first"));
                        }
                    }
                    let (tree, kept) = (fixture.another_handle(), source.clone());
                    let meanwhile = move || other(&tree, &kept);
                    let is_within = between(access, meanwhile, || step(&fixture.index, &source));
                    let what = format!("{before:?}: {name}, before access {access}: {other_name}");
                    write_until_done(&fixture.index, &source);
                    check(&source);
                    let found = dump(&fixture.index);
                    assert!(reopened(&source) == found, "{what}: the store has other records");
                    evict_all(&fixture.index);
                    assert!(dump(&fixture.index) == found, "{what}: other records were loaded");
                    if !is_within {
                        break;
                    }
                    interrupted += 1;
                    // Each of the first accesses, and then fewer.
                    access += 1 + round;
                }
            }
        }
    }
    assert!(interrupted > 1000, "{interrupted}");
}
