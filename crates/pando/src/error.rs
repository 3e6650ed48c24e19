//! The errors of the face: what was found, what is allowed, what to do next.

use std::path::PathBuf;

use pando_pmwcas::maps::BadSetting;

use crate::key::KeyError;

/// Why an operation did not take place. Nothing has changed, unless a variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no file at the pool's path.
    #[error("there is no pool at {}; create one with Pool::create or check the path", path.display())]
    PoolNotFound {
        /// Where the pool was looked for.
        path: PathBuf,
    },
    /// There is a file already where a pool was to be created.
    #[error("{} is there already; open it with Pool::open or choose another path", path.display())]
    PoolExists {
        /// Where the pool was to be created.
        path: PathBuf,
    },
    /// Another process, or another `Pool` of this process, has the pool open.
    #[error(
        "{} is open elsewhere, and one process at a time may open a pool; close it there first",
        path.display()
    )]
    PoolBusy {
        /// The pool's path.
        path: PathBuf,
    },
    /// Handles of the pool are still held, so it was not closed; it closes with the last of them.
    #[error(
        "the pool is not closed: {pools} other Pool handles and {maps} maps are still held; \
         drop them first"
    )]
    PoolInUse {
        /// Other `Pool` handles.
        pools: usize,
        /// Maps of which at least one handle is held.
        maps: usize,
    },
    /// The pool was opened for salvage, so its maps are only copied out.
    #[error(
        "the pool was opened for salvage, which is for copying records out (Pool::salvage, or \
         `pando --salvage dump`); load the copy into a new pool, or open this one without salvage"
    )]
    OpenForSalvage,
    /// The pool has no map of that name.
    #[error("the pool has no map {name:?}; {}", list_of_maps(present))]
    MapNotFound {
        /// The name that was asked for.
        name: String,
        /// The names of the maps that are there.
        present: Vec<String>,
    },
    /// Handles of the map are still held, so it was not dropped.
    #[error("the map {name:?} is not dropped: {handles} of its handles are held; drop them first")]
    MapInUse {
        /// The map's name.
        name: String,
        /// How many handles are held.
        handles: usize,
    },
    /// The map is there and is of another kind than the one asked for.
    #[error("the map {name:?} is a {found}, not a {asked}; open it without naming a kind")]
    MapKindDiffers {
        /// The map's name.
        name: String,
        /// What the map is.
        found: &'static str,
        /// What was asked for.
        asked: String,
    },
    /// The map is there and was created with another option than the one asked for.
    #[error(
        "the map {name:?} was created with {option} {found}, not {asked}; a map keeps the options \
         it was created with: leave {option} out to open it"
    )]
    MapOptionDiffers {
        /// The map's name.
        name: String,
        /// The option's name.
        option: &'static str,
        /// What the map was created with.
        found: String,
        /// What was asked for.
        asked: String,
    },
    /// A map's name is empty or too long.
    #[error("a map's name has 1 to {max_bytes} bytes; {name:?} has {}", name.len())]
    MapName {
        /// The name that was given.
        name: String,
        /// Longest name in bytes.
        max_bytes: usize,
    },
    /// An option has a value that is not allowed.
    #[error("{option} is {found}; allowed is {allowed}")]
    Option {
        /// The option's name.
        option: String,
        /// What was given.
        found: String,
        /// What is allowed.
        allowed: String,
    },
    /// An insert found its key.
    #[error("the key is already there; use upsert to replace its value")]
    KeyExists,
    /// An update or a compare-exchange did not find its key.
    #[error("the key is not there; use insert or upsert to add it")]
    KeyNotFound,
    /// A compare-exchange found another value than the expected one.
    #[error("the value is not the expected one; read it again and decide anew")]
    ValueMismatch,
    /// The key is longer than the map takes.
    #[error("a key of {found_bytes} bytes is longer than the {max_bytes} bytes that the map takes")]
    KeyTooLong {
        /// Length of the key that was given.
        found_bytes: usize,
        /// Longest key that is taken.
        max_bytes: usize,
    },
    /// The value is longer than the map takes.
    #[error(
        "a value of {found_bytes} bytes is longer than the {max_bytes} bytes that the map takes"
    )]
    ValueTooLong {
        /// Length of the value that was given.
        found_bytes: usize,
        /// Longest value that is taken.
        max_bytes: usize,
    },
    /// A stored key is not one of the type that the typed map expects.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The operating system refused something.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the operating system answered.
        source: std::io::Error,
    },
    /// The pool beneath could not serve the operation, or its file is not a pool that this
    /// version can open; the source says which.
    #[error("{0}")]
    Storage(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<BadSetting> for Error {
    fn from(BadSetting { setting, found, allowed }: BadSetting) -> Self {
        Self::Option { option: setting, found, allowed }
    }
}

impl From<pando_index::Error> for Error {
    fn from(error: pando_index::Error) -> Self {
        use pando_index::Error as Index;
        match error {
            Index::KeyExists => Self::KeyExists,
            Index::KeyNotFound => Self::KeyNotFound,
            Index::ValueMismatch => Self::ValueMismatch,
            Index::KeyTooLong { found_bytes, max_bytes } => {
                Self::KeyTooLong { found_bytes, max_bytes }
            }
            Index::ValueTooLong { found_bytes, max_bytes } => {
                Self::ValueTooLong { found_bytes, max_bytes }
            }
            Index::Storage(source) => Self::Storage(source),
            other => Self::Storage(Box::new(other)),
        }
    }
}

fn list_of_maps(present: &[String]) -> String {
    if present.is_empty() {
        "it has no maps at all".to_owned()
    } else {
        format!("it has {}", present.join(", "))
    }
}
