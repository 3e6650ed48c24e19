//! The figures of each second.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use pando_net::histogram::Latencies;
use pando_net::stats::{Count, Figures, Kind};
use pando_redis::Server;
use parking_lot::Mutex;

use super::survey::Survey;
use crate::status::{
    COMMANDS, CommandStatus, Durability, Memory, SECONDS, Second, Shape, Status, Times,
};

/// Observes a server each second.
pub(crate) struct Observer {
    server: Arc<Server>,
    durability: Durability,
    past: Mutex<Past>,
    survey: Arc<Survey>,
}

/// The figures up to the end of the last second.
struct Past {
    at: Instant,
    figures: Figures,
    seconds: VecDeque<Second>,
}

impl Observer {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        let promise = server.store.pool().promise();
        let durability = Durability {
            medium: promise.medium,
            domain: promise.domain.to_owned(),
            guarantee: promise.guarantee,
        };
        let figures = server.stats.figures();
        let past = Mutex::new(Past { at: Instant::now(), figures, seconds: VecDeque::new() });
        Self { server, durability, past, survey: Arc::default() }
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// Ends a second.
    pub(super) fn end_second(&self) {
        let figures = self.server.stats.figures();
        let now = Instant::now();
        let past = &mut *self.past.lock();
        let mut second = between(&past.figures, &figures);
        second.seconds = now.duration_since(past.at).as_secs_f64();
        second.used_bytes = self.server.store.pool().used_bytes();
        past.at = now;
        past.figures = figures;
        if past.seconds.len() == SECONDS {
            past.seconds.pop_front();
        }
        past.seconds.push_back(second);
    }

    /// The current status. Its list of seconds ends with the last complete second.
    pub(super) fn status(&self) -> Status {
        let figures = self.server.stats.figures();
        let totals = Count::ALL.map(|count| (count.name().to_owned(), figures.get(count)));
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process_id: std::process::id(),
            uptime_seconds: self.server.stats.uptime().as_secs(),
            starts: self.server.store.starts(),
            durability: self.durability.clone(),
            memory: self.memory(),
            keys: self.server.store.known_count(),
            connected_clients: figures.connected(),
            totals: totals.into(),
            seconds: self.past.lock().seconds.iter().copied().collect(),
            commands: dearest(&figures),
            shape: self.shape(),
        }
    }

    pub(super) fn memory(&self) -> Memory {
        let pool = self.server.store.pool();
        Memory {
            used_bytes: pool.used_bytes(),
            pool_bytes: pool.size_bytes(),
            // If the file cannot be measured, the figure is zero.
            occupied_bytes: pool.occupied_bytes().unwrap_or_default(),
            max_bytes: self.server.store.page_bytes().map_or(pool.max_bytes(), |_| 0),
        }
    }

    pub(super) fn shape(&self) -> Shape {
        self.survey.shape()
    }

    pub(super) fn ask_for_shape(&self) {
        Survey::ask(&self.survey, &self.server);
    }
}

/// The events between two sets of figures.
fn between(before: &Figures, after: &Figures) -> Second {
    let count = |count| after.get(count).saturating_sub(before.get(count));
    let took = |kind| {
        let mut took = after.latencies(kind).clone();
        took.subtract(before.latencies(kind));
        took
    };
    let (reads, writes) = (took(Kind::Read), took(Kind::Write));
    let mut all = took(Kind::Other);
    all.add(&reads);
    all.add(&writes);
    Second {
        seconds: 0.0,
        commands: count(Count::Commands),
        errors: count(Count::Errors),
        hits: count(Count::Hits),
        misses: count(Count::Misses),
        expired: count(Count::Expired),
        evicted: count(Count::Evicted),
        bytes_in: count(Count::BytesIn),
        bytes_out: count(Count::BytesOut),
        all: times(&all),
        reads: times(&reads),
        writes: times(&writes),
        used_bytes: 0,
        connected_clients: after.connected(),
    }
}

fn times(latencies: &Latencies) -> Times {
    Times {
        count: latencies.count(),
        p50_ns: latencies.quantile(0.5),
        p99_ns: latencies.quantile(0.99),
        p999_ns: latencies.quantile(0.999),
    }
}

/// The commands with the largest total time.
fn dearest(figures: &Figures) -> Vec<CommandStatus> {
    let mut called: Vec<_> = figures.called().filter(|(_, calls)| calls.calls > 0).collect();
    called.sort_by_key(|(name, calls)| (std::cmp::Reverse(calls.nanoseconds), *name));
    called.truncate(COMMANDS);
    let commands = called.into_iter().map(|(name, calls)| CommandStatus {
        name: name.to_owned(),
        calls: calls.calls,
        failed: calls.failed,
        nanoseconds: calls.nanoseconds,
    });
    commands.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::site::counted;
    use pando_net::stats::Stats;

    #[test]
    fn a_second_has_what_happened_in_it() {
        let stats = Stats::new(1, counted());
        let (get, set) = ((0, Kind::Read), (1, Kind::Write));
        stats.note_call(set.0, set.1, Duration::from_millis(50), false);
        stats.add(Count::Hits, 7);
        let before = stats.figures();
        for _ in 0..99 {
            stats.note_call(get.0, get.1, Duration::from_nanos(1000), false);
        }
        stats.note_call(set.0, set.1, Duration::from_nanos(9000), true);
        stats.add(Count::Hits, 3);
        stats.add(Count::Misses, 1);
        let second = between(&before, &stats.figures());
        assert_eq!((second.commands, second.hits, second.misses), (100, 3, 1));
        assert_eq!(second.hit_rate(), Some(0.75));
        assert_eq!((second.reads.count, second.writes.count), (99, 1));
        assert_eq!(second.reads.p50_ns, Some(1023));
        assert_eq!(second.writes.p50_ns, Some(9215));
        assert_eq!((second.all.p99_ns, second.all.p999_ns), (Some(1023), Some(9215)));
        let commands = dearest(&stats.figures());
        let names: Vec<_> = commands.iter().map(|one| (one.name.as_str(), one.calls)).collect();
        assert_eq!(names, [("set", 2), ("get", 99)]);
    }
}
