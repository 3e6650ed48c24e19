//! Standard output: buffered. It is no error if its reader closes it.

use std::fmt::Display;
use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

use crate::failure::Failure;
use crate::format::compression::{Compressed, Compression};

const BUFFER_BYTES: usize = 64 << 10;

/// Standard output.
pub struct Output {
    writer: BufWriter<Compressed<StdoutLock<'static>>>,
}

impl Output {
    /// Standard output, for as long as the value lives.
    pub fn new() -> Self {
        Self::into(Compressed::None(io::stdout().lock()))
    }

    /// Standard output, compressed; to be ended by [`finish`](Self::finish).
    pub fn compressed(compression: Compression) -> Result<Self, Failure> {
        Compressed::new(io::stdout().lock(), compression).map(Self::into).map_err(failure)
    }

    fn into(writer: Compressed<StdoutLock<'static>>) -> Self {
        Self { writer: BufWriter::with_capacity(BUFFER_BYTES, writer) }
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.writer.write_all(bytes).map_err(failure)
    }

    /// Writes a line.
    pub fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        writeln!(self.writer, "{line}").map_err(failure)
    }

    /// Writes a line that must be visible at once.
    pub fn line_now(&mut self, line: impl Display) -> Result<(), Failure> {
        self.line(line)?;
        self.flush()
    }

    /// Writes everything that is buffered; to be called at the end, since a drop cannot report an
    /// error.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(failure)
    }

    /// Writes everything that is buffered, and the end of compressed data.
    pub fn finish(self) -> Result<(), Failure> {
        let ended = self.writer.into_inner().map_err(io::IntoInnerError::into_error);
        ended.and_then(Compressed::finish).map_err(failure)
    }
}

/// Prints a report on a pool: as JSON with `as_json`, otherwise by `print`.
pub fn report<R: Serialize + ?Sized>(
    report: &R,
    as_json: bool,
    print: fn(&R, &mut Output) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut output = Output::new();
    if as_json {
        output.line(json(report)?)?;
    } else {
        print(report, &mut output)?;
    }
    output.flush()
}

/// A value as JSON.
fn json<V: Serialize + ?Sized>(value: &V) -> Result<String, Failure> {
    // A path that is not UTF-8 cannot be written as JSON.
    serde_json::to_string_pretty(value)
        .map_err(|error| Failure::Input(format!("the report has no form in JSON: {error}")))
}

fn failure(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::BrokenPipe
    } else {
        Failure::System { what: "cannot write to standard output".to_owned(), source: error }
    }
}

/// A time for people: 132 µs, 4.50 ms, 1.20 s.
pub fn time_text(time: std::time::Duration) -> String {
    let time_ns = time.as_nanos();
    let (value, unit) = match time_ns {
        0..1_000 => return format!("{time_ns} ns"),
        1_000..1_000_000 => (time_ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (time_ns as f64 / 1e6, "ms"),
        _ => (time_ns as f64 / 1e9, "s"),
    };
    // Three digits; rounding must not add a fourth.
    let digits = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {unit}")
}

/// The rate per second, for people.
pub fn rate_text(count: u64, time: std::time::Duration) -> String {
    let rate = count as f64 / time.as_secs_f64().max(1e-9);
    indicatif::HumanCount(rate as u64).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_told_in_fitting_units() {
        assert_eq!(time_text(Duration::from_nanos(950)), "950 ns");
        assert_eq!(time_text(Duration::from_nanos(132_400)), "132 µs");
        assert_eq!(time_text(Duration::from_micros(1_684)), "1.68 ms");
        assert_eq!(time_text(Duration::from_nanos(9_996)), "10.0 µs");
        assert_eq!(time_text(Duration::from_micros(45_000)), "45.0 ms");
        assert_eq!(time_text(Duration::from_millis(1_234)), "1.23 s");
        assert_eq!(time_text(Duration::from_millis(12_340)), "12.3 s");
    }
}
