//! The N-th request for room in the file fails, for every N: while a pool is created, and while it
//! grows for a block of a slab or for a span.

use std::fs;

use pando_pmem::testing::give_to;
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::{Error, Pool, Process};

use crate::common::{active, create, folder_and_pool, free, give, holds, open, options, room};

/// The request is refused once, or all requests from then on.
const COUNTS: [u64; 2] = [1, u64::MAX];

#[test]
fn a_pool_whose_creation_is_refused_room_leaves_no_file() {
    let (folder, path) = folder_and_pool();
    for count in COUNTS {
        for granted in 0.. {
            let attempt = || Pool::<Process>::create(&path, &options(4));
            let (created, was_refused) = refuse(Resource::FileRoom, granted, count, attempt);
            let files = fs::read_dir(folder.path()).unwrap().count();
            match created {
                Ok(pool) => {
                    assert!(!was_refused);
                    drop(pool);
                    fs::remove_file(&path).unwrap();
                    break;
                }
                Err(error) => {
                    assert!(matches!(error, Error::FileSystemFull { .. }), "{error}");
                    assert_eq!(files, 0, "request {granted}: a file is left");
                }
            }
        }
    }
}

#[test]
fn growth_that_is_refused_room_changes_nothing_and_may_be_tried_again() {
    for bytes in [100, 30_000, 65_536, 300_000] {
        for count in COUNTS {
            for granted in 0.. {
                let (_folder, path) = folder_and_pool();
                let pool = create::<Process>(&path, 4);
                // All room without growth.
                let (_, ended) = refuse(Resource::FileRoom, 0, u64::MAX, || {
                    let guard = pool.pin().unwrap();
                    let mut index = 1;
                    while let Ok(mut block) = guard.reserve(65_536) {
                        block.write(0, &[7; 65_536]);
                        give_to(&guard, crate::common::root(index), block);
                        index += 1;
                    }
                });
                assert!(ended);
                let before = active(&pool);
                let attempt = || pool.pin().unwrap().reserve(bytes).map(|block| block.off());
                let (grown, was_refused) = refuse(Resource::FileRoom, granted, count, attempt);
                if let Err(error) = &grown {
                    assert!(matches!(error, Error::FileSystemFull { .. }), "{error}");
                }
                assert!(was_refused || grown.is_ok());
                assert_eq!(active(&pool), before);
                let off = give(&pool, 0, bytes, 3);
                assert_eq!(active(&pool).len(), before.len() + 1);
                pool.abandon();
                let pool = open::<Process>(&path);
                assert!(holds(&pool, off, bytes, 3));
                assert!(before.iter().all(|block| holds(&pool, block.off, block.bytes, 7)));
                free(&pool, 0);
                let all = pool.geometry().max_chunks as usize;
                assert_eq!(room(&pool, 65_536) + before.len(), all, "{bytes}, request {granted}");
                if !was_refused {
                    break;
                }
            }
        }
    }
}
