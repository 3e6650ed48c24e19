//! The scenarios of an index (`map.rs`): every operation, and every structure modification by name.
//!
//! Nodes are small, and a scenario begins right before a modification: the next operation splits a
//! node, for example. The function `brinks` finds these points by trying, so that this file does
//! not depend on the structure of an index.

use std::sync::Arc;

use pando_device::simulated::Simulated;
use pando_index::Order;
use pando_index::conformance::history::Operation;
use pando_index::random::Random;
use pando_pmem::testing::Arena;
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::{Domain, Pool};
use pando_tree::maps::{Audit, Catalog, IndexKind, IndexOptions};

use super::map::{Change, Indexed, KEYS, Map, MapModel, Op, Open, key};
use super::{Opened, Scenario, Setup, Subject};
use crate::lab::LabDomain;
use crate::lab::domain::set_write_back;

impl<I: Indexed> Subject for Map<I> {
    type Model = MapModel;
    type Open<D: Domain> = Open<I, D>;

    const NAME: &'static str = I::NAME;
    const SURVIVES: bool = I::SURVIVES;
    const POOL_BYTES: u64 = I::POOL_BYTES;

    fn open<D: Domain>(pool: Arc<Pool<D>>, _: &Simulated) -> Result<Open<I, D>, String> {
        let options = <I::Kind as IndexKind>::Options::parse(I::SMALL);
        let options = options.map_err(|error| error.to_string())?;
        let catalog = Arc::new(Catalog::open(pool).map_err(|error| error.to_string())?);
        let index = catalog
            .find_or_create_index::<I::Kind>("index", options)
            .map_err(|error| error.to_string())?;
        Ok(Open { index, catalog })
    }

    fn scenarios() -> Vec<Scenario<MapModel>> {
        scenarios::<I>()
    }
}

/// The name of the scenario of a change, and operations that cause it.
fn scenario_of(change: Change) -> (&'static str, fn() -> Vec<Op>) {
    match change {
        Change::Consolidation => ("consolidation", growth),
        Change::Churn => ("churn", churning),
        Change::LeafSplit => ("leaf-split", growth),
        Change::InnerSplit => ("inner-split", growth),
        Change::RootSplit => ("root-split", growth),
        Change::LeafMerge => ("leaf-merge", shrinking),
        Change::InnerMerge => ("inner-merge", shrinking),
        Change::RootCollapse => ("root-collapse", emptying),
    }
}

fn change_between(before: &Audit, after: &Audit) -> Option<Change> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let (was, is) = (&before.stat, &after.stat);
    let inner = is.inner_nodes.cmp(&was.inner_nodes);
    match (is.height.cmp(&was.height), inner, is.leaves.cmp(&was.leaves)) {
        (Greater, ..) if was.height > 1 => Some(Change::RootSplit),
        (Less, ..) if is.height > 1 => Some(Change::RootCollapse),
        (Greater | Less, ..) => None,
        (_, Greater, _) => Some(Change::InnerSplit),
        (_, Less, _) => Some(Change::InnerMerge),
        (_, _, Greater) => Some(Change::LeafSplit),
        (_, _, Less) => Some(Change::LeafMerge),
        (Equal, Equal, Equal)
            if before.blocks.iter().any(|block| !after.blocks.contains(block)) =>
        {
            Some(Change::Consolidation)
        }
        _ => None,
    }
}

/// The indexes of the operations in `ops` that cause the change. Found in the domain of the trials:
/// for another one, all indexes would be compiled once more.
fn brinks<I: Indexed>(change: Change, ops: &[Op]) -> Vec<usize> {
    let arena = Arena::new(Map::<I>::POOL_BYTES).expect("memory");
    set_write_back(false);
    let pool = Pool::<LabDomain>::create_in(&arena).expect("a pool");
    let open = <Map<I> as Subject>::open(pool, &Simulated::new()).expect("an index");
    let wanted = match change {
        Change::Churn => Change::Consolidation,
        change => change,
    };
    let mut shape = open.shape();
    let mut found = Vec::new();
    for (index, op) in ops.iter().enumerate() {
        open.perform(op);
        let next = open.shape();
        if change_between(&shape, &next) == Some(wanted) {
            found.push(index);
        }
        shape = next;
    }
    found
}

fn insert(number: usize) -> Op {
    Op::Key(number, Operation::Insert(number as u64))
}

/// A random operation on a key near `center`.
fn near(center: usize, stamp: u64, random: &mut Random) -> Op {
    let low = center.saturating_sub(8);
    let number = (low + random.below(17) as usize).min(KEYS - 1);
    let operation = match random.below(13) {
        0..3 => Operation::Insert(stamp),
        3 => Operation::Update(stamp),
        4..6 => Operation::Upsert(stamp),
        6..9 => Operation::Remove,
        9 => Operation::CompareExchange { expected: number as u64, new: stamp },
        10 => Operation::Read,
        11 => Operation::CompareRemove(number as u64),
        _ => {
            let order = if random.one_in(2) { Order::Ascending } else { Order::Descending };
            return Op::Scan(low, (low + 17).min(KEYS), order);
        }
    };
    Op::Key(number, operation)
}

/// A random operation on the key `number` alone.
fn upon(number: usize, stamp: u64, random: &mut Random) -> Op {
    let operation = match random.below(8) {
        0 | 1 => Operation::Insert(stamp),
        2 => Operation::Update(stamp),
        3 => Operation::Upsert(stamp),
        4 => Operation::Remove,
        5 => Operation::CompareExchange { expected: number as u64, new: stamp },
        6 => Operation::CompareRemove(number as u64),
        _ => Operation::Read,
    };
    Op::Key(number, operation)
}

/// Two or three threads, each with one or two operations on the same key.
fn on_same_key() -> Setup<MapModel> {
    Setup::new(growth()[..24].to_vec(), |random| {
        let number = random.below(64) as usize;
        let program = |task: u64, random: &mut Random| {
            let count = 1 + random.below(2);
            (0..count).map(|step| upon(number, 1_000 * task + step, random)).collect()
        };
        let threads = 2 + random.below(2);
        (1..=threads).map(|task| program(task, random)).collect()
    })
}

/// One thread writes a key once or twice, and one or two others only read it.
fn reads() -> Setup<MapModel> {
    Setup::new(growth()[..24].to_vec(), |random| {
        let number = random.below(64) as usize;
        let write = |stamp, random: &mut Random| match random.below(4) {
            0 => Op::Key(number, Operation::Insert(stamp)),
            1 => Op::Key(number, Operation::Update(stamp)),
            2 => Op::Key(number, Operation::Upsert(stamp)),
            _ => Op::Key(number, Operation::Remove),
        };
        let count = 1 + random.below(2);
        let mut programs = vec![(0..count).map(|step| write(1_000 + step, random)).collect()];
        for _ in 0..1 + random.below(2) {
            programs.push(vec![Op::Key(number, Operation::Read); 1 + random.below(2) as usize]);
        }
        programs
    })
}

/// One thread does `first`, and others do random operations near it.
fn around(
    prepare: Vec<Op>,
    first: impl Fn(&mut Random) -> Op + 'static,
    steps: u64,
) -> Setup<MapModel> {
    Setup::new(prepare, move |random| {
        let first = first(random);
        let center = match first {
            Op::Key(number, _) | Op::Scan(number, ..) => number,
        };
        let others = 1 + random.below(2);
        let program = |task: u64, random: &mut Random| {
            let count = 1 + random.below(steps);
            (0..count).map(|step| near(center, 1_000 * task + step, random)).collect()
        };
        let mut programs = vec![vec![first]];
        programs.extend((1..=others).map(|task| program(task, random)));
        programs
    })
}

/// The key around which nodes have no room, in a pool without room.
const CENTER: usize = 104;

/// Nodes without room around one key, in a pool without room. Two or three threads work there.
/// `one` makes their operations, from the number of a key there that all threads share.
fn without_room<I: Indexed>(one: fn(usize, u64, &mut Random) -> Op) -> Setup<MapModel> {
    // Full nodes to the left and to the right, and in the middle a node with one free slot.
    let cram = [(CENTER - 6, 0), (CENTER + 10, 0), (CENTER, 1)];
    Setup {
        prepare: growth(),
        cram: crammed::<I>(&cram),
        programs: Box::new(move |random| {
            let shared = there(random);
            let program = |task: u64, random: &mut Random| {
                let count = 1 + random.below(4);
                (0..count).map(|step| one(shared, 1_000 * task + step, random)).collect()
            };
            (1..=2 + random.below(2)).map(|task| program(task, random)).collect()
        }),
    }
}

/// After so many accepted upserts, one key is updated in place and needs no room.
const MOST_UPSERTS: usize = 64;

/// For each wanted key, as many upserts as a pool without room accepts, less the given number.
fn crammed<I: Indexed>(wanted: &[(usize, usize)]) -> Vec<Op> {
    let arena = Arena::new(Map::<I>::POOL_BYTES).expect("memory");
    set_write_back(false);
    let pool = Pool::<LabDomain>::create_in(&arena).expect("a pool");
    let open = <Map<I> as Subject>::open(pool, &Simulated::new()).expect("an index");
    growth().iter().for_each(|op| drop(open.perform(op)));
    let fill = |&(number, less): &(usize, usize)| {
        let upsert = Operation::Upsert(0);
        let is_taken = |_: &usize| open.on_key(&key::<I>(number), upsert).is_ok();
        let times = (0..MOST_UPSERTS).take_while(is_taken).count();
        vec![Op::Key(number, upsert); times.saturating_sub(less)]
    };
    refuse(Resource::Block, 0, u64::MAX, || wanted.iter().flat_map(fill).collect()).0
}

/// The number of a present key, in a node without room.
fn there(random: &mut Random) -> usize {
    CENTER - 6 + 2 * random.below(8) as usize
}

/// Mostly removes of any keys.
fn mostly_removes(_: usize, stamp: u64, random: &mut Random) -> Op {
    match random.below(4) {
        0 => near(CENTER, stamp, random),
        _ => Op::Key(there(random), Operation::Remove),
    }
}

/// Mostly operations on one key, so that one thread removes it while another writes it.
fn mostly_on_one(number: usize, stamp: u64, random: &mut Random) -> Op {
    match random.below(6) {
        0 => Op::Key(there(random), Operation::Remove),
        1 | 2 => Op::Key(number, Operation::Remove),
        _ => upon(number, stamp, random),
    }
}

/// Inserts at scattered keys, so that all nodes fill up. Every second key stays absent.
fn growth() -> Vec<Op> {
    (0..KEYS / 2).map(|index| insert(index * 89 % (KEYS / 2) * 2)).collect()
}

/// Some inserts, and then a remove and an insert of each of these keys in turn.
fn churning() -> Vec<Op> {
    let few = growth()[..24].to_vec();
    let turn = |&op: &Op| match op {
        Op::Key(number, _) => [Op::Key(number, Operation::Remove), op],
        scan => [scan, scan],
    };
    let turns: Vec<Op> = few.iter().flat_map(turn).collect();
    few.into_iter().chain(turns.repeat(2)).collect()
}

/// `growth`, and then removes in ascending order.
fn shrinking() -> Vec<Op> {
    let removes = (0..KEYS / 2).map(|index| Op::Key(index * 2, Operation::Remove));
    growth().into_iter().chain(removes).collect()
}

/// `growth`, and then removes in descending order, so that the nodes above the lowest key go last.
fn emptying() -> Vec<Op> {
    let removes = (0..KEYS / 2).rev().map(|index| Op::Key(index * 2, Operation::Remove));
    growth().into_iter().chain(removes).collect()
}

/// An operation on one of a few keys, and other operations around it.
fn on_keys(name: &'static str, make: fn(u64, u64) -> Operation) -> Scenario<MapModel> {
    let first = move |random: &mut Random| {
        let number = 2 * random.below(KEYS as u64 / 2);
        Op::Key(number as usize, make(number, random.below(100)))
    };
    Scenario::new(name, 1, move || around(growth()[..24].to_vec(), first, 2))
}

/// The operation that causes a change, and other operations around it.
fn over<I: Indexed>(change: Change) -> Scenario<MapModel> {
    let (name, ops) = scenario_of(change);
    Scenario::new(name, 1, move || {
        let ops = ops();
        // The last one: then the changed node has neighbours.
        let brinks = brinks::<I>(change, &ops);
        let index = *brinks.last().expect("operations that bring the change about");
        let over = ops[index];
        around(ops[..index].to_vec(), move |_| over, 3)
    })
}

/// One thread scans a range of keys in many nodes, mostly backwards. One or two others insert and
/// remove runs of these keys, so that nodes before and behind the scan are split and merged.
fn scans() -> Setup<MapModel> {
    const SCANNED: usize = 48;
    Setup::new(growth(), |random| {
        let low = random.below((KEYS - SCANNED) as u64) as usize;
        let order = if random.one_in(4) { Order::Ascending } else { Order::Descending };
        let run = |task: u64, random: &mut Random| {
            let first = low + random.below(SCANNED as u64) as usize;
            let (count, is_remove) = (2 + random.below(10) as usize, random.one_in(2));
            let write = |step: usize| match is_remove {
                // Present keys have even numbers.
                true => Op::Key(first / 2 * 2 + 2 * step, Operation::Remove),
                false => Op::Key(first + step, Operation::Upsert(1_000 * task + step as u64)),
            };
            let is_key = |op: &Op| matches!(op, Op::Key(number, _) if *number < KEYS);
            (0..count).map(write).filter(is_key).collect::<Vec<_>>()
        };
        let mut programs = vec![vec![Op::Scan(low, low + SCANNED, order)]];
        programs.extend((1..=1 + random.below(2)).map(|task| run(task, random)));
        programs
    })
}

/// One thread scans the records around a leaf without room. One or two others rewrite all of them,
/// one by one: they change values, and remove and insert records.
fn rewrites<I: Indexed>() -> Setup<MapModel> {
    let ops = growth();
    // An index without leaf splits has full leaves at any time.
    let full = I::CHANGES.iter().find(|change| **change == Change::LeafSplit);
    let brink = full.and_then(|&split| brinks::<I>(split, &ops).last().copied());
    let index = brink.unwrap_or(ops.len() - 1);
    let center = match ops[index] {
        Op::Key(number, _) | Op::Scan(number, ..) => number,
    };
    // Present keys have even numbers.
    let (low, high) = (center.saturating_sub(10) / 2 * 2, (center + 12).min(KEYS));
    Setup::new(ops[..index].to_vec(), move |random| {
        let order = if random.one_in(2) { Order::Ascending } else { Order::Descending };
        let rewrite = |task: u64, random: &mut Random| {
            let backwards = random.one_in(2);
            let one = |step: u64, number: usize, random: &mut Random| match random.below(4) {
                0 => vec![
                    Op::Key(number, Operation::Remove),
                    Op::Key(number, Operation::Insert(1_000 * task + step)),
                ],
                _ => vec![Op::Key(number, Operation::Upsert(1_000 * task + step))],
            };
            let mut numbers: Vec<usize> = (low..high).step_by(2).collect();
            if backwards {
                numbers.reverse();
            }
            let steps = numbers.into_iter().enumerate();
            steps.flat_map(|(step, number)| one(step as u64, number, random)).collect()
        };
        let mut programs = vec![vec![Op::Scan(low, high, order); 1 + random.below(2) as usize]];
        programs.extend((1..=1 + random.below(2)).map(|task| rewrite(task, random)));
        programs
    })
}

/// A remove of each key that the operations write.
fn removes_of(ops: &[Op]) -> Vec<Op> {
    let remove = |op: &Op| match *op {
        Op::Key(number, _) => Op::Key(number, Operation::Remove),
        scan => scan,
    };
    ops.iter().map(remove).collect()
}

/// One thread splits the root, and another removes all earlier records: the tree grows and shrinks
/// at the same time.
fn emptied<I: Indexed>() -> Setup<MapModel> {
    let ops = growth();
    let brinks = brinks::<I>(Change::RootSplit, &ops);
    let index = *brinks.first().expect("operations that split the root");
    let (before, over) = (ops[..index].to_vec(), ops[index]);
    let removes = removes_of(&before);
    Setup::new(before, move |_| vec![vec![over], removes.clone()])
}

/// Two threads remove all records. There is no room for the merges.
fn emptied_without_room() -> Setup<MapModel> {
    let records = growth()[..32].to_vec();
    let removes = removes_of(&records);
    Setup::new(records, move |random| {
        // Both threads remove neighbouring keys, or one thread starts at the other's end.
        let (first, second) = if random.one_in(2) {
            removes.split_at(removes.len() / 2)
        } else {
            removes.split_at(1 + random.below(removes.len() as u64 - 1) as usize)
        };
        vec![first.to_vec(), second.to_vec()]
    })
}

fn scenarios<I: Indexed>() -> Vec<Scenario<MapModel>> {
    let few = || growth()[..24].to_vec();
    let mut scenarios = vec![
        Scenario::new("insert", 1, move || {
            around(few(), |random| insert(random.below(64) as usize), 2)
        }),
        on_keys("update", |_, new| Operation::Update(new)),
        on_keys("upsert", |_, new| Operation::Upsert(new)),
        on_keys("delete", |_, _| Operation::Remove),
        on_keys("compare-exchange", |expected, new| Operation::CompareExchange { expected, new }),
        on_keys("compare-remove", |expected, _| Operation::CompareRemove(expected)),
        Scenario::new("one-key", 1, move || around(few(), |_| insert(33), 3)),
        Scenario::new("same-key", 1, on_same_key),
        Scenario::new("reads", 1, reads),
        Scenario::new("scans", 1, scans),
        Scenario::new("rewrites", 1, rewrites::<I>),
        Scenario::new("full-pool", 1, || without_room::<I>(mostly_removes)).short_of_blocks(4),
        Scenario::new("same-key-full-pool", 1, || without_room::<I>(mostly_on_one))
            .short_of_blocks(4),
    ];
    // If removes need blocks, each would be refused after all its attempts.
    if !I::REMOVES_NEED_ROOM {
        let scenario = Scenario::new("emptied-full-pool", 1, emptied_without_room);
        scenarios.push(scenario.short_of_blocks(12));
    }
    if !I::SURVIVES {
        scenarios.retain(|scenario| scenario.granted.is_none());
    }
    scenarios.extend(I::CHANGES.iter().map(|&change| over::<I>(change)));
    if I::CHANGES.contains(&Change::InnerSplit) {
        scenarios.push(Scenario::new("emptied", 1, emptied::<I>));
    }
    scenarios
}
