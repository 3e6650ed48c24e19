//! Histories that are wrong only through a removal.

use std::collections::BTreeMap;
use std::convert::Infallible;

use super::history::{History, Outcome};
use super::recorded::{Access, Id, NONE, Place, Recorded, versions};

const A: Place = (0, 0);
const B: Place = (0, 1);
const C: Place = (1, 0);

/// What keys and markers name at some time.
type View = BTreeMap<Place, Id>;

/// A transaction that reads a view. Its changes are in the second one.
struct Over<'view>(&'view View, BTreeMap<Place, Option<Id>>);

impl Access for Over<'_> {
    type Error = Infallible;

    fn get(&mut self, place: Place) -> Result<Id, Infallible> {
        let own = self.1.get(&place).copied();
        Ok(own.unwrap_or_else(|| self.0.get(&place).copied()).unwrap_or(NONE))
    }

    fn put(&mut self, place: Place, id: Id) -> Result<(), Infallible> {
        self.1.insert(place, Some(id));
        Ok(())
    }

    fn remove(&mut self, place: Place) -> Result<(), Infallible> {
        self.1.insert(place, None);
        Ok(())
    }

    fn scan(&mut self, map: u64) -> Result<Vec<(u64, Id)>, Infallible> {
        let all = self.0.keys().chain(self.1.keys()).filter(|place| place.0 == map);
        let keys: Vec<_> = all.map(|&(_, key)| key).collect();
        let found = keys.into_iter().map(|key| Ok((key, self.get((map, key))?)));
        found.filter(|found| !matches!(found, Ok((_, NONE)))).collect()
    }
}

#[derive(Clone, Copy)]
enum Step {
    Get(Place),
    Put(Place),
    Remove(Place),
    Scan(u64),
}
use Step::{Get, Put, Remove, Scan};

/// A store, its transactions so far, and all that it was.
struct Store {
    history: History,
    now: View,
    views: Vec<View>,
    is_over_snapshot: bool,
}

impl Store {
    /// A store with the keys A and B, which transaction 1 has written.
    fn new() -> Self {
        let views = vec![View::new()];
        let history = History::default();
        let mut store = Self { history, now: View::new(), views, is_over_snapshot: false };
        store.run(1, &[Put(A), Put(B)]);
        store
    }

    /// Runs a transaction as a right system does.
    fn run(&mut self, id: Id, steps: &[Step]) {
        let seen = self.now.clone();
        self.run_over(id, &[(&seen, steps)]);
    }

    /// Runs one whose steps see these views, and commits it.
    fn run_over(&mut self, id: Id, parts: &[(&View, &[Step])]) {
        let mut recorded = Recorded::new(id, self.is_over_snapshot);
        let mut own = BTreeMap::new();
        for &(view, steps) in parts {
            let mut access = Over(view, own);
            for step in steps {
                let mut find = |place| {
                    let Ok((_, old)) = recorded.find(place, |place| access.get(place));
                    (place, old)
                };
                match *step {
                    Get(place) => {
                        find(place);
                    }
                    Scan(map) => {
                        let Ok(()) = recorded.scan(map, 2, &mut access);
                    }
                    Put(place) => {
                        let found = find(place);
                        let Ok(()) = recorded.put(found, &mut access);
                    }
                    Remove(place) => {
                        let found = find(place);
                        let Ok(()) = recorded.remove(found, &mut access);
                    }
                }
            }
            own = access.1;
        }
        self.commit(recorded, own);
    }

    fn commit(&mut self, recorded: Recorded, own: BTreeMap<Place, Option<Id>>) {
        let lsn = self.views.len() as u64;
        self.history.add(recorded, Outcome::Committed { lsn });
        for (place, id) in own {
            match id {
                Some(id) => self.now.insert(place, id),
                None => self.now.remove(&place),
            };
        }
        self.views.push(self.now.clone());
    }

    /// The state after so many transactions.
    fn after(&self, count: usize) -> View {
        self.views[count].clone()
    }

    /// The verdict if the store is opened again with this content.
    fn verdict_with(mut self, found: View) -> Result<(), String> {
        self.history.reopened(versions(found), u64::MAX);
        self.history.check().map(drop)
    }

    fn verdict(self) -> Result<(), String> {
        let found = self.now.clone();
        self.verdict_with(found)
    }

    fn assert_cycle(self) {
        let said = self.verdict().expect_err("no order");
        assert!(said.contains("a cycle"), "{said}");
    }
}

#[test]
fn removals_in_an_order_are_right() {
    let mut store = Store::new();
    store.run(2, &[Remove(A), Put(C)]);
    store.run(3, &[Get(A), Remove(A), Scan(0)]);
    store.run(4, &[Put(A), Remove(A), Put(A), Put(B)]);
    store.run(5, &[Scan(0), Remove(A), Put(C), Get(A)]);
    store.run(6, &[Get(A), Scan(1), Remove(C)]);
    assert_eq!(versions(store.now.clone()), [(A, 5), (B, 4), (C, 6)].into());
    assert_eq!(store.verdict(), Ok(()));
}

/// The reader sees what the removing transaction wrote elsewhere.
#[test]
fn a_value_from_before_a_committed_removal_is_found() {
    for step in [Get(A), Scan(0)] {
        let mut store = Store::new();
        store.run(2, &[Remove(A), Put(C)]);
        let (old, new) = (store.after(1), store.after(2));
        store.run_over(3, &[(&new, &[Get(C)]), (&old, &[step])]);
        store.assert_cycle();
    }
}

#[test]
fn a_write_skew_over_removals_is_found() {
    let skew = |is_over_snapshot| {
        let mut store = Store { is_over_snapshot, ..Store::new() };
        let both = store.after(1);
        // Each of them leaves one key, if it is alone.
        store.run_over(2, &[(&both, &[Get(A), Remove(B)])]);
        store.run_over(3, &[(&both, &[Get(B), Remove(A)])]);
        assert_eq!(store.now.get(&A).or(store.now.get(&B)), None);
        store
    };
    skew(false).assert_cycle();
    assert_eq!(skew(true).verdict(), Ok(()));
}

#[test]
fn a_key_that_is_absent_although_it_was_put_again_is_found() {
    let mut store = Store::new();
    store.run(2, &[Remove(A)]);
    store.run(3, &[Put(A), Put(C)]);
    let (old, new) = (store.after(2), store.after(3));
    store.run_over(4, &[(&old, &[Get(A)]), (&new, &[Get(C)])]);
    store.assert_cycle();
}

/// The key is absent in both states.
#[test]
fn two_removals_of_a_key_are_told_apart() {
    let with_two = || {
        let mut store = Store::new();
        store.run(2, &[Remove(A)]);
        store.run(3, &[Put(A)]);
        store.run(4, &[Remove(A), Put(C)]);
        store
    };
    let mut store = with_two();
    let (old, new) = (store.after(2), store.after(4));
    store.run_over(5, &[(&new, &[Get(C)]), (&old, &[Get(A)])]);
    store.assert_cycle();
    // The later one is lost.
    let store = with_two();
    let found = store.after(2);
    let said = store.verdict_with(found).expect_err("not the last state");
    assert!(said.contains("is lost"), "{said}");
}

#[test]
fn a_removal_that_is_lost_or_there_by_half_is_found() {
    for (keys, what) in [(&[A, B][..], "is lost"), (&[A], "by half"), (&[B], "by half")] {
        let mut store = Store::new();
        store.run(2, &[Remove(A), Remove(B)]);
        let mut found = store.now.clone();
        found.extend(keys.iter().map(|&key| (key, 1)));
        let said = store.verdict_with(found).expect_err("not what was committed");
        assert!(said.contains(what), "{said}");
    }
}

#[test]
fn two_removals_of_one_version_are_found() {
    for steps in [[Remove(A)], [Put(A)]] {
        let mut store = Store::new();
        let first = store.after(1);
        store.run(2, &[Remove(A)]);
        store.run_over(3, &[(&first, &steps)]);
        let said = store.verdict().expect_err("a lost removal");
        assert!(said.contains("is lost"), "{said}");
    }
}

#[test]
fn an_announced_removal_is_a_version_too() {
    let announced = |announcer: Id| {
        let mut store = Store::new();
        let seen = store.now.clone();
        let mut access = Over(&seen, BTreeMap::new());
        let Ok(is_present) = Recorded::new(announcer, false).announce_removal(A, &mut access);
        assert!(is_present);
        for (place, id) in access.1 {
            store.now.extend(id.map(|id| (place, id)));
        }
        store
    };
    let perform = |store: &mut Store, seen: &View| {
        let mut recorded = Recorded::new(2, false);
        let mut access = Over(seen, BTreeMap::new());
        let Ok(()) = recorded.remove_announced(A, &mut access);
        let own = access.1;
        store.commit(recorded, own);
    };
    let mut store = announced(2);
    let seen = store.now.clone();
    perform(&mut store, &seen);
    assert_eq!(versions(store.now.clone()), [(A, 2), (B, 1)].into());
    store.run(3, &[Put(A)]);
    assert_eq!(store.verdict(), Ok(()));
    // Another one has announced its own meanwhile.
    let mut store = announced(3);
    let seen = store.now.clone();
    perform(&mut store, &seen);
    assert_eq!(store.now.get(&A), Some(&1));
    assert_eq!(store.verdict(), Ok(()));
    // The key was removed by another one, and the commit does not notice it.
    let mut store = announced(2);
    let seen = store.now.clone();
    store.run(3, &[Remove(A)]);
    perform(&mut store, &seen);
    let said = store.verdict().expect_err("a removal too many");
    assert!(said.contains("is lost"), "{said}");
    // The key is absent, and its marker names one that has not removed it.
    let mut store = announced(2);
    store.now.remove(&A);
    let seen = store.now.clone();
    perform(&mut store, &seen);
    let said = store.verdict().expect_err("a removal without a transaction");
    assert!(said.contains("was not written by"), "{said}");
}
