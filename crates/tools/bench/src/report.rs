//! The result of a run: the table on the terminal and the JSON lines.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::conditions::Conditions;
use crate::error::Error;
use crate::spread::Spread;
use crate::systems::entry::Durability;
use crate::units::{bytes, count, duration};

/// The version of the JSON lines of a comparison. It rises when a field is renamed or changes its
/// meaning. Lines of version 1 have no version, and the fields `side` and `mix`.
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
    /// Records that were loaded.
    pub records: u64,
    /// Length of a key in bytes; of a replay, of the longest.
    pub key_bytes: usize,
    /// Length of a value in bytes; of a replay, of the longest.
    pub value_bytes: usize,
    /// Number of threads.
    pub threads: usize,
    /// Throughput: the median of the rounds.
    pub ops_per_second: f64,
    /// Median latency of all rounds in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile of the latency.
    pub p99_ns: u64,
    /// 99.9th percentile of the latency.
    pub p999_ns: u64,
    /// Greatest measured latency.
    pub max_ns: u64,
    /// Bytes per record after loading: used bytes of a pool, otherwise the growth of the heap.
    pub bytes_per_record: Option<f64>,
    /// Bytes per record that the file system has allocated for the system's files after loading,
    /// with logs and space for growth; `None` without files.
    pub file_bytes_per_record: Option<f64>,
    /// Bytes that the process of the system has read from the device in the slices, by their
    /// operations; `None` if it has no process of its own.
    pub read_bytes_per_op: Option<f64>,
    /// Bytes that it has written, in the same way.
    pub written_bytes_per_op: Option<f64>,
    /// The system to which the ratios refer: the first.
    pub base: String,
    /// Throughput of this system divided by that of the base: the median of the rounds.
    pub ratio_to_first: f64,
    /// The least of the rounds.
    pub ratio_min: f64,
    /// The greatest of the rounds.
    pub ratio_max: f64,
    /// As `ratio_to_first`, of operations per second of core time. Use it when the machine is busy
    /// with other work. It flatters a system whose threads sleep.
    pub on_core_ratio: f64,
    /// The least of the rounds.
    pub on_core_ratio_min: f64,
    /// The greatest of the rounds.
    pub on_core_ratio_max: f64,
    /// Throughput divided by that with the previous number of threads in the list: the median of
    /// the rounds; `None` for the first number.
    pub scaling: Option<f64>,
    /// The least of the rounds.
    pub scaling_min: Option<f64>,
    /// The greatest of the rounds.
    pub scaling_max: Option<f64>,
    /// The core time of the threads divided by the core time that was available to them. It is well
    /// below 1 on a machine that is busy with other work, and for threads that sleep.
    pub on_core_share: f64,
    /// Number of rounds.
    pub rounds: usize,
    /// Operations of all rounds.
    pub operations: u64,
    /// Gets that missed a key while another thread replaced its value: a known fault of the system.
    pub transient_misses: u64,
    /// Operations of an open loop that were due but not started at the end of a slice. The
    /// latencies contain the wait of each.
    pub due_not_begun: u64,
    /// Number of latencies: timed operations, and operations that were due but not started.
    pub latency_samples: u64,
    /// Scheduled operations per second; `None` for a closed loop.
    pub rate_ops_per_second: Option<f64>,
    /// Durability of a write that has returned, if the system is in the table.
    pub durability: Option<Durability>,
    /// Machine and build.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// Seed of the operations.
    pub seed: u64,
    /// Latencies by percentile, for the plots: the percentile as a number of nines (2 is 99 %), and
    /// nanoseconds.
    #[serde(skip)]
    pub latency_curve: Vec<(f64, u64)>,
}

impl Row {
    /// Throughput of this system divided by that of the base.
    pub fn ratio(&self) -> Spread {
        Spread { median: self.ratio_to_first, min: self.ratio_min, max: self.ratio_max }
    }

    /// The latencies by percentile and the bytes per record, as a table has them.
    pub fn last_cells(&self) -> [String; 6] {
        [
            duration(self.p50_ns),
            duration(self.p99_ns),
            duration(self.p999_ns),
            duration(self.max_ns),
            bytes(self.bytes_per_record),
            bytes(self.file_bytes_per_record),
        ]
    }

    /// Notes that a reader of the figures needs, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let (Some(read), Some(written)) = (self.read_bytes_per_op, self.written_bytes_per_op) {
            notes.push(format!(
                "{read:.0} bytes read from the device and {written:.0} written, by operation"
            ));
        }
        if self.transient_misses > 0 {
            notes.push(format!(
                "{} gets missed a key that was being replaced",
                self.transient_misses
            ));
        }
        if self.due_not_begun > 0 {
            notes.push(format!(
                "{} operations were due and not begun when a slice ended; the latencies contain their waits",
                self.due_not_begun
            ));
        }
        notes
    }
}

/// The rows as JSON, one object per line.
pub fn json_lines(rows: &[Row]) -> String {
    // Strings and numbers only, which JSON can always represent.
    rows.iter().map(|row| serde_json::to_string(row).unwrap_or_default() + "\n").collect()
}

/// Writes `text` to `path`; an existing file is replaced.
pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|source| Error::File { path: path.to_path_buf(), source })
}

/// With a smaller share of core time, the machine is busy with other work.
const BUSY_SHARE: f64 = 0.9;

/// The rows as a table.
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
        let [p50, p99, p999, max, in_memory, in_files] = row.last_cells();
        out += &format!(
            "  {:<system_width$} {:>8.3} {:>19} {:>19} {:>6.0}% {:>19} {p50:>8} {p99:>8} {p999:>8} \
             {max:>8} {in_memory:>9} {in_files:>9}\n",
            row.system,
            row.ops_per_second / 1e6,
            row.ratio().to_string(),
            on_core.to_string(),
            row.on_core_share * 100.0,
            scaling,
        );
        for note in row.notes() {
            out += &format!("  {:<system_width$} {note}\n", "");
        }
    }
    if rows.iter().any(|row| row.on_core_share < BUSY_SHARE) {
        out += "\non core: core time of the threads, divided by the available core time. If it is low for \
                all systems, the machine was busy with other work: use the ratio on core.\n";
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
