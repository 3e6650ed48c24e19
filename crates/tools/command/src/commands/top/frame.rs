//! The screen of `top`.

use std::time::Duration;

use indicatif::{BinaryBytes, HumanCount};
use pando_server::status::{Second, Status};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, Wrap};

use crate::output::time_text;

/// The content of the screen.
pub struct Seen<'seen> {
    /// The last received status.
    pub status: &'seen Status,
    /// The server's address.
    pub address: &'seen str,
    /// Why no status is received any more.
    pub lost: Option<&'seen str>,
}

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, seen: &Seen<'_>) {
    let status = seen.status;
    let maps = u16::try_from(status.shape.maps.len().clamp(1, 8)).unwrap_or(1);
    let [head, plots, figures, commands, shape, foot] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(8),
        Constraint::Length(5),
        Constraint::Min(3),
        Constraint::Length(maps + 2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(head_lines(seen)).wrap(Wrap { trim: true }), head);
    draw_plots(frame, status, plots);
    frame.render_widget(Paragraph::new(figure_lines(status)), figures);
    draw_commands(frame, status, commands);
    let title = Block::new().title("The tree".bold());
    frame.render_widget(Paragraph::new(shape_lines(status)).block(title), shape);
    frame.render_widget("q quits   w walks the tree (at most once a minute)".dim(), foot);
}

fn head_lines(seen: &Seen<'_>) -> Vec<Line<'static>> {
    let status = seen.status;
    let mut first = vec![
        format!("Pando {}", status.version).bold(),
        format!("  {}  ", seen.address).into(),
        format!(
            "up {}  process {}  opened {}",
            span_text(status.uptime_seconds),
            status.process_id,
            crate::quantity::counted(status.starts, "time")
        )
        .dim(),
    ];
    if let Some(lost) = seen.lost {
        first.push(format!("  no answer: {lost}").red());
    }
    let promise = format!("{}: {}", status.durability.medium, status.durability.guarantee);
    vec![first.into(), promise.dim().into()]
}

fn draw_plots(frame: &mut Frame<'_>, status: &Status, area: Rect) {
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(area);
    let last = status.seconds.last().copied().unwrap_or_default();
    let rate = HumanCount(last.throughput().round() as u64);
    draw_plot(frame, left, format!("{rate} commands a second"), &status.seconds, |second| {
        second.throughput().round() as u64
    });
    draw_plot(
        frame,
        right,
        format!("p50 {}  p99 {}", time(last.all.p50_ns), time(last.all.p99_ns)),
        &status.seconds,
        |second| second.all.p99_ns.unwrap_or(0),
    );
}

/// The last seconds, as many as there is room for, the latest at the right.
fn draw_plot(
    frame: &mut Frame<'_>,
    area: Rect,
    title: String,
    seconds: &[Second],
    value: impl Fn(&Second) -> u64,
) {
    let block = Block::bordered().title(title.bold()).border_style(Style::new().dim());
    let room = usize::from(block.inner(area).width);
    let values = seconds.iter().rev().take(room).rev().map(value);
    let missing = room.saturating_sub(seconds.len());
    let values: Vec<u64> = std::iter::repeat_n(0, missing).chain(values).collect();
    frame.render_widget(Sparkline::default().data(&values).green().block(block), area);
}

fn figure_lines(status: &Status) -> Vec<Line<'static>> {
    let last = status.seconds.last().copied().unwrap_or_default();
    let total = |name: &str| HumanCount(status.totals.get(name).copied().unwrap_or(0));
    let by_second = |bytes: u64| BinaryBytes((bytes as f64 / last.seconds.max(1e-3)) as u64);
    let memory = status.memory;
    let keys = status.keys.map_or("not counted".to_owned(), |keys| HumanCount(keys).to_string());
    let line = |name: &'static str, text: String| {
        Line::from(vec![Span::raw(format!("{name:<10}")).dim(), text.into()])
    };
    vec![
        line(
            "hit rate",
            format!(
                "{}  ({} found, {} not, since the start)",
                last.hit_rate().map_or("-".to_owned(), share),
                total("hits"),
                total("misses")
            ),
        ),
        line(
            "memory",
            match memory.max_bytes {
                // A store.
                0 => format!(
                    "{} used, of {} on disk",
                    BinaryBytes(memory.used_bytes),
                    BinaryBytes(memory.pool_bytes)
                ),
                max_bytes => format!(
                    "{} used, pool of {}, of at most {}",
                    BinaryBytes(memory.used_bytes),
                    BinaryBytes(memory.pool_bytes),
                    BinaryBytes(max_bytes)
                ),
            },
        ),
        line(
            "keys",
            format!(
                "{keys}  ({} expired, {} evicted)",
                total("expired_keys"),
                total("evicted_keys")
            ),
        ),
        line(
            "clients",
            format!(
                "{}  ({} accepted, {} turned away)  in {}/s, out {}/s",
                HumanCount(status.connected_clients),
                total("connections"),
                total("connections_rejected"),
                by_second(last.bytes_in),
                by_second(last.bytes_out)
            ),
        ),
        line(
            "p99",
            format!("reads {}, writes {}", time(last.reads.p99_ns), time(last.writes.p99_ns)),
        ),
    ]
}

fn draw_commands(frame: &mut Frame<'_>, status: &Status, area: Rect) {
    let all: u64 = status.commands.iter().map(|command| command.nanoseconds).sum();
    let rows = status.commands.iter().map(|command| {
        let mean_ns = command.nanoseconds.checked_div(command.calls);
        Row::new([
            command.name.to_uppercase(),
            HumanCount(command.calls).to_string(),
            HumanCount(command.failed).to_string(),
            time(mean_ns),
            share(command.nanoseconds as f64 / all.max(1) as f64),
        ])
    });
    let widths = [
        Constraint::Min(16),
        Constraint::Length(16),
        Constraint::Length(12),
        Constraint::Length(12),
        Constraint::Length(14),
    ];
    let header = Row::new(["command", "calls", "errors", "mean time", "share of time"]).dim();
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

fn shape_lines(status: &Status) -> Vec<Line<'static>> {
    let shape = &status.shape;
    let mut lines: Vec<Line<'static>> = shape
        .maps
        .iter()
        .map(|map| {
            format!(
                "{}  {}  height {}  {} inner nodes  {} leaves, {} full  {} records of {:.1} bytes",
                map.name,
                map.index,
                map.height,
                HumanCount(map.inner_nodes),
                HumanCount(map.leaves),
                share(map.leaf_fill),
                HumanCount(map.records),
                map.bytes_a_record
            )
            .into()
        })
        .collect();
    let state = match (shape.is_walking, &shape.error, shape.age_seconds) {
        (true, ..) => "walking".to_owned(),
        (_, Some(error), _) => format!("the walk failed: {error}"),
        (_, _, Some(age)) => format!("walked {} ago, in {} ms", span_text(age), shape.took_ms),
        (_, _, None) => "not walked yet".to_owned(),
    };
    lines.push(state.dim().into());
    lines
}

fn time(nanoseconds: Option<u64>) -> String {
    nanoseconds.map_or("-".to_owned(), |time_ns| time_text(Duration::from_nanos(time_ns)))
}

fn share(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn span_text(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
