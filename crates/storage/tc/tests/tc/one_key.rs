//! Writes of a transactional map, each of which pauses before each of its writes to the pool.

use std::cell::Cell;
use std::sync::Arc;

use pando_index::{Error, RangeIndex, Result};
use pando_pmem::Domain;
use pando_pmem::testing::Paused;
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_tc::{SnapshotOptions, TransactionalMap};

use crate::common::{Component, Kind, TwoMaps, anonymous, check, churn, commit};
use crate::over_each_index;

over_each_index!(Stopped:
    a_write_that_pauses_takes_place_once,
    a_write_that_others_have_completed_takes_place_once,
    a_write_that_others_have_no_room_to_complete_takes_place,
    a_snapshot_beside_a_write_that_pauses_shows_one_moment,
    a_write_that_was_seen_stays,
    a_write_never_builds_on_a_version_that_fails,
);

type Map<D> = TransactionalMap<D, TwoMaps<D>>;

/// A write of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Insert,
    Update,
    Put,
    Exchange,
    Remove,
}

const OPS: [Op; 5] = [Op::Insert, Op::Update, Op::Put, Op::Exchange, Op::Remove];

impl Op {
    fn key(self) -> &'static [u8] {
        if self == Self::Insert { b"absent" } else { b"key" }
    }

    fn run(self, map: &dyn RangeIndex) -> Result<()> {
        match self {
            Self::Insert | Self::Update => map.upsert(self.key(), b"own").map(drop),
            Self::Put => map.put(self.key(), b"own"),
            Self::Exchange => map.compare_exchange(self.key(), b"old", b"own"),
            Self::Remove => map.remove(self.key()).map(drop),
        }
    }

    fn before(self) -> Option<Vec<u8>> {
        (self != Self::Insert).then(|| b"old".to_vec())
    }

    fn after(self) -> Option<Vec<u8>> {
        (self != Self::Remove).then(|| b"own".to_vec())
    }
}

/// Lets each write pause before its first write to the pool, its second, and so on; then calls
/// `body`, which lets it go on.
fn each_pause<D: Domain>(
    kind: Kind<D>,
    body: impl Fn(Op, &Component<D>, &Map<D>, Paused<Result<()>>),
) {
    for op in OPS {
        for writes in 0.. {
            let component = Arc::new(anonymous(kind));
            commit(&component, &[(0, b"key", Some(b"old"))]).expect("commits");
            component.settle().expect("settles");
            component.maps().forget();
            let open = || {
                let index = component.maps().shared(0);
                TransactionalMap::new(component.clone(), 0, index).expect("a map")
            };
            let (map, theirs) = (open(), open());
            let late = Paused::start(writes, move || op.run(&theirs));
            let has_ended = late.is_done();
            body(op, &component, &map, late);
            check(&component);
            if has_ended {
                break;
            }
        }
    }
}

/// Another thread writes the same key meanwhile.
pub fn a_write_that_pauses_takes_place_once<D: Domain>(kind: Kind<D>) {
    each_pause(kind, |op, component, map, late| {
        let get = || map.get(op.key()).expect("reads");
        let before = get();
        assert!(before == op.before() || before == op.after(), "{op:?}: {before:?}");
        map.upsert(op.key(), b"other").expect("never fails");
        assert_eq!(get().as_deref(), Some(&b"other"[..]));
        let done = late.resume();
        let found = get();
        let is_other = found.as_deref() == Some(b"other");
        match (op, done) {
            // Its condition held only before the other write.
            (Op::Exchange, Ok(()) | Err(Error::ValueMismatch)) => assert!(is_other),
            (_, Ok(())) if before == op.after() => assert!(is_other, "{op:?}: {found:?}"),
            (_, Ok(())) => assert!(is_other || found == op.after(), "{op:?}: {found:?}"),
            (_, Err(error)) => panic!("{op:?}: {error}"),
        }
        // Nothing comes to light later.
        component.settle().expect("settles");
        assert_eq!(get(), found, "{op:?}");
    });
}

/// Others settle it meanwhile, so its place in the tail is free when it goes on, and remove the
/// tombstone that it has left.
pub fn a_write_that_others_have_completed_takes_place_once<D: Domain>(kind: Kind<D>) {
    each_pause(kind, |op, component, map, late| {
        let get = || map.get(op.key()).expect("reads");
        churn(component);
        late.resume().expect("it is alone at its key");
        assert_eq!(get(), op.after(), "{op:?}");
        churn(component);
        assert_eq!(get(), op.after(), "{op:?}");
    });
}

/// Others get no room to complete it, or to take it back, and get room later.
pub fn a_write_that_others_have_no_room_to_complete_takes_place<D: Domain>(kind: Kind<D>) {
    let refused = Cell::new(0);
    each_pause(kind, |op, component, map, late| {
        let get = || map.get(op.key()).expect("reads");
        let mut seen = get();
        let mut look = || {
            let found = get();
            assert!(found == seen || found == op.after(), "{op:?}: {found:?} behind {seen:?}");
            seen = found;
        };
        let (settled, _) = refuse(Resource::Block, 0, u64::MAX, || component.settle());
        if let Err(error) = settled {
            assert!(error.to_string().contains("the pool is full"), "{op:?}: {error}");
            refused.set(refused.get() + 1);
        }
        look();
        component.settle().expect("settles");
        look();
        late.resume().expect("it is alone at its key");
        assert_eq!(get(), op.after(), "{op:?}");
        component.settle().expect("settles");
        assert_eq!(get(), op.after(), "{op:?}");
    });
    assert!(refused.get() > 0, "there was always room");
}

/// A snapshot is taken meanwhile. What it shows stays when the write goes on, and another one
/// follows.
pub fn a_snapshot_beside_a_write_that_pauses_shows_one_moment<D: Domain>(kind: Kind<D>) {
    each_pause(kind, |op, component, map, late| {
        let snapshot = component.snapshot(SnapshotOptions::default()).expect("a snapshot");
        let get = || snapshot.get(0, op.key()).expect("reads");
        let shown = get();
        assert_eq!(shown, map.get(op.key()).expect("reads"), "{op:?}");
        late.resume().expect("it is alone");
        map.upsert(op.key(), b"later").expect("never fails");
        assert_eq!(get(), shown, "{op:?}");
    });
}

/// Another thread only looks meanwhile: what it has seen stays.
pub fn a_write_that_was_seen_stays<D: Domain>(kind: Kind<D>) {
    each_pause(kind, |op, _, map, late| {
        let get = || map.get(op.key()).expect("reads");
        let before = get();
        assert!(before == op.before() || before == op.after(), "{op:?}: {before:?}");
        assert!(get() == before, "{op:?}");
        late.resume().expect("it is alone");
        assert_eq!(get(), op.after(), "{op:?}");
    });
}

/// A commit of several keys pauses, and will fail: what it has read has changed. A write reads its
/// key meanwhile, and extends the value.
fn a_write_never_builds_on_a_version_that_fails<D: Domain>(kind: Kind<D>) {
    for writes in 0.. {
        let component = Arc::new(anonymous(kind));
        commit(&component, &[(0, b"key", Some(b"old")), (1, b"read", Some(b"1"))])
            .expect("commits");
        let theirs = component.clone();
        let late = Paused::start(writes, move || {
            let mut transaction = theirs.begin();
            transaction.get(1, b"read")?;
            commit(&theirs, &[(1, b"read", Some(b"2"))])?;
            transaction.put(0, b"key", b"failed")?;
            transaction.put(0, b"more", b"failed")?;
            transaction.commit()
        });
        let has_ended = late.is_done();
        let index = component.maps().shared(0);
        let map = TransactionalMap::new(component.clone(), 0, index).expect("a map");
        let extend = &mut |found: Option<&[u8]>, new: &mut Vec<u8>| {
            new.extend_from_slice(found.unwrap_or_default());
            new.push(b'+');
            true
        };
        map.modify(b"key", extend).expect("never fails");
        late.resume().expect_err("what it has read has changed");
        let found = map.get(b"key").expect("reads");
        assert_eq!(found.as_deref(), Some(&b"old+"[..]), "paused before write {writes}");
        check(&component);
        if has_ended {
            break;
        }
    }
}
