//! The public form of the errors of the layers below.

use pando_pmem::layout::CATALOG_SLOTS;
use pando_tree::maps::slots::MAX_NAME_BYTES;
use pando_tree::maps::{BadOption, MapError};

use crate::Error;
use crate::error::Source;

impl Error {
    /// The public form of an error of the pool.
    pub(crate) fn of_pool(error: pando_pmem::Error) -> Self {
        use pando_pmem::Error as Pool;
        match error {
            Pool::Exists(path) => Self::PoolExists { path },
            Pool::AlreadyOpen(path) => Self::PoolBusy { path },
            Pool::Entering { path, waited_ms } => Self::PoolEntering { path, waited_ms },
            Pool::TooManyProcesses { path, max } => Self::TooManyProcesses { path, max },
            Pool::NotShareable { path, why } => {
                Self::NotShareable { what: path.display().to_string(), why: why.to_owned() }
            }
            Pool::ReadOnly(path) => Self::PoolNotWritable { path },
            Pool::NotAFile(path) => Self::NotAFile(path),
            Pool::SizeDiffers { path, found, expected } => {
                Self::PoolSizeDiffers { path, found, expected }
            }
            Pool::NotAPool { path, found, .. } => Self::NotAPool { path, found },
            Pool::NewerVersion { path, found, supported } => {
                Self::NewerPool { path, found, supported }
            }
            Pool::OlderVersion { path, found, supported } => {
                Self::OlderPool { path, found, supported }
            }
            Pool::NotTrusted { path, medium, log } => {
                Self::NotTrusted { path, medium, log: log.map(|log| log.path) }
            }
            error @ (Pool::DamagedSuperblock { .. }
            | Pool::BadField { .. }
            | Pool::Truncated { .. }) => Self::Damaged(error.into()),
            Pool::PoolFull { max_bytes, .. } => Self::PoolFull { max_bytes },
            Pool::FileSystemFull { from_bytes, to_bytes, source } => {
                Self::FileSystemFull { from_bytes, to_bytes, cause: source }
            }
            Pool::FileTooLarge { path, from_bytes, to_bytes, source } => {
                Self::FileTooLarge { path, from_bytes, to_bytes, cause: source }
            }
            Pool::Forked(path) => Self::Forked { path },
            Pool::NoParticipantSlot { threads, why } => Self::TooManyThreads { threads, why },
            Pool::Io { path, action, source } => Self::Io { action, path, cause: source },
            Pool::BadOption { option, found, allowed } => {
                Self::Option { option: option.to_owned(), found: found.to_string(), allowed }
            }
            other => Self::Storage(other.into()),
        }
    }

    /// The public form of an error of the catalog.
    pub(crate) fn of_map(error: MapError) -> Self {
        match error {
            MapError::Option(refused) => refused.into(),
            MapError::BadName { found } => Self::MapName { name: found, max_bytes: MAX_NAME_BYTES },
            MapError::Exists { name } => Self::MapExists { name },
            MapError::Dropped { name } => Self::MapNotFound { name, present: Vec::new() },
            MapError::OpenElsewhere { name } => Self::MapOpenElsewhere { name },
            MapError::CatalogFull => Self::TooManyMaps { max_maps: CATALOG_SLOTS },
            MapError::Damaged { .. }
            | MapError::DamagedWord { .. }
            | MapError::Hidden { .. }
            | MapError::NoHeader { .. }
            | MapError::KindNotKnown { .. } => Self::Damaged(error.into()),
            MapError::NoSuchSlot { slot } => Self::SlotEmpty { slot },
            MapError::Pmwcas(error) => Self::of_pmwcas(error),
            other => Self::Storage(other.into()),
        }
    }

    /// The public form of an error of PMwCAS.
    pub(crate) fn of_pmwcas(error: pando_pmwcas::Error) -> Self {
        match error {
            pando_pmwcas::Error::Pool(error) => Self::of_pool(error),
            other => Self::Storage(other.into()),
        }
    }

    /// The public form of an error of the index of the map `name`.
    #[cold]
    pub(crate) fn of_index(name: &str, error: pando_index::Error) -> Self {
        match Self::from(error) {
            Self::MapDamaged { off, what, .. } => {
                Self::MapDamaged { map: name.to_owned(), off, what }
            }
            Self::Conflict { key, .. } => Self::Conflict { map: name.to_owned(), key },
            other => other,
        }
    }

    /// The public form of an error of the transaction component; `name` gives the name of the map
    /// of a number.
    #[cold]
    pub(crate) fn of_transaction(error: pando_tc::Error, name: impl Fn(u64) -> String) -> Self {
        use pando_log::Error as Log;
        use pando_tc::Error as Transaction;
        match error {
            Transaction::Conflict { map, key } => Self::Conflict { map: name(map), key },
            Transaction::Index(error) => error.into(),
            Transaction::Log(Log::Pool(error)) => Self::of_pool(error),
            Transaction::Log(Log::RecordTooLong { found_bytes, max_bytes }) => {
                Self::TransactionTooLong { found_bytes, max_bytes }
            }
            Transaction::TooManyWrites { found_bytes, max_bytes } => {
                Self::TransactionTooLong { found_bytes, max_bytes }
            }
            error @ Transaction::Damaged { .. } => Self::Damaged(error.into()),
            Transaction::SnapshotRevoked => Self::SnapshotRevoked,
            Transaction::ReadOnly => Self::StoreReadOnly,
            Transaction::UnknownMap { .. } => Self::UndoNeedsMap,
            Transaction::Log(error) => Self::of_log(error),
            other => Self::Storage(other.into()),
        }
    }

    /// The public form of an error of the directory of a log.
    pub(crate) fn of_device(error: pando_device::Error) -> Self {
        Self::of_log(error.into())
    }

    /// The public form of an error of the log.
    #[cold]
    fn of_log(error: pando_log::Error) -> Self {
        use pando_log::Error as Log;
        match error {
            Log::Full { used_bytes, max_bytes } => Self::LogFull { used_bytes, max_bytes },
            Log::Failed { path } => Self::LogStopped { path: path.into() },
            Log::Pool(error) => Self::of_pool(error),
            Log::NotEmpty { path, name } => Self::LogNotEmpty { path: path.into(), found: name },
            Log::Foreign { ref path, .. } | Log::OlderPool { ref path, .. } => {
                Self::LogForeign { path: path.into(), cause: error.to_string() }
            }
            Log::OfStore { path } => Self::LogOfStore { path: path.into() },
            Log::Damaged { ref path, .. }
            | Log::Missing { ref path, .. }
            | Log::NotALog { ref path }
            | Log::Proposed { ref path, .. } => {
                Self::LogDamaged { path: path.into(), cause: error.to_string() }
            }
            other => Self::Log(other.into()),
        }
    }

    /// The public form of an error of a call that waits until commits are durable.
    #[cold]
    pub(crate) fn of_sync(error: pando_tc::Error) -> Self {
        Self::AppliedNotDurable { cause: Self::from(error).to_string() }
    }

    /// The public form of an error of a store.
    #[cold]
    pub(crate) fn of_store(error: pando_store::Error) -> Self {
        use pando_store::Error as Store;
        match error {
            Store::InUse { path } => Self::StoreBusy { path: path.into() },
            Store::Option { option, found, allowed } => {
                Self::Option { option: option.to_owned(), found: found.to_string(), allowed }
            }
            Store::MapNotFound { name } => Self::MapNotFound { name, present: Vec::new() },
            Store::MapExists { name } => Self::MapExists { name },
            Store::ThreadInside { name } => Self::ThreadInside { name },
            Store::HandleHeld { name } => Self::MapInUse { name, handles: 1 },
            Store::Name { found, max_bytes } => Self::MapName { name: found, max_bytes },
            Store::Transactions(error) => error.into(),
            Store::Log(error) => Self::of_log(error),
            Store::Index(error) => error.into(),
            Store::Memory(error) => Self::of_pool(error),
            Store::Device(error) => Self::of_device(error),
            error @ (Store::Damaged { .. } | Store::OtherLog { .. }) => Self::Damaged(error.into()),
            other => Self::Storage(other.into()),
        }
    }

    /// The public form of an error from below an index, which passes on errors that it does not
    /// know.
    fn of_source(source: Source) -> Self {
        let source = match source.downcast().map(|error| Self::of_pool(*error)) {
            Ok(error) => return error,
            Err(source) => source,
        };
        let source = match source.downcast().map(|error| Self::of_pmwcas(*error)) {
            Ok(error) => return error,
            Err(source) => source,
        };
        let source = match source.downcast::<pando_tc::Error>().map(|error| Self::from(*error)) {
            Ok(error) => return error,
            Err(source) => source,
        };
        let source = match source.downcast().map(|error| Self::of_map(*error)) {
            Ok(error) => return error,
            Err(source) => source,
        };
        source.downcast::<Self>().map_or_else(Self::Storage, |error| *error)
    }
}

/// Without the names of maps.
impl From<pando_tc::Error> for Error {
    fn from(error: pando_tc::Error) -> Self {
        Self::of_transaction(error, |_| String::new())
    }
}

impl From<BadOption> for Error {
    fn from(BadOption { option, found, allowed }: BadOption) -> Self {
        Self::Option { option, found, allowed }
    }
}

impl From<pando_index::Error> for Error {
    fn from(error: pando_index::Error) -> Self {
        use pando_index::Error as Index;
        match error {
            Index::KeyExists => Self::KeyExists,
            Index::KeyNotFound => Self::KeyNotFound,
            Index::KeyTooLong { found_bytes, max_bytes } => {
                Self::KeyTooLong { found_bytes, max_bytes }
            }
            Index::ValueTooLong { found_bytes, max_bytes } => {
                Self::ValueTooLong { found_bytes, max_bytes }
            }
            Index::KeyTooShort { found_bytes, min_bytes } => {
                Self::KeyTooShort { found_bytes, min_bytes }
            }
            Index::ValueTooShort { found_bytes, min_bytes } => {
                Self::ValueTooShort { found_bytes, min_bytes }
            }
            Index::Damaged { off, what } => Self::MapDamaged { map: String::new(), off, what },
            Index::Storage(source) => Self::of_source(source),
            other => Self::Storage(Box::new(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error that an index passes on.
    fn handed_on(error: impl std::error::Error + Send + Sync + 'static) -> Error {
        pando_index::Error::storage(error).into()
    }

    fn full() -> pando_pmem::Error {
        pando_pmem::Error::PoolFull { requested_bytes: 65_536, max_bytes: 1 << 20 }
    }

    #[test]
    fn an_error_is_the_same_through_whatever_layers_it_comes() {
        let is_full = |error| matches!(error, Error::PoolFull { max_bytes: 0x10_0000 });
        assert!(is_full(Error::of_pool(full())));
        assert!(is_full(handed_on(full())));
        assert!(is_full(handed_on(pando_pmwcas::Error::from(full()))));
        assert!(is_full(handed_on(MapError::from(full()))));
        let none_left =
            handed_on(pando_pmem::Error::NoParticipantSlot { threads: 128, why: "full".into() });
        assert!(matches!(none_left, Error::TooManyThreads { threads: 128, .. }), "{none_left}");
        let other = handed_on(std::fmt::Error);
        assert!(matches!(other, Error::Storage(_)), "{other}");
    }

    #[test]
    fn a_chain_tells_nothing_twice() {
        let io = || std::io::Error::other("the disk is gone");
        for error in [
            handed_on(pando_pmwcas::Error::TooManyWords),
            Error::of_pool(pando_pmem::Error::Truncated {
                path: "grove.pool".into(),
                found_bytes: 1,
                expected_bytes: 2,
            }),
            Error::Io { action: "map the file", path: "grove.pool".into(), cause: io() },
            Error::FileSystemFull { from_bytes: 1, to_bytes: 2, cause: io() },
            Error::FileTooLarge {
                path: "grove.pool".into(),
                from_bytes: 1,
                to_bytes: 2,
                cause: io(),
            },
        ] {
            let mut chain = vec![error.to_string()];
            let mut next = std::error::Error::source(&error);
            while let Some(source) = next {
                chain.push(source.to_string());
                next = source.source();
            }
            let told_before = |at: usize| chain[..at].iter().any(|told| told.contains(&chain[at]));
            assert!((1..chain.len()).all(|at| !told_before(at)), "{chain:?}");
        }
    }

    /// A commit that was refused by a stopped log has not taken place; one that waited has.
    #[test]
    fn a_stopped_log_is_told_apart_from_a_commit_that_may_be_lost() {
        let failed = || pando_tc::Error::from(pando_log::Error::Failed { path: "log".into() });
        assert!(matches!(handed_on(failed()), Error::LogStopped { .. }));
        assert!(matches!(Error::of_sync(failed()), Error::AppliedNotDurable { .. }));
        let full = pando_log::Error::Stalled { path: "log".into(), writers: 8 };
        assert!(matches!(Error::of_sync(full.into()), Error::AppliedNotDurable { .. }));
    }

    #[test]
    fn a_directory_with_files_of_a_log_is_named_with_one_of_them() {
        let (path, name) = ("grove.log".to_owned(), "manifest".to_owned());
        let error = Error::of_log(pando_log::Error::NotEmpty { path, name });
        let told = "grove.log has files of a log already, such as \"manifest\"; name another directory, or \
                    move these files away";
        assert!(matches!(error, Error::LogNotEmpty { .. }));
        assert_eq!(error.to_string(), told);
    }

    #[test]
    fn what_an_index_says_is_said_in_the_same_words() {
        use pando_index::Error as Index;
        for error in [
            Index::KeyExists,
            Index::KeyNotFound,
            Index::KeyTooLong { found_bytes: 2, max_bytes: 1 },
            Index::ValueTooLong { found_bytes: 2, max_bytes: 1 },
            Index::KeyTooShort { found_bytes: 1, min_bytes: 2 },
            Index::ValueTooShort { found_bytes: 1, min_bytes: 2 },
        ] {
            let told = error.to_string();
            assert_eq!(Error::from(error).to_string(), told);
        }
    }

    #[test]
    fn many_maps_are_not_all_listed() {
        let names: Vec<_> = (0..12).map(|number| format!("map\n{number}")).collect();
        let told = Error::MapNotFound { name: "oak".into(), present: names }.to_string();
        assert!(told.contains(r#""map\n9" and 2 more"#), "{told}");
    }
}
