//! Histories of many threads: are they serializable?
//!
//! Each value says which transaction wrote it, and each transaction reads what it replaces. So the
//! order of a key's versions is known, and with it all dependencies between transactions: who read
//! whose version, and who replaced it. The history is serializable if they have no cycle (as Elle
//! finds it). A snapshot is a transaction that only reads.
//!
//! With snapshot isolation a cycle is allowed if two dependencies in it that follow each other are
//! of the kind *has read what the other replaced*.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_index::random::Random;
use pando_index::{KeyRange, Order};
use pando_pmem::{Domain, Process};
use pando_tc::{Error, SnapshotOptions};
use pando_tree::maps::IndexKind;

use crate::common::{anonymous, check};
use crate::over_each_index;

over_each_index!(Process:
    histories_of_many_threads_are_serializable,
    histories_over_snapshots_have_snapshot_isolation,
    transfers_between_accounts_keep_the_sum,
);

/// Keys of each map.
const KEYS: u64 = 6;
const THREADS: u64 = 4;

/// A version of a key: the transaction that wrote it, zero for none.
type Writer = u64;

/// What a committed transaction has read and written.
#[derive(Default)]
struct Committed {
    /// Each key that it read, with the version.
    reads: BTreeMap<(u64, u64), Writer>,
    /// Each key that it wrote, with the version that it replaced.
    writes: BTreeMap<(u64, u64), Writer>,
}

fn writer_of(value: Option<Vec<u8>>) -> Writer {
    value.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().expect("a number")))
}

/// For each transaction those that come after it.
type After = BTreeMap<Writer, Vec<Writer>>;

/// The dependencies: those that have read or replaced its versions, and those that have replaced
/// what it has read.
fn dependencies(history: &BTreeMap<Writer, Committed>) -> [After; 2] {
    let [mut after, mut anti] = [After::new(), After::new()];
    let mut replaced_by = BTreeMap::new();
    for (&id, committed) in history {
        for (&key, &old) in &committed.writes {
            after.entry(old).or_default().push(id);
            let other = replaced_by.insert((key, old), id);
            assert_eq!(other, None, "a version of {key:?} was replaced twice");
        }
    }
    for (&id, committed) in history {
        for (key, &read) in &committed.reads {
            after.entry(read).or_default().push(id);
            if let Some(&next) = replaced_by.get(&(*key, read))
                && next != id
            {
                anti.entry(id).or_default().push(next);
            }
        }
    }
    [after, anti]
}

/// All dependencies.
fn serial_order([mut after, anti]: [After; 2]) -> After {
    anti.into_iter().for_each(|(id, others)| after.entry(id).or_default().extend(others));
    after
}

/// What may have no cycle with snapshot isolation: the first kind, also followed by one of the
/// second.
fn snapshot_order([after, anti]: [After; 2]) -> After {
    let behind = |id: &Writer| anti.get(id).into_iter().flatten().copied();
    let further = |others: &Vec<Writer>| others.iter().flat_map(behind).collect::<Vec<_>>();
    let composed =
        after.iter().map(|(&id, others)| (id, [others.clone(), further(others)].concat()));
    composed.collect()
}

/// A cycle of dependencies, if there is one.
fn find_cycle(after: &After) -> Option<Vec<Writer>> {
    let mut is_done: BTreeMap<Writer, bool> = BTreeMap::new();
    for &first in after.keys() {
        let mut path = vec![(first, 0)];
        while let Some((id, next)) = path.last_mut() {
            if *next == 0 && is_done.get(id) == Some(&true) {
                path.pop();
                continue;
            }
            is_done.insert(*id, false);
            let (from, found) = (*id, after.get(id).and_then(|after| after.get(*next)).copied());
            *next += 1;
            match found {
                Some(to) if is_done.get(&to) == Some(&false) => {
                    let ids = path.iter().map(|(id, _)| *id);
                    return Some(ids.skip_while(|&id| id != to).chain([to]).collect());
                }
                Some(to) => path.push((to, 0)),
                None => {
                    is_done.insert(from, true);
                    path.pop();
                }
            }
        }
    }
    None
}

#[test]
fn a_cycle_is_found() {
    let edges = |pairs: &[(u64, u64)]| {
        let mut after = After::new();
        pairs.iter().for_each(|&(from, to)| after.entry(from).or_default().push(to));
        find_cycle(&after)
    };
    assert_eq!(edges(&[(1, 2), (1, 3), (2, 3), (3, 4)]), None);
    assert_eq!(edges(&[(1, 2), (2, 3), (3, 4), (4, 2)]), Some(vec![2, 3, 4, 2]));
    // Each has read what the other replaced; then only one has.
    let skew = [After::from([(0, vec![1, 2])]), After::from([(1, vec![2]), (2, vec![1])])];
    assert!(find_cycle(&serial_order(skew.clone())).is_some());
    assert_eq!(find_cycle(&snapshot_order(skew)), None);
    let lost = [After::from([(1, vec![2])]), After::from([(2, vec![1])])];
    assert!(find_cycle(&snapshot_order(lost)).is_some());
}

fn histories_of_many_threads_are_serializable<D: Domain, K: IndexKind>() {
    let history = history_of_threads::<D, K>(false);
    assert_eq!(find_cycle(&serial_order(dependencies(&history))), None);
}

fn histories_over_snapshots_have_snapshot_isolation<D: Domain, K: IndexKind>() {
    let history = history_of_threads::<D, K>(true);
    assert_eq!(find_cycle(&snapshot_order(dependencies(&history))), None);
}

/// What threads have committed; with snapshot isolation, or serializable beside snapshots.
fn history_of_threads<D: Domain, K: IndexKind>(
    is_over_snapshots: bool,
) -> BTreeMap<Writer, Committed> {
    let component = anonymous::<D, K>();
    let ids = AtomicU64::new(1);
    let conflicts = AtomicU64::new(0);
    let key_bytes = |key: u64| [b'k', key as u8];
    let work = |thread: u64| {
        let mut random = Random::new(thread);
        let mut history = Vec::new();
        for _ in 0..800 {
            let id = ids.fetch_add(1, Ordering::Relaxed);
            let mut committed = Committed::default();
            let options = SnapshotOptions::default;
            if random.one_in(6) {
                let snapshot = component.snapshot(options()).expect("a snapshot");
                for place in 0..2 * KEYS {
                    let (map, key) = (place % 2, place / 2);
                    let found = snapshot.get(map, &key_bytes(key)).expect("reads");
                    committed.reads.insert((map, key), writer_of(found));
                    if random.one_in(8) {
                        std::thread::yield_now();
                    }
                }
                history.push((id, committed));
                continue;
            }
            let mut transaction = match is_over_snapshots {
                true => component.begin_over_snapshot(options()).expect("begins"),
                false => component.begin(),
            };
            if random.one_in(4) {
                let (map, order) = (random.below(2), Order::Ascending);
                for key in 0..KEYS {
                    committed.reads.insert((map, key), 0);
                }
                let reads = &mut committed.reads;
                let mut visit = |key: &[u8], value: &[u8]| {
                    reads.insert((map, u64::from(key[1])), writer_of(Some(value.to_vec())));
                    ControlFlow::Continue(())
                };
                transaction.scan(map, KeyRange::all(), order, &mut visit).expect("scans");
                // Removed keys have no version that could be told apart: none is removed here.
            }
            for _ in 0..1 + random.below(3) {
                let (map, key) = (random.below(2), random.below(KEYS));
                let found = transaction.get(map, &key_bytes(key)).expect("reads");
                let read = writer_of(found);
                if read == id {
                    continue;
                }
                committed.reads.insert((map, key), read);
                if random.one_in(2) {
                    let value = [id.to_le_bytes(), [thread as u8; 8]].concat();
                    transaction.put(map, &key_bytes(key), &value).expect("fits");
                    committed.writes.insert((map, key), read);
                }
                if random.one_in(3) {
                    std::thread::yield_now();
                }
            }
            match transaction.commit() {
                Ok(_) => history.push((id, committed)),
                Err(Error::Conflict { .. }) => {
                    conflicts.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => panic!("{error}"),
            }
        }
        history
    };
    let histories: Vec<_> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    });
    let history: BTreeMap<_, _> = histories.into_iter().flatten().collect();
    println!("{} committed, {} conflicts", history.len(), conflicts.into_inner());
    assert!(history.len() > 500, "{} of {} committed", history.len(), THREADS * 800);
    check(&component);
    history
}

/// Threads move amounts between accounts in two maps; a thread that reads all accounts sees the
/// same sum each time.
fn transfers_between_accounts_keep_the_sum<D: Domain, K: IndexKind>() {
    const ACCOUNTS: u64 = 40;
    const AMOUNT: u64 = 1_000;
    let component = anonymous::<D, K>();
    let place = |account: u64| (account % 2, [b'a', account as u8]);
    let fill = |transaction: &mut pando_tc::Transaction<'_, D, _>| {
        (0..ACCOUNTS).try_for_each(|account| {
            let (map, key) = place(account);
            transaction.put(map, &key, &AMOUNT.to_le_bytes())
        })
    };
    component.transaction(fill).expect("commits");
    let transfer = |random: &mut Random| {
        let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
        let amount = random.below(100);
        let moved = component.transaction(|transaction| {
            for (account, is_from) in [(from, true), (to, false)] {
                let (map, key) = place(account);
                let found = writer_of(transaction.get(map, &key)?);
                let left = match is_from {
                    true => found.saturating_sub(amount),
                    false => found + amount,
                };
                if is_from && found < amount {
                    return Ok::<_, Error>(());
                }
                transaction.put(map, &key, &left.to_le_bytes())?;
            }
            Ok(())
        });
        moved.expect("commits");
    };
    let sum = || {
        let mut sum = 0;
        let read = component.transaction(|transaction| {
            sum = 0;
            for map in 0..2 {
                transaction.scan(map, KeyRange::all(), Order::Descending, &mut |_, value| {
                    sum += writer_of(Some(value.to_vec()));
                    ControlFlow::Continue(())
                })?;
            }
            Ok::<_, Error>(())
        });
        read.expect("commits");
        sum
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let transfer = &transfer;
            scope.spawn(move || {
                let mut random = Random::new(thread);
                (0..500).for_each(|_| transfer(&mut random));
            });
        }
        (0..20).for_each(|_| assert_eq!(sum(), ACCOUNTS * AMOUNT));
    });
    assert_eq!(sum(), ACCOUNTS * AMOUNT);
    check(&component);
}
