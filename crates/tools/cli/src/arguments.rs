//! The command line.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use pando::DomainChoice;

#[cfg(feature = "bench")]
use crate::failure::BENCH;
use crate::failure::{MISSING, PROBLEMS, TOUR, exit_codes};
use crate::format::{Format, OutputFormat};
use crate::quantity::size_bytes;

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

/// Which pool, and how to open it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Pool")]
pub struct PoolArguments {
    /// The pool's file [default: $PANDO_POOL, else ./pando.pool]
    #[arg(long = "pool", value_name = "PATH", global = true)]
    pub path: Option<PathBuf>,
    /// The persistence domain
    #[arg(long, default_value_t, value_parser = domain(), global = true)]
    pub domain: DomainChoice,
    /// Open a pool that a power cut may have torn, to copy out what can be read
    #[arg(long, global = true)]
    pub salvage: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load records from a file or from standard input
    Load(LoadArguments),
    /// Print the value of a key
    Get(GetArguments),
    /// Write a record
    Put(PutArguments),
    /// Delete records
    Del(DelArguments),
    /// Print the records of a range, in order
    Scan(ScanArguments),
    /// Print all records, in a form that `load` reads
    Dump(DumpArguments),
    /// Drop a map with all its records, without asking
    Drop(DropArguments),
    /// Print the indexes that a map can have, and the options of each
    #[command(alias = "kinds")]
    Indexes(IndexesArguments),
    /// Print what the pool lies on, what it guarantees, and its figures
    Stat(StatArguments),
    /// Walk all maps and compare them with what the allocator gave out
    Check(CheckArguments),
    /// Give room that no record uses back to the file system
    Compact(CompactArguments),
    /// Serve Redis clients from a store that survives kill -9
    Serve(ServeArguments),
    /// Show a server's figures, live: throughput, times, memory, the tree
    Top(TopArguments),
    /// Load real text, kill the loading process midway, and verify what is left
    Tour(TourArguments),
    /// Compare indexes, interleaved, with the maps one would otherwise pick
    #[cfg(feature = "bench")]
    #[command(after_help = exit_codes(&[BENCH]))]
    Bench(Box<pando_bench::args::BenchArgs>),
    /// The papers' experiments by name, beside what the papers say; without a name, the list
    #[cfg(feature = "papers")]
    #[command(after_help = exit_codes(&[BENCH]))]
    Paper(Box<pando_papers::command::PapersArgs>),
    /// The papers' experiments: not in this build
    #[cfg(not(feature = "papers"))]
    #[command(hide = true, disable_help_flag = true)]
    Paper(AbsentArguments),
    /// The process that `tour` kills
    #[command(hide = true)]
    TourWriter(TourWriterArguments),
}

/// The words of a command that is not in this build.
#[cfg(not(feature = "papers"))]
#[derive(Debug, Args)]
pub struct AbsentArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// The map to work on.
#[derive(Debug, Args)]
pub struct MapArgument {
    /// The map's name
    #[arg(long = "map", value_name = "NAME", default_value = "main")]
    pub name: String,
    #[command(flatten)]
    pub force: ForceArgument,
}

/// Whether the map of a server may be used.
#[derive(Debug, Args)]
pub struct ForceArgument {
    /// Use the map "server" too, in which `pando serve` keeps its keys in a format of its own
    #[arg(long)]
    pub force: bool,
}

/// What is made if it is not there.
#[derive(Debug, Args)]
pub struct CreateArguments {
    /// Create the pool if it is not there
    #[arg(long)]
    pub create: bool,
    /// How far a pool that is created may grow, such as 500M or 2T [default: 64G]
    #[arg(long, value_name = "BYTES", requires = "create", value_parser = size_bytes)]
    pub max_bytes: Option<u64>,
    /// The index of a map that is created; `pando indexes` lists them
    #[arg(long, alias = "kind", value_name = "NAME", value_parser = index())]
    pub index: Option<String>,
    /// What is set of a map that is created; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = index_option)]
    pub options: Vec<(String, String)>,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct ServeArguments {
    /// The port of the Redis protocol; 0 for none
    #[arg(long, value_name = "N", default_value_t = 6379)]
    pub port: u16,
    /// The port of the memcached protocol, whose clients are asked for no password [default: none]
    #[arg(long, value_name = "N")]
    pub memcached_port: Option<u16>,
    /// How long a value may be that memcached's clients send, such as 8M, its key included; at most
    /// 1G [default: 1M]
    #[arg(long, value_name = "BYTES", value_parser = size_bytes)]
    pub memcached_max_item: Option<u64>,
    /// The address to listen at; may be given several times
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub bind: Vec<IpAddr>,
    /// A socket in the file system for the Redis protocol
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// The port of the live page, of /metrics for Prometheus and of what `pando top` reads
    #[arg(long, value_name = "N")]
    pub http_port: Option<u16>,
    /// The address at which HTTP is served, to whoever comes; may be given several times
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", requires = "http_port")]
    pub http_bind: Vec<IpAddr>,
    /// Where SAVE and BGSAVE write [default: the pool's name with .snapshot behind it]
    #[arg(long, value_name = "PATH")]
    pub snapshot: Option<PathBuf>,
    /// Begin a new store with the keys of a snapshot
    #[arg(long, value_name = "PATH")]
    pub restore: Option<PathBuf>,
    /// If the pool cannot be trusted or is damaged, keep it under another name and begin a new one
    /// from the newest snapshot, or without one from what can be read of it
    #[arg(long, conflicts_with = "restore")]
    pub recover: bool,
    /// Write a snapshot every so many seconds in which something changed [default: none]
    #[arg(long, value_name = "SECONDS")]
    pub snapshot_every: Option<u64>,
    /// How many snapshots are kept, the earlier ones with .1, .2 and so on behind the name
    /// [default: 1]
    #[arg(long, value_name = "N")]
    pub snapshots: Option<u8>,
    /// The index of a new store; `pando indexes` lists them
    #[arg(long, alias = "kind", value_name = "NAME", value_parser = index())]
    pub index: Option<String>,
    /// How far a pool that is created may grow, such as 500M or 2T [default: 64G]
    #[arg(long, value_name = "BYTES", value_parser = size_bytes)]
    pub max_bytes: Option<u64>,
    /// Threads that serve clients; at most 1,024 [default: one a processor]
    #[arg(long, value_name = "N", value_parser = writers())]
    pub threads: Option<u16>,
    /// The password that clients of the Redis protocol say [default: none; then nobody from another
    /// machine is let in]
    #[arg(long, value_name = "PASSWORD")]
    pub requirepass: Option<String>,
    /// The file of the users and what each may do, in the format of Redis's aclfile
    #[arg(long, value_name = "FILE")]
    pub acl_file: Option<PathBuf>,
    /// A config parameter of CONFIG SET, such as maxclients=100; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = config_parameter)]
    pub config: Vec<(String, String)>,
    /// The port of the Redis protocol over TLS
    #[arg(long, value_name = "N", requires_all = ["tls_cert", "tls_key"])]
    pub tls_port: Option<u16>,
    /// The server's certificate, with those that it hangs on, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_port")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_port")]
    pub tls_key: Option<PathBuf>,
    /// Who signs the certificates that clients have to show, in PEM [default: clients need none]
    #[arg(long, value_name = "FILE", requires = "tls_port")]
    pub tls_client_ca: Option<PathBuf>,
    /// The least weighty of what is logged
    #[arg(long, value_enum, default_value_t = LogLevel::Info)]
    pub log_level: LogLevel,
    /// How the log is written, on standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// What is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Nothing
    Off,
    /// What the server cannot do
    Error,
    /// What may become a problem
    Warn,
    /// What happens to the server
    Info,
    /// What happens to connections
    Debug,
    /// Everything
    Trace,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// A JSON object a line
    Json,
}

/// What to show of which server.
#[derive(Debug, Args)]
pub struct TopArguments {
    /// The server's HTTP port on this machine, as it was given to `serve`
    #[arg(long, value_name = "N", default_value_t = 8379)]
    pub http_port: u16,
    /// The server's HTTP address, such as 10.0.0.2:8379
    #[arg(long, value_name = "ADDRESS", conflicts_with = "http_port")]
    pub http: Option<String>,
    /// Print one frame as plain text, and end
    #[arg(long)]
    pub once: bool,
}

/// What to do at a line that cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnError {
    /// End with an error
    Stop,
    /// Report it and go on
    Skip,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct LoadArguments {
    /// The file, or - for standard input
    pub file: PathBuf,
    #[command(flatten)]
    pub map: MapArgument,
    /// How the file is written [default: by the file's extension; tsv for standard input]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Threads that write at once; at most 1,024
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = writers())]
    pub writers: u16,
    /// What to do at a line that cannot be loaded
    #[arg(long, value_enum, default_value_t = OnError::Stop)]
    pub on_error: OnError,
    /// Refuse a key that is there already instead of replacing its value
    #[arg(long)]
    pub insert: bool,
    #[command(flatten)]
    pub create: CreateArguments,
    /// Longest line that is read; it has to fit memory
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20)]
    pub max_line_bytes: usize,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[MISSING]))]
pub struct GetArguments {
    /// The key, escaped as scan prints it (\t \n \r \\ \xNN)
    pub key: OsString,
    #[command(flatten)]
    pub map: MapArgument,
    /// Write the value's bytes as they are, without a line end
    #[arg(long)]
    pub raw: bool,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct PutArguments {
    /// The key, escaped as scan prints it (\t \n \r \\ \xNN)
    pub key: OsString,
    /// The value, escaped in the same way, or - to read its bytes from standard input
    pub value: OsString,
    #[command(flatten)]
    pub map: MapArgument,
    /// Refuse a key that is there already instead of replacing its value
    #[arg(long)]
    pub insert: bool,
    #[command(flatten)]
    pub create: CreateArguments,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[MISSING]))]
pub struct DropArguments {
    /// The map's name
    #[arg(value_name = "MAP", required_unless_present = "slot")]
    pub name: Option<String>,
    #[command(flatten)]
    pub slot: SlotArguments,
    #[command(flatten)]
    pub force: ForceArgument,
}

/// A damaged map, whose name is not known.
#[derive(Debug, Args)]
pub struct SlotArguments {
    /// The map's slot of the catalog, in place of its name: for a damaged map, which stat and check
    /// list by its slot
    #[arg(long, value_name = "N", conflicts_with_all = ["name"])]
    pub slot: Option<u64>,
    /// The index of the map, if that is damaged too
    #[arg(long, alias = "kind", value_name = "NAME", value_parser = index(), requires = "slot")]
    pub index: Option<String>,
    /// The options of the map, if its index has to be named; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = index_option, requires = "index")]
    pub options: Vec<(String, String)>,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct IndexesArguments {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[MISSING]))]
pub struct DelArguments {
    /// The keys, escaped as scan prints them (\t \n \r \\ \xNN)
    #[arg(required = true, value_name = "KEY")]
    pub keys: Vec<OsString>,
    #[command(flatten)]
    pub map: MapArgument,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[MISSING]))]
pub struct ScanArguments {
    /// The lowest key, included, escaped as scan prints it (\t \n \r \\ \xNN)
    pub from: Option<OsString>,
    /// The highest key, excluded
    pub to: Option<OsString>,
    #[command(flatten)]
    pub map: MapArgument,
    /// Only keys that begin with this
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub prefix: Option<OsString>,
    /// From the highest key to the lowest
    #[arg(long)]
    pub reverse: bool,
    /// At most so many records
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// How records are written
    #[arg(long, value_enum, default_value_t = OutputFormat::Tsv)]
    pub format: OutputFormat,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[MISSING, PROBLEMS]))]
pub struct DumpArguments {
    #[command(flatten)]
    pub map: MapArgument,
    #[command(flatten)]
    pub slot: SlotArguments,
    /// How records are written
    #[arg(long, value_enum, default_value_t = OutputFormat::Tsv)]
    pub format: OutputFormat,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct StatArguments {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Gives chunks of 64 KiB that no record uses back to the file system, and cuts the file behind the
/// last one that is used. The pool must not be open elsewhere; a crash leaves it whole.
///
/// It moves no record: room beside records that stay is not given back. To get that back too,
/// `dump` the maps and `load` them into a new pool.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct CompactArguments {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[PROBLEMS]))]
pub struct CheckArguments {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// The tour goes through these steps and prints what each has verified: collect real text, load
/// it by several writers in a process of its own, kill that process by SIGKILL midway, open the
/// pool again, verify that every acknowledged record is there and nothing is half there, finish
/// the load, scan both ways, delete half, look for leaks.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[TOUR]))]
pub struct TourArguments {
    /// A file of one's own: .tsv and .jsonl are read as load does, of any other each line is a
    /// record [default: text that every Debian machine has]
    pub file: Option<PathBuf>,
    /// Threads that write at once; at most 1,024
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = writers())]
    pub writers: u16,
    /// How many records to make of Debian's text; not used with a file of one's own
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub records: usize,
    /// Seed of the order in which records are loaded [default: another one each time]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Keep the pool at the end, and say where it is
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

fn writers() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=1024)
}

fn domain() -> impl TypedValueParser<Value = DomainChoice> {
    let help = |choice| match choice {
        DomainChoice::Auto => "the strongest that the medium really gives",
        DomainChoice::Volatile => "nothing is written back",
        DomainChoice::Process => "survives the death of any process",
        DomainChoice::Eadr => {
            "ordered stores, for media whose platform flushes caches at a power cut"
        }
        _ => "lines are written back and fenced",
    };
    let value = |choice: DomainChoice| PossibleValue::new(choice.name()).help(help(choice));
    PossibleValuesParser::new(DomainChoice::ALL.map(value)).try_map(|name| name.parse())
}

fn index() -> PossibleValuesParser {
    PossibleValuesParser::new(pando::indexes().iter().map(|index| index.name))
}

fn index_option(text: &str) -> Result<(String, String), &'static str> {
    let parts = text.split_once('=').ok_or("not NAME=VALUE; such as leaf_bytes=4096")?;
    Ok((parts.0.to_owned(), parts.1.to_owned()))
}

fn config_parameter(text: &str) -> Result<(String, String), &'static str> {
    let parts = text.split_once('=').ok_or("not NAME=VALUE; such as maxclients=100")?;
    Ok((parts.0.to_owned(), parts.1.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::{Arg, CommandFactory};

    use super::*;

    fn with_all_below(command: &clap::Command) -> Vec<&clap::Command> {
        let below = command.get_subcommands().flat_map(with_all_below);
        [command].into_iter().chain(below).collect()
    }

    /// The parser stops in the middle of its work if one name means two things.
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
