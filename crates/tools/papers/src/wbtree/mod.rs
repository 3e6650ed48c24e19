//! Persistent B+-Trees in Non-Volatile Main Memory (Chen, Jin; VLDB 2015): its nine trees and the
//! volatile one, side by side in one run.
//!
//! The baselines have one writer (`crate::baselines`); the wB+-Trees are the ones that users
//! have, with all that many writers take. Each tree is loaded with the same records; then, round by
//! round, each does a batch of searches, of insertions and of deletions in turn, on one thread.
//! Ratios are of one round's times.
//!
//! | file | what |
//! | --- | --- |
//! | this one | the trees, and figures 13 and 14 |
//! | `medium` | figures 11 and 12: what trees wait for on the paper's medium, and wear of it |
//! | [`memcached`] | figure 15: the trees behind memcached's protocol |
//! | [`table3`] | what operations write, counted |

mod medium;
pub mod memcached;
pub mod table3;

use std::sync::Arc;
use std::time::Instant;

use crate::baselines::{BASELINES, Baseline, Leaves, Scheme};
use indicatif::ProgressBar;
use pando_index::RangeIndex;
use pando_pmem::{Adr, CreateOptions, Domain, Pool, Process};
use pando_tree::maps::{Catalog, Tree as _};
use pando_wbtree::{NodeKind, Options, RecordBytes, WbTree, WbTrees};

pub use self::medium::{figure_11, figure_12};
use super::error::Error;
use super::experiment::{Paper, Settings};
use super::outcome::{Measured, Outcome, Published};
use pando_bench::keys::{key_of, value_of};
use pando_bench::rng::Rng;
use pando_bench::spread::Spread;
use pando_bench::systems::BuildError;

/// The paper, and what it measured on.
pub const PAPER: Paper = Paper {
    short: "wbtree",
    title: "Chen, Jin: Persistent B+-Trees in Non-Volatile Main Memory",
    conditions: "2 x Xeon E5-2620 2 GHz, 12 cores; PTLsim with PCM: 230 cycles a line read, 450 an 8-byte write",
};

/// What a tree of the paper does, whatever it is.
trait Tree {
    /// Nodes that it has.
    fn nodes(&self) -> u64;
    fn get(&self, key: u64) -> bool;
    fn insert(&self, key: u64) -> bool;
    fn remove(&self, key: u64) -> bool;
}

impl<D: Domain> Tree for Baseline<D> {
    fn nodes(&self) -> u64 {
        Baseline::nodes(self)
    }

    fn get(&self, key: u64) -> bool {
        Baseline::<D>::get(self, key).is_some()
    }

    fn insert(&self, key: u64) -> bool {
        Baseline::<D>::insert(self, key, value_of(key, 0)).unwrap_or(false)
    }

    fn remove(&self, key: u64) -> bool {
        Baseline::<D>::remove(self, key).unwrap_or(false)
    }
}

/// The same of string keys.
struct OfStrings<T>(T);

/// The string that a number stands for: 20 bytes, as in the paper.
fn string_of(key: u64) -> [u8; 20] {
    let mut string = [0; 20];
    string[..8].copy_from_slice(&key.to_be_bytes());
    string[8..16].copy_from_slice(&key.rotate_left(17).to_be_bytes());
    string[16..].copy_from_slice(&key.to_le_bytes()[..4]);
    string
}

impl<D: Domain> Tree for OfStrings<Baseline<D, true>> {
    fn nodes(&self) -> u64 {
        self.0.nodes()
    }

    fn get(&self, key: u64) -> bool {
        self.0.get(&string_of(key)).is_some()
    }

    fn insert(&self, key: u64) -> bool {
        self.0.insert(&string_of(key), value_of(key, 0)).unwrap_or(false)
    }

    fn remove(&self, key: u64) -> bool {
        self.0.remove(&string_of(key)).unwrap_or(false)
    }
}

impl<D: Domain> Tree for OfStrings<WbTree<D>> {
    fn nodes(&self) -> u64 {
        Tree::nodes(&self.0)
    }

    fn get(&self, key: u64) -> bool {
        self.0.read_with(&string_of(key), |_| ()).is_ok_and(|found| found.is_some())
    }

    fn insert(&self, key: u64) -> bool {
        RangeIndex::insert(&self.0, &string_of(key), &value_of(key, 0).to_le_bytes()).is_ok()
    }

    fn remove(&self, key: u64) -> bool {
        RangeIndex::remove(&self.0, &string_of(key)).unwrap_or(false)
    }
}

impl<D: Domain> Tree for WbTree<D> {
    fn nodes(&self) -> u64 {
        self.audit().map_or(0, |audit| audit.stat.leaves + audit.stat.inner_nodes)
    }

    fn get(&self, key: u64) -> bool {
        self.read_with(&key.to_be_bytes(), |_| ()).is_ok_and(|found| found.is_some())
    }

    fn insert(&self, key: u64) -> bool {
        RangeIndex::insert(self, &key.to_be_bytes(), &value_of(key, 0).to_le_bytes()).is_ok()
    }

    fn remove(&self, key: u64) -> bool {
        RangeIndex::remove(self, &key.to_be_bytes()).unwrap_or(false)
    }
}

/// A tree, by the paper's name.
type Named = (&'static str, Box<dyn Tree>);

/// The three wB+-Trees by the paper's names.
const WB_TREES: [(&str, NodeKind); 3] = [
    ("wbtree", NodeKind::SlotBitmap),
    ("wbtree w/ bmp-leaf", NodeKind::BitmapOnly),
    ("wbtree w/ slot-only", NodeKind::SlotOnly),
];

/// The wB+-Tree where nothing is written back.
const ON_ORDINARY_MEMORY: &str = "wbtree (volatile)";

fn pool<D: Domain>(settings: &Settings) -> Result<Arc<Pool<D>>, BuildError> {
    let create =
        CreateOptions { max_bytes: settings.build.max_pool_bytes, ..CreateOptions::default() };
    Ok(Pool::anonymous(&create)?)
}

fn baseline<D: Domain>(
    settings: &Settings,
    leaves: Leaves,
    scheme: Scheme,
    lines: u64,
) -> Result<Box<dyn Tree>, BuildError> {
    Ok(Box::new(Baseline::<D>::new(pool(settings)?, leaves, scheme, lines)?))
}

fn wb_tree<D: Domain>(
    settings: &Settings,
    leaf: NodeKind,
    lines: u64,
    is_variable: bool,
) -> Result<WbTree<D>, BuildError> {
    // The slots of a word are for eight cells.
    let node_lines = if leaf == NodeKind::SlotOnly { lines.min(3) } else { lines };
    let records = if is_variable { RecordBytes::Variable } else { RecordBytes::Fixed };
    let options = Options { leaf, records, node_lines: node_lines as u32, ..Options::default() };
    let catalog = Arc::new(Catalog::open(pool(settings)?)?);
    Ok(catalog.find_or_create_index::<WbTrees>("wbtree", options)?)
}

/// All trees with nodes of `lines` lines, the volatile one first.
fn trees<D: Domain>(settings: &Settings, lines: u64) -> Result<Vec<Named>, BuildError> {
    let mut trees = Vec::new();
    for (name, leaves, scheme) in BASELINES {
        // On the same medium, also the one that writes nothing back.
        let tree = baseline::<D>(settings, leaves, scheme, lines)?;
        trees.push((name, tree));
    }
    // Of two lines only slot-only nodes can be, as in the paper.
    for (name, leaf) in
        WB_TREES.into_iter().filter(|tree| (lines == 2) == (tree.1 == NodeKind::SlotOnly))
    {
        trees.push((name, Box::new(wb_tree::<D>(settings, leaf, lines, false)?)));
    }
    // And the wB+-Tree where nothing is written back: what of a search is the tree, and not the
    // medium.
    if lines > 2 {
        trees.push((
            ON_ORDINARY_MEMORY,
            Box::new(wb_tree::<Process>(settings, NodeKind::SlotBitmap, lines, false)?),
        ));
    }
    Ok(trees)
}

/// The trees of string keys, all but those with unsorted packed leaves, as in the paper.
fn trees_of_strings<D: Domain>(settings: &Settings, lines: u64) -> Result<Vec<Named>, BuildError> {
    let mut trees: Vec<Named> = Vec::new();
    for (name, leaves, scheme) in
        BASELINES.into_iter().filter(|baseline| baseline.1 != Leaves::Unsorted)
    {
        let tree = Baseline::<D, true>::new(pool(settings)?, leaves, scheme, lines)?;
        trees.push((name, Box::new(OfStrings(tree))));
    }
    for (name, leaf) in &WB_TREES[..2] {
        let tree = wb_tree::<D>(settings, *leaf, lines, true)?;
        trees.push((name, Box::new(OfStrings(tree))));
    }
    Ok(trees)
}

const OPERATIONS: [&str; 3] = ["search", "insertion", "deletion"];

/// Nanoseconds an operation of each tree, by operation and round.
type Times = Vec<[Vec<f64>; 3]>;

fn refused(source: BuildError) -> Error {
    Error::Refused { what: "building a tree of the paper", source }
}

/// Loads all trees, and times batches in turn.
fn rounds(
    settings: &Settings,
    trees: &[Named],
    records: u64,
    progress: &ProgressBar,
) -> Result<(Vec<&'static str>, Times), Error> {
    let rounds = settings.rounds.unwrap_or(5) as u64;
    let batch = (records / (4 * rounds.max(5))).clamp(1, 20_000);
    progress.set_length(trees.len() as u64 * (rounds + 1));
    let lost = |name: &str, operation: &str| {
        refused(format!("{name} has lost a record, or refused an {operation}").into())
    };
    for (name, tree) in trees {
        if !(0..records).all(|number| tree.insert(key_of(number))) {
            return Err(lost(name, "insertion"));
        }
        progress.inc(1);
    }
    let mut times: Times = trees.iter().map(|_| Default::default()).collect();
    for round in 0..rounds {
        for turn in 0..trees.len() {
            // Each round begins with another tree.
            let index = (turn + round as usize) % trees.len();
            let (name, tree) = &trees[index];
            let mut rng = Rng::new(settings.seed ^ round);
            // Earlier rounds have removed the first of what was loaded.
            let (gone, fresh) = (round * batch, records + round * batch);
            let numbers: Vec<u64> = (0..batch).map(|_| gone + rng.below(records - gone)).collect();
            let timed = |work: &mut dyn FnMut(u64) -> bool| {
                let begun = Instant::now();
                let done = (0..batch).all(work);
                (done, begun.elapsed().as_nanos() as f64 / batch as f64)
            };
            let results = [
                timed(&mut |step| tree.get(key_of(numbers[step as usize]))),
                timed(&mut |step| tree.insert(key_of(fresh + step))),
                timed(&mut |step| tree.remove(key_of(gone + step))),
            ];
            for (place, (done, ns)) in results.into_iter().enumerate() {
                if !done {
                    return Err(lost(name, OPERATIONS[place]));
                }
                times[index][place].push(ns);
            }
            progress.inc(1);
        }
    }
    Ok((trees.iter().map(|tree| tree.0).collect(), times))
}

/// The ratio of two trees' times, round by round.
fn ratio(over: &[f64], under: &[f64]) -> Spread {
    let ratios: Vec<f64> = over.iter().zip(under).map(|(over, under)| over / under).collect();
    Spread::of(&ratios)
}

/// What a figure says of the best wB+-Tree against the slowest and the fastest of the others.
struct Says {
    slowest: Published,
    fastest: Published,
    search: Published,
}

fn figure(
    settings: &Settings,
    lines: &[u64],
    make: fn(&Settings, u64) -> Result<Vec<Named>, BuildError>,
    says: &Says,
    progress: &ProgressBar,
) -> Result<Outcome, Error> {
    let records = settings.records.unwrap_or(1_000_000);
    let mut outcome = Outcome {
        conditions: format!("{records} records with values of 8 bytes, 1 thread, anonymous memory"),
        ..Outcome::default()
    };
    for &lines in lines {
        let trees = make(settings, lines).map_err(refused)?;
        let (names, times) = rounds(settings, &trees, records, progress)?;
        let place = |wanted: &str| names.iter().position(|name| *name == wanted);
        for (operation, label) in OPERATIONS.iter().enumerate() {
            for (name, times) in names.iter().zip(&times) {
                let of = Measured::new(Spread::of(&times[operation]), "");
                outcome.push(format!("{lines} lines, {label}, {name}"), "ns", None, Some(of));
            }
            let median = |index: usize| Spread::of(&times[index][operation]).median;
            let ours: Vec<usize> = WB_TREES.iter().filter_map(|tree| place(tree.0)).collect();
            if operation == 0 {
                for (name, paper) in [
                    ("wbtree", Some(says.search.clone())),
                    ("wbtree w/ bmp-leaf", None),
                    ("wbtree w/ slot-only", None),
                    ("wbtree (volatile)", None),
                ] {
                    let Some(index) = place(name) else { continue };
                    let spread = ratio(&times[index][0], &times[0][0]);
                    let ours = Measured::new(spread, format!("time of {name} / {}", names[0]));
                    outcome.push(format!("{lines} lines, search, ratio"), "x", paper, Some(ours));
                }
                continue;
            }
            // The others are the six with logging and shadowing.
            let is_other =
                |&place: &usize| BASELINES[1..].iter().any(|other| other.0 == names[place]);
            let others: Vec<usize> = (0..names.len()).filter(is_other).collect();
            let by_time = |list: &[usize]| {
                let mut list = list.to_vec();
                list.sort_by(|left, right| median(*left).total_cmp(&median(*right)));
                list
            };
            let (ours, others) = (by_time(&ours), by_time(&others));
            let (Some(&best), Some(&fastest), Some(&slowest)) =
                (ours.first(), others.first(), others.last())
            else {
                continue;
            };
            for (what, other, paper) in
                [("slowest", slowest, &says.slowest), ("fastest", fastest, &says.fastest)]
            {
                let spread = ratio(&times[other][operation], &times[best][operation]);
                let of = format!("time of {} / {}", names[other], names[best]);
                outcome.push(
                    format!("{lines} lines, {label}, {what} other / best wB+-Tree"),
                    "x",
                    Some(paper.clone()),
                    Some(Measured::new(spread, of)),
                );
            }
        }
    }
    Ok(outcome)
}

/// Figure 13: ordinary memory.
pub fn figure_13(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let says = Says {
        slowest: Published::text("2.1 to 8.8", ""),
        fastest: Published::text("1.2 to 1.6", ""),
        search: Published::text("1.02 to 1.04", "on the simulator; similar on a machine"),
    };
    figure(settings, &[2, 4, 8], trees::<Adr>, &says, progress)
}

/// Figure 14: string keys.
pub fn figure_14(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let says = Says {
        slowest: Published::text("up to 5.6", "wbtree"),
        fastest: Published::text("from 1.2", "wbtree"),
        search: Published::text("about 3 times that of 8-byte keys", "of all trees"),
    };
    figure(settings, &[8, 12], trees_of_strings::<Adr>, &says, progress)
}
