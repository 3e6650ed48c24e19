//! The command line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use pando::DomainChoice;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

#[cfg(feature = "bench")]
use crate::failure::BENCH;
use crate::failure::{MISSING, PROBLEMS, TOUR, exit_codes};
use crate::format::compression::Compression;
use crate::format::{Format, OutputFormat};
use crate::quantity::{length_bytes, number, size_bytes};

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
    /// Drop a map with all its records; there is no question first
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
    /// Serve Redis and memcached clients from a store that survives kill -9
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

/// The map that a command uses.
#[derive(Debug, Args)]
pub struct MapArgument {
    /// Name of the map
    #[arg(long = "map", value_name = "NAME", default_value = "main")]
    pub name: String,
    #[command(flatten)]
    pub force: ForceArgument,
}

/// Permission to use the map of a server.
#[derive(Debug, Args)]
pub struct ForceArgument {
    /// Allow the maps that Pando itself uses: "server", "pando.sessions" and ".copy"
    #[arg(long)]
    pub force: bool,
}

/// Pools and maps that a command creates if they do not exist.
#[derive(Debug, Args)]
pub struct CreateArguments {
    /// Create the pool if it does not exist
    #[arg(long)]
    pub create: bool,
    /// Maximum size of a new pool, such as 500M or 2T [default: 64G]
    #[arg(long, value_name = "BYTES", requires = "create", value_parser = size_bytes)]
    pub max_bytes: Option<u64>,
    /// Index of a new map; `pando indexes` lists them [default: bztree]
    #[arg(long, alias = "kind", value_name = "NAME", value_parser = index())]
    pub index: Option<String>,
    /// Option of a new map; may be repeated; `pando indexes` lists the options
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = index_option)]
    pub options: Vec<(String, String)>,
    /// A new map takes part in transactions of programs that embed Pando
    #[arg(long)]
    pub transactional: bool,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct ServeArguments {
    /// File of options in TOML, by their names without the dashes; options of the command line have
    /// precedence
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub options: ServeOptions,
}

/// The options of a server, on the command line and in the file that --config names. None has its
/// default here, so that one can tell which are set.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServeOptions {
    /// In a file: the file of the pool.
    #[arg(skip)]
    pub pool: Option<PathBuf>,
    /// In a file: the persistence domain.
    #[arg(skip)]
    pub domain: Option<String>,
    /// In a file: the directory of the pool's log.
    #[arg(skip)]
    pub log: Option<PathBuf>,
    /// When a reply to a write is sent, in a pool with a log [default: everysec]
    #[arg(long, value_enum, value_name = "MODE")]
    pub sync: Option<Sync>,
    /// Port of the Redis protocol; 0: none [default: 6379]
    #[arg(long, value_name = "N", value_parser = number::<u16>(0..=65535))]
    pub port: Option<u16>,
    /// Port of the memcached protocol, whose clients need no password [default: none]
    #[arg(long, value_name = "N", value_parser = number::<u16>(0..=65535))]
    pub memcached_port: Option<u16>,
    /// Maximum size of a memcached item, key and value together, such as 8M; at most 1G
    /// [default: 1M]
    #[arg(long, value_name = "BYTES", value_parser = size_bytes)]
    #[serde(deserialize_with = "size")]
    pub memcached_max_item: Option<u64>,
    /// Address to listen on; may be repeated [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Vec<IpAddr>,
    /// Path of a Unix socket for the Redis protocol [default: none]
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Port of HTTP: the live page, /metrics for Prometheus, and the figures that `pando top` reads
    /// [default: none]
    #[arg(long, value_name = "N", value_parser = number::<u16>(0..=65535))]
    pub http_port: Option<u16>,
    /// Address on which HTTP is served without a password; may be repeated [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub http_bind: Vec<IpAddr>,
    /// File that SAVE and BGSAVE write [default: the pool's path with .snapshot appended]
    #[arg(long, value_name = "PATH")]
    pub snapshot: Option<PathBuf>,
    /// Start a new store with the keys of this snapshot
    #[arg(long, value_name = "PATH")]
    #[serde(skip)]
    pub restore: Option<PathBuf>,
    /// If the pool is missing, damaged, or perhaps damaged by a power cut, start a new one from the
    /// newest snapshot, or, without a snapshot, from the records that can be read; a pool that is
    /// there is renamed
    #[arg(long, conflicts_with = "restore")]
    pub recover: bool,
    /// Write a snapshot after this many seconds if a key has changed; 0: never [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = number::<u64>(0..=366 * 86_400))]
    pub snapshot_every: Option<u64>,
    /// Number of snapshots that are kept, 1 to 99; .1, .2 and so on are appended to the names of
    /// older ones [default: 1]
    #[arg(long, value_name = "N", value_parser = number::<u8>(1..=99))]
    pub snapshots: Option<u8>,
    /// Index of a new store; `pando indexes` lists them [default: bztree]
    #[arg(long, alias = "kind", value_name = "NAME", value_parser = index())]
    pub index: Option<String>,
    /// Maximum size of a new pool, such as 500M or 2T [default: 64G]
    #[arg(long, value_name = "BYTES", value_parser = size_bytes)]
    #[serde(deserialize_with = "size")]
    pub max_bytes: Option<u64>,
    /// Number of threads that serve clients; at most 1,024 [default: one per processor]
    #[arg(long, value_name = "N", value_parser = writers())]
    pub threads: Option<u16>,
    /// Password of the Redis protocol [default: none; then clients of other machines are refused]
    #[arg(long, value_name = "PASSWORD", conflicts_with = "requirepass_file")]
    #[serde(skip)]
    pub requirepass: Option<String>,
    /// File with the password of the Redis protocol, on one line
    #[arg(long, value_name = "FILE")]
    pub requirepass_file: Option<PathBuf>,
    /// File of the users and their permissions, in the format of Redis's aclfile
    #[arg(long, value_name = "FILE")]
    pub acl_file: Option<PathBuf>,
    /// Config parameter as CONFIG SET takes it, such as maxclients=100; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = config_parameter)]
    #[serde(deserialize_with = "parameters")]
    pub set: Vec<(String, String)>,
    /// Port of the Redis protocol over TLS [default: none]
    #[arg(long, value_name = "N", value_parser = number::<u16>(0..=65535))]
    pub tls_port: Option<u16>,
    /// The server's certificate and its chain, in PEM
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Certificate authority that must have signed the certificates of clients, in PEM [default:
    /// clients need no certificate]
    #[arg(long, value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// Least severe level that is logged [default: info]
    #[arg(long, value_enum)]
    pub log_level: Option<LogLevel>,
    /// Format of the log, which goes to standard error [default: text]
    #[arg(long, value_enum)]
    pub log_format: Option<LogFormat>,
}

/// The config parameter with the password of the default user.
pub const REQUIREPASS: &str = "requirepass";

/// Whether one of `parameters` has this name, in any case.
pub fn has_parameter(parameters: &[(String, String)], name: &str) -> bool {
    parameters.iter().any(|(found, _)| found.eq_ignore_ascii_case(name))
}

impl ServeOptions {
    /// These options, and those of a file that are not set here. The values of a config parameter
    /// rank in this order, the highest last: the file's own option, its [set], then `--set`, and
    /// the own option of the command line, which is behind all of `set`.
    pub fn or(self, other: Self) -> Self {
        fn list<T>(own: Vec<T>, other: Vec<T>) -> Vec<T> {
            if own.is_empty() { other } else { own }
        }
        // Of one parameter the last value counts.
        let set: Vec<_> = other.set.into_iter().chain(self.set).collect();
        let is_set = |name| has_parameter(&set, name);
        // A password of the command line replaces one of a file, in any form.
        let requirepass_file = match self.requirepass.is_some() || is_set(REQUIREPASS) {
            true => self.requirepass_file,
            false => self.requirepass_file.or(other.requirepass_file),
        };
        let snapshot_every = other.snapshot_every.filter(|_| !is_set("snapshot-every"));
        let snapshots = other.snapshots.filter(|_| !is_set("snapshots"));
        Self {
            pool: self.pool.or(other.pool),
            domain: self.domain.or(other.domain),
            log: self.log.or(other.log),
            sync: self.sync.or(other.sync),
            port: self.port.or(other.port),
            memcached_port: self.memcached_port.or(other.memcached_port),
            memcached_max_item: self.memcached_max_item.or(other.memcached_max_item),
            bind: list(self.bind, other.bind),
            unix: self.unix.or(other.unix),
            http_port: self.http_port.or(other.http_port),
            http_bind: list(self.http_bind, other.http_bind),
            snapshot: self.snapshot.or(other.snapshot),
            restore: self.restore.or(other.restore),
            recover: self.recover || other.recover,
            snapshot_every: self.snapshot_every.or(snapshot_every),
            snapshots: self.snapshots.or(snapshots),
            index: self.index.or(other.index),
            max_bytes: self.max_bytes.or(other.max_bytes),
            threads: self.threads.or(other.threads),
            requirepass: self.requirepass,
            requirepass_file,
            acl_file: self.acl_file.or(other.acl_file),
            set,
            tls_port: self.tls_port.or(other.tls_port),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            tls_client_ca: self.tls_client_ca.or(other.tls_client_ca),
            log_level: self.log_level.or(other.log_level),
            log_format: self.log_format.or(other.log_format),
        }
    }

    /// All paths.
    pub fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [
            &mut self.pool,
            &mut self.log,
            &mut self.unix,
            &mut self.snapshot,
            &mut self.restore,
            &mut self.requirepass_file,
            &mut self.acl_file,
            &mut self.tls_cert,
            &mut self.tls_key,
            &mut self.tls_client_ca,
        ]
        .into_iter()
        .flatten()
    }
}

/// A size in a file: a number of bytes, or a text such as "64G".
fn size<'de, D: Deserializer<'de>>(found: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a number of bytes, or a text such as \"64G\"")]
    enum Size {
        Bytes(u64),
        Text(String),
    }
    match Size::deserialize(found)? {
        Size::Bytes(bytes) => Ok(Some(bytes)),
        Size::Text(text) => size_bytes(&text).map(Some).map_err(D::Error::custom),
    }
}

/// Config parameters in a file: a table of texts, numbers and booleans.
fn parameters<'de, D: Deserializer<'de>>(found: D) -> Result<Vec<(String, String)>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a text, a whole number, true or false")]
    enum Value {
        Text(String),
        Number(i64),
        Boolean(bool),
    }
    let table = BTreeMap::<String, Value>::deserialize(found)?;
    let text = |value| match value {
        Value::Text(text) => text,
        Value::Number(number) => number.to_string(),
        Value::Boolean(true) => "yes".to_owned(),
        Value::Boolean(false) => "no".to_owned(),
    };
    Ok(table.into_iter().map(|(name, value)| (name, text(value))).collect())
}

/// Events that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// No events
    Off,
    /// Failures of the server
    Error,
    /// Possible problems
    Warn,
    /// Events of the server
    Info,
    /// Events of connections
    Debug,
    /// All events
    Trace,
}

/// When a server sends a reply to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sync {
    /// When the write survives a power cut
    Always,
    /// At once; a power cut undoes acknowledged writes of 2 seconds at most
    Everysec,
    /// At once; a power cut undoes the writes that the disk does not have yet
    No,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// A JSON object a line
    Json,
}

/// The server whose figures are shown.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct TopArguments {
    /// HTTP port of a server on this machine: the --http-port of `pando serve`
    #[arg(long, value_name = "N", default_value_t = 8379, value_parser = number::<u16>(1..=65535))]
    pub http_port: u16,
    /// HTTP address and port of a server, such as 10.0.0.2:8379
    #[arg(long, value_name = "ADDRESS", conflicts_with = "http_port")]
    pub http: Option<String>,
    /// Print the figures once, as plain text, and exit
    #[arg(long)]
    pub once: bool,
}

/// Handling of a line that cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnError {
    /// Exit with an error
    Stop,
    /// Report it and continue
    Skip,
}

/// Load records from a file or from standard input
///
/// Writes each line of the file as a record. Of several lines with one key the last one counts. A
/// line that cannot be loaded is named.
///
/// After a kill some of the lines are loaded: the lines of one key in their order, others in any
/// order. Run the command again. A transactional map gets up to 128 records in one commit, which is
/// there as a whole or not at all.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct LoadArguments {
    /// File to read; - is standard input
    pub file: PathBuf,
    #[command(flatten)]
    pub map: MapArgument,
    /// Format of the file [default: by its extension; tsv for standard input]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Compression of the file [default: by its extension; of standard input, by its first bytes]
    #[arg(long, value_enum)]
    pub compression: Option<Compression>,
    /// Column of a CSV with the key [default: key]
    #[arg(long, value_name = "NAME")]
    pub key_column: Option<String>,
    /// Column of a CSV with the value [default: value]
    #[arg(long, value_name = "NAME")]
    pub value_column: Option<String>,
    /// The keys ascend: one thread writes runs of records, which is faster; a key that does not
    /// ascend cannot be loaded
    #[arg(long, conflicts_with_all = ["writers", "insert"])]
    pub sorted: bool,
    /// Number of writing threads; at most 1,024
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = writers())]
    pub writers: u16,
    /// What to do with a line that cannot be loaded
    #[arg(long, value_enum, default_value_t = OnError::Stop)]
    pub on_error: OnError,
    /// Refuse a key that exists, instead of replacing its value
    #[arg(long)]
    pub insert: bool,
    #[command(flatten)]
    pub create: CreateArguments,
    /// Maximum length of a line, such as 1G; a line must fit into memory
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = length_bytes)]
    pub max_line_bytes: usize,
    /// Exit only when the records survive a power cut; for transactional maps of a pool with a log,
    /// and for stores
    #[arg(long)]
    pub sync: bool,
}

/// Print the values of keys
///
/// Prints the value of one key as it is; of several keys, a line of key TAB value for each that is
/// there, in the order of the command line.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[MISSING]))]
pub struct GetArguments {
    /// Keys, escaped as `pando scan` prints them (\t \n \r \\ \xNN)
    #[arg(required = true, value_name = "KEY")]
    pub keys: Vec<OsString>,
    #[command(flatten)]
    pub map: MapArgument,
    /// Write the bytes of the value without escapes and without a newline
    #[arg(long)]
    pub raw: bool,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct PutArguments {
    /// Key, escaped as `pando scan` prints it (\t \n \r \\ \xNN)
    pub key: OsString,
    /// Value, escaped like the key; - reads its bytes from standard input
    pub value: OsString,
    #[command(flatten)]
    pub map: MapArgument,
    /// Refuse a key that exists, instead of replacing its value
    #[arg(long)]
    pub insert: bool,
    #[command(flatten)]
    pub create: CreateArguments,
    /// Exit only when the records survive a power cut; for transactional maps of a pool with a log,
    /// and for stores
    #[arg(long)]
    pub sync: bool,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[MISSING]))]
pub struct DropArguments {
    /// Name of the map
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
    /// Slot of a damaged map in the catalog, in place of its name; `pando stat` and `pando check`
    /// print it
    #[arg(
        long,
        value_name = "N",
        conflicts_with_all = ["name"],
        value_parser = number::<u64>(0..=u64::MAX)
    )]
    pub slot: Option<u64>,
    /// Index of the damaged map, if its header does not name it
    #[arg(long, alias = "kind", value_name = "NAME", value_parser = index(), requires = "slot")]
    pub index: Option<String>,
    /// Option of the damaged map, as it was created; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = index_option, requires = "index")]
    pub options: Vec<(String, String)>,
}

#[derive(Debug, Subcommand)]
pub enum MapsCommand {
    /// Print the names of the maps, and the index of each
    List(MapsListArguments),
    Rename(MapsRenameArguments),
    Copy(MapsCopyArguments),
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct MapsListArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Give a map another name, in one step
///
/// Gives a map another name. A crash leaves one of the two names. The pool must not be open
/// elsewhere.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[MISSING]))]
pub struct MapsRenameArguments {
    /// Name of the map
    pub from: String,
    /// Its new name, which no map has
    pub to: String,
    #[command(flatten)]
    pub force: ForceArgument,
}

/// Copy a map into a new one of the same pool
///
/// Copies all records of a map into a new map. The new one appears when it is complete: until then
/// it has the name ".copy". The pool must not be open elsewhere.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[MISSING]))]
pub struct MapsCopyArguments {
    /// Name of the map
    pub from: String,
    /// Name of the copy, which no map has
    pub to: String,
    #[command(flatten)]
    pub force: ForceArgument,
    /// Index of the copy; `pando indexes` lists them [default: index and options of the map]
    #[arg(long, value_name = "NAME", value_parser = index())]
    pub index: Option<String>,
    /// Option of the copy; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = index_option, requires = "index")]
    pub options: Vec<(String, String)>,
    /// The copy takes part in transactions of programs that embed Pando [default: as the map]
    #[arg(long)]
    pub transactional: bool,
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

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct IndexesArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[MISSING]))]
pub struct DelArguments {
    /// Keys, escaped as `pando scan` prints them (\t \n \r \\ \xNN)
    #[arg(required = true, value_name = "KEY")]
    pub keys: Vec<OsString>,
    #[command(flatten)]
    pub map: MapArgument,
    /// Exit only when the records survive a power cut; for transactional maps of a pool with a log,
    /// and for stores
    #[arg(long)]
    pub sync: bool,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[MISSING]))]
pub struct ScanArguments {
    /// Lowest key, included, escaped as `pando scan` prints it (\t \n \r \\ \xNN)
    pub from: Option<OsString>,
    /// Highest key, excluded
    pub to: Option<OsString>,
    #[command(flatten)]
    pub map: MapArgument,
    /// Print only the keys that begin with this
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub prefix: Option<OsString>,
    /// Print from the highest key to the lowest
    #[arg(long)]
    pub reverse: bool,
    /// Maximum number of records
    #[arg(
        long,
        value_name = "N",
        value_parser = number::<u64>(0..=u64::MAX),
        allow_negative_numbers = true
    )]
    pub limit: Option<u64>,
    /// Print the keys without their values
    #[arg(long)]
    pub keys_only: bool,
    /// Print only the number of records
    #[arg(long, conflicts_with_all = ["keys_only", "format"])]
    pub count: bool,
    /// Format of the records
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
    /// Format of the records
    #[arg(long, value_enum, default_value_t = OutputFormat::Tsv)]
    pub format: OutputFormat,
    /// Compression of the output
    #[arg(long, value_enum, default_value_t = Compression::None)]
    pub compression: Compression,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct StatArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Return unused space to the file system
///
/// Returns each chunk of 64 KiB without records to the file system, and truncates the file after
/// the last used chunk. The pool must not be open elsewhere. A crash does not damage the pool.
///
/// No record moves, so that free space within a used chunk is not returned. To return that too,
/// `dump` the maps and `load` them into a new pool.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct CompactArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Kill a process that shares the pool; its completed writes stay
///
/// Kills a process that shares the pool, also one that works, and recovers it. A write that it was
/// in has taken place or not. No other process waits.
///
/// A stopped process is never treated as dead: space that is freed while one of its threads is
/// inside a call cannot be reused. `pando stat --shared` lists the processes, and what they hold
/// back.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct EvictArguments {
    /// Process id, as `pando stat --shared` shows it
    #[arg(value_parser = number::<u32>(1..=u64::from(u32::MAX)))]
    pub pid: u32,
}

/// Copy the commits that survive a power cut into a directory; the pool may be in use
///
/// Copies the newest image and the log behind it: all commits of transactional maps that survive a
/// power cut now. Another process may use the pool meanwhile.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct BackupArguments {
    /// Directory for the backup; created if its parent exists
    #[arg(value_name = "DIR")]
    pub to: PathBuf,
}

/// Create a pool from a backup
///
/// Creates the pool that --pool names, with a new log in the directory that --log names, which is
/// needed. The backup stays as it is.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct RestoreArguments {
    /// Directory of the backup
    #[arg(value_name = "DIR")]
    pub from: PathBuf,
    /// Maximum size of the new pool, such as 500M or 2T [default: that of the pool of the backup]
    #[arg(long, value_name = "BYTES", value_parser = size_bytes)]
    pub max_bytes: Option<u64>,
}

/// Turn a pool of an earlier format into one of the present format
///
/// Turns a pool of an earlier format into one of the present format, with the `pando` that wrote
/// it. That program dumps each map. This one loads it into a new pool, checks it, and puts it in
/// the place of the former one, which stays as POOL.format-N. A crash leaves the former pool or the
/// new one under its name. A pool of the present format is left as it is.
///
/// No other process may use the pool meanwhile. A write that is noticed ends the upgrade, and the
/// pool stays as it is.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[PROBLEMS]))]
pub struct UpgradeArguments {
    /// The `pando` that wrote the pool
    #[arg(long, value_name = "PROGRAM")]
    pub with: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Print how far the log is durable, and its newest image; the pool is open alone meanwhile
    Stat(LogStatArguments),
    /// Read a log, or a backup, as a recovery would, and print its content; the pool may be in use
    Verify(LogVerifyArguments),
    /// Write an image of the transactional maps, and remove the part of the log before it
    Image(LogImageArguments),
    Reset(LogResetArguments),
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct LogVerifyArguments {
    /// Directory of a log, or of a backup [default: the log of the pool]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct LogStatArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct LogImageArguments {}

/// Give a pool a new log, if its log is lost, damaged or foreign, or is to be elsewhere
///
/// Creates a new log in the directory that --log names, or else where the former log was, and
/// writes an image of all transactional maps into it. Nothing of the pool is lost. The pool must be
/// whole, and not open elsewhere.
///
/// The directory may not have files of another log: move them away, or name another directory.
/// Nothing of the former log is read or removed; remove it afterwards. If the command was killed,
/// run it again.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct LogResetArguments {}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[PROBLEMS]))]
pub struct CheckArguments {
    /// Check while others write: each key that a scan finds is searched for; leaks are not found
    #[arg(long)]
    pub online: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
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
    /// Keep the pool, and print its path
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

fn writers() -> impl TypedValueParser<Value = u16> {
    number(1..=1024)
}

fn domain() -> impl TypedValueParser<Value = DomainChoice> {
    let help = |choice| match choice {
        DomainChoice::Auto => "the strongest guarantee that the medium has",
        DomainChoice::Process => "a write that has returned survives kill -9",
        _ => {
            "on persistent memory, a write that has returned survives a power cut: each cache line \
             is written back and fenced"
        }
    };
    let value = |choice: DomainChoice| PossibleValue::new(choice.name()).help(help(choice));
    PossibleValuesParser::new(DomainChoice::ALL.map(value)).try_map(|name| name.parse())
}

fn index() -> PossibleValuesParser {
    PossibleValuesParser::new(pando::indexes().iter().map(|index| index.name))
}

fn index_option(text: &str) -> Result<(String, String), &'static str> {
    let parts = text.split_once('=').ok_or("expected NAME=VALUE, such as leaf_bytes=4096")?;
    Ok((parts.0.to_owned(), parts.1.to_owned()))
}

fn config_parameter(text: &str) -> Result<(String, String), &'static str> {
    let parts = text.split_once('=').ok_or("expected NAME=VALUE, such as maxclients=100")?;
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
