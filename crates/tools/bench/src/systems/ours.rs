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
use pando_pmem::{Adr, Domain, Process};
use pando_pmwcas::Recovered;
#[cfg(feature = "papers")]
use pando_skiplist::CasSkipLists;
use pando_skiplist::SkipLists;
#[cfg(feature = "sorted-array")]
use pando_sorted_array::SortedArrays;
use pando_tree::maps::{IndexKind, IndexOptions, OptionSpec, OptionValues};
use pando_wbtree::WbTrees;

use super::entry::{BuildError, BuildOptions, Durability, SystemEntry, any_shape, boxed};
use super::index::Indexed;
use super::stored::{Make, Stored, compiled, erased};
use super::transactional::{Mode, TransactionalMap};
use super::words::only_words;
use crate::record::Shape;
use crate::subject::Subject;

/// An index, or why it could not be built.
pub type Built = Result<Arc<dyn RangeIndex>, BuildError>;

/// An index of ours, its code in each domain, and the systems that it is.
pub struct Ours {
    /// Its name; those of its systems begin with it.
    pub name: &'static str,
    title: &'static str,
    systems: &'static [InDomain],
    /// Its systems with a transactional map.
    transactional: &'static [(Mode, InDomain)],
    /// The name of its kind.
    kind: &'static str,
    limits: fn(Shape) -> Result<(), String>,
    /// Options that its systems set, unless a run sets any itself.
    set: &'static [(&'static str, &'static str)],
    specs: &'static [OptionSpec],
    process: Make<Process, Arc<dyn RangeIndex>>,
    adr: Make<Adr, Arc<dyn RangeIndex>>,
    counting: Make<Counting, Arc<dyn RangeIndex>>,
    #[cfg(feature = "papers")]
    slow: Make<Emulated, Arc<dyn RangeIndex>>,
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

/// An index in one domain, as a system.
#[derive(Clone, Copy)]
struct InDomain {
    /// What its name has behind that of the index.
    suffix: &'static str,
    /// What it is, behind the title of the index.
    what: &'static str,
    durability: Durability,
    settings: &'static str,
}

const fn in_domain(
    suffix: &'static str,
    what: &'static str,
    durability: Durability,
    settings: &'static str,
) -> InDomain {
    InDomain { suffix, what, durability, settings }
}

/// What the names of systems end with whose medium is emulated.
pub const EMULATED: &str = ":slow";

/// The systems of an index.
const SYSTEMS: &[InDomain] = &[
    in_domain("", ", on anonymous memory", Durability::None, "default options"),
    in_domain(
        ":process",
        ", domain process, in a pool file of --pool-dir",
        Durability::ProcessCrash,
        "default options",
    ),
    in_domain(
        ":adr",
        ", domain adr, in a pool file of --pool-dir",
        Durability::PowerLoss,
        "default options; on ordinary memory it survives a process crash only",
    ),
    #[cfg(feature = "papers")]
    in_domain(
        EMULATED,
        ", as :adr on an emulated slower medium (--write-back-ns, --read-line-ns)",
        Durability::PowerLoss,
        "default options; a busy wait for each line written back, and for each read that its thread has not cached; on ordinary memory it survives a process crash only",
    ),
];

/// A transactional map without a log.
const WITHOUT_LOG: &[(Mode, InDomain)] = &[(
    Mode::NoLog,
    in_domain(
        ":transactional",
        ", a transactional map, domain process, in a pool file of --pool-dir",
        Durability::ProcessCrash,
        "default options",
    ),
)];

/// Transactional maps, also with a log. The log is the same for each index.
const WITH_LOG: &[(Mode, InDomain)] = &[
    WITHOUT_LOG[0],
    (
        Mode::Buffered,
        in_domain(
            ":buffered",
            WITH_A_LOG,
            Durability::ProcessCrash,
            "Acknowledge::Buffered (the default)",
        ),
    ),
    (Mode::Synced, in_domain(":synced", WITH_A_LOG, Durability::PowerLoss, "Acknowledge::Synced")),
    (
        Mode::Pipelined,
        in_domain(
            ":pipelined",
            WITH_A_LOG,
            Durability::ProcessCrash,
            "Acknowledge::Buffered; a thread waits until all of its commits but the last 32 are durable",
        ),
    ),
];

/// Maps of a store. All are Bw-trees.
const IN_A_STORE: &[(Mode, InDomain)] = &[
    (
        Mode::Store,
        in_domain(
            ":store",
            " in a store in --log-dir",
            Durability::ProcessCrash,
            "Acknowledge::Buffered (the default), 1 GiB of memory for pages",
        ),
    ),
    (
        Mode::StoreSynced,
        in_domain(
            ":store-synced",
            " in a store in --log-dir",
            Durability::PowerLoss,
            "Acknowledge::Synced, 1 GiB of memory for pages",
        ),
    ),
];

/// What a system with a log is.
const WITH_A_LOG: &str = ", a transactional map in a pool file of --pool-dir, log in --log-dir";

/// The systems of an index by single-word CAS.
#[cfg(feature = "papers")]
const CAS_SYSTEMS: &[InDomain] = &[
    in_domain("", " by single-word CAS, on anonymous memory", Durability::None, "default options"),
    in_domain(
        ":process",
        " by single-word CAS, domain process, in a pool file of --pool-dir",
        Durability::None,
        "default options; a kill between two words may leave what no code repairs",
    ),
    in_domain(
        ":adr",
        " by single-word persistent CAS, domain adr, in a pool file of --pool-dir",
        Durability::None,
        "default options; each word is written back, but a crash between two may leave what no code repairs",
    ),
];

/// The index of kind `K`, as the public API has it.
const fn ours<K: IndexKind>(name: &'static str, title: &'static str) -> Ours {
    Ours {
        name,
        title,
        systems: SYSTEMS,
        transactional: &[],
        kind: K::NAME,
        limits: any_shape,
        set: &[],
        specs: K::Options::SPECS,
        process: compiled::<K, Process>,
        adr: compiled::<K, Adr>,
        counting: erased::<K, Counting>,
        #[cfg(feature = "papers")]
        slow: erased::<K, Emulated>,
    }
}

/// The index of kind `K` by single-word CAS, which the public API does not have.
#[cfg(feature = "papers")]
const fn by_cas<K: IndexKind>(name: &'static str, title: &'static str) -> Ours {
    Ours {
        systems: CAS_SYSTEMS,
        process: erased::<K, Process>,
        adr: erased::<K, Adr>,
        ..ours::<K>(name, title)
    }
}

/// Nodes of skip lists are as high in each run.
const SAME_HEIGHTS: &[(&str, &str)] = &[("height_seed", "1")];

/// Every index of ours.
pub const OURS: &[Ours] = &[
    Ours { transactional: WITH_LOG, ..ours::<BzTrees>("bztree", "BzTree") },
    Ours {
        set: &[("numbers", "sorted")],
        ..ours::<BzTrees>("bztree-sorted", "BzTree with the paper's leaves for all records")
    },
    Ours { transactional: WITHOUT_LOG, ..ours::<NbTrees>("nbtree", "NBTree") },
    ours::<WbTrees>("wbtree", "wB+-Tree"),
    Ours {
        limits: only_words,
        set: &[("records", "fixed")],
        ..ours::<WbTrees>("wbtree-fixed", "wB+-Tree with records of 8-byte keys and values")
    },
    // `crossbeam-skiplist` is a peer.
    Ours {
        set: SAME_HEIGHTS,
        transactional: WITHOUT_LOG,
        ..ours::<SkipLists>("pando-skiplist", "our skip list on PMwCAS")
    },
    Ours { transactional: IN_A_STORE, ..ours::<BwTrees>("bwtree", "Bw-tree") },
    #[cfg(feature = "papers")]
    Ours {
        set: &[("chain_deltas", "6"), ("delta_bytes", "0"), ("shortcuts", "off"), ("runs", "off")],
        ..ours::<BwTrees>(
            "bwtree-plain",
            "Bw-tree of the paper's design: each delta a block, no shortcuts",
        )
    },
    #[cfg(feature = "sorted-array")]
    ours::<SortedArrays>("sorted-array", "the example of an index"),
];

/// Indexes by single-word CAS, which no crash may interrupt: what the PMwCAS paper compares with.
/// They are in builds with the feature `papers` alone.
#[cfg(feature = "papers")]
const BY_CAS: &[Ours] = &[
    Ours { set: SAME_HEIGHTS, ..by_cas::<CasSkipLists>("pando-skiplist-cas", "our skip list") },
    by_cas::<CasBwTrees>("bwtree-cas", "our Bw-tree"),
];
#[cfg(not(feature = "papers"))]
const BY_CAS: &[Ours] = &[];

/// The systems of all indexes of ours.
pub fn systems() -> impl Iterator<Item = SystemEntry> {
    let of = |ours: &'static Ours| {
        let transactional = ours.transactional.iter().map(|(_, system)| system);
        ours.systems.iter().chain(transactional).map(|system| ours.entry(system))
    };
    OURS.iter().chain(BY_CAS).flat_map(of)
}

impl Ours {
    /// The entry of one of its systems. Its texts are made once and live as long as the process.
    fn entry(&self, system: &InDomain) -> SystemEntry {
        SystemEntry {
            name: format!("{}{}", self.name, system.suffix).leak(),
            what: format!("{}{}", self.title, system.what).leak(),
            durability: system.durability,
            settings: system.settings,
            limits: self.limits,
            can_descend: true,
            build: |name, _, options| build(name, options, None),
        }
    }

    /// The options with what its systems set, unless the run sets options of this index itself.
    fn set(&self, options: &BuildOptions) -> Result<BuildOptions, BuildError> {
        let of_run = options.settings.clone().filter(|settings| settings.are_of(self.specs));
        let settings = match of_run {
            Some(settings) => settings,
            None => {
                let mut settings = OptionValues::new(self.specs);
                self.set.iter().try_for_each(|(name, value)| settings.set(name, value))?;
                settings
            }
        };
        Ok(BuildOptions { settings: Some(settings), ..options.clone() })
    }

    /// It in the counting domain, empty, on anonymous memory.
    pub fn counting(&self, options: &BuildOptions) -> Built {
        Ok(Stored::anonymous(&self.set(options)?, self.counting)?.index)
    }

    /// It in a new pool at `path`, in the domain `process`.
    pub fn create(&self, path: &Path, options: &BuildOptions) -> Built {
        Ok(Stored::create(path, &self.set(options)?, self.process)?.index)
    }

    /// It in the pool at `path`, in the domain `process`.
    pub fn open(&self, path: &Path) -> Result<Reopened, BuildError> {
        let Stored { index, catalog, .. } = Stored::<_, Process>::open(path)?;
        Ok(Reopened {
            index,
            was_clean: catalog.pool().was_clean(),
            recovered: catalog.recovered(),
        })
    }
}

/// Builds the system called `name`. One with a transactional map lies in `folder`, if it is set, is
/// opened if it is there, and stays there.
///
/// # Errors
///
/// A name of no system, and those of the pool.
pub fn build(
    name: &str,
    options: &BuildOptions,
    folder: Option<&Path>,
) -> Result<Box<dyn Subject>, BuildError> {
    let (index, domain) = name.split_at(name.find(':').unwrap_or(name.len()));
    let ours = OURS.iter().chain(BY_CAS).find(|ours| ours.name == index);
    let ours = ours.ok_or_else(|| format!("there is no index {index:?} of ours"))?;
    let mut transactional = ours.transactional.iter();
    if let Some((mode, _)) = transactional.find(|(_, system)| system.suffix == domain) {
        return boxed(TransactionalMap::open(ours.kind, *mode, options, folder)?);
    }
    let options = &ours.set(options)?;
    match domain {
        "" => in_pool(Stored::anonymous(options, ours.process)?),
        ":process" => in_pool(Stored::in_file(options, ours.process)?),
        ":adr" => in_pool(Stored::in_file(options, ours.adr)?),
        #[cfg(feature = "papers")]
        EMULATED => in_pool(Stored::in_file(options, ours.slow)?),
        _ => Err(format!("{index} is not measured in the domain {domain:?}").into()),
    }
}

fn in_pool<D: Domain>(
    stored: Stored<Arc<dyn RangeIndex>, D>,
) -> Result<Box<dyn Subject>, BuildError> {
    boxed(Indexed::in_pool(Arc::clone(&stored.index), stored))
}

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
