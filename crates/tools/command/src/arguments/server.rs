//! Commands of a server: the options of `serve`, on the command line and in a file, and `top`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::values::{config_parameter, index, writers};
use crate::failure::exit_codes;
use crate::quantity::{number, size_bytes};

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
    /// In a file: the directory of a store.
    #[arg(skip)]
    pub store: Option<PathBuf>,
    /// In a file: the memory for the pages of the store.
    #[arg(skip)]
    #[serde(deserialize_with = "size")]
    pub memory: Option<u64>,
    /// When a reply to a write is sent, in a store, or in a pool with a log [default: everysec]
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
    /// File that SAVE and BGSAVE write [default: the path of the pool or store with .snapshot
    /// appended]
    #[arg(long, value_name = "PATH")]
    pub snapshot: Option<PathBuf>,
    /// Create the pool, or the store, with the keys of this snapshot
    #[arg(long, value_name = "PATH")]
    #[serde(skip)]
    pub restore: Option<PathBuf>,
    /// If the pool is missing, damaged, or was open during a power cut, create a new one from the
    /// newest snapshot. Without a snapshot, use the records that can be read. The old pool is
    /// renamed
    #[arg(long, conflicts_with = "restore")]
    pub recover: bool,
    /// Write a snapshot after this many seconds if a key has changed; 0: never [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = number::<u64>(0..=366 * 86_400))]
    pub snapshot_every: Option<u64>,
    /// Number of snapshots that are kept, 1 to 99; .1, .2 and so on are appended to the names of
    /// older ones [default: 1]
    #[arg(long, value_name = "N", value_parser = number::<u8>(1..=99))]
    pub snapshots: Option<u8>,
    /// Index of a new pool's keys; `pando indexes` lists them [default: bztree]
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
    /// rank in this order, the highest last: the file's own option, its [set], `--set`, the own
    /// option of the command line. The last one is behind all of `set`.
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
            store: self.store.or(other.store),
            memory: self.memory.or(other.memory),
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
            &mut self.store,
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
