//! The sides by name, and the one place that builds them.
//!
//! To add a side: an adapter in a file of its own, a line in [`SIDES`], an arm in [`builder`].

pub mod btreemap;
pub mod bztree;
pub mod index;
pub mod skiplist;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use pando_pmem::{Adr, Eadr, Process, Volatile};

use crate::side::Subject;
use bztree::Tree;

/// Every side with what it is.
pub const SIDES: [(&str, &str); 8] = [
    ("bztree", "BzTree, domain volatile, on anonymous memory"),
    ("bztree:volatile-file", "BzTree, domain volatile, in a file of --pool-dir"),
    ("bztree:process", "BzTree, domain process, in a pool file of --pool-dir"),
    ("bztree:eadr", "BzTree, domain eadr, in a pool file of --pool-dir"),
    ("bztree:adr", "BzTree, domain adr, in a pool file of --pool-dir"),
    ("skiplist", "crossbeam-skiplist, SkipMap<u64, u64>"),
    ("skiplist:tuned", "crossbeam-skiplist, base list under guards, values replaced in place"),
    ("btreemap", "std BTreeMap<u64, u64> under a RwLock"),
];

/// The name of a side that can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideName(&'static str);

impl SideName {
    /// The name as the command line gives it.
    pub fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for SideName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

impl FromStr for SideName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match SIDES.iter().find(|(name, _)| *name == text) {
            Some((name, _)) => Ok(Self(name)),
            None => Err(format!("expected one of {}", SIDES.map(|(name, _)| name).join(", "))),
        }
    }
}

/// Where and how sides are built.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// The folder for the pools of durable sides.
    pub pool_dir: PathBuf,
    /// How far a pool may grow.
    pub max_pool_bytes: u64,
    /// Ask for huge pages behind a pool.
    pub huge_pages: bool,
}

impl Default for BuildOptions {
    fn default() -> Self {
        let memory_files = PathBuf::from("/dev/shm");
        let pool_dir = if memory_files.is_dir() { memory_files } else { std::env::temp_dir() };
        Self { pool_dir, max_pool_bytes: 64 << 30, huge_pages: false }
    }
}

/// Why a side could not be built.
pub type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// Builds an empty side each time it is called.
pub type Builder = Box<dyn Fn() -> Result<Box<dyn Subject>, BuildError>>;

/// The builder of the side `name`.
pub fn builder(name: SideName, options: &BuildOptions) -> Builder {
    let options = options.clone();
    match name.name() {
        "bztree" => Box::new(move || Ok(Tree::<Volatile>::anonymous(&options)?.boxed())),
        "bztree:volatile-file" => {
            Box::new(move || Ok(Tree::<Volatile>::in_file(&options)?.boxed()))
        }
        "bztree:process" => Box::new(move || Ok(Tree::<Process>::in_file(&options)?.boxed())),
        "bztree:eadr" => Box::new(move || Ok(Tree::<Eadr>::in_file(&options)?.boxed())),
        "bztree:adr" => Box::new(move || Ok(Tree::<Adr>::in_file(&options)?.boxed())),
        "skiplist" => Box::new(|| Ok(Box::new(skiplist::Plain::default()))),
        "skiplist:tuned" => Box::new(|| Ok(Box::new(skiplist::Tuned::default()))),
        "btreemap" => Box::new(|| Ok(Box::new(btreemap::Locked::default()))),
        other => unreachable!("{other} is in the table of sides and has no builder"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_side_in_the_table_can_be_built() {
        for (name, _) in SIDES {
            builder(name.parse().unwrap(), &BuildOptions::default())().unwrap();
        }
        assert!("treeskip".parse::<SideName>().unwrap_err().contains("btreemap"));
    }
}
