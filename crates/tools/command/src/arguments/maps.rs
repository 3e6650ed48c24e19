//! Commands that list, rename, copy and drop maps, and that list the indexes.

use clap::{Args, Subcommand};

use super::named_map::{ForceArgument, SlotArguments};
use super::values::{index, index_option};
use crate::failure::{MISSING, exit_codes};

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
pub struct IndexesArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
