//! Commands that write, read and delete records.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::named_map::{CreateArguments, MapArgument, SlotArguments};
use super::values::writers;
use crate::failure::{MISSING, PROBLEMS, exit_codes};
use crate::format::compression::Compression;
use crate::format::{Format, OutputFormat};
use crate::quantity::{length_bytes, number};

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

/// Handling of a line that cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnError {
    /// Exit with an error
    Stop,
    /// Report it and continue
    Skip,
}

/// Print the values of keys
///
/// Prints the value of one key as it is. For several keys it prints a line of key TAB value for
/// each that exists, in the order of the command line.
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
