//! Tests of what the tour reads, and of where it puts its files.

use std::fs;
use std::path::Path;

use super::child::Running;
use super::place::Place;
use super::{debian, text_file};
use crate::failure::Failure;

fn create(place: &Place, bytes: &[u8]) {
    let write =
        || fs::write(place.pool_path(), bytes).map_err(Failure::file("write", place.pool_path()));
    place.create(write).unwrap();
}

#[test]
fn lines_are_records_and_words_fill_up() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("usr/share/doc/hello");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("copyright"), b"first line\n\n  \nfourth line").unwrap();
    fs::write(folder.join("changelog"), b"not a copyright note").unwrap();

    let (data, told) = debian::collect(root.path(), usize::MAX).unwrap();
    assert_eq!(data.len(), debian::MIN_RECORDS);
    let key = text_file::line_key(&folder.join("copyright"), 4);
    assert!(data.records().any(|record| record == (key.as_slice(), &b"fourth line"[..])));
    assert_eq!(told.len(), 2);
    assert_eq!(told[0], "2 lines of 1 copyright notes");
    assert!(told[1].starts_with("99,998 combinations"), "{told:?}");

    let (data, _) = debian::collect(root.path(), 1).unwrap();
    assert_eq!(data.len(), 1);
}

#[test]
fn a_machine_without_any_text_still_gives_records() {
    let root = tempfile::tempdir().unwrap();
    let (data, told) = debian::collect(root.path(), usize::MAX).unwrap();
    assert_eq!((data.len(), told.len()), (debian::MIN_RECORDS, 1));
}

#[test]
fn text_is_taken_by_line_and_tsv_by_record() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("poem.txt");
    fs::write(&text, "one\n\nthree\n").unwrap();
    let (data, told) = text_file::collect(&text).unwrap();
    assert_eq!(data.record(1), (text_file::line_key(&text, 3).as_slice(), &b"three"[..]));
    assert_eq!((data.len(), told.len()), (2, 1));

    let table = folder.path().join("table.tsv");
    fs::write(&table, "b\t1\na\t2\nb\t3\n").unwrap();
    let (data, told) = text_file::collect(&table).unwrap();
    assert_eq!(data.record(1), (&b"b"[..], &b"3"[..]));
    assert!(told[1].starts_with("1 of them"), "{told:?}");
}

#[test]
fn a_malformed_line_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.tsv");
    fs::write(&path, "b\t1\nbroken\n").unwrap();
    let failure = text_file::collect(&path).err().unwrap().to_string();
    assert!(failure.ends_with("table.tsv:2: no TAB between key and value"), "{failure}");
}

#[test]
fn a_file_that_is_there_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.pool");
    fs::write(&path, b"mine").unwrap();
    let failure = Place::choose(Some(&path), None, 0, false).err().unwrap();
    assert_eq!(failure.exit_code(), 3);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}

#[test]
fn everything_is_removed_or_the_pool_kept() {
    for keep in [false, true] {
        let mut place = Place::choose(None, None, 0, keep).unwrap();
        let (pool, data) = (place.pool_path().to_owned(), place.data_path());
        fs::write(&pool, b"pool").unwrap();
        fs::write(&data, b"data").unwrap();
        place.remove().unwrap();
        drop(place);
        assert_eq!(pool.exists(), keep);
        assert_eq!(pool.parent().unwrap().exists(), keep);
        assert!(!data.exists());
        if keep {
            fs::remove_dir_all(pool.parent().unwrap()).unwrap();
        }
    }
}

#[test]
fn after_a_failure_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("given.pool");
    let place = Place::choose(Some(&path), None, 0, false).unwrap();
    create(&place, b"pool");
    fs::write(place.data_path(), b"data").unwrap();
    let data = place.data_path();
    drop(place);
    assert!(!path.exists() && !data.parent().unwrap().exists());
}

#[test]
fn a_pool_that_another_process_has_created_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("given.pool");
    let place = Place::choose(Some(&path), None, 0, false).unwrap();
    fs::write(&path, b"of another one").unwrap();
    drop(place);
    assert!(path.exists());
}

/// A signal may come before the tour has created its pool, while a file of others is there.
#[test]
fn a_signal_removes_only_what_the_tour_has_created() {
    let folder = tempfile::tempdir().unwrap();
    let (path, beside) = (folder.path().join("given.pool"), folder.path().join("beside"));
    fs::write(&beside, b"of another one").unwrap();
    for is_created in [false, true] {
        let place = Place::choose(Some(&path), None, 0, false).unwrap();
        let last_words = place.last_words(Running::default());
        if is_created {
            create(&place, b"pool");
        } else {
            fs::write(&path, b"pool").unwrap();
        }
        let data = place.data_path();
        fs::write(&data, b"data").unwrap();
        assert_eq!(last_words().unwrap(), "; the tour's files are removed");
        assert!(!data.parent().unwrap().exists());
        assert_eq!(path.exists(), !is_created);
        assert_eq!(fs::read(&beside).unwrap(), b"of another one");
        let _ = fs::remove_file(&path);
    }
}

/// Between two attempts the tour has no pool, and the path is anyone's.
#[test]
fn a_pool_of_others_stays_after_an_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("given.pool");
    let place = Place::choose(Some(&path), None, 0, false).unwrap();
    let last_words = place.last_words(Running::default());
    create(&place, b"pool");
    place.remove_pool().unwrap();
    fs::write(&path, b"of another one").unwrap();
    last_words().unwrap();
    drop(place);
    assert_eq!(fs::read(&path).unwrap(), b"of another one");
}

/// Names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_directory_that_is_there_is_no_place_for_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, log) = (folder.path().join("given.pool"), folder.path().join("log"));
    fs::create_dir(&log).unwrap();
    for files in [&[][..], &["manifest", "notes"]] {
        files.iter().for_each(|name| fs::write(log.join(name), b"mine").unwrap());
        let failure = Place::choose(Some(&pool), Some(&log), 0, false).err().unwrap();
        assert_eq!(failure.exit_code(), 2);
        assert_eq!(names(&log), files);
    }
    let missing = folder.path().join("missing/log");
    assert_eq!(Place::choose(None, Some(&missing), 0, false).err().unwrap().exit_code(), 3);
}

/// By its end, by a failure and by a signal, before and after the pool is created.
#[test]
fn a_log_is_removed_with_its_directory_or_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (path, log) = (folder.path().join("given.pool"), folder.path().join("log"));
    let files = ["image-0000000000000000", "lock", "manifest", "segment-0000000000000001"];
    for keep in [false, true] {
        for end in ["end", "failure", "signal", "signal before the pool"] {
            let mut place = Place::choose(Some(&path), Some(&log), 0, keep).unwrap();
            let last_words = place.last_words(Running::default());
            files.iter().for_each(|name| fs::write(log.join(name), b"log").unwrap());
            if end != "signal before the pool" {
                create(&place, b"pool");
            }
            fs::write(place.data_path(), b"data").unwrap();
            match end {
                "end" => place.remove().unwrap(),
                "failure" => {}
                _ => {
                    let told = last_words().unwrap();
                    assert_eq!(told.contains(&log.display().to_string()), keep, "{told}");
                    assert!(place.create(|| Ok(())).is_err(), "nothing is created behind it");
                }
            }
            let temporary = place.data_path().parent().unwrap().to_owned();
            drop(place);
            assert_eq!(
                (path.exists(), log.exists()),
                (keep && end != "signal before the pool", keep)
            );
            if keep {
                assert_eq!(names(&log), files);
                fs::remove_dir_all(&log).unwrap();
                let _ = fs::remove_file(&path);
                let _ = fs::remove_dir_all(temporary);
            }
        }
    }
}

#[test]
fn files_of_others_in_the_directory_of_a_log_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (path, log) = (folder.path().join("given.pool"), folder.path().join("log"));
    let place = Place::choose(Some(&path), Some(&log), 0, false).unwrap();
    let files = ["manifest", "manifest.old", "my-segment-1", "new-1-2", "spare-3"];
    // Another attempt finds a directory without a log.
    for _ in 0..2 {
        create(&place, b"pool");
        files.iter().for_each(|name| fs::write(log.join(name), b"log").unwrap());
        place.remove_pool().unwrap();
        assert_eq!(names(&log), ["manifest.old", "my-segment-1"]);
    }
    drop(place);
    assert_eq!(names(&log), ["manifest.old", "my-segment-1"]);
}

#[test]
fn a_file_system_too_small_for_the_data_is_not_chosen() {
    let place = Place::choose(None, None, u64::MAX, false).unwrap();
    assert!(place.pool_path().starts_with(std::env::temp_dir()));
}
