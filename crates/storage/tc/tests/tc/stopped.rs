//! A thread that stops for ever, or for a while, before each write of its commit.

use std::sync::{Arc, Barrier};
use std::thread;

use pando_pmem::Domain;
use pando_pmem::testing::{Paused, run_until_stopped, written_back};
use pando_tc::{Error, Maps};

use crate::common::{
    BEFORE, Component, Kind, OTHERS, Records, Stopped, WRITES, Write, anonymous, anonymous_of,
    bztree, check, churn, commit, dump, with,
};
use crate::over_each_index;

over_each_index!(Stopped:
    a_stopped_commit_lets_each_other_fail_at_most_once,
    a_commit_that_goes_on_late_leaves_all_or_nothing,
    a_commit_that_goes_on_after_all_was_settled_leaves_nothing_else,
    a_late_install_comes_to_nothing,
    a_key_is_not_absent_while_a_late_install_may_come,
    a_tombstone_that_a_scan_has_passed_is_removed_by_the_commits_of_others,
    a_version_that_replaces_a_failed_one_stays,
    a_read_makes_a_decision_durable_until_it_is_settled,
);

fn a_stopped_commit_lets_each_other_fail_at_most_once<D: Domain>(kind: Kind<D>) {
    let before = with(&Records::new(), BEFORE);
    for writes in 0.. {
        let component = Arc::new(anonymous(kind));
        commit(&component, BEFORE).expect("commits");
        let theirs = component.clone();
        let has_ended = run_until_stopped(writes, move || {
            commit(&theirs, WRITES).expect("commits");
        });
        let found = dump(&component);
        let is_known = found == before || found == with(&before, WRITES);
        assert!(is_known, "stopped before write {writes}: {found:?}");
        let mut done = commit(&component, OTHERS);
        if let Err(Error::Conflict { .. }) = done {
            done = commit(&component, OTHERS);
        }
        done.expect("the second time at the latest");
        let found = dump(&component);
        let expected = [with(&before, OTHERS), with(&with(&before, WRITES), OTHERS)];
        assert!(expected.contains(&found), "stopped before write {writes}: {found:?}");
        check(&component);
        if has_ended {
            break;
        }
    }
}

/// The thread that decided a commit may have stopped before it wrote the decision back.
fn a_read_makes_a_decision_durable_until_it_is_settled<D: Domain>(kind: Kind<D>) {
    let component = anonymous(kind);
    let newest = commit(&component, BEFORE).expect("commits");
    let get = || component.get(0, b"a").expect("reads");
    // What the index has to write back is written back after this.
    get();
    let (value, lines) = written_back(get);
    assert!(value.is_some() && !lines.is_empty(), "the decision was not written back");
    component.sync(newest).expect("settled");
    let (value, lines) = written_back(get);
    assert!(value.is_some() && lines.is_empty(), "{lines:?}");
}

/// The thread pauses; another one writes the same keys; then it goes on.
fn a_commit_that_goes_on_late_leaves_all_or_nothing<D: Domain>(kind: Kind<D>) {
    goes_on_late(kind, &|component| {
        if commit(component, OTHERS).is_err() {
            commit(component, OTHERS).expect("the second time at the latest");
        }
    });
}

/// The same, but its record is settled before it goes on, and its place in the tail is free.
fn a_commit_that_goes_on_after_all_was_settled_leaves_nothing_else<D: Domain>(kind: Kind<D>) {
    goes_on_late(kind, &|component| {
        if commit(component, OTHERS).is_err() {
            commit(component, OTHERS).expect("the second time at the latest");
        }
        let lsn = component.log().newest_lsn(&component.log().pool().pin().expect("a slot"));
        component.sync(lsn).expect("settled");
    });
}

fn goes_on_late<D: Domain>(kind: Kind<D>, others: &dyn Fn(&Component<D>)) {
    let before = with(&Records::new(), BEFORE);
    for writes in 0.. {
        let component = Arc::new(anonymous(kind));
        commit(&component, BEFORE).expect("commits");
        let theirs = component.clone();
        let late = Paused::start(writes, move || commit(&theirs, WRITES));
        let has_ended = late.is_done();
        if !has_ended {
            others(&component);
        }
        let between = dump(&component);
        let committed = late.resume();
        let found = dump(&component);
        let own_then_others = with(&with(&before, WRITES), OTHERS);
        let others_then_own = with(&with(&before, OTHERS), WRITES);
        match committed {
            Ok(_) if has_ended => assert_eq!(found, with(&before, WRITES)),
            Ok(_) => assert!(
                found == own_then_others || (found == others_then_own && between != found),
                "paused before write {writes}: {found:?}"
            ),
            Err(Error::Conflict { .. }) => assert_eq!(found, with(&before, OTHERS)),
            Err(error) => panic!("{error}"),
        }
        check(&component);
        // Nothing of it comes to light later.
        commit(&component, BEFORE).expect("it is alone");
        assert_eq!(dump(&component), with(&found, BEFORE));
        if has_ended {
            break;
        }
    }
}

/// A commit pauses before one of its installs, and fails there: another one, which came before it,
/// has read what it replaces. All is settled. Then it goes on a little, and stops for good.
fn a_late_install_comes_to_nothing<D: Domain>(kind: Kind<D>) {
    const KEYS: &[Write] = &[(0, b"a", Some(b"0")), (0, b"b", Some(b"0")), (1, b"d", Some(b"0"))];
    const LATE: &[Write] =
        &[(0, b"a", Some(b"1")), (0, b"b", Some(b"1")), (0, b"c", Some(b"1")), (1, b"d", None)];
    let newest = |component: &Component<D>| {
        component.log().newest_lsn(&component.log().pool().pin().expect("a slot"))
    };
    // Of the earlier one: it has its LSN, and has validated nothing yet.
    let start_earlier = |component: &Arc<Component<D>>, writes| {
        let theirs = component.clone();
        Paused::start(writes, move || {
            let mut transaction = theirs.begin();
            transaction.get(0, b"a")?;
            transaction.put(1, b"e", b"2")?;
            transaction.commit()
        })
    };
    let mut appended = 0;
    for writes in 0.. {
        let component = Arc::new(anonymous(kind));
        commit(&component, KEYS).expect("commits");
        let before = newest(&component);
        let earlier = start_earlier(&component, writes);
        let has_ended = earlier.is_done();
        let is_appended = newest(&component) > before;
        earlier.resume().expect("it is alone");
        if is_appended {
            appended = writes;
            break;
        }
        assert!(!has_ended);
    }
    let before = with(&Records::new(), &[KEYS, &[(1, b"e", Some(b"2"))]].concat());
    let mut failed = 0;
    for writes in 0.. {
        for more in 1..12 {
            let component = Arc::new(anonymous(kind));
            commit(&component, KEYS).expect("commits");
            // The value with its stamp.
            let a = || component.maps().map(0).expect("the map").get(b"a").expect("reads");
            let a_before = a();
            let earlier = start_earlier(&component, appended);
            assert!(!earlier.is_done());
            let theirs = component.clone();
            let late = Paused::start(writes, move || commit(&theirs, LATE).is_ok());
            let has_ended = late.is_done();
            let is_installed = a() != a_before;
            let is_first = earlier.resume().is_ok();
            component.sync(newest(&component)).expect("settled");
            if has_ended {
                assert!(late.resume(), "it came before the other one");
                assert!(failed > 0, "it never failed while it was paused");
                return;
            }
            // It was decided before it paused, or the other one has not met it.
            if !is_first || !is_installed {
                late.resume();
                break;
            }
            late.go_on_for(more);
            let is_over = late.is_done();
            failed += 1;
            assert_eq!(dump(&component), before, "paused before write {writes}, then after {more}");
            if is_over {
                break;
            }
        }
    }
}

/// A commit fails, and pauses in its undo, or anywhere before. Another commit replaces a version of
/// it. Then the undo goes on.
fn a_version_that_replaces_a_failed_one_stays<D: Domain>(kind: Kind<D>) {
    let other: &[Write] = &[(0, b"a", Some(b"3"))];
    let read: &[Write] = &[(1, b"c", Some(b"2"))];
    let expected = with(&with(&with(&Records::new(), BEFORE), read), other);
    for writes in 0.. {
        let component = Arc::new(anonymous(kind));
        commit(&component, BEFORE).expect("commits");
        let theirs = component.clone();
        let late = Paused::start(writes, move || {
            let mut transaction = theirs.begin();
            transaction.get(1, b"c")?;
            // What it has read changes, so it fails when all is installed.
            commit(&theirs, read)?;
            transaction.put(0, b"a", b"1")?;
            transaction.put(0, b"b", b"1")?;
            transaction.commit()
        });
        let has_ended = late.is_done();
        if commit(&component, other).is_err() {
            commit(&component, other).expect("the second time at the latest");
        }
        late.resume().expect_err("what it has read has changed");
        assert_eq!(dump(&component), expected, "paused before write {writes}");
        component.settle().expect("settles");
        assert_eq!(dump(&component), expected, "paused before write {writes}");
        check(&component);
        if has_ended {
            break;
        }
    }
}

/// A thread scans, and commits nothing. The one that has removed the key commits nothing more.
fn a_tombstone_that_a_scan_has_passed_is_removed_by_the_commits_of_others<D: Domain>(
    kind: Kind<D>,
) {
    let component = anonymous(kind);
    let barrier = Barrier::new(3);
    let raw = thread::scope(|scope| {
        scope.spawn(|| {
            commit(&component, &[(0, b"n", Some(b"1"))]).expect("commits");
            commit(&component, &[(0, b"n", None)]).expect("commits");
            component.settle().expect("settles");
            barrier.wait();
            // It keeps its slot meanwhile, like the other one.
            barrier.wait();
            barrier.wait();
        });
        scope.spawn(|| {
            barrier.wait();
            dump(&component);
            barrier.wait();
            barrier.wait();
        });
        barrier.wait();
        barrier.wait();
        churn(&component);
        let raw = component.maps().map(0).expect("the map").get(b"n");
        barrier.wait();
        raw
    });
    assert_eq!(raw.expect("reads"), None);
}

/// A commit that inserts a key pauses. Others complete it, and remove the key. Its tombstone stays
/// until the first one has ended.
fn a_key_is_not_absent_while_a_late_install_may_come<D: Domain>(kind: Kind<D>) {
    let newest = |component: &Component<D>| {
        component.log().newest_lsn(&component.log().pool().pin().expect("a slot"))
    };
    let raw = |component: &Component<D>| {
        component.maps().map(0).expect("the map").get(b"n").expect("reads")
    };
    for writes in 0.. {
        let component = Arc::new(anonymous(kind));
        commit(&component, &[(1, b"y", Some(b"1"))]).expect("commits");
        let before = newest(&component);
        let theirs = component.clone();
        let late = Paused::start(writes, move || commit(&theirs, &[(0, b"n", Some(b"1"))]));
        let (has_ended, is_appended) = (late.is_done(), newest(&component) > before);
        for value in [Some(&b"2"[..]), None] {
            if commit(&component, &[(0, b"n", value)]).is_err() {
                commit(&component, &[(0, b"n", value)]).expect("the second time at the latest");
            }
        }
        churn(&component);
        if is_appended && !has_ended {
            assert_eq!(raw(&component).map(|found| found.len()), Some(16), "{writes}");
        }
        let is_committed = late.resume().is_ok();
        // If it was not appended before, it comes last.
        let expected = (is_committed && !is_appended).then(|| b"1".to_vec());
        assert_eq!(
            component.get(0, b"n").expect("reads"),
            expected,
            "paused before write {writes}"
        );
        churn(&component);
        assert_eq!(raw(&component).is_some(), expected.is_some(), "paused before write {writes}");
        check(&component);
        if has_ended {
            break;
        }
    }
}

/// A commit pauses in its first install, and what it has read changes. One helper stops in its
/// middle, then another one. Then the commit goes on, and finds some of its writes undone.
#[test]
fn helpers_that_stop_in_an_undo_leave_all_of_it_to_the_next() {
    const KEYS: &[Write] = &[(0, b"a", Some(b"0")), (0, b"b", Some(b"0")), (1, b"r", Some(b"0"))];
    let newest = |component: &Component<Stopped>| {
        component.log().newest_lsn(&component.log().pool().pin().expect("a slot"))
    };
    // Paused before a write, with the component.
    let start = |writes| {
        let component = Arc::new(anonymous_of(bztree::<Stopped>(), 4 << 20));
        commit(&component, KEYS).expect("commits");
        let theirs = component.clone();
        let late = Paused::start(writes, move || {
            let mut transaction = theirs.begin();
            transaction.get(1, b"r")?;
            transaction.put(0, b"a", b"1")?;
            transaction.put(0, b"b", b"1")?;
            transaction.commit()
        });
        assert!(!late.is_done());
        (component, late)
    };
    let has_appended = |writes: &u64| {
        let (component, late) = start(*writes);
        let before = newest(&component);
        late.resume().expect("it is alone");
        newest(&component) == before
    };
    let appended = (0..).find(has_appended).expect("it appends");
    let expected = with(&with(&Records::new(), KEYS), &[(1, b"r", Some(b"2"))]);
    let settle = |component: &Arc<Component<Stopped>>, writes| {
        let theirs = component.clone();
        Paused::start(writes, move || theirs.log().write_block(&*theirs).is_ok())
    };
    // Right before its first install.
    let raw = |component: &Component<Stopped>| {
        component.maps().map(0).expect("the map").get(b"a").expect("reads")
    };
    let is_installed = |writes: &u64| {
        let (component, late) = start(*writes);
        let found = raw(&component);
        late.resume().expect("it is alone");
        found.is_some_and(|value| value.ends_with(b"1"))
    };
    let paused = (appended..).find(is_installed).expect("it installs") - 1;
    for first in 0.. {
        let mut has_ended = false;
        for second in 0.. {
            let (component, late) = start(paused);
            commit(&component, &[(1, b"r", Some(b"2"))]).expect("it is not in its way");
            let helpers = [first, second].map(|writes| {
                let helper = settle(&component, writes);
                (helper.is_done(), helper)
            });
            late.resume().expect_err("what it has read has changed");
            component.sync(newest(&component)).expect("settled");
            assert_eq!(dump(&component), expected, "stopped before writes {first} and {second}");
            let has_second_ended = helpers[1].0;
            has_ended = helpers[0].0;
            for (_, helper) in helpers {
                assert!(helper.resume(), "it comes late");
            }
            assert_eq!(dump(&component), expected, "stopped before writes {first} and {second}");
            if has_second_ended {
                break;
            }
        }
        if has_ended {
            break;
        }
    }
}
