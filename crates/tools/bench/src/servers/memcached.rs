//! Requests of memcached's text protocol: a client of one thread with many connections, which sends
//! to each of them in turn and then takes the answers of each, as often as it takes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Instant;

use hdrhistogram::Histogram;
use indicatif::ProgressBar;

use super::load::{Load, Measured};
use crate::error::Error;
use crate::rng::Rng;

/// A request for one of the keys of [`fill`].
pub fn get_request(key: u64) -> Vec<u8> {
    format!("get key:{key:012}\r\n").into_bytes()
}

fn set_request(key: u64) -> Vec<u8> {
    format!("set key:{key:012} 0 0 16\r\n{key:016}\r\n").into_bytes()
}

/// A connection, and what came of answers that have not ended.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    fn open(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Takes so many answers, each of which ends with `end` and has it nowhere else; their bytes.
    fn take(&mut self, mut answers: u32, end: &[u8]) -> std::io::Result<u64> {
        let mut piece = [0; 1 << 14];
        let mut bytes = 0;
        while answers > 0 {
            let read = self.stream.read(&mut piece)?;
            if read == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            self.buffer.extend_from_slice(&piece[..read]);
            let mut begin = 0;
            while let Some(at) = self.buffer[begin..].windows(end.len()).position(|at| at == end) {
                begin += at + end.len();
                answers = answers.saturating_sub(1);
            }
            self.buffer.drain(..begin);
            bytes += begin as u64;
        }
        Ok(bytes)
    }
}

fn failed(port: u16) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::File { path: PathBuf::from(format!("127.0.0.1:{port}")), source }
}

/// What is sent to a server, and how its answers are known.
pub struct Requests<'next> {
    /// Connections at once.
    pub clients: u32,
    /// Requests on their way at once, on each connection.
    pub pipeline: u32,
    /// Requests in all, at least.
    pub count: u64,
    /// The next one.
    pub next: &'next mut dyn FnMut() -> Vec<u8>,
    /// What an answer ends with, and has nowhere else.
    pub end: &'static [u8],
    /// Bytes of an answer to a request that was done; zero if they may differ.
    pub answer_bytes: u64,
}

/// Runs `load`, of `get` or `set`, against the server at `port`.
pub fn measure(load: &Load, port: u16) -> Result<Measured, Error> {
    let (request, end) = match load.test.as_str() {
        "get" => (get_request as fn(u64) -> Vec<u8>, &b"END\r\n"[..]),
        "set" => (set_request as fn(u64) -> Vec<u8>, &b"STORED\r\n"[..]),
        other => {
            let words = format!("memcached is asked for get and set here, not for {other}");
            return Err(Error::Usage(words));
        }
    };
    let mut random = Rng::new(load.requests);
    let mut next = || request(random.below(load.keys.max(1)));
    let (clients, pipeline, count) = (load.clients, load.pipeline, load.requests);
    drive(Requests { clients, pipeline, count, next: &mut next, end, answer_bytes: 0 }, port)
}

/// Sends `requests` to the server at `port` and looks at its answers.
pub fn drive(requests: Requests<'_>, port: u16) -> Result<Measured, Error> {
    let Requests { clients, pipeline, count, next, end, answer_bytes } = requests;
    let failed = failed(port);
    let connections = (0..clients).map(|_| Connection::open(port));
    let mut connections = connections.collect::<Result<Vec<_>, _>>().map_err(&failed)?;
    // To a minute.
    let latencies = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3);
    let mut latencies = latencies.map_err(|error| Error::Usage(error.to_string()))?;
    let (mut done, mut bytes, begin) = (0, 0, Instant::now());
    let mut sent_at = vec![begin; connections.len()];
    while done < count {
        for (connection, sent_at) in connections.iter_mut().zip(&mut sent_at) {
            let mut batch = Vec::new();
            for _ in 0..pipeline {
                batch.extend(next());
            }
            *sent_at = Instant::now();
            connection.stream.write_all(&batch).map_err(&failed)?;
        }
        for (connection, sent_at) in connections.iter_mut().zip(&sent_at) {
            bytes += connection.take(pipeline, end).map_err(&failed)?;
            let took = u64::try_from(sent_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
            latencies.saturating_record_n(took, pipeline.into());
            done += u64::from(pipeline);
        }
    }
    if answer_bytes > 0 && bytes != done * answer_bytes {
        let words = format!(
            "{done} requests were answered with {bytes} bytes, not {answer_bytes} each: a record was lost or refused"
        );
        return Err(Error::Usage(words));
    }
    let at = |quantile: f64| latencies.value_at_quantile(quantile) as f64 / 1e6;
    let per_second = done as f64 / begin.elapsed().as_secs_f64();
    Ok(Measured { per_second, p50_ms: at(0.5), p99_ms: at(0.99) })
}

/// Sets the keys 0 to `count` of the server at `port`, 16 bytes each.
pub fn fill(port: u16, count: u64, progress: &ProgressBar) -> Result<(), Error> {
    const BATCH: u64 = 1000;
    let failed = failed(port);
    let mut connection = Connection::open(port).map_err(&failed)?;
    progress.set_length(count);
    for begin in (0..count).step_by(BATCH as usize) {
        let end = (begin + BATCH).min(count);
        let batch: Vec<u8> = (begin..end).flat_map(set_request).collect();
        connection.stream.write_all(&batch).map_err(&failed)?;
        connection.take((end - begin) as u32, b"STORED\r\n").map_err(&failed)?;
        progress.set_position(end);
    }
    Ok(())
}
