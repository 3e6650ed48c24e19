//! `top`: a server's figures in the terminal, live.
//!
//! It reads the server's `/status.json`, as the page does, and not INFO over the Redis protocol:
//! `/status.json` has the quantiles, the last two minutes and the tree's shape, as named numbers.
//! It needs no password, and does not count as a client.

mod frame;

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use pando_server::status::Status;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::arguments::server::TopArguments;
use crate::failure::Failure;
use crate::output::Output;

/// The time between two requests.
const INTERVAL: Duration = Duration::from_secs(1);
/// The most time for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest status that is read, in bytes; a real one has some tens of thousands.
const MAX_STATUS_BYTES: u64 = 4 << 20;
/// The size of the output of `--once`, in columns and lines.
const ONCE: (u16, u16) = (100, 32);

/// Shows the figures until the user ends it.
pub fn run(arguments: &TopArguments) -> Result<(), Failure> {
    let server = Server::new(arguments.http_port, arguments.http.as_deref());
    if arguments.once {
        let mut output = Output::new();
        output.line(plain(&server.ask()?, &server.address)?)?;
        return output.flush();
    }
    // Before the terminal changes its mode, so that an error message stays visible.
    let first = server.ask()?;
    let mut terminal = ratatui::try_init().map_err(Failure::system(
        "cannot take the terminal; --once prints the figures as plain text",
    ))?;
    let shown = show(&mut terminal, server, first);
    let restored = ratatui::try_restore().map_err(Failure::system("cannot restore the terminal"));
    shown.and(restored)
}

/// The source of the figures.
#[derive(Clone)]
struct Server {
    agent: ureq::Agent,
    address: String,
}

impl Server {
    fn new(port: u16, address: Option<&str>) -> Self {
        let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).proxy(None);
        let address = address.map_or_else(|| format!("127.0.0.1:{port}"), str::to_owned);
        Self { agent: config.build().into(), address }
    }

    fn ask(&self) -> Result<Status, Failure> {
        let url = format!("http://{}/status.json", self.address);
        let refused = |error: ureq::Error| Failure::System {
            what: format!(
                "cannot read {url}; start the server with --http-port, and name its HTTP port here by \
                 --http-port, or its address by --http"
            ),
            source: error.into_io(),
        };
        let mut answer = self.agent.get(&url).call().map_err(refused)?;
        let read = answer.body_mut().with_config().limit(MAX_STATUS_BYTES).read_to_string();
        serde_json::from_str(&read.map_err(refused)?).map_err(|error| {
            Failure::Input(format!("{url} is no status of a pando server: {error}"))
        })
    }

    /// Requests a walk over the tree; the next status shows whether one is made.
    fn ask_for_shape(&self) {
        let _ = self.agent.post(format!("http://{}/shape", self.address)).send_empty();
    }
}

/// One frame as plain text.
fn plain(status: &Status, address: &str) -> Result<String, Failure> {
    let (columns, lines) = ONCE;
    let mut terminal = match Terminal::new(TestBackend::new(columns, lines)) {
        Ok(terminal) => terminal,
        Err(never) => match never {},
    };
    let seen = frame::Seen { status, address, lost: None };
    match terminal.draw(|frame| frame::draw(frame, &seen)) {
        Ok(_) => {}
        Err(never) => match never {},
    }
    let buffer = terminal.backend().buffer();
    let line = |line: u16| {
        let cells = (0..columns).filter_map(|column| buffer.cell((column, line)));
        let line: String = cells.map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned()
    };
    let lines: Vec<_> = (0..lines).map(line).collect();
    Ok(lines.join("\n").trim_end().to_owned())
}

/// Draws each received status, and handles keys.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    server: Server,
    mut status: Status,
) -> Result<(), Failure> {
    let came = ask_again_and_again(server.clone())?;
    let mut lost = None;
    loop {
        let seen = frame::Seen { status: &status, address: &server.address, lost: lost.as_deref() };
        let drawn = terminal.draw(|frame| frame::draw(frame, &seen));
        drawn.map_err(Failure::system("cannot draw"))?;
        let draw_again_at = Instant::now() + INTERVAL;
        while let Some(left) = draw_again_at.checked_duration_since(Instant::now()) {
            // Short, so that a new status is drawn soon.
            let left = left.min(Duration::from_millis(50));
            if event::poll(left).map_err(Failure::system("cannot read keys"))? {
                match event::read().map_err(Failure::system("cannot read keys"))? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
                        KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                            return Ok(());
                        }
                        KeyCode::Char('w') => {
                            let server = server.clone();
                            std::thread::spawn(move || server.ask_for_shape());
                        }
                        _ => {}
                    },
                    Event::Resize(..) => break,
                    _ => {}
                }
            }
            match came.recv_timeout(Duration::ZERO) {
                Ok(Ok(new)) => {
                    status = new;
                    lost = None;
                    break;
                }
                Ok(Err(failure)) => {
                    lost = Some(failure.to_string());
                    break;
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }
}

/// Requests the status in a thread of its own, so that keys are handled meanwhile.
fn ask_again_and_again(server: Server) -> Result<Receiver<Result<Status, Failure>>, Failure> {
    let (send, came) = mpsc::sync_channel(1);
    let ask = move || {
        loop {
            std::thread::sleep(INTERVAL);
            if send.send(server.ask()).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("status".to_owned()).spawn(ask);
    thread.map_err(Failure::system("cannot start a thread"))?;
    Ok(came)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = r#"{
      "version": "0.1.0", "process_id": 4711, "uptime_seconds": 3725, "starts": 2,
      "durability": { "medium": "a file on ext4", "domain": "process",
        "guarantee": "what has returned survives the death of the process" },
      "memory": { "used_bytes": 3221225472, "pool_bytes": 4294967296, "max_bytes": 68719476736 },
      "keys": 10000000, "connected_clients": 50,
      "totals": { "hits": 900, "misses": 100, "expired_keys": 7, "evicted_keys": 0, "errors": 3,
        "connections": 60, "connections_rejected": 1, "commands": 1000 },
      "seconds": [
        { "seconds": 1.0, "commands": 100000, "errors": 0, "hits": 0, "misses": 0, "expired": 0,
          "evicted": 0, "bytes_in": 1000, "bytes_out": 2000, "all": { "count": 100000, "p50_ns": 900,
          "p99_ns": 4000, "p999_ns": 9000 }, "reads": { "count": 0, "p50_ns": null, "p99_ns": null,
          "p999_ns": null }, "writes": { "count": 0, "p50_ns": null, "p99_ns": null, "p999_ns": null },
          "used_bytes": 1, "connected_clients": 50 },
        { "seconds": 2.0, "commands": 500000, "errors": 0, "hits": 3, "misses": 1, "expired": 0,
          "evicted": 0, "bytes_in": 4194304, "bytes_out": 2048, "all": { "count": 500000,
          "p50_ns": 1023, "p99_ns": 45000, "p999_ns": 2000000 }, "reads": { "count": 1,
          "p50_ns": 700, "p99_ns": 12000, "p999_ns": 12000 }, "writes": { "count": 1, "p50_ns": 2000,
          "p99_ns": 47000, "p999_ns": 47000 }, "used_bytes": 1, "connected_clients": 50 }
      ],
      "commands": [
        { "name": "set", "calls": 2000, "failed": 3, "nanoseconds": 3000000 },
        { "name": "config|get", "calls": 1, "failed": 0, "nanoseconds": 1000000 }
      ],
      "shape": { "is_walking": false, "age_seconds": 12, "took_ms": 340, "error": null, "maps": [
        { "name": "server", "index": "bztree", "height": 4, "inner_nodes": 812, "leaves": 51234,
          "records": 10000012, "leaf_fill": 0.714, "bytes_a_record": 98.25 } ] },
      "a field of a later version": true
    }"#;

    #[test]
    fn a_frame_has_the_figures() {
        let status: Status = serde_json::from_str(STATUS).unwrap();
        let text = plain(&status, "127.0.0.1:8379").unwrap();
        for part in [
            "Pando 0.1.0",
            "127.0.0.1:8379",
            "up 1 h",
            "process 4711",
            "what has returned survives the death of the process",
            "250,000 commands a second",
            "p50 1.02 µs",
            "p99 45.0 µs",
            "75.0 %",
            "3.00 GiB",
            "of at most 64.00 GiB",
            "10,000,000",
            "SET",
            "CONFIG|GET",
            "75.0 %",
            "height 4",
            "51,234 leaves",
            "71.4 % full",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn a_server_that_has_just_started_has_a_frame_too() {
        let text = plain(&Status::default(), "127.0.0.1:8379").unwrap();
        assert!(text.contains("not counted") && text.contains("not walked yet"), "{text}");
    }

    #[test]
    fn no_terminal_is_too_small() {
        let status: Status = serde_json::from_str(STATUS).unwrap();
        for (columns, lines) in [(1, 1), (10, 3), (40, 12), (300, 100)] {
            let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
            let seen = frame::Seen { status: &status, address: "a", lost: Some("gone") };
            terminal.draw(|frame| frame::draw(frame, &seen)).unwrap();
        }
    }
}
