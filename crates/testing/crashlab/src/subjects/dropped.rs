//! Maps of real indexes are dropped. Several threads free them at the same time, while another map
//! takes the freed blocks.

use std::marker::PhantomData;
use std::sync::Arc;

use pando_device::simulated::Simulated;
use pando_index::RangeIndex;
use pando_index::random::Random;
use pando_pmem::{Domain, Pool};
use pando_tree::maps::slots::MapEntry;
use pando_tree::maps::{Catalog, IndexKind, IndexOptions, KnownKind, MapError, Tree};

use super::map::Indexed;
use super::{Model, Noted, Observed, Opened, Scenario, Setup, Subject, compare_blocks};

/// Records of a map, enough for several nodes.
const RECORDS: u64 = 20;
/// The map that is dropped.
const MAP: &str = "map";
/// The other map.
const OTHER: &str = "other";
/// A map that only recovery creates.
const PROBE: &str = "probe";

/// An operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// Creates the map with its records, while no other thread works.
    Create,
    /// Drops the map, if it exists, and frees it.
    Drop,
    /// Frees the blocks of dropped maps.
    Free,
    /// Writes a record of the other map.
    Write(u64),
}

/// Whether the map existed, or exists now.
#[derive(Clone, Debug)]
pub struct There(bool);

/// A map of an index, to be dropped.
pub struct Dropped<I>(PhantomData<I>);

/// The maps of an open pool.
pub struct Open<I: Indexed, D: Domain> {
    catalog: Arc<Catalog<D>>,
    other: IndexOf<I, D>,
}

type IndexOf<I, D> = <<I as Indexed>::Kind as IndexKind>::Index<D>;

impl<I: Indexed> Subject for Dropped<I> {
    type Model = DroppedModel;
    type Open<D: Domain> = Open<I, D>;

    /// The same name as the other scenarios of the index.
    const NAME: &'static str = I::NAME;
    const POOL_BYTES: u64 = I::POOL_BYTES;

    fn open<D: Domain>(pool: Arc<Pool<D>>, _: &Simulated) -> Result<Open<I, D>, String> {
        let catalog = Catalog::open(pool).map_err(|error| error.to_string())?;
        let catalog = Arc::new(catalog.with_kinds(vec![KnownKind::of::<I::Kind>()]));
        let other = index::<I, D>(&catalog, OTHER)?;
        let open = Open { catalog, other };
        open.resume()?;
        Ok(open)
    }

    fn scenarios() -> Vec<Scenario<DroppedModel>> {
        let others = |random: &mut Random| match random.below(3) {
            0 => vec![Op::Drop],
            1 => vec![Op::Free],
            _ => (0..2 + random.below(4)).map(|number| Op::Write(100 + number)).collect(),
        };
        vec![Scenario::new("dropped", 1, move || {
            Setup::new(vec![Op::Create], move |random| {
                let mut programs = vec![vec![Op::Drop]];
                programs.extend((0..random.below(3)).map(|_| others(random)));
                programs
            })
        })]
    }
}

/// A map that is there or not.
#[derive(Debug)]
pub struct DroppedModel;

impl Model for DroppedModel {
    type Op = Op;
    type Answer = There;
    /// Whether the map exists.
    type State = bool;

    fn changes(op: &Op) -> Option<usize> {
        matches!(op, Op::Create | Op::Drop).then_some(0)
    }

    fn blank() -> bool {
        false
    }

    fn after(state: &bool, op: &Op, answer: Option<&There>) -> Option<bool> {
        let (allowed, next) = match op {
            Op::Create => (true, true),
            Op::Drop => (*state, false),
            Op::Free | Op::Write(_) => return Some(*state),
        };
        answer.is_none_or(|There(there)| *there == allowed).then_some(next)
    }
}

fn index<I: Indexed, D: Domain>(
    catalog: &Arc<Catalog<D>>,
    name: &str,
) -> Result<IndexOf<I, D>, String> {
    let options = <I::Kind as IndexKind>::Options::parse(I::SMALL);
    let options = options.map_err(|error| error.to_string())?;
    let index = catalog.find_or_create_index::<I::Kind>(name, options);
    index.map_err(|error| error.to_string())
}

/// One value in three is long, and has a block of its own.
fn write<I: Indexed>(index: &impl RangeIndex, number: u64) {
    let words = if number.is_multiple_of(3) && !I::FIXED { 25 } else { 1 };
    let value = number.to_le_bytes().repeat(words);
    index.upsert(&number.to_be_bytes(), &value).expect("room for a record");
}

impl<I: Indexed, D: Domain> Open<I, D> {
    fn find(&self, name: &str) -> Option<MapEntry> {
        let guard = self.catalog.pool().pin().expect("a participant slot");
        self.catalog.find_map(&guard, name).expect("nothing is damaged")
    }

    fn create(&self, name: &str) -> Result<(), String> {
        let index = index::<I, D>(&self.catalog, name)?;
        (0..RECORDS).for_each(|number| write::<I>(&index, number));
        Ok(())
    }

    fn drop_map(&self, name: &str) -> bool {
        let Some(entry) = self.find(name) else { return false };
        let dropped = self.catalog.unlist_map(&entry);
        let is_mine = !matches!(dropped, Err(MapError::Dropped { .. }));
        if is_mine {
            dropped.expect("is dropped");
        }
        self.catalog.free_dropped(&|| false).expect("is freed");
        is_mine
    }

    /// Frees a map whose drop a crash interrupted, while another map takes the free blocks.
    fn resume(&self) -> Result<(), String> {
        self.drop_map(PROBE);
        let guard = self.catalog.pool().pin().map_err(|error| error.to_string())?;
        let dropped = self.catalog.dropped_maps(&guard);
        drop(guard);
        if dropped.is_empty() {
            return Ok(());
        }
        self.create(PROBE)?;
        self.catalog.free_dropped(&|| false).map_err(|error| error.to_string())?;
        let probe = self.find(PROBE).ok_or("a map that was just created does not exist")?;
        self.blocks_of(&probe)?;
        self.drop_map(PROBE);
        Ok(())
    }

    /// The blocks of a map, which must be undamaged.
    fn blocks_of(&self, entry: &MapEntry) -> Result<Vec<u64>, String> {
        let index = self.catalog.open_entry::<I::Kind>(entry).map_err(|error| error.to_string())?;
        let audit = index.audit().map_err(|error| error.to_string())?;
        if let Some(problem) = audit.problems.first() {
            return Err(format!("the node at {:#x}: {}", problem.node_off, problem.what));
        }
        let name = entry.header.as_ref().map(|header| header.name.as_str());
        if name != Ok(OTHER) && audit.stat.records != RECORDS {
            return Err(format!("{name:?} has {} of {RECORDS} records", audit.stat.records));
        }
        let blocks = audit.blocks.iter().map(|block| block.off);
        Ok(blocks.chain([entry.header_off]).collect())
    }
}

impl<I: Indexed, D: Domain> Opened<DroppedModel> for Open<I, D> {
    fn perform(&self, op: &Op) -> Vec<Noted<DroppedModel>> {
        let there = match *op {
            Op::Create => {
                self.create(MAP).expect("room for a map");
                true
            }
            Op::Drop => self.drop_map(MAP),
            Op::Free => {
                self.catalog.free_dropped(&|| false).expect("is freed");
                return Vec::new();
            }
            Op::Write(number) => {
                write::<I>(&self.other, number);
                return Vec::new();
            }
        };
        vec![(0, op.clone(), There(there))]
    }

    fn observe(&self) -> Result<Observed<DroppedModel>, String> {
        Ok(self.find(MAP).map(|_| (0, true)).into_iter().collect())
    }

    fn audit(&self) -> Result<(), String> {
        let guard = self.catalog.pool().pin().map_err(|error| error.to_string())?;
        let maps = self.catalog.maps(&guard);
        drop(guard);
        let mut reached = Vec::new();
        for entry in maps {
            reached.extend(self.blocks_of(&entry)?);
        }
        compare_blocks(self.catalog.pool(), &reached)
    }

    fn exercise(&self) -> Result<(), String> {
        self.create(PROBE)?;
        if self.drop_map(PROBE) {
            Ok(())
        } else {
            Err("a map that was created does not exist".into())
        }
    }
}
