//! The engine on a pool of persistent memory, for one persistence domain.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use pando_index::RangeIndex;
use pando_pmem::catalog::{MAX_NAME_BYTES, MapEntry, MapHeader};
use pando_pmem::counting::Counting;
use pando_pmem::{
    Adr, CreateOptions, Domain, DomainKind, Eadr, Guard, OpenPool, Process, Volatile, medium,
};
use pando_pmwcas::maps::{MapError, Settings};
use pando_pmwcas::{Pmwcas, Recovered};

use super::kinds::{kind_called, kind_of};
use super::{Engine, audit};
use crate::report::{CheckReport, MapInfo, PoolStat, RecoveryStat};
use crate::{DomainChoice, Error, MapOptions, PoolOptions};

/// Creates a pool in a new file.
pub(super) fn create(path: &Path, options: &PoolOptions) -> Result<Box<dyn Engine>, Error> {
    let domain = match named(options.domain) {
        Some(domain) => domain,
        None => {
            // What the file will lie on is known when it is there. `Adr` is right on any medium.
            let pool = pando_pmem::Pool::<Adr>::create(path, &create_options(options))
                .map_err(pool_error)?;
            let domain = pool.medium().domain();
            drop(pool);
            return open_in(domain, path, options);
        }
    };
    let create_options = create_options(options);
    fn start<D: Domain>(path: &Path, options: &CreateOptions) -> Result<Box<dyn Engine>, Error> {
        Pooled::start(|| pando_pmem::Pool::<D>::create(path, options))
    }
    match domain {
        DomainKind::Volatile => start::<Volatile>(path, &create_options),
        DomainKind::Process => start::<Process>(path, &create_options),
        DomainKind::Eadr => start::<Eadr>(path, &create_options),
        DomainKind::Adr => start::<Adr>(path, &create_options),
        DomainKind::Counting => start::<Counting>(path, &create_options),
    }
}

/// Opens a pool.
pub(super) fn open(path: &Path, options: &PoolOptions) -> Result<Box<dyn Engine>, Error> {
    let domain = match named(options.domain) {
        Some(domain) => domain,
        // A file that cannot be looked at is refused with the reason by what opens it.
        None => OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .and_then(|file| medium::find(&file))
            .map_or(DomainKind::Process, medium::Medium::domain),
    };
    open_in(domain, path, options)
}

fn open_in(
    domain: DomainKind,
    path: &Path,
    options: &PoolOptions,
) -> Result<Box<dyn Engine>, Error> {
    let options = OpenPool { salvage: options.salvage };
    fn start<D: Domain>(path: &Path, options: &OpenPool) -> Result<Box<dyn Engine>, Error> {
        Pooled::start(|| pando_pmem::Pool::<D>::open(path, options))
    }
    match domain {
        DomainKind::Volatile => start::<Volatile>(path, &options),
        DomainKind::Process => start::<Process>(path, &options),
        DomainKind::Eadr => start::<Eadr>(path, &options),
        DomainKind::Adr => start::<Adr>(path, &options),
        DomainKind::Counting => start::<Counting>(path, &options),
    }
}

/// A pool on anonymous memory.
pub(super) fn volatile(options: &PoolOptions) -> Result<Box<dyn Engine>, Error> {
    let create_options = create_options(options);
    fn start<D: Domain>(options: &CreateOptions) -> Result<Box<dyn Engine>, Error> {
        Pooled::start(|| pando_pmem::Pool::<D>::anonymous(options))
    }
    match named(options.domain).unwrap_or(DomainKind::Volatile) {
        DomainKind::Volatile => start::<Volatile>(&create_options),
        DomainKind::Process => start::<Process>(&create_options),
        DomainKind::Eadr => start::<Eadr>(&create_options),
        DomainKind::Adr => start::<Adr>(&create_options),
        DomainKind::Counting => start::<Counting>(&create_options),
    }
}

fn named(choice: DomainChoice) -> Option<DomainKind> {
    match choice {
        DomainChoice::Auto => None,
        DomainChoice::Volatile => Some(DomainKind::Volatile),
        DomainChoice::Process => Some(DomainKind::Process),
        DomainChoice::Eadr => Some(DomainKind::Eadr),
        DomainChoice::Adr => Some(DomainKind::Adr),
        DomainChoice::Counting => Some(DomainKind::Counting),
    }
}

fn create_options(options: &PoolOptions) -> CreateOptions {
    let default = CreateOptions::default();
    let max_bytes = options.max_bytes.unwrap_or(default.max_bytes);
    // A pool that may not grow as far as pools begin by default begins with what it may have.
    let initial_bytes = options.initial_bytes.unwrap_or(default.initial_bytes.min(max_bytes));
    CreateOptions { max_bytes, initial_bytes, ..default }
}

/// An open pool under the domain `D`.
struct Pooled<D: Domain> {
    pmwcas: Arc<Pmwcas<D>>,
    recovery: RecoveryStat,
}

impl<D: Domain> Pooled<D> {
    fn start(
        open: impl FnOnce() -> pando_pmem::Result<Arc<pando_pmem::Pool<D>>>,
    ) -> Result<Box<dyn Engine>, Error> {
        let begin = Instant::now();
        let pool = open().map_err(pool_error)?;
        let was_clean = pool.was_clean();
        let pmwcas = Arc::new(Pmwcas::open(pool, &[]).map_err(storage)?);
        let duration_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let Recovered { rolled_forward, rolled_back, .. } = pmwcas.recovered();
        let recovery = RecoveryStat { was_clean, duration_ns, rolled_forward, rolled_back };
        Ok(Box::new(Self { pmwcas, recovery }))
    }

    fn pin(&self) -> Result<Guard<'_, D>, Error> {
        self.pmwcas.pool().pin().map_err(pool_error)
    }

    fn entries(&self) -> Result<Vec<MapEntry>, Error> {
        Ok(self.pmwcas.maps(&self.pin()?))
    }

    /// The map `name`, which the caller knows to be there.
    fn entry(&self, guard: &Guard<'_, D>, name: &str) -> Result<(MapEntry, MapHeader), Error> {
        let found = self.pmwcas.find_map(guard, name).and_then(|entry| {
            let header = entry.header.clone()?;
            Some((entry, header))
        });
        found.ok_or_else(|| Error::MapNotFound { name: name.to_owned(), present: Vec::new() })
    }
}

impl<D: Domain> Engine for Pooled<D> {
    fn max_map_name_bytes(&self) -> usize {
        MAX_NAME_BYTES
    }

    fn map_settings(&self, name: &str) -> Result<Option<(&'static str, Settings)>, Error> {
        let guard = self.pin()?;
        let entry = self.pmwcas.find_map(&guard, name);
        let Some(header) = entry.and_then(|entry| entry.header) else { return Ok(None) };
        let kind = kind_of::<D>(&header)?;
        let settings = Settings::decode(kind.settings(), header.options).map_err(storage)?;
        Ok(Some((kind.name(), settings)))
    }

    fn create_map(&self, name: &str, options: &MapOptions) -> Result<(), Error> {
        let kind = kind_called::<D>(options.kind.as_deref())?;
        let settings = options.applied_to(Settings::new(kind.settings()))?;
        kind.create(&self.pmwcas, name, &settings).map_err(map_error)
    }

    fn open_map(&self, name: &str) -> Result<Arc<dyn RangeIndex>, Error> {
        let (entry, header) = self.entry(&self.pin()?, name)?;
        kind_of(&header)?.open(&self.pmwcas, &entry).map_err(map_error)
    }

    fn maps(&self) -> Result<Vec<MapInfo>, Error> {
        let headers = self.entries()?.into_iter().filter_map(|entry| entry.header);
        let info = |header: MapHeader| MapInfo {
            kind: kind_of::<D>(&header)
                .map_or_else(|_| format!("kind {}", header.kind), |kind| kind.name().to_owned()),
            name: header.name,
        };
        Ok(headers.map(info).collect())
    }

    fn drop_map(&self, name: &str) -> Result<(), Error> {
        let (entry, header) = self.entry(&self.pin()?, name)?;
        kind_of(&header)?.drop_map(&self.pmwcas, &entry)
    }

    fn stat(&self) -> Result<PoolStat, Error> {
        let mut maps = Vec::new();
        for entry in self.entries()? {
            if let Some(header) = &entry.header {
                let kind = kind_of(header)?;
                let audit = kind.walk(&self.pmwcas, &entry, &mut |_, _| ())?;
                let settings =
                    Settings::decode(kind.settings(), header.options).map_err(storage)?;
                maps.push(audit::map_stat(&header.name, kind.name(), &settings, audit.stat));
            }
        }
        maps.sort_by(|left, right| left.name.cmp(&right.name));
        let recovery = self.recovery.clone();
        audit::pool_stat(self.pmwcas.pool(), recovery, maps).map_err(pool_error)
    }

    fn check(&self) -> Result<CheckReport, Error> {
        let mut check = audit::Check::default();
        for entry in self.entries()? {
            match &entry.header {
                Some(header) => {
                    let audit = kind_of(header)?.walk(&self.pmwcas, &entry, &mut |_, _| ())?;
                    check.map(&entry, &header.name, audit);
                }
                None => check.damaged_map(&entry),
            }
        }
        check.finish(self.pmwcas.pool()).map_err(pool_error)
    }

    fn salvage(
        &self,
        name: &str,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<CheckReport, Error> {
        let (entry, header) = self.entry(&self.pin()?, name)?;
        let audit = kind_of(&header)?.walk(&self.pmwcas, &entry, visit)?;
        let mut check = audit::Check::default();
        check.map(&entry, name, audit);
        Ok(check.of_maps_alone())
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        // Maps that are still open keep the pool open; it then closes with the last of them.
        match Arc::into_inner(self.pmwcas) {
            Some(pmwcas) => pando_pmem::Pool::close(pmwcas.into_pool()).map_err(pool_error),
            None => Ok(()),
        }
    }
}

fn storage(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Storage(Box::new(error))
}

fn pool_error(error: pando_pmem::Error) -> Error {
    use pando_pmem::Error as Pool;
    match error {
        Pool::Exists(path) => Error::PoolExists { path },
        Pool::AlreadyOpen(path) => Error::PoolBusy { path },
        Pool::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Error::PoolNotFound { path }
        }
        Pool::Io { path, action, source } => Error::Io { action, path, source },
        Pool::BadOption { option, found, allowed } => {
            Error::Option { option: option.to_owned(), found: found.to_string(), allowed }
        }
        other => storage(other),
    }
}

pub(super) fn map_error(error: MapError) -> Error {
    match error {
        MapError::Setting(refused) => refused.into(),
        MapError::BadName { found } => Error::MapName { name: found, max_bytes: MAX_NAME_BYTES },
        other => storage(other),
    }
}
