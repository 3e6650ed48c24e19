//! The plots, each a small SVG of one mix. The systems' colours are those of the section's legend.

use std::fmt::Display;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::palette;
use crate::error::Error;
use crate::figures::Bars;
use crate::report::Row;
use crate::spread::Spread;

const WIDTH_PX: u32 = 420;
const HEIGHT_PX: u32 = 270;
const BAR_PX: u32 = 24;
/// What a plot of bars has above and below them.
const BAR_FRAME_PX: u32 = 84;
const FONT: &str = "sans-serif";
const TITLE_PX: i32 = 15;
const LABEL_PX: i32 = 11;
const INK: RGBColor = RGBColor(29, 36, 41);
const QUIET: RGBColor = RGBColor(225, 229, 232);

type Area<'svg> = DrawingArea<SVGBackend<'svg>, Shift>;

fn failed(error: impl Display) -> Error {
    Error::Plot(error.to_string())
}

/// Draws a plot of `height_px` and returns its SVG.
fn drawn(
    height_px: u32,
    draw: impl FnOnce(&Area<'_>) -> Result<(), Error>,
) -> Result<String, Error> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH_PX, height_px)).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        draw(&area)?;
        area.present().map_err(failed)?;
    }
    // Its size is up to the page; the viewBox keeps its proportions.
    Ok(svg.replacen(&format!("width=\"{WIDTH_PX}\" height=\"{height_px}\" "), "", 1))
}

/// The rows of each mix, in the order in which mixes come.
pub fn by_mix(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut mixes: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match mixes.iter_mut().find(|mix| mix[0].operation_mix == row.operation_mix) {
            Some(mix) => mix.push(row),
            None => mixes.push(vec![row]),
        }
    }
    mixes
}

/// The numbers of threads of some rows, ascending.
pub fn thread_counts(rows: &[&Row]) -> Vec<usize> {
    let mut counts: Vec<usize> = rows.iter().map(|row| row.threads).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The rows with the most threads.
fn widest<'row>(rows: &[&'row Row]) -> Vec<&'row Row> {
    let most = rows.iter().map(|row| row.threads).max().unwrap_or(0);
    rows.iter().filter(|row| row.threads == most).copied().collect()
}

fn title(rows: &[&Row]) -> String {
    rows.first().map_or(String::new(), |row| format!("{}, {} keys", row.operation_mix, row.keys))
}

fn place(names: &[&str], row: &Row) -> usize {
    names.iter().position(|name| *name == row.system).unwrap_or(0)
}

fn label() -> TextStyle<'static> {
    (FONT, LABEL_PX).into_font().color(&INK)
}

fn heading() -> TextStyle<'static> {
    (FONT, TITLE_PX).into_font().style(FontStyle::Bold).color(&INK)
}

/// A bar, the figure beside it, and the line across its end.
struct Bar<'page> {
    name: &'page str,
    colour: RGBColor,
    spread: Spread,
    /// One figure is the whole of it: no spread is written beside it.
    is_exact: bool,
}

/// Bars of each system's throughput divided by the first's, with their spread.
pub fn ratios(rows: &[&Row], names: &[&str]) -> Result<String, Error> {
    let rows = widest(rows);
    let bar = rows.iter().map(|row| Bar {
        name: &row.system,
        colour: palette::of(place(names, row)),
        spread: row.ratio(),
        is_exact: row.system == row.base,
    });
    let all: Vec<_> = bar.collect();
    bars(&title(&rows), "times the first", Some(1.0), &all)
}

/// Bars of figures that are no ratios.
pub fn figures(plot: &Bars) -> Result<String, Error> {
    let bar = plot.bars.iter().enumerate().map(|(at, (name, spread))| Bar {
        name,
        colour: palette::of(at),
        spread: *spread,
        is_exact: spread.min == spread.max,
    });
    let all: Vec<_> = bar.collect();
    bars(&plot.title, plot.unit, None, &all)
}

/// Plots of bars in columns of a sheet that stands alone.
pub fn sheet(plots: &[Bars]) -> Result<String, Error> {
    const COLUMNS: usize = 2;
    let mut out = String::new();
    let mut height_px = 0;
    for row in plots.chunks(COLUMNS) {
        for (column, plot) in row.iter().enumerate() {
            let place = format!("x=\"{}\" y=\"{height_px}\"", column as u32 * WIDTH_PX);
            let size = format!("width=\"{WIDTH_PX}\" height=\"{}\"", bars_height_px(&plot.bars));
            out += &figures(plot)?.replacen("<svg ", &format!("<svg {place} {size} "), 1);
            out.push('\n');
        }
        height_px += row.iter().map(|plot| bars_height_px(&plot.bars)).max().unwrap_or(0);
    }
    let width_px = COLUMNS.min(plots.len()) as u32 * WIDTH_PX;
    Ok(format!(
        "<svg width=\"{width_px}\" height=\"{height_px}\" viewBox=\"0 0 {width_px} {height_px}\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n{out}</svg>\n"
    ))
}

fn bars_height_px<B>(all: &[B]) -> u32 {
    BAR_FRAME_PX + BAR_PX * all.len() as u32
}

/// Bars from above down, with a line from top to bottom at `mark`.
fn bars(title: &str, unit: &str, mark: Option<f64>, all: &[Bar<'_>]) -> Result<String, Error> {
    let longest = all.iter().map(|bar| bar.spread.max).fold(mark.unwrap_or(1e-9), f64::max);
    let widest_name = all.iter().map(|bar| bar.name.len()).max().unwrap_or(0) as u32;
    let count = all.len() as f64;
    drawn(bars_height_px(all), |area| {
        // A third of the width is left for the figures beside the bars.
        let mut chart = ChartBuilder::on(area)
            .caption(title, heading())
            .margin(10)
            .x_label_area_size(34)
            .y_label_area_size(14 + widest_name * 7)
            .build_cartesian_2d(0.0..longest * 1.5, 0.0..count)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(TRANSPARENT)
            .bold_line_style(QUIET)
            .axis_style(INK)
            .x_labels(6)
            .x_desc(unit)
            .x_label_formatter(&|figure| short(*figure))
            .label_style(label())
            .draw()
            .map_err(failed)?;
        let boxes = all.iter().enumerate().map(|(at, bar)| {
            let top = count - at as f64;
            let corners = [(0.0, top - 0.18), (bar.spread.median, top - 0.82)];
            Rectangle::new(corners, bar.colour.filled())
        });
        chart.draw_series(boxes).map_err(failed)?;
        let middle = |at: usize| count - at as f64 - 0.5;
        let spreads = all.iter().enumerate().map(|(at, bar)| {
            let ends = vec![(bar.spread.min, middle(at)), (bar.spread.max, middle(at))];
            PathElement::new(ends, INK.stroke_width(2))
        });
        chart.draw_series(spreads).map_err(failed)?;
        if let Some(mark) = mark {
            let line = vec![(mark, 0.0), (mark, count)];
            chart.draw_series([PathElement::new(line, INK.stroke_width(1))]).map_err(failed)?;
        }
        let beside = label().pos(Pos::new(HPos::Left, VPos::Center));
        let figures = all.iter().enumerate().map(|(at, bar)| {
            let Spread { median, min, max } = bar.spread;
            let text = match bar.is_exact {
                true => short(median),
                false => format!("{} [{}, {}]", short(median), short(min), short(max)),
            };
            // In a column of their own, so that no line crosses them.
            let from = (longest, middle(at));
            EmptyElement::at(from) + Text::new(text, (10, 0), beside.clone())
        });
        chart.draw_series(figures).map_err(failed)?;
        let before = label().pos(Pos::new(HPos::Right, VPos::Center));
        for (at, bar) in all.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(0.0, middle(at)));
            area.draw(&Text::new(bar.name.to_owned(), (x - 6, y), before.clone()))
                .map_err(failed)?;
        }
        Ok(())
    })
}

/// Throughput of each system by the number of threads.
pub fn throughput(rows: &[&Row], names: &[&str]) -> Result<String, Error> {
    let highest = rows.iter().map(|row| row.ops_per_second).fold(0.0, f64::max);
    let (unit, factor) = match highest {
        1e6.. => ("million", 1e6),
        1e3.. => ("thousand", 1e3),
        _ => ("", 1.0),
    };
    let counts = thread_counts(rows);
    let last = counts.len().saturating_sub(1) as f64;
    drawn(HEIGHT_PX, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption(title(rows), heading())
            .margin(10)
            .x_label_area_size(34)
            .y_label_area_size(54)
            .build_cartesian_2d(-0.15..last + 0.15, 0.0..(highest / factor).max(1e-9) * 1.08)
            .map_err(failed)?;
        // Numbers of threads stand at equal distances, whatever lies between them.
        let threads_at = |at: &f64| match at.fract().abs() < 1e-6 && *at >= 0.0 {
            true => counts.get(*at as usize).map_or(String::new(), usize::to_string),
            false => String::new(),
        };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(QUIET)
            .axis_style(INK)
            .x_labels(counts.len() + 1)
            .x_label_formatter(&threads_at)
            .y_label_formatter(&|rate| short(*rate))
            .y_labels(6)
            .x_desc("threads")
            .y_desc(format!("{unit} operations a second"))
            .label_style(label())
            .draw()
            .map_err(failed)?;
        for (at, name) in names.iter().enumerate() {
            let points: Vec<(f64, f64)> = rows
                .iter()
                .filter(|row| row.system == *name)
                .map(|row| {
                    let place = counts.iter().position(|&count| count == row.threads);
                    (place.unwrap_or(0) as f64, row.ops_per_second / factor)
                })
                .collect();
            let colour = palette::of(at);
            let line = LineSeries::new(points.clone(), colour.stroke_width(2));
            chart.draw_series(line).map_err(failed)?;
            let dots = points.into_iter().map(|point| Circle::new(point, 3, colour.filled()));
            chart.draw_series(dots).map_err(failed)?;
        }
        Ok(())
    })
}

/// Latency of each system by percentile, both on logarithmic scales.
pub fn latency(rows: &[&Row], names: &[&str]) -> Result<String, Error> {
    let rows = widest(rows);
    let points = || rows.iter().flat_map(|row| row.latency_curve.iter());
    let least = points().map(|(_, ns)| *ns).min().unwrap_or(1).max(1) as f64;
    let most = points().map(|(_, ns)| *ns).max().unwrap_or(1).max(10) as f64;
    let nines = points().map(|(nines, _)| *nines).fold(1.0, f64::max);
    // Whole powers of ten, so that both ends always have a label.
    let (low, high) = (least.log10().floor(), most.log10().ceil());
    drawn(HEIGHT_PX, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption(title(&rows), heading())
            .margin(10)
            .margin_right(24)
            .x_label_area_size(34)
            .y_label_area_size(58)
            .build_cartesian_2d(0.0..nines, low..high.max(low + 1.0))
            .map_err(failed)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(QUIET)
            .axis_style(INK)
            .x_labels(nines.floor() as usize + 1)
            .x_label_formatter(&|nines| percentile(*nines))
            .y_labels((high - low) as usize + 1)
            .y_label_formatter(&|power| power_of_ten(*power))
            .x_desc("percentile")
            .y_desc("latency")
            .label_style(label())
            .draw()
            .map_err(failed)?;
        for row in &rows {
            let curve = row.latency_curve.iter().map(|(nines, ns)| (*nines, (*ns).max(1) as f64));
            let line = curve.map(|(nines, ns)| (nines, ns.log10()));
            let style = palette::of(place(names, row)).stroke_width(2);
            chart.draw_series(LineSeries::new(line, style)).map_err(failed)?;
        }
        Ok(())
    })
}

/// A figure in as few signs as tell it.
fn short(figure: f64) -> String {
    match figure {
        100.0.. => format!("{figure:.0}"),
        10.0..100.0 => trimmed(format!("{figure:.1}")),
        0.1..10.0 => trimmed(format!("{figure:.2}")),
        _ => trimmed(format!("{figure:.4}")),
    }
}

fn trimmed(text: String) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A number of nines as a percentile: 0 is the least latency, 2 is 99 %.
fn percentile(nines: f64) -> String {
    match nines.round() as u32 {
        0 => "0".to_owned(),
        1 => "90 %".to_owned(),
        2 => "99 %".to_owned(),
        more => format!("99.{} %", "9".repeat(more as usize - 2)),
    }
}

/// Ten to the power of `power` nanoseconds, at whole powers.
fn power_of_ten(power: f64) -> String {
    if (power - power.round()).abs() > 1e-6 {
        return String::new();
    }
    let whole = power.round() as i32;
    let units = ["ns", "µs", "ms", "s"];
    let unit = (whole.max(0) / 3).min(3);
    format!("{} {}", 10_u64.pow((whole - unit * 3).max(0) as u32), units[unit as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_and_carry_units() {
        assert_eq!([0.0, 2.0, 4.0].map(percentile), ["0", "99 %", "99.99 %"]);
        assert_eq!([2.0, 3.0, 7.0, 9.0].map(power_of_ten), ["100 ns", "1 µs", "10 ms", "1 s"]);
        assert_eq!(
            [0.0, 0.0123, 1.5, 12.34, 1234.0].map(short),
            ["0", "0.0123", "1.5", "12.3", "1234"]
        );
    }
}
