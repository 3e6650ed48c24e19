//! Power cuts at each operation of the device.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pando_device::Operation;
use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_log::{Log, check_owner};
use pando_pmem::testing::Arena;
use pando_pmem::{Process, layout};

use crate::common::{
    ByFirstByte, Records, SMALL, append, create, create_in, number_of, payload, read, resume,
    synced, write_all,
};

const ORDER: Ordering = Ordering::SeqCst;

/// What a power cut may find: an image, with the LSN that was durable then.
struct Cut {
    durable: u64,
    truncated: u64,
    image: Simulated,
}

/// What power cuts keep of that which is not synced.
const EACH: &[Kept] = &[Kept::Nothing, Kept::All, Kept::Some, Kept::Some];

/// Cuts the power of `directory` before each operation, in each of these ways.
fn cut_at_each_operation(
    directory: &Simulated,
    durable: impl Fn() -> (u64, u64) + Send + Sync + 'static,
    (ways, seed): (&'static [Kept], u64),
) -> Arc<Mutex<Vec<Cut>>> {
    let cuts = Arc::new(Mutex::new(Vec::new()));
    let (noted, watched) = (cuts.clone(), directory.clone());
    let random = Mutex::new(Random::new(seed));
    directory.on_operation(move |_, _| {
        let (durable, truncated) = durable();
        let mut random = random.lock().expect("a lock");
        for &kept in ways {
            let image = watched.cut_power(kept, &mut random);
            noted.lock().expect("a lock").push(Cut { durable, truncated, image });
        }
        Ok::<(), io::Error>(())
    });
    cuts
}

/// The records of an image: whole, in order, all that were durable, and a prefix of `appended`.
fn check(cut: &Cut, appended: &Records) {
    let (records, recovered) = read(&cut.image, cut.truncated).expect("the image is readable");
    assert!(recovered.end_lsn() >= cut.durable, "{} of {}", recovered.end_lsn(), cut.durable);
    let end = recovered.end_lsn();
    let expected = appended.iter().filter(|(lsn, _)| (cut.truncated + 1..=end).contains(*lsn));
    assert!(records.iter().eq(expected), "up to {end}");
}

#[test]
fn what_was_durable_is_read_after_a_power_cut_at_each_operation() {
    let directory = Simulated::new();
    let log = Arc::new(create::<Process>(&directory, SMALL));
    let truncated = Arc::new(AtomicU64::new(0));
    let cuts = cut_at_each_operation(
        &directory,
        {
            let (log, truncated) = (log.clone(), truncated.clone());
            move || (log.durable_lsn(), truncated.load(ORDER))
        },
        (EACH, 7),
    );
    let mut random = Random::new(2);
    let mut appended = Records::new();
    for number in 1..=60 {
        let payload = payload(number, random.below(9_000) as usize);
        let lsn = append(&log, &payload).expect("appended");
        if number % 7 != 0 {
            appended.insert(lsn, payload);
        }
        if number % 4 == 0 {
            log.sync(lsn, &ByFirstByte).expect("synced");
        }
        if number % 20 == 0 {
            // Something else has all records up to here from now on.
            truncated.store(lsn, ORDER);
            log.truncate(lsn).expect("truncated");
        }
    }
    let cuts = std::mem::take(&mut *cuts.lock().expect("a lock"));
    assert!(cuts.len() > 300, "{} power cuts", cuts.len());
    assert!(cuts.iter().any(|cut| cut.truncated > 0));
    for cut in &cuts {
        check(cut, &appended);
    }
}

/// After each power cut the log continues in a new pool, and the power is cut again.
#[test]
fn a_log_goes_on_after_each_of_many_power_cuts() {
    let mut directory = Simulated::new();
    let mut log = create::<Process>(&directory, SMALL);
    let mut random = Random::new(3);
    let mut appended = Records::new();
    let mut number = 0;
    for round in 0..40 {
        let mut durable = 0;
        for _ in 0..random.below(12) {
            number += 1;
            let payload = payload(number, random.below(6_000) as usize);
            let lsn = append(&log, &payload).expect("appended");
            if number % 7 != 0 {
                appended.insert(lsn, payload);
            }
            if random.one_in(3) {
                log.sync(lsn, &ByFirstByte).expect("synced");
                durable = lsn;
            }
        }
        // Some blocks are written and not synced when the power is cut.
        let image = Arc::new(Mutex::new(None));
        let (noted, watched, cuts) = (image.clone(), directory.clone(), Mutex::new(random));
        let before = random.below(4);
        let syncs = AtomicU64::new(0);
        directory.on_operation(move |operation, _| {
            if operation == Operation::Sync && syncs.fetch_add(1, ORDER) >= before {
                let image = watched.cut_power(Kept::Some, &mut cuts.lock().expect("a lock"));
                noted.lock().expect("a lock").get_or_insert(image);
                return Err(io::Error::other("no power"));
            }
            Ok(())
        });
        let _ = write_all(&log);
        durable = durable.max(log.durable_lsn());
        random.draw();
        let cut = image.lock().expect("a lock").take();
        let image = cut.unwrap_or_else(|| directory.cut_power(Kept::Some, &mut random));

        let (records, recovered) = read(&image, 0).expect("the image is readable");
        let end = recovered.end_lsn();
        assert!(end >= durable, "round {round}: {end} of {durable}");
        appended.retain(|&lsn, _| lsn <= end);
        assert_eq!(records, appended, "round {round}");
        assert!(records.values().all(|payload| number_of(payload).is_some()));
        let pool = pando_pmem::Pool::anonymous(&Default::default()).expect("memory");
        directory = image.clone();
        log = Log::resume(pool, layout::LOG_OFF, Arc::new(image), &recovered, 0, SMALL)
            .expect("the log continues");
        assert_eq!(log.durable_lsn(), end);
    }
    assert!(number > 100);
}

/// A log that was being created is there whole, or not at all.
#[test]
fn a_power_cut_during_creation_leaves_no_log_or_an_empty_one() {
    let directory = Simulated::new();
    let cuts = cut_at_each_operation(&directory, || (0, 0), (EACH, 11));
    create::<Process>(&directory, SMALL);
    let cuts = std::mem::take(&mut *cuts.lock().expect("a lock"));
    let (mut none, mut empty) = (0, 0);
    for cut in &cuts {
        match read(&cut.image, 0) {
            Ok((records, _)) => {
                assert!(records.is_empty());
                empty += 1;
            }
            Err(pando_log::Error::NotALog { .. }) => none += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(none > 0 && empty > 0, "{none} and {empty}");
    // The same call may be made again.
    for cut in &cuts {
        let pool = pando_pmem::Pool::<Process>::anonymous(&Default::default()).expect("memory");
        create_in(pool, &cut.image, SMALL).expect("a log");
    }
}

/// While a lost pool is rebuilt, the log belongs to the lost pool and to the new one; then only to
/// the new one.
#[test]
fn a_log_leaves_the_lost_pool_when_the_new_one_has_its_name() {
    let directory = Simulated::new();
    let arena = Arena::new(1 << 24).expect("memory");
    let pool = pando_pmem::Pool::<Process>::create_in(&arena).expect("a pool");
    let log = create_in(pool, &directory, SMALL).expect("a log");
    synced(&log, &payload(1, 10));
    let (_, recovered) = read(&directory, 0).expect("reads");
    let lost = recovered.pool_id();
    let is_owner = |pool| check_owner(&directory, 42, pool).is_ok();
    assert!(is_owner(lost) && !is_owner(lost + 7) && check_owner(&directory, 43, lost).is_err());

    let pool = pando_pmem::Pool::<Process>::anonymous(&Default::default()).expect("memory");
    let new = pool.pool_id();
    assert_ne!(new, lost);
    let at = || -> Arc<dyn pando_device::Directory> { Arc::new(directory.clone()) };
    let log = Log::resume(pool.clone(), layout::LOG_OFF, at(), &recovered, lost, SMALL);
    drop(log.expect("resumes"));
    // A crash here leaves the lost pool, which may be rebuilt again.
    assert!(is_owner(lost) && is_owner(new));
    Log::open(pool, layout::LOG_OFF, at(), SMALL).expect("opens");
    assert!(!is_owner(lost) && is_owner(new));
}

/// What one rebuild of a lost pool leaves to power cuts.
struct Rebuilt {
    /// The records that the rebuild has read, and one that was synced after it.
    records: Records,
    new_pool: u128,
    cuts: Vec<Cut>,
    /// How many of `cuts` are before the new pool has its name.
    unnamed: usize,
}

/// Rebuilds the pool `lost` from the log in `files`, and cuts the power at each operation. The log
/// was durable up to `durable`.
fn rebuild(files: &Simulated, lost: u128, durable: u64, cuts: (&'static [Kept], u64)) -> Rebuilt {
    let (mut records, recovered) = read(files, 0).expect("reads");
    let least_lsn = Arc::new(AtomicU64::new(durable));
    let read_lsn = least_lsn.clone();
    let cuts = cut_at_each_operation(files, move || (read_lsn.load(ORDER), 0), cuts);
    recovered.secure(files).expect("secured");
    least_lsn.store(recovered.end_lsn(), ORDER);
    let pool = pando_pmem::Pool::<Process>::anonymous(&Default::default()).expect("memory");
    let new_pool = pool.pool_id();
    let directory = Arc::new(files.clone());
    let log = Log::resume(pool, layout::LOG_OFF, directory, &recovered, lost, SMALL);
    let log = log.expect("resumes");
    let unnamed = cuts.lock().expect("a lock").len();
    log.forget_former_pool().expect("the new pool has its name");
    let payload = payload(8, 100);
    let lsn = synced(&log, &payload);
    records.insert(lsn, payload);
    files.on_operation(|_, _| Ok(()));
    let cuts = std::mem::take(&mut *cuts.lock().expect("a lock"));
    Rebuilt { records, new_pool, cuts, unnamed }
}

/// The power is cut at each operation of a rebuild, and then at each one of the next rebuild.
#[test]
fn power_cuts_during_a_rebuild_and_during_the_next_one_lose_nothing() {
    let directory = Simulated::new();
    let arena = Arena::new(1 << 24).expect("memory");
    let pool = pando_pmem::Pool::<Process>::create_in(&arena).expect("a pool");
    let lost = pool.pool_id();
    let log = create_in(pool, &directory, SMALL).expect("a log");
    let durable = (1..=5).map(|number| synced(&log, &payload(number, 13_000))).last();
    let durable = durable.expect("records");
    // The process is killed between the write of its last block and the sync.
    let killed = Arc::new(Mutex::new(None));
    let (noted, watched) = (killed.clone(), directory.clone());
    directory.on_operation(move |operation, _| {
        if operation == Operation::Sync {
            noted.lock().expect("a lock").get_or_insert_with(|| watched.after_kill());
        }
        Ok(())
    });
    synced(&log, &payload(6, 100));
    let killed = killed.lock().expect("a lock").take().expect("a sync");

    let is_owner = |cut: &Cut, pool| check_owner(&cut.image, 42, pool).is_ok();
    let first = rebuild(&killed, lost, durable, (&[Kept::Nothing, Kept::All, Kept::Some], 3));
    assert_eq!(first.records.len(), 7);
    let mut repeated = 0;
    for (number, cut) in first.cuts.iter().enumerate() {
        check(cut, &first.records);
        // The power cut takes the pool's file too.
        let lost = if number < first.unnamed { lost } else { first.new_pool };
        assert!(is_owner(cut, lost), "cut {number}");
        let next = rebuild(&cut.image, lost, cut.durable, (&[Kept::Some], number as u64));
        for (number, cut) in next.cuts.iter().enumerate() {
            check(cut, &next.records);
            assert!(number >= next.unnamed || is_owner(cut, lost), "cut {number}");
        }
        repeated += next.cuts.len();
    }
    assert!(first.unnamed > 50 && repeated > 2_000, "{} and {repeated} cuts", first.unnamed);
}

/// A log that does not begin with the first record, and has no block yet, is not an empty one.
#[test]
fn a_log_that_begins_later_is_not_empty() {
    let directory = Simulated::new();
    let pool = pando_pmem::Pool::<Process>::anonymous(&Default::default()).expect("memory");
    let at: Arc<dyn pando_device::Directory> = Arc::new(directory.clone());
    let log = Log::create(pool, layout::LOG_OFF, at, (42, 640), SMALL).expect("a log");
    let missing = read(&directory, 0).expect_err("its first records are elsewhere");
    assert!(matches!(missing, pando_log::Error::Missing { .. }), "{missing}");
    let lsn = synced(&log, &payload(1, 10));
    assert!(lsn > 640);
    assert_eq!(read(&directory, 640).expect("reads").0.len(), 1);
}

/// The last block was written and not synced; the pool is lost without a power cut.
#[test]
fn what_recovery_builds_upon_is_durable() {
    let directory = Simulated::new();
    let log = create::<Process>(&directory, SMALL);
    synced(&log, &payload(1, 10));
    append(&log, &payload(2, 10)).expect("appended");
    // The process is killed between the write and the sync.
    let image = {
        let at = Arc::new(Mutex::new(None::<Simulated>));
        let (noted, watched) = (at.clone(), directory.clone());
        directory.on_operation(move |found, _| {
            if found == Operation::Sync {
                noted.lock().expect("a lock").get_or_insert(watched.clone());
                loop {
                    std::thread::park();
                }
            }
            Ok(())
        });
        let log = Arc::new(log);
        let theirs = log.clone();
        std::thread::spawn(move || {
            let _ = theirs.write_block(&ByFirstByte);
        });
        loop {
            if let Some(found) = at.lock().expect("a lock").take() {
                break found;
            }
            std::thread::yield_now();
        }
    };
    image.on_operation(|_, _| Ok(()));
    // The same files, another pool.
    let (records, recovered) = read(&image, 0).expect("reads");
    assert_eq!(records.len(), 2);
    let log = resume(&image, &recovered).expect("resumes");
    synced(&log, &payload(3, 10));
    let image = image.cut_power(Kept::Nothing, &mut Random::new(1));
    let found = read(&image, 0);
    assert!(found.is_ok(), "{}", found.expect_err("an error"));
}
