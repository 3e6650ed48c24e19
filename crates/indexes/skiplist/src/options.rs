//! What a user may set of a skip list.

use pando_tree::maps::{Allowed, BadSetting, Setting, Settings};

use crate::layout::MAX_INLINE_BYTES;
use crate::multi_word::MAX_LEVELS_AT_ONCE;

/// The shape of a skip list. Kept with the list, so that it opens as it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A value that is longer when its key is inserted goes to a block of its own, in bytes.
    pub inline_bytes: u32,
    /// On so many levels an insert links a node by one PMwCAS; on the others, one by one.
    pub levels_at_once: u32,
    /// From this, and its key, follows what is chance in the height of a node. With 0 it is drawn
    /// when the list is created, so that nobody can choose keys whose nodes are low; with another
    /// number a run can be repeated.
    pub height_seed: u32,
    /// How likely a node is to be high follows from those beside it too, so that searches are
    /// shorter. It is never certain, so that no order of inserts and removes, chosen without the
    /// seed, leaves only low nodes.
    pub even_gaps: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self::from(&Settings::new(&SETTINGS))
    }
}

const OFF_ON: &[&str] = &["off", "on"];

/// What a user may set, in the order of the fields of [`Options`].
pub(crate) static SETTINGS: [Setting; 4] = [
    Setting {
        name: "inline_bytes",
        what: "a longer value has a block of its own from the beginning",
        default: 1024,
        allowed: Allowed::Number(0..=MAX_INLINE_BYTES),
    },
    Setting {
        name: "levels_at_once",
        what: "on so many levels an insert links a node in one step; with 1 each level is a step, as in the paper",
        default: MAX_LEVELS_AT_ONCE,
        allowed: Allowed::Number(1..=MAX_LEVELS_AT_ONCE),
    },
    Setting {
        name: "height_seed",
        what: "what heights of nodes follow from, so that a run can be repeated; 0: it is drawn",
        default: 0,
        allowed: Allowed::Number(0..=u32::MAX),
    },
    Setting {
        name: "even_gaps",
        what: "an insert's node is likelier to be high where it splits a long gap, so that searches pass few nodes on each level; off: by chance alone, as in the paper",
        default: 1,
        allowed: Allowed::OneOf(OFF_ON),
    },
];

impl Options {
    /// The options as settings of a map; refused if one is out of its range.
    pub fn settings(self) -> Result<Settings, BadSetting> {
        let mut settings = Settings::new(&SETTINGS);
        settings.set("inline_bytes", &self.inline_bytes.to_string())?;
        settings.set("levels_at_once", &self.levels_at_once.to_string())?;
        settings.set("height_seed", &self.height_seed.to_string())?;
        settings.set("even_gaps", OFF_ON[usize::from(self.even_gaps)])?;
        Ok(settings)
    }
}

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self {
            inline_bytes: settings.value("inline_bytes"),
            levels_at_once: settings.value("levels_at_once"),
            height_seed: settings.value("height_seed"),
            even_gaps: settings.value("even_gaps") != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_options() {
        let settings = Options::default().settings().unwrap();
        assert_eq!(settings.encode(), [0x8_0000_0400, 1 << 32, 0, 0]);
        assert_eq!(Options::from(&settings), Options::default());
        let refused = Options { levels_at_once: 9, ..Options::default() }.settings().unwrap_err();
        assert_eq!(refused.to_string(), "levels_at_once is 9; allowed is 1 to 8");
    }
}
