//! `serve --recover`: a new pool in place of one that is missing, cannot be trusted, or is damaged.
//!
//! # Protocol
//!
//! The new pool is built beside the old one, from the newest intact snapshot; without one, from the
//! readable records of the old pool. It gets the old pool's name only when it is complete and on
//! the medium. The old file keeps its records under another name. Opening it for salvage only
//! increments its generation.
//!
//! | step | what is done | what a crash after it leaves; the same command continues |
//! | --- | --- | --- |
//! | 1 | removes `POOL.recovering` and `POOL.recovering.new-*` | the old pool: starts again |
//! | 2 | restores into a new pool `POOL.recovering`, closes it (which syncs it) | a part, under either name, or all of it beside the old pool: starts again |
//! | 3 | links the old pool also as `POOL.untrusted-DATE`, syncs the folder | both names of the old pool: starts again, with that second name |
//! | 4 | renames `POOL.recovering` to `POOL`, syncs the folder | the new pool: nothing to recover |
//!
//! So a pool of that name exists at any point in time, and a start without `--recover` never
//! creates an empty one. Where the pool is missing, beside a snapshot, a start without `--recover`
//! is refused, since its snapshots would replace that one. Step 3 is left out then, and step 4 does
//! not replace a pool that another process has created meanwhile.
//!
//! The old pool is held open for salvage until step 4 is done, so that no
//! other process recovers it at the same time. A pool whose superblock cannot be read is not held.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pando::{Error, LogFiles, Pool};

use crate::failure::{Failure, Result, fail_with};
use crate::store::{MAP_NAME, Store, StoreOptions};
use crate::{clock, snapshot_file};

/// The source of a recovered store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A snapshot, and its time in milliseconds of the system's clock.
    Snapshot(PathBuf, u64),
    /// The readable records of the old pool, and the number of unreadable places.
    Salvage(u64),
}

/// The result of a recovery.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The source of the keys.
    pub source: Source,
    /// The number of keys.
    pub keys: u64,
    /// The new path of the old pool; `None` if it was missing.
    pub kept: Option<PathBuf>,
}

/// Whether a recovery helps against this failure to open a store.
pub fn can_help(failure: &Failure) -> bool {
    matches!(failure, Failure::Damaged)
        || matches!(failure, Failure::Store(Error::NotTrusted { .. } | Error::Damaged(_)))
}

/// The error text of a server that cannot open its store, with the command that recovers it.
pub fn advice(failure: &Failure, pool: &Path, snapshot: &Path) -> String {
    let newest = snapshot_file::all_at(snapshot).into_iter().next();
    let source = newest.map_or_else(
        || {
            format!(
                "the readable part of this pool (there is no snapshot at {})",
                snapshot.display()
            )
        },
        |(path, time_ms)| format!("the snapshot {} of {}", path.display(), date(time_ms / 1000)),
    );
    let what = match failure {
        Failure::Store(Error::NotTrusted { medium, .. }) => format!(
            "{} was open when the machine stopped, and its medium ({medium}) does not keep the order of writes then",
            pool.display()
        ),
        other => other.to_string(),
    };
    format!(
        "{what}. Run `pando --pool {} serve --recover` with the options of this start. It creates a new pool from \
         {source}, and keeps the old pool under another name",
        pool.display()
    )
}

/// The same for a start with a log, in the directory `log`. A pool's log has the keys that survive
/// a power cut; a recovery into a new pool would use it up.
pub fn advice_with_log(failure: &Failure, pool: &Path, log: &Path) -> String {
    if !log.exists() {
        return format!(
            "{failure}. There is no log in {log}, and --recover is for pools without a log. If {pool} has none, \
             leave out --log. If it has one, name the directory in which the log is",
            pool = pool.display(),
            log = log.display()
        );
    }
    format!(
        "{failure}. Move {pool} away, and start the server again with --log {log}: it builds the pool anew from its \
         log. (--recover is for pools without a log)",
        pool = pool.display(),
        log = log.display()
    )
}

/// The advice for a start on a pool that is missing although a snapshot of it exists; `None` for
/// any other start.
pub fn advice_if_missing(pool: &Path, snapshot: &Path) -> Option<String> {
    if !is_missing(pool) {
        return None;
    }
    let (newest, time_ms) = snapshot_file::all_at(snapshot).into_iter().next()?;
    Some(format!(
        "there is no pool at {0}, but the snapshot {1} of {2}, which an empty server would replace. Run `pando \
         --pool {0} serve --recover` with the options of this start, to begin with the keys of the snapshot; or \
         move the snapshot away, to begin without keys",
        pool.display(),
        newest.display(),
        date(time_ms / 1000)
    ))
}

/// The same for a record store, in `directory`, which may be there without it: as the mount point
/// of a disk that is not mounted.
pub fn advice_if_record_store_is_missing(directory: &Path, snapshot: &Path) -> Option<String> {
    if !is_missing(&directory.join("pages")) {
        return None;
    }
    let (newest, time_ms) = snapshot_file::all_at(snapshot).into_iter().next()?;
    Some(format!(
        "there is no store at {}, but the snapshot {newest} of {}, which an empty server would replace. If the \
         store is on another disk, mount it. To begin with the keys of the snapshot, add --restore {newest}. To begin \
         without keys, move the snapshot away",
        directory.display(),
        date(time_ms / 1000),
        newest = newest.display(),
    ))
}

/// The same for a start that names a log, in the directory `log`. `None` also if there is one: the
/// pool is rebuilt from it.
pub fn advice_if_log_is_missing(pool: &Path, log: &Path, snapshot: &Path) -> Option<String> {
    if !is_missing(pool) || LogFiles::at(log).exists() {
        return None;
    }
    let (newest, time_ms) = snapshot_file::all_at(snapshot).into_iter().next()?;
    Some(format!(
        "there is no pool at {}, and no log in {}, but the snapshot {newest} of {}, which an empty server would \
         replace. If the pool had a log, mount its disk, or name its directory by --log: the pool is rebuilt from \
         it. To begin with the keys of the snapshot, add --restore {newest}. To begin without keys, move the \
         snapshot away",
        pool.display(),
        log.display(),
        date(time_ms / 1000),
        newest = newest.display()
    ))
}

/// The advice for a file that is no pool, if a snapshot exists; `None` without one, or for another
/// failure.
pub fn advice_if_no_pool(failure: &Failure, pool: &Path, snapshot: &Path) -> Option<String> {
    let Failure::Store(error @ Error::NotAPool { .. }) = failure else { return None };
    let (newest, time_ms) = snapshot_file::all_at(snapshot).into_iter().next()?;
    Some(format!(
        "{error}. To begin with the keys of the snapshot {} of {}, move {2} away, and run `pando --pool {2} serve \
         --recover` with the options of this start",
        newest.display(),
        date(time_ms / 1000),
        pool.display()
    ))
}

fn is_missing(pool: &Path) -> bool {
    pool.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Replaces a pool that cannot be opened, or is missing, by a new one. Neither has a log: a lost
/// pool with a log is rebuilt from it at the opening.
pub fn recover(pool: &Path, snapshot: &Path, options: &StoreOptions) -> Result<Recovered> {
    if let Some(log) = options.pool.log_directory() {
        return Err(fail_with(format!(
            "a pool with a log cannot be recovered, and the log {} is named; leave out --log, or --recover",
            log.display()
        )));
    }
    let was_missing = is_missing(pool);
    let old = match Pool::open(pool, &options.pool.clone().salvage(true)) {
        Ok(old) => Some(old),
        Err(Error::PoolNotFound { .. }) if was_missing => None,
        Err(error @ (Error::PoolBusy { .. } | Error::PoolNotFound { .. })) => {
            return Err(error.into());
        }
        Err(error) => {
            tracing::warn!(%error, "the old pool cannot be read");
            None
        }
    };
    let building = with_suffix(pool, "recovering");
    let mut options = options.clone();
    if let Some(old) = &old {
        options.pool = options.pool.max_bytes(old.max_bytes());
        let kind =
            old.maps().ok().and_then(|maps| maps.into_iter().find(|map| map.name == MAP_NAME));
        options.index = options.index.or(kind.map(|map| map.index));
    }
    let (source, keys) = build(&building, snapshot, old.as_ref(), &options)?;
    step()?;
    let failed = |what: &str, error: io::Error| {
        fail_with(format!(
            "the recovery is not complete: cannot {what}: {error}; remove the cause, and run the same command again"
        ))
    };
    let kept = match was_missing {
        true => None,
        false => Some(keep(pool).map_err(|error| failed("rename the old pool", error))?),
    };
    step()?;
    let named = match was_missing {
        // Unlike a rename, a link replaces nothing.
        true => std::fs::hard_link(&building, pool).and_then(|()| std::fs::remove_file(&building)),
        false => std::fs::rename(&building, pool),
    };
    named
        .and_then(|()| snapshot_file::sync_folder_of(pool))
        .map_err(|error| failed("rename the new pool", error))?;
    step()?;
    drop(old);
    Ok(Recovered { source, keys, kept })
}

/// Builds the new pool; returns the source of its keys, and their number.
fn build(
    building: &Path,
    snapshot: &Path,
    old: Option<&Pool>,
    options: &StoreOptions,
) -> Result<(Source, u64)> {
    for (path, time_ms) in snapshot_file::all_at(snapshot) {
        match build_with(building, options, |store| store.restore(&path)) {
            Ok(keys) => return Ok((Source::Snapshot(path, time_ms), keys)),
            // A refused snapshot is damaged. Any other error would occur with the next snapshot,
            // too.
            Err(error @ (Failure::Reply(_) | Failure::Damaged))
                if !error.is_no_memory() && !is_stopped() =>
            {
                tracing::warn!(%error, path = %path.display(), "a snapshot cannot be used; the next older one is tried");
            }
            Err(error) => return Err(error),
        }
    }
    let Some(old) = old else {
        return Err(fail_with(format!(
            "there is nothing to recover from: no snapshot at {} can be used, and the pool cannot be read",
            snapshot.display()
        )));
    };
    let mut problems = 0;
    let keys = build_with(building, options, |store| {
        let salvaged = store.restore_salvaged(old)?;
        problems = salvaged.problems;
        Ok(salvaged.keys)
    })?;
    Ok((Source::Salvage(problems), keys))
}

fn build_with(
    building: &Path,
    options: &StoreOptions,
    fill: impl FnOnce(&Store) -> Result<u64>,
) -> Result<u64> {
    remove_unfinished(building).map_err(|error| {
        fail_with(format!("the unfinished pool {} cannot be removed: {error}", building.display()))
    })?;
    step()?;
    let store = Store::open(Some(building), options)?;
    let filled = fill(&store).and_then(|keys| step().map(|()| keys));
    let closed = store.close();
    let keys = filled?;
    closed?;
    Ok(keys)
}

/// Removes the unfinished pool of an interrupted recovery, also one without a name.
fn remove_unfinished(building: &Path) -> io::Result<()> {
    let unnamed = with_suffix(building, "new-");
    for path in beginning_with(&unnamed)?.into_iter().chain([building.to_owned()]) {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The files whose paths begin with `path`.
fn beginning_with(path: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(begin) = path.file_name() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(snapshot_file::folder_of(path))? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(begin.as_encoded_bytes()) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Gives the old pool a second name and returns it.
fn keep(pool: &Path) -> io::Result<PathBuf> {
    if let Some(kept) = kept_before(pool)? {
        return Ok(kept);
    }
    let name = format!("untrusted-{}", date(clock::system_ms() / 1000).replace([' ', ':'], "-"));
    for number in 1..1000 {
        let again = if number == 1 { name.clone() } else { format!("{name}-{number}") };
        let kept = with_suffix(pool, &again);
        match std::fs::hard_link(pool, &kept) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => {
                return linked.and_then(|()| snapshot_file::sync_folder_of(pool)).map(|()| kept);
            }
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The second name that an interrupted recovery has given the pool.
fn kept_before(pool: &Path) -> io::Result<Option<PathBuf>> {
    let own = std::fs::metadata(pool)?;
    for path in beginning_with(&with_suffix(pool, "untrusted-"))? {
        let other = std::fs::symlink_metadata(&path)?;
        if (other.dev(), other.ino()) == (own.dev(), own.ino()) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

/// The end of the year 9999, in seconds since 1970. `humantime` formats no later time.
const LAST_SECOND: u64 = 253_402_300_799;

/// Seconds since 1970 as a date and a time of day in UTC: `2026-11-23 11:25:07`. The header of a
/// damaged file may have any number, so a later time than the end of the year 9999 is formatted as
/// that.
pub fn date(seconds: u64) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_SECOND));
    humantime::format_rfc3339_seconds(time).to_string().replace('T', " ").replace('Z', "")
}

#[cfg(not(test))]
fn step() -> Result<()> {
    Ok(())
}

#[cfg(not(test))]
fn is_stopped() -> bool {
    false
}

#[cfg(test)]
use self::tests::{is_stopped, step};

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use pando::PoolOptions;
    use pando_pmem::superblock::{self, BootId};

    use super::*;
    use crate::tests::{fields, get, put_hash, set};

    thread_local! {
        /// Steps before a recovery stops, as in a crash.
        static STEPS: Cell<u64> = const { Cell::new(u64::MAX) };
    }

    pub(crate) fn step() -> Result<()> {
        match STEPS.get().checked_sub(1) {
            Some(left) => {
                STEPS.set(left);
                Ok(())
            }
            None => Err(fail_with("stopped by the test".into())),
        }
    }

    pub(crate) fn is_stopped() -> bool {
        STEPS.get() == 0
    }

    fn options() -> StoreOptions {
        StoreOptions { pool: PoolOptions::new().max_bytes(64 << 20), ..StoreOptions::default() }
    }

    fn text(number: u64) -> Vec<u8> {
        format!("value {number}").into_bytes()
    }

    /// A pool that was open when the machine crashed, with 1,000 keys, a hash and a long string. It
    /// has `snapshots` snapshots of 100, 200 and so on keys, the newest one last.
    fn untrusted(folder: &Path, snapshots: u64) -> (PathBuf, PathBuf) {
        let (pool, snapshot, open) =
            (folder.join("pool"), folder.join("pool.snapshot"), folder.join("open"));
        let store = Store::open(Some(&open), &options()).expect("a store");
        for number in 0..1000 {
            if number % 100 == 0 && (1..=snapshots).contains(&(number / 100)) {
                store.save(&snapshot, 3).expect("saves");
            }
            let expires_at = (number % 2 == 1).then(|| store.clock().now_ms() + 1_000_000);
            set(&store, (number % 3) as u8, &text(number), &text(number), expires_at);
        }
        put_hash(&store, b"hash", 700);
        set(&store, 0, b"long", &[7; 100_000], None);
        std::fs::copy(&open, &pool).expect("copies");
        store.close().expect("closes");
        let file = File::options().write(true).open(&pool).expect("opens");
        for (index, word) in superblock::boot_words(BootId(7 << 70)).into_iter().enumerate() {
            let at = superblock::BOOT_OFF + index as u64 * 8;
            file.write_all_at(&word.to_le_bytes(), at).expect("writes");
        }
        (pool, snapshot)
    }

    /// All records of a pool that is not trusted.
    fn records(pool: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
        let old =
            Pool::open(pool, &PoolOptions::new().salvage(true)).expect("it opens for salvage");
        let mut records = Vec::new();
        let report =
            old.salvage(MAP_NAME, |key, value| records.push((key.to_vec(), value.to_vec())));
        assert!(report.expect("reads").is_consistent());
        records
    }

    fn names(folder: &Path, part: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.filter(|path| path.to_string_lossy().contains(part)).collect()
    }

    /// Checks the keys of a recovered pool: the first `count` ones.
    fn assert_recovered(pool: &Path, count: u64, has_hash: bool) {
        let store = Store::open(Some(pool), &options()).expect("it opens");
        for number in 0..1000 {
            let found = get(&store, (number % 3) as u8, &text(number));
            assert_eq!(found, (number < count).then(|| text(number)), "{number} of {count}");
        }
        assert_eq!(fields(&store, b"hash"), has_hash.then_some(700));
        let sum: u64 = (0..3).map(|database| store.count(database).expect("counts")).sum();
        assert_eq!(get(&store, 0, b"long"), has_hash.then(|| vec![7; 100_000]));
        assert_eq!(sum, count + 2 * u64::from(has_hash));
        assert!(store.pool().check().expect("checks").is_consistent());
        store.close().expect("closes");
    }

    #[test]
    fn an_untrusted_pool_is_recovered_from_the_newest_snapshot() {
        let folder = tempfile::tempdir().expect("a folder");
        let (pool, snapshot) = untrusted(folder.path(), 3);
        let before = records(&pool);
        let refused = Store::open(Some(&pool), &options()).map(drop).expect_err("it is refused");
        assert!(can_help(&refused), "{refused}");
        let advice = advice(&refused, &pool, &snapshot);
        assert!(
            advice.contains(&format!("`pando --pool {} serve --recover`", pool.display())),
            "{advice}"
        );
        let recovered = recover(&pool, &snapshot, &options()).expect("recovers");
        assert!(matches!(&recovered.source, Source::Snapshot(path, _) if *path == snapshot));
        assert_eq!(recovered.keys, 300);
        assert!(
            records(recovered.kept.as_deref().expect("the old pool")) == before,
            "the old pool has its records"
        );
        assert_recovered(&pool, 300, false);
    }

    #[test]
    fn a_missing_pool_is_built_from_the_newest_intact_snapshot_whenever_a_recovery_stops() {
        for steps in 0..6 {
            let folder = tempfile::tempdir().expect("a folder");
            let (pool, snapshot) = untrusted(folder.path(), 2);
            std::fs::remove_file(&pool).expect("removed");
            std::fs::write(&snapshot, b"PANDOSNP").expect("damaged");
            let advice = advice_if_missing(&pool, &snapshot).expect("a snapshot is there");
            assert!(advice.contains("serve --recover"), "{advice}");
            STEPS.set(steps);
            let first = recover(&pool, &snapshot, &options());
            STEPS.set(u64::MAX);
            if is_missing(&pool) {
                first.expect_err("it has stopped");
                recover(&pool, &snapshot, &options()).expect("recovers");
            }
            assert!(advice_if_missing(&pool, &snapshot).is_none());
            assert!(names(folder.path(), "untrusted-").is_empty());
            assert!(names(folder.path(), "recovering").is_empty());
            assert_recovered(&pool, 100, false);
        }
    }

    #[test]
    fn a_pool_is_not_recovered_into_one_with_a_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let (pool, snapshot) = untrusted(folder.path(), 1);
        let log = folder.path().join("log");
        let with_log = StoreOptions { pool: options().pool.log(&log), ..options() };
        let refused = Store::open(Some(&pool), &with_log).map(drop).expect_err("it is refused");
        assert!(can_help(&refused), "{refused}");
        let advice = advice_with_log(&refused, &pool, &log);
        assert!(advice.contains("leave out --log"), "{advice}");
        let refused = recover(&pool, &snapshot, &with_log).map(drop).expect_err("it is refused");
        assert!(refused.to_string().contains("leave out --log"), "{refused}");
        assert!(!log.exists() && names(folder.path(), "recovering").is_empty());
        recover(&pool, &snapshot, &options()).expect("recovers");
    }

    #[test]
    fn a_damaged_snapshot_gives_way_to_the_next_older_one() {
        for damaged in 1..=3 {
            let folder = tempfile::tempdir().expect("a folder");
            let (pool, snapshot) = untrusted(folder.path(), 3);
            let all: Vec<_> =
                snapshot_file::all_at(&snapshot).into_iter().map(|(path, _)| path).collect();
            assert_eq!(all.len(), 3);
            for path in &all[..damaged] {
                let mut bytes = std::fs::read(path).expect("reads");
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                std::fs::write(path, bytes).expect("writes");
            }
            let recovered = recover(&pool, &snapshot, &options()).expect("recovers");
            match all.get(damaged) {
                Some(next) => {
                    assert!(matches!(&recovered.source, Source::Snapshot(path, _) if path == next));
                    assert_recovered(&pool, 300 - 100 * damaged as u64, false);
                }
                None => {
                    assert_eq!(recovered.source, Source::Salvage(0));
                    assert_recovered(&pool, 1000, true);
                }
            }
        }
    }

    #[test]
    fn without_a_snapshot_what_can_be_read_is_recovered() {
        let folder = tempfile::tempdir().expect("a folder");
        let (pool, snapshot) = untrusted(folder.path(), 0);
        let recovered = recover(&pool, &snapshot, &options()).expect("recovers");
        assert_eq!((recovered.source, recovered.keys), (Source::Salvage(0), 1002));
        assert_recovered(&pool, 1000, true);
    }

    /// The first two tries stop at every combination of steps; the third try completes the
    /// recovery.
    #[test]
    fn a_recovery_that_was_cut_short_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        for snapshots in [0, 2] {
            let cuts = (0..6).flat_map(|first| [(first, 0), (first, 5 - first)]);
            for (first, second) in cuts.collect::<std::collections::BTreeSet<_>>() {
                let folder = folder.path().join(format!("{snapshots} {first} {second}"));
                std::fs::create_dir(&folder).expect("a folder");
                let (pool, snapshot) = untrusted(&folder, snapshots);
                let before = records(&pool);
                for steps in [first, second, u64::MAX] {
                    STEPS.set(steps);
                    assert!(
                        pool.is_file(),
                        "a start without --recover must not create an empty pool"
                    );
                    match Store::open(Some(&pool), &options()) {
                        Ok(store) => {
                            // The last step was done.
                            store.close().expect("closes");
                        }
                        Err(refused) => {
                            assert!(can_help(&refused), "{refused}");
                            // A crash during the creation of a pool leaves this file.
                            let unnamed = folder.join("pool.recovering.new-7f");
                            std::fs::write(unnamed, []).expect("writes");
                            let recovered = recover(&pool, &snapshot, &options());
                            assert_eq!(
                                recovered.is_ok(),
                                steps >= 5,
                                "{first} {second}: {recovered:?}"
                            );
                        }
                    }
                }
                let kept = names(&folder, "untrusted-");
                assert_eq!(kept.len(), 1, "{kept:?}");
                assert!(records(&kept[0]) == before, "the old pool has its records");
                assert!(names(&folder, "recovering").is_empty());
                match snapshots {
                    0 => assert_recovered(&pool, 1000, true),
                    _ => assert_recovered(&pool, 200, false),
                }
            }
        }
    }

    #[test]
    fn dates_are_by_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_795_433_107, "2026-11-23 11:25:07"),
            (4_107_542_399, "2100-02-28 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
            (u64::MAX, "9999-12-31 23:59:59"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }
}
