//! The server seen from outside, over HTTP: `/` a live page, `/status.json` what it shows,
//! `/metrics` for Prometheus, `/healthz`; `POST /shape` asks for a walk over the tree.
//!
//! It reads figures and no data. It asks nobody for a password: whoever reaches the address may
//! look.
//!
//! * `answers.rs`: what each path answers, for `pando_net::http` to serve.
//! * `observer.rs`: the figures, second by second.
//! * `survey.rs`: the walk over the tree, in a thread of its own.
//! * `metrics.rs`: the text that Prometheus reads.
//! * `page.html`: the page, whole in one file.

mod answers;
mod metrics;
mod observer;
mod survey;

pub(crate) use self::observer::Observer;

/// Two commands that tests count.
#[cfg(test)]
fn counted() -> &'static [pando_net::stats::Counted] {
    use pando_net::stats::{Counted, Kind};
    static COUNTED: std::sync::LazyLock<[Counted; 2]> = std::sync::LazyLock::new(|| {
        [("get", Kind::Read), ("set", Kind::Write)]
            .map(|(name, kind)| Counted { name: name.to_owned(), kind })
    });
    &*COUNTED
}
