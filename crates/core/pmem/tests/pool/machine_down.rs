//! The history in the superblock: generation, clean flag, boot id.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use pando_pmem::superblock::{self, BootId};
use pando_pmem::{Adr, CreateOptions, Error, OpenPool, Pool, Process, remove_unfinished};

use crate::common::{active, create, folder_and_pool, give, open};

fn write_words(path: &Path, off: u64, words: &[u64]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    for (index, word) in words.iter().enumerate() {
        file.write_all_at(&word.to_le_bytes(), off + index as u64 * 8).unwrap();
    }
}

/// Changes the pool to one that was opened last in another boot.
fn boot_another(path: &Path) {
    let other = superblock::boot_words(BootId(0x1234_5678_9ABC_DEF0_1122_3344_5566_7788));
    write_words(path, superblock::BOOT_OFF, &other);
}

#[test]
fn an_unclean_pool_of_another_boot_is_not_trusted_but_salvaged() {
    let (_folder, path) = folder_and_pool();
    let pool = create::<Process>(&path, 1);
    give(&pool, 0, 100, 7);
    pool.abandon();
    boot_another(&path);
    let before = std::fs::read(&path).unwrap();
    let error = Pool::<Process>::open(&path, &OpenPool::default()).unwrap_err();
    assert!(matches!(error, Error::NotTrusted { .. }), "{error}");
    assert!(error.to_string().contains("salvage"), "{error}");
    assert!(std::fs::read(&path).unwrap() == before);
    let salvage = || {
        Pool::<Process>::open(&path, &OpenPool { salvage: true, ..OpenPool::default() }).unwrap()
    };
    let pool = salvage();
    assert!(!pool.was_clean());
    assert_eq!(active(&pool).len(), 1);
    // However that ends, the pool stays untrusted.
    pool.abandon();
    let is_refused = || {
        let opened = Pool::<Process>::open(&path, &OpenPool::default());
        matches!(opened, Err(Error::NotTrusted { .. }))
    };
    assert!(is_refused());
    salvage().close().unwrap();
    assert!(is_refused());
    drop(salvage());
    assert!(is_refused());
}

#[test]
fn salvage_of_a_pool_that_is_trusted_changes_nothing_of_that() {
    let (_folder, path) = folder_and_pool();
    create::<Process>(&path, 1).abandon();
    Pool::<Process>::open(&path, &OpenPool { salvage: true, ..OpenPool::default() })
        .unwrap()
        .close()
        .unwrap();
    boot_another(&path);
    assert!(open::<Process>(&path).was_clean());
}

/// The domain and medium of the last generation decide, which the superblock names, and not the
/// current ones.
#[test]
fn an_unclean_pool_of_another_boot_is_trusted_if_its_writes_survived_power_loss() {
    let (_folder, path) = folder_and_pool();
    let survives = || {
        let block = std::fs::read(&path).unwrap();
        superblock::Superblock::decode(&path, &block[..superblock::SUPERBLOCK_BYTES]).unwrap()
    };
    for (survives_power, trusted) in [(true, true), (false, false)] {
        create::<Adr>(&path, 1).abandon();
        assert!(!survives().survives_power, "this is no persistent memory");
        write_words(
            &path,
            superblock::STATE_OFF,
            &[superblock::state_word(1, false, survives_power)],
        );
        boot_another(&path);
        let opened = Pool::<Adr>::open(&path, &OpenPool::default());
        assert_eq!(opened.is_ok(), trusted, "{opened:?}");
        // From now on writes do not survive power loss.
        if let Ok(pool) = opened {
            assert!(!survives().survives_power);
            pool.abandon();
            boot_another(&path);
            assert!(Pool::<Adr>::open(&path, &OpenPool::default()).is_err());
        }
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn an_unclean_pool_of_an_unknown_boot_is_not_trusted() {
    let (_folder, path) = folder_and_pool();
    create::<Process>(&path, 1).abandon();
    write_words(&path, superblock::BOOT_OFF, &superblock::boot_words(BootId(0)));
    assert!(Pool::<Process>::open(&path, &OpenPool::default()).is_err());
    assert!(!BootId(0).is_same(BootId(0)) && BootId(1).is_same(BootId(1)));
}

#[test]
fn a_clean_pool_of_another_boot_opens() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 1));
    boot_another(&path);
    let pool = open::<Process>(&path);
    assert!(pool.was_clean());
    pool.abandon();
    // The boot id is that of this boot now, so a crash of the process is harmless.
    assert!(!open::<Process>(&path).was_clean());
}

#[test]
fn each_opening_raises_the_generation() {
    let (_folder, path) = folder_and_pool();
    assert_eq!(create::<Process>(&path, 1).generation(), 1);
    assert_eq!(open::<Process>(&path).generation(), 2);
    open::<Process>(&path).abandon();
    assert_eq!(open::<Process>(&path).generation(), 4);
}

#[test]
fn the_generation_does_not_wrap() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 1));
    write_words(&path, superblock::STATE_OFF, &[superblock::state_word(u32::MAX - 1, true, false)]);
    assert_eq!(open::<Process>(&path).generation(), u32::MAX);
    let before = std::fs::read(&path).unwrap();
    let error = Pool::<Process>::open(&path, &OpenPool::default()).unwrap_err();
    assert!(matches!(error, Error::BadField { field: "the generation", .. }), "{error}");
    assert!(std::fs::read(&path).unwrap() == before);
}

#[test]
fn a_stray_file_of_a_create_cut_short_is_in_nobodys_way() {
    let (folder, path) = folder_and_pool();
    std::fs::write(folder.path().join("pool.new-0123456789abcdef"), [0; 100]).unwrap();
    drop(create::<Process>(&path, 1));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    assert!(open::<Process>(&path).was_clean());
    // What is being created now is not stray, and other files are not either.
    let create = CreateOptions::default();
    let unfinished = Pool::<Process>::prepare(&path, &create, None).unwrap();
    std::fs::write(folder.path().join("pool.new-0123456789abcdeg"), []).unwrap();
    std::fs::write(folder.path().join("poor.new-0123456789abcdef"), []).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 5);
    remove_unfinished(&path);
    assert!(!folder.path().join("pool.new-0123456789abcdef").exists());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
    unfinished.publish(true).unwrap();
}
