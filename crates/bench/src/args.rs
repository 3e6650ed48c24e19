//! The command line: words and numbers, and nothing that runs.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::chooser::KeyChoice;
use crate::mix::Mix;
use crate::record::{MAX_KEY_BYTES, MAX_VALUE_BYTES, WORD_BYTES};
use crate::sides::SideName;

/// Interleaved benchmarks of Pando's indexes beside the maps that a user would otherwise pick.
#[derive(Debug, Parser)]
#[command(name = "pando-bench", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compare sides, interleaved round by round
    Run(RunArgs),
    /// Count flushes, fences and lines an operation, beside the published figures
    Costs(CostsArgs),
    /// Time an opening after kill -9, up to the first successful get
    Recovery(RecoveryArgs),
    /// Bytes a record after filling each side
    Space(SpaceArgs),
    /// List the sides
    Sides,
    /// The process that the recovery test kills
    #[command(hide = true)]
    RecoveryChild(ChildArgs),
}

/// Arguments of `run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Sides to compare; all are loaded at once
    #[arg(long, value_delimiter = ',', default_value = "skiplist,btreemap,bztree")]
    pub sides: Vec<SideName>,
    /// Side that the others are divided by [default: the first]
    #[arg(long)]
    pub base: Option<SideName>,
    /// Mixes; `sides` lists them
    #[arg(long, value_delimiter = ',', default_value = "read,50/50,scan10,insert,delete")]
    pub mix: Vec<Mix>,
    /// Records loaded first, as in 500k or 10M
    #[arg(long, value_parser = count, default_value = "10M")]
    pub records: u64,
    /// Numbers of threads, one after the other
    #[arg(long, value_delimiter = ',', value_parser = threads, default_value = "1,2")]
    pub threads: Vec<usize>,
    /// Which records are met: uniform, zipfian:THETA, monotonic or latest [default: what a YCSB
    /// mix says, else uniform]
    #[arg(long)]
    pub keys: Option<KeyChoice>,
    /// Bytes of a key, 8 to 128
    #[arg(long, value_parser = key_bytes, default_value = "8")]
    pub key_bytes: usize,
    /// Bytes of a value, 8 to 4096
    #[arg(long, value_parser = value_bytes, default_value = "8")]
    pub value_bytes: usize,
    /// Open loop: begin so many operations a second, all threads together, and take latencies
    /// from the moment at which each was meant to begin
    #[arg(long, value_parser = rate, value_name = "OPS_PER_SECOND")]
    pub rate: Option<f64>,
    /// Rounds for each number of threads
    #[arg(long, value_parser = rounds, default_value = "5")]
    pub rounds: usize,
    /// Seconds that a slice of reads, upserts or scans takes
    #[arg(long, value_parser = seconds, default_value = "1")]
    pub seconds: f64,
    /// Records that a slice of inserts or deletes takes [default: a twentieth of --records]
    #[arg(long, value_parser = count)]
    pub batch: Option<u64>,
    /// Time one operation in so many; 1 times all
    #[arg(long, value_parser = count, default_value = "16")]
    pub sample_every: u64,
    /// Seed of all operations
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// Folder for the pools of durable sides
    #[arg(long, default_value = "/dev/shm")]
    pub pool_dir: PathBuf,
    /// Ask for huge pages behind the pools of BzTree
    #[arg(long)]
    pub huge_pages: bool,
    /// Write one JSON object a line to this file
    #[arg(long)]
    pub json: Option<PathBuf>,
}

/// Arguments of `costs`.
#[derive(Args, Debug)]
pub struct CostsArgs {
    /// Records loaded first
    #[arg(long, value_parser = count, default_value = "100k")]
    pub records: u64,
    /// Operations of each kind that are counted
    #[arg(long, value_parser = count, default_value = "100k")]
    pub samples: u64,
}

/// Arguments of `recovery`.
#[derive(Args, Debug)]
pub struct RecoveryArgs {
    /// Records in the pool; several sizes are measured one after the other
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "1M,10M")]
    pub records: Vec<u64>,
    /// Times that each pool is killed and opened
    #[arg(long, value_parser = count, default_value = "21")]
    pub cycles: u64,
    /// Folder for the pool
    #[arg(long, default_value = "/dev/shm")]
    pub pool_dir: PathBuf,
    /// Seed of the keys and of the moments of the kills
    #[arg(long, default_value = "1")]
    pub seed: u64,
}

/// Arguments of `space`.
#[derive(Args, Debug)]
pub struct SpaceArgs {
    /// Sides to fill, one after the other
    #[arg(long, value_delimiter = ',', default_value = "skiplist,btreemap,bztree,bztree:process")]
    pub sides: Vec<SideName>,
    /// Numbers of records
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "1M,10M")]
    pub records: Vec<u64>,
    /// Folder for the pools of durable sides
    #[arg(long, default_value = "/dev/shm")]
    pub pool_dir: PathBuf,
}

/// Arguments of the process that the recovery test kills.
#[derive(Args, Debug)]
pub struct ChildArgs {
    /// `fill` or `open`
    pub part: String,
    /// The pool's file
    #[arg(long)]
    pub pool: PathBuf,
    /// Records in the pool
    #[arg(long)]
    pub records: u64,
    /// Seed of what is read and written
    #[arg(long)]
    pub seed: u64,
}

/// A positive number with a decimal suffix: `2000`, `500k`, `10M`, `1G`.
pub fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        Some((at, 'g' | 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    match digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)) {
        Some(number) if number > 0 => Ok(number),
        _ => Err("expected a positive number such as 2000, 500k or 10M".to_owned()),
    }
}

fn within(text: &str, least: usize, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("expected a number from {least} to {most}")),
    }
}

fn threads(text: &str) -> Result<usize, String> {
    within(text, 1, 64)
}

fn rounds(text: &str) -> Result<usize, String> {
    within(text, 1, 1000)
}

fn key_bytes(text: &str) -> Result<usize, String> {
    within(text, WORD_BYTES, MAX_KEY_BYTES)
}

fn value_bytes(text: &str) -> Result<usize, String> {
    within(text, WORD_BYTES, MAX_VALUE_BYTES)
}

fn rate(text: &str) -> Result<f64, String> {
    count(text).map(|rate| rate as f64)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0.001 to 3600".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_suffixes() {
        assert_eq!(count("10M"), Ok(10_000_000));
        assert_eq!(count("500k"), Ok(500_000));
        assert_eq!(count("7"), Ok(7));
        for bad in ["", "M", "-1", "0", "1.5M", "10MM", "99999999999G"] {
            assert!(count(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_brief_command_is_understood() {
        let words = "pando-bench run --sides btreemap,skiplist --mix read,50/50 --records 10M \
                     --threads 1,2 --rounds 5 --seconds 1 --keys zipfian:0.99 --base skiplist";
        let Command::Run(run) = Cli::parse_from(words.split_whitespace()).command else {
            panic!("not a run");
        };
        assert_eq!((run.records, run.threads, run.mix.len()), (10_000_000, vec![1, 2], 2));
        assert!(Cli::try_parse_from(["pando-bench", "run", "--mix", "rad"]).is_err());
    }
}
