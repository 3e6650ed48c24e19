//! Replies of a server of a record store: before its keys are counted, and with a damaged page.

use std::path::Path;
use std::sync::Arc;

use pando_keyspace::{Store, StoreOptions};
use pando_memcached::State;

use crate::shared::Shared;
use crate::testing;

fn open(path: &Path) -> Shared {
    let options = StoreOptions { page_bytes: Some(16 << 20), ..StoreOptions::default() };
    let store = Store::open(Some(path), &options).expect("a store");
    let redis = Arc::new(pando_redis::server(store, 1));
    Shared { redis, memcached: State::new(None), tls: None }
}

fn replies(server: &Shared, input: &str) -> String {
    String::from_utf8(testing::redis_on(server, input.as_bytes(), 1 << 16)).expect("text")
}

#[test]
fn requests_for_the_number_of_keys_do_not_count_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let server = open(&path);
    assert_eq!(replies(&server, "SET key value\r\nDBSIZE\r\n"), "+OK\r\n:1\r\n");
    let server = Arc::into_inner(server.redis).expect("no other owner");
    server.store.close().expect("closes");

    let server = open(&path);
    let stats =
        || String::from_utf8(testing::memcached_on(&server, b"stats\r\n", 64)).expect("text");
    assert!(replies(&server, "DBSIZE\r\n").starts_with("-BUSY "));
    let in_multi =
        replies(&server, "MULTI\r\nSET key other\r\nDBSIZE\r\nINFO keyspace\r\nEXEC\r\n");
    assert!(in_multi.contains("-BUSY ") && in_multi.contains("counting:1"), "{in_multi}");
    assert!(replies(&server, "INFO\r\n").contains("# Keyspace\r\ncounting:1\r\n"));
    assert!(!stats().contains("curr_items") && stats().ends_with("END\r\n"));
    assert!(server.redis.store.is_count_wanted());
    server.redis.store.count_in_background();
    assert_eq!(replies(&server, "DBSIZE\r\n"), ":1\r\n");
    assert!(replies(&server, "INFO keyspace\r\n").contains("db0:keys=1,"));
    assert!(stats().contains("STAT curr_items 1\r\n"));
}

#[test]
fn a_damaged_page_hides_only_one_section_of_info() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let server = open(&path);
    let keys = (0..200).map(|key| format!("SET expires:{key:03} {} EX 1000\r\n", "v".repeat(500)));
    assert_eq!(replies(&server, &keys.collect::<String>()), "+OK\r\n".repeat(200));
    let info = replies(&server, "INFO\r\n");
    assert!(info.contains("db0:keys=200,expires="), "{info}");
    let server = Arc::into_inner(server.redis).expect("no other owner");
    server.store.close().expect("closes");

    let (name, mut damaged) = (b"expires:007", 0);
    for file in std::fs::read_dir(path.join("pages")).expect("a folder") {
        let file = file.expect("a file").path();
        let mut bytes = std::fs::read(&file).expect("reads");
        let mut at = 0;
        while let Some(found) = bytes[at..].windows(name.len()).position(|text| text == name) {
            at += found;
            bytes[at] ^= 1;
            damaged += 1;
        }
        std::fs::write(&file, bytes).expect("written");
    }
    assert!(damaged > 0);

    let server = open(&path);
    server.redis.store.count_in_background();
    let info = replies(&server, "INFO\r\n");
    assert!(info.contains("\r\nkeyspace_error:ERR ") && info.contains("# Pando\r\n"), "{info}");
    assert!(replies(&server, "DBSIZE\r\n").starts_with("-ERR "));
    assert!(replies(&server, "PING\r\n").starts_with("+PONG"));
}
