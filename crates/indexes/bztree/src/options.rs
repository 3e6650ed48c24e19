//! What a user may set of a tree.

use pando_tree::maps::{Allowed, BadSetting, Setting, Settings};

/// How leaves hold values (paper 4.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueMode {
    /// In the record, if they are short enough.
    #[default]
    Inline,
    /// In a block of their own; an update swaps the record's pointer in place.
    Pointer,
}

/// The shape of a tree. Kept with the tree, so that it opens as it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A leaf whose live records and free space would take more than this is split, in bytes.
    pub leaf_bytes: u32,
    /// An inner node that would take more than this is split, in bytes.
    pub inner_bytes: u32,
    /// Room that a new leaf has for inserts, updates and deletes, in bytes.
    pub free_bytes: u32,
    /// A leaf with fewer live bytes than this is merged with a neighbour that has room, in bytes.
    pub merge_bytes: u32,
    /// A value longer than this goes to a block of its own, in bytes.
    pub inline_bytes: u32,
    /// How leaves hold values.
    pub value_mode: ValueMode,
}

impl Default for Options {
    fn default() -> Self {
        Self::from(&Settings::new(&SETTINGS))
    }
}

/// What a user may set of a BzTree, in the order of the fields of [`Options`].
pub(crate) static SETTINGS: [Setting; 6] = [
    Setting {
        name: "leaf_bytes",
        what: "a leaf whose records and free space would take more bytes is split",
        default: 2048,
        allowed: Allowed::Number(256..=65_536),
    },
    Setting {
        name: "inner_bytes",
        what: "an inner node that would take more bytes is split",
        default: 4096,
        allowed: Allowed::Number(256..=65_536),
    },
    Setting {
        name: "free_bytes",
        what: "room in a new leaf for inserts and updates; at most half of leaf_bytes, and that if it is not set and half is less",
        default: 384,
        allowed: Allowed::Number(32..=32_768),
    },
    Setting {
        name: "merge_bytes",
        what: "a leaf with fewer live bytes is merged with a neighbour that has room; at most half of leaf_bytes, and that if it is not set and half is less",
        default: 768,
        allowed: Allowed::Number(0..=32_768),
    },
    Setting {
        name: "inline_bytes",
        what: "a longer value has a block of its own",
        default: 1024,
        allowed: Allowed::Number(0..=16_384),
    },
    Setting {
        name: "value_mode",
        what: "inline: values in the leaf, beside their keys; pointer: each in a block of its own",
        default: 0,
        allowed: Allowed::OneOf(&["inline", "pointer"]),
    },
];

/// The most that `free_bytes` and `merge_bytes` can be.
fn half_a_leaf(settings: &Settings) -> u32 {
    settings.value("leaf_bytes") / 2
}

/// Whether `settings`, each in its own range, go together.
pub(crate) fn check(settings: &Settings) -> Result<(), BadSetting> {
    let half = half_a_leaf(settings);
    for name in ["free_bytes", "merge_bytes"] {
        let found = settings.value(name);
        // A default says as much as "half a leaf" where it is more: nobody has set it.
        if found > half && found != Settings::new(&SETTINGS).value(name) {
            return Err(BadSetting {
                setting: name.to_owned(),
                found: found.to_string(),
                allowed: format!("at most {half}, half of leaf_bytes"),
            });
        }
    }
    Ok(())
}

impl Options {
    /// The options as settings of a map; refused if one is out of its range.
    pub fn settings(self) -> Result<Settings, BadSetting> {
        let mut settings = Settings::new(&SETTINGS);
        let mode = SETTINGS[5].text(self.value_mode as u32);
        let sizes = [
            self.leaf_bytes,
            self.inner_bytes,
            self.free_bytes,
            self.merge_bytes,
            self.inline_bytes,
        ];
        let texts = sizes.map(|size| size.to_string()).into_iter().chain([mode]);
        for (setting, text) in SETTINGS.iter().zip(texts) {
            settings.set(setting.name, &text)?;
        }
        check(&settings)?;
        Ok(settings)
    }
}

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        let half = half_a_leaf(settings);
        Self {
            leaf_bytes: settings.value("leaf_bytes"),
            inner_bytes: settings.value("inner_bytes"),
            free_bytes: settings.value("free_bytes").min(half),
            merge_bytes: settings.value("merge_bytes").min(half),
            inline_bytes: settings.value("inline_bytes"),
            value_mode: match settings.value("value_mode") {
                0 => ValueMode::Inline,
                _ => ValueMode::Pointer,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_options() {
        let settings = Options::default().settings().unwrap();
        assert_eq!(settings.encode(), [0x1000_0000_0800, 0x300_0000_0180, 0x400, 0]);
        assert_eq!(Options::from(&settings), Options::default());
        let pointers = Options { value_mode: ValueMode::Pointer, ..Options::default() };
        assert_eq!(Options::from(&pointers.settings().unwrap()), pointers);
    }

    #[test]
    fn a_leaf_may_be_small_and_nothing_else_be_set() {
        for leaf_bytes in [256, 512, 1000, 2048] {
            let mut settings = Settings::new(&SETTINGS);
            settings.set("leaf_bytes", &leaf_bytes.to_string()).unwrap();
            check(&settings).unwrap();
            let options = Options::from(&settings);
            assert_eq!(options.free_bytes, 384.min(leaf_bytes / 2));
            assert_eq!(options.merge_bytes, 768.min(leaf_bytes / 2));
        }
    }

    #[test]
    fn options_out_of_range_are_named() {
        let error = Options { leaf_bytes: 1, ..Options::default() }.settings().unwrap_err();
        assert_eq!(error.setting, "leaf_bytes");
        let error = Options { free_bytes: 1025, ..Options::default() }.settings().unwrap_err();
        assert_eq!(
            error.to_string(),
            "free_bytes is 1025; allowed is at most 1024, half of leaf_bytes"
        );
    }
}
