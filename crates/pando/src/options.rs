//! Options of pools and maps, with the defaults a user would keep.

use std::fmt;
use std::str::FromStr;

use pando_tree::maps::OptionValues;
use serde::Serialize;

use crate::Error;

/// Which persistence domain a pool runs in: what a write does so that it survives, and what it then
/// survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DomainChoice {
    /// The strongest that the medium really gives: `Adr` or `Eadr` on a DAX mapping, `Process`
    /// on any other file, `Volatile` on anonymous memory.
    #[default]
    Auto,
    /// Nothing is written back, and nothing is promised. On anonymous memory the contents end with
    /// the process. On a file they do not: the file is changed all the same, and what a killed
    /// process, or a machine that went down, leaves of it is open.
    Volatile,
    /// What has returned survives the death of any process, not a power cut.
    Process,
    /// The platform writes its caches back when power is lost: stores are ordered, never written
    /// back.
    Eadr,
    /// Stores are written back to the medium line by line and fenced.
    Adr,
}

impl DomainChoice {
    /// Its name, as it is parsed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Volatile => "volatile",
            Self::Process => "process",
            Self::Eadr => "eadr",
            Self::Adr => "adr",
        }
    }

    /// Every choice.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Volatile, Self::Process, Self::Eadr, Self::Adr];
}

/// By its name.
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

/// Its name, as it is parsed.
impl fmt::Display for DomainChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// How a pool is created or opened.
///
/// ```
/// use pando::{DomainChoice, Pool, PoolOptions};
///
/// let options = PoolOptions::new().domain(DomainChoice::Volatile).max_bytes(1 << 30);
/// let pool = Pool::volatile(&options)?;
/// # Ok::<(), pando::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    pub(crate) domain: DomainChoice,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) initial_bytes: Option<u64>,
    pub(crate) salvage: bool,
}

impl PoolOptions {
    /// The defaults: the domain found from the medium, a file that is small at first (9.3 MiB, of
    /// which 8.3 MiB are the pool's own tables) and grows as it fills.
    pub fn new() -> Self {
        Self::default()
    }

    /// The persistence domain; [`DomainChoice::Auto`] by default. A stronger domain than the
    /// medium gives is taken as asked, for experiments, and [`Pool::stat`](crate::Pool::stat)
    /// still reports the real guarantee.
    pub fn domain(mut self, domain: DomainChoice) -> Self {
        self.domain = domain;
        self
    }

    /// The size in bytes up to which a pool may grow: 1 MiB to 16 TiB, 64 GiB by default, rounded
    /// down to a multiple of 64 KiB. It is fixed when the pool is created. A pool that exists is
    /// opened only if it has this size, or if no size is set
    /// ([`Error::PoolSizeDiffers`](crate::Error::PoolSizeDiffers)). It costs addresses of the
    /// process, not memory; where addresses are limited (`ulimit -v`), create the pool with less.
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = Some(max_bytes);
        self
    }

    /// The size in bytes with which a new pool begins, beside its own tables; it grows from there
    /// on demand. At most `max_bytes`, 1 MiB by default; ignored when a pool that is there is
    /// opened.
    pub fn initial_bytes(mut self, initial_bytes: u64) -> Self {
        self.initial_bytes = Some(initial_bytes);
        self
    }

    /// Whether a pool may be opened that would otherwise be refused because a power cut may have
    /// torn it. Its maps cannot be used then, only copied out by
    /// [`Pool::salvage`](crate::Pool::salvage); load the copy into a new pool. It stays one that is
    /// refused otherwise, however it is closed. False by default.
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }
}

/// How a map is created: its index and the options of the index ([`indexes`](crate::indexes)
/// lists both; options that only experiments set are refused). A map keeps what it was created
/// with: when a map that is there is opened, what is left out here is taken as found, and what is
/// set has to agree.
///
/// The options of a `bztree`, in bytes but for the last:
///
/// | option | default | allowed | |
/// | --- | --- | --- | --- |
/// | `leaf_bytes` | 2048 | 256 to 65536 | a leaf that would take more is split |
/// | `inner_bytes` | 4096 | 256 to 65536 | an inner node that would take more is split |
/// | `free_bytes` | 384 | 32 to half of `leaf_bytes` | room in a new leaf for inserts and updates |
/// | `merge_bytes` | 768 | 0 to half of `leaf_bytes` | a leaf with less is merged with a neighbour |
/// | `inline_bytes` | 1024 | 0 to 16384 | a longer value has a block of its own |
/// | `value_mode` | inline | inline, pointer | values in the leaf, or each in a block of its own |
///
/// Where `leaf_bytes` is so small that a default would be more than half of it, it is that half.
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
    pub(crate) values: Vec<(String, String)>,
}

impl MapOptions {
    /// Everything left to the defaults: a BzTree with values in its leaves.
    pub fn new() -> Self {
        Self::default()
    }

    /// The index of the map.
    pub fn index(mut self, index: impl Into<String>) -> Self {
        self.index = Some(index.into());
        self
    }

    /// Sets the option `name` of that index to `value`: a number, or one of its words. The last one
    /// counts if a name is set twice.
    pub fn set(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.values.push((name.into(), value.to_string()));
        self
    }

    /// `values` with what is set here.
    pub(crate) fn applied_to(&self, mut values: OptionValues) -> Result<OptionValues, Error> {
        for (name, value) in &self.values {
            values.set(name, value)?;
        }
        Ok(values)
    }

    /// Whether a map `name`, of `kind` and created with `values`, may be opened with these
    /// options.
    pub(crate) fn agrees_with(
        &self,
        name: &str,
        kind: &'static str,
        values: &OptionValues,
    ) -> Result<(), Error> {
        if let Some(asked) = self.index.as_ref().filter(|asked| *asked != kind) {
            let (name, asked) = (name.to_owned(), asked.clone());
            return Err(Error::MapIndexDiffers { name, found: kind, asked });
        }
        let asked = self.applied_to(values.clone())?;
        let pairs = values.iter().zip(asked.iter());
        match pairs.into_iter().find(|((_, found), (_, asked))| found != asked) {
            None => Ok(()),
            Some(((option, found), (_, asked))) => Err(Error::MapOptionDiffers {
                name: name.to_owned(),
                option: option.name,
                found: option.text(found),
                asked: option.text(asked),
            }),
        }
    }
}
