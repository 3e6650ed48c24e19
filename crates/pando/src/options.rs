//! Options of pools and maps, with the defaults a user would keep.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use pando_tc::SnapshotLimits;
use pando_tree::maps::OptionValues;
use serde::Serialize;

use crate::Error;

/// The persistence domain of a pool: how a write is made durable, and which failures it then
/// survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DomainChoice {
    /// The one that the medium needs: `Adr` on persistent memory whose caches are lost in a power
    /// cut, else `Process`.
    #[default]
    Auto,
    /// Stores are ordered, and not written back. A write to a file that has returned survives the
    /// death of any process. On persistent memory whose platform flushes its caches when power is
    /// lost (eADR), it survives a power cut too.
    Process,
    /// Stores are written back to the medium line by line and fenced. On persistent memory, a write
    /// that has returned survives a power cut.
    Adr,
}

impl DomainChoice {
    /// The name that [`FromStr`] parses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Process => "process",
            Self::Adr => "adr",
        }
    }

    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Process, Self::Adr];
}

/// Parses the name of a domain.
impl FromStr for DomainChoice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let named = Self::ALL.into_iter().find(|choice| choice.name() == name);
        named.ok_or_else(|| Error::Option {
            option: "the persistence domain".to_owned(),
            found: name.to_owned(),
            allowed: Self::ALL.map(Self::name).join(" or "),
        })
    }
}

/// The name that [`FromStr`] parses.
impl fmt::Display for DomainChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// When a write to a transactional map of a pool with a log returns ([`PoolOptions::log`]). In both
/// cases it takes effect at once for all threads, and survives the death of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Acknowledge {
    /// When it has taken effect. A thread writes the log in the background: about every
    /// millisecond, and after a pause within 0.1 s. A power cut may undo the newest commits: those
    /// that are not synced yet, at most 32 MiB of records. A commit is undone as a whole, and with
    /// it each commit that has read or replaced its writes.
    #[default]
    Buffered,
    /// When it survives a power cut too. Threads that wait share the syncs.
    Synced,
}

/// How far the recovery of a lost pool has come ([`PoolOptions::on_recovery`]). If the new pool was
/// full before its end, it begins anew, by one thread, which needs less room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryProgress {
    /// Records of the image that were loaded.
    pub image_records: u64,
    /// Commits of the log that were replayed.
    pub commits: u64,
}

/// The function that [`PoolOptions::on_recovery`] sets.
#[derive(Clone)]
pub(crate) struct OnRecovery(pub Arc<dyn Fn(RecoveryProgress) + Send + Sync>);

impl fmt::Debug for OnRecovery {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OnRecovery")
    }
}

/// How a pool is created or opened.
///
/// ```
/// use pando::{Pool, PoolOptions};
///
/// let options = PoolOptions::new().max_bytes(1 << 30);
/// let pool = Pool::volatile(&options)?;
/// # Ok::<(), pando::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    pub(crate) domain: DomainChoice,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) initial_bytes: Option<u64>,
    pub(crate) salvage: bool,
    pub(crate) shared: bool,
    pub(crate) log: Option<PathBuf>,
    pub(crate) acknowledge: Acknowledge,
    pub(crate) on_recovery: Option<OnRecovery>,
    pub(crate) snapshot_limits: SnapshotLimits,
}

impl PoolOptions {
    /// The defaults: the domain follows from the medium. The file is small at first (9.3 MiB, of
    /// which 8.3 MiB are the pool's own tables) and grows as it fills.
    pub fn new() -> Self {
        Self::default()
    }

    /// The persistence domain; [`DomainChoice::Auto`] by default. For experiments the domain may be
    /// stronger than the medium supports. [`Pool::stat`](crate::Pool::stat) still reports the real
    /// guarantee.
    pub fn domain(mut self, domain: DomainChoice) -> Self {
        self.domain = domain;
        self
    }

    /// The largest size of a pool in bytes: 1 MiB to 16 TiB, 64 GiB by default, rounded down to a
    /// multiple of 64 KiB. It is fixed when the pool is created. An existing pool is opened only if
    /// it has this size, or if no size is set
    /// ([`Error::PoolSizeDiffers`](crate::Error::PoolSizeDiffers)). It costs addresses of the
    /// process, not memory. Where addresses are limited (`ulimit -v`), create the pool with less.
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = Some(max_bytes);
        self
    }

    /// The first size of a new pool in bytes, without its own tables; it grows on demand. At most
    /// `max_bytes`, 1 MiB by default. Ignored when an existing pool is opened.
    pub fn initial_bytes(mut self, initial_bytes: u64) -> Self {
        self.initial_bytes = Some(initial_bytes);
        self
    }

    /// Whether to open a pool that is otherwise refused, because a power cut may have damaged it.
    /// Its maps can then only be copied out by [`Pool::salvage`](crate::Pool::salvage). Load the
    /// copy into a new pool. Without this option the old pool is still refused, however it was
    /// closed. False by default.
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }

    /// Whether other processes may have the pool open at the same time, up to 256, if each of them
    /// sets this option. All of them read and write, and none waits for another. If one is killed,
    /// its writes that have returned stay, and the others complete or undo the rest within a tenth
    /// of a second. False by default: then no other process can open the pool.
    ///
    /// A shared pool has no log, no transactional maps, no maps with an index other than `bztree`
    /// and `skiplist`, and not the domain [`DomainChoice::Adr`]. Calls that need the pool alone are
    /// refused, such as [`Pool::rename_map`](crate::Pool::rename_map) and
    /// [`Pool::check`](crate::Pool::check). The error is
    /// [`Error::NotShareable`](crate::Error::NotShareable).
    ///
    /// ```
    /// use pando::{Pool, PoolOptions};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("grove.pool");
    /// let options = PoolOptions::new().shared(true);
    /// let one = Pool::create(&path, &options)?;
    /// // Usually in another process.
    /// let other = Pool::open(&path, &options)?;
    /// one.map("trees")?.insert(b"aspen", b"")?;
    /// assert!(other.map("trees")?.get(b"aspen")?.is_some());
    /// assert_eq!(other.processes()?.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// The directory of the pool's log, on a disk that keeps synced data. With a log, the
    /// transactional maps of the pool survive a power cut. The pool's file may then lie on any
    /// medium, also on tmpfs. Other maps are empty after a power cut.
    ///
    /// A new pool gets a new log there. The directory is created if its parent exists. The pool
    /// stores its path, so an existing pool needs this option only if the directory was moved.
    ///
    /// A lost pool ([`Pool::open`](crate::Pool::open)) is rebuilt from the log. If its file is
    /// missing, this option must name the log. A log cannot be added to an existing pool, or
    /// removed.
    ///
    /// ```
    /// use pando::{Acknowledge, Pool, PoolOptions, MapOptions};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("grove.pool");
    /// let options = PoolOptions::new().log(folder.path().join("grove.log"));
    /// let pool = Pool::create(&path, &options)?;
    /// let trees = pool.map_with("trees", &MapOptions::new().transactional(true))?;
    /// trees.insert(b"aspen", b"Populus tremuloides")?;
    /// pool.sync()?;
    /// drop((trees, pool));
    ///
    /// std::fs::remove_file(&path)?;
    /// let pool = Pool::open(&path, &options)?;
    /// assert_eq!(pool.map("trees")?.get(b"aspen")?.as_deref(), Some(&b"Populus tremuloides"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn log(mut self, directory: impl Into<PathBuf>) -> Self {
        self.log = Some(directory.into());
        self
    }

    /// The directory that [`log`](Self::log) has named.
    pub fn log_directory(&self) -> Option<&Path> {
        self.log.as_deref()
    }

    /// When maps are created and dropped, and when writes to transactional maps return, unless a
    /// [`Map`](crate::Map::acknowledge) or a [`Transaction`](crate::Transaction::acknowledge) says
    /// otherwise; [`Acknowledge::Buffered`] by default. [`Acknowledge::Synced`] needs a pool with a
    /// log ([`Error::NoLog`](crate::Error::NoLog)).
    pub fn acknowledge(mut self, acknowledge: Acknowledge) -> Self {
        self.acknowledge = acknowledge;
        self
    }

    /// When the oldest [`Snapshot`](crate::Snapshot) is revoked: it is older than `max_age`, or the
    /// values that are kept for all snapshots take more than `max_bytes` of process memory, with
    /// their keys and 128 bytes for each. One hour and 1 GiB by default; `Duration::MAX` and
    /// `u64::MAX` are no limits. They hold for this opening of the pool, and are looked at after
    /// each commit: without writes a snapshot may be kept for ever.
    pub fn snapshot_limits(mut self, max_age: Duration, max_bytes: u64) -> Self {
        self.snapshot_limits = SnapshotLimits { max_age, max_bytes };
        self
    }

    /// Is called now and then while a lost pool is recovered.
    pub fn on_recovery(
        mut self,
        progress: impl Fn(RecoveryProgress) + Send + Sync + 'static,
    ) -> Self {
        self.on_recovery = Some(OnRecovery(Arc::new(progress)));
        self
    }
}

/// How a map is created: its index and the options of the index. [`indexes`](crate::indexes) lists
/// both. Options that are only for experiments are refused. A map keeps the options that it was
/// created with. When an existing map is opened, options that are not set here are ignored, and
/// options that are set must match the map.
///
/// The options of a `bztree`, in bytes except for the last:
///
/// | option | default | allowed | |
/// | --- | --- | --- | --- |
/// | `leaf_bytes` | 2048 | 256 to 65536 | a leaf that needs more is split |
/// | `inner_bytes` | 4096 | 256 to 65536 | an inner node that needs more is split |
/// | `free_bytes` | 384 | 32 to half of `leaf_bytes` | room in a new leaf for inserts and updates |
/// | `merge_bytes` | 768 | 0 to half of `leaf_bytes` | a leaf with less is merged with a neighbour |
/// | `inline_bytes` | 1024 | 0 to 16384 | a longer value has a block of its own |
/// | `value_mode` | inline | inline, pointer | values in the leaf, or each in a block of its own |
///
/// If a default is more than half of `leaf_bytes`, it becomes half of `leaf_bytes`.
///
/// ```
/// use pando::{MapOptions, Pool, PoolOptions};
///
/// let pool = Pool::volatile(&PoolOptions::new())?;
/// let options = MapOptions::new().index("bztree").set("leaf_bytes", 4096).set("value_mode", "pointer");
/// let map = pool.map_with("wide", &options)?;
/// # Ok::<(), pando::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapOptions {
    pub(crate) index: Option<String>,
    pub(crate) is_transactional: Option<bool>,
    pub(crate) values: Vec<(String, String)>,
}

/// How a map was created.
pub(crate) struct Created {
    /// The name of its index.
    pub kind: &'static str,
    /// The options of the index.
    pub values: OptionValues,
    /// Whether it takes part in transactions.
    pub is_transactional: bool,
}

impl MapOptions {
    /// The defaults: a BzTree with values in its leaves.
    pub fn new() -> Self {
        Self::default()
    }

    /// The index of the map.
    pub fn index(mut self, index: impl Into<String>) -> Self {
        self.index = Some(index.into());
        self
    }

    /// Whether the map takes part in transactions
    /// ([`Pool::transaction`](crate::Pool::transaction)); false by default. Then each write of one
    /// key is a commit too. That takes 16 bytes more for each record, and for each key that was
    /// removed; and it takes longer.
    pub fn transactional(mut self, is_transactional: bool) -> Self {
        self.is_transactional = Some(is_transactional);
        self
    }

    /// Sets the option `name` of that index to `value`: a number, or one of the option's words. If
    /// a name is set twice, the last value counts.
    pub fn set(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.values.push((name.into(), value.to_string()));
        self
    }

    /// `values` with the options that are set here.
    pub(crate) fn applied_to(&self, mut values: OptionValues) -> Result<OptionValues, Error> {
        for (name, value) in &self.values {
            values.set(name, value)?;
        }
        Ok(values)
    }

    /// Whether a map `name` that was created so may be opened with these options.
    pub(crate) fn agrees_with(&self, name: &str, created: &Created) -> Result<(), Error> {
        let Created { kind, values, is_transactional } = created;
        if let Some(asked) = self.index.as_ref().filter(|asked| asked != kind) {
            let (name, asked) = (name.to_owned(), asked.clone());
            return Err(Error::MapIndexDiffers { name, found: kind, asked });
        }
        let differs = |option, found, asked| {
            Err(Error::MapOptionDiffers { name: name.to_owned(), option, found, asked })
        };
        let asked = self.applied_to(values.clone())?;
        let pairs = values.iter().zip(asked.iter());
        match pairs.into_iter().find(|((_, found), (_, asked))| found != asked) {
            Some(((option, found), (_, asked))) => {
                differs(option.name, option.text(found), option.text(asked))
            }
            None => match self.is_transactional.filter(|asked| asked != is_transactional) {
                Some(asked) => {
                    differs("transactional", is_transactional.to_string(), asked.to_string())
                }
                None => Ok(()),
            },
        }
    }
}
