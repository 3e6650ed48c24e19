//! The options of a tree.

use pando_tree::maps::{BadOption, OptionType};

use crate::layout::{LINE_BYTES, MAX_NODE_LINES, MIN_CELLS, NodeKind, Shape};

impl OptionType for NodeKind {
    const CHOICES: &'static [Self] = &[Self::SlotBitmap, Self::BitmapOnly, Self::SlotOnly];
}

/// The keys and values that a tree holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordBytes {
    /// Of any length (paper 4.6).
    #[default]
    Variable,
    /// All of eight bytes.
    Fixed,
}

impl OptionType for RecordBytes {
    const CHOICES: &'static [Self] = &[Self::Variable, Self::Fixed];
}

pando_tree::options! {
    /// The differences between the trees of the paper's table 2, and the size of nodes.
    ///
    /// `leaf`: slot+bitmap is the wB+-Tree, bitmap-only the one with bitmap-only leaves; with
    /// slot-only leaves the inner nodes are slot-only too. A node's version must have room for
    /// `node_versions`.
    /// `node_versions`.
    pub struct Options checked by check {
        leaf: NodeKind ["slot+bitmap", "bitmap-only", "slot-only"] = 0,
            "how leaves know which records are live, and in which order";
        records: RecordBytes ["variable", "fixed"] = 0,
            "keys and values of any length, or all of eight bytes";
        node_lines: u32 [0..=MAX_NODE_LINES as u32] = 0,
            "lines of 64 bytes of a node; 0: as many as are usual";
        node_versions: u32 [8..=64_000] = 32_000,
            "changes of a node before it is copied";
    }
}

impl Options {
    /// Whether keys and values have any length.
    pub fn is_variable(&self) -> bool {
        self.records == RecordBytes::Variable
    }

    fn usual_lines(&self) -> u64 {
        match (self.leaf, self.is_variable()) {
            // Eight cells.
            (NodeKind::SlotOnly, false) => 3,
            (NodeKind::SlotOnly, true) => 4,
            (_, false) => 8,
            (_, true) => 12,
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        let lines = match self.node_lines {
            0 => self.usual_lines(),
            lines => u64::from(lines),
        };
        let inner = if self.leaf == NodeKind::SlotOnly { self.leaf } else { NodeKind::SlotBitmap };
        Shape {
            node_bytes: lines * LINE_BYTES,
            leaf: self.leaf,
            inner,
            is_variable: self.is_variable(),
            versions: u64::from(self.node_versions),
        }
    }
}

/// Refuses nodes that are too small for their kind.
fn check(options: &Options) -> Result<(), BadOption> {
    let mut options = *options;
    let found = options.node_lines;
    let fits = |options: &Options| {
        let shape = options.shape();
        shape.node_bytes > LINE_BYTES
            && shape.cells(shape.leaf).min(shape.cells(shape.inner)) >= MIN_CELLS
    };
    if fits(&options) {
        return Ok(());
    }
    let fewest = (1..=MAX_NODE_LINES as u32).find(|&lines| {
        options.node_lines = lines;
        fits(&options)
    });
    let allowed = format!("0, or {} and more for these records", fewest.unwrap_or(0));
    Err(BadOption::new("node_lines", found, allowed))
}

#[cfg(test)]
mod tests {
    use pando_tree::maps::IndexOptions;

    use super::*;

    #[test]
    fn options_are_values_and_back() {
        pando_tree::testing::golden_options::<Options>([0, 32_000 << 32, 0, 0]);
        for &leaf in NodeKind::CHOICES {
            for records in [RecordBytes::Variable, RecordBytes::Fixed] {
                let options = Options { leaf, records, node_lines: 7, node_versions: 9 };
                assert_eq!(Options::of(&options.values().unwrap()), options);
            }
        }
    }

    #[test]
    fn nodes_that_hold_too_little_are_refused() {
        let options = Options { node_lines: 3, ..Options::default() };
        let refused = options.values().unwrap_err().to_string();
        assert_eq!(refused, "node_lines is 3; allowed is 0, or 4 and more for these records");
        assert!(Options { records: RecordBytes::Fixed, ..options }.values().is_ok());
    }
}
