//! The peers by name: a description, the settings, the failures that a write survives, and the
//! builder.
//!
//! To add a peer: an adapter in a file of its own, a feature, an entry in [`PEERS`], an arm in
//! [`build`]. A peer whose feature is off is in the table all the same, and asking for it names
//! the feature.
//!
//! With the plain name of a durable peer, a write that has returned survives kill -9, and not a
//! loss of power. With `:sync` it survives both, with `:lazy` neither. If a library has no setting
//! that survives just the crash of a process, its adapter names the setting that is used.

use std::path::Path;

use super::entry::{BuildError, BuildOptions, Durability, SystemEntry, any_shape, missing};
#[allow(unused_imports, reason = "only durable peers, which may not be built, have a folder")]
use super::folder::{Place, in_folder};
use super::words::only_words;
use crate::record::Shape;
use crate::subject::Subject;

/// A peer with the commonest limits and promise.
const PEER: SystemEntry = SystemEntry {
    name: "",
    what: "",
    durability: Durability::None,
    settings: "",
    limits: any_shape,
    can_descend: true,
    build: |name, shape, options| build(name, shape, options, None),
};

/// Every peer of crates.io but the skip list.
pub const PEERS: [SystemEntry; 19] = [
    SystemEntry {
        name: "scc",
        what: "scc TreeIndex, a B+-tree with lock-free reads",
        settings: "no settings; peek_with, *_sync",
        ..PEER
    },
    SystemEntry {
        name: "congee",
        what: "congee, an adaptive radix tree with optimistic lock coupling",
        settings: "default allocator, an epoch an operation",
        limits: only_words,
        can_descend: false,
        ..PEER
    },
    SystemEntry {
        name: "concurrent-map",
        what: "concurrent-map, a lock-free B+-tree",
        settings: "default fan-out 64 and reclamation buffer 128, a clone a thread",
        ..PEER
    },
    SystemEntry {
        name: "masstree",
        what: "masstree, a trie of B+-trees",
        settings: "values of 8 bytes inline, a guard an operation, scans by leaves",
        ..PEER
    },
    SystemEntry {
        name: "bf-tree",
        what: "Microsoft's Bf-Tree in memory",
        settings: "defaults; leaves of 16 KiB for records above 1 KiB",
        can_descend: false,
        ..PEER
    },
    SystemEntry {
        name: "bf-tree:log",
        what: "Microsoft's Bf-Tree in memory, with its write-ahead log",
        durability: Durability::ProcessCrash,
        settings: "defaults; log written each 50 µs in segments of 16 KiB (64 KiB above 1 KiB)",
        can_descend: false,
        ..PEER
    },
    SystemEntry {
        name: "redb",
        what: "redb, a copy-on-write B+-tree in a file",
        durability: Durability::ProcessCrash,
        settings: "Durability::Immediate on a file backend without sync, cache 1 GiB",
        ..PEER
    },
    SystemEntry {
        name: "redb:sync",
        what: "redb, a copy-on-write B+-tree in a file",
        durability: Durability::PowerLoss,
        settings: "Durability::Immediate (the default), cache 1 GiB",
        ..PEER
    },
    SystemEntry {
        name: "redb:lazy",
        what: "redb, a copy-on-write B+-tree in a file",
        settings: "Durability::None, cache 1 GiB",
        ..PEER
    },
    SystemEntry {
        name: "fjall",
        what: "fjall, a log-structured merge tree",
        durability: Durability::ProcessCrash,
        settings: "defaults (PersistMode::Buffer), cache 1 GiB, no compression",
        ..PEER
    },
    SystemEntry {
        name: "fjall:sync",
        what: "fjall, a log-structured merge tree",
        durability: Durability::PowerLoss,
        settings: "PersistMode::SyncData after each write, cache 1 GiB, no compression",
        ..PEER
    },
    SystemEntry {
        name: "sled",
        what: "sled, a Bw-tree-like map over a log",
        durability: Durability::ProcessCrash,
        settings: "Mode::HighThroughput, cache 1 GiB, flush after each write",
        ..PEER
    },
    SystemEntry {
        name: "sled:lazy",
        what: "sled, a Bw-tree-like map over a log",
        settings: "Mode::HighThroughput, cache 1 GiB, a flush each 500 ms (the default)",
        ..PEER
    },
    SystemEntry {
        name: "lmdb",
        what: "LMDB, a copy-on-write B+-tree in a mapped file",
        durability: Durability::ProcessCrash,
        settings: "MDB_WRITEMAP, MDB_NOSYNC, MDB_NORDAHEAD, MDB_NOTLS",
        ..PEER
    },
    SystemEntry {
        name: "lmdb:sync",
        what: "LMDB, a copy-on-write B+-tree in a mapped file",
        durability: Durability::PowerLoss,
        settings: "MDB_NORDAHEAD, MDB_NOTLS, a sync a commit (the default)",
        ..PEER
    },
    SystemEntry {
        name: "rocksdb",
        what: "RocksDB, a log-structured merge tree",
        durability: Durability::ProcessCrash,
        settings: "the wiki's general options, cache 1 GiB, log without sync, no compression",
        ..PEER
    },
    SystemEntry {
        name: "rocksdb:sync",
        what: "RocksDB, a log-structured merge tree",
        durability: Durability::PowerLoss,
        settings: "the wiki's general options, cache 1 GiB, log synced a write, no compression",
        ..PEER
    },
    SystemEntry {
        name: "berkeleydb",
        what: "BerkeleyDB 5.3, a B-tree with a log",
        durability: Durability::ProcessCrash,
        settings: "DB_PRIVATE, DB_TXN_WRITE_NOSYNC, cache 1 GiB, checkpoint each 64 MiB of log",
        ..PEER
    },
    SystemEntry {
        name: "berkeleydb:sync",
        what: "BerkeleyDB 5.3, a B-tree with a log",
        durability: Durability::PowerLoss,
        settings: "DB_PRIVATE, log synced a commit, cache 1 GiB, checkpoint each 64 MiB of log",
        ..PEER
    },
];

/// The cargo feature that builds a peer: what its name has before a colon.
pub fn feature_of(name: &str) -> &str {
    name.split_once(':').map_or(name, |(feature, _)| feature)
}

/// The features of the peers, and whether each is on.
const FEATURES: [(&str, bool); 11] = [
    ("scc", cfg!(feature = "scc")),
    ("congee", cfg!(feature = "congee")),
    ("concurrent-map", cfg!(feature = "concurrent-map")),
    ("masstree", cfg!(feature = "masstree")),
    ("bf-tree", cfg!(feature = "bf-tree")),
    ("redb", cfg!(feature = "redb")),
    ("fjall", cfg!(feature = "fjall")),
    ("sled", cfg!(feature = "sled")),
    ("lmdb", cfg!(feature = "lmdb")),
    ("rocksdb", cfg!(feature = "rocksdb")),
    ("berkeleydb", cfg!(feature = "berkeleydb")),
];

/// Whether the peer `name` is in this build.
pub fn is_built(name: &str) -> bool {
    FEATURES.contains(&(feature_of(name), true))
}

/// Builds the peer `name` for records of `shape`.
///
/// A durable peer lies in a new folder of `options.pool_dir` that is removed with it, or in
/// `folder`, where it is opened if it is there and which is left in place.
///
/// # Errors
///
/// A name that is not in [`PEERS`], a peer that is not in this build, a shape that it does not
/// take, and what the peer itself refuses.
pub fn build(
    name: &str,
    shape: Shape,
    options: &BuildOptions,
    folder: Option<&Path>,
) -> Result<Box<dyn Subject>, BuildError> {
    let Some(peer) = PEERS.iter().find(|peer| peer.name == name) else {
        let names: Vec<_> = PEERS.iter().map(|peer| peer.name).collect();
        return Err(format!("no peer {name}; there are {}", names.join(", ")).into());
    };
    (peer.limits)(shape)?;
    let place = || match folder {
        Some(folder) => Ok(Place::Kept(folder.to_owned())),
        None => Place::temporary(options),
    };
    let cache_bytes = options.cache_bytes;
    // Peers in memory, which may be all that are built, need neither.
    let _ = (&place, cache_bytes);
    let words = (shape.key_bytes == 8, shape.value_bytes == 8);
    match (name, words) {
        #[cfg(feature = "scc")]
        ("scc", (true, true)) => Ok(Box::new(super::scc_tree::Tree::<u64, u64>::default())),
        #[cfg(feature = "scc")]
        ("scc", (true, false)) => Ok(Box::new(super::scc_tree::Tree::<u64, Box<[u8]>>::default())),
        #[cfg(feature = "scc")]
        ("scc", _) => Ok(Box::new(super::scc_tree::Tree::<Box<[u8]>, Box<[u8]>>::default())),
        #[cfg(feature = "congee")]
        ("congee", _) => Ok(Box::new(super::congee::Tree::default())),
        #[cfg(feature = "concurrent-map")]
        ("concurrent-map", (is_word, is_word_value)) => {
            use super::concurrent_map::{Map, Shared};
            Ok(match (is_word, is_word_value) {
                (true, true) => Box::new(Map::<u64, u64>::default()),
                (true, false) => Box::new(Map::<u64, Shared>::default()),
                _ => Box::new(Map::<Shared, Shared>::default()),
            })
        }
        #[cfg(feature = "masstree")]
        ("masstree", (_, true)) => Ok(Box::new(super::masstree::Words::default())),
        #[cfg(feature = "masstree")]
        ("masstree", _) => Ok(Box::new(super::masstree::Boxes::default())),
        #[cfg(feature = "bf-tree")]
        ("bf-tree", _) => Ok(Box::new(super::bf_tree::Tree::in_memory(shape)?)),
        #[cfg(feature = "bf-tree")]
        ("bf-tree:log", _) => in_folder(place()?, |at| super::bf_tree::Tree::with_log(at, shape)),
        #[cfg(feature = "redb")]
        ("redb" | "redb:sync" | "redb:lazy", words) => {
            use super::redb::{Commit, Slices, Table, Words};
            let commit = match name {
                "redb:sync" => Commit::Synced,
                "redb:lazy" => Commit::Lazy,
                _ => Commit::Written,
            };
            match words {
                (true, true) => {
                    in_folder(place()?, |at| Table::<Words>::open(at, cache_bytes, commit))
                }
                _ => in_folder(place()?, |at| Table::<Slices>::open(at, cache_bytes, commit)),
            }
        }
        #[cfg(feature = "fjall")]
        ("fjall" | "fjall:sync", _) => {
            let is_synced = name == "fjall:sync";
            in_folder(place()?, |at| super::fjall::Tree::open(at, cache_bytes, is_synced))
        }
        #[cfg(feature = "sled")]
        ("sled" | "sled:lazy", _) => {
            in_folder(place()?, |at| super::sled::Tree::open(at, cache_bytes, name == "sled"))
        }
        #[cfg(feature = "lmdb")]
        ("lmdb" | "lmdb:sync", _) => {
            in_folder(place()?, |at| super::lmdb::Table::open(at, options, name == "lmdb:sync"))
        }
        #[cfg(feature = "rocksdb")]
        ("rocksdb" | "rocksdb:sync", _) => {
            let is_synced = name == "rocksdb:sync";
            in_folder(place()?, |at| super::rocksdb::Tree::open(at, cache_bytes, is_synced))
        }
        #[cfg(feature = "berkeleydb")]
        ("berkeleydb" | "berkeleydb:sync", _) => {
            let is_synced = name == "berkeleydb:sync";
            in_folder(place()?, |at| {
                super::berkeleydb::Tree::open(at, cache_bytes, shape, is_synced)
            })
        }
        _ => Err(missing(name, feature_of(name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_built_or_names_its_feature() {
        for peer in &PEERS {
            match build(peer.name, Shape::EIGHT, &BuildOptions::default(), None) {
                Ok(_) => assert!(is_built(peer.name), "{}", peer.name),
                Err(refusal) => {
                    assert!(!is_built(peer.name), "{}: {refusal}", peer.name);
                    assert!(refusal.to_string().contains(feature_of(peer.name)), "{refusal}");
                }
            }
        }
    }

    #[test]
    fn shapes_and_names_that_cannot_be_are_refused() {
        let long = Shape { key_bytes: 16, value_bytes: 8 };
        let options = BuildOptions::default();
        let refusal = build("congee", long, &options, None).err().unwrap();
        assert!(refusal.to_string().contains("8 bytes only"), "{refusal}");
        let refusal = build("treeskip", Shape::EIGHT, &options, None).err().unwrap();
        assert!(refusal.to_string().contains("masstree"), "{refusal}");
    }
}
