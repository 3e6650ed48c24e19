//! From the command line to an open pool, and from arguments to keys.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pando::{
    DomainChoice, Error, LogFiles, Map, MapOptions, Pool, PoolOptions, RecoveryProgress, Store,
};

use crate::arguments::{CreateArguments, ForceArgument, MapArgument, PoolArguments, SlotArguments};
use crate::failure::Failure;
use crate::format::escape;
use crate::progress::Progress;

/// Memory for the pages of a store.
const STORE_MEMORY_BYTES: u64 = 256 << 20;

impl PoolArguments {
    /// The pool's file: the option, else the environment, else the default.
    pub fn path_or_default(&self) -> Result<PathBuf, Failure> {
        if let Some(store) = &self.store {
            return Err(Failure::Input(format!(
                "this command takes a pool, and {} is a store; name a pool by --pool",
                store.display()
            )));
        }
        if let Some(path) = &self.path {
            return Ok(path.clone());
        }
        match std::env::var_os("PANDO_POOL") {
            Some(path) if path.is_empty() => Err(Failure::Input(
                "the environment variable PANDO_POOL is empty; set it to the path of a pool, or \
                 unset it"
                    .to_owned(),
            )),
            Some(path) => Ok(PathBuf::from(path)),
            None => Ok(PathBuf::from("pando.pool")),
        }
    }

    fn has_default_domain(&self) -> bool {
        self.domain.unwrap_or_default() == DomainChoice::Auto
    }

    /// The options to create or open the pool with.
    pub fn options(&self) -> PoolOptions {
        let options =
            PoolOptions::new().domain(self.domain.unwrap_or_default()).salvage(self.salvage);
        let options = options.shared(self.shared);
        let options = options.on_recovery(report_recovery());
        self.log.iter().fold(options, |options, log| options.log(log))
    }

    /// Returns an error if an option says how to open a pool, for a `command` that opens none.
    pub fn refuse_for(&self, command: &str) -> Result<(), Failure> {
        let is_default =
            self.has_default_domain() && !self.salvage && !self.shared && self.log.is_none();
        if self.path.is_none() && self.store.is_none() && is_default {
            return Ok(());
        }
        Err(Failure::Input(format!(
            "{command} opens no pool of yours; leave out --pool, --store, --domain, --log, \
             --shared and --salvage"
        )))
    }

    /// Opens the pool, or the store.
    pub fn open(&self) -> Result<Pool, Failure> {
        if let Some(store) = self.store()? {
            if !store.join("pages").is_dir() {
                return Err(Failure::Input(format!(
                    "there is no store in {}; create it with --create, or check the path",
                    store.display()
                )));
            }
            return self.open_store(store);
        }
        Ok(Pool::open(self.path_or_default()?, &self.options())?)
    }

    /// The directory of the store, if one is named. (The command line's parser does not see options
    /// that contradict each other before and behind the name of the command.)
    fn store(&self) -> Result<Option<&Path>, Failure> {
        let is_of_pool = self.path.is_some()
            || self.log.is_some()
            || self.salvage
            || self.shared
            || !self.has_default_domain();
        match &self.store {
            Some(_) if is_of_pool => Err(Failure::Input(
                "--store takes none of --pool, --log, --domain, --shared and --salvage: a store is \
                 no pool"
                    .to_owned(),
            )),
            None if self.memory.is_some() => Err(Failure::Input(
                "--memory is for the pages of a store; name it by --store".to_owned(),
            )),
            store => Ok(store.as_deref()),
        }
    }

    /// Opens the store, and creates it if there is none.
    fn open_store(&self, path: &Path) -> Result<Pool, Failure> {
        let memory_bytes = self.memory.unwrap_or(STORE_MEMORY_BYTES);
        Ok(Store::open(path, memory_bytes)?.into_pool())
    }

    /// The files of the pool's log; the pool is not opened.
    pub fn log_files(&self) -> Result<LogFiles, Failure> {
        if let Some(store) = &self.store {
            return Err(Failure::Input(format!(
                "{} is a store, which keeps its log itself; name a pool by --pool",
                store.display()
            )));
        }
        match &self.log {
            Some(log) => Ok(LogFiles::at(log)),
            None => Ok(LogFiles::of_pool(self.path_or_default()?)?),
        }
    }

    /// Opens the pool, or creates it if it does not exist and `create` allows it.
    pub fn open_or_create(&self, create: &CreateArguments) -> Result<Pool, Failure> {
        if !create.create {
            return self.open();
        }
        if let Some(store) = self.store()? {
            if create.max_bytes.is_some() {
                return Err(Failure::Input(
                    "--max-bytes is for a pool; a store grows with its disk".to_owned(),
                ));
            }
            return self.open_store(store);
        }
        let mut options = self.options();
        if let Some(max_bytes) = create.max_bytes {
            options = options.max_bytes(max_bytes);
        }
        Ok(Pool::open_or_create(self.path_or_default()?, &options)?)
    }
}

/// Prints how far the recovery of a lost pool has come.
fn report_recovery() -> impl Fn(RecoveryProgress) + Send + Sync {
    // Begun when the recovery begins.
    let progress = OnceLock::new();
    move |so_far| {
        let progress = progress.get_or_init(|| {
            let progress = Progress::new("recovered", None);
            progress.note("pando: the pool is lost; it is rebuilt from its log");
            progress
        });
        progress.update(0, so_far.image_records + so_far.commits);
    }
}

impl SlotArguments {
    /// The index and the options that a damaged map is assumed to have.
    pub fn options(&self) -> MapOptions {
        let named =
            self.index.iter().fold(MapOptions::new(), |options, index| options.index(index));
        self.options.iter().fold(named, |options, (name, value)| options.set(name, value))
    }
}

impl MapArgument {
    /// The map's name, unless it is a server's.
    pub fn checked_name(&self) -> Result<&str, Failure> {
        self.force.check(&self.name)
    }
}

impl ForceArgument {
    /// Returns an error if a server keeps its keys in the map `name`.
    pub fn check<'name>(&self, name: &'name str) -> Result<&'name str, Failure> {
        if self.force || name != pando_server::MAP_NAME {
            return Ok(name);
        }
        Err(Failure::Input(format!(
            "`pando serve` keeps its keys in the map {name:?}, in a format of its own; use its \
             clients, or another map, or --force if you are sure"
        )))
    }
}

/// The map to write to, and whether it is new; a map that is created without `--create` is
/// reported.
pub fn open_or_create_map(
    pool: &Pool,
    name: &str,
    create: &CreateArguments,
) -> Result<(Map, bool), Failure> {
    let is_new = match pool.open_map(name) {
        Err(Error::MapNotFound { .. }) => true,
        opened => {
            opened?;
            false
        }
    };
    let mut options = MapOptions::new();
    if create.transactional {
        options = options.transactional(true);
    }
    if let Some(index) = &create.index {
        options = options.index(index);
    }
    for (name, value) in &create.options {
        options = options.set(name, value);
    }
    let opened = pool.map_with(name, &options)?;
    if is_new && !create.create {
        // The name may be misspelt, if the pool existed before.
        eprintln!("pando: created the map {name:?}");
    }
    Ok((opened, is_new))
}

/// The bytes of an escaped key or value on the command line.
pub fn argument_bytes(name: &str, argument: &OsStr) -> Result<Vec<u8>, Failure> {
    escape::unescaped(argument.as_bytes())
        .map_err(|error| Failure::Input(format!("{name} {}: {error}", argument.display())))
}
