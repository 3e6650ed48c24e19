//! A map of the catalog is renamed. One thread does it: the layer above allows no other change of
//! the catalog meanwhile.

use std::sync::Arc;

use pando_device::simulated::Simulated;
use pando_index::random::Random;
use pando_pmem::{Domain, Pool};
use pando_tree::maps::Catalog;
use pando_tree::maps::slots::{MapEntry, MapHeader};

use super::{Model, Noted, Observed, Opened, Scenario, Setup, Subject, compare_blocks};

/// Number of names that the map takes.
const NAMES: u64 = 3;
/// Bytes of the map's first block.
const ROOT_BYTES: u64 = 64;

/// An operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// Creates the map with this name, while no other thread works.
    Create(u64),
    /// Gives the map this name, unless it has the name.
    Rename(u64),
    /// Reads the map's name.
    Name,
}

/// The map's name after the operation.
#[derive(Clone, Debug)]
pub struct Named(u64);

/// A map that is renamed.
pub struct Renamed;

/// The catalog of an open pool.
pub struct Open<D: Domain>(Catalog<D>);

impl Subject for Renamed {
    type Model = Self;
    type Open<D: Domain> = Open<D>;

    /// The same name as the other scenarios of the catalog.
    const NAME: &'static str = "catalog";

    fn open<D: Domain>(pool: Arc<Pool<D>>, _: &Simulated) -> Result<Open<D>, String> {
        let open = Open(Catalog::open(pool).map_err(|error| error.to_string())?);
        let guard = open.0.pool().pin().map_err(|error| error.to_string())?;
        open.0.settle_headers(&guard).map_err(|error| error.to_string())?;
        drop(guard);
        Ok(open)
    }

    fn scenarios() -> Vec<Scenario<Self>> {
        let op = |random: &mut Random| match random.below(4) {
            0 => Op::Name,
            _ => Op::Rename(random.below(NAMES)),
        };
        vec![Scenario::new("renamed", 1, move || Setup {
            prepare: vec![Op::Create(0)],
            cram: Vec::new(),
            programs: Box::new(move |random| {
                vec![(0..1 + random.below(3)).map(|_| op(random)).collect()]
            }),
        })]
    }
}

impl Model for Renamed {
    type Op = Op;
    type Answer = Named;
    /// The map's name, if it exists.
    type State = Option<u64>;

    fn changes(op: &Op) -> Option<usize> {
        (!matches!(op, Op::Name)).then_some(0)
    }

    fn blank() -> Option<u64> {
        None
    }

    fn after(state: &Option<u64>, op: &Op, answer: Option<&Named>) -> Option<Option<u64>> {
        let next = match *op {
            Op::Create(name) | Op::Rename(name) => Some(name),
            Op::Name => *state,
        };
        answer.is_none_or(|Named(name)| Some(*name) == next).then_some(next)
    }
}

fn name_of(name: u64) -> String {
    format!("map {name}")
}

impl<D: Domain> Open<D> {
    /// The map and the number of its name.
    fn map(&self) -> Result<Option<(MapEntry, u64)>, String> {
        let guard = self.0.pool().pin().map_err(|error| error.to_string())?;
        let mut maps = self.0.maps(&guard);
        let Some(entry) = maps.pop() else { return Ok(None) };
        if !maps.is_empty() {
            return Err(format!("there are {} maps besides the one", maps.len()));
        }
        let header = entry.header.as_ref().map_err(|damage| damage.to_string())?;
        let name = (0..NAMES).find(|&name| name_of(name) == header.name);
        let name = name.ok_or_else(|| format!("no thread gave the name {:?}", header.name))?;
        Ok(Some((entry, name)))
    }

    fn the_map(&self) -> (MapEntry, u64) {
        self.map().expect("one undamaged map").expect("a map")
    }

    fn create(&self, name: u64) {
        let guard = self.0.pool().pin().expect("a participant slot");
        let header = MapHeader { name: name_of(name), kind: 1, options: [0; 4], number: 0 };
        let root = || {
            let mut block = guard.reserve(ROOT_BYTES)?;
            (0..ROOT_BYTES).step_by(8).for_each(|at| block.write_u64(at, 0));
            block.flush(0, ROOT_BYTES);
            Ok(block)
        };
        self.0.find_or_create_map(&guard, &header, &root).expect("room for a map");
    }

    fn rename(&self, to: u64) {
        let (entry, name) = self.the_map();
        if name != to {
            let guard = self.0.pool().pin().expect("a participant slot");
            self.0.rename_map(&guard, &entry, &name_of(to)).expect("a free name");
        }
    }
}

impl<D: Domain> Opened<Renamed> for Open<D> {
    fn perform(&self, op: &Op) -> Vec<Noted<Renamed>> {
        match *op {
            Op::Create(name) => self.create(name),
            Op::Rename(name) => self.rename(name),
            Op::Name => {}
        }
        vec![(0, op.clone(), Named(self.the_map().1))]
    }

    fn observe(&self) -> Result<Observed<Renamed>, String> {
        Ok(self.map()?.map(|(_, name)| (0, Some(name))).into_iter().collect())
    }

    fn audit(&self) -> Result<(), String> {
        let guard = self.0.pool().pin().map_err(|error| error.to_string())?;
        let mut reached = Vec::new();
        for entry in self.0.maps(&guard) {
            if self.0.slots().has_damaged_copy(&guard, &entry) {
                return Err("the copies of the header differ".to_owned());
            }
            reached.extend([entry.header_off, self.0.read(&guard, entry.root_off())]);
        }
        compare_blocks(self.0.pool(), &reached)
    }

    fn exercise(&self) -> Result<(), String> {
        let Some((_, former)) = self.map()? else { return Ok(()) };
        let other = (former + 1) % NAMES;
        for name in [other, former] {
            self.rename(name);
            if self.the_map().1 != name {
                return Err(format!("the map was renamed to {:?}", name_of(name)));
            }
        }
        Ok(())
    }
}
