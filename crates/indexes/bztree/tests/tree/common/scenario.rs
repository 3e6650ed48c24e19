//! Single operations with a certain effect on a tree, found by trying: a list of operations runs on
//! a fresh tree until one has the wanted effect. The operations before it prepare the tree, the
//! same each time. A test then interrupts that one.

use pando_bztree::{BzTree, Options, ValueMode};
use pando_index::{Error, RangeIndex, Upserted};
use pando_pmem::Domain;
use pando_pmem::testing::CutShort;
use pando_tree::maps::{Stat, Tree};

use super::{Fixture, Records, small_nodes, small_ranges};

/// An operation on one key.
#[derive(Clone, Debug)]
pub enum Op {
    Insert(Vec<u8>, Vec<u8>),
    Update(Vec<u8>, Vec<u8>),
    Upsert(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    /// The key, the value expected, the new value.
    Exchange(Vec<u8>, Vec<u8>, Vec<u8>),
    /// Upserts of records that are installed at once, behind all others.
    Run(Vec<(Vec<u8>, Vec<u8>)>),
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Exists,
    Missing,
    Mismatch,
}

impl Op {
    /// Its key.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Insert(key, _)
            | Self::Update(key, _)
            | Self::Upsert(key, _)
            | Self::Remove(key)
            | Self::Exchange(key, ..) => key,
            Self::Run(records) => &records[0].0,
        }
    }

    /// Runs it on `tree`.
    pub fn run<D: Domain>(&self, tree: &BzTree<D>) -> Answer {
        self.try_run(tree).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// Runs it on `tree`; `Err` is an error of the pool.
    pub fn try_run<D: Domain>(&self, tree: &BzTree<D>) -> Result<Answer, Error> {
        let result = match self {
            Self::Insert(key, value) => tree.insert(key, value),
            Self::Update(key, value) => tree.update(key, value),
            Self::Upsert(key, value) => tree.upsert(key, value).map(|_: Upserted| ()),
            Self::Remove(key) => tree
                .remove(key)
                .and_then(|removed| if removed { Ok(()) } else { Err(Error::KeyNotFound) }),
            Self::Exchange(key, expected, new) => tree.compare_exchange(key, expected, new),
            Self::Run(records) => {
                let lent: Vec<_> =
                    records.iter().map(|(key, value)| (&key[..], &value[..])).collect();
                tree.upsert_many(&lent)
            }
        };
        match result {
            Ok(()) => Ok(Answer::Done),
            Err(Error::KeyExists) => Ok(Answer::Exists),
            Err(Error::KeyNotFound) => Ok(Answer::Missing),
            Err(Error::ValueMismatch) => Ok(Answer::Mismatch),
            Err(error) => Err(error),
        }
    }

    /// Runs it on a model.
    pub fn apply(&self, records: &mut Records) -> Answer {
        let found = records.get(self.key());
        match self {
            Self::Insert(..) if found.is_some() => Answer::Exists,
            Self::Update(..) | Self::Remove(_) | Self::Exchange(..) if found.is_none() => {
                Answer::Missing
            }
            Self::Exchange(_, expected, _) if found != Some(expected) => Answer::Mismatch,
            Self::Remove(key) => {
                records.remove(key);
                Answer::Done
            }
            Self::Insert(key, value)
            | Self::Update(key, value)
            | Self::Upsert(key, value)
            | Self::Exchange(key, _, value) => {
                records.insert(key.clone(), value.clone());
                Answer::Done
            }
            Self::Run(run) => {
                records.extend(run.iter().cloned());
                Answer::Done
            }
        }
    }
}

/// An operation, and the preparation of the tree on which it has its effect.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub options: Options,
    pub prepare: Vec<Op>,
    pub act: Op,
}

impl Scenario {
    /// Prepares `tree`.
    pub fn prepare<D: Domain>(&self, tree: &BzTree<D>) {
        for op in &self.prepare {
            op.run(tree);
        }
    }

    /// The records of the tree before and after the operation, and the operation's answer.
    pub fn expected(&self) -> (Records, Records, Answer) {
        let mut records = Records::new();
        for op in &self.prepare {
            op.apply(&mut records);
        }
        let before = records.clone();
        let answer = self.act.apply(&mut records);
        (before, records, answer)
    }
}

/// The effect of an operation on the shape of a tree: the shape before, and after.
pub type Effect = fn(&Stat, &Stat) -> bool;

/// The scenario whose operation is the first of `ops` to have `effect`.
pub fn first(name: &'static str, options: Options, ops: Vec<Op>, effect: Effect) -> Scenario {
    let fixture = Fixture::<CutShort>::anonymous(options);
    let mut before = fixture.index.audit().expect("audits").stat;
    for (index, op) in ops.iter().enumerate() {
        op.run(&fixture.index);
        let after = fixture.index.audit().expect("audits").stat;
        if effect(&before, &after) {
            let prepare = ops[..index].to_vec();
            return Scenario { name, options, prepare, act: op.clone() };
        }
        before = after;
    }
    panic!("{name}: none of {} operations has the effect; the tree is now {before:?}", ops.len());
}

/// The scenario that prepares by all of `prepare`, then runs `act`.
pub fn exactly(name: &'static str, options: Options, prepare: Vec<Op>, act: Op) -> Scenario {
    Scenario { name, options, prepare, act }
}

/// Keys of eight bytes, which have searches of their own.
pub fn short(index: u64) -> Vec<u8> {
    index.to_be_bytes().to_vec()
}

/// Keys of other lengths.
pub fn long(index: u64) -> Vec<u8> {
    let tail = "abcdefghijklmnopqrstuvwxyz".get(..index as usize % 23).unwrap_or_default();
    format!("key/{index:06}/{tail}").into_bytes()
}

/// A value inside its record.
pub fn inline(tag: u8) -> Vec<u8> {
    vec![tag; 8]
}

/// A value that has a block of its own.
pub fn pointed(tag: u8) -> Vec<u8> {
    vec![tag; 300]
}

/// Inserts of `count` records.
pub fn inserts(count: u64, key: fn(u64) -> Vec<u8>, value: fn(u8) -> Vec<u8>) -> Vec<Op> {
    (0..count).map(|index| Op::Insert(key(index * 16), value(index as u8))).collect()
}

/// As `inserts`, then removes of the same in ascending or descending order.
pub fn inserts_then_removes(
    count: u64,
    key: fn(u64) -> Vec<u8>,
    value: fn(u8) -> Vec<u8>,
    ascending: bool,
) -> Vec<Op> {
    let mut ops = inserts(count, key, value);
    let removes = (0..count).map(|index| Op::Remove(key(index * 16)));
    if ascending {
        ops.extend(removes)
    } else {
        ops.extend(removes.rev())
    }
    ops
}

/// Every single operation, by the kind of value before and after.
pub fn operations() -> Vec<Scenario> {
    // The leaf has room, so the operation changes nothing else.
    let options = Options { leaf_bytes: 1024, free_bytes: 512, ..small_nodes() };
    let pointers = Options { value_mode: ValueMode::Pointer, ..options };
    let with = |value: Vec<u8>| {
        let mut prepare = inserts(6, short, inline);
        prepare.push(Op::Insert(short(40), value));
        prepare
    };
    let (there, absent) = (short(40), short(41));
    let both = [("inline", inline(1), inline(2)), ("pointer", pointed(1), pointed(2))];
    let mut all = Vec::new();
    for (kind, old, new) in both {
        let other = if kind == "inline" { pointed(3) } else { inline(3) };
        let name = |op: &str| -> &'static str { format!("{op}, {kind}").leak() };
        let exchange = |to: &[u8]| Op::Exchange(there.clone(), old.clone(), to.to_vec());
        let wrong = Op::Exchange(there.clone(), b"wrong".to_vec(), new.clone());
        for (op, act) in [
            ("insert", Op::Insert(absent.clone(), new.clone())),
            ("insert of a key that is there", Op::Insert(there.clone(), new.clone())),
            ("update", Op::Update(there.clone(), new.clone())),
            ("update to the other kind", Op::Update(there.clone(), other.clone())),
            ("update of no key", Op::Update(absent.clone(), new.clone())),
            ("upsert, absent", Op::Upsert(absent.clone(), new.clone())),
            ("upsert, there", Op::Upsert(there.clone(), new.clone())),
            ("upsert to the other kind", Op::Upsert(there.clone(), other.clone())),
            ("remove", Op::Remove(there.clone())),
            ("exchange", exchange(&new)),
            ("exchange to the other kind", exchange(&other)),
            ("exchange of a wrong value", wrong),
        ] {
            all.push(exactly(name(op), options, with(old.clone()), act));
        }
    }
    let act = Op::Update(there.clone(), inline(2));
    all.push(exactly("update, pointer mode", pointers, with(inline(1)), act));
    // A key that was removed in the same leaf: its place is used again.
    let mut prepare = with(pointed(1));
    prepare.push(Op::Remove(there.clone()));
    all.push(exactly("insert again, pointer", options, prepare, Op::Insert(there, pointed(2))));
    all
}

/// Modifications of the leaf level.
pub fn leaf_modifications() -> Vec<Scenario> {
    let options = small_nodes();
    let updates = |value: fn(u8) -> Vec<u8>| {
        let mut ops = inserts(6, short, value);
        ops.extend((0..60).map(|turn| Op::Update(short(turn % 6 * 16), value(turn as u8 ^ 0x80))));
        ops
    };
    let consolidated: Effect =
        |was, is| was.leaves == is.leaves && is.deleted_bytes < was.deleted_bytes;
    let consolidated_pointers: Effect = |was, is| {
        was.leaves == is.leaves && was.records == is.records && is.leaf_bytes != was.leaf_bytes
    };
    let split: Effect = |was, is| {
        was.height > 1 && is.leaves == was.leaves + 1 && is.inner_nodes == was.inner_nodes
    };
    let grown: Effect = |was, is| was.height == 1 && is.height == 2;
    let merged: Effect = |was, is| is.leaves < was.leaves && is.inner_nodes == was.inner_nodes;
    let last_merged: Effect = |was, is| was.height == 2 && is.height == 1;
    vec![
        first("consolidation", options, updates(inline), consolidated),
        first(
            "consolidation, to inline",
            options,
            {
                let mut ops = inserts(6, short, pointed);
                ops.extend(
                    (0..60).map(|turn| Op::Update(short(turn % 6 * 16), inline(turn as u8))),
                );
                ops
            },
            consolidated_pointers,
        ),
        first("leaf split", options, inserts(400, short, inline), split),
        first("leaf split, long keys, pointers", options, inserts(400, long, pointed), split),
        first("root leaf split", options, inserts(400, short, inline), grown),
        first("merge right", options, inserts_then_removes(100, short, inline, true), merged),
        first("merge left", options, inserts_then_removes(100, long, inline, false), merged),
        first(
            "merge right, pointers",
            options,
            inserts_then_removes(100, long, pointed, true),
            merged,
        ),
        first(
            "merge of the last two leaves",
            options,
            inserts_then_removes(30, short, inline, true),
            last_merged,
        ),
    ]
}

/// Operations on range leaves, and the modifications of these.
pub fn ranges() -> Vec<Scenario> {
    let options = small_ranges();
    // Values of several classes. The first leaf becomes a range leaf when it is replaced. The last
    // one has no versions: its keys move.
    let there = || inserts(14, short, inline);
    let removed =
        |tag| [there(), vec![Op::Insert(short(40), inline(tag)), Op::Remove(short(40))]].concat();
    let moved = || [there(), vec![Op::Update(short(32), inline(0xF0))]].concat();
    let bounded = || inserts(60, short, inline);
    let versioned = || [bounded(), vec![Op::Update(short(32), inline(0xF0))]].concat();
    let deleted = || [versioned(), vec![Op::Remove(short(32))]].concat();
    let exchange_versioned = Op::Exchange(short(32), inline(0xF0), inline(0xF1));
    let exchange = |to| Op::Exchange(short(32), inline(2), to);
    let split: Effect = |was, is| is.leaves == was.leaves + 1;
    let merged: Effect = |was, is| is.leaves < was.leaves;
    let replaced: Effect = |was, is| was.leaves == is.leaves && is.leaf_bytes != was.leaf_bytes;
    vec![
        exactly("range insert", options, there(), Op::Insert(short(40), inline(1))),
        exactly("range update", options, there(), Op::Update(short(32), inline(3))),
        exactly("range move", options, there(), Op::Update(short(32), inline(0x83))),
        exactly("range move again", options, moved(), Op::Upsert(short(32), inline(0x83))),
        exactly("range remove", options, there(), Op::Remove(short(32))),
        exactly("range remove of a moved key", options, moved(), Op::Remove(short(32))),
        exactly("range insert again", options, removed(1), Op::Insert(short(40), inline(2))),
        exactly(
            "range insert again, moved",
            options,
            removed(1),
            Op::Insert(short(40), inline(0x81)),
        ),
        exactly("range exchange", options, there(), exchange(inline(3))),
        exactly("range exchange, moved", options, there(), exchange(inline(0x83))),
        exactly("range class", options, bounded(), Op::Update(short(32), inline(0x83))),
        exactly("range class again", options, versioned(), Op::Upsert(short(32), inline(0x43))),
        exactly("range exchange, versioned", options, versioned(), exchange_versioned),
        exactly("range remove, versioned", options, versioned(), Op::Remove(short(32))),
        exactly("range insert, versioned", options, deleted(), Op::Insert(short(32), inline(1))),
        exactly("range to the other kind", options, there(), Op::Update(short(32), pointed(1))),
        first("to a range", options, inserts(40, short, inline), replaced),
        first("range split", options, inserts(100, short, inline), split),
        first("range merge", options, inserts_then_removes(60, short, inline, true), merged),
    ]
}

/// Modifications of the inner levels.
pub fn inner_modifications() -> Vec<Scenario> {
    let options = small_nodes();
    let split: Effect = |was, is| is.height == was.height && is.inner_nodes == was.inner_nodes + 1;
    let grown: Effect = |was, is| was.height >= 2 && is.height == was.height + 1;
    let merged: Effect =
        |was, is| was.height >= 3 && is.height == was.height && is.inner_nodes < was.inner_nodes;
    let collapsed: Effect = |was, is| was.height >= 3 && is.height < was.height;
    vec![
        first("inner split", options, inserts(2000, long, inline), split),
        first("inner split, short keys", options, inserts(4000, short, inline), split),
        first("inner root split", options, inserts(2000, long, inline), grown),
        first(
            "inner merge, from the left",
            options,
            inserts_then_removes(500, long, inline, true),
            merged,
        ),
        first(
            "inner merge, from the right",
            options,
            inserts_then_removes(500, long, inline, false),
            merged,
        ),
        first("root collapse", options, inserts_then_removes(500, long, inline, true), collapsed),
    ]
}

/// Records that are larger than a usual node, and no records.
pub fn edges() -> Vec<Scenario> {
    let options = small_nodes();
    let giant_key = |tag: u8| vec![tag; 2_000];
    let mut one_each = inserts(8, long, inline);
    one_each.push(Op::Insert(giant_key(b'm'), inline(1)));
    let last_of = |value: Vec<u8>| vec![Op::Insert(short(7), value)];
    let emptied = vec![Op::Insert(short(7), inline(1)), Op::Remove(short(7))];
    vec![
        exactly(
            "giant record",
            options,
            inserts(8, long, inline),
            Op::Insert(giant_key(b'm'), inline(1)),
        ),
        exactly(
            "second giant record",
            options,
            one_each.clone(),
            Op::Insert(giant_key(b'n'), pointed(1)),
        ),
        exactly("remove of a giant record", options, one_each, Op::Remove(giant_key(b'm'))),
        exactly(
            "value of a megabyte",
            options,
            inserts(8, long, inline),
            Op::Insert(long(3), vec![7; 1 << 20]),
        ),
        exactly("first record", options, vec![], Op::Insert(short(7), inline(1))),
        exactly("remove of the last record", options, last_of(inline(1)), Op::Remove(short(7))),
        exactly(
            "remove of the last record, pointer",
            options,
            last_of(pointed(1)),
            Op::Remove(short(7)),
        ),
        exactly("first record again", options, emptied, Op::Insert(short(7), pointed(1))),
    ]
}

/// Runs of records: into an empty tree, behind records, several at once, and where a parent must be
/// split first.
pub fn runs() -> Vec<Scenario> {
    let options = small_nodes();
    let ranged = small_ranges();
    // A quarter of a node has room for five separators.
    let [wide, wide_ranged] =
        [options, ranged].map(|options| Options { inner_bytes: 512, ..options });
    let records = |from: u64, count| {
        Op::Run((from..from + count).map(|index| (short(index), inline(index as u8))).collect())
    };
    let run = |from: u64| records(from, 12);
    let many = (0..60).map(|index| run(index * 100)).collect();
    // Five leaves of 22 records each, or of 17.
    let leaves = |count| (0..40).map(|index| records(index * 1_000, count)).collect();
    let five: Effect = |was, is| {
        was.height >= 3 && is.leaves == was.leaves + 5 && is.inner_nodes == was.inner_nodes
    };
    vec![
        exactly("run into an empty tree", options, vec![], run(0)),
        exactly("run behind records", options, inserts(8, short, inline), run(1_000)),
        exactly("run behind a range", ranged, inserts(14, short, inline), run(1_000)),
        exactly("runs into an empty tree", wide, vec![], records(0, 40)),
        first("five runs under a parent", wide, leaves(5 * 22), five),
        first("five ranges under a parent", wide_ranged, leaves(5 * 17), five),
        first("run that splits a parent", options, many, |before, after| {
            before.inner_nodes >= 1 && after.inner_nodes > before.inner_nodes + 1
        }),
    ]
}
