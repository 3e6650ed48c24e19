//! Options of pools and maps, with the defaults a user would keep.

use std::fmt;

use pando_pmwcas::maps::Settings;
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
    /// torn it. Its maps cannot be used then, only copied out by
    /// [`Pool::salvage`](crate::Pool::salvage); load the copy into a new pool. It stays one that is
    /// refused otherwise, however it is closed. False by default.
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }

    pub(crate) fn checked(&self) -> Result<(), Error> {
        if let (Some(initial_bytes), Some(max_bytes)) = (self.initial_bytes, self.max_bytes)
            && initial_bytes > max_bytes
        {
            return Err(Error::Option {
                option: "initial_bytes".to_owned(),
                found: initial_bytes.to_string(),
                allowed: format!("at most max_bytes, which is {max_bytes}"),
            });
        }
        Ok(())
    }
}

/// How a map is created: which kind of index it is, and what is set of it ([`kinds`](crate::kinds)
/// lists both). A map keeps what it was created with: when a map that is there is opened, what is
/// left out here is taken as found, and what is set has to agree.
///
/// ```
/// use pando::{MapOptions, Pool, PoolOptions};
///
/// let pool = Pool::volatile(&PoolOptions::new())?;
/// let options = MapOptions::new().kind("bztree").set("leaf_bytes", 4096).set("value_mode", "pointer");
/// let map = pool.map_with("wide", &options)?;
/// # Ok::<(), pando::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapOptions {
    pub(crate) kind: Option<String>,
    pub(crate) settings: Vec<(String, String)>,
}

impl MapOptions {
    /// Everything left to the defaults: a BzTree with values in its leaves.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which kind of index the map is.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Sets the setting `name` of that kind to `value`: a number, or one of its words. The last one
    /// counts if a name is set twice.
    pub fn set(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.settings.push((name.into(), value.to_string()));
        self
    }

    /// `settings` with what is set here.
    pub(crate) fn applied_to(&self, mut settings: Settings) -> Result<Settings, Error> {
        for (name, value) in &self.settings {
            settings.set(name, value)?;
        }
        Ok(settings)
    }

    /// Whether a map `name`, of `kind` and created with `settings`, may be opened with these options.
    pub(crate) fn agrees_with(
        &self,
        name: &str,
        kind: &'static str,
        settings: &Settings,
    ) -> Result<(), Error> {
        if let Some(asked) = self.kind.as_ref().filter(|asked| *asked != kind) {
            let (name, asked) = (name.to_owned(), asked.clone());
            return Err(Error::MapKindDiffers { name, found: kind, asked });
        }
        let asked = self.applied_to(settings.clone())?;
        let pairs = settings.iter().zip(asked.iter());
        match pairs.into_iter().find(|((_, found), (_, asked))| found != asked) {
            None => Ok(()),
            Some(((setting, found), (_, asked))) => Err(Error::MapOptionDiffers {
                name: name.to_owned(),
                option: setting.name,
                found: setting.text(found),
                asked: setting.text(asked),
            }),
        }
    }
}
