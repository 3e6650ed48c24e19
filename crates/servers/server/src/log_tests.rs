//! Replies of both protocols, if the pool has a log: when they wait for it, and if it cannot be
//! written.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use pando::PoolOptions;
use pando_keyspace::{Store, StoreOptions, SyncMode};
use pando_memcached::State;
use pando_net::access::DEFAULT;
use pando_redis::clients::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::broken_disk::{break_disk, mend_disk};
use crate::options::Options;
use crate::shared::Shared;

const WRITTEN: &str = "MISCONF a power cut may undo the writes of this command: ";
const REFUSED: &str = "MISCONF writes are refused: ";

/// A server, and the folder of its pool and log.
struct Place {
    shared: Shared,
    folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Place {
    fn new(sync: SyncMode) -> Self {
        Self::open(tempfile::tempdir().expect("a folder"), sync)
    }

    /// The same server after a restart, with a disk that is whole again.
    fn mended(self, sync: SyncMode) -> Self {
        let Self { shared, folder, .. } = self;
        drop(shared);
        mend_disk(&folder.path().join("log"), &folder.path().join("kept"));
        Self::open(folder, sync)
    }

    fn open(folder: tempfile::TempDir, sync: SyncMode) -> Self {
        let pool = PoolOptions::new().max_bytes(64 << 20).log(folder.path().join("log"));
        let options = StoreOptions { pool, sync, ..StoreOptions::default() };
        let store = Store::open(Some(&folder.path().join("pool")), &options).expect("a store");
        let redis = pando_redis::server(store, 1);
        redis.limit_memory();
        redis.config.set_by_option("appendfsync", sync.name()).expect("a mode");
        let shared = Shared { redis: Arc::new(redis), memcached: State::new(None), tls: None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Self { shared, folder, runtime: runtime.expect("a runtime") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn break_disk(&self) {
        break_disk(&self.path("log"), &self.path("kept"));
    }

    /// The replies of a Redis server to `input` on a new connection.
    fn redis(&self, input: &str) -> String {
        let address = Address {
            peer: String::new(),
            local: String::new(),
            descriptor: 0,
            is_unix: true,
            is_here: true,
            is_timed: false,
        };
        let client = self.shared.redis.clients.add(address, DEFAULT, 9).expect("it is let in");
        let (near, far) = tokio::io::duplex(1 << 16);
        self.runtime.block_on(async {
            let (served, replies) = tokio::join!(
                pando_redis::converse(&self.shared.redis, &client, far),
                talk(near, input)
            );
            served.expect("serves");
            replies
        })
    }

    /// The replies of a memcached server to `input` on a new connection.
    fn memcached(&self, input: &str) -> String {
        self.memcached_in_parts(&[input])
    }

    /// The same; each part but the first is sent when the one before it has a reply.
    fn memcached_in_parts(&self, parts: &[&str]) -> String {
        let (near, far) = tokio::io::duplex(1 << 16);
        self.runtime.block_on(async {
            let (served, replies) = tokio::join!(
                pando_memcached::converse(self.shared.memcached(), String::new(), far),
                talk_in_parts(near, parts)
            );
            served.expect("serves");
            replies
        })
    }

    /// Lets a round fail, so that writes are refused from then on.
    fn refuse_writes(&self) {
        self.break_disk();
        assert_eq!(lines(&self.redis("SET broken 1\r\n")), [format!("-{WRITTEN}")]);
        assert!(self.shared.redis.store.refuses_writes());
    }

    /// Closes the store; the files stay.
    fn close(self) -> tempfile::TempDir {
        let server = Arc::into_inner(self.shared.redis).expect("no other owner");
        server.store.close().expect("closes");
        self.folder
    }
}

/// Sends `input`, and returns all replies.
async fn talk(stream: DuplexStream, input: &str) -> String {
    talk_in_parts(stream, &[input]).await
}

async fn talk_in_parts(mut stream: DuplexStream, parts: &[&str]) -> String {
    let mut replies = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            stream.read_buf(&mut replies).await.expect("receives");
        }
        stream.write_all(part.as_bytes()).await.expect("sends");
    }
    stream.shutdown().await.expect("ends");
    stream.read_to_end(&mut replies).await.expect("receives");
    String::from_utf8(replies).expect("text")
}

/// The lines of a text; each error without what follows its first words.
fn lines(replies: &str) -> Vec<&str> {
    let known = ["-", "SERVER_ERROR "].map(|kind| [WRITTEN, REFUSED].map(|words| (kind, words)));
    let cut = |line| {
        let found = known.iter().flatten().find(|(kind, words)| {
            str::strip_prefix(line, kind).is_some_and(|rest: &str| rest.starts_with(words))
        });
        found.map_or(line, |(kind, words)| &line[..kind.len() + words.len()])
    };
    replies.lines().map(cut).collect()
}

#[test]
fn waitaof_says_whether_the_clients_writes_are_durable() {
    let always = Place::new(SyncMode::Always);
    assert_eq!(
        lines(&always.redis("SET a 1\r\nGET a\r\nWAITAOF 1 0 0\r\nGET a\r\n")),
        ["+OK", "$1", "1", "*2", ":1", ":0", "$1", "1"]
    );
    let never = Place::new(SyncMode::No);
    assert_eq!(
        lines(
            &never.redis("WAITAOF 0 0 0\r\nSET a 1\r\nWAITAOF 0 0 0\r\nWAITAOF 1 0 0\r\nPING\r\n")
        ),
        ["*2", ":1", ":0", "+OK", "*2", ":0", ":0", "*2", ":1", ":0", "+PONG"]
    );
    // A transaction does not wait.
    assert_eq!(
        lines(&never.redis("MULTI\r\nSET a 2\r\nWAITAOF 1 0 0\r\nEXEC\r\nWAITAOF 1 1 0\r\n"))[3..],
        ["*2", "+OK", "*2", ":1", ":0", "*2", ":1", ":0"]
    );
    assert_eq!(
        never.redis("SET a 3\r\nCLIENT REPLY SKIP\r\nWAITAOF 1 0 0\r\nPING\r\n"),
        "+OK\r\n+PONG\r\n"
    );
    for wrong in ["2 0 0", "x 0 0", "0 -1 0", "0 0 -1", "0 0 x"] {
        let said = never.redis(&format!("WAITAOF {wrong}\r\n"));
        assert!(said.starts_with("-ERR "), "{wrong}: {said}");
    }
    let without = crate::testing::server();
    assert_eq!(
        crate::testing::redis_on(&without, b"WAITAOF 0 0 0\r\nWAITAOF 1 0 0\r\n", 100),
        b"*2\r\n:0\r\n:0\r\n-ERR WAITAOF cannot be used when numlocal is set but appendonly is \
          disabled.\r\n"
    );
}

#[test]
fn the_mode_is_read_and_set_and_info_tells_it() {
    let place = Place::new(SyncMode::EverySecond);
    let get = "CONFIG GET appendfsync\r\n";
    assert_eq!(lines(&place.redis(get))[4], "everysec");
    assert_eq!(place.redis("CONFIG SET appendfsync ALWAYS\r\n"), "+OK\r\n");
    assert_eq!(lines(&place.redis(get))[4], "always");
    assert_eq!(place.shared.redis.store.log().expect("a log").mode(), SyncMode::Always);
    let info = place.redis("INFO\r\n");
    for line in ["aof_enabled:1", "aof_last_write_status:ok", "sync:always", "log_has_stopped:0"] {
        assert!(info.lines().any(|found| found == line), "{line}: {info}");
    }
    assert!(place.redis("CONFIG SET appendfsync never\r\n").starts_with("-ERR CONFIG SET failed"));
    let without = crate::testing::server();
    let said =
        crate::testing::redis_on(&without, b"CONFIG SET appendfsync always\r\nINFO\r\n", 100);
    let said = String::from_utf8(said).expect("text");
    assert!(said.starts_with("-ERR CONFIG SET failed") && said.contains("the pool has no log"));
    assert!(said.contains("aof_enabled:0"));
}

#[test]
fn a_write_that_is_not_durable_is_not_acknowledged_and_reads_go_on() {
    let place = Place::new(SyncMode::Always);
    assert_eq!(place.redis("SET a 1\r\n"), "+OK\r\n");
    place.break_disk();
    assert_eq!(
        lines(&place.redis("GET a\r\nSET a 2\r\nGET a\r\n")),
        ["$1", "1", &format!("-{WRITTEN}"), "$1", "2"]
    );
    let refused = format!("-{REFUSED}");
    assert_eq!(lines(&place.redis("SET a 3\r\nGET a\r\n")), [&*refused, "$1", "2"]);
    assert_eq!(
        lines(&place.redis("MULTI\r\nSET a 3\r\nEXEC\r\nGET a\r\n")),
        ["+OK", "+QUEUED", &refused, "$1", "2"]
    );
    assert_eq!(
        lines(&place.memcached("set a 0 0 1\r\n3\r\nget a\r\nms a 1 q\r\n3\r\n")),
        [
            &*format!("SERVER_ERROR {REFUSED}"),
            "VALUE a 0 1",
            "2",
            "END",
            &format!("SERVER_ERROR {REFUSED}")
        ]
    );
    let info = place.redis("INFO\r\n");
    assert!(info.contains("aof_last_write_status:err") && info.contains("log_has_stopped:1"));
    assert!(info.contains("restart the server"), "{info}");
    let place = place.mended(SyncMode::Always);
    assert_eq!(lines(&place.redis("GET a\r\nSET a 4\r\n")), ["$1", "2", "+OK"]);
}

#[test]
fn memcached_says_that_a_write_is_not_durable_unless_the_client_wants_no_reply() {
    for (input, replies) in [
        ("set a 0 0 1\r\n2\r\nget a\r\n", &["SERVER_ERROR ", "VALUE a 0 1", "2", "END"][..]),
        ("set a 0 0 1 noreply\r\n2\r\nget a\r\n", &["VALUE a 0 1", "2", "END"]),
        ("ms a 1 q\r\n2\r\nmn\r\n", &["SERVER_ERROR ", "MN"]),
        ("gat 1000 a\r\nmn\r\n", &["SERVER_ERROR ", "MN"]),
        ("flush_all\r\nmn\r\n", &["SERVER_ERROR ", "MN"]),
    ] {
        let place = Place::new(SyncMode::Always);
        assert_eq!(place.memcached("set a 0 0 1\r\n1\r\n"), "STORED\r\n");
        place.break_disk();
        let found = place.memcached(input);
        let expected = replies.iter().map(|line| match *line {
            "SERVER_ERROR " => format!("SERVER_ERROR {WRITTEN}"),
            line => line.to_owned(),
        });
        assert_eq!(lines(&found), expected.collect::<Vec<_>>(), "{input}: {found}");
    }
}

#[test]
fn a_command_of_a_transaction_that_finds_no_room_ends_the_transaction() {
    let place = Place::new(SyncMode::Always);
    place.refuse_writes();
    place.redis("CONFIG SET maxmemory-policy allkeys-lru\r\nCONFIG SET maxmemory 1\r\n");
    place.shared.redis.limit_memory();
    // The eviction for SET is a write, so it is refused.
    let said = place.redis("MULTI\r\nSET a 2\r\nGET a\r\nEXEC\r\n");
    let said = lines(&said);
    assert_eq!((said[0], said[1]), ("+OK", &*format!("-{REFUSED}")));
    assert!(said[3].starts_with("-EXECABORT "), "{said:?}");
}

#[test]
fn reads_go_on_beside_a_log_that_fails() {
    let place = Place::new(SyncMode::Always);
    assert_eq!(place.redis("SET a 1\r\n"), "+OK\r\n");
    // After a restart the keys are not counted yet.
    let place = Place::open(place.close(), SyncMode::Always);
    place.refuse_writes();
    std::fs::rename(place.path("log"), place.path("away")).expect("renamed");
    assert_eq!(place.redis("DBSIZE\r\n"), ":2\r\n");
    let info = place.redis("INFO\r\n");
    assert!(info.contains("db0:keys=2") && info.contains("log_has_stopped:1"), "{info}");
    // It has the figures of before: it does not read the directory, which may hang.
    assert!(info.contains("restart the server") && info.contains("log_image_lsn:"), "{info}");
    let refused = format!("-{REFUSED}");
    let said = place.redis("WATCH a\r\nMULTI\r\nGET a\r\nEXEC\r\nSET a 2\r\n");
    assert_eq!(lines(&said), ["+OK", "+OK", "+QUEUED", "*1", "$1", "1", &refused]);
    std::fs::rename(place.path("away"), place.path("log")).expect("renamed");
}

#[test]
fn a_watch_waits_for_the_log_only_if_it_removes_a_key() {
    let place = Place::new(SyncMode::Always);
    assert_eq!(place.redis("SET a 1\r\nSET b 1 PX 1\r\n"), "+OK\r\n+OK\r\n");
    std::thread::sleep(std::time::Duration::from_millis(5));
    place.break_disk();
    assert_eq!(place.redis("WATCH a\r\n"), "+OK\r\n");
    assert_eq!(lines(&place.redis("WATCH b\r\n")), [format!("-{WRITTEN}")]);
}

#[test]
fn memcacheds_delayed_flush_waits_for_a_log_that_fails() {
    let place = Place::new(SyncMode::Always);
    assert_eq!(place.memcached("set a 0 0 1\r\n1\r\nflush_all 1\r\n"), "STORED\r\nOK\r\n");
    place.refuse_writes();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(
        lines(&place.memcached("set a 0 0 9\r\nflush_all\r\nget a\r\n")),
        [&*format!("SERVER_ERROR {REFUSED}"), "VALUE a 0 1", "1", "END"]
    );
}

#[test]
fn memcached_acknowledges_a_request_before_its_data_and_goes_on_with_the_data() {
    let too_large = "set a 0 0 2000000\r\n";
    for (parts, replies) in [
        // The old value is removed before the data arrives.
        (&[too_large][..], &["SERVER_ERROR "][..]),
        (&["ms a 2000000\r\n"], &["SERVER_ERROR "]),
        (&["gat 1000 a\r\nset b 0 0 1\r\n", "x\r\nmn\r\n"], &["SERVER_ERROR ", "", "MN"]),
    ] {
        let place = Place::new(SyncMode::Always);
        assert_eq!(place.memcached("set a 0 0 1\r\n1\r\n"), "STORED\r\n");
        place.break_disk();
        let found = place.memcached_in_parts(parts);
        let expected = replies.iter().map(|line| match *line {
            "SERVER_ERROR " => format!("SERVER_ERROR {WRITTEN}"),
            "" => format!("SERVER_ERROR {REFUSED}"),
            line => line.to_owned(),
        });
        assert_eq!(lines(&found), expected.collect::<Vec<_>>(), "{parts:?}: {found}");
    }
}

/// The log has the newest keys, and a recovery would use it up.
#[test]
fn a_pool_with_a_log_whose_superblock_is_damaged_is_not_recovered() {
    let place = Place::new(SyncMode::Always);
    assert_eq!(place.redis("SET a 1\r\n"), "+OK\r\n");
    let snapshot = place.path("snapshot");
    place.shared.redis.store.save(&snapshot, 1).expect("saves");
    let folder = place.close();
    let (pool, log) = (folder.path().join("pool"), folder.path().join("log"));
    let file = std::fs::File::options().read(true).write(true).open(&pool).expect("opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 64).expect("reads");
    file.write_all_at(&[!byte[0]], 64).expect("writes");
    let files = || {
        let entries = std::fs::read_dir(&log).expect("a directory").map(|entry| {
            let path = entry.expect("an entry").path();
            (path.clone(), std::fs::read(path).expect("reads"))
        });
        entries.collect::<std::collections::BTreeMap<_, _>>()
    };
    let before = files();
    let store_options =
        StoreOptions { pool: PoolOptions::new().log(&log), ..StoreOptions::default() };
    let options = Options {
        pool: Some(pool.clone()),
        pool_options: store_options.pool.clone(),
        recover: true,
        ..Options::default()
    };
    let refused = crate::run::open(&options, &store_options, &snapshot).map(drop);
    let said = refused.expect_err("it is refused").to_string();
    assert!(said.contains(&format!("again with --log {}", log.display())), "{said}");
    assert!(files() == before);
    std::fs::rename(&pool, folder.path().join("damaged")).expect("renamed");
    let place = Place::open(folder, SyncMode::Always);
    assert_eq!(place.redis("GET a\r\n"), "$1\r\n1\r\n");
}

/// The disk of the log may not be mounted.
#[test]
fn a_missing_pool_with_a_missing_log_does_not_begin_without_keys_beside_its_snapshot() {
    let place = Place::new(SyncMode::Always);
    assert_eq!(place.redis("SET a 1\r\n"), "+OK\r\n");
    let snapshot = place.path("snapshot");
    place.shared.redis.store.save(&snapshot, 1).expect("saves");
    let folder = place.close();
    let path = |name: &str| folder.path().join(name);
    let (pool, log) = (path("pool"), path("log"));
    std::fs::remove_file(&pool).expect("removed");
    std::fs::rename(&log, path("away")).expect("renamed");
    let store_options =
        StoreOptions { pool: PoolOptions::new().log(&log), ..StoreOptions::default() };
    let open = |recover| {
        let pool_options = store_options.pool.clone();
        let options =
            Options { pool: Some(pool.clone()), pool_options, recover, ..Options::default() };
        crate::run::open(&options, &store_options, &snapshot)
    };
    for is_there in [false, true] {
        if is_there {
            std::fs::create_dir(&log).expect("created");
        }
        for recover in [false, true] {
            let refused = open(recover).map(drop).expect_err("it is refused").to_string();
            assert!(refused.contains(&format!("no log in {}", log.display())), "{refused}");
            assert!(refused.contains(&format!("--restore {}", snapshot.display())), "{refused}");
            assert!(!pool.exists());
        }
    }
    std::fs::remove_dir(&log).expect("removed");
    std::fs::rename(path("away"), &log).expect("renamed");
    let keys = open(false).expect("it is rebuilt").count(0).expect("counts");
    assert_eq!(keys, 1);
}

#[test]
fn a_refused_transaction_leaves_its_client_in_its_database() {
    let place = Place::new(SyncMode::No);
    // Together they are too long for one commit.
    let value = "x".repeat(30_000);
    let sets: String = (0..600).map(|key| format!("SET {key} {value}\r\n")).collect();
    let said = place
        .redis(&format!("SET a 1\r\nMULTI\r\nSELECT 5\r\n{sets}EXEC\r\nGET a\r\nCLIENT INFO\r\n"));
    let said: Vec<_> = said.lines().skip_while(|line| !line.starts_with('-')).collect();
    let [refused, "$1", "1", _, client, ..] = said[..] else { panic!("{said:?}") };
    assert!(refused.starts_with("-ERR "), "{refused}");
    assert!(client.contains(" db=0 "), "{client}");
}
