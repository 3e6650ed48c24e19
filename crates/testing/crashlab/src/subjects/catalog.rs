//! The catalog: several threads create and drop maps by name at the same time.

use std::sync::Arc;

use pando_device::simulated::Simulated;
use pando_index::random::Random;
use pando_pmem::{Domain, Guard, Pool};
use pando_pmwcas::Policy;
use pando_tree::context::Context;
use pando_tree::maps::slots::{MapEntry, MapHeader};
use pando_tree::maps::{self, KnownKind, MapError, OptionValues, Unit};
use pando_tree::testing::named_blocks;

use super::{Model, Noted, Observed, Opened, Scenario, Setup, Subject};

/// Number of names.
const NAMES: usize = 3;
/// Blocks that a complete map's first block names: more than one operation frees.
const OWNED: u64 = 10;
/// Blocks that one operation adds to a map.
const ADDED: u64 = 5;
/// A name that only recovery uses.
const PROBE: usize = NAMES;
/// Bytes of a map's first block: the offset of each block that it owns.
const ROOT_BYTES: u64 = OWNED * 8;
/// The number of the maps' kind.
const KIND: u64 = 1;

/// An operation on a name.
#[derive(Clone, Debug)]
pub enum Op {
    /// Finds the map, or creates it.
    Create(usize),
    /// Drops the map, if it exists.
    Drop(usize),
    /// Whether the map exists.
    Find(usize),
}

/// Whether the map existed, or exists now.
#[derive(Clone, Debug)]
pub struct There(bool);

/// The catalog of a pool.
pub struct Catalog;

/// The catalog of an open pool.
pub struct Open<D: Domain>(maps::Catalog<D>);

impl Subject for Catalog {
    type Model = Self;
    type Open<D: Domain> = Open<D>;

    const NAME: &'static str = "catalog";

    fn open<D: Domain>(pool: Arc<Pool<D>>, _: &Simulated) -> Result<Open<D>, String> {
        let kind = KnownKind { number: KIND, options: &[], next_unit };
        let open = maps::Catalog::open(pool).map_err(|error| error.to_string())?;
        let open = open.with_kinds(vec![kind]);
        let open = Open(open);
        open.resume()?;
        Ok(open)
    }

    fn scenarios() -> Vec<Scenario<Catalog>> {
        let any = |random: &mut Random, name: usize| match random.below(5) {
            0 | 1 => Op::Create(name),
            2 | 3 => Op::Drop(name),
            _ => Op::Find(name),
        };
        vec![
            scenario("one-name", move |random| any(random, 0)),
            scenario("names", move |random| {
                let name = random.below(NAMES as u64) as usize;
                any(random, name)
            }),
        ]
    }
}

impl Model for Catalog {
    type Op = Op;
    type Answer = There;
    /// Whether the map exists.
    type State = bool;

    fn changes(op: &Op) -> Option<usize> {
        match op {
            Op::Create(name) | Op::Drop(name) => Some(*name),
            Op::Find(_) => None,
        }
    }

    fn blank() -> bool {
        false
    }

    fn after(state: &bool, op: &Op, answer: Option<&There>) -> Option<bool> {
        let (allowed, next) = match op {
            Op::Create(_) => (true, true),
            Op::Drop(_) => (*state, false),
            Op::Find(_) => (*state, *state),
        };
        answer.is_none_or(|There(there)| *there == allowed).then_some(next)
    }
}

fn scenario(name: &'static str, op: impl Fn(&mut Random) -> Op + 'static) -> Scenario<Catalog> {
    Scenario::new(name, 1, move || {
        Setup::new(vec![Op::Create(0), Op::Create(1), Op::Drop(1)], move |random| {
            let program =
                |random: &mut Random| (0..1 + random.below(2)).map(|_| op(random)).collect();
            (0..2 + random.below(2)).map(|_| program(random)).collect()
        })
    })
}

fn next_unit<D: Domain>(context: Context<'_, D>, root_off: u64, _: &OptionValues) -> Unit {
    let root = context.read(root_off);
    Unit { owned: named_blocks(context, root, OWNED), ..Unit::of_block(root_off, root, 0, root) }
}

fn name_of(name: usize) -> String {
    format!("map {name}")
}

impl<D: Domain> Open<D> {
    fn pin(&self) -> Guard<'_, D> {
        self.0.pool().pin().expect("a participant slot")
    }

    fn find(&self, guard: &Guard<'_, D>, name: usize) -> Option<MapEntry> {
        self.0.find_map(guard, &name_of(name)).expect("nothing is damaged")
    }

    fn create(&self, name: usize) {
        let guard = self.pin();
        let header = MapHeader { name: name_of(name), kind: KIND, options: [0; 4], number: 0 };
        let root = || {
            let mut block = guard.reserve(ROOT_BYTES)?;
            (0..ROOT_BYTES).step_by(8).for_each(|at| block.write_u64(at, 0));
            block.flush(0, ROOT_BYTES);
            Ok(block)
        };
        let entry = self.0.find_or_create_map(&guard, &header, &root).expect("room for a map");
        while self.add(&guard, &entry) {}
    }

    /// Frees the maps whose drop a crash interrupted. Meanwhile another map takes the free blocks,
    /// and must keep them.
    fn resume(&self) -> Result<(), String> {
        self.drop_map(PROBE);
        if self.0.dropped_maps(&self.pin()).is_empty() {
            return Ok(());
        }
        self.create(PROBE);
        self.0.free_dropped(&|| false).map_err(|error| error.to_string())?;
        let guard = self.pin();
        let entry = self.find(&guard, PROBE).ok_or("a map that was just created does not exist")?;
        let root = self.0.read(&guard, entry.root_off());
        let blocks = named_blocks(Context::new(&self.0, &guard), root, OWNED);
        let is_kept = |&block: &u64| self.0.pool().active_block(block).is_some();
        if !is_kept(&root) || blocks.len() as u64 != OWNED || !blocks.iter().all(is_kept) {
            return Err("freeing a dropped map has freed blocks of another one".to_owned());
        }
        drop(guard);
        self.drop_map(PROBE);
        Ok(())
    }

    /// Adds blocks to a map that is incomplete and not dropped; whether it was such a map.
    fn add(&self, guard: &Guard<'_, D>, entry: &MapEntry) -> bool {
        let root = self.0.read(guard, entry.root_off());
        if self.0.read(guard, entry.slot_off()) != entry.word || root == 0 {
            return false;
        }
        let first = named_blocks(Context::new(&self.0, guard), root, OWNED).len() as u64;
        if first >= OWNED {
            return false;
        }
        let mut operation = self.0.allocate(guard).expect("a descriptor");
        operation.add_word(entry.slot_off(), entry.word, entry.word).expect("a word");
        for index in first..(first + ADDED).min(OWNED) {
            let mut block = guard.reserve(64).expect("room for a block");
            block.write_u64(0, entry.slot);
            block.flush(0, 64);
            let word = root + index * 8;
            let word = operation.reserve_entry(word, 0, Policy::FreeNewOnFailure).expect("a word");
            operation.activate(word, block);
        }
        operation.execute();
        true
    }

    fn drop_map(&self, name: usize) -> bool {
        loop {
            let Some(entry) = self.find(&self.pin(), name) else { return false };
            match self.0.unlist_map(&entry) {
                Ok(_) => break,
                // Another thread dropped it. There may be a new map of that name.
                Err(MapError::Dropped { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        // This frees the maps that other threads dropped, too.
        self.0.free_dropped(&|| false).expect("is freed");
        true
    }

    fn maps(&self) -> Vec<MapEntry> {
        self.0.maps(&self.pin())
    }
}

impl<D: Domain> Opened<Catalog> for Open<D> {
    fn perform(&self, op: &Op) -> Vec<Noted<Catalog>> {
        let (name, there) = match *op {
            Op::Create(name) => {
                self.create(name);
                (name, true)
            }
            Op::Drop(name) => (name, self.drop_map(name)),
            Op::Find(name) => (name, self.find(&self.pin(), name).is_some()),
        };
        vec![(name, op.clone(), There(there))]
    }

    fn observe(&self) -> Result<Observed<Catalog>, String> {
        let mut observed = Observed::<Catalog>::new();
        for entry in self.maps() {
            let header = entry.header.map_err(|damage| damage.to_string())?;
            let name = (0..NAMES).find(|&name| name_of(name) == header.name);
            let name = name.ok_or_else(|| format!("no thread created {:?}", header.name))?;
            if observed.insert(name, true).is_some() {
                return Err(format!("{:?} is listed twice", header.name));
            }
        }
        Ok(observed)
    }

    fn audit(&self) -> Result<(), String> {
        let mut reached = Vec::new();
        let guard = self.pin();
        for entry in self.maps() {
            let root = self.0.read(&guard, entry.root_off());
            reached.extend([entry.header_off, root]);
            reached.extend(named_blocks(Context::new(&self.0, &guard), root, OWNED));
        }
        super::compare_blocks(self.0.pool(), &reached)
    }

    fn exercise(&self) -> Result<(), String> {
        for name in 0..NAMES {
            if self.find(&self.pin(), name).is_none() {
                self.create(name);
                if !self.drop_map(name) {
                    return Err(format!("{:?} was created, and does not exist", name_of(name)));
                }
            }
        }
        Ok(())
    }
}
