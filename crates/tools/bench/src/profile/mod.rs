//! Where BzTree's time goes, by component (BzTree paper, section 7.9 and figure 9).
//!
//! A child process fills a tree and then gets and upserts without end; once it is filled, `perf`
//! samples where it is (by the clock, so it works without hardware counters too). Each sampled
//! address is turned into the chain of functions that were inlined there, from the line tables that
//! release builds carry, and [`component`] says whose time it was. The product has no code for
//! this.
//!
//! What a sample means: the instruction that the timer found. A load that misses the cache shows
//! on its own line or the one after it, so a prefetch hides where the time would have gone, here
//! as on the machine. Time in the kernel is not sampled: it needs privileges, and is in page
//! faults while the pool grows.

pub mod child;
pub mod command;
pub mod component;
pub mod perf;
pub mod shares;

pub use component::Component;
pub use perf::run;
pub use shares::{Error, Plan, Profile};
