//! From the command line to an open pool, and from arguments to keys.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pando::{
    DomainChoice, Error, LogFiles, Map, MapOptions, Pool, PoolOptions, RecoveryProgress, Store,
    StoreFiles,
};

use crate::arguments::PoolArguments;
use crate::arguments::named_map::{CreateArguments, ForceArgument, MapArgument, SlotArguments};
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
        let options =
            options.on_recovery(report_recovery("the pool is lost; it is rebuilt from its log"));
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
            if !has_store(store)? {
                return Err(Failure::NoStore(store.to_owned()));
            }
            return self.open_store(store);
        }
        Ok(Pool::open(self.path_or_default()?, &self.options())?)
    }

    /// The directory of the store, if one is named. (The command line's parser does not see options
    /// that contradict each other before and behind the name of the command.)
    pub fn store(&self) -> Result<Option<&Path>, Failure> {
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

    /// Opens the pool, or the store, for a command that only reads: a store also if this process
    /// may not write there.
    pub fn open_to_read(&self) -> Result<Pool, Failure> {
        let Some(files) = self.unwritable_store()? else { return self.open() };
        let memory_bytes = self.store_memory_bytes();
        let opened = files.open(memory_bytes);
        Ok(opened.map_err(|error| with_memory(memory_bytes, error))?.into_pool())
    }

    /// The files of the store, if this process may not write there.
    pub fn unwritable_store(&self) -> Result<Option<StoreFiles>, Failure> {
        let Some(store) = self.store()? else { return Ok(None) };
        let files = StoreFiles::at(store);
        let is_unwritable = has_store(store)? && !files.is_writable();
        Ok(is_unwritable.then_some(files))
    }

    /// The memory for the pages of the store.
    pub fn store_memory_bytes(&self) -> u64 {
        self.memory.unwrap_or(STORE_MEMORY_BYTES)
    }

    /// Opens the store, and creates it if there is none.
    fn open_store(&self, path: &Path) -> Result<Pool, Failure> {
        let memory_bytes = self.store_memory_bytes();
        let opened = Store::open(path, memory_bytes);
        Ok(opened.map_err(|error| with_memory(memory_bytes, error))?.into_pool())
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

    /// Refuses `--sync` for the map `name` of a pool that `create` would create without a log for
    /// it, so that no pool is created in vain.
    pub fn refuse_sync_of_new(&self, name: &str, create: &CreateArguments) -> Result<(), Failure> {
        if !create.create || self.store.is_some() || self.path_or_default()?.exists() {
            return Ok(());
        }
        match &self.log {
            None => Err(Error::NoLog.into()),
            // In a log that exists, a lost pool may have this map.
            Some(log) if !create.transactional && !log.exists() => {
                Err(sync_needs_transactional(name))
            }
            Some(_) => Ok(()),
        }
    }

    /// Refuses `--sync` for the map `name` of `pool` if no log has its records. `create` is for a
    /// command that creates a missing map. To be called before that.
    pub fn refuse_sync_without_log(
        &self,
        pool: &Pool,
        name: &str,
        create: Option<&CreateArguments>,
    ) -> Result<(), Failure> {
        if self.store.is_some() {
            // Its log has all maps.
            return Ok(());
        }
        // An error names the remedy, --log.
        pool.durable_lsn()?;
        match (pool.open_map(name), create) {
            (Ok(map), _) if map.is_transactional() => Ok(()),
            (Ok(_), _) => Err(Failure::Input(format!(
                "--sync: the map {name:?} is not transactional, so the log has none of its \
                 records, and a power cut loses them; copy it by `pando maps copy {name} NEW \
                 --transactional`, or leave out --sync"
            ))),
            (Err(Error::MapNotFound { .. }), Some(create)) if create.transactional => Ok(()),
            (Err(Error::MapNotFound { .. }), Some(_)) => Err(sync_needs_transactional(name)),
            (Err(error), _) => Err(error.into()),
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

/// Whether a store is in the directory; an error if the system does not say.
fn has_store(store: &Path) -> Result<bool, Failure> {
    let pages = store.join("pages");
    match pages.metadata() {
        Ok(metadata) => Ok(metadata.is_dir()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(source) => Err(Failure::file("look at", &pages)(source)),
    }
}

/// An error about the memory for pages names the command's option.
fn with_memory(memory_bytes: u64, error: Error) -> Failure {
    match error {
        Error::Option { option, allowed, .. }
            if ["memory_bytes", "max_bytes"].contains(&option.as_str()) =>
        {
            Failure::Input(format!("--memory is {memory_bytes}; allowed is {allowed}"))
        }
        error => error.into(),
    }
}

/// Prints `note`, and how far the recovery of a pool from a log has come.
pub fn report_recovery(note: &'static str) -> impl Fn(RecoveryProgress) + Send + Sync {
    // Begun when the recovery begins.
    let progress = OnceLock::new();
    move |so_far| {
        let progress = progress.get_or_init(|| {
            let progress = Progress::new("recovered", None);
            progress.note(&format!("pando: {note}"));
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

/// The name of a copy of a map that is not complete.
pub const INCOMPLETE_COPY: &str = ".copy";

impl ForceArgument {
    /// Returns an error if the map `name` is not the user's.
    pub fn check<'name>(&self, name: &'name str) -> Result<&'name str, Failure> {
        let owner = owner(name).filter(|_| !self.force);
        owner.map_or(Ok(name), |owner| {
            Err(Failure::Input(format!(
                "{owner} in the map {name:?}; use another map, or --force if you are sure"
            )))
        })
    }
}

/// The use of the map `name`, if Pando itself uses it.
fn owner(name: &str) -> Option<&'static str> {
    match name {
        pando_server::MAP_NAME => {
            Some("`pando serve` keeps its keys, for its clients and in a format of its own,")
        }
        pando::SESSIONS_MAP => Some("sessions of programs keep their receipts"),
        INCOMPLETE_COPY => Some("`pando maps copy` keeps a copy that is not complete"),
        _ => None,
    }
}

/// Whether a command takes the map `name` only with `--force`.
pub fn needs_force(name: &str) -> bool {
    owner(name).is_some()
}

fn sync_needs_transactional(name: &str) -> Failure {
    Failure::Input(format!(
        "--sync: there is no map {name:?} yet, and the log has only records of transactional maps; \
         add --transactional to create it as one, or leave out --sync"
    ))
}

/// The map to write to, and whether it is new.
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
    Ok((pool.map_with(name, &options)?, is_new))
}

/// Reports a map that was created without `--create`: its name may be misspelt.
pub fn report_new_map(name: &str, create: &CreateArguments) {
    if !create.create {
        eprintln!("pando: created the map {name:?}");
    }
}

/// The bytes of an escaped key or value on the command line.
pub fn argument_bytes(name: &str, argument: &OsStr) -> Result<Vec<u8>, Failure> {
    escape::unescaped(argument.as_bytes())
        .map_err(|error| Failure::Input(format!("{name} {}: {error}", argument.display())))
}
