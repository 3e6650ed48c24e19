//! NBTree: A Lock-Free PM-Friendly Persistent B+-Tree for eADR-Enabled PM Systems (Zhang, Zheng,
//! Cai, Wang; VLDB 2022): what can be had of it before the index exists.

use indicatif::ProgressBar;

use super::Error;
use super::experiment::{Paper, Settings};
use super::outcome::{Measured, Outcome, Published};
use crate::costs::{self, Figure};
use crate::record::Shape;
use crate::sides::ours::ours_called;

/// The paper, and what it measured on.
pub const PAPER: Paper = Paper {
    short: "nbtree",
    title: "Zhang, Zheng, Cai, Wang: NBTree: A Lock-Free PM-Friendly Persistent B+-Tree for eADR",
    conditions: "2 x Xeon Gold 6348, 56 cores, 8 x 256 GB Optane of the second generation, one NUMA node; 16M records, nodes of 1 KB",
};

/// A row of table 1: the tree, its flushes and its lines written, an insert, a delete, an update.
const TABLE_1: [(&str, &str, &str); 8] = [
    ("NVTree", "2/2/2", "2/2/2"),
    ("WB+Tree", "4/3/3", "3/2/2"),
    ("FPTree", "3/1/3", "3/1/3"),
    ("RNTree", "2/1/2", "3/1/3"),
    ("BzTree", "15/7/10", "11/6/7"),
    ("FAST&FAIR", "O(n)/O(n)/1", "O(n)/O(n)/1"),
    ("uTree", "2/1/1", "2/2/1"),
    ("NBTree", "1/1/1", "1/1/1"),
];

/// What table 1 says of an operation on a tree: its flushes, and its lines written.
pub fn published(tree: &str, operation: &str) -> Option<(&'static str, &'static str)> {
    let (_, flushes, lines) = TABLE_1.iter().find(|(name, ..)| name.eq_ignore_ascii_case(tree))?;
    let column = ["insert", "delete", "update"].iter().position(|name| *name == operation)?;
    Some((flushes.split('/').nth(column)?, lines.split('/').nth(column)?))
}

/// Table 1: flushes and lines written by an operation. Ours is the row of BzTree.
pub fn table_1(settings: &Settings, _progress: &ProgressBar) -> Result<Outcome, Error> {
    let records = settings.records.unwrap_or(100_000);
    let samples = records.min(100_000);
    let refused = |source| Error::Refused { what: "building the counted index", source };
    let build = settings.build.clone().for_records(records.saturating_add(samples), Shape::EIGHT);
    let ours = ours_called("bztree").map_err(|what| refused(what.into()))?;
    let index = (ours.counting)(&build).map_err(refused)?;
    let costs = costs::count(ours.name, &*index, records, samples).map_err(|fault| {
        let (side, mix) = ("bztree".to_owned(), "counted operations".to_owned());
        crate::error::Error::Fault { side, mix, threads: 1, fault }
    })?;
    let mut outcome = Outcome {
        conditions: format!(
            "{records} records of 8-byte keys and values, {samples} operations of each kind, 1 thread, counted"
        ),
        ..Outcome::default()
    };
    for (tree, flushes, lines) in TABLE_1 {
        outcome.push(
            format!("{tree}: insert/delete/update"),
            "flushes",
            Some(Published::text(flushes, "")),
            None,
        );
        outcome.push(
            format!("{tree}: insert/delete/update"),
            "lines written",
            Some(Published::text(lines, "")),
            None,
        );
    }
    for cost in &costs {
        let operation = cost.published.operation;
        let mut add = |unit, paper: Option<&'static str>, figure: Figure| {
            let of = format!("mean {:.2}, with its share of splits and merges", figure.mean);
            let paper = paper.map(|figure| Published::text(figure, ""));
            outcome.push(
                format!("ours, BzTree: {operation}"),
                unit,
                paper,
                Some(Measured::exact(figure.median, of)),
            );
        };
        let known = published(ours.name, operation);
        add("flushes", known.map(|(flushes, _)| flushes), cost.flushes);
        add("lines written", known.map(|(_, lines)| lines), cost.lines_written);
        add("lines read", None, cost.lines_read);
    }
    Ok(outcome)
}
