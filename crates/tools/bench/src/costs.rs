//! Counted costs of an operation: flushes, fences, cache lines. These figures do not depend on
//! time, so they are the same on each machine.
//!
//! Each operation on an 8-byte record runs alone on a loaded index in the counting domain. The
//! median is the cost of a plain operation. The mean includes its share of consolidations, splits
//! and merges.

use pando_index::{Error as Refusal, RangeIndex};
use pando_pmem::counting::{self, Counts};
use serde::Serialize;

use crate::error::Fault;
use crate::figures::Figures;
use crate::keys::{key_of, value_of};
use crate::rng::Rng;
use crate::spread::Spread;

/// Table 1 of the NBTree paper: for each tree, flushes and written lines of an insert, a delete and
/// an update.
pub const NBTREE_TABLE_1: [(&str, &str, &str); 8] = [
    ("NVTree", "2/2/2", "2/2/2"),
    ("WB+Tree", "4/3/3", "3/2/2"),
    ("FPTree", "3/1/3", "3/1/3"),
    ("RNTree", "2/1/2", "3/1/3"),
    ("BzTree", "15/7/10", "11/6/7"),
    ("FAST&FAIR", "O(n)/O(n)/1", "O(n)/O(n)/1"),
    ("uTree", "2/1/1", "2/2/1"),
    ("NBTree", "1/1/1", "1/1/1"),
];

/// The entry of that table for an operation on a tree: its flushes and written lines.
pub fn published_figures(tree: &str, operation: &str) -> Option<(&'static str, &'static str)> {
    // The paper's BzTree has no leaves but the sorted ones.
    let tree = tree.trim_end_matches("-sorted");
    let (_, flushes, lines) =
        NBTREE_TABLE_1.iter().find(|(name, ..)| name.eq_ignore_ascii_case(tree))?;
    let column = ["insert", "delete", "update"].iter().position(|name| *name == operation)?;
    Some((flushes.split('/').nth(column)?, lines.split('/').nth(column)?))
}

/// An operation, with the figures of Table 1 of the NBTree paper for an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Published {
    /// The operation.
    pub operation: &'static str,
    /// Flushes.
    #[serde(rename = "published_flushes")]
    pub flushes: Option<u64>,
    /// Lines written.
    #[serde(rename = "published_lines_written")]
    pub lines_written: Option<u64>,
}

/// The counted operations in the order in which they run, with the published figures of `index`.
fn published(index: &str) -> [Published; 4] {
    ["get", "update", "insert", "delete"].map(|operation| {
        let known = published_figures(index, operation);
        Published {
            operation,
            flushes: known.and_then(|(flushes, _)| flushes.parse().ok()),
            lines_written: known.and_then(|(_, lines)| lines.parse().ok()),
        }
    })
}

/// A figure of an operation.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figure {
    /// The median of all operations.
    pub median: f64,
    /// The mean of all operations.
    pub mean: f64,
}

/// The counted costs of an operation; one line of JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// The index.
    pub index: String,
    /// The operation and its published figures.
    #[serde(flatten)]
    pub published: Published,
    /// Records that were loaded first.
    pub records: u64,
    /// Operations that were counted.
    pub samples: u64,
    /// Cache-line write-backs.
    pub flushes: Figure,
    /// Store fences.
    pub fences: Figure,
    /// Words written.
    pub words_written: Figure,
    /// Distinct lines written.
    pub lines_written: Figure,
    /// Distinct lines read.
    pub lines_read: Figure,
}

/// Loads `records` records into the empty index `index`, whose name is `name`, and counts `samples`
/// operations of each kind.
pub fn count(
    name: &str,
    index: &dyn RangeIndex,
    records: u64,
    samples: u64,
) -> Result<Vec<Cost>, Fault> {
    for number in 0..records {
        // Measured too: each measurement starts a new count of lines.
        counting::measure(|| apply(index, "insert", number, 0)).0?;
    }
    let mut rng = Rng::new(1);
    published(name)
        .into_iter()
        .map(|published| {
            let counts = (0..samples)
                .map(|sample| {
                    let number = match published.operation {
                        "insert" => records + sample,
                        "delete" => sample,
                        _ => rng.below(records),
                    };
                    let work = || apply(index, published.operation, number, sample);
                    let (done, counts) = counting::measure(work);
                    done.map(|()| counts)
                })
                .collect::<Result<Vec<_>, Fault>>()?;
            Ok(summary(name, published, records, &counts))
        })
        .collect()
}

fn apply(
    index: &dyn RangeIndex,
    operation: &'static str,
    number: u64,
    version: u64,
) -> Result<(), Fault> {
    let key = key_of(number);
    let (key_bytes, value_bytes) = (key.to_be_bytes(), value_of(key, version).to_le_bytes());
    let is_done = match operation {
        "get" => index.read(&key_bytes, &mut |_| ()),
        "update" => index.update(&key_bytes, &value_bytes).map(|()| true),
        "insert" => index.insert(&key_bytes, &value_bytes).map(|()| true),
        _ => index.remove(&key_bytes),
    };
    match is_done {
        Ok(true) => Ok(()),
        Ok(false) | Err(Refusal::KeyNotFound) => Err(Fault::Lost { key, number, operation }),
        Err(source) => Err(Fault::Refused { key, operation, source: source.into() }),
    }
}

fn summary(index: &str, published: Published, records: u64, counts: &[Counts]) -> Cost {
    let figure = |field: fn(&Counts) -> u64| {
        let figures: Vec<f64> = counts.iter().map(|counts| field(counts) as f64).collect();
        Figure {
            median: Spread::of(&figures).median,
            mean: figures.iter().sum::<f64>() / figures.len().max(1) as f64,
        }
    };
    Cost {
        index: index.to_owned(),
        published,
        records,
        samples: counts.len() as u64,
        flushes: figure(|counts| counts.flushes),
        fences: figure(|counts| counts.fences),
        words_written: figure(|counts| counts.words_written),
        lines_written: figure(|counts| counts.lines_written),
        lines_read: figure(|counts| counts.lines_read),
    }
}

/// The table of the costs and the published figures.
pub fn figures(costs: &[Cost]) -> Figures {
    let show = |figure: Figure| format!("{} ({:.2})", figure.median, figure.mean);
    let known = |figure: Option<u64>| figure.map_or("-".to_owned(), |count| count.to_string());
    let name = |cost: &Cost| format!("{} {}", cost.index, cost.published.operation);
    let line = |cost: &Cost| {
        vec![
            name(cost),
            show(cost.flushes),
            known(cost.published.flushes),
            show(cost.fences),
            show(cost.lines_written),
            known(cost.published.lines_written),
            show(cost.words_written),
            show(cost.lines_read),
        ]
    };
    let columns = [
        "operation",
        "flushes",
        "published",
        "fences",
        "lines written",
        "published",
        "words written",
        "lines read",
    ];
    let about = "median (mean with consolidations, splits and merges) an operation; published: in Table 1 of the NBTree paper";
    let means = |of: fn(&Cost) -> Figure| {
        costs.iter().map(move |cost| (name(cost), Spread::of(&[of(cost).mean])))
    };
    Figures::new("Costs", about, &columns, costs, line)
        .with_plot("Flushes, mean", "an operation", means(|cost| cost.flushes))
        .with_plot("Lines read, mean", "an operation", means(|cost| cost.lines_read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_stands_beside_the_operation_that_it_is_of() {
        let [get, update, insert, delete] = published("bztree");
        assert_eq!((get.flushes, get.lines_written), (None, None));
        assert_eq!((update.flushes, update.lines_written), (Some(10), Some(7)));
        assert_eq!((insert.flushes, insert.lines_written), (Some(15), Some(11)));
        assert_eq!((delete.flushes, delete.lines_written), (Some(7), Some(6)));
        assert!(published("sorted-array").iter().all(|operation| operation.flushes.is_none()));
    }
}
