//! The arguments of the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::arg_values::{
    FilesArgs, RoundsArgs, count, key_bytes, memory_bytes, rate, rounds, seconds, threads,
    value_bytes,
};
#[cfg(feature = "papers")]
use crate::delays::DelayArgs;
use crate::documents::command::FiguresArgs;
use crate::key_sampler::KeyChoice;
use crate::operation_mix::OperationMix;
use crate::processes::Kept;
use crate::systems::SystemName;
use crate::systems::entry::memory_folder;
use crate::systems::ours::{Ours, ours_called};

/// Arguments of the benchmarks: those of a comparison, or another command.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    /// Another command than the comparison.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The comparison.
    #[command(flatten)]
    pub run: RunArgs,
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Count flushes, fences and cache lines per operation, beside the published figures
    Costs(CostsArgs),
    /// Time the opening of a pool after kill -9, up to the first successful get
    Recovery(RecoveryArgs),
    /// Measure the bytes per record of each system after a fill
    Space(SpaceArgs),
    /// Measure commits of several keys, scans of snapshots, and rebuilds of lost pools
    Transactions(TransactionsArgs),
    /// Measure processes that share a map, beside threads, a peer, and processes that die
    Processes(ProcessesArgs),
    /// Measure servers with redis-benchmark: requests, or restarts after kill -9
    Servers(crate::servers::command::ServersArgs),
    /// Show how BzTree's time is divided among its components
    Profile(crate::profile::command::ProfileArgs),
    /// The process that `profile` samples
    #[command(hide = true)]
    ProfileChild(crate::profile::command::ProfileChildArgs),
    /// Compare the ratios of two runs of the same comparison
    Agree(AgreeArgs),
    /// List the systems and the operation mixes
    Systems(SystemsArgs),
    /// Measure the figures of the documents, write their tables, or check them
    Figures(FiguresArgs),
    /// The process that `recovery` kills
    #[command(hide = true)]
    RecoveryChild(ChildArgs),
    /// A process of `processes`
    #[command(hide = true)]
    ProcessesChild(ProcessesChildArgs),
    /// The process of one system, if its memory is limited
    #[command(hide = true)]
    SystemChild(ApartArgs),
}

/// Arguments of a comparison.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Systems to compare; `systems` lists them; all are in memory at the same time [default:
    /// BzTree and its peers, first in memory, then durable]
    #[arg(long, value_delimiter = ',')]
    pub systems: Option<Vec<SystemName>>,
    /// System to which the ratios refer [default: the first]
    #[arg(long)]
    pub base: Option<SystemName>,
    /// Operation mixes; `systems` lists them
    #[arg(
        long,
        alias = "mix",
        value_delimiter = ',',
        default_value = "read,50/50,scan10,insert,delete"
    )]
    pub operation_mix: Vec<OperationMix>,
    /// Records that are loaded first, such as 500k or 10M [default: 10M; without --systems 1M in
    /// memory and 100k durable]
    #[arg(long, value_parser = count)]
    pub records: Option<u64>,
    /// Numbers of threads, each from 1 to 64, measured one after the other [default: 1 and the
    /// number of cores]
    #[arg(long, value_delimiter = ',', value_parser = threads)]
    pub threads: Option<Vec<usize>>,
    /// Distribution of the keys: uniform, zipfian:THETA, monotonic or latest [default: that of the
    /// YCSB mix, otherwise uniform]
    #[arg(long)]
    pub keys: Option<KeyChoice>,
    /// Length of a key in bytes, 8 to 128
    #[arg(long, value_parser = key_bytes, default_value = "8")]
    pub key_bytes: usize,
    /// Length of a value in bytes, 8 to 4096
    #[arg(long, value_parser = value_bytes, default_value = "8")]
    pub value_bytes: usize,
    /// Open loop: start this many operations per second, all threads together, and measure each
    /// latency from the scheduled start [default: closed loop]
    #[arg(long, value_parser = rate, value_name = "OPS_PER_SECOND")]
    pub rate: Option<f64>,
    /// Number of rounds for each number of threads
    #[arg(long, value_parser = rounds, default_value = "5")]
    pub rounds: usize,
    /// Seconds of a slice of reads, upserts or scans [default: 1; without --systems 0.15]
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Start no further round that would end later than this many seconds after the start [default:
    /// none; without --systems 80 in memory and 50 durable]
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    pub time_limit: Option<f64>,
    /// Records of a slice of inserts or deletes [default: a twentieth of --records]
    #[arg(long, value_parser = count)]
    pub batch: Option<u64>,
    /// Measure the latency of one operation in this many; 1: of each
    #[arg(long, value_parser = count, default_value = "16")]
    pub sample_every: u64,
    /// Seed of all operations
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// Folder for the pools of durable systems
    #[arg(long, default_value_os_t = memory_folder())]
    pub pool_dir: PathBuf,
    /// Folder for the logs of Pando's systems, and for the files of durable peers [default: that of
    /// the pools]
    #[arg(long, value_name = "FOLDER")]
    pub log_dir: Option<PathBuf>,
    /// Run each system in a process of its own with so much memory, such as 512M, page cache
    /// included. The system's own cache gets half of it; that of a store three quarters, and that
    /// of fjall one quarter. It needs Linux and the superuser
    #[arg(long, value_parser = memory_bytes, value_name = "BYTES", conflicts_with = "replay")]
    pub process_memory: Option<u64>,
    /// The delays of the emulated medium.
    #[cfg(feature = "papers")]
    #[command(flatten)]
    pub delays: DelayArgs,
    /// Write the rows to this file, one JSON object per line
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write an HTML page with plots to this file [default: none; without --systems
    /// pando-bench.html]
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// Replay the operations of this file instead of mixes, and compare the answers of all systems.
    /// The lines are `insert KEY VALUE`, `update KEY VALUE`, `get KEY`, `delete KEY`, `scan KEY N`,
    /// `scan-reverse KEY N`; \xNN is a byte, # starts a comment
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "operation_mix", "records", "threads", "keys", "key_bytes", "value_bytes", "rate", "rounds",
        "seconds", "time_limit", "batch", "sample_every", "seed",
    ])]
    pub replay: Option<PathBuf>,
}

/// Arguments of `agree`.
#[derive(Args, Debug)]
pub struct AgreeArgs {
    /// Rows that --json of a comparison wrote
    pub first: PathBuf,
    /// Rows of another run, or of another commit
    pub second: PathBuf,
}

/// Arguments of `systems`.
#[derive(Args, Debug)]
pub struct SystemsArgs {
    /// Print the settings of each system too
    #[arg(long)]
    pub settings: bool,
}

/// Arguments of `costs`.
#[derive(Args, Debug)]
pub struct CostsArgs {
    /// Pando's indexes whose operations are counted
    #[arg(long = "index", value_name = "NAME", value_delimiter = ',', value_parser = ours_called, default_value = "bztree")]
    pub ours: Vec<&'static Ours>,
    /// Records that are loaded first
    #[arg(long, value_parser = count, default_value = "100k")]
    pub records: u64,
    /// Number of counted operations of each kind
    #[arg(long, value_parser = count, default_value = "100k")]
    pub samples: u64,
    /// The files of the figures.
    #[command(flatten)]
    pub files: FilesArgs,
}

/// Arguments of `recovery`.
#[derive(Args, Debug)]
pub struct RecoveryArgs {
    /// Pando's indexes that are opened
    #[arg(long = "index", value_name = "NAME", value_delimiter = ',', value_parser = ours_called, default_value = "bztree")]
    pub ours: Vec<&'static Ours>,
    /// Numbers of records in the pool, measured one after the other
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "1M,10M")]
    pub records: Vec<u64>,
    /// Number of kills and openings of each pool
    #[arg(long, value_parser = count, default_value = "21")]
    pub cycles: u64,
    /// Folder for the pool
    #[arg(long, default_value_os_t = memory_folder())]
    pub pool_dir: PathBuf,
    /// Seed of the keys and of the times of the kills
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// The files of the figures.
    #[command(flatten)]
    pub files: FilesArgs,
}

/// Arguments of `space`.
#[derive(Args, Debug)]
pub struct SpaceArgs {
    /// Systems to fill, one after the other; `systems` lists them
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "crossbeam-skiplist,btreemap,bztree,bztree:process"
    )]
    pub systems: Vec<SystemName>,
    /// Numbers of records
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "1M,10M")]
    pub records: Vec<u64>,
    /// Length of a key in bytes, 8 to 128
    #[arg(long, value_parser = key_bytes, default_value = "8")]
    pub key_bytes: usize,
    /// Length of a value in bytes, 8 to 4096
    #[arg(long, value_parser = value_bytes, default_value = "8")]
    pub value_bytes: usize,
    /// Folder for the pools of durable systems
    #[arg(long, default_value_os_t = memory_folder())]
    pub pool_dir: PathBuf,
    /// The files of the figures.
    #[command(flatten)]
    pub files: FilesArgs,
}

/// Arguments of `transactions`.
#[derive(Args, Debug)]
pub struct TransactionsArgs {
    /// Records of a map
    #[arg(long, value_parser = count, default_value = "1M")]
    pub records: u64,
    /// Length of a value in bytes, 8 to 4096; keys have 8
    #[arg(long, value_parser = value_bytes, default_value = "100")]
    pub value_bytes: usize,
    /// The rounds.
    #[command(flatten)]
    pub rounds: RoundsArgs,
    /// Folder for the pools
    #[arg(long, default_value_os_t = memory_folder())]
    pub pool_dir: PathBuf,
    /// Folder for the logs [default: that of the pools]
    #[arg(long, value_name = "FOLDER")]
    pub log_dir: Option<PathBuf>,
    /// Seed of the operations
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// The files of the figures.
    #[command(flatten)]
    pub files: FilesArgs,
}

/// Arguments of `processes`.
#[derive(Args, Debug)]
pub struct ProcessesArgs {
    /// Records of the map
    #[arg(long, value_parser = count, default_value = "1M")]
    pub records: u64,
    /// Length of a value in bytes, 9 to 4096; keys have 8
    #[arg(long, value_parser = value_bytes, default_value = "100")]
    pub value_bytes: usize,
    /// The rounds.
    #[command(flatten)]
    pub rounds: RoundsArgs,
    /// Folder for the maps
    #[arg(long, default_value_os_t = memory_folder())]
    pub pool_dir: PathBuf,
    /// Seed of the operations
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// The files of the figures.
    #[command(flatten)]
    pub files: FilesArgs,
}

/// Arguments of a process of `processes`.
#[derive(Args, Debug)]
pub struct ProcessesChildArgs {
    /// `pando` or `lmdb`
    #[arg(long)]
    pub system: Kept,
    /// The pool's file, or the peer's folder
    #[arg(long)]
    pub file: PathBuf,
    /// Records of the map
    #[arg(long)]
    pub records: u64,
    /// Length of a value in bytes
    #[arg(long)]
    pub value_bytes: usize,
    /// Threads that work
    #[arg(long)]
    pub threads: usize,
    /// Read all records before the work
    #[arg(long)]
    pub touches: bool,
}

/// Arguments of the process that `recovery` kills.
#[derive(Args, Debug)]
pub struct ChildArgs {
    /// The index, one of ours.
    #[arg(long = "index", value_parser = ours_called)]
    pub ours: &'static Ours,
    /// `fill` or `open`
    pub part: String,
    /// The pool's file
    #[arg(long)]
    pub file: PathBuf,
    /// Records in the pool
    #[arg(long)]
    pub records: u64,
    /// Seed of what is read and written
    #[arg(long)]
    pub seed: u64,
}

/// Arguments of the process of one system.
#[derive(Args, Debug)]
pub struct ApartArgs {
    /// The system
    #[arg(long)]
    pub system: SystemName,
    /// Records that it has at most
    #[arg(long)]
    pub records: u64,
    /// Length of a key in bytes
    #[arg(long)]
    pub key_bytes: usize,
    /// Length of a value in bytes
    #[arg(long)]
    pub value_bytes: usize,
    /// Bytes of its cache
    #[arg(long)]
    pub cache_bytes: u64,
    /// Folder for pools
    #[arg(long)]
    pub pool_dir: PathBuf,
    /// Folder for logs and for the files of peers
    #[arg(long)]
    pub log_dir: PathBuf,
    /// The control group that limits its memory
    #[arg(long)]
    pub group: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::documents::catalog::FIGURES;

    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parsed(words: &str) -> Result<BenchArgs, clap::Error> {
        let words = ["bench"].into_iter().chain(words.split_whitespace());
        Whole::try_parse_from(words).map(|whole| whole.bench)
    }

    #[test]
    fn a_comparison_needs_no_word_of_its_own() {
        let words = "--systems btreemap,crossbeam-skiplist --operation-mix read,50/50 --records 10M \
                     --threads 1,2 --rounds 5 --seconds 1 --keys zipfian:0.99 --base crossbeam-skiplist";
        let run = parsed(words).unwrap().run;
        assert_eq!((run.records, run.operation_mix.len()), (Some(10_000_000), 2));
        assert_eq!(run.threads, Some(vec![1, 2]));
        let run = parsed("--time-limit 1.5 --sample-every 1").unwrap().run;
        assert_eq!((run.time_limit, run.sample_every), (Some(1.5), 1));
        assert!(parsed("").unwrap().run.systems.is_none());
    }

    #[test]
    fn the_commands_of_the_documents_figures_are_understood() {
        for figure in FIGURES {
            for command in figure.commands {
                let refused = parsed(command).err();
                assert!(refused.is_none(), "{}: {}", figure.name, refused.unwrap());
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (words, says) in [
            ("--operation-mix rad", "ycsb-f"),
            // The alias.
            ("--mix rad", "ycsb-f"),
            ("--threads 65", "from 1 to 64"),
            ("--key-bytes 7", "from 8 to 128"),
            ("--value-bytes 5000", "from 8 to 4096"),
            ("--rate 1G", "from 1 to 100M"),
            ("--process-memory 32M", "64M or more"),
            ("--systems bztre", "expected one of bztree"),
            ("--replay x --operation-mix read", "cannot be used with"),
        ] {
            let error = parsed(words).unwrap_err().to_string();
            assert!(error.contains(says), "{words}: {error}");
        }
    }
}
