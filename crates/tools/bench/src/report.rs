//! What a run found: the table on the terminal and the JSON lines.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::conditions::Conditions;
use crate::error::Error;
use crate::spread::Spread;
use crate::systems::entry::Durability;
use crate::units::{bytes, count, duration};

/// The version of the JSON lines of a comparison: it rises when a field is renamed or changes its
/// meaning. Version 1, which lines did not say, had `side` and `mix`.
pub const ROW_VERSION: u32 = 2;

/// One system in one operation mix with one number of threads; one line of JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// [`ROW_VERSION`].
    pub version: u32,
    /// The system's name.
    pub system: String,
    /// The operation mix's name.
    pub operation_mix: String,
    /// The distribution of keys.
    pub keys: String,
    /// Records loaded.
    pub records: u64,
    /// Bytes of a key; of a replay, of the longest.
    pub key_bytes: usize,
    /// Bytes of a value; of a replay, of the longest.
    pub value_bytes: usize,
    /// Threads at work.
    pub threads: usize,
    /// Median over the rounds.
    pub ops_per_second: f64,
    /// Median latency in nanoseconds, all rounds together.
    pub p50_ns: u64,
    /// 99 in 100 operations took at most this long.
    pub p99_ns: u64,
    /// 999 in 1,000 operations took at most this long.
    pub p999_ns: u64,
    /// The longest that was timed.
    pub max_ns: u64,
    /// Bytes a record after loading: what a pool has used, otherwise the heap's growth.
    pub bytes_per_record: Option<f64>,
    /// Bytes a record that the file system has given to the system's files after loading, room for
    /// growth and logs included; `None` without files.
    pub file_bytes_per_record: Option<f64>,
    /// The system that the ratios are to: the first.
    pub base: String,
    /// Median over the rounds of this system's throughput divided by the base's.
    pub ratio_to_first: f64,
    /// The least ratio of a round.
    pub ratio_min: f64,
    /// The greatest ratio of a round.
    pub ratio_max: f64,
    /// As `ratio_to_first`, of operations for each second that a thread had a core: what to go by
    /// when the machine is busy otherwise. It flatters a system whose threads sleep.
    pub on_core_ratio: f64,
    /// The least of a round.
    pub on_core_ratio_min: f64,
    /// The greatest of a round.
    pub on_core_ratio_max: f64,
    /// Median over the rounds of this throughput divided by that with the number of threads before
    /// this one in the list; `None` for the first.
    pub scaling: Option<f64>,
    /// The least of a round.
    pub scaling_min: Option<f64>,
    /// The greatest of a round.
    pub scaling_max: Option<f64>,
    /// The share of the time for which as many threads as there are cores for had one; well below
    /// 1 on a machine that was busy with something else, and for threads that sleep.
    pub on_core_share: f64,
    /// Rounds.
    pub rounds: usize,
    /// Operations of all rounds together.
    pub operations: u64,
    /// Gets that missed a key while another thread replaced its value: a known fault of that
    /// system.
    pub transient_misses: u64,
    /// Operations of an open loop that were due when a slice ended, and had not begun: each is in
    /// the latencies with the time that it had waited by then.
    pub due_not_begun: u64,
    /// Operations that were timed, and those that were due and not begun.
    pub latency_samples: u64,
    /// Operations that were meant to begin a second; `None` if the loop was closed.
    pub rate_ops_per_second: Option<f64>,
    /// What a write of this system survives, if it is one of the table.
    pub durability: Option<Durability>,
    /// Machine and build.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// Seed of the operations.
    pub seed: u64,
    /// Latencies by percentile, for the plots: the percentile as a number of nines (2 is 99 %),
    /// and nanoseconds.
    #[serde(skip)]
    pub latency_curve: Vec<(f64, u64)>,
}

impl Row {
    /// This system's throughput divided by the base's.
    pub fn ratio(&self) -> Spread {
        Spread { median: self.ratio_to_first, min: self.ratio_min, max: self.ratio_max }
    }

    /// What a reader of the figures has to know beside them, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.transient_misses > 0 {
            notes.push(format!(
                "{} gets missed a key that was being replaced",
                self.transient_misses
            ));
        }
        if self.due_not_begun > 0 {
            notes.push(format!(
                "{} operations were due and not begun when a slice ended; their waits are among the latencies",
                self.due_not_begun
            ));
        }
        notes
    }
}

/// One JSON object a line.
pub fn json_lines(rows: &[Row]) -> String {
    // Strings and numbers only: there is nothing that JSON cannot say.
    rows.iter().map(|row| serde_json::to_string(row).unwrap_or_default() + "\n").collect()
}

/// Writes `text` to `path`, in place of what was there.
pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|source| Error::File { path: path.to_path_buf(), source })
}

/// A machine that gives its threads less than this share of the time is busy otherwise.
const BUSY_SHARE: f64 = 0.9;

/// The rows as a table for people.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::new();
    let system_width = rows.iter().map(|row| row.system.len()).max().unwrap_or(0).max(4);
    let mut section = None;
    for row in rows {
        let current = (row.operation_mix.as_str(), row.threads);
        if section != Some(current) {
            out += if section.is_some() { "\n" } else { "" };
            out += &heading(row);
            out += &format!(
                "  {:<system_width$} {:>8} {:>19} {:>19} {:>7} {:>19} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}\n",
                "system",
                "Mops/s",
                format!("x {}", row.base),
                "x on core",
                "on core",
                "x fewer threads",
                "p50",
                "p99",
                "p99.9",
                "max",
                "bytes/rec",
                "files/rec",
            );
            section = Some(current);
        }
        let scaling = match (row.scaling, row.scaling_min, row.scaling_max) {
            (Some(median), Some(min), Some(max)) => Spread { median, min, max }.to_string(),
            _ => "-".to_owned(),
        };
        let on_core = Spread {
            median: row.on_core_ratio,
            min: row.on_core_ratio_min,
            max: row.on_core_ratio_max,
        };
        out += &format!(
            "  {:<system_width$} {:>8.3} {:>19} {:>19} {:>6.0}% {:>19} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}\n",
            row.system,
            row.ops_per_second / 1e6,
            row.ratio().to_string(),
            on_core.to_string(),
            row.on_core_share * 100.0,
            scaling,
            duration(row.p50_ns),
            duration(row.p99_ns),
            duration(row.p999_ns),
            duration(row.max_ns),
            bytes(row.bytes_per_record),
            bytes(row.file_bytes_per_record),
        );
        for note in row.notes() {
            out += &format!("  {:<system_width$} {note}\n", "");
        }
    }
    if rows.iter().any(|row| row.on_core_share < BUSY_SHARE) {
        out += "\non core: the share of the time that the threads had a core. Where it is low on every \
                system, the machine was busy otherwise: go by the ratio of operations on core.\n";
    }
    out
}

pub(crate) fn heading(row: &Row) -> String {
    let threads = match row.threads {
        1 => "1 thread".to_owned(),
        threads if threads > row.conditions.cores => {
            format!("{threads} threads on {} cores", row.conditions.cores)
        }
        threads => format!("{threads} threads"),
    };
    let records = count(row.records);
    let sizes = match (row.key_bytes, row.value_bytes) {
        (8, 8) => String::new(),
        (key_bytes, value_bytes) => format!(" of {key_bytes} and {value_bytes} bytes"),
    };
    let rate = row.rate_ops_per_second.map_or(String::new(), |rate| {
        format!(", {} operations a second begun", count(rate as u64))
    });
    let rounds = row.rounds;
    let (mix, keys) = (&row.operation_mix, &row.keys);
    let timed = match (row.operations + row.latency_samples / 2) / row.latency_samples.max(1) {
        0 | 1 => String::new(),
        every => format!(", one operation in {every} timed"),
    };
    format!(
        "{mix}, {keys} keys, {records} records{sizes}, {threads}, {rounds} rounds{rate}{timed}\n"
    )
}
