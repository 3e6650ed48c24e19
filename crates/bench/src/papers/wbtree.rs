//! Persistent B+-Trees in Non-Volatile Main Memory (Chen, Jin; VLDB 2015): its nine trees and the volatile
//! one, side by side in one run.
//!
//! The baselines have one writer (`pando_wbtree::baselines`); the wB+-Trees are the ones that users have, with
//! all that many writers take. Each tree is loaded with the same records; then, round by round, each does a
//! batch of searches, of insertions and of deletions in turn, on one thread. Ratios are of one round's times.

use std::sync::Arc;
use std::time::Instant;

use indicatif::ProgressBar;
use pando_index::RangeIndex;
use pando_pmem::counting::{Counting, Counts, measure};
use pando_pmem::{Adr, CreateOptions, Domain, Pool, Volatile};
use pando_pmwcas::Pmwcas;
use pando_pmwcas::maps::IndexKind;
use pando_wbtree::baselines::{BASELINES, Baseline, Leaves, Scheme};
use pando_wbtree::{NodeKind, Options, WbTree, WbTrees};

use super::Error;
use super::experiment::{Paper, Settings};
use super::outcome::{Measured, Outcome, Published};
use super::pcm::{self, Done, Pcm};
use crate::keys::{key_of, value_of};
use crate::report::Spread;
use crate::rng::Rng;
use crate::sides::BuildError;

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
        WbTrees::audit(self).map_or(0, |audit| audit.stat.leaves + audit.stat.inner_nodes)
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

/// A row of table 3: the name, and a baseline or a wB+-Tree of this kind.
type RowOf = (&'static str, Option<(Leaves, Scheme)>, NodeKind);

/// A unit, and which count it is of.
type Field = (&'static str, fn(&Counts) -> u64);

/// The three wB+-Trees by the paper's names.
const WB_TREES: [(&str, NodeKind); 3] = [
    ("wbtree", NodeKind::SlotBitmap),
    ("wbtree w/ bmp-leaf", NodeKind::BitmapOnly),
    ("wbtree w/ slot-only", NodeKind::SlotOnly),
];

/// The wB+-Tree where nothing is written back.
const ON_ORDINARY_MEMORY: &str = "wbtree (volatile)";

fn pool<D: Domain>(settings: &Settings) -> Result<Arc<Pool<D>>, BuildError> {
    let create = CreateOptions {
        max_bytes: settings.build.max_pool_bytes,
        huge_pages: settings.build.huge_pages,
        ..CreateOptions::default()
    };
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
    let options =
        Options { leaf, is_variable, node_lines: node_lines as u32, ..Options::default() };
    let pmwcas = Arc::new(Pmwcas::open(pool(settings)?, &[])?);
    Ok(pmwcas.find_or_create_index::<WbTrees>("wbtree", &options.settings()?)?)
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
    // And the wB+-Tree where nothing is written back: what of a search is the tree, and not the medium.
    if lines > 2 {
        trees.push((
            ON_ORDINARY_MEMORY,
            Box::new(wb_tree::<Volatile>(settings, NodeKind::SlotBitmap, lines, false)?),
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
        let tree = Baseline::<D, true>::with_strings(pool(settings)?, leaves, scheme, lines)?;
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

/// What each tree's operations, one batch of each kind, take of the paper's medium; by operation.
type OnMedium = Vec<(&'static str, [Done; 3], u64)>;

/// Searches, insertions and deletions in nodes of `lines` lines, on the modelled medium.
fn on_medium(
    settings: &Settings,
    lines: u64,
    records: u64,
    progress: &ProgressBar,
) -> Result<OnMedium, Error> {
    let trees = trees::<Pcm>(settings, lines).map_err(refused)?;
    let batch = (records / 20).clamp(1, 100_000);
    progress.set_length(trees.len() as u64);
    let mut taken = OnMedium::new();
    for (name, tree) in trees.iter().filter(|tree| tree.0 != ON_ORDINARY_MEMORY) {
        let is_loaded = (0..records).all(|number| tree.insert(key_of(number)));
        let mut rng = Rng::new(settings.seed);
        let numbers: Vec<u64> =
            (0..2 * batch).map(|_| batch + rng.below(records - batch)).collect();
        let (warming, searched) = numbers.split_at(batch as usize);
        pcm::begin();
        let is_warm = warming.iter().all(|&number| tree.get(key_of(number)));
        let mut before = pcm::done();
        let mut is_done = is_loaded && is_warm;
        let mut took = |work: &mut dyn FnMut(u64) -> bool| {
            is_done &= (0..batch).all(work);
            let now = pcm::done();
            now.since(std::mem::replace(&mut before, now))
        };
        let done = [
            took(&mut |step| tree.get(key_of(searched[step as usize]))),
            took(&mut |step| tree.insert(key_of(records + step))),
            took(&mut |step| tree.remove(key_of(step))),
        ];
        pcm::end();
        if !is_done {
            return Err(refused(format!("{name} has lost a record, or refused one").into()));
        }
        taken.push((*name, done, batch));
        progress.inc(1);
    }
    Ok(taken)
}

/// Figure 11: how long operations wait for the paper's medium, by a model of it.
pub fn figure_11(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let says = Says {
        slowest: Published::text("4.2 to 27.1", "time"),
        fastest: Published::text("1.5 to 2.4", "time"),
        search: Published::text("1.02 to 1.04", "time"),
    };
    let records = settings.records.unwrap_or(200_000);
    let mut outcome = Outcome {
        conditions: format!(
            "{records} records of 8-byte keys and values, 1 thread; waits for a medium of {} ns a line read and \
             {} ns a word written, modelled; what the processor does is not in them",
            pcm::READ_LINE_NS,
            pcm::WRITE_WORD_NS
        ),
        ..Outcome::default()
    };
    for lines in [2, 4, 8] {
        let taken = on_medium(settings, lines, records, progress)?;
        for (operation, label) in OPERATIONS.iter().enumerate() {
            let waited = |place: usize| {
                let (_, done, batch) = &taken[place];
                done[operation].waited_ns as f64 / *batch as f64
            };
            for (place, (name, ..)) in taken.iter().enumerate() {
                let of = Measured::exact(waited(place), "");
                outcome.push(format!("{lines} lines, {label}, {name}"), "ns", None, Some(of));
            }
            let by_wait = |is_ours: bool| {
                let mut places: Vec<usize> = (1..taken.len())
                    .filter(|&place| (place >= BASELINES.len()) == is_ours)
                    .collect();
                places.sort_by(|left, right| waited(*left).total_cmp(&waited(*right)));
                places
            };
            let (ours, others) = (by_wait(true), by_wait(false));
            let (Some(&best), Some(&fastest), Some(&slowest)) =
                (ours.first(), others.first(), others.last())
            else {
                continue;
            };
            let pairs = match operation {
                0 => vec![(best, 0, &says.search, "search, ratio".to_owned())],
                _ => [("slowest", slowest, &says.slowest), ("fastest", fastest, &says.fastest)]
                    .map(|(what, other, paper)| {
                        (other, best, paper, format!("{label}, {what} other / best wB+-Tree"))
                    })
                    .to_vec(),
            };
            for (over, under, paper, what) in pairs {
                // What fits the cache waits for nothing.
                if waited(under) == 0.0 {
                    continue;
                }
                let of = format!("waits of {} / {}", taken[over].0, taken[under].0);
                let ours = Measured::exact(waited(over) / waited(under), of);
                outcome.push(
                    format!("{lines} lines, {what}"),
                    "x",
                    Some(paper.clone()),
                    Some(ours),
                );
            }
        }
    }
    Ok(outcome)
}

/// Figure 12: what insertions into nodes of eight lines wear and take.
pub fn figure_12(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let records = settings.records.unwrap_or(200_000);
    let mut outcome = Outcome {
        conditions: format!(
            "{records} records of 8-byte keys and values, nodes of 8 lines, the paper's medium by a model"
        ),
        ..Outcome::default()
    };
    for (name, [_, insertion, _], batch) in on_medium(settings, 8, records, progress)? {
        let figures = [
            ("bits", insertion.bits_written),
            ("pJ", insertion.energy_pj()),
            ("words", insertion.words_written),
            ("write-backs", insertion.write_backs),
            ("fences", insertion.fences),
        ];
        for (unit, figure) in figures {
            let ours = Measured::exact(figure as f64 / batch as f64, "");
            // The paper plots them, and says that it counted as many fences as its table 3 has, which is
            // without splits.
            let of_table = match name {
                "btree (volatile)" => None,
                "btree log" => Some("24"),
                "wbtree" => Some("3"),
                _ => Some("2"),
            };
            let paper = of_table
                .filter(|_| unit == "fences")
                .map(|figure| Published::derived(figure, "table 3, m = 21, without splits"));
            outcome.push(format!("insertion, {name}"), unit, paper, Some(ours));
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

/// What table 3 says of an insertion and of a deletion, for m entries: words, write-backs, fences.
fn formulas(name: &str, m: f64) -> [[f64; 3]; 2] {
    match name {
        "btree log" => [[4.0 * m + 12.0, m + 3.0, m + 3.0], [4.0 * m, m, m]],
        "unsorted leaf log" => [[10.0, 2.0, 2.0], [12.0, 3.0, 3.0]],
        "uleaf bmp log" => [[10.0, 2.0, 2.0], [4.0, 1.0, 1.0]],
        "wbtree" => [
            [0.125 * m + 4.25, m / 64.0 + 3.0 + 1.0 / 32.0, 3.0],
            [0.125 * m + 2.0, m / 64.0 + 2.0, 3.0],
        ],
        "wbtree w/ bmp-leaf" | "wbtree w/ slot-only" => [[3.0, 2.0, 2.0], [1.0, 1.0, 1.0]],
        _ => [[2.0 * m + 11.0, 0.25 * m + 2.5, 2.0], [2.0 * m + 7.0, 0.25 * m + 2.0, 2.0]],
    }
}

/// Table 3: one insertion at each place of a leaf with m entries, and one deletion of each, on the average.
pub fn table_3(settings: &Settings, _progress: &ProgressBar) -> Result<Outcome, Error> {
    const LINES: u64 = 8;
    let mut outcome = Outcome {
        conditions: format!("nodes of {LINES} lines, 8-byte keys and values, counted"),
        ..Outcome::default()
    };
    let key = |place: u64| place * 10 + 10;
    let mut kinds: Vec<RowOf> = BASELINES[1..]
        .iter()
        .map(|&(name, leaves, scheme)| (name, Some((leaves, scheme)), NodeKind::default()))
        .collect();
    kinds.extend(WB_TREES.map(|(name, kind)| (name, None, kind)));
    for (name, baseline_of, kind) in kinds {
        let m = if kind == NodeKind::SlotOnly { 4 } else { 21 };
        let filled = || {
            let tree: Box<dyn Tree> = match baseline_of {
                Some((leaves, scheme)) => baseline::<Counting>(settings, leaves, scheme, LINES)?,
                None => Box::new(wb_tree::<Counting>(settings, kind, LINES, false)?),
            };
            (0..m).for_each(|place| assert!(tree.insert(key(place)), "an empty leaf has room"));
            Ok(tree)
        };
        let mut counts: [Vec<Counts>; 2] = Default::default();
        for place in 0..=m {
            let tree = filled().map_err(refused)?;
            counts[0].push(measure(|| tree.insert(key(place) - 5)).1);
        }
        for place in 0..m {
            let tree = filled().map_err(refused)?;
            counts[1].push(measure(|| tree.remove(key(place))).1);
        }
        for (counts, (operation, formula)) in
            counts.iter().zip(["insertion", "deletion"].into_iter().zip(formulas(name, m as f64)))
        {
            let fields: [Field; 3] = [
                ("words written", |counts| counts.words_written),
                ("write-backs", |counts| counts.flushes),
                ("fences", |counts| counts.fences),
            ];
            for ((unit, field), formula) in fields.into_iter().zip(formula) {
                let sum: u64 = counts.iter().map(field).sum();
                let mean = sum as f64 / counts.len() as f64;
                let of = format!("the paper's formula: {formula:.2}");
                let what = format!("{name}, m = {m}, {operation}");
                outcome.push(
                    what,
                    unit,
                    printed(name, operation, unit),
                    Some(Measured::exact(mean, of)),
                );
            }
        }
        let tree: Box<dyn Tree> = match baseline_of {
            Some((leaves, scheme)) => baseline::<Counting>(settings, leaves, scheme, LINES),
            None => {
                wb_tree::<Counting>(settings, kind, LINES, false).map(|tree| Box::new(tree) as _)
            }
        }
        .map_err(refused)?;
        let (found, formula) = splits(&*tree, name);
        for (field, unit) in ["words written", "write-backs", "fences"].into_iter().enumerate() {
            let of = format!("the paper's formula: {:.2}", formula[field]);
            let what = format!("{name}, insertion with a split");
            outcome.push(what, unit, None, Some(Measured::exact(found[field], of)));
        }
    }
    Ok(outcome)
}

/// What table 3 says of an insertion that splits one leaf, below a parent with m entries.
fn split_formula(name: &str, m: f64) -> [f64; 3] {
    // Of nodes of eight lines, as the paper has it.
    let (n, slotted) = (31.0, 29.0);
    let logged = |sign: f64| {
        [
            4.0 * n + 15.0 + sign * n + 4.0 * m + 19.0,
            0.375 * n + 3.25 + sign * 0.25 * n + m + 4.125,
            0.25 * n + 2.0 + sign * 0.25 * n + m + 5.0,
        ]
    };
    let (most, flushes) = (1.25 * slotted + 9.75, 19.0 / 128.0 * slotted + 1.0 + 105.0 / 128.0);
    match name {
        "btree log" => logged(0.0),
        "unsorted leaf log" => logged(1.0),
        "uleaf bmp log" => logged(-1.0),
        "wbtree" => [most + 0.125 * m + 8.25, flushes + m / 64.0 + 3.0 + 13.0 / 32.0, 3.0],
        "wbtree w/ bmp-leaf" => [
            most - 0.25 * slotted + 0.125 * m + 7.5,
            flushes - 3.0 / 128.0 * slotted + m / 64.0 + 3.0 + 43.0 / 128.0,
            3.0,
        ],
        // Eight cells, of which one is the fence.
        "wbtree w/ slot-only" => [7.0 + 9.0 + 7.0, 0.875 + 1.75 + 2.375, 2.0],
        _ => [2.0 * n + 5.0 + 2.0 * m + 12.0, 0.25 * n + 1.5 + 0.25 * m + 2.625, 2.0],
    }
}

/// Insertions that split one leaf, whose parent is the root and has room; on the average, and the
/// formula's, for as many entries as the root had each time.
fn splits(tree: &dyn Tree, name: &str) -> ([f64; 3], [f64; 3]) {
    let (mut found, mut formula, mut count) = ([0.0; 3], [0.0; 3], 0.0);
    let mut nodes = tree.nodes();
    for number in 0.. {
        let counts = measure(|| tree.insert(key_of(number))).1;
        let now = tree.nodes();
        // One is the root, and another the first leaf.
        if now == nodes + 1 && nodes >= 3 {
            let of = split_formula(name, (nodes - 2) as f64);
            let counted = [counts.words_written, counts.flushes, counts.fences];
            for field in 0..3 {
                found[field] += counted[field] as f64;
                formula[field] += of[field];
            }
            count += 1.0;
        }
        nodes = now;
        // Six leaves: a root of any kind has room for them.
        if nodes >= 7 {
            break;
        }
    }
    (found.map(|sum| sum / count), formula.map(|sum| sum / count))
}

/// The formula as it is printed.
fn printed(name: &str, operation: &str, unit: &str) -> Option<Published> {
    let is_insertion = operation == "insertion";
    let figure = match (name, unit) {
        ("btree log", "words written") => ["4m + 12", "4m"],
        ("btree log", _) => ["m + 3", "m"],
        ("unsorted leaf log", "words written") => ["10", "12"],
        ("unsorted leaf log", _) => ["2", "3"],
        ("uleaf bmp log", "words written") => ["10", "4"],
        ("uleaf bmp log", _) => ["2", "1"],
        ("wbtree", "words written") => ["0.125m + 4.25", "0.125m + 2"],
        ("wbtree", "write-backs") => ["m/64 + 3 1/32", "m/64 + 2"],
        ("wbtree", _) => ["3", "3"],
        ("wbtree w/ bmp-leaf" | "wbtree w/ slot-only", "words written") => ["3", "1"],
        ("wbtree w/ bmp-leaf" | "wbtree w/ slot-only", _) => ["2", "1"],
        (_, "words written") => ["2m + 11", "2m + 7"],
        (_, "write-backs") => ["0.25m + 2.5", "0.25m + 2"],
        (_, _) => ["2", "2"],
    };
    Some(Published::text(figure[usize::from(!is_insertion)], ""))
}
