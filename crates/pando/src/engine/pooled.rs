//! The engine on a pool of persistent memory, for one persistence domain.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use pando_bztree::BzTree;
use pando_index::RangeIndex;
use pando_pmem::catalog::{MAX_NAME_BYTES, MapEntry, MapHeader};
use pando_pmem::counting::Counting;
use pando_pmem::{
    Adr, CreateOptions, Domain, DomainKind, Eadr, Guard, OpenPool, Process, Volatile, medium,
};
use pando_pmwcas::{MapError, Pmwcas, Recovered};

use super::{Engine, audit};
use crate::report::{CheckReport, MapInfo, PoolStat, RecoveryStat};
use crate::{DomainChoice, Error, IndexKind, MapOptions, PoolOptions, ValueMode};

/// The number of a BzTree in the catalog.
const KIND_BZTREE: u64 = 1;

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

    /// The map `name`, which the caller knows to be there.
    fn entry(&self, guard: &Guard<'_, D>, name: &str) -> Result<(MapEntry, MapHeader), Error> {
        let found = self.pmwcas.find_map(guard, name).and_then(|entry| {
            let header = entry.header.clone()?;
            Some((entry, header))
        });
        found.ok_or_else(|| Error::MapNotFound { name: name.to_owned(), present: Vec::new() })
    }

    fn tree(&self, entry: &MapEntry, header: &MapHeader) -> Result<BzTree<D>, Error> {
        let options = tree_options(header)?;
        Ok(BzTree::open(Arc::clone(&self.pmwcas), entry.root_off(), options))
    }
}

impl<D: Domain> Engine for Pooled<D> {
    fn max_map_name_bytes(&self) -> usize {
        MAX_NAME_BYTES
    }

    fn map_options(&self, name: &str) -> Result<Option<MapOptions>, Error> {
        let guard = self.pin()?;
        let entry = self.pmwcas.find_map(&guard, name);
        let Some(header) = entry.and_then(|entry| entry.header) else { return Ok(None) };
        let found = tree_options(&header)?;
        Ok(Some(MapOptions {
            kind: Some(IndexKind::BzTree),
            leaf_bytes: Some(found.leaf_bytes),
            inner_bytes: Some(found.inner_bytes),
            free_bytes: Some(found.free_bytes),
            merge_bytes: Some(found.merge_bytes),
            inline_bytes: Some(found.inline_bytes),
            value_mode: Some(value_mode(found.value_mode)),
        }))
    }

    fn create_map(&self, name: &str, options: &MapOptions) -> Result<(), Error> {
        let default = pando_bztree::Options::default();
        let options = pando_bztree::Options {
            leaf_bytes: options.leaf_bytes.unwrap_or(default.leaf_bytes),
            inner_bytes: options.inner_bytes.unwrap_or(default.inner_bytes),
            free_bytes: options.free_bytes.unwrap_or(default.free_bytes),
            merge_bytes: options.merge_bytes.unwrap_or(default.merge_bytes),
            inline_bytes: options.inline_bytes.unwrap_or(default.inline_bytes),
            value_mode: match options.value_mode {
                Some(ValueMode::Inline) => pando_bztree::ValueMode::Inline,
                Some(ValueMode::Pointer) => pando_bztree::ValueMode::Pointer,
                None => default.value_mode,
            },
        };
        let options = options.check().map_err(|error| Error::Option {
            option: error.option,
            found: error.found.to_string(),
            allowed: error.allowed,
        })?;
        let header =
            MapHeader { name: name.to_owned(), kind: KIND_BZTREE, options: options.encode() };
        let guard = self.pin()?;
        let first_leaf = || BzTree::first_leaf(&self.pmwcas, &guard, &options);
        self.pmwcas.find_or_create_map(&guard, &header, &first_leaf).map_err(map_error)?;
        Ok(())
    }

    fn open_map(&self, name: &str) -> Result<Arc<dyn RangeIndex>, Error> {
        let guard = self.pin()?;
        let (entry, header) = self.entry(&guard, name)?;
        Ok(Arc::new(self.tree(&entry, &header)?))
    }

    fn maps(&self) -> Result<Vec<MapInfo>, Error> {
        let guard = self.pin()?;
        let headers = self.pmwcas.maps(&guard).into_iter().filter_map(|entry| entry.header);
        Ok(headers.map(|header| MapInfo { name: header.name, kind: IndexKind::BzTree }).collect())
    }

    fn drop_map(&self, name: &str) -> Result<(), Error> {
        let guard = self.pin()?;
        let (entry, header) = self.entry(&guard, name)?;
        drop(guard);
        Ok(self.tree(&entry, &header)?.drop_map(&entry)?)
    }

    fn stat(&self) -> Result<PoolStat, Error> {
        let guard = self.pin()?;
        let entries = self.pmwcas.maps(&guard);
        drop(guard);
        let mut maps = Vec::new();
        for entry in &entries {
            if let Some(header) = &entry.header {
                maps.push(audit::map_stat(&header.name, &self.tree(entry, header)?)?);
            }
        }
        maps.sort_by(|left, right| left.name.cmp(&right.name));
        let recovery = self.recovery.clone();
        Ok(audit::pool_stat(self.pmwcas.pool(), recovery, maps))
    }

    fn check(&self) -> Result<CheckReport, Error> {
        let guard = self.pin()?;
        let entries = self.pmwcas.maps(&guard);
        drop(guard);
        let mut check = audit::Check::default();
        for entry in &entries {
            match &entry.header {
                Some(header) => check.map(entry, &header.name, &self.tree(entry, header)?)?,
                None => check.damaged_map(entry),
            }
        }
        Ok(check.finish(self.pmwcas.pool()))
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        // Maps that are still open keep the pool open; it then closes with the last of them.
        match Arc::into_inner(self.pmwcas) {
            Some(pmwcas) => pando_pmem::Pool::close(pmwcas.into_pool()).map_err(pool_error),
            None => Ok(()),
        }
    }
}

fn tree_options(header: &MapHeader) -> Result<pando_bztree::Options, Error> {
    if header.kind != KIND_BZTREE {
        let (name, kind) = (&header.name, header.kind);
        let message = format!(
            "the map {name:?} is of kind {kind}, which this version does not know; use a newer one"
        );
        return Err(Error::Storage(message.into()));
    }
    pando_bztree::Options::decode(header.options).map_err(storage)
}

/// How the face calls a mode of the tree.
pub(super) fn value_mode(mode: pando_bztree::ValueMode) -> ValueMode {
    match mode {
        pando_bztree::ValueMode::Inline => ValueMode::Inline,
        pando_bztree::ValueMode::Pointer => ValueMode::Pointer,
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
            Error::Option { option, found: found.to_string(), allowed }
        }
        other => storage(other),
    }
}

fn map_error(error: MapError) -> Error {
    match error {
        MapError::BadName { found } => Error::MapName { name: found, max_bytes: MAX_NAME_BYTES },
        other => storage(other),
    }
}
