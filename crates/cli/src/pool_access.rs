//! From the command line to an open pool, and from arguments to keys.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use pando::{DomainChoice, Error, Map, MapOptions, Pool, PoolOptions};

use crate::arguments::{CreateArguments, MapArgument, PoolArguments};
use crate::failure::Failure;
use crate::format::escape;

impl PoolArguments {
    /// The pool's file: the option, else the environment, else the default.
    pub fn path_or_default(&self) -> PathBuf {
        self.path
            .clone()
            .or_else(|| std::env::var_os("PANDO_POOL").map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from("pando.pool"))
    }

    /// The options to create or open the pool with.
    pub fn options(&self) -> PoolOptions {
        PoolOptions::new().domain(self.domain).salvage(self.salvage)
    }

    /// Refuses what says how to open a pool, for a `command` that opens none.
    pub fn refuse_for(&self, command: &str) -> Result<(), Failure> {
        if self.path.is_none() && self.domain == DomainChoice::Auto && !self.salvage {
            return Ok(());
        }
        Err(Failure::Input(format!(
            "{command} opens no pool of yours; leave out --pool, --domain and --salvage"
        )))
    }

    /// Opens the pool.
    pub fn open(&self) -> Result<Pool, Failure> {
        Ok(Pool::open(self.path_or_default(), &self.options())?)
    }

    /// Opens the pool, or creates it if it is not there and `create` says so.
    pub fn open_or_create(&self, create: &CreateArguments) -> Result<Pool, Failure> {
        if !create.create {
            return self.open();
        }
        let mut options = self.options();
        if let Some(max_bytes) = create.max_bytes {
            options = options.max_bytes(max_bytes);
        }
        Ok(Pool::open_or_create(self.path_or_default(), &options)?)
    }
}

/// The map to write to; created, and that said, if it is not there.
pub fn open_or_create_map(
    pool: &Pool,
    map: &MapArgument,
    create: &CreateArguments,
) -> Result<Map, Failure> {
    let is_new = match pool.open_map(&map.name) {
        Err(Error::MapNotFound { .. }) => true,
        opened => {
            opened?;
            false
        }
    };
    let mut options = MapOptions::new();
    if let Some(kind) = &create.kind {
        options = options.kind(kind);
    }
    for (name, value) in &create.settings {
        options = options.set(name, value);
    }
    let opened = pool.map_with(&map.name, &options)?;
    if is_new && !create.create {
        // Perhaps a slip of the pen, in a pool that was there.
        eprintln!("pando: created the map {:?}", map.name);
    }
    Ok(opened)
}

/// The bytes of a key or a value that was given, escaped, on the command line.
pub fn argument_bytes(name: &str, argument: &OsStr) -> Result<Vec<u8>, Failure> {
    escape::unescaped(argument.as_bytes())
        .map_err(|error| Failure::Input(format!("{name} {}: {error}", argument.display())))
}
