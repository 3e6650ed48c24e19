//! One page with everything that a run found: plots, tables, conditions. It stands alone: the plots
//! are in it, and nothing is fetched from anywhere.

mod palette;
pub(crate) mod plots;

use std::fmt::Write;
use std::path::Path;

use crate::conditions::Conditions;
use crate::error::Error;
use crate::figures::Figures;
use crate::report::{self, Row};
use crate::systems;

/// A part of the page.
#[derive(Clone, Debug)]
pub enum Section {
    /// A comparison.
    Comparison {
        /// What was compared.
        title: String,
        /// The figures, those of one mix and number of threads together.
        rows: Vec<Row>,
    },
    /// Figures of a run without rounds.
    Figures(Figures),
}

impl Section {
    /// The rows of a comparison; none of anything else.
    pub fn rows(&self) -> &[Row] {
        match self {
            Self::Comparison { rows, .. } => rows,
            Self::Figures(_) => &[],
        }
    }
}

const STYLE: &str = "\
:root{color-scheme:light}\
body{font:15px/1.5 system-ui,sans-serif;color:#1d2429;background:#fff;margin:2rem auto;\
max-width:1320px;padding:0 1.2rem}\
h1{font-size:1.6rem;margin:0}h2{font-size:1.25rem;margin:2.4rem 0 .4rem;\
border-bottom:2px solid #1d2429}h3{font-size:1rem;margin:1.4rem 0 .3rem}\
p{margin:.3rem 0;max-width:60rem}.quiet{color:#59636b}\
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(400px,1fr));gap:.8rem}\
.plots svg{width:100%;height:auto;border:1px solid #e1e5e8;border-radius:6px}\
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:.5rem 0;padding:0;list-style:none}\
.legend i{display:inline-block;width:.9em;height:.9em;border-radius:2px;margin-right:.4em;\
vertical-align:-.08em}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;\
font-variant-numeric:tabular-nums}\
th,td{padding:.15rem .7rem;text-align:right;border-bottom:1px solid #e1e5e8;white-space:nowrap}\
th:first-child,td:first-child,.text th,.text td,td.note{text-align:left}caption{text-align:left;font-weight:600;\
padding:.9rem 0 .2rem}";

/// Writes the page to `path`, in place of what was there.
pub fn write(path: &Path, sections: &[Section], conditions: &Conditions) -> Result<(), Error> {
    report::write(path, &page(sections, conditions)?)
}

/// The page's text.
pub fn page(sections: &[Section], conditions: &Conditions) -> Result<String, Error> {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>pando bench</title>\
         <style>{STYLE}</style></head><body>\n<h1>pando bench</h1>\n<p class=\"quiet\">{}</p>\n",
        escaped(&conditions.line())
    );
    if sections.iter().any(|section| matches!(section, Section::Comparison { .. })) {
        out += "<p class=\"quiet\">All systems live side by side and take turns, slice by slice, round by \
                round; ratios are taken within a round. Every answer was checked: a system that loses a \
                key has no figure.</p>\n";
    }
    for section in sections {
        match section {
            Section::Comparison { title, rows } => add_comparison(&mut out, title, rows)?,
            Section::Figures(figures) => add_figures(&mut out, figures)?,
        }
    }
    out += "</body></html>\n";
    Ok(out)
}

/// The names of a section's systems, in the order in which they come.
fn system_names(rows: &[Row]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.system.as_str()) {
            names.push(&row.system);
        }
    }
    names
}

fn add_comparison(out: &mut String, title: &str, rows: &[Row]) -> Result<(), Error> {
    let names = system_names(rows);
    put(out, format_args!("<h2>{}</h2>\n<ul class=\"legend\">", escaped(title)));
    for (at, name) in names.iter().enumerate() {
        let entry = systems::SYSTEMS.iter().find(|entry| entry.name == *name);
        let about = entry.map_or(String::new(), |entry| {
            format!("{}; {}; a write survives {}", entry.what, entry.settings, entry.durability)
        });
        let colour = palette::css(at);
        let (name, about) = (escaped(name), escaped(&about));
        put(
            out,
            format_args!("<li title=\"{about}\"><i style=\"background:{colour}\"></i>{name}</li>"),
        );
    }
    *out += "</ul>\n";

    let mixes = plots::by_mix(rows);
    let has_several_threads = mixes.iter().any(|rows| plots::thread_counts(rows).len() > 1);
    let most = rows.iter().map(|row| row.threads).max().unwrap_or(1);
    let threads = if most == 1 { "1 thread".to_owned() } else { format!("{most} threads") };
    let first = escaped(names.first().unwrap_or(&""));
    put(
        out,
        format_args!(
            "<h3>Throughput divided by that of {first}, {threads}</h3>\n<p class=\"quiet\">The bar is \
             the median of the rounds, the line reaches from the least to the greatest; longer is \
             faster.</p>\n"
        ),
    );
    add_plots(out, &mixes, |rows| plots::ratios(rows, &names))?;
    if has_several_threads {
        *out += "<h3>Throughput by threads</h3>\n";
        add_plots(out, &mixes, |rows| plots::throughput(rows, &names))?;
    }
    put(
        out,
        format_args!(
            "<h3>Latency by percentile, {threads}</h3>\n<p class=\"quiet\">Of an operation, a scan \
             included; lower is better. A curve ends where there are too few samples to tell.</p>\n"
        ),
    );
    add_plots(out, &mixes, |rows| plots::latency(rows, &names))?;
    add_tables(out, rows);
    add_systems(out, &names);
    Ok(())
}

fn add_figures(out: &mut String, figures: &Figures) -> Result<(), Error> {
    let (title, about) = (escaped(&figures.title), escaped(&figures.about));
    put(out, format_args!("<h2>{title}</h2>\n<p class=\"quiet\">{about}</p>\n"));
    *out += "<div class=\"plots\">\n";
    for plot in &figures.plots {
        *out += &plots::figures(plot)?;
    }
    *out += "</div>\n<div class=\"wide\"><table>";
    let mut line = |cells: &[String], tag: &str| {
        let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
        put(out, format_args!("<tr>{}</tr>\n", cells.collect::<String>()));
    };
    line(&figures.columns, "th");
    figures.rows.iter().for_each(|cells| line(cells, "td"));
    *out += "</table></div>\n";
    Ok(())
}

fn add_plots(
    out: &mut String,
    mixes: &[Vec<&Row>],
    plot: impl Fn(&[&Row]) -> Result<String, Error>,
) -> Result<(), Error> {
    *out += "<div class=\"plots\">\n";
    for rows in mixes {
        *out += &plot(rows)?;
    }
    *out += "</div>\n";
    Ok(())
}

fn add_tables(out: &mut String, rows: &[Row]) {
    *out += "<h3>All figures</h3>\n<div class=\"wide\">";
    let mut headed = None;
    for row in rows {
        let current = (row.operation_mix.as_str(), row.threads);
        if headed != Some(current) {
            *out += if headed.is_some() { "</table>\n" } else { "" };
            put(
                out,
                format_args!(
                    "<table><caption>{}</caption><tr><th>system</th><th>operations a second</th>\
                     <th>ratio [least, greatest]</th><th>p50</th><th>p99</th><th>p99.9</th>\
                     <th>longest</th><th>bytes a record</th><th>of files</th></tr>\n",
                    escaped(report::heading(row).trim_end())
                ),
            );
            headed = Some(current);
        }
        put(
            out,
            format_args!(
                "<tr><td>{}</td><td>{:.3} M</td><td>{}</td><td>{}</td></tr>\n",
                escaped(&row.system),
                row.ops_per_second / 1e6,
                row.ratio(),
                row.last_cells().join("</td><td>"),
            ),
        );
        for note in row.notes() {
            put(
                out,
                format_args!("<tr><td></td><td class=\"note\" colspan=\"8\">{note}</td></tr>\n"),
            );
        }
    }
    *out += if headed.is_some() { "</table></div>\n" } else { "</div>\n" };
}

fn add_systems(out: &mut String, names: &[&str]) {
    *out += "<h3>The systems</h3>\n<div class=\"wide\"><table class=\"text\"><tr><th>system</th><th>what it is</th>\
             <th>settings</th><th>a write survives</th></tr>\n";
    for entry in
        names.iter().filter_map(|name| systems::SYSTEMS.iter().find(|system| system.name == *name))
    {
        put(
            out,
            format_args!(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                escaped(entry.name),
                escaped(entry.what),
                escaped(entry.settings),
                entry.durability
            ),
        );
    }
    *out += "</table></div>\n";
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // A string takes all that fits memory.
    let _ = out.write_fmt(text);
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
