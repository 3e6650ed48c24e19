//! Figure 15: the throughput of a memcached whose index is one of the trees.
//!
//! The paper put its trees into memcached 1.4.17, bulk-loaded them, and let `mc-benchmark` set and
//! then get random keys over 50 connections. Here a small server ([`serve`]) stands for memcached:
//! it knows `get` and `set` of its text protocol, keeps values of eight bytes in the tree, and has
//! a thread a connection. The trees with one writer stand behind a lock, as memcached's index does;
//! ours, which take many, behind none.
//!
//! Run by `pando bench`, the experiment has four servers more: `pando serve` with its store in a
//! wB+-Tree and in the indexes of the other papers.
//!
//! All servers stand while all rounds run; round by round each takes a batch of sets of new keys,
//! and a batch of gets of keys that are there. Every answer is looked at: a get that finds nothing
//! ends the run.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::baselines::{BASELINES, Baseline, Leaves};
use indicatif::ProgressBar;
use pando_index::RangeIndex;
use pando_pmem::{Adr, Domain};
use pando_tree::maps::Tree;
use pando_wbtree::WbTree;

use super::{OPERATIONS, WB_TREES, pool, ratio, refused, wb_tree};
use crate::error::Error;
use crate::experiment::Settings;
use crate::outcome::{Measured, Outcome, Published};
use pando_bench::keys::{key_of, value_of};
use pando_bench::rng::Rng;
use pando_bench::servers::memcached::{Requests, drive};
use pando_bench::servers::system::{Running, Server};
use pando_bench::spread::Spread;
use pando_bench::systems::BuildError;

/// Connections, as `mc-benchmark` has by default.
const CONNECTIONS: u32 = 50;
/// Lines of the nodes of the paper's other trees, and of ours, whose cells have the first bytes of
/// a key.
const LINES: (u64, u64) = (8, 12);
/// Bytes of a key: the paper's, as decimal digits.
const KEY_BYTES: usize = 20;
const VALUE_BYTES: usize = 8;
const STORED: &[u8] = b"STORED\r\n";
const END: &[u8] = b"END\r\n";

/// Ours that are compared with.
const SERVERS: [Server; 4] = [
    Server::PandoMemcachedWbtree,
    Server::PandoMemcached,
    Server::PandoMemcachedNbtree,
    Server::PandoMemcachedSkiplist,
];

/// What a server keeps its records in.
trait Store: Send + Sync {
    fn get(&self, key: &[u8]) -> Option<u64>;
    fn set(&self, key: &[u8], value: u64) -> bool;
}

impl<D: Domain> Store for Mutex<Baseline<D, true>> {
    fn get(&self, key: &[u8]) -> Option<u64> {
        self.lock().unwrap_or_else(PoisonError::into_inner).get(key)
    }

    fn set(&self, key: &[u8], value: u64) -> bool {
        let tree = self.lock().unwrap_or_else(PoisonError::into_inner);
        match tree.insert(key, value) {
            Ok(true) => true,
            Ok(false) => {
                tree.remove(key).unwrap_or(false) && tree.insert(key, value).unwrap_or(false)
            }
            Err(_) => false,
        }
    }
}

impl<D: Domain> Store for WbTree<D> {
    fn get(&self, key: &[u8]) -> Option<u64> {
        let word = |value: &[u8]| value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        self.read_with(key, word).ok().flatten().flatten()
    }

    fn set(&self, key: &[u8], value: u64) -> bool {
        self.upsert(key, &value.to_le_bytes()).is_ok()
    }
}

/// A store, by the paper's name of its tree.
type Named = (String, Arc<dyn Store>);

/// The seven trees of the figure, by the paper's names: all but those with unsorted packed leaves.
fn stores(settings: &Settings) -> Result<Vec<Named>, BuildError> {
    let mut stores: Vec<Named> = Vec::new();
    for (name, leaves, scheme) in
        BASELINES.into_iter().filter(|baseline| baseline.1 != Leaves::Unsorted)
    {
        let tree = Baseline::<Adr, true>::new(pool(settings)?, leaves, scheme, LINES.0)?;
        stores.push((name.to_owned(), Arc::new(Mutex::new(tree))));
    }
    for (name, leaf) in &WB_TREES[..2] {
        let tree = wb_tree::<Adr>(settings, *leaf, LINES.1, true)?;
        stores.push(((*name).to_owned(), Arc::new(tree)));
    }
    Ok(stores)
}

/// The key of a number: 20 digits, spread evenly.
fn key_text(number: u64) -> String {
    format!("{:0KEY_BYTES$}", key_of(number))
}

/// The value that belongs to a key, in letters: a value that has the end of an answer in it would
/// be taken for two.
fn value_bytes(value: u64) -> [u8; VALUE_BYTES] {
    let mut text = [0; VALUE_BYTES];
    for (place, byte) in text.iter_mut().enumerate() {
        *byte = b'a' + (value >> (8 * place) & 15) as u8;
    }
    text
}

fn set_request(number: u64) -> Vec<u8> {
    let value = value_bytes(value_of(key_of(number), 0));
    let mut request = format!("set {} 0 0 {VALUE_BYTES}\r\n", key_text(number)).into_bytes();
    request.extend_from_slice(&value);
    request.extend_from_slice(b"\r\n");
    request
}

fn get_request(number: u64) -> Vec<u8> {
    format!("get {}\r\n", key_text(number)).into_bytes()
}

/// Bytes of the answer to a get that found its key.
fn found_bytes() -> u64 {
    let head = format!("VALUE {} 0 {VALUE_BYTES}\r\n", key_text(0));
    (head.len() + VALUE_BYTES + 2 + END.len()) as u64
}

/// The answer to the request that `bytes` begin with, and its bytes; `None` if it has not come
/// whole.
fn answer(store: &dyn Store, bytes: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let line_bytes = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, after) = (&bytes[..line_bytes], line_bytes + 2);
    let mut words = line.split(|&byte| byte == b' ');
    match (words.next(), words.next(), words.next_back()) {
        (Some(b"get"), Some(key), None) => {
            if let Some(value) = store.get(key) {
                out.extend_from_slice(b"VALUE ");
                out.extend_from_slice(key);
                out.extend_from_slice(format!(" 0 {VALUE_BYTES}\r\n").as_bytes());
                out.extend_from_slice(&value.to_le_bytes());
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(END);
            Some(after)
        }
        (Some(b"set"), Some(key), Some(length)) if length == VALUE_BYTES.to_string().as_bytes() => {
            let value: &[u8; VALUE_BYTES] = bytes.get(after..)?.first_chunk()?;
            let end = after + VALUE_BYTES + 2;
            bytes.get(..end)?;
            let is_stored = store.set(key, u64::from_le_bytes(*value));
            out.extend_from_slice(if is_stored { STORED } else { b"SERVER_ERROR\r\n" });
            Some(end)
        }
        _ => {
            out.extend_from_slice(b"ERROR\r\n");
            Some(after)
        }
    }
}

/// Answers one connection until it is closed.
fn converse(store: &dyn Store, mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut buffer, mut piece, mut out) = (Vec::new(), [0; 1 << 12], Vec::new());
    loop {
        let read = stream.read(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        buffer.extend_from_slice(&piece[..read]);
        let mut done = 0;
        while let Some(bytes) = answer(store, &buffer[done..], &mut out) {
            done += bytes;
        }
        buffer.drain(..done);
        stream.write_all(&out)?;
        out.clear();
    }
}

/// A store that is served until this is dropped.
struct Served {
    port: u16,
    is_over: Arc<AtomicBool>,
}

impl Drop for Served {
    fn drop(&mut self) {
        // Release: nothing is handed over by it; the connection behind it wakes the thread that
        // looks.
        self.is_over.store(true, Ordering::Release);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

/// Serves the store at a port of loopback. A connection has a thread until it is closed.
fn serve(store: Arc<dyn Store>) -> std::io::Result<Served> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let served =
        Served { port: listener.local_addr()?.port(), is_over: Arc::new(AtomicBool::new(false)) };
    let is_over = Arc::clone(&served.is_over);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // Acquire: with the store before the connection that comes last.
            if is_over.load(Ordering::Acquire) {
                break;
            }
            let store = Arc::clone(&store);
            // A client that breaks off ends its connection and nothing else.
            std::thread::spawn(move || drop(converse(&*store, stream)));
        }
    });
    Ok(served)
}

/// What stands behind a port.
enum Behind {
    /// A store of this process.
    Served(Served),
    /// `pando serve`, with the folder of its pool.
    Process { running: Running, _folder: tempfile::TempDir },
}

impl Behind {
    fn port(&self) -> u16 {
        match self {
            Self::Served(served) => served.port,
            Self::Process { running, .. } => running.port,
        }
    }
}

/// A server of the figure.
struct Standing {
    name: String,
    behind: Behind,
}

/// All servers, each with the records.
fn stand(
    settings: &Settings,
    records: u64,
    progress: &ProgressBar,
) -> Result<Vec<Standing>, BuildError> {
    let mut standing = Vec::new();
    for (name, store) in stores(settings)? {
        for number in 0..records {
            let value = u64::from_le_bytes(value_bytes(value_of(key_of(number), 0)));
            if !store.set(key_text(number).as_bytes(), value) {
                return Err(format!("{name} has refused a record").into());
            }
        }
        standing.push(Standing { name, behind: Behind::Served(serve(store)?) });
        progress.inc(1);
    }
    // `pando bench` is the command that serves too.
    if settings.prefix == ["paper"] {
        let ours = [std::env::current_exe()?.to_string_lossy().into_owned()];
        for system in SERVERS {
            let folder = tempfile::tempdir_in(&settings.build.pool_dir)?;
            let greeting = system.greeting();
            let (running, _) = Running::start(system, &ours, folder.path(), &greeting)?;
            let mut number = 0;
            let mut next = || {
                number += 1;
                set_request(number - 1)
            };
            let (pipeline, count) = (records.clamp(1, 500) as u32, records);
            let answer_bytes = STORED.len() as u64;
            let (clients, end) = (1, STORED);
            drive(
                Requests { clients, pipeline, count, next: &mut next, end, answer_bytes },
                running.port,
            )?;
            let name = system.name();
            standing.push(Standing { name, behind: Behind::Process { running, _folder: folder } });
            progress.inc(1);
        }
    }
    Ok(standing)
}

/// Requests a second of each server, by operation (search, insertion) and round.
type Rates = Vec<[Vec<f64>; 2]>;

/// A batch of each kind for each server in turn, as often as there are rounds.
fn rounds(
    settings: &Settings,
    standing: &[Standing],
    records: u64,
    batch: u64,
    progress: &ProgressBar,
) -> Result<Rates, BuildError> {
    let mut rates: Rates = standing.iter().map(|_| Default::default()).collect();
    // A server that stands has at least these keys; each has had as many batches as all others.
    let mut loaded = records;
    for round in 0..settings.rounds.unwrap_or(5) {
        for turn in 0..standing.len() {
            // Each round begins with another server.
            let place = (turn + round) % standing.len();
            let mut rng = Rng::new(settings.seed ^ round as u64);
            let mut fresh = loaded;
            let mut insertion = || {
                fresh += 1;
                set_request(fresh - 1)
            };
            let mut search = || get_request(rng.below(loaded));
            let asked: [(usize, &mut dyn FnMut() -> Vec<u8>, _, _); 2] = [
                (1, &mut insertion, STORED, STORED.len() as u64),
                (0, &mut search, END, found_bytes()),
            ];
            for (operation, next, end, answer_bytes) in asked {
                let (clients, pipeline, count) = (CONNECTIONS, 1, batch);
                let requests = Requests { clients, pipeline, count, next, end, answer_bytes };
                let measured = drive(requests, standing[place].behind.port())?;
                rates[place][operation].push(measured.per_second);
            }
            progress.inc(1);
        }
        loaded += batch;
    }
    Ok(rates)
}

/// Figure 15: memcached's throughput by the tree that is its index.
pub fn figure_15(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let records = settings.records.unwrap_or(200_000);
    // Whole turns of all connections.
    let batch = (records / 10).clamp(1, 20_000).next_multiple_of(CONNECTIONS.into());
    progress.set_length(20);
    let standing = stand(settings, records, progress).map_err(refused)?;
    let rates = rounds(settings, &standing, records, batch, progress).map_err(refused)?;
    let mut outcome = Outcome {
        conditions: format!(
            "{records} records with keys of 20 bytes, {CONNECTIONS} connections over loopback, {batch} sets of new keys and as many gets a round"
        ),
        ..Outcome::default()
    };
    if settings.prefix != ["paper"] {
        outcome.appendix = "`pando paper` has pando's own servers beside these.\n".to_owned();
    }
    let place = |wanted: &str| standing.iter().position(|server| server.name == wanted);
    for operation in [1, 0] {
        let label = OPERATIONS[operation];
        let median = |place: usize| Spread::of(&rates[place][operation]).median;
        for (server, rates) in standing.iter().zip(&rates) {
            let ours = Measured::new(Spread::of(&rates[operation]), "");
            outcome.push(format!("{label}, {}", server.name), "req/s", None, Some(ours));
        }
        let Some(ours) = place("wbtree") else { continue };
        // The others are those with logging and shadowing.
        let is_other = |name: &str| BASELINES[1..].iter().any(|other| other.0 == name);
        let mut others: Vec<usize> =
            (0..standing.len()).filter(|&place| is_other(&standing[place].name)).collect();
        others.sort_by(|left, right| median(*left).total_cmp(&median(*right)));
        let compared = [
            ("slowest other", others.first().copied(), Some("up to 3.8")),
            ("fastest other", others.last().copied(), Some("from 1.04")),
            ("volatile tree", place("btree (volatile)"), None),
            ("bitmap-only leaves", place("wbtree w/ bmp-leaf"), None),
        ];
        for (what, other, paper) in compared {
            let Some(other) = other else { continue };
            let of = format!("wbtree / {}", standing[other].name);
            let spread = ratio(&rates[ours][operation], &rates[other][operation]);
            // The text has figures of insertions alone.
            let paper = paper.filter(|_| operation == 1).map(|figure| Published::text(figure, ""));
            let line = format!("{label}, throughput of wbtree / {what}");
            outcome.push(line, "x", paper, Some(Measured::new(spread, of)));
        }
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_wherever_they_are_cut() {
        let store: Arc<dyn Store> = Arc::new(
            wb_tree::<Adr>(&Settings::default(), WB_TREES[0].1, LINES.1, true).expect("a tree"),
        );
        let mut bytes = set_request(7);
        bytes.extend(get_request(7));
        bytes.extend(get_request(8));
        let mut out = Vec::new();
        for length in 0..set_request(7).len() {
            assert_eq!(answer(&*store, &bytes[..length], &mut out), None, "{length}");
        }
        let mut done = 0;
        while let Some(taken) = answer(&*store, &bytes[done..], &mut out) {
            done += taken;
        }
        assert_eq!(done, bytes.len());
        assert_eq!(out.len() as u64, STORED.len() as u64 + found_bytes() + END.len() as u64);
        assert_eq!(key_text(7).len(), KEY_BYTES);
    }
}
