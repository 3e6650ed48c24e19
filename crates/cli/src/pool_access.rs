//! From the command line to an open pool, and from arguments to keys.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use pando::{DomainChoice, Pool, PoolOptions};

use crate::arguments::{Domain, PoolArguments};
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
        let domain = match self.domain {
            Domain::Auto => DomainChoice::Auto,
            Domain::Volatile => DomainChoice::Volatile,
            Domain::Process => DomainChoice::Process,
            Domain::Eadr => DomainChoice::Eadr,
            Domain::Adr => DomainChoice::Adr,
        };
        PoolOptions::new().domain(domain).salvage(self.salvage)
    }

    /// Opens the pool; creates it first if `create` says so and it is not there.
    pub fn open(&self, create: bool) -> Result<Pool, Failure> {
        let path = self.path_or_default();
        if create {
            return Ok(Pool::open_or_create(path, &self.options())?);
        }
        Ok(Pool::open(path, &self.options())?)
    }
}

/// The bytes of a key or a value that was given, escaped, on the command line.
pub fn argument_bytes(name: &str, argument: &OsStr) -> Result<Vec<u8>, Failure> {
    escape::unescaped(argument.as_bytes())
        .map_err(|error| Failure::Input(format!("{name} {}: {error}", argument.display())))
}
