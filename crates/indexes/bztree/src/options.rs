//! The options of a tree.

use pando_tree::maps::{BadOption, OptionType};

/// How leaves hold values (paper 4.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueMode {
    /// In the record, if they are short enough.
    #[default]
    Inline,
    /// In a block of their own; an update swaps the record's pointer in place.
    Pointer,
}

/// Which leaves records with keys and values of eight bytes have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    /// The paper's leaves, as all other records.
    Sorted,
    /// Leaves of ranges (`pando-ranged`).
    #[default]
    Ranged,
}

impl OptionType for Numbers {
    const CHOICES: &'static [Self] = &[Self::Sorted, Self::Ranged];
}

impl OptionType for ValueMode {
    const CHOICES: &'static [Self] = &[Self::Inline, Self::Pointer];
}

pando_tree::options! {
    /// The shape of a tree. It is stored with the tree, which always opens as it was created.
    pub struct Options checked by check {
        leaf_bytes: u32 [256..=65_536] = 2048,
            "a leaf whose records and free space would take more bytes is split";
        inner_bytes: u32 [256..=65_536] = 4096,
            "an inner node that would take more bytes is split";
        free_bytes: u32 [32..=32_768] = 384,
            "room in a new leaf for inserts and updates; at most half of leaf_bytes, and that if it is not set and half is less";
        merge_bytes: u32 [0..=32_768] = 768,
            "a leaf with fewer live bytes is merged with a neighbour that has room; at most half of leaf_bytes, and that if it is not set and half is less";
        inline_bytes: u32 [0..=16_384] = 1024,
            "a longer value has a block of its own";
        value_mode: ValueMode ["inline", "pointer"] = 0,
            "inline: values in the leaf, beside their keys; pointer: each in a block of its own";
        numbers: Numbers ["sorted", "ranged"] = 1,
            "leaves of records whose key and value have 8 bytes. sorted: as the paper has them; ranged: buckets of neighbouring keys";
    }
}

impl Options {
    /// These options with `free_bytes` and `merge_bytes` limited to half a leaf.
    pub(crate) fn fitted(self) -> Self {
        let half = self.leaf_bytes / 2;
        Self {
            free_bytes: self.free_bytes.min(half),
            merge_bytes: self.merge_bytes.min(half),
            ..self
        }
    }
}

/// Refuses values of more than half a leaf. A greater default means half a leaf.
fn check(options: &Options) -> Result<(), BadOption> {
    let (half, default) = (options.leaf_bytes / 2, Options::default());
    let bounded = [
        ("free_bytes", options.free_bytes, default.free_bytes),
        ("merge_bytes", options.merge_bytes, default.merge_bytes),
    ];
    match bounded.into_iter().find(|&(_, found, default)| found > half && found != default) {
        Some((name, found, _)) => {
            Err(BadOption::new(name, found, format!("at most {half}, half of leaf_bytes")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use pando_tree::maps::IndexOptions;

    use super::*;

    #[test]
    fn golden_options() {
        pando_tree::testing::golden_options::<Options>([
            0x1000_0000_0800,
            0x300_0000_0180,
            0x400,
            1,
        ]);
        let pointers = Options { value_mode: ValueMode::Pointer, ..Options::default() };
        assert_eq!(Options::of(&pointers.values().unwrap()), pointers);
    }

    #[test]
    fn a_leaf_may_be_small_and_nothing_else_be_set() {
        for leaf_bytes in [256, 512, 1000, 2048] {
            let options = Options { leaf_bytes, ..Options::default() };
            let options = Options::of(&options.values().unwrap()).fitted();
            assert_eq!(options.free_bytes, 384.min(leaf_bytes / 2));
            assert_eq!(options.merge_bytes, 768.min(leaf_bytes / 2));
        }
    }

    #[test]
    fn options_out_of_range_are_named() {
        let error = Options { leaf_bytes: 1, ..Options::default() }.values().unwrap_err();
        assert_eq!(error.option, "leaf_bytes");
        let error = Options { free_bytes: 1025, ..Options::default() }.values().unwrap_err();
        assert_eq!(
            error.to_string(),
            "free_bytes is 1025; allowed is at most 1024, half of leaf_bytes"
        );
    }
}
