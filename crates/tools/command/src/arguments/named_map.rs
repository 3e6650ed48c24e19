//! Options by which a command names a map, creates it, or names a damaged one.

use clap::Args;

use super::values::{index, index_option};
use crate::quantity::{number, size_bytes};

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
