//! Why a command ends, and with which exit code.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use indicatif::BinaryBytes;
use pando::ProblemClass;

/// The exit codes of every command.
const OF_ALL: &[(u8, &str)] = &[
    (0, "done; also when the reader of the output has stopped reading"),
    (2, "the command line or the input is wrong"),
    (3, "the pool, or a file, cannot be opened, read or written"),
];
/// A key or a map is missing.
pub const MISSING: &[(u8, &str)] = &[(1, "the key, or the map, is not there")];
/// Problems that `check`, and a dump of a pool opened for salvage, find.
pub const PROBLEMS: &[(u8, &str)] = &[
    (
        4,
        "blocks are allocated that nothing reaches, or one of the two copies of a map's header is damaged (data are not lost)",
    ),
    (5, "a stored count differs from the number that was counted"),
    (6, "a separator does not bound the keys beneath it"),
    (7, "keys of a node are out of order"),
    (8, "a reachable block is marked as free"),
    (9, "something cannot be decoded"),
];
/// The tour failed.
pub const TOUR: &[(u8, &str)] = &[(10, "a verified property does not hold")];
/// A comparison failed.
#[cfg(feature = "bench")]
pub const BENCH: &[(u8, &str)] =
    &[(11, "a system failed a check, or the comparison cannot take place")];

/// The exit codes of a command for its `--help`: those of every command and `own`.
pub fn exit_codes(own: &[&[(u8, &str)]]) -> String {
    let mut codes = [OF_ALL].iter().chain(own).copied().flatten().collect::<Vec<_>>();
    codes.sort_by_key(|(code, _)| *code);
    let lines = codes.iter().map(|(code, reason)| format!("\n  {code:>2}  {reason}"));
    let highest = if own.contains(&PROBLEMS) {
        "\nOf several problems, the command exits with the highest code."
    } else {
        ""
    };
    format!("Exit codes:{}{highest}", lines.collect::<String>())
}

/// Why a command ends early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The reader of the output has closed it: this is no error.
    #[error("the reader of the output has closed it")]
    BrokenPipe,
    /// A key is absent.
    #[error("{0}")]
    NotFound(String),
    /// The command line or the input is wrong.
    #[error("{0}")]
    Input(String),
    /// An error of the pool.
    #[error("{}", told(.0))]
    Pool(#[from] pando::Error),
    /// An error of the pool for a record of an input.
    #[error("{place}: {}", told(source))]
    At {
        /// File and line.
        place: String,
        /// The error.
        source: pando::Error,
    },
    /// No store is in this directory.
    #[error(
        "there is no store in {}; create it by `load --create` or `put --create`, or name another by --store",
        .0.display()
    )]
    NoStore(PathBuf),
    /// An error of the operating system.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: String,
        /// The error.
        source: std::io::Error,
    },
    /// The server could not start, or did not end in order.
    #[error("{0}")]
    Serve(#[from] pando_server::ServeError),
    /// A check found problems.
    #[error("the check found problems; the gravest: {0}")]
    Problems(ProblemClass),
    /// A benchmark failed.
    #[cfg(feature = "bench")]
    #[error("{0}")]
    Bench(pando_bench::error::Failure),
    /// The tour found a property that does not hold.
    #[error("the tour ends here, because this does not hold: {0}")]
    Violation(String),
}

impl Failure {
    /// An error of the operating system in `what`.
    pub fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }

    /// An error of the operating system when it was to `verb` the file at `path`.
    pub fn file(verb: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        Self::system(format!("cannot {verb} {}", path.display()))
    }

    /// The exit code; see [`exit_codes`].
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            Self::NotFound(_)
            | Self::Pool(pando::Error::MapNotFound { .. } | pando::Error::SlotEmpty { .. }) => 1,
            Self::Input(_) | Self::Serve(pando_server::ServeError::Config { .. }) => 2,
            Self::Pool(
                pando::Error::MapName { .. }
                | pando::Error::KeyTooLong { .. }
                | pando::Error::KeyTooShort { .. }
                | pando::Error::ValueTooShort { .. }
                | pando::Error::ValueTooLong { .. }
                | pando::Error::Option { .. }
                | pando::Error::NoLog
                | pando::Error::PoolSizeDiffers { .. }
                | pando::Error::MapIndexDiffers { .. }
                | pando::Error::MapOptionDiffers { .. }
                | pando::Error::MapExists { .. },
            ) => 2,
            Self::Pool(_)
            | Self::At { .. }
            | Self::NoStore(_)
            | Self::System { .. }
            | Self::Serve(_) => 3,
            Self::Problems(ProblemClass::Leaked | ProblemClass::HeaderCopy) => 4,
            Self::Problems(ProblemClass::Count) => 5,
            Self::Problems(ProblemClass::Separator) => 6,
            Self::Problems(ProblemClass::Order) => 7,
            Self::Problems(ProblemClass::ReachableButFree) => 8,
            Self::Problems(_) => 9,
            Self::Violation(_) => 10,
            #[cfg(feature = "bench")]
            Self::Bench(_) => 11,
        }
    }
}

/// The error of the pool, with the remedy that the command has.
fn told(error: &pando::Error) -> String {
    use pando::Error;
    match error {
        Error::PoolNotFound { path } => format!(
            "there is no pool at {}; create it by `load --create` or `put --create`, or name another by \
             --pool or PANDO_POOL; if it had a log, name that by --log, and the pool is rebuilt",
            path.display()
        ),
        Error::PoolSizeDiffers { path, found, expected } => format!(
            "{} may grow to {found} bytes, which was fixed when it was created, not to {expected}; \
             leave out --max-bytes, or dump its maps and load them into a new pool",
            path.display()
        ),
        Error::OlderPool { path, .. } => format!(
            "{error}; or run `pando --pool {} upgrade --with PROGRAM`, which does this for all maps",
            path.display()
        ),
        Error::MapNotFound { name, present } if name == "main" && !present.is_empty() => {
            format!("{error}; commands use \"main\" unless --map names another")
        }
        Error::PoolExists { path } => {
            format!("{} is there already; name another path", path.display())
        }
        Error::NotTrusted { path, medium, .. } => format!(
            "{} was open when the machine went down, and its medium ({medium}) keeps no order of \
             writes across that; a server's pool: run `pando --pool {} serve --recover`; others: restore a \
             copy, or dump what can be read of each map with --salvage and load that into a new pool",
            path.display(),
            path.display()
        ),
        Error::PoolFull { max_bytes } => format!(
            "the pool is full: it may not grow beyond {}; delete records, or dump its maps and load \
             them into a pool that is created with a larger --max-bytes",
            BinaryBytes(*max_bytes)
        ),
        Error::TooManyThreads { threads, why } => format!(
            "{threads} threads are inside operations of the pool at once, and its table of participants \
             cannot grow: {why}; take fewer --writers"
        ),
        Error::TooManyMaps { max_maps } => {
            format!(
                "the pool has {max_maps} maps, the most that it can have; drop one by `pando drop`"
            )
        }
        Error::PoolBusy { path } => {
            let holders = holders_of(path);
            let holders = match &*holders {
                [] => "another process, which this user cannot see".to_owned(),
                [pid] => format!("process {pid}"),
                _ => format!("the processes {}", holders.join(", ")),
            };
            format!(
                "{} is open in {holders}; close it there first: a pool may be open in several \
                 processes only if each of them was started with --shared",
                path.display()
            )
        }
        Error::AppliedNotDurable { cause } if cause.contains(NO_SPACE) => format!(
            "{error}; make room on the disk of the log: 64 MiB for a segment of it. Then run any \
             command on the pool: its opening writes the commits that wait"
        ),
        Error::Log(_) | Error::Storage(_) | Error::Io { .. }
            if error.to_string().contains(NO_SPACE) =>
        {
            format!("{error}; make room on that file system: a segment of a log takes 64 MiB")
        }
        Error::NoLog => {
            "the pool has no log; create a pool with one by --log, and load the maps into it"
                .to_owned()
        }
        other => other.to_string(),
    }
}

/// The text of the system for a full file system.
const NO_SPACE: &str = "No space left on device";

/// The ids of the other processes that have the file open, as far as this user may see them.
fn holders_of(path: &Path) -> Vec<String> {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let Some(file) = identity(path) else { return Vec::new() };
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let is_open = |process: &Path| {
        entries(&process.join("fd")).any(|descriptor| identity(&descriptor.path()) == Some(file))
    };
    let processes = entries(Path::new("/proc")).filter(|process| is_open(&process.path()));
    let ids = processes.filter_map(|process| process.file_name().into_string().ok());
    ids.filter(|id| id.parse().is_ok_and(|id: u32| id != std::process::id())).collect()
}
