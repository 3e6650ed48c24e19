//! A pool and the directory of its log, in a folder of their own.

use std::fs;
use std::path::PathBuf;

use pando::{Map, MapOptions, Pool, PoolOptions};
use pando_pmem::superblock::{BOOT_OFF, BootId, boot_words};

/// A folder with a pool and the directory of its log.
pub struct Place {
    pub folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn pool(&self) -> PathBuf {
        self.path("grove.pool")
    }

    pub fn log(&self) -> PathBuf {
        self.path("grove.log")
    }

    pub fn options(&self) -> PoolOptions {
        PoolOptions::new().log(self.log()).max_bytes(1 << 26)
    }

    pub fn create(&self) -> Pool {
        Pool::create(self.pool(), &self.options()).expect("a pool")
    }

    pub fn open(&self) -> Pool {
        Pool::open(self.pool(), &self.options()).expect("opens")
    }

    /// The pool's file becomes what it is now, as a machine finds it that has gone down now.
    pub fn go_down(&self, pool: Pool) {
        let copy = self.path("copy");
        fs::copy(self.pool(), &copy).expect("copied");
        drop(pool);
        fs::copy(&copy, self.pool()).expect("copied");
        self.lose_memory();
    }

    /// The same with a pool that is not open.
    pub fn lose_memory(&self) {
        let mut bytes = fs::read(self.pool()).expect("read");
        let words = boot_words(BootId(0x1234_5678_9ABC_DEF0_1122_3344_5566_7788));
        for (index, word) in words.into_iter().enumerate() {
            let at = BOOT_OFF as usize + index * 8;
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        // Nothing behind the superblock is what it was.
        bytes[4096..].fill(0xA5);
        fs::write(self.pool(), bytes).expect("written");
    }
}

pub fn transactional(pool: &Pool, name: &str) -> Map {
    pool.map_with(name, &MapOptions::new().transactional(true)).expect("a map")
}

pub fn fill(map: &Map, from: u64, to: u64) {
    for number in from..to {
        map.upsert(number.to_be_bytes(), format!("value {number}").as_bytes()).expect("written");
    }
}

/// Checks that the pool has a map of that name with the first records.
#[track_caller]
pub fn check_map(pool: &Pool, name: &str, to: u64) {
    check(&pool.open_map(name).expect("a map"), to);
}

#[track_caller]
pub fn check(map: &Map, to: u64) {
    assert_eq!(map.len().expect("counted"), to);
    for number in (0..to).step_by(7) {
        let value = map.get(number.to_be_bytes()).expect("read").expect("is there");
        assert_eq!(value, format!("value {number}").as_bytes());
    }
}
