//! The systems by name, and the one place that builds them.
//!
//! A system of ours is a line in [`ours::OURS`]. A peer stands
//! behind a cargo feature and in the table of [`peers`]; without the feature, its entry is in the
//! table all the same, and building it gives what [`missing`](entry::missing) says.

#[cfg(feature = "berkeleydb")]
pub mod berkeleydb;
#[cfg(feature = "bf-tree")]
pub mod bf_tree;
pub mod btree_olc;
pub mod btreemap;
#[cfg(feature = "concurrent-map")]
pub mod concurrent_map;
#[cfg(feature = "congee")]
pub mod congee;
pub mod entry;
#[cfg(feature = "fjall")]
pub mod fjall;
pub mod folder;
pub mod index;
#[cfg(feature = "lmdb")]
pub mod lmdb;
#[cfg(feature = "masstree")]
pub mod masstree;
pub mod ours;
pub mod peers;
#[cfg(feature = "redb")]
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
#[cfg(feature = "scc")]
pub mod scc_tree;
pub mod skiplist;
#[cfg(feature = "sled")]
pub mod sled;
pub mod slots;
pub mod stored;
pub mod transactional;
pub mod words;

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

pub use entry::{
    Build, BuildError, BuildOptions, Builder, Durability, SystemEntry, any_shape, memory_folder,
};

use crate::record::Shape;
use btree_olc::Pages;
use btreemap::{LockedBytes, LockedIntegers};
use entry::boxed;
use peers::PEERS;
use skiplist::{PlainBytes, PlainIntegers, Tuned};
use words::only_words;

/// Every system: ours, the peers that are always built, then those of [`peers::PEERS`].
pub static SYSTEMS: LazyLock<Vec<SystemEntry>> =
    LazyLock::new(|| ours::systems().chain(ALWAYS_BUILT.iter().chain(&PEERS).copied()).collect());

/// The peers that are always built.
pub const ALWAYS_BUILT: &[SystemEntry] = &[
    SystemEntry {
        name: "crossbeam-skiplist",
        what: "crossbeam-skiplist: SkipMap<u64, u64>, or of boxed bytes",
        durability: Durability::None,
        settings: "as its documentation shows it",
        limits: any_shape,
        can_descend: true,
        build: |_, shape, _| match shape.is_eight() {
            true => boxed(PlainIntegers::default()),
            false => boxed(PlainBytes::default()),
        },
    },
    SystemEntry {
        name: "crossbeam-skiplist:tuned",
        what: "crossbeam-skiplist: the base list of integers",
        durability: Durability::None,
        settings: "one epoch guard an operation, values replaced in place",
        limits: only_words,
        can_descend: true,
        build: |_, _, _| boxed(Tuned::default()),
    },
    SystemEntry {
        name: "btreemap",
        what: "std BTreeMap under a RwLock, of integers or of boxed bytes",
        durability: Durability::None,
        settings: "none to set",
        limits: any_shape,
        can_descend: true,
        build: |_, shape, _| match shape.is_eight() {
            true => boxed(LockedIntegers::default()),
            false => boxed(LockedBytes::default()),
        },
    },
    SystemEntry {
        name: "btree-olc",
        what: "a B+-tree with optimistic lock coupling, of this crate",
        durability: Durability::None,
        settings: "sorted nodes of 4 KiB",
        limits: only_words,
        can_descend: true,
        build: |_, _, _| boxed(Pages::default()),
    },
];

/// Whether the system `name` is in this build: a peer whose cargo feature is off is not.
pub fn is_built(name: &str) -> bool {
    PEERS.iter().all(|peer| peer.name != name) || peers::is_built(name)
}

/// The name of a system that can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemName(&'static str);

impl SystemName {
    /// The name as the command line gives it.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Its entry in the table.
    pub fn entry(self) -> &'static SystemEntry {
        let entry = SYSTEMS.iter().find(|entry| entry.name == self.0);
        entry.expect("a name is made of an entry of the table only")
    }
}

impl fmt::Display for SystemName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

impl FromStr for SystemName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match SYSTEMS.iter().find(|entry| entry.name == text) {
            Some(entry) => Ok(Self(entry.name)),
            None if text.split(':').next() == Some("skiplist") => {
                Err("skiplist may be either of two: ours is pando-skiplist, crossbeam's is \
                 crossbeam-skiplist"
                    .to_owned())
            }
            None if !cfg!(feature = "papers") && ours::is_of_papers(text) => Err(format!(
                "{text} is one of the systems that only the papers' experiments compare; build \
                 with --features papers"
            )),
            None => {
                let names: Vec<_> = SYSTEMS.iter().map(|entry| entry.name).collect();
                Err(format!("expected one of {}", names.join(", ")))
            }
        }
    }
}

/// The builder of the system `name` for records of `shape`; it refuses a shape that the system does
/// not take.
pub fn builder(name: SystemName, shape: Shape, options: &BuildOptions) -> Builder {
    let (entry, options) = (name.entry(), options.clone());
    Box::new(move || {
        (entry.limits)(shape)?;
        (entry.build)(entry.name, shape, &options)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_in_the_table_can_be_built() {
        let options = BuildOptions::default();
        let wide = Shape { key_bytes: 20, value_bytes: 44 };
        for entry in SYSTEMS.iter() {
            if !is_built(entry.name) {
                continue;
            }
            let name = entry.name.parse().unwrap();
            builder(name, Shape::EIGHT, &options)().unwrap();
            let is_built = builder(name, wide, &options)().is_ok();
            assert_eq!(is_built, (entry.limits)(wide).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_name_that_is_none_is_refused_with_the_list() {
        assert!("treeskip".parse::<SystemName>().unwrap_err().contains("btreemap"));
        for name in ["skiplist", "skiplist:tuned", "skiplist:process"] {
            let error = name.parse::<SystemName>().unwrap_err();
            assert!(error.contains("pando-skiplist") && error.contains("crossbeam-skiplist"));
        }
    }
}
