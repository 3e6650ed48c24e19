//! Histories of many threads: are they serializable, or do they have snapshot isolation?
//! `pando_tc::testing` records and checks them.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_index::random::Random;
use pando_index::{KeyRange, Order};
use pando_pmem::Domain;
use pando_tc::testing::{
    Access, Checked, History, Id, NONE, Outcome, Place, Recorded, State, versions,
};
use pando_tc::{Error, Maps, SnapshotOptions, Transaction, TransactionComponent};

use crate::common::{Kind, Records, anonymous, check, dump};
use crate::over_each_index;

over_each_index!(Killed:
    histories_of_many_threads_are_serializable,
    histories_over_snapshots_have_snapshot_isolation,
    transfers_between_accounts_keep_the_sum,
);

/// The maps, and the keys of each.
const SIZE: (u64, u64) = (2, 6);
const THREADS: u64 = 4;

fn number_in(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(*value.first_chunk().expect("a number")))
}

fn key_bytes(key: u64) -> [u8; 2] {
    [b'k', key as u8]
}

/// A transaction whose keys and values are numbers.
struct Numbers<'transaction, 'component, D: Domain, M: Maps> {
    transaction: &'transaction mut Transaction<'component, D, M>,
    first_map: u64,
}

impl<D: Domain, M: Maps> Access for Numbers<'_, '_, D, M> {
    type Error = Error;

    fn get(&mut self, (map, key): Place) -> Result<Id, Error> {
        Ok(number_in(self.transaction.get(self.first_map + map, &key_bytes(key))?.as_deref()))
    }

    fn put(&mut self, (map, key): Place, id: Id) -> Result<(), Error> {
        let value = [&id.to_le_bytes()[..], &vec![id as u8; (id % 5 * 40) as usize]].concat();
        self.transaction.put(self.first_map + map, &key_bytes(key), &value)
    }

    fn remove(&mut self, (map, key): Place) -> Result<(), Error> {
        self.transaction.remove(self.first_map + map, &key_bytes(key))
    }

    fn scan(&mut self, map: u64) -> Result<Vec<(u64, Id)>, Error> {
        let mut found = Vec::new();
        let map = self.first_map + map;
        self.transaction.scan(map, KeyRange::all(), Order::Ascending, &mut |key, value| {
            found.push((u64::from(key[1]), number_in(Some(value))));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}

/// The versions of these records, whose maps have the numbers from `first_map` on.
pub fn state_of(records: &Records, first_map: u64) -> State {
    let number = |((map, key), value): (&(u64, Vec<u8>), &Vec<u8>)| {
        ((*map - first_map, u64::from(key[1])), number_in(Some(value)))
    };
    versions(records.iter().map(number))
}

/// Runs one transaction over the maps `first_map` and the next; how it has ended.
pub fn one_transaction<D: Domain, M: Maps>(
    component: &TransactionComponent<D, M>,
    first_map: u64,
    id: Id,
    is_over_snapshot: bool,
    random: &mut Random,
) -> (Recorded, Outcome) {
    let options = SnapshotOptions::default;
    if random.one_in(6) {
        let mut recorded = Recorded::new(id, false);
        let snapshot = component.snapshot(options()).expect("a snapshot");
        let get = |(map, key): Place| {
            snapshot.get(first_map + map, &key_bytes(key)).map(|value| number_in(value.as_deref()))
        };
        recorded.read_all(random, SIZE, get).expect("reads");
        return (recorded, Outcome::Committed { lsn: snapshot.lsn() });
    }
    let mut recorded = Recorded::new(id, is_over_snapshot);
    let announced = (!is_over_snapshot && random.one_in(6))
        .then(|| announce_removal(component, first_map, &recorded, random))
        .flatten();
    let mut transaction = match is_over_snapshot {
        true => component.begin_over_snapshot(options()).expect("begins"),
        false => component.begin(),
    };
    let mut numbers = Numbers { transaction: &mut transaction, first_map };
    let ran = match announced {
        Some(place) => recorded.remove_announced(place, &mut numbers),
        None => recorded.work(random, SIZE, &mut numbers),
    };
    ran.expect("reads, and fits");
    (recorded, outcome_of(transaction.commit()))
}

fn outcome_of(committed: Result<u64, Error>) -> Outcome {
    match committed {
        Ok(lsn) => Outcome::Committed { lsn },
        Err(Error::Conflict { .. }) => Outcome::Failed,
        Err(error) => panic!("{error}"),
    }
}

/// Announces the removal of some key, if the key is there and no other transaction is in the way.
fn announce_removal<D: Domain, M: Maps>(
    component: &TransactionComponent<D, M>,
    first_map: u64,
    recorded: &Recorded,
    random: &mut Random,
) -> Option<Place> {
    let place = (random.below(SIZE.0), random.below(SIZE.1));
    let mut transaction = component.begin();
    let mut numbers = Numbers { transaction: &mut transaction, first_map };
    let is_present = recorded.announce_removal(place, &mut numbers).expect("reads");
    let is_announced = is_present && outcome_of(transaction.commit()) != Outcome::Failed;
    is_announced.then_some(place)
}

fn histories_of_many_threads_are_serializable<D: Domain>(kind: Kind<D>) {
    check_history_of_threads(kind, false);
}

fn histories_over_snapshots_have_snapshot_isolation<D: Domain>(kind: Kind<D>) {
    check_history_of_threads(kind, true);
}

/// Checks what threads have committed; with snapshot isolation, or serializable beside snapshots.
fn check_history_of_threads<D: Domain>(kind: Kind<D>, is_over_snapshot: bool) {
    let component = anonymous(kind);
    let ids = AtomicU64::new(NONE + 1);
    let work = |thread: u64| {
        let mut random = Random::new(thread);
        let one = |_| {
            let id = ids.fetch_add(1, Ordering::Relaxed);
            one_transaction(&component, 0, id, is_over_snapshot, &mut random)
        };
        (0..800).map(one).collect::<Vec<_>>()
    };
    let mut history = History::default();
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        let ended = threads.into_iter().flat_map(|thread| thread.join().expect("a thread"));
        ended.for_each(|(recorded, outcome)| history.add(recorded, outcome));
    });
    let found = dump(&component);
    history.reopened(state_of(&found, 0), u64::MAX);
    let checked = history.check().unwrap_or_else(|what| panic!("{what}"));
    println!("{checked:?}");
    let Checked { committed, .. } = checked;
    assert!(committed > 500, "{committed} of {} committed", THREADS * 800);
    let markers = found.keys().filter(|(_, key)| u64::from(key[1]) >= SIZE.1).count() as u64;
    assert_eq!(markers, SIZE.0 * SIZE.1, "each key was removed");
    check(&component);
}

/// Threads move amounts between accounts in two maps; a thread that reads all accounts sees the
/// same sum each time.
fn transfers_between_accounts_keep_the_sum<D: Domain>(kind: Kind<D>) {
    const ACCOUNTS: u64 = 40;
    const AMOUNT: u64 = 1_000;
    let component = anonymous(kind);
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
                let found = number_in(transaction.get(map, &key)?.as_deref());
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
                    sum += number_in(Some(value));
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
