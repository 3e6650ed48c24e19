//! Options of pools and maps, with the defaults a user would keep.

use std::fmt;

use serde::Serialize;

use crate::Error;

/// Which persistence domain a pool runs in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DomainChoice {
    /// The strongest that the medium really gives: `Adr` or `Eadr` on a DAX mapping, `Process`
    /// on any other file, `Volatile` on anonymous memory.
    #[default]
    Auto,
    /// Nothing is written back: the contents end with the process.
    Volatile,
    /// What has returned survives the death of any process, not a power cut.
    Process,
    /// The caches belong to the domain: stores are ordered, never written back.
    Eadr,
    /// Stores are written back to the medium line by line and fenced.
    Adr,
    /// As `Adr` in its work, counting flushes, fences and lines. For experiments.
    Counting,
}

impl fmt::Display for DomainChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Auto => "auto",
            Self::Volatile => "volatile",
            Self::Process => "process",
            Self::Eadr => "eadr",
            Self::Adr => "adr",
            Self::Counting => "counting",
        })
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
    /// The defaults: the domain found from the medium, a small file that grows as it fills.
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

    /// The size in bytes up to which the pool may grow. It costs addresses, not memory.
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = Some(max_bytes);
        self
    }

    /// The size in bytes with which a new pool begins; it grows from there on demand.
    pub fn initial_bytes(mut self, initial_bytes: u64) -> Self {
        self.initial_bytes = Some(initial_bytes);
        self
    }

    /// Whether a pool may be opened that would otherwise be refused because a power cut may have
    /// torn it: what can be read of it is then to be copied out. False by default.
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }

    pub(crate) fn checked(&self) -> Result<(), Error> {
        if let (Some(initial_bytes), Some(max_bytes)) = (self.initial_bytes, self.max_bytes)
            && initial_bytes > max_bytes
        {
            return Err(Error::Option {
                option: "initial_bytes",
                found: initial_bytes.to_string(),
                allowed: format!("at most max_bytes, which is {max_bytes}"),
            });
        }
        Ok(())
    }
}

/// Which index a map is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum IndexKind {
    /// BzTree, a latch-free B+-tree on PMwCAS.
    #[default]
    BzTree,
}

impl fmt::Display for IndexKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::BzTree => "BzTree",
        })
    }
}

/// Where a record's value lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ValueMode {
    /// Inside the leaf, beside its key; values too long for a leaf in blocks of their own.
    #[default]
    Inline,
    /// Each in a block of its own, which the leaf points to.
    Pointer,
}

impl fmt::Display for ValueMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Inline => "inline",
            Self::Pointer => "pointer",
        })
    }
}

/// How a map is created. A map keeps the options it was created with: when a map that is there
/// is opened, what is left out here is taken as found, and what is set has to agree.
///
/// ```
/// use pando::{MapOptions, Pool, PoolOptions, ValueMode};
///
/// let pool = Pool::volatile(&PoolOptions::new())?;
/// let options = MapOptions::new().leaf_bytes(4096).value_mode(ValueMode::Pointer);
/// let map = pool.map_with("wide", &options)?;
/// # Ok::<(), pando::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapOptions {
    pub(crate) kind: Option<IndexKind>,
    pub(crate) leaf_bytes: Option<u32>,
    pub(crate) inner_bytes: Option<u32>,
    pub(crate) free_bytes: Option<u32>,
    pub(crate) merge_bytes: Option<u32>,
    pub(crate) inline_bytes: Option<u32>,
    pub(crate) value_mode: Option<ValueMode>,
}

impl MapOptions {
    /// Everything left to the defaults: a [`IndexKind::BzTree`] with inline values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which index the map is.
    pub fn kind(mut self, kind: IndexKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// The size of a leaf: one whose records and free space would take more bytes is split.
    pub fn leaf_bytes(mut self, leaf_bytes: u32) -> Self {
        self.leaf_bytes = Some(leaf_bytes);
        self
    }

    /// The size of an inner node: one that would take more bytes is split.
    pub fn inner_bytes(mut self, inner_bytes: u32) -> Self {
        self.inner_bytes = Some(inner_bytes);
        self
    }

    /// The room in bytes that a new leaf has for inserts and updates.
    pub fn free_bytes(mut self, free_bytes: u32) -> Self {
        self.free_bytes = Some(free_bytes);
        self
    }

    /// The live size in bytes under which a leaf is merged with a neighbour that has room.
    pub fn merge_bytes(mut self, merge_bytes: u32) -> Self {
        self.merge_bytes = Some(merge_bytes);
        self
    }

    /// The length in bytes from which on a value has a block of its own even if values are inline.
    pub fn inline_bytes(mut self, inline_bytes: u32) -> Self {
        self.inline_bytes = Some(inline_bytes);
        self
    }

    /// Where a record's value lives.
    pub fn value_mode(mut self, value_mode: ValueMode) -> Self {
        self.value_mode = Some(value_mode);
        self
    }

    /// Whether a map `name` that was created as `found` may be opened with these options.
    pub(crate) fn agrees_with(&self, name: &str, found: &MapOptions) -> Result<(), Error> {
        if let (Some(asked), Some(found)) = (self.kind, found.kind)
            && asked != found
        {
            return Err(Error::MapKindDiffers { name: name.to_owned(), found, asked });
        }
        agree(name, "leaf_bytes", self.leaf_bytes, found.leaf_bytes)?;
        agree(name, "inner_bytes", self.inner_bytes, found.inner_bytes)?;
        agree(name, "free_bytes", self.free_bytes, found.free_bytes)?;
        agree(name, "merge_bytes", self.merge_bytes, found.merge_bytes)?;
        agree(name, "inline_bytes", self.inline_bytes, found.inline_bytes)?;
        agree(name, "value_mode", self.value_mode, found.value_mode)
    }
}

fn agree<T: PartialEq + fmt::Display>(
    name: &str,
    option: &'static str,
    asked: Option<T>,
    found: Option<T>,
) -> Result<(), Error> {
    match (asked, found) {
        (Some(asked), Some(found)) if asked != found => Err(Error::MapOptionDiffers {
            name: name.to_owned(),
            option,
            found: found.to_string(),
            asked: asked.to_string(),
        }),
        _ => Ok(()),
    }
}
