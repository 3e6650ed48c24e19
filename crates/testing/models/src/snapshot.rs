//! The cut of a snapshot (`pando-tc/src/snapshot.rs`, whose first page says why it holds).
//!
//! A snapshot sees exactly the commits with an LSN up to its cut, and the same in each read. A read
//! that lacks a value finds the snapshot revoked. `component.rs` has the steps.
//!
//! | ordering | pairs with | what that ensures |
//! | --- | --- | --- |
//! | the fence of `is_empty`, after the append | the fence of `Entry::cut`, after the registration | the commit sees the snapshot, or the cut is not below the commit's LSN |
//! | the release of an install | the acquiring load of the key | a reader that finds a version behind its cut finds the value that is kept |
//! | the release of `fix` | the acquiring load of the cut | a snapshot finds all records up to a cut that another thread has fixed |
//! | the release of `ended_lsn` | its acquiring load | a thread that settles nothing finds the commits ended |
//! | the release of `take_out` | the acquiring load of the count in `is_empty` | a reader that finds a write of a commit that has not found the snapshot sees it revoked |
//! | the release of a removed version | the fence of `check_live` | a reader that lacks a value that was freed sees the snapshot revoked |
//!
//! The state of a snapshot needs no ordering of its own. A thread that has loaded *revoked* comes
//! before the reader that finds its write, and a later load of the same word sees no older value.

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed};
use loom::thread;

use crate::component::{AS_WRITTEN, COMMITTED, Code, Commit, Component, FIRST, FIRST_VALUE};
use crate::explore;

type Shared = Arc<Component>;

fn spawn<T: 'static>(
    component: &Shared,
    run: impl FnOnce(&Component) -> T + 'static,
) -> thread::JoinHandle<T> {
    let component = component.clone();
    thread::spawn(move || run(&component))
}

/// A snapshot that a thread has taken, and its reads of some keys, from key 0 on.
struct Seen<const KEYS: usize> {
    cut: u64,
    values: [Option<u64>; KEYS],
}

/// Takes a snapshot, and reads the keys.
fn look<const KEYS: usize>(component: &Component, entry: usize) -> Seen<KEYS> {
    let cut = component.take_snapshot(entry).expect("no thread revokes it");
    Seen { cut, values: std::array::from_fn(|key| component.get((cut, entry), key)) }
}

impl<const KEYS: usize> Seen<KEYS> {
    /// Fails unless each value is that of the commits up to the cut. All threads have ended.
    fn check(&self, component: &Component) {
        let expected = std::array::from_fn(|key| Some(component.expected(self.cut, key)));
        assert_eq!(self.values, expected, "at {}", self.cut);
    }
}

/// A snapshot, and a commit.
fn one_commit(code: Code) {
    explore(Some(3), move || {
        let component = Component::new(code);
        let writer = spawn(&component, |component| component.replace(1, 0));
        let seen = look::<1>(&component, 0);
        let again = component.get((seen.cut, 0), 0);
        assert_eq!(writer.join().unwrap(), COMMITTED);
        seen.check(&component);
        assert_eq!(seen.values, [again]);
    });
}

/// A snapshot, and two commits of the key: the second one may find the old value kept.
fn two_commits(code: Code) {
    explore(Some(2), move || {
        let component = Component::new(code);
        let writer = spawn(&component, |component| [1, 2].map(|at| component.replace(at, 0)));
        let seen = look::<1>(&component, 0);
        assert_eq!(writer.join().unwrap(), [COMMITTED; 2]);
        seen.check(&component);
    });
}

/// Two snapshots of one thread, and a commit.
fn two_snapshots(code: Code) {
    explore(Some(2), move || {
        let component = Component::new(code);
        let writer = spawn(&component, |component| component.replace(1, 0));
        let seen = [0, 1].map(|entry| look::<1>(&component, entry));
        let again = component.get((seen[0].cut, 0), 0);
        assert_eq!(writer.join().unwrap(), COMMITTED);
        for seen in &seen {
            seen.check(&component);
        }
        assert_eq!(seen[0].values, [again]);
    });
}

/// A snapshot, a commit, and a thread that looks for snapshots and so may fix the cut.
fn cut_of_another(code: Code, preemptions: usize) {
    explore(Some(preemptions), move || {
        let component = Component::new(code);
        let writer = spawn(&component, |component| component.replace(1, 0));
        let other = spawn(&component, |component| drop(component.before(u64::MAX)));
        let seen = look::<1>(&component, 0);
        assert_eq!(writer.join().unwrap(), COMMITTED);
        other.join().unwrap();
        seen.check(&component);
    });
}

/// A snapshot while another one is released, by a thread that fixes the cut of both and commits.
fn released_snapshot(code: Code) {
    explore(Some(2), move || {
        let component = Component::new(code);
        component.take_snapshot(1).expect("no thread revokes it");
        let writer = spawn(&component, |component| {
            component.before(u64::MAX);
            component.take_out(1);
            component.replace(1, 0)
        });
        let seen = look::<1>(&component, 0);
        assert_eq!(writer.join().unwrap(), COMMITTED);
        seen.check(&component);
    });
}

/// A commit whose thread has stopped, a snapshot, and a commit of another key.
fn stopped_commit(code: Code) {
    explore(Some(2), move || {
        let component = Component::new(code);
        component.append(1, Commit { key: 0, old: FIRST, read: None });
        let writer = spawn(&component, |component| component.replace(2, 1));
        let seen = look::<2>(&component, 0);
        assert_eq!(writer.join().unwrap(), COMMITTED);
        seen.check(&component);
    });
}

/// A snapshot sees a commit that comes after another one, and does not see that one.
const TORN: [Option<u64>; 2] = [Some(1), Some(FIRST_VALUE)];

/// A commit whose thread has stopped, a snapshot, and a commit that reads what the first replaces.
fn dependent_commit(code: Code) {
    explore(Some(2), move || {
        let component = Component::new(code);
        component.append(1, Commit { key: 0, old: FIRST, read: None });
        let writer = spawn(&component, |component| {
            let read = component.find(0);
            if read == FIRST {
                component.append(2, Commit { key: 1, old: FIRST, read: Some(read) });
                component.complete(2);
            }
            read == FIRST
        });
        let seen = look::<2>(&component, 0);
        let is_committed = writer.join().unwrap() && component.status(2) == COMMITTED;
        seen.check(&component);
        assert!(!is_committed || seen.values != TORN);
    });
}

/// The same, with a transaction that only reads.
fn dependent_reader(code: Code) {
    explore(Some(1), move || {
        let component = Component::new(code);
        component.append(1, Commit { key: 0, old: FIRST, read: None });
        let writer = spawn(&component, |component| component.replace(2, 1));
        let reader = spawn(&component, |component| {
            let reads = [1, 0].map(|key| (key, component.find(key)));
            component.is_valid(&reads, None).then(|| reads.map(|(_, version)| version.value))
        });
        let seen = look::<2>(&component, 0);
        assert_eq!(writer.join().unwrap(), COMMITTED);
        let read = reader.join().unwrap();
        assert!(seen.values != TORN || read != Some([2, FIRST_VALUE]));
    });
}

/// A commit whose thread has stopped; one that replaces the same version, and fails; a third one;
/// and a snapshot.
fn failed_commit(code: Code) {
    explore(Some(2), move || {
        let component = Component::new(code);
        component.append(1, Commit { key: 0, old: FIRST, read: None });
        let writer = spawn(&component, |component| {
            component.append(2, Commit { key: 0, old: FIRST, read: None });
            component.complete(2);
            component.replace(3, 0)
        });
        let seen = look::<1>(&component, 0);
        assert_eq!(writer.join().unwrap(), COMMITTED);
        seen.check(&component);
    });
}

/// A snapshot is revoked while it is read and a commit replaces a version. The thread that revokes
/// it takes it out of the list, or frees the version that is kept.
fn revoked(code: Code, frees: bool) {
    explore(Some(2), move || {
        let component = Component::new(code);
        let cut = component.take_snapshot(0).expect("no thread revokes it");
        let writer = spawn(&component, |component| component.replace(1, 0));
        let other = spawn(&component, move |component| {
            component.revoke(0);
            match frees {
                true => component.free_versions(0, 0),
                false => component.take_out(0),
            }
        });
        let seen = component.get((cut, 0), 0);
        assert_eq!(writer.join().unwrap(), COMMITTED);
        other.join().unwrap();
        assert!(seen.is_none_or(|seen| seen == FIRST_VALUE), "{seen:?}");
    });
}

model_tests! { one_commit, AS_WRITTEN;
    holds fn a_snapshot_sees_the_commits_up_to_its_cut {}
    fails fn a_commit_of_one_key_looks_whether_its_version_is_needed { looks_at_stamp: false }
    fails fn a_commit_looks_behind_its_fence { look_fenced: false }
    fails fn a_cut_is_fixed_behind_its_fence { cut_fenced: false }
    fails fn a_commit_looks_after_it_is_appended { looks_late: false }
    fails fn a_cut_is_fixed_after_the_registration { cuts_late: false }
    fails fn a_snapshot_settles_what_it_sees { settles: [false, true] }
    fails fn a_value_is_kept_before_it_is_replaced { keeps_first: false }
    fails fn an_append_must_release { append: Acquire }
    fails fn an_install_must_release { install: Acquire }
    fails fn a_key_is_loaded_with_acquire { find: Relaxed }
    fails fn a_cut_is_loaded_with_acquire { cut_load: Relaxed }
}

model_tests! { two_commits, AS_WRITTEN;
    holds fn a_value_is_kept_once {}
}

model_tests! { two_snapshots, AS_WRITTEN;
    holds fn two_snapshots_agree {}
}

model_tests! { |code| cut_of_another(code, 2), AS_WRITTEN;
    holds fn another_thread_may_fix_the_cut {}
}

model_tests! { released_snapshot, AS_WRITTEN;
    holds fn a_released_snapshot_hides_no_other {}
    fails fn a_snapshot_is_counted_before_it_is_listed { counts_first: false }
}

model_tests! { stopped_commit, AS_WRITTEN;
    holds fn a_snapshot_sees_a_commit_whose_thread_has_stopped {}
    fails fn ended_commits_are_published_with_release { end: Relaxed }
}

model_tests! { dependent_commit, AS_WRITTEN;
    holds fn a_commit_that_is_not_seen_comes_before_none_that_is {}
    fails fn a_commit_settles_what_a_snapshot_sees { settles: [true, false] }
}

model_tests! { dependent_reader, AS_WRITTEN;
    holds fn a_reader_of_a_commit_that_is_not_seen_sees_those_that_are {}
    fails fn a_commit_settles_what_a_snapshot_sees_for_readers_too { settles: [true, false] }
}

model_tests! { failed_commit, AS_WRITTEN;
    holds fn a_kept_value_is_the_one_at_the_cut {}
    fails fn ended_commits_are_loaded_with_acquire { ended: Relaxed }
    fails fn a_value_is_kept_only_if_the_key_has_it { looks_at_key: false }
}

model_tests! { |code| cut_of_another(code, 3), AS_WRITTEN;
    fails fn a_cut_is_fixed_with_release { fix: Acquire }
}

#[test]
fn a_read_that_lacks_a_value_finds_the_snapshot_revoked() {
    for frees in [false, true] {
        revoked(AS_WRITTEN, frees);
    }
}

model_tests! { |code| revoked(code, false), AS_WRITTEN;
    fails fn a_read_looks_last_whether_it_is_revoked { checks_last: false }
    fails fn a_snapshot_is_taken_out_with_release { take_out: Relaxed }
    fails fn the_list_is_changed_with_release { list: Acquire }
}

model_tests! { |code| revoked(code, true), AS_WRITTEN;
    fails fn a_read_looks_behind_its_fence_whether_it_is_revoked { check_fenced: false }
}

/// Loom's fence in `check_live` would hide the mutant: it acquires what the commit has read.
const UNFENCED: Code = Code { check_fenced: false, ..AS_WRITTEN };

model_tests! { |code| revoked(code, false), UNFENCED;
    holds fn without_that_fence_a_snapshot_that_is_taken_out_is_seen_revoked {}
    fails fn a_commit_loads_the_count_with_acquire { look: Relaxed }
}
