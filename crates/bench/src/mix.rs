//! The mixes of operations, by name.

use std::fmt;
use std::str::FromStr;

/// Records that one operation of [`Mix::Scan10`] reads.
pub const SCAN_RECORDS: u64 = 10;

/// What the threads of a slice do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Fills an empty side.
    Load,
    /// Gets of records that are there.
    Read,
    /// Half gets, half upserts, of records that are there.
    Half,
    /// Inserts of new records into the loaded ones.
    Insert,
    /// Deletes of records that are there, the oldest first.
    Delete,
    /// Forward scans of [`SCAN_RECORDS`] records, each from a record that is there.
    Scan10,
}

impl Mix {
    /// Every mix, in the order in which a round runs them.
    pub const ALL: [Self; 6] =
        [Self::Load, Self::Read, Self::Half, Self::Scan10, Self::Insert, Self::Delete];

    /// The name that the command line and the reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Read => "read",
            Self::Half => "50/50",
            Self::Insert => "insert",
            Self::Delete => "delete",
            Self::Scan10 => "scan10",
        }
    }

    /// Whether a slice is a number of operations; otherwise it is a time.
    pub fn is_counted(self) -> bool {
        matches!(self, Self::Load | Self::Insert | Self::Delete)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|mix| mix.name() == text)
            .ok_or_else(|| format!("expected one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}
