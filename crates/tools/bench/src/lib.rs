//! The benchmark of Pando's indexes against other ordered maps.
//!
//! Rules that make a figure reliable:
//!
//! * **Interleaved.** All systems are loaded first and stay in memory together. In each round, each
//!   system runs one short slice of the same work. The slices follow each other, and the order
//!   rotates. The ratio of two systems is taken within a round. The report gives the median of the
//!   ratios with the least and the greatest. A machine that is slow for a while slows both systems.
//! * **The same work.** One seed gives the same operations on each system. The key of record `i` is
//!   a bijective mix of `i` ([`keys`]), so that no table of keys competes for the cache.
//! * **Checked.** Each read must find its key and a value of this key. Each insert must find its
//!   key absent, and each delete must find it present. Counts are compared after each slice that
//!   changes them. At the end a full scan must return exactly the expected records ([`verify`]). A
//!   system that loses or invents a key has no figure: the run fails and names the key.
//!
//! This crate is above the indexes and below the command `pando`, which calls it as `pando bench`.
//! The program `pando-bench` has this command alone. The papers' experiments (`pando-papers`) use
//! this crate.
//!
//! | file, from the lowest up | content |
//! | --- | --- |
//! | [`system`] | the interface of a measured system |
//! | [`keys`], [`key_sampler`], [`rng`] | records, and the choice of the record of an operation |
//! | [`record`] | keys and values as bytes of any length |
//! | [`error`], [`spread`], [`units`], `latency` | errors; figures and their texts |
//! | [`operation_mix`], [`mod@slice`], `worker`, `arrival_schedule` | the operations, a timed slice, a thread of a slice, the open loop |
//! | [`verify`] | the final scan |
//! | [`subject`] | the run of a slice on a system |
//! | [`systems`] | the adapters, and the construction of a system by its name |
//! | [`apart`] | a system in a process of its own, whose memory is limited |
//! | [`conditions`], [`machine`], [`program`] | machine and build of a figure; system calls; this program |
//! | [`plan`], [`compare`] | the plan of a comparison; rounds over the systems: the interleaving |
//! | [`replay`] | a file of operations on each system, with a comparison of the answers |
//! | `table`, [`report`], [`page`] | the figures of a run; the table and the JSON lines; the page with plots |
//! | `figures`, [`measure`] | the table and the plots of figures that compare no systems; their rounds |
//! | [`costs`], [`recovery`], [`space`] | flushes and cache lines, recovery time, bytes per record |
//! | [`transactions`] | commits of several keys, scans of snapshots, rebuilds of lost pools |
//! | [`processes`] | processes that share a map, and die |
//! | [`profile`], [`servers`] | the time of each component; comparison of servers |
//! | `agree` | comparison of the ratios of two runs |
//! | [`documents`] | the figures of the documents: data, tables and plots |
//! | [`arg_values`], [`args`], [`commands`], [`progress`] | the command line and its functions |

mod agree;
pub mod apart;
pub mod arg_values;
pub mod args;
mod arrival_schedule;
pub mod commands;
pub mod compare;
pub mod conditions;
pub mod costs;
#[cfg(feature = "papers")]
pub mod delays;
pub mod documents;
pub mod error;
mod figures;
pub mod key_sampler;
pub mod keys;
mod latency;
pub mod machine;
pub mod measure;
pub mod operation_mix;
pub mod page;
pub mod plan;
pub mod processes;
pub mod profile;
pub mod program;
pub mod progress;
pub mod record;
pub mod recovery;
pub mod replay;
pub mod report;
pub mod rng;
pub mod servers;
pub mod slice;
pub mod space;
pub mod spread;
pub mod subject;
pub mod system;
pub mod systems;
mod table;
pub mod transactions;
pub mod units;
pub mod verify;
mod worker;
