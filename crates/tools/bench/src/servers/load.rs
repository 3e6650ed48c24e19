//! Requests: Debian's `redis-benchmark` for what is measured, and a loader that fills a server
//! quickly.

use std::io::{BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use indicatif::ProgressBar;

use crate::error::Error;

/// What is asked of each server in a round.
#[derive(Clone, Debug)]
pub struct Load {
    /// `redis-benchmark`'s name of the requests: get, set, incr.
    pub test: String,
    /// Requests on their way at once, for each client.
    pub pipeline: u32,
    /// Clients at once.
    pub clients: u32,
    /// Requests in all.
    pub requests: u64,
    /// Keys that they are spread over.
    pub keys: u64,
}

/// What a run of `redis-benchmark` found.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Requests a second.
    pub per_second: f64,
    /// Median latency, in milliseconds.
    pub p50_ms: f64,
    /// 99 in 100 took at most this long, in milliseconds.
    pub p99_ms: f64,
}

/// Runs `redis-benchmark` against the server at `port`.
pub fn measure(load: &Load, port: u16) -> Result<Measured, Error> {
    let words = |value: u64| value.to_string();
    let output = Command::new("redis-benchmark")
        .args(["-h", "127.0.0.1", "-p", &words(port.into()), "-t", &load.test, "--csv"])
        .args(["-P", &words(load.pipeline.into()), "-c", &words(load.clients.into())])
        .args(["-n", &words(load.requests), "-r", &words(load.keys), "-d", "16"])
        .stderr(Stdio::null())
        .output()
        .map_err(|source| Error::Usage(format!(
            "redis-benchmark cannot be run ({source}); install Debian's redis-tools and redis-server"
        )))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let row = text.lines().rfind(|line| !line.contains("rps")).unwrap_or_default();
    let cells: Vec<f64> =
        row.split(',').filter_map(|cell| cell.trim_matches('"').parse().ok()).collect();
    // Its columns: requests a second; average, least, p50, p95, p99 and longest latency.
    match cells[..] {
        [per_second, _, _, p50_ms, _, p99_ms, _] => Ok(Measured { per_second, p50_ms, p99_ms }),
        _ => Err(Error::Usage(format!("redis-benchmark printed {text:?}"))),
    }
}

/// Sets the keys 0 to `count` of the server at `socket`, 16 bytes each.
pub fn fill(socket: &Path, count: u64, progress: &ProgressBar) -> Result<(), Error> {
    const BATCH: u64 = 1000;
    let failed = |source| Error::File { path: socket.to_path_buf(), source };
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    let mut answers = vec![0; BATCH as usize * 5];
    progress.set_length(count);
    let mut number = 0;
    while number < count {
        let end = (number + BATCH).min(count);
        let mut writer = BufWriter::with_capacity(1 << 16, &stream);
        for key in number..end {
            write!(writer, "*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n$16\r\n{key:016}\r\n")
                .map_err(failed)?;
        }
        writer.flush().map_err(failed)?;
        drop(writer);
        let answers = &mut answers[..(end - number) as usize * 5];
        stream.read_exact(answers).map_err(failed)?;
        if answers.chunks(5).any(|answer| answer != b"+OK\r\n") {
            return Err(Error::Usage("a server refused to be filled".to_owned()));
        }
        number = end;
        progress.set_position(number);
    }
    Ok(())
}

/// A request for one of the keys of [`fill`].
pub fn get_request(key: u64) -> Vec<u8> {
    format!("*2\r\n$3\r\nGET\r\n$16\r\nkey:{key:012}\r\n").into_bytes()
}
