//! Two transactions that meet: one runs before each access of the other.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pando_index::{KeyRange, Order};
use pando_pmem::Domain;
use pando_pmem::testing::between;
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_tc::{Error, Result};

use crate::common::{Component, Kind, Records, Stopped, anonymous, bztree, check, commit, dump};
use crate::over_each_index;

over_each_index!(Stopped:
    two_transactions_that_read_what_the_other_writes,
    two_transactions_that_insert_into_what_the_other_scanned,
    two_transactions_that_write_the_same_keys,
    a_read_sees_all_of_a_commit_or_nothing,
    a_transaction_that_only_reads_sees_the_order_of_the_others,
);

/// Another commit comes between each attempt's read and its commit.
#[test]
fn a_transaction_that_always_conflicts_ends_after_1024_attempts() {
    let component = anonymous(bztree::<Stopped>());
    let mut attempts = 0;
    let result = component.transaction(|transaction| {
        attempts += 1;
        transaction.get(0, b"a")?;
        transaction.put(1, b"b", b"1")?;
        commit(&component, &[(0, b"a", Some(b"2"))])
    });
    let is_conflict =
        matches!(&result, Err(Error::Conflict { map: 0, key }) if key.as_slice() == b"a");
    assert!(is_conflict, "{result:?}");
    assert_eq!(attempts, 1_024);
    let records = dump(&component);
    assert_eq!(records, Records::from([((0, b"a".to_vec()), b"2".to_vec())]));
    check(&component);
}

/// Runs `first` once for each of its accesses, and `second` in another thread before that access.
/// `after` gets whether each of them committed.
fn meet<D: Domain>(
    kind: Kind<D>,
    first: fn(&Component<D>) -> Result<u64>,
    second: fn(&Component<D>) -> Result<u64>,
    after: fn(&Component<D>, [bool; 2]),
) {
    let mut both = 0;
    for access in 0.. {
        let component = Arc::new(anonymous(kind));
        commit(&component, &[(0, b"a", Some(b"0")), (1, b"b", Some(b"0"))]).expect("commits");
        let (theirs, committed) = (component.clone(), Arc::new(AtomicU64::new(0)));
        let theirs_committed = committed.clone();
        let others = move || {
            let has_committed = u64::from(second(&theirs).is_ok());
            theirs_committed.store(1 + has_committed, Ordering::SeqCst);
        };
        let mut own = false;
        let is_met = between(access, others, || own = first(&component).is_ok());
        if !is_met {
            assert!(own, "a transaction alone commits");
            break;
        }
        let second = committed.load(Ordering::SeqCst) == 2;
        both += u64::from(own && second);
        after(&component, [own, second]);
        check(&component);
        // Each can be repeated, whatever was left behind.
        first(&component).expect("it is alone");
        assert!(dump(&component).len() >= 2);
    }
    assert!(both > 0, "one after the other both commit");
}

/// Adds one to what it reads at one key, and writes that to the other.
fn add<D: Domain>(component: &Component<D>, from: (u64, &[u8]), to: (u64, &[u8])) -> Result<u64> {
    let mut transaction = component.begin();
    let read = transaction.get(from.0, from.1)?.unwrap_or_default();
    transaction.put(to.0, to.1, &[read[0] + 1])?;
    transaction.commit()
}

fn two_transactions_that_read_what_the_other_writes<D: Domain>(kind: Kind<D>) {
    meet(
        kind,
        |component| add(component, (0, b"a"), (1, b"b")),
        |component| add(component, (1, b"b"), (0, b"a")),
        |component, [first, second]| {
            let values: Vec<u8> = dump(component).values().map(|value| value[0]).collect();
            let allowed: &[[u8; 2]] = match (first, second) {
                (true, true) => &[[b'2', b'1'], [b'1', b'2']],
                (true, false) => &[[b'0', b'1']],
                (false, true) => &[[b'1', b'0']],
                (false, false) => &[[b'0', b'0']],
            };
            assert!(allowed.iter().any(|pair| values == pair), "{first} {second}: {values:?}");
        },
    );
}

/// Counts the keys of one map that begin with `n`, and writes one more with that number.
fn insert_counted<D: Domain>(component: &Component<D>, scanned: u64, order: Order) -> Result<u64> {
    let mut transaction = component.begin();
    let mut count = 0;
    transaction.scan(scanned, KeyRange::prefix(b"n"), order, &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    transaction.put(1 - scanned, &[b'n', b'0' + count], &[count])?;
    transaction.commit()
}

fn two_transactions_that_insert_into_what_the_other_scanned<D: Domain>(kind: Kind<D>) {
    meet(
        kind,
        |component| insert_counted(component, 0, Order::Ascending),
        |component| insert_counted(component, 1, Order::Descending),
        |component, [first, second]| {
            let inserted: Vec<_> = dump(component)
                .into_keys()
                .filter(|(_, key)| key[0] == b'n')
                .map(|(map, key)| (map, key[1] - b'0'))
                .collect();
            let allowed: &[&[(u64, u8)]] = match (first, second) {
                (true, true) => &[&[(0, 1), (1, 0)], &[(0, 0), (1, 1)]],
                (true, false) => &[&[(1, 0)]],
                (false, true) => &[&[(0, 0)]],
                (false, false) => &[&[]],
            };
            assert!(allowed.contains(&&inserted[..]), "{first} {second}: {inserted:?}");
        },
    );
}

fn two_transactions_that_write_the_same_keys<D: Domain>(kind: Kind<D>) {
    meet(
        kind,
        |component| {
            commit(component, &[(0, b"a", None), (0, b"c", Some(b"1")), (1, b"b", Some(b"1"))])
        },
        |component| {
            commit(component, &[(0, b"a", Some(b"2")), (0, b"c", Some(b"2")), (1, b"b", None)])
        },
        |component, [first, second]| {
            let record = |map, key: &[u8], value: &[u8]| ((map, key.to_vec()), value.to_vec());
            let of_first = Records::from([record(0, b"c", b"1"), record(1, b"b", b"1")]);
            let of_second = Records::from([record(0, b"a", b"2"), record(0, b"c", b"2")]);
            let before = Records::from([record(0, b"a", b"0"), record(1, b"b", b"0")]);
            let found = dump(component);
            let is_allowed = match (first, second) {
                (true, true) => found == of_first || found == of_second,
                (true, false) => found == of_first,
                (false, true) => found == of_second,
                (false, false) => found == before,
            };
            assert!(is_allowed, "{first} {second}: {found:?}");
        },
    );
}

/// A transaction that reads both keys sees both writes of another one, or neither; and so do two
/// reads in turn, of which the first sees it.
fn a_read_sees_all_of_a_commit_or_nothing<D: Domain>(kind: Kind<D>) {
    for access in 0.. {
        let component = Arc::new(anonymous(kind));
        commit(&component, &[(0, b"a", Some(b"0")), (1, b"b", Some(b"0"))]).expect("commits");
        let theirs = component.clone();
        let seen = Arc::new(AtomicU64::new(u64::MAX));
        let theirs_seen = seen.clone();
        let others = move || {
            // Single reads: the second is not older than the first.
            let get = |map, key: &[u8]| theirs.get(map, key).expect("reads").expect("there");
            let (a, b) = (get(0, b"a"), get(1, b"b"));
            assert!(a <= b, "{a:?} {b:?}");
            let values: Vec<_> = dump(&theirs).into_values().collect();
            assert!(values == [b"0", b"0"] || values == [b"1", b"1"], "{values:?}");
            assert!(a <= values[0]);
            theirs_seen.store(u64::from(values[0][0]), Ordering::SeqCst);
        };
        let is_met = between(access, others, || {
            commit(&component, &[(0, b"a", Some(b"1")), (1, b"b", Some(b"1"))])
                .expect("nothing else is written");
        });
        if !is_met {
            break;
        }
        assert_ne!(seen.load(Ordering::SeqCst), u64::MAX);
    }
}

/// The first transaction reads `a` and writes `b`. Before each of its accesses, another one
/// replaces `a`, and a third one, which only reads, sees that. If the first one has read the old
/// `a`, it comes before the second, and so before the third, which must not see the old `b`.
fn a_transaction_that_only_reads_sees_the_order_of_the_others<D: Domain>(kind: Kind<D>) {
    let mut both = 0;
    for access in 0.. {
        let component = Arc::new(anonymous(kind));
        commit(&component, &[(0, b"a", Some(b"0")), (1, b"b", Some(b"0"))]).expect("commits");
        let (theirs, seen) = (component.clone(), Arc::new(Mutex::new(None)));
        let their_seen = seen.clone();
        let others = move || {
            commit(&theirs, &[(0, b"a", Some(b"1"))]).expect("the first has not written it");
            let mut third = theirs.begin();
            let read = [(0, b"a"), (1, b"b")].map(|(map, key)| third.get(map, key));
            if third.commit().is_ok() {
                let read = read.map(|value| value.expect("reads").expect("there")[0]);
                *their_seen.lock().expect("a lock") = Some(read);
            }
        };
        let mut first = None;
        let is_met = between(access, others, || {
            let mut transaction = component.begin();
            let read = transaction.get(0, b"a").expect("reads").expect("there")[0];
            transaction.put(1, b"b", b"2").expect("fits");
            first = transaction.commit().is_ok().then_some(read);
        });
        let third = *seen.lock().expect("a lock");
        assert!(
            !(first == Some(b'0') && third == Some([b'1', b'0'])),
            "before access {access}: the third comes before the first, and behind it"
        );
        both += u64::from(first.is_some() && third.is_some());
        if !is_met {
            break;
        }
    }
    assert!(both > 0, "sometimes all commit");
}

/// Settles all commits; returns whether that succeeded.
fn settle<D: Domain>(component: &Component<D>) -> bool {
    let newest = component.log().newest_lsn(&component.log().pool().pin().expect("a slot"));
    component.sync(newest).is_ok()
}

/// A read has found a version in flight; then its commit fails, for want of room, and is undone and
/// settled; then the read goes on.
#[test]
fn a_version_that_is_undone_meanwhile_is_not_read() {
    const LONG: &[u8] = &[7; 3_000];
    let mut undone = 0;
    for access in (0..).step_by(3) {
        // Whether the commit had that access.
        let mut is_met = false;
        for read in 0_u64.. {
            let component = Arc::new(anonymous(bztree::<Stopped>()));
            commit(&component, &[(0, b"a", Some(b"0"))]).expect("commits");
            let (theirs, outcome) = (component.clone(), Arc::new(Mutex::new((false, false))));
            let their_outcome = outcome.clone();
            let reader = move || {
                let (others, is_undone) = (theirs.clone(), Arc::new(AtomicBool::new(false)));
                let note = is_undone.clone();
                let undo = move || {
                    let (is_done, _) = refuse(Resource::Block, 0, u64::MAX, || settle(&others));
                    note.store(!is_done && settle(&others), Ordering::SeqCst);
                };
                let mut value = None;
                let has_read = between(read, undo, || value = theirs.get(0, b"a").expect("reads"));
                let now = theirs.get(0, b"a").expect("reads");
                let is_undone = is_undone.load(Ordering::SeqCst) && now.as_deref() == Some(b"0");
                assert!(!is_undone || value == now, "{value:?}");
                *their_outcome.lock().expect("a lock") = (has_read, is_undone);
            };
            is_met = between(access, reader, || {
                drop(commit(&component, &[(0, b"a", Some(b"1")), (0, b"b", Some(LONG))]));
            });
            let outcome = *outcome.lock().expect("a lock");
            let (has_read, is_undone) = outcome;
            undone += u64::from(is_undone);
            if !has_read {
                break;
            }
        }
        if !is_met {
            break;
        }
    }
    assert!(undone > 0, "no commit was undone during a read");
}
