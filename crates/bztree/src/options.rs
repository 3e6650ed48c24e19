//! What a user may set of a tree, and how it is kept in the map's header.

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
        Self {
            leaf_bytes: 2048,
            inner_bytes: 4096,
            free_bytes: 384,
            merge_bytes: 768,
            inline_bytes: 1024,
            value_mode: ValueMode::Inline,
        }
    }
}

/// An option that is out of its range.
#[derive(Debug, thiserror::Error)]
#[error("the option {option} is {found}; allowed is {allowed}")]
pub struct BadOption {
    /// The option's name.
    pub option: &'static str,
    /// Its value.
    pub found: u64,
    /// What is allowed.
    pub allowed: String,
}

impl Options {
    /// Checks that every option is in its range.
    pub fn check(self) -> Result<Self, BadOption> {
        let within = |option, found: u32, low: u32, high: u32| {
            if (low..=high).contains(&found) {
                Ok(())
            } else {
                Err(BadOption {
                    option,
                    found: u64::from(found),
                    allowed: format!("{low} to {high} bytes"),
                })
            }
        };
        within("leaf_bytes", self.leaf_bytes, 256, 65_536)?;
        within("inner_bytes", self.inner_bytes, 256, 65_536)?;
        within("free_bytes", self.free_bytes, 32, self.leaf_bytes / 2)?;
        within("merge_bytes", self.merge_bytes, 0, self.leaf_bytes / 2)?;
        within("inline_bytes", self.inline_bytes, 0, 16_384)?;
        Ok(self)
    }

    /// The words of a map's header.
    pub fn encode(self) -> [u64; 4] {
        let mode = match self.value_mode {
            ValueMode::Inline => 0,
            ValueMode::Pointer => 1,
        };
        [
            u64::from(self.leaf_bytes) | u64::from(self.inner_bytes) << 32,
            u64::from(self.free_bytes) | u64::from(self.merge_bytes) << 32,
            u64::from(self.inline_bytes) | mode << 32,
            0,
        ]
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(words: [u64; 4]) -> Result<Self, BadOption> {
        let value_mode = match words[2] >> 32 {
            0 => ValueMode::Inline,
            1 => ValueMode::Pointer,
            found => {
                return Err(BadOption { option: "value_mode", found, allowed: "0 or 1".into() });
            }
        };
        if words[3] != 0 {
            return Err(BadOption { option: "reserved", found: words[3], allowed: "0".into() });
        }
        let options = Self {
            leaf_bytes: words[0] as u32,
            inner_bytes: (words[0] >> 32) as u32,
            free_bytes: words[1] as u32,
            merge_bytes: (words[1] >> 32) as u32,
            inline_bytes: words[2] as u32,
            value_mode,
        };
        options.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_options() {
        let encoded = Options::default().encode();
        assert_eq!(encoded, [0x1000_0000_0800, 0x300_0000_0180, 0x400, 0]);
        assert_eq!(Options::decode(encoded).unwrap(), Options::default());
    }

    #[test]
    fn options_out_of_range_are_named() {
        let error = Options { leaf_bytes: 1, ..Options::default() }.check().unwrap_err();
        assert_eq!(error.option, "leaf_bytes");
        assert!(Options::decode([0, 0, 9 << 32, 0]).is_err());
        assert!(Options::decode([0, 0, 0, 1]).is_err());
    }
}
