//! The catalog: maps are created and dropped by name, several threads at once.

use std::sync::Arc;

use pando_pmem::catalog::{MapEntry, MapHeader};
use pando_pmem::testing::Random;
use pando_pmem::{Domain, Guard, Pool};
use pando_pmwcas::Pmwcas;
use pando_pmwcas::maps::MapError;

use super::{Noted, Observed, Opened, Scenario, Setup, Subject};

/// Names that there are.
const NAMES: usize = 3;
/// Bytes of a map's first block. Its first word, zero, is the seal that a drop sets.
const ROOT_BYTES: u64 = 64;

/// What is done to a name.
#[derive(Clone, Debug)]
pub enum Op {
    /// The map is found, or created.
    Create(usize),
    /// The map is dropped, if it is there.
    Drop(usize),
    /// Whether the map is there.
    Find(usize),
}

/// Whether the map was there, or is there now.
#[derive(Clone, Debug)]
pub struct There(bool);

/// The catalog of a pool.
pub struct Catalog;

/// The catalog of an open pool.
pub struct Open<D: Domain>(Pmwcas<D>);

impl Subject for Catalog {
    type Op = Op;
    type Answer = There;
    /// Whether the map is there.
    type State = bool;
    type Open<D: Domain> = Open<D>;

    const NAME: &'static str = "catalog";

    fn open<D: Domain>(pool: Arc<Pool<D>>) -> Result<Open<D>, String> {
        Pmwcas::open(pool, &[]).map(Open).map_err(|error| error.to_string())
    }

    fn scenarios() -> Vec<Scenario<Self>> {
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
    Scenario::new(name, 1, move || Setup {
        prepare: vec![Op::Create(0), Op::Create(1), Op::Drop(1)],
        cram: Vec::new(),
        programs: Box::new(move |random| {
            let program =
                |random: &mut Random| (0..1 + random.below(2)).map(|_| op(random)).collect();
            (0..2 + random.below(2)).map(|_| program(random)).collect()
        }),
    })
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
        let header = MapHeader { name: name_of(name), kind: 1, options: [name as u64; 4] };
        let root = || {
            let mut block = guard.reserve(ROOT_BYTES)?;
            (0..ROOT_BYTES).step_by(8).for_each(|at| block.write_u64(at, 0));
            block.flush(0, ROOT_BYTES);
            Ok(block)
        };
        self.0.find_or_create_map(&guard, &header, &root).expect("room for a map");
    }

    fn drop_map(&self, name: usize) -> bool {
        loop {
            let guard = self.pin();
            let Some(entry) = self.find(&guard, name) else { return false };
            let root = self.0.read(&guard, entry.root_off());
            if root == 0 {
                // Dropped meanwhile.
                continue;
            }
            match self.0.drop_map(&guard, &entry, root, Some((root, 0, 1))) {
                Ok(()) => return true,
                Err(MapError::Busy) => {}
                Err(error) => panic!("{error}"),
            }
        }
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
            let name = name.ok_or_else(|| format!("nobody created {:?}", header.name))?;
            if observed.insert(name, true).is_some() {
                return Err(format!("{:?} is there twice", header.name));
            }
        }
        Ok(observed)
    }

    fn audit(&self) -> Result<(), String> {
        let mut reached = Vec::new();
        let guard = self.pin();
        for entry in self.maps() {
            let root = self.0.read(&guard, entry.root_off());
            if self.0.read(&guard, root) != 0 {
                return Err(format!("the map at {:#x} is sealed, and there", entry.header_off));
            }
            reached.extend([entry.header_off, root]);
        }
        super::compare_blocks(self.0.pool(), &reached)
    }

    fn exercise(&self) -> Result<(), String> {
        for name in 0..NAMES {
            if self.find(&self.pin(), name).is_none() {
                self.create(name);
                if !self.drop_map(name) {
                    return Err(format!("{:?} was created, and is not there", name_of(name)));
                }
            }
        }
        Ok(())
    }
}
