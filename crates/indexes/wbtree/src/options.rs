//! What can be set of a tree.

use pando_tree::maps::{Allowed, BadSetting, Setting, Settings};

use crate::layout::{LINE_BYTES, MAX_NODE_LINES, MIN_CELLS, NodeKind, Shape};

/// What the trees of the paper's table 2 differ in, and how large nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Leaves: slot+bitmap is the wB+-Tree, bitmap-only the one with bitmap-only leaves; with
    /// slot-only leaves the inner nodes are slot-only too.
    pub leaf: NodeKind,
    /// Whether keys and values have any length (paper 4.6), or all have eight bytes.
    pub is_variable: bool,
    /// Lines of a node, of 64 bytes; zero for as many as are usual for its kind.
    pub node_lines: u32,
    /// Changes of a node before it is copied, which its version must have room for.
    pub node_versions: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self::from(&Settings::new(&SETTINGS))
    }
}

const KINDS: [NodeKind; 3] = [NodeKind::SlotBitmap, NodeKind::BitmapOnly, NodeKind::SlotOnly];

/// The table of settings.
pub(crate) const SETTINGS: [Setting; 4] = [
    Setting {
        name: "leaf",
        what: "how leaves know which records are live, and in which order",
        default: 0,
        allowed: Allowed::OneOf(&["slot+bitmap", "bitmap-only", "slot-only"]),
    },
    Setting {
        name: "records",
        what: "keys and values of any length, or all of eight bytes",
        default: 0,
        allowed: Allowed::OneOf(&["variable", "fixed"]),
    },
    Setting {
        name: "node_lines",
        what: "lines of 64 bytes of a node; 0: as many as are usual",
        default: 0,
        allowed: Allowed::Number(0..=MAX_NODE_LINES as u32),
    },
    Setting {
        name: "node_versions",
        what: "changes of a node before it is copied",
        default: 32_000,
        allowed: Allowed::Number(8..=64_000),
    },
];

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self {
            leaf: KINDS[settings.value("leaf") as usize % KINDS.len()],
            is_variable: settings.value("records") == 0,
            node_lines: settings.value("node_lines"),
            node_versions: settings.value("node_versions"),
        }
    }
}

impl Options {
    /// The same as settings of a map.
    pub fn settings(&self) -> Result<Settings, BadSetting> {
        let mut settings = Settings::new(&SETTINGS);
        let words = |name: &str| match SETTINGS.iter().find(|setting| setting.name == name) {
            Some(Setting { allowed: Allowed::OneOf(words), .. }) => *words,
            _ => &[],
        };
        let kind = KINDS.iter().position(|&kind| kind == self.leaf).unwrap_or(0);
        settings.set("leaf", words("leaf")[kind])?;
        settings.set("records", words("records")[usize::from(!self.is_variable)])?;
        settings.set("node_lines", &self.node_lines.to_string())?;
        settings.set("node_versions", &self.node_versions.to_string())?;
        Ok(settings)
    }

    fn usual_lines(&self) -> u64 {
        match (self.leaf, self.is_variable) {
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
            is_variable: self.is_variable,
            versions: u64::from(self.node_versions),
        }
    }
}

/// Refuses nodes that are too small for their kind.
pub(crate) fn check(settings: &Settings) -> Result<(), BadSetting> {
    let mut options = Options::from(settings);
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
    Err(BadSetting {
        setting: "node_lines".to_owned(),
        found: found.to_string(),
        allowed: format!("0, or {} and more for these records", fewest.unwrap_or(0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings_and_back() {
        for leaf in KINDS {
            for is_variable in [false, true] {
                let options = Options { leaf, is_variable, node_lines: 7, node_versions: 9 };
                let settings = options.settings().unwrap();
                assert_eq!(Options::from(&settings), options);
                assert_eq!(check(&settings), Ok(()));
            }
        }
        assert_eq!(check(&Options::default().settings().unwrap()), Ok(()));
    }

    #[test]
    fn nodes_that_hold_too_little_are_refused() {
        let mut settings = Settings::new(&SETTINGS);
        settings.set("node_lines", "3").unwrap();
        let refused = check(&settings).unwrap_err().to_string();
        assert_eq!(refused, "node_lines is 3; allowed is 0, or 4 and more for these records");
        settings.set("records", "fixed").unwrap();
        assert_eq!(check(&settings), Ok(()));
    }
}
