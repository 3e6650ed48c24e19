//! What a user may set of a Bw-tree.

use pando_tree::maps::{Allowed, BadSetting, Setting, Settings};

use crate::layout::MAX_INLINE_BYTES;

/// Deltas of a chain at most, if they are blocks of their own: the operation that replaces a chain
/// names each of its blocks.
pub(crate) const MAX_BLOCK_DELTAS: u32 = 6;

/// The shape of a Bw-tree. Kept with the tree, so that it opens as it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A leaf whose base is larger is split, in bytes.
    pub leaf_bytes: u32,
    /// An inner page whose base is larger is split, in bytes.
    pub inner_bytes: u32,
    /// A page whose base is smaller is merged with a neighbour, in bytes; zero: never.
    pub merge_bytes: u32,
    /// A longer value goes to a block of its own, in bytes.
    pub inline_bytes: u32,
    /// A leaf's chain that has so many deltas is consolidated; an inner page's, a quarter of that.
    pub chain_deltas: u32,
    /// Room for deltas beside a base, in bytes; zero: each delta is a block of its own.
    pub delta_bytes: u32,
    /// A search uses the positions that deltas say.
    pub shortcuts: bool,
    /// Consolidation takes records over in runs, not one by one.
    pub runs: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self::from(&Settings::new(&SETTINGS))
    }
}

const OFF_ON: &[&str] = &["off", "on"];

/// What a user may set, in the order of the fields of [`Options`].
pub(crate) static SETTINGS: [Setting; 8] = [
    Setting {
        name: "leaf_bytes",
        what: "a larger leaf is split",
        default: 1536,
        allowed: Allowed::Number(128..=32_768),
    },
    Setting {
        name: "inner_bytes",
        what: "a larger inner page is split",
        default: 4096,
        allowed: Allowed::Number(128..=32_768),
    },
    Setting {
        name: "merge_bytes",
        what: "a smaller page is merged with a neighbour; 0: never",
        default: 384,
        allowed: Allowed::Number(0..=16_384),
    },
    Setting {
        name: "inline_bytes",
        what: "a longer value has a block of its own",
        default: 1024,
        allowed: Allowed::Number(0..=MAX_INLINE_BYTES),
    },
    Setting {
        name: "chain_deltas",
        what: "a leaf's chain of so many deltas is consolidated, an inner page's of a quarter; 6 at most if delta_bytes is 0",
        default: 16,
        allowed: Allowed::Number(1..=128),
    },
    Setting {
        name: "delta_bytes",
        what: "room for deltas beside a base page; 0: each is a block, as in the paper",
        default: 512,
        allowed: Allowed::Number(0..=16_384),
    },
    Setting {
        name: "shortcuts",
        what: "deltas say where in the base their keys stand, and searches use it",
        default: 1,
        allowed: Allowed::OneOf(OFF_ON),
    },
    Setting {
        name: "runs",
        what: "consolidation takes the records between two deltas over at once",
        default: 1,
        allowed: Allowed::OneOf(OFF_ON),
    },
];

/// Refuses settings that do not go together.
pub(crate) fn check(settings: &Settings) -> Result<(), BadSetting> {
    let refuse = |setting: &str, found: u32, allowed: String| {
        Err(BadSetting { setting: setting.to_owned(), found: found.to_string(), allowed })
    };
    let options = Options::from(settings);
    if options.delta_bytes == 0 && options.chain_deltas > MAX_BLOCK_DELTAS {
        let allowed = format!("1 to {MAX_BLOCK_DELTAS} with delta_bytes 0");
        return refuse("chain_deltas", options.chain_deltas, allowed);
    }
    let smaller = options.leaf_bytes.min(options.inner_bytes);
    if options.merge_bytes >= smaller {
        let allowed = format!("below {smaller}, above which a page is split");
        return refuse("merge_bytes", options.merge_bytes, allowed);
    }
    Ok(())
}

impl Options {
    /// The paper's design: each delta is a block, searches and consolidations without shortcuts.
    pub fn plain() -> Self {
        Self {
            chain_deltas: MAX_BLOCK_DELTAS,
            delta_bytes: 0,
            shortcuts: false,
            runs: false,
            ..Self::default()
        }
    }

    /// The options as settings of a map; refused if one is out of its range.
    pub fn settings(self) -> Result<Settings, BadSetting> {
        let mut settings = Settings::new(&SETTINGS);
        let words = |on: bool| OFF_ON[usize::from(on)].to_owned();
        let values = [
            self.leaf_bytes.to_string(),
            self.inner_bytes.to_string(),
            self.merge_bytes.to_string(),
            self.inline_bytes.to_string(),
            self.chain_deltas.to_string(),
            self.delta_bytes.to_string(),
            words(self.shortcuts),
            words(self.runs),
        ];
        for (setting, value) in SETTINGS.iter().zip(&values) {
            settings.set(setting.name, value)?;
        }
        check(&settings)?;
        Ok(settings)
    }
}

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self {
            leaf_bytes: settings.value("leaf_bytes"),
            inner_bytes: settings.value("inner_bytes"),
            merge_bytes: settings.value("merge_bytes"),
            inline_bytes: settings.value("inline_bytes"),
            chain_deltas: settings.value("chain_deltas"),
            delta_bytes: settings.value("delta_bytes"),
            shortcuts: settings.value("shortcuts") != 0,
            runs: settings.value("runs") != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_a_map_header() {
        let options = Options {
            leaf_bytes: 256,
            inner_bytes: 512,
            merge_bytes: 64,
            inline_bytes: 9,
            chain_deltas: 3,
            delta_bytes: 0,
            shortcuts: false,
            runs: true,
        };
        let words = options.settings().unwrap().encode();
        assert_eq!(words, [0x200_0000_0100, 0x9_0000_0040, 3, 1 << 32]);
        assert_eq!(Options::from(&Settings::decode(&SETTINGS, words).unwrap()), options);
        assert!(Options::plain().settings().is_ok());
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let refused = Options { delta_bytes: 0, ..Options::default() }.settings().unwrap_err();
        assert_eq!(refused.to_string(), "chain_deltas is 16; allowed is 1 to 6 with delta_bytes 0");
        let refused = Options { merge_bytes: 1536, ..Options::default() }.settings().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "merge_bytes is 1536; allowed is below 1536, above which a page is split"
        );
    }
}
