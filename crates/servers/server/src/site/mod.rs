//! The server's report over HTTP: `/` is a live page, `/status.json` its data, `/metrics` for
//! Prometheus, `/healthz`. `POST /shape` starts a walk over the tree.
//!
//! It reads figures, not data. There is no authentication: each client that can connect may read
//! them.
//!
//! * `answers.rs`: the response for each path; `pando_net::http` serves them.
//! * `observer.rs`: the figures of each second.
//! * `survey.rs`: the walk over the tree, in its own thread.
//! * `metrics.rs`: the metrics for Prometheus.
//! * `page.html`: the page, in one file.

mod answers;
mod metrics;
mod observer;
mod survey;

pub(crate) use self::observer::Observer;

/// Two commands for tests.
#[cfg(test)]
fn counted() -> &'static [pando_net::stats::Counted] {
    use pando_net::stats::{Counted, Kind};
    static COUNTED: std::sync::LazyLock<[Counted; 2]> = std::sync::LazyLock::new(|| {
        [("get", Kind::Read), ("set", Kind::Write)]
            .map(|(name, kind)| Counted { name: name.to_owned(), kind })
    });
    &*COUNTED
}
