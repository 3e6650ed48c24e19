//! Creates, opens and restores pools: chooses the domain, and rebuilds a pool that is lost. Resets
//! logs.

use std::fs::OpenOptions;
use std::io::ErrorKind::NotFound;
use std::path::Path;
use std::sync::Arc;

use pando_device::Directory;
use pando_log::{adopt, check_owner};
use pando_pmem::superblock::Superblock;
use pando_pmem::{Adr, CreateOptions, Domain, LogName, OpenPool, Process, draw_id, medium};

use super::Engine;
use super::log_directory::{LogDirectory, has_log};
use super::pooled::Pooled;
use super::rebuild::Lost;
use super::superblock::read_superblock;
use crate::{DomainChoice, Error, PoolOptions};

/// Calls the function in the domain with write-backs, or in the one without.
macro_rules! in_domain {
    ($write_back:expr, $start:ident($($argument:expr),*)) => {
        match $write_back {
            false => $start::<Process>($($argument),*),
            true => $start::<Adr>($($argument),*),
        }
    };
}

/// Creates a pool in a new file.
pub(crate) fn create(path: &Path, options: &PoolOptions) -> Result<Box<dyn Engine>, Error> {
    if options.shared && options.log.is_some() {
        return Err(not_shareable_log());
    }
    let refused = |error| match Error::of_pool(error) {
        // The folder is missing, not the pool.
        Error::Io { cause, .. } if cause.kind() == NotFound && !is_in_a_folder(path) => {
            Error::FolderNotFound { path: folder_of(path).to_owned() }
        }
        other => other,
    };
    if path.symlink_metadata().is_ok() {
        return Err(Error::PoolExists { path: path.to_owned() });
    }
    let create_options = create_options(options);
    let mut directory = options.log.as_deref().map(LogDirectory::create).transpose()?;
    let log = match &directory {
        Some(directory) => {
            let id = draw_id(path).map_err(Error::of_pool)?;
            Some(LogName { id, path: directory.path().to_owned() })
        }
        None => None,
    };
    let write_back = match chosen(options.domain) {
        Some(write_back) => write_back,
        None => needs_write_back(path, &create_options).map_err(&refused)?,
    };
    fn start<D: Domain>(
        path: &Path,
        (options, shared): (&CreateOptions, bool),
        log: Option<LogName>,
        directory: &mut Option<LogDirectory>,
        refused: impl Fn(pando_pmem::Error) -> Error,
    ) -> Result<Box<dyn Engine>, Error> {
        let unpublished = match shared {
            true => pando_pmem::Pool::<D>::prepare_shared(path, options),
            false => pando_pmem::Pool::<D>::prepare(path, options, log),
        };
        let unpublished = unpublished.map_err(&refused)?;
        let pool = unpublished.pool().clone();
        // After the log is durable: else a power cut could leave a pool without its log.
        let publish = || unpublished.publish(false).map(drop).map_err(&refused);
        Pooled::start(|| Ok(pool), publish, false, None, directory)
    }
    in_domain!(
        write_back,
        start(path, (&create_options, options.shared), log, &mut directory, refused)
    )
}

/// Whether the medium of a file at `path` needs write-backs. It is known only when there is a file.
fn needs_write_back(path: &Path, options: &CreateOptions) -> pando_pmem::Result<bool> {
    let unpublished = pando_pmem::Pool::<Adr>::prepare(path, options, None)?;
    Ok(unpublished.pool().medium().needs_write_back())
}

fn not_shareable_log() -> Error {
    Error::NotShareable {
        what: "a pool with a log".to_owned(),
        why: "one process writes the log".to_owned(),
    }
}

/// Opens a pool, or rebuilds it from its log if it is lost.
pub(crate) fn open(path: &Path, options: &PoolOptions) -> Result<Box<dyn Engine>, Error> {
    if options.shared && options.log.is_some() {
        return Err(not_shareable_log());
    }
    let mut directory = None;
    let refused = match open_present(path, options, &mut directory) {
        Err(error) if !options.salvage && !options.shared => error,
        opened => return opened,
    };
    let Some(log) = log_of_lost(&refused, options) else { return Err(refused) };
    // Under the lock of the log no other process rebuilds the pool. One may have done so before.
    directory = Some(LogDirectory::open(path, log)?);
    match open_present(path, options, &mut directory) {
        Err(Error::NotTrusted { .. } | Error::PoolNotFound { .. }) => {}
        opened => return opened,
    }
    let superblock = match read_superblock(path) {
        Err(Error::PoolNotFound { .. }) => None,
        read => Some(read?),
    };
    let directory = match directory {
        Some(directory) => directory,
        None => LogDirectory::open(path, log)?,
    };
    // The log must belong to the untrusted file: the rebuild gives the log a new pool. A reset may
    // have been cut short when the file named the log.
    if let Some((Superblock { pool_id, .. }, log)) =
        superblock.as_ref().and_then(|pool| Some((pool, pool.log.as_ref()?)))
    {
        let files = directory.files();
        adopt(files.as_ref(), log.id, *pool_id)
            .and_then(|()| check_owner(files.as_ref(), log.id, *pool_id))
            .map_err(pando_tc::Error::from)?;
    }
    if superblock.is_none()
        && let Some(other) = directory.other_pool(path)
    {
        let (path, log) = (path.to_owned(), directory.path().to_owned());
        return Err(Error::LogOfOtherPool { path, log, other });
    }
    let pool_id = superblock.map(|superblock| superblock.pool_id);
    rebuild_in((path, pool_id), options, directory, None)
}

/// Creates a pool from a backup.
pub(crate) fn restore(
    path: &Path,
    options: &PoolOptions,
    backup: &dyn Directory,
) -> Result<Box<dyn Engine>, Error> {
    if path.symlink_metadata().is_ok() {
        return Err(Error::PoolExists { path: path.to_owned() });
    }
    let Some(log) = &options.log else {
        return Err(Error::Option {
            option: "log".to_owned(),
            found: "none".to_owned(),
            allowed: "a directory for the log of the new pool".to_owned(),
        });
    };
    rebuild_in((path, None), options, LogDirectory::create(log)?, Some(backup))
}

/// Gives a pool a new log.
pub(crate) fn reset_log(path: &Path, options: &PoolOptions) -> Result<Box<dyn Engine>, Error> {
    fn start<D: Domain>(path: &Path, options: &PoolOptions) -> Result<Box<dyn Engine>, Error> {
        let open = OpenPool { max_bytes: options.max_bytes, ..OpenPool::default() };
        Pooled::reset_log(|| open_file::<D>(path, &open), options.log.as_deref())
    }
    let reset = in_domain!(writes_back(path, options), start(path, options));
    reset.map_err(|error| match error {
        Error::PoolNotFound { path } => Error::LogIsOnlyCopy { path },
        other => other,
    })
}

fn rebuild_in(
    (path, pool_id): (&Path, Option<u128>),
    options: &PoolOptions,
    directory: LogDirectory,
    backup: Option<&dyn Directory>,
) -> Result<Box<dyn Engine>, Error> {
    let write_back = match chosen(options.domain) {
        Some(write_back) => write_back,
        None => needs_write_back(path, &create_options(options)).map_err(Error::of_pool)?,
    };
    let lost = Lost {
        path,
        pool_id,
        max_bytes: options.max_bytes,
        initial_bytes: options.initial_bytes,
        on_recovery: options.on_recovery.as_ref(),
    };
    fn start<D: Domain>(
        lost: &Lost<'_>,
        directory: LogDirectory,
        backup: Option<&dyn Directory>,
    ) -> Result<Box<dyn Engine>, Error> {
        Pooled::<D>::rebuild(lost, directory, backup)
    }
    in_domain!(write_back, start(&lost, directory, backup))
}

/// The log of a pool that could not be opened because it is lost.
fn log_of_lost<'error>(
    refused: &'error Error,
    options: &'error PoolOptions,
) -> Option<&'error Path> {
    match refused {
        Error::NotTrusted { log: Some(log), .. } => Some(options.log.as_ref().unwrap_or(log)),
        Error::PoolNotFound { .. } => options.log.as_ref().filter(|log| has_log(log)),
        _ => None,
    }
    .map(AsRef::as_ref)
}

/// Opens a pool whose file is there. `directory` is taken out if it is used.
fn open_present(
    path: &Path,
    options: &PoolOptions,
    directory: &mut Option<LogDirectory>,
) -> Result<Box<dyn Engine>, Error> {
    fn start<D: Domain>(
        path: &Path,
        options: &PoolOptions,
        directory: &mut Option<LogDirectory>,
    ) -> Result<Box<dyn Engine>, Error> {
        let PoolOptions { salvage, max_bytes, shared, .. } = *options;
        let open = OpenPool { salvage, max_bytes, shared };
        let open = || open_file::<D>(path, &open);
        Pooled::start(open, || Ok(()), salvage, options.log.as_deref(), directory)
    }
    in_domain!(writes_back(path, options), start(path, options, directory))
}

/// Whether a pool whose file is there is opened with write-backs.
fn writes_back(path: &Path, options: &PoolOptions) -> bool {
    chosen(options.domain).unwrap_or_else(|| {
        // If the file cannot be opened here, `open_file` refuses it with the reason.
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .and_then(|file| medium::find(&file))
            .is_ok_and(medium::Medium::needs_write_back)
    })
}

/// Opens the file of a pool.
fn open_file<D: Domain>(path: &Path, open: &OpenPool) -> Result<Arc<pando_pmem::Pool<D>>, Error> {
    pando_pmem::Pool::<D>::open(path, open).map_err(|error| match Error::of_pool(error) {
        // A symbolic link without a target exists, so that its error is another one.
        Error::Io { path, cause, .. }
            if cause.kind() == NotFound && path.symlink_metadata().is_err() =>
        {
            Error::PoolNotFound { path }
        }
        other => other,
    })
}

/// A pool on anonymous memory.
pub(crate) fn volatile(options: &PoolOptions) -> Result<Box<dyn Engine>, Error> {
    fn start<D: Domain>(options: &CreateOptions) -> Result<Box<dyn Engine>, Error> {
        let create = || pando_pmem::Pool::<D>::anonymous(options).map_err(Error::of_pool);
        Pooled::start(create, || Ok(()), false, None, &mut None)
    }
    let refused = |option: &str, found, allowed: &str| {
        let (option, allowed) = (option.to_owned(), allowed.to_owned());
        Err(Error::Option { option, found, allowed })
    };
    if let Some(log) = &options.log {
        let found = log.display().to_string();
        return refused("log", found, "none, for a pool on anonymous memory");
    }
    if options.shared {
        return refused("shared", "true".to_owned(), "false, for a pool on anonymous memory");
    }
    let write_back = chosen(options.domain).unwrap_or(false);
    in_domain!(write_back, start(&create_options(options)))
}

/// The folder that the file at `path` lies in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn is_in_a_folder(path: &Path) -> bool {
    folder_of(path).is_dir()
}

/// Whether the choice is for write-backs; `None` if the medium decides.
fn chosen(choice: DomainChoice) -> Option<bool> {
    match choice {
        DomainChoice::Auto => None,
        DomainChoice::Process => Some(false),
        DomainChoice::Adr => Some(true),
    }
}

fn create_options(options: &PoolOptions) -> CreateOptions {
    let default = CreateOptions::default();
    let max_bytes = options.max_bytes.unwrap_or(default.max_bytes);
    // The default first size may be more than the largest size.
    let initial_bytes = options.initial_bytes.unwrap_or(default.initial_bytes.min(max_bytes));
    CreateOptions { max_bytes, initial_bytes }
}
