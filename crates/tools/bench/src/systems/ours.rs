//! Our indexes by name: what is measured of each. A new one is one line in [`OURS`].

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use pando_bwtree::BwTrees;
#[cfg(feature = "papers")]
use pando_bwtree::CasBwTrees;
use pando_bztree::BzTrees;
use pando_index::RangeIndex;
use pando_nbtree::NbTrees;
use pando_pmem::counting::Counting;
#[cfg(feature = "papers")]
use pando_pmem::emulated::Emulated;
use pando_pmem::{Adr, Process, Volatile};
use pando_pmwcas::Recovered;
#[cfg(feature = "papers")]
use pando_skiplist::CasSkipLists;
use pando_skiplist::SkipLists;
#[cfg(feature = "sorted-array")]
use pando_sorted_array::SortedArrays;
use pando_tree::maps::{IndexKind, IndexOptions};
use pando_wbtree::WbTrees;

use super::entry::{BuildError, BuildOptions, Durability, SystemEntry, any_shape, boxed};
use super::stored::Stored;
use super::words::only_words;

/// An index, or why it could not be built.
pub type Built = Result<Arc<dyn RangeIndex>, BuildError>;

/// What is measured of an index.
pub struct Ours {
    /// Its name; those of its systems begin with it.
    pub name: &'static str,
    /// It in each domain.
    pub systems: &'static [SystemEntry],
    /// It in the counting domain, empty, on anonymous memory.
    pub counting: fn(&BuildOptions) -> Built,
    /// It in a new pool at a path, in the domain `process`.
    pub create: fn(&Path, &BuildOptions) -> Built,
    /// It in the pool at a path, in the domain `process`.
    pub open: fn(&Path) -> Result<Reopened, BuildError>,
}

impl fmt::Debug for Ours {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// An index that was opened.
pub struct Reopened {
    /// The index.
    pub index: Arc<dyn RangeIndex>,
    /// Whether its pool had been closed in order.
    pub was_clean: bool,
    /// What recovery found.
    pub recovered: Recovered,
}

/// A system: an index of ours in a pool of its own.
macro_rules! system {
    (
        $kind:ty, $set:expr, $limits:expr, $pool:ident in $domain:ty, $survives:ident, $settings:literal,
        [$($name:literal),+], [$($what:literal),+]
    ) => {
        SystemEntry {
            name: concat!($($name),+),
            what: concat!($($what),+),
            durability: Durability::$survives,
            settings: $settings,
            limits: $limits,
            can_descend: true,
            build: |_, _, options| boxed(Stored::<$kind, $domain>::$pool(&set::<$kind>(options, $set)?)?),
        }
    };
}

macro_rules! ours {
    ($kind:ty, $name:literal, $title:literal) => {
        ours!($kind, $name, $title, any_shape, &[])
    };
    ($kind:ty, $name:literal, $title:literal, $limits:expr, $set:expr) => {
        Ours {
            name: $name,
            systems: &[
                system!(
                    $kind, $set, $limits, anonymous in Volatile, None, "default options",
                    [$name], [$title, ", domain volatile, on anonymous memory"]
                ),
                system!(
                    $kind, $set, $limits, in_file in Volatile, None,
                    "default options; what :process costs more than it, durability costs",
                    [$name, ":volatile-file"], [$title, ", domain volatile, in a file of --pool-dir"]
                ),
                system!(
                    $kind, $set, $limits, in_file in Process, ProcessCrash, "default options",
                    [$name, ":process"], [$title, ", domain process, in a pool file of --pool-dir"]
                ),
                // The domains process and eadr have the same code, which is compiled once.
                system!(
                    $kind, $set, $limits, in_file in Process, PowerLoss,
                    "default options; on ordinary memory it survives a process crash only",
                    [$name, ":eadr"], [$title, ", domain eadr, in a pool file of --pool-dir"]
                ),
                system!(
                    $kind, $set, $limits, in_file in Adr, PowerLoss,
                    "default options; on ordinary memory it survives a process crash only",
                    [$name, ":adr"], [$title, ", domain adr, in a pool file of --pool-dir"]
                ),
                #[cfg(feature = "papers")]
                system!(
                    $kind, $set, $limits, in_file in Emulated, PowerLoss,
                    "default options; a busy wait for each line written back, and for each read that its thread has not cached; on ordinary memory it survives a process crash only",
                    [$name, ":slow"],
                    [$title, ", as :adr on an emulated slower medium (--write-back-ns, --read-line-ns)"]
                ),
            ],
            counting: |options| Ok(Arc::new(Stored::<$kind, Counting>::anonymous(&set::<$kind>(options, $set)?)?.index)),
            create: |path, options| {
                Ok(Arc::new(Stored::<$kind, Process>::create(path, &set::<$kind>(options, $set)?)?.index))
            },
            open: |path| {
                let Stored { index, catalog, .. } = Stored::<$kind, Process>::open(path)?;
                Ok(Reopened {
                    index: Arc::new(index),
                    was_clean: catalog.pool().was_clean(),
                    recovered: catalog.recovered(),
                })
            },
        }
    };
}

/// The options with what a system has set of its index, unless a run sets anything itself.
fn set<K: IndexKind>(
    options: &BuildOptions,
    words: &[(&str, &str)],
) -> Result<BuildOptions, BuildError> {
    let mut options = options.clone();
    let is_set =
        options.settings.as_ref().is_some_and(|settings| settings.are_of(K::Options::SPECS));
    if !is_set && !words.is_empty() {
        options.settings = Some(K::Options::parse(words)?.values()?);
    }
    Ok(options)
}

/// Every index of ours.
pub const OURS: &[Ours] = &[
    ours!(BzTrees, "bztree", "BzTree"),
    ours!(NbTrees, "nbtree", "NBTree"),
    ours!(WbTrees, "wbtree", "wB+-Tree"),
    ours!(
        WbTrees,
        "wbtree-fixed",
        "wB+-Tree with records of 8-byte keys and values",
        only_words,
        &[("records", "fixed")]
    ),
    // `crossbeam-skiplist` is a peer.
    ours!(SkipLists, "pando-skiplist", "our skip list on PMwCAS", any_shape, SAME_HEIGHTS),
    ours!(BwTrees, "bwtree", "Bw-tree"),
    #[cfg(feature = "papers")]
    ours!(
        BwTrees,
        "bwtree-plain",
        "Bw-tree of the paper's design: each delta a block, no shortcuts",
        any_shape,
        &[("chain_deltas", "6"), ("delta_bytes", "0"), ("shortcuts", "off"), ("runs", "off"),]
    ),
    #[cfg(feature = "sorted-array")]
    ours!(SortedArrays, "sorted-array", "the example of an index"),
];

/// Nodes of skip lists are as high in each run.
const SAME_HEIGHTS: &[(&str, &str)] = &[("height_seed", "1")];

#[cfg(feature = "papers")]
macro_rules! by_cas {
    ($kind:ty, $name:literal, $title:literal, $set:expr) => {
        [
            system!(
                $kind, $set, any_shape, anonymous in Volatile, None, "default options",
                [$name], [$title, " by single-word CAS, domain volatile, on anonymous memory"]
            ),
            system!(
                $kind, $set, any_shape, in_file in Volatile, None, "default options",
                [$name, ":volatile-file"],
                [$title, " by single-word CAS, domain volatile, in a file of --pool-dir"]
            ),
            system!(
                $kind, $set, any_shape, in_file in Process, None,
                "default options; a kill between two words may leave what no code repairs",
                [$name, ":process"],
                [$title, " by single-word CAS, domain process, in a pool file of --pool-dir"]
            ),
            system!(
                $kind, $set, any_shape, in_file in Adr, None,
                "default options; each word is written back, but a crash between two may leave what no code repairs",
                [$name, ":adr"],
                [$title, " by single-word persistent CAS, domain adr, in a pool file of --pool-dir"]
            ),
        ]
    };
}

/// Indexes by single-word CAS, which no crash may interrupt: what the PMwCAS paper compares with.
#[cfg(feature = "papers")]
pub const BY_CAS: [[SystemEntry; 4]; 2] = [
    by_cas!(CasSkipLists, "pando-skiplist-cas", "our skip list", SAME_HEIGHTS),
    by_cas!(CasBwTrees, "bwtree-cas", "our Bw-tree", &[]),
];
/// They are in builds with the feature `papers` alone.
#[cfg(not(feature = "papers"))]
pub const BY_CAS: [[SystemEntry; 4]; 0] = [];

/// What the names of systems end with whose medium is emulated.
pub const EMULATED: &str = ":slow";

/// Whether `name` is that of a system that is in builds with the feature `papers` alone.
pub fn is_of_papers(name: &str) -> bool {
    let index = name.split(':').next().unwrap_or_default();
    name.ends_with(EMULATED) || index.ends_with("-cas") || index == "bwtree-plain"
}

/// The index of ours called `name`.
pub fn ours_called(name: &str) -> Result<&'static Ours, String> {
    OURS.iter().find(|ours| ours.name == name).ok_or_else(|| {
        let names: Vec<_> = OURS.iter().map(|ours| ours.name).collect();
        format!("there is no index {name:?} of ours; expected one of {}", names.join(", "))
    })
}
