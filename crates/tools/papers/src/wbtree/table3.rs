//! Table 3: what an insertion and a deletion write, and what an insertion that splits a leaf does,
//! counted, beside the paper's formulas.

use crate::baselines::{BASELINES, Leaves, Scheme};
use indicatif::ProgressBar;
use pando_pmem::counting::{Counting, Counts, measure};
use pando_wbtree::NodeKind;

use super::{Tree, WB_TREES, baseline, refused, wb_tree};
use crate::error::Error;
use crate::experiment::Settings;
use crate::outcome::{Measured, Outcome, Published};
use pando_bench::keys::key_of;

/// A row of table 3: the name, and a baseline or a wB+-Tree of this kind.
type RowOf = (&'static str, Option<(Leaves, Scheme)>, NodeKind);

/// A unit, and which count it is of.
type Field = (&'static str, fn(&Counts) -> u64);

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

/// Table 3: one insertion at each place of a leaf with m entries, and one deletion of each, on the
/// average.
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
                let of =
                    format!("the paper's formula: {formula:.2}{}", unlike(name, operation, unit));
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

/// Why ours take less than the formula, where they do.
fn unlike(name: &str, operation: &str, unit: &str) -> &'static str {
    let has_near_cells = matches!(name, "wbtree w/ bmp-leaf" | "wbtree w/ slot-only");
    match (has_near_cells, operation, unit) {
        (true, "insertion", "write-backs" | "fences") => {
            "; ours writes back the new cell with the state where both lie in one line, two of three times"
        }
        _ => "",
    }
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
