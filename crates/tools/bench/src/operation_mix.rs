//! The operation mixes by name.
//!
//! A mix is *timed* or *counted*. A timed mix runs for the time of a slice. A counted mix inserts
//! or deletes a number of records, so that each system does the same work and has the same number
//! of records afterwards.
//!
//! The YCSB mixes are its core workloads (Cooper and others, 2010), with their distributions of
//! keys unless `--keys` sets another one. D and E insert in one of twenty operations, at fixed
//! positions of the sequence of each thread, so that one seed inserts the same records on each
//! system. A thread reads its own new records and all older ones.

use std::fmt;
use std::str::FromStr;

use crate::key_sampler::KeyChoice;
use crate::system::Order;

/// Records of the longest scan of a mix.
pub const MAX_SCAN_RECORDS: u64 = 100;

/// The operations of the threads of a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperationMix {
    /// The name on the command line and in reports.
    pub name: &'static str,
    /// A description in one line.
    pub what: &'static str,
    /// The operations.
    pub work: Work,
    /// The distribution of keys, if the mix sets one.
    pub keys: Option<KeyChoice>,
}

/// The operations of a mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Fills an empty system.
    Load,
    /// Inserts new records into the loaded ones.
    Insert,
    /// Deletes the oldest records.
    Delete,
    /// Gets [`BATCH`] records with one call.
    ReadBatch,
    /// Upserts [`BATCH`] existing records with one call.
    UpdateBatch,
    /// Operations of several kinds, chosen at random.
    Blend(Blend),
}

/// Records of an operation of [`Work::ReadBatch`] and [`Work::UpdateBatch`].
pub const BATCH: usize = 16;

/// Shares of the operations on existing records, in percent; their sum is 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blend {
    /// Gets.
    pub reads: u64,
    /// Upserts.
    pub updates: u64,
    /// Gets followed by an upsert of the same key.
    pub read_modify_writes: u64,
    /// Scans, of [`Blend::scan`].
    pub scans: u64,
    /// The scans' length and direction.
    pub scan: ScanLengths,
    /// One operation in this many, counted by each thread, inserts a record instead; 0: none.
    pub insert_every: u64,
}

/// The scans of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLengths {
    /// The least number of records of a scan.
    pub min_records: u64,
    /// The greatest number; the length of each scan is drawn from this range.
    pub max_records: u64,
    /// Their order.
    pub order: Order,
}

impl ScanLengths {
    const fn of(records: u64, order: Order) -> Self {
        Self { min_records: records, max_records: records, order }
    }
}

const READS: Blend = Blend {
    reads: 100,
    updates: 0,
    read_modify_writes: 0,
    scans: 0,
    scan: ScanLengths::of(10, Order::Ascending),
    insert_every: 0,
};
const SCANS: Blend = Blend { reads: 0, scans: 100, ..READS };
const YCSB_ZIPFIAN: Option<KeyChoice> = Some(KeyChoice::Zipfian { theta: 0.99 });

const fn updating(name: &'static str, what: &'static str, reads: u64) -> OperationMix {
    let blend = Blend { reads, updates: 100 - reads, ..READS };
    OperationMix { name, what, work: Work::Blend(blend), keys: None }
}

const fn scanning(
    name: &'static str,
    what: &'static str,
    records: u64,
    order: Order,
) -> OperationMix {
    let blend = Blend { scan: ScanLengths::of(records, order), ..SCANS };
    OperationMix { name, what, work: Work::Blend(blend), keys: None }
}

const fn counted(name: &'static str, what: &'static str, work: Work) -> OperationMix {
    OperationMix { name, what, work, keys: None }
}

const fn ycsb(
    name: &'static str,
    what: &'static str,
    blend: Blend,
    keys: Option<KeyChoice>,
) -> OperationMix {
    OperationMix { name, what, work: Work::Blend(blend), keys }
}

impl OperationMix {
    /// Fills an empty system.
    pub const LOAD: Self = counted("load", "fill an empty system", Work::Load);
    /// Gets.
    pub const READ: Self = updating("read", "gets", 100);
    /// Half gets, half upserts.
    pub const HALF: Self = updating("50/50", "50 % gets, 50 % upserts", 50);
    /// Upserts of existing records.
    pub const UPDATE: Self = updating("update", "upserts of existing records", 0);
    /// Inserts.
    pub const INSERT: Self = counted("insert", "inserts of new records", Work::Insert);
    /// Deletes.
    pub const DELETE: Self = counted("delete", "deletes, the oldest first", Work::Delete);
    /// Scans of 10.
    pub const SCAN10: Self = scanning("scan10", "scans of 10", 10, Order::Ascending);

    /// Every mix.
    pub const ALL: &[Self] = &[
        Self::LOAD,
        Self::READ,
        counted("read16", "gets of 16 records at once", Work::ReadBatch),
        updating("90/10", "90 % gets, 10 % upserts", 90),
        updating("75/25", "75 % gets, 25 % upserts", 75),
        Self::HALF,
        Self::UPDATE,
        counted("update16", "upserts of 16 existing records at once", Work::UpdateBatch),
        Self::SCAN10,
        scanning("scan100", "scans of 100", 100, Order::Ascending),
        scanning("scan10-reverse", "scans of 10, downwards", 10, Order::Descending),
        scanning("scan100-reverse", "scans of 100, downwards", 100, Order::Descending),
        Self::INSERT,
        Self::DELETE,
        ycsb(
            "ycsb-a",
            "50 % gets, 50 % upserts, zipfian",
            Blend { reads: 50, updates: 50, ..READS },
            YCSB_ZIPFIAN,
        ),
        ycsb(
            "ycsb-b",
            "95 % gets, 5 % upserts, zipfian",
            Blend { reads: 95, updates: 5, ..READS },
            YCSB_ZIPFIAN,
        ),
        ycsb("ycsb-c", "gets, zipfian", READS, YCSB_ZIPFIAN),
        ycsb(
            "ycsb-d",
            "95 % gets of the latest records, 5 % inserts",
            Blend { insert_every: 20, ..READS },
            Some(KeyChoice::Latest),
        ),
        ycsb(
            "ycsb-e",
            "95 % scans of 1 to 100, 5 % inserts, zipfian",
            Blend {
                scan: ScanLengths {
                    min_records: 1,
                    max_records: MAX_SCAN_RECORDS,
                    order: Order::Ascending,
                },
                insert_every: 20,
                ..SCANS
            },
            YCSB_ZIPFIAN,
        ),
        ycsb(
            "ycsb-f",
            "50 % gets, 50 % read-modify-writes, zipfian",
            Blend { reads: 50, read_modify_writes: 50, ..READS },
            YCSB_ZIPFIAN,
        ),
    ];

    /// Whether a slice is a number of operations; otherwise, it is a time.
    pub fn is_counted(&self) -> bool {
        match self.work {
            Work::Load | Work::Insert | Work::Delete => true,
            Work::ReadBatch | Work::UpdateBatch => false,
            Work::Blend(blend) => blend.insert_every > 0,
        }
    }

    /// Its scans, if it has any.
    pub fn scan(&self) -> Option<ScanLengths> {
        match self.work {
            Work::Blend(blend) if blend.scans > 0 => Some(blend.scan),
            _ => None,
        }
    }

    /// Whether it scans downwards.
    pub fn is_descending(&self) -> bool {
        self.scan().is_some_and(|scan| scan.order == Order::Descending)
    }

    /// A number that is unique among the mixes.
    pub fn ordinal(&self) -> u64 {
        Self::ALL.iter().position(|mix| mix == self).unwrap_or(Self::ALL.len()) as u64
    }
}

impl fmt::Display for OperationMix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

impl FromStr for OperationMix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.iter().find(|mix| mix.name == text).copied();
        named.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|mix| mix.name).collect();
            format!("expected one of {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_make_a_hundred_and_names_differ() {
        for (at, mix) in OperationMix::ALL.iter().enumerate() {
            assert_eq!(mix.name.parse::<OperationMix>().unwrap(), *mix);
            assert_eq!(mix.ordinal(), at as u64);
            let Work::Blend(blend) = mix.work else { continue };
            let all = blend.reads + blend.updates + blend.read_modify_writes + blend.scans;
            assert_eq!(all, 100, "{mix}");
            assert!(blend.scan.max_records <= MAX_SCAN_RECORDS, "{mix}");
        }
    }
}
