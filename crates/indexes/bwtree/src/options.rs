//! The options of a Bw-tree.

use pando_tree::maps::BadOption;

use crate::layout::MAX_INLINE_BYTES;

/// The most deltas of a chain, if they are blocks of their own: the operation that replaces a chain
/// names each of its blocks.
pub(crate) const MAX_BLOCK_DELTAS: u32 = 6;

/// The greatest `leaf_bytes`.
pub(crate) const MAX_LEAF_BYTES: usize = 32_768;

pando_tree::options! {
    /// The shape of a Bw-tree. It is stored with the tree, which always opens as it was created.
    pub struct Options checked by check {
        leaf_bytes: u32 [128..=MAX_LEAF_BYTES as u32] = 1536, "a larger leaf is split";
        inner_bytes: u32 [128..=32_768] = 4096, "a larger inner page is split";
        merge_bytes: u32 [0..=16_384] = 384,
            "a smaller page is merged with a neighbour; 0: never";
        inline_bytes: u32 [0..=MAX_INLINE_BYTES] = 1024, "a longer value has a block of its own";
        chain_deltas: u32 [1..=128] = 16,
            "a leaf's chain of so many deltas is consolidated, an inner page's of a quarter; 6 at most if delta_bytes is 0";
        delta_bytes: u32 [0..=16_384] = 512,
            "room for deltas beside a base page; 0: each is a block, as in the paper";
        shortcuts: bool ["off", "on"] = 1,
            "deltas say where in the base their keys stand, and searches use it", experimental;
        runs: bool ["off", "on"] = 1,
            "consolidation takes the records between two deltas over at once", experimental;
    }
}

/// Refuses options that contradict each other.
fn check(options: &Options) -> Result<(), BadOption> {
    if options.delta_bytes == 0 && options.chain_deltas > MAX_BLOCK_DELTAS {
        let allowed = format!("1 to {MAX_BLOCK_DELTAS} with delta_bytes 0");
        return Err(BadOption::new("chain_deltas", options.chain_deltas, allowed));
    }
    let smaller = options.leaf_bytes.min(options.inner_bytes);
    if options.merge_bytes >= smaller {
        let allowed = format!("below {smaller}, above which a page is split");
        return Err(BadOption::new("merge_bytes", options.merge_bytes, allowed));
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

    /// The greatest length of a chain, and the place of deltas.
    pub(crate) fn chaining(&self) -> Chaining {
        Chaining {
            max_deltas: self.chain_deltas,
            is_beside: self.delta_bytes > 0,
            may_be_partial: false,
        }
    }
}

/// The greatest length of a chain, and the place of deltas.
#[derive(Clone, Copy, Debug)]
pub struct Chaining {
    /// The most deltas of a leaf's chain; an inner page's has a quarter of that.
    pub max_deltas: u32,
    /// Deltas stand beside the base, not in blocks.
    pub is_beside: bool,
    /// A base may be a partial page.
    pub may_be_partial: bool,
}

#[cfg(test)]
mod tests {
    use pando_tree::maps::{IndexOptions, OptionValues};

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
        let words = options.values().unwrap().encode();
        assert_eq!(words, [0x200_0000_0100, 0x9_0000_0040, 3, 1 << 32]);
        let values = OptionValues::decode(Options::SPECS, words).unwrap();
        assert_eq!(Options::of(&values), options);
        assert!(Options::plain().values().is_ok());
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let refused = Options { delta_bytes: 0, ..Options::default() }.values().unwrap_err();
        assert_eq!(refused.to_string(), "chain_deltas is 16; allowed is 1 to 6 with delta_bytes 0");
        let refused = Options { merge_bytes: 1536, ..Options::default() }.values().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "merge_bytes is 1536; allowed is below 1536, above which a page is split"
        );
    }
}
