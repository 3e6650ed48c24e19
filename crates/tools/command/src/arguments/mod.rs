//! The command line: its commands, and the options that each command has.

pub mod maps;
pub mod named_map;
pub mod records;
pub mod server;
pub mod upkeep;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use pando::DomainChoice;

#[cfg(feature = "bench")]
use crate::failure::BENCH;
use crate::failure::{MISSING, TOUR, exit_codes};
use crate::quantity::{number, size_bytes};
use maps::{DropArguments, IndexesArguments, MapsCommand};
use records::{
    DelArguments, DumpArguments, GetArguments, LoadArguments, PutArguments, ScanArguments,
};
use server::{ServeArguments, TopArguments};
use upkeep::{
    BackupArguments, CheckArguments, CompactArguments, EvictArguments, LogCommand,
    RestoreArguments, StatArguments, UpgradeArguments,
};
use values::{domain, writers};

/// Ordered maps that many threads write at once and that survive `kill -9`.
#[derive(Debug, Parser)]
#[command(
    name = "pando",
    version,
    after_help = "Each command lists its exit codes: pando COMMAND --help"
)]
pub struct Arguments {
    #[command(flatten)]
    pub pool: PoolArguments,
    #[command(subcommand)]
    pub command: Command,
}

/// The pool, and how to open it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Pool")]
pub struct PoolArguments {
    /// File of the pool [default: $PANDO_POOL, else ./pando.pool]
    #[arg(long = "pool", value_name = "PATH", global = true)]
    pub path: Option<PathBuf>,
    /// Persistence domain: the failures that a returned write survives [default: auto]
    #[arg(long, value_parser = domain(), global = true)]
    pub domain: Option<DomainChoice>,
    /// Open a pool that a power cut may have damaged, to copy out the records that can be read
    #[arg(long, global = true)]
    pub salvage: bool,
    /// Let other processes that set this option have the pool open at the same time
    #[arg(long, global = true)]
    pub shared: bool,
    /// Directory of the pool's log, from which a lost pool is rebuilt [default: as the pool was
    /// created; a new pool has none]
    #[arg(long, value_name = "DIR", global = true)]
    pub log: Option<PathBuf>,
    /// Directory of a store, in the place of a pool: its maps may be larger than memory
    #[arg(long, value_name = "DIR", global = true)]
    pub store: Option<PathBuf>,
    /// Memory for the pages of the store, such as 500M [default: 256M]
    #[arg(long, value_name = "BYTES", global = true, value_parser = size_bytes)]
    pub memory: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Load(LoadArguments),
    Get(GetArguments),
    /// Write a record
    Put(PutArguments),
    /// Delete records
    Del(DelArguments),
    /// Print the records of a range, in order
    Scan(ScanArguments),
    /// Print all records, in a form that `load` reads
    Dump(DumpArguments),
    /// Drop a map with all its records, without a question
    Drop(DropArguments),
    /// List, rename and copy maps
    #[command(subcommand, after_help = exit_codes(&[MISSING]))]
    Maps(MapsCommand),
    /// Print the indexes that a map can have, and the options of each
    #[command(alias = "kinds")]
    Indexes(IndexesArguments),
    /// Print the pool's medium, its guarantee and its figures
    Stat(StatArguments),
    /// Check tree invariants and find leaked blocks
    Check(CheckArguments),
    Compact(CompactArguments),
    Evict(EvictArguments),
    Backup(BackupArguments),
    Restore(RestoreArguments),
    /// Check a pool's log, make it shorter, or replace it
    #[command(subcommand, after_help = exit_codes(&[]))]
    Log(LogCommand),
    Upgrade(UpgradeArguments),
    /// Serve Redis and memcached clients from a pool or a store that survives kill -9
    Serve(Box<ServeArguments>),
    /// Show the live figures of a server: throughput, latencies, memory, index
    Top(TopArguments),
    Tour(TourArguments),
    /// Print the completions of a shell
    Completions(CompletionsArguments),
    /// Write the man pages
    Man(ManArguments),
    /// Measure the indexes, interleaved with other ordered maps
    #[cfg(feature = "bench")]
    #[command(after_help = exit_codes(&[BENCH]))]
    Bench(Box<pando_bench::args::BenchArgs>),
    /// The benchmark: not in this build
    #[cfg(not(feature = "bench"))]
    #[command(hide = true, disable_help_flag = true)]
    Bench(AbsentArguments),
    /// Run the experiments of the papers; without a name, list them
    #[cfg(feature = "papers")]
    #[command(after_help = exit_codes(&[BENCH]))]
    Paper(Box<pando_papers::command::PapersArgs>),
    /// The experiments of the papers: not in this build
    #[cfg(not(feature = "papers"))]
    #[command(hide = true, disable_help_flag = true)]
    Paper(AbsentArguments),
    /// The process that `tour` kills
    #[command(hide = true)]
    TourWriter(TourWriterArguments),
}

/// The words of a command that is not in this build.
#[cfg(not(all(feature = "bench", feature = "papers")))]
#[derive(Debug, Args)]
pub struct AbsentArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Load real text, kill the loading process, recover and verify the records
///
/// The tour prints the result of each step:
///
/// 1. Collect real text, and load it with several writers in another process.
/// 2. Kill that process with SIGKILL during the load.
/// 3. Open the pool, and verify that each acknowledged record exists and that no record is
///    incomplete.
/// 4. Finish the load, scan in both directions, delete half of the records, and look for leaks.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[TOUR]), verbatim_doc_comment)]
pub struct TourArguments {
    /// File to load: .tsv and .jsonl as `pando load` reads them; of another file, each line is a
    /// record [default: text that each Debian machine has]
    pub file: Option<PathBuf>,
    /// Number of writing threads; at most 1,024
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = writers())]
    pub writers: u16,
    /// Number of records that are made of Debian's text; ignored with a file
    #[arg(
        long,
        value_name = "N",
        default_value_t = 200_000,
        value_parser = number::<usize>(0..=u64::MAX)
    )]
    pub records: usize,
    /// Seed of the order in which records are loaded [default: a random one]
    #[arg(long, value_name = "N", value_parser = number::<u64>(0..=u64::MAX))]
    pub seed: Option<u64>,
    /// Keep the pool, and its log if it has one, and print their paths
    #[arg(long)]
    pub keep: bool,
}

#[derive(Debug, Args)]
pub struct TourWriterArguments {
    /// The data set, as the tour wrote it
    #[arg(long)]
    pub data: PathBuf,
    /// Threads that write at once
    #[arg(long)]
    pub writers: u16,
    /// Seed of the order in which records are loaded
    #[arg(long)]
    pub seed: u64,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct CompletionsArguments {
    /// The shell
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct ManArguments {
    /// Directory for the pages, one for each command; created if its parent exists [default: print
    /// the page of `pando`]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::{Arg, CommandFactory};

    use super::*;

    fn with_all_below(command: &clap::Command) -> Vec<&clap::Command> {
        let below = command.get_subcommands().flat_map(with_all_below);
        [command].into_iter().chain(below).collect()
    }

    #[test]
    fn the_command_line_has_precedence_over_a_file_in_each_form_of_a_parameter() {
        let file = "snapshot-every = 900\nsnapshots = 3\nrequirepass-file = \"file\"\n[set]\n";
        let merged = |words: &[&str], more: &str| {
            let words = ["pando", "serve"].iter().chain(words);
            let Command::Serve(serve) = Arguments::parse_from(words).command else {
                unreachable!("it is serve")
            };
            serve.options.or(toml::from_str(&format!("{file}{more}")).expect("options"))
        };
        let from_file = merged(&[], "");
        assert_eq!((from_file.snapshot_every, from_file.snapshots), (Some(900), Some(3)));
        assert_eq!(from_file.requirepass_file, Some("file".into()));
        let set = merged(&["--set", "Snapshot-Every=0", "--set", "requirepass=x"], "");
        assert_eq!((set.snapshot_every, set.snapshots), (None, Some(3)));
        assert_eq!(set.requirepass_file, None);
        let own = merged(&["--snapshot-every", "5", "--requirepass", "x"], "snapshot-every = 7");
        assert_eq!((own.snapshot_every, own.set.len()), (Some(5), 1));
        assert_eq!(own.requirepass_file, None);
        let both = merged(&["--set", "snapshots=5"], "snapshots = 7");
        assert_eq!(both.snapshots, None);
        assert_eq!(both.set.last().map(|(_, value)| &**value), Some("5"));
    }

    /// The parser panics if one name means two things.
    #[test]
    fn no_command_has_an_option_by_the_name_of_one_that_all_have() {
        let command = Arguments::command();
        command.clone().debug_assert();
        let names = |arg: &Arg| {
            let long = arg.get_long().map(str::to_owned);
            [Some(arg.get_id().to_string()), long].into_iter().flatten().collect::<Vec<_>>()
        };
        let of_all: Vec<String> =
            command.get_arguments().filter(|arg| arg.is_global_set()).flat_map(names).collect();
        assert!(of_all.contains(&"domain".to_owned()));
        for below in command.get_subcommands().flat_map(with_all_below) {
            for name in below.get_arguments().flat_map(names) {
                assert!(!of_all.contains(&name), "{}: {name}", below.get_name());
            }
        }
    }
}
