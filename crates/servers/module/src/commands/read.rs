//! Commands that read. The main thread reads up to 1,000 records and 1 MiB. A longer read begins
//! again on a thread of its own, over a snapshot that the main thread has taken, unless the client
//! may not be blocked.

use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;

use pando::{Error, Order};
use sha2::{Digest, Sha256};

use super::access::{integer, map, store};
use super::failure::{Failure, Result};
use crate::layout::{Head, Kind, client_key};
use crate::redis::{Blocked, Ctx};
use crate::settings;
use crate::state::STATE;
use crate::store::{ALL, Pinned, Store};
use crate::stub::Stub;

/// A read of more records, or of more bytes of keys and values, is long.
const SHORT_RECORDS: u64 = 1000;
const SHORT_BYTES: u64 = 1 << 20;
/// Bytes of the records that one commit may remove.
const MAX_COMMIT_BYTES: usize = 16 << 20;

type Records = Vec<(Vec<u8>, Vec<u8>)>;

pub fn get(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    let [name, key] = words else { return Err(Failure::Usage("PANDO.GET key field")) };
    let value = match map(ctx, name)? {
        Some(stub) => store()?.get(stub.number(), Kind::Record, key)?,
        None => None,
    };
    reply_value(ctx, value.as_deref());
    Ok(())
}

pub fn mget(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    let usage = Failure::Usage("PANDO.MGET key field [field ...]");
    let Some((name, keys)) = words.split_first().filter(|(_, keys)| !keys.is_empty()) else {
        return Err(usage);
    };
    let reply = |ctx: Ctx<'_>, values: Vec<Option<Vec<u8>>>| {
        ctx.reply_array(values.len());
        values.iter().for_each(|value| reply_value(ctx, value.as_deref()));
    };
    let Some(stub) = map(ctx, name)? else {
        reply(ctx, vec![None; keys.len()]);
        return Ok(());
    };
    let number = stub.number();
    let keys: Vec<_> = keys.iter().map(|key| key.to_vec()).collect();
    let read = move |source: &Source| {
        let mut values = Vec::with_capacity(keys.len());
        for key in &keys {
            let value = source.get(number, key)?;
            if !source.goes_on(key.len() + value.as_ref().map_or(0, Vec::len)) {
                break;
            }
            values.push(value);
        }
        Ok(values)
    };
    run(ctx, read, reply)
}

fn reply_value(ctx: Ctx<'_>, value: Option<&[u8]>) {
    match value {
        Some(value) => ctx.reply_bytes(value),
        None => ctx.reply_null(),
    }
}

/// A bound as of ZRANGEBYLEX. `end` is the sign of no bound: `-` below and `+` above.
fn bound(word: &[u8], end: u8) -> Result<Bound<Vec<u8>>> {
    match word.split_first() {
        Some((&sign, [])) if sign == end => Ok(Bound::Unbounded),
        Some((b'[', key)) => Ok(Bound::Included(key.to_vec())),
        Some((b'(', key)) => Ok(Bound::Excluded(key.to_vec())),
        _ => Err(Failure::Bound),
    }
}

type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn is_empty((low, high): &Range) -> bool {
    match (low, high) {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (
            Bound::Included(low) | Bound::Excluded(low),
            Bound::Included(high) | Bound::Excluded(high),
        ) => low >= high,
        _ => false,
    }
}

fn borrowed((low, high): &Range) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice))
}

/// What the main thread may still read.
struct Budget {
    records: Cell<u64>,
    bytes: Cell<u64>,
    is_exceeded: Cell<bool>,
}

impl Budget {
    fn new(records: u64, bytes: u64) -> Self {
        let (records, bytes) = (Cell::new(records), Cell::new(bytes));
        Self { records, bytes, is_exceeded: Cell::new(false) }
    }

    fn spend(&self, bytes: u64) -> bool {
        let left = (self.records.get().checked_sub(1), self.bytes.get().checked_sub(bytes));
        let (Some(records), Some(bytes)) = left else {
            self.is_exceeded.set(true);
            return false;
        };
        self.records.set(records);
        self.bytes.set(bytes);
        true
    }
}

/// Where a read takes its records from.
enum Source {
    Now(Arc<Store>, Budget),
    Pinned(Pinned),
}

impl Source {
    fn endless(store: Arc<Store>) -> Self {
        Self::Now(store, Budget::new(u64::MAX, u64::MAX))
    }

    /// Whether the read may go on, after it has read so many bytes of a record. A read on another
    /// thread stops when the server ends.
    fn goes_on(&self, bytes: usize) -> bool {
        match self {
            Self::Now(_, budget) => budget.spend(bytes as u64),
            Self::Pinned(_) => !STATE.workers.is_stopping(),
        }
    }

    /// Whether the read has stopped before its end.
    fn is_cut(&self) -> bool {
        matches!(self, Self::Now(_, budget) if budget.is_exceeded.get())
    }

    fn get(&self, number: u64, key: &[u8]) -> std::result::Result<Option<Vec<u8>>, Error> {
        match self {
            Self::Now(store, _) => store.get(number, Kind::Record, key),
            Self::Pinned(pinned) => pinned.get(number, Kind::Record, key),
        }
    }

    /// Visits the records of a range, until `visit` returns false.
    fn visit(
        &self,
        number: u64,
        range: &Range,
        order: Order,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> std::result::Result<(), Error> {
        if is_empty(range) {
            return Ok(());
        }
        let mut scan = match self {
            Self::Now(store, _) => store.scan(number, Kind::Record, borrowed(range)),
            Self::Pinned(pinned) => pinned.scan(number, Kind::Record, borrowed(range)),
        };
        while let Some((key, value)) = scan.next_record_in(order)? {
            let key = client_key(key);
            if !self.goes_on(key.len() + value.len()) || !visit(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn records(
        &self,
        number: u64,
        range: &Range,
        order: Order,
        limit: u64,
    ) -> std::result::Result<Records, Error> {
        let mut records = Records::new();
        if limit > 0 {
            self.visit(number, range, order, |key, value| {
                records.push((key.to_vec(), value.to_vec()));
                (records.len() as u64) < limit
            })?;
        }
        Ok(records)
    }
}

/// Runs a read here, and if it is long again on another thread, and replies with its result.
fn run<T: Send + 'static>(
    ctx: Ctx<'_>,
    read: impl Fn(&Source) -> std::result::Result<T, Error> + Send + 'static,
    reply: impl FnOnce(Ctx<'_>, T) + Send + 'static,
) -> Result<()> {
    let store = store()?;
    let here = match ctx.flags().denies_blocking() {
        true => Source::endless(store.clone()),
        false => Source::Now(store.clone(), Budget::new(SHORT_RECORDS, SHORT_BYTES)),
    };
    let result = read(&here)?;
    if !here.is_cut() {
        reply(ctx, result);
        return Ok(());
    }
    drop((here, result));
    let source = Source::Pinned(store.pin("a long read")?);
    let blocked = Blocked::new(ctx);
    let job = move || {
        let result = read(&source);
        // Before the client is answered: at the shutdown nothing keeps the pool.
        drop(source);
        blocked.reply(|ctx| match result {
            Ok(_) if STATE.workers.is_stopping() => ctx.reply_error(&Failure::NotReady.to_string()),
            Ok(result) => reply(ctx, result),
            Err(error) => ctx.reply_error(&Failure::from(error).to_string()),
        });
    };
    if let Err(job) = STATE.workers.run(settings::read_threads(), Box::new(job)) {
        job();
    }
    Ok(())
}

fn reply_records(ctx: Ctx<'_>, records: &Records, has_values: bool) {
    if has_values {
        ctx.reply_map(records.len());
    } else {
        ctx.reply_array(records.len());
    }
    for (key, value) in records {
        ctx.reply_bytes(key);
        if has_values {
            ctx.reply_bytes(value);
        }
    }
}

/// The options of a range: LIMIT or COUNT, and KEYS.
fn options(words: &[&[u8]], limit_word: &str, usage: &'static str) -> Result<(u64, bool)> {
    let (mut limit, mut has_values) = (u64::MAX, true);
    let mut rest = words;
    loop {
        rest = match rest {
            [] => return Ok((limit, has_values)),
            [word, rest @ ..] if word.eq_ignore_ascii_case(b"KEYS") => {
                has_values = false;
                rest
            }
            [word, count, rest @ ..] if word.eq_ignore_ascii_case(limit_word.as_bytes()) => {
                limit = u64::try_from(integer(count)?).map_err(|_| Failure::NotAnInteger)?;
                rest
            }
            _ => return Err(Failure::Usage(usage)),
        };
    }
}

fn ranged(
    ctx: Ctx<'_>,
    name: &[u8],
    range: Range,
    order: Order,
    limit: u64,
    reply: impl FnOnce(Ctx<'_>, Records) + Send + 'static,
) -> Result<()> {
    let Some(stub) = map(ctx, name)? else {
        reply(ctx, Records::new());
        return Ok(());
    };
    let number = stub.number();
    run(ctx, move |source| source.records(number, &range, order, limit), reply)
}

pub fn range(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    const USAGE: &str = "PANDO.RANGE key min max [LIMIT count] [KEYS]";
    let [name, low, high, rest @ ..] = words else { return Err(Failure::Usage(USAGE)) };
    let range = (bound(low, b'-')?, bound(high, b'+')?);
    let (limit, has_values) = options(rest, "LIMIT", USAGE)?;
    ranged(ctx, name, range, Order::Ascending, limit, move |ctx, records| {
        reply_records(ctx, &records, has_values);
    })
}

pub fn revrange(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    const USAGE: &str = "PANDO.REVRANGE key max min [LIMIT count] [KEYS]";
    let [name, high, low, rest @ ..] = words else { return Err(Failure::Usage(USAGE)) };
    let range = (bound(low, b'-')?, bound(high, b'+')?);
    let (limit, has_values) = options(rest, "LIMIT", USAGE)?;
    ranged(ctx, name, range, Order::Descending, limit, move |ctx, records| {
        reply_records(ctx, &records, has_values);
    })
}

pub fn scan(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    const USAGE: &str = "PANDO.SCAN key cursor [COUNT count] [KEYS]";
    let [name, cursor, rest @ ..] = words else { return Err(Failure::Usage(USAGE)) };
    let low = match cursor.split_first() {
        Some((b'0', [])) => Bound::Unbounded,
        Some((b'>', key)) => Bound::Excluded(key.to_vec()),
        _ => return Err(Failure::Cursor),
    };
    let (count, has_values) = options(rest, "COUNT", USAGE)?;
    let count = if count == u64::MAX { 100 } else { count.max(1) };
    let range = (low, Bound::Unbounded);
    ranged(ctx, name, range, Order::Ascending, count, move |ctx, records| {
        ctx.reply_array(2);
        match records.last() {
            // The next call may find nothing behind it.
            Some((key, _)) if records.len() as u64 == count => {
                ctx.reply_bytes(&[b">", key.as_slice()].concat());
            }
            _ => ctx.reply_bytes(b"0"),
        }
        reply_records(ctx, &records, has_values);
    })
}

pub fn count(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    let (name, range) = match words {
        [name] => (name, None),
        [name, low, high] => (name, Some((bound(low, b'-')?, bound(high, b'+')?))),
        _ => return Err(Failure::Usage("PANDO.COUNT key [min max]")),
    };
    let Some(stub) = map(ctx, name)? else {
        ctx.reply_integer(0);
        return Ok(());
    };
    let Some(range) = range else {
        ctx.reply_count(stub.head(&*store()?)?.records);
        return Ok(());
    };
    let number = stub.number();
    let read = move |source: &Source| {
        let mut count = 0;
        source.visit(number, &range, Order::Ascending, |_, _| {
            count += 1;
            true
        })?;
        Ok(count)
    };
    run(ctx, read, |ctx, count| ctx.reply_count(count))
}

/// FIRST and LAST.
fn end(ctx: Ctx<'_>, words: &[&[u8]], order: Order, usage: &'static str) -> Result<()> {
    let [name] = words else { return Err(Failure::Usage(usage)) };
    let all = (Bound::Unbounded, Bound::Unbounded);
    ranged(ctx, name, all, order, 1, |ctx, records| match records.first() {
        Some((key, value)) => {
            ctx.reply_array(2);
            ctx.reply_bytes(key);
            ctx.reply_bytes(value);
        }
        None => ctx.reply_null(),
    })
}

pub fn first(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    end(ctx, words, Order::Ascending, "PANDO.FIRST key")
}

pub fn last(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    end(ctx, words, Order::Descending, "PANDO.LAST key")
}

/// The first, or last, records of a map now, which one commit is to remove.
pub fn ends(store: &Arc<Store>, stub: &Stub, order: Order, count: u64) -> Result<Records> {
    let all = (Bound::Unbounded, Bound::Unbounded);
    let (mut records, mut bytes) = (Records::new(), 0);
    if count > 0 {
        Source::endless(store.clone()).visit(stub.number(), &all, order, |key, value| {
            bytes += key.len() + value.len();
            records.push((key.to_vec(), value.to_vec()));
            (records.len() as u64) < count && bytes <= MAX_COMMIT_BYTES
        })?;
    }
    match bytes > MAX_COMMIT_BYTES {
        true => Err(Failure::PopTooLong(records.len())),
        false => Ok(records),
    }
}

pub fn stat(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<()> {
    let (name, has_checksum) = match words {
        [name] => (name, false),
        [name, word] if word.eq_ignore_ascii_case(b"CHECKSUM") => (name, true),
        _ => return Err(Failure::Usage("PANDO.STAT key [CHECKSUM]")),
    };
    let Some(stub) = map(ctx, name)? else {
        ctx.reply_null();
        return Ok(());
    };
    let number = stub.number();
    let head = stub.head(&*store()?)?;
    if !has_checksum {
        reply_stat(ctx, number, head, None);
        return Ok(());
    }
    let read = move |source: &Source| {
        let mut counted = 0_u64;
        let mut sum = Sha256::new();
        let all = (Bound::Unbounded, Bound::Unbounded);
        source.visit(number, &all, Order::Ascending, |key, value| {
            for part in [key, value] {
                sum.update((part.len() as u64).to_le_bytes());
                sum.update(part);
            }
            counted += 1;
            true
        })?;
        Ok((counted, sum.finalize().to_vec()))
    };
    run(ctx, read, move |ctx, (counted, sum)| {
        if counted == head.records {
            reply_stat(ctx, number, head, Some(&sum));
        } else {
            ctx.reply_error(&format!(
                "ERR the map has {counted} records, and {} are known",
                head.records
            ));
        }
    })
}

fn reply_stat(ctx: Ctx<'_>, number: u64, head: Head, sum: Option<&[u8]>) {
    let Head { records, receipts, bytes } = head;
    let figures =
        [("records", records), ("bytes", bytes), ("receipts", receipts), ("number", number)];
    ctx.reply_map(figures.len() + usize::from(sum.is_some()));
    for (name, figure) in figures {
        ctx.reply_bytes(name.as_bytes());
        ctx.reply_count(figure);
    }
    if let Some(sum) = sum {
        let hex: String = sum.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        ctx.reply_bytes(b"checksum");
        ctx.reply_bytes(hex.as_bytes());
    }
}

/// The newest receipts of a session, highest sequence first.
pub fn receipts(store: &Store, stub: &Stub, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    let low = Bound::Included(prefix);
    let mut scan = store.scan(stub.number(), Kind::Receipt, (low, ALL.1));
    while let Some((key, value)) = scan.next_record()? {
        let key = client_key(key);
        if !key.starts_with(prefix) {
            break;
        }
        found.push((key.to_vec(), value.to_vec()));
    }
    found.reverse();
    Ok(found)
}
