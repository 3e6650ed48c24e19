//! The metrics for Prometheus, in the OpenMetrics format.

use std::fmt::Error;

use pando_net::histogram::Latencies;
use pando_net::stats::{Count, Figures, Kind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::observer::Observer;
use crate::status::Status;

pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The bounds of buckets are powers of two, in nanoseconds: from half a microsecond to eight
/// seconds.
const POWERS: std::ops::RangeInclusive<u32> = 9..=33;

type Labels<'text> = [(&'text str, &'text str); 1];

/// The current metrics.
pub(super) fn text(observer: &Observer) -> Result<String, Error> {
    encode(Scrape { figures: observer.server().stats.figures(), status: observer.status() })
}

fn encode(scrape: Scrape) -> Result<String, Error> {
    let mut registry = Registry::with_prefix("pando");
    registry.register_collector(Box::new(scrape));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// The data of one scrape.
#[derive(Debug)]
struct Scrape {
    figures: Figures,
    status: Status,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let encoder = &mut encoder;
        for count in Count::ALL {
            let mut metric =
                encoder.encode_descriptor(count.name(), count.help(), None, MetricType::Counter)?;
            counter(&mut metric, self.figures.get(count))?;
        }
        self.encode_commands(encoder)?;
        self.encode_times(encoder)?;
        self.encode_state(encoder)?;
        self.encode_shape(encoder)
    }
}

impl Scrape {
    fn encode_commands(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let called: Vec<_> = self.figures.called().collect();
        for (name, help, of) in [
            (
                "command_calls",
                "Executed commands, including failed ones, by command",
                (|calls| calls.calls) as fn(pando_net::stats::Calls) -> u64,
            ),
            ("command_failures", "Error replies, by command", |calls| calls.failed),
            ("command_rejections", "Refused commands, by command", |calls| calls.rejected),
        ] {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (command, calls) in &called {
                let labels: Labels<'_> = [("command", command)];
                counter(&mut metric.encode_family(&labels)?, of(*calls))?;
            }
        }
        let help = "Total time of a command";
        let mut metric = encoder.encode_descriptor(
            "command_time",
            help,
            Some(&Unit::Seconds),
            MetricType::Counter,
        )?;
        for (command, calls) in &called {
            let labels: Labels<'_> = [("command", command)];
            let seconds = calls.nanoseconds as f64 / 1e9;
            metric
                .encode_family(&labels)?
                .encode_counter::<Labels<'_>, f64, f64>(&seconds, None)?;
        }
        Ok(())
    }

    fn encode_times(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Times of commands, from the parsed request to the reply in its buffer";
        let mut metric = encoder.encode_descriptor(
            "command_duration",
            help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (kind, name) in [(Kind::Read, "read"), (Kind::Write, "write"), (Kind::Other, "other")] {
            let latencies = self.figures.latencies(kind);
            let labels: Labels<'_> = [("kind", name)];
            let sum_seconds = latencies.sum_nanoseconds() as f64 / 1e9;
            metric.encode_family(&labels)?.encode_histogram::<Labels<'_>>(
                sum_seconds,
                latencies.count(),
                &buckets(latencies),
                None,
            )?;
        }
        Ok(())
    }

    fn encode_state(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let Status { memory, connected_clients, uptime_seconds, starts, .. } = &self.status;
        let bytes = Some(&Unit::Bytes);
        for (name, help, unit, value) in [
            ("connected_clients", "Connected clients", None, *connected_clients),
            ("memory_used", "Allocated bytes, approximately", bytes, memory.used_bytes),
            ("pool_size", "Current size of the pool", bytes, memory.pool_bytes),
            (
                "pool_occupied",
                "Space that the pool occupies in its file system",
                bytes,
                memory.occupied_bytes,
            ),
            ("pool_max", "Largest size of the pool; zero for a store", bytes, memory.max_bytes),
            ("uptime", "Time since the start of the server", Some(&Unit::Seconds), *uptime_seconds),
            ("store_starts", "Number of times that the store was opened", None, *starts),
        ] {
            let mut metric = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
            gauge(&mut metric, &value)?;
        }
        if let Some(keys) = self.status.keys {
            let help = "Keys of all databases";
            gauge(&mut encoder.encode_descriptor("keys", help, None, MetricType::Gauge)?, &keys)?;
        }
        let help = "Failures that an acknowledged write survives";
        let mut metric = encoder.encode_descriptor("durability", help, None, MetricType::Info)?;
        let durability = &self.status.durability;
        metric.encode_info(&[
            ("medium", escaped(&durability.medium)),
            ("domain", escaped(&durability.domain)),
            ("guarantee", escaped(&durability.guarantee)),
        ])
    }

    /// The result of the last walk, if there was one.
    fn encode_shape(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let maps = &self.status.shape.maps;
        let figures = |name, help, of: fn(&crate::status::MapShape) -> f64| (name, help, of);
        for (name, help, of) in [
            figures("map_height", "Levels of a map's tree", |map| f64::from(map.height)),
            figures("map_inner_nodes", "Inner nodes of a map's tree", |map| map.inner_nodes as f64),
            figures("map_leaves", "Leaves of a map's tree", |map| map.leaves as f64),
            figures("map_records", "Records of a map", |map| map.records as f64),
            figures(
                "map_leaf_fill_ratio",
                "Live bytes in leaves, divided by the bytes of leaves",
                |map| map.leaf_fill,
            ),
        ] {
            if maps.is_empty() {
                break;
            }
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for map in maps {
                let name = escaped(&map.name);
                let labels: Labels<'_> = [("map", &name)];
                gauge(&mut metric.encode_family(&labels)?, &of(map))?;
            }
        }
        Ok(())
    }
}

/// Escapes a label's value. The encoder does not.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn counter(metric: &mut MetricEncoder<'_>, value: u64) -> Result<(), Error> {
    metric.encode_counter::<Labels<'_>, u64, f64>(&value, None)
}

fn gauge(metric: &mut MetricEncoder<'_>, value: &impl EncodeGaugeValue) -> Result<(), Error> {
    metric.encode_gauge(value)
}

/// The number of commands in each bucket.
fn buckets(latencies: &Latencies) -> Vec<(f64, u64)> {
    let mut below = 0;
    let mut buckets = Vec::new();
    for power in POWERS {
        let upto = latencies.below_power(power);
        buckets.push(((1_u64 << power) as f64 / 1e9, upto - below));
        below = upto;
    }
    // The encoder writes this bound as infinity.
    buckets.push((f64::MAX, latencies.count() - below));
    buckets
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::site::counted;
    use crate::status::{MapShape, Shape};
    use pando_net::stats::Stats;

    #[test]
    fn the_text_has_each_figure_once() {
        let stats = Stats::new(1, counted());
        stats.note_call(0, Kind::Read, Duration::from_nanos(700), false);
        stats.note_call(0, Kind::Read, Duration::from_secs(20), true);
        stats.add(Count::Hits, 5);
        let mut status = Status { keys: Some(3), ..Status::default() };
        status.memory.used_bytes = 4096;
        status.durability.guarantee = "a \"quoted\"\nword\\".to_owned();
        let map = MapShape {
            name: "server".to_owned(),
            height: 2,
            leaf_fill: 0.5,
            ..MapShape::default()
        };
        status.shape = Shape { maps: vec![map], ..Shape::default() };
        let text = encode(Scrape { figures: stats.figures(), status }).unwrap();
        for line in [
            "# TYPE pando_hits counter",
            "pando_hits_total 5",
            "pando_command_calls_total{command=\"get\"} 2",
            "pando_command_failures_total{command=\"get\"} 1",
            "pando_command_time_seconds_total{command=\"get\"} 20.0000007",
            "pando_command_duration_seconds_count{kind=\"read\"} 2",
            "pando_command_duration_seconds_bucket{le=\"5.12e-7\",kind=\"read\"} 0",
            "pando_command_duration_seconds_bucket{le=\"0.000001024\",kind=\"read\"} 1",
            "pando_command_duration_seconds_bucket{le=\"8.589934592\",kind=\"read\"} 1",
            "pando_command_duration_seconds_bucket{le=\"+Inf\",kind=\"read\"} 2",
            "pando_memory_used_bytes 4096",
            "pando_keys 3",
            "pando_map_height{map=\"server\"} 2.0",
            "pando_map_leaf_fill_ratio{map=\"server\"} 0.5",
            "# EOF",
        ] {
            assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line}\n{text}");
        }
        assert!(text.contains(r#"guarantee="a \"quoted\"\nword\\""#), "{text}");
    }
}
