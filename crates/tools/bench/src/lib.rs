//! The measure: Pando's indexes beside the maps that a user would otherwise pick.
//!
//! What a figure from here means, and why it can be believed:
//!
//! * **Interleaved.** All systems are loaded first and live side by side. Each round gives every
//!   system one short slice of the same work, one after the other, in turning order; the ratio of
//!   two systems is taken within a round, and its median is reported with its least and greatest
//!   value. A machine that slows down for a while slows both.
//! * **The same work.** One seed gives the same operations on every system. The key of record `i`
//!   is a bijective mix of `i` ([`keys`]), so no system is helped or hindered by a table of keys.
//! * **Checked.** Every read must hit and bring a value that belongs to its key, every insert
//!   must find its key absent and every delete find it present; counts are compared after each
//!   slice that changes them, and at the end a full scan must give exactly the records that are
//!   due ([`verify`]). A system that loses or invents a key gets no figure: the run fails and
//!   names the key.
//!
//! It stands above the indexes and below the `pando` command, which carries it as `pando bench`;
//! `pando-bench` is the same alone. The papers' experiments (`pando-papers`) stand on it. One file,
//! one idea:
//!
//! | file, from the lowest up | what |
//! | --- | --- |
//! | [`system`] | what is measured, seen by the harness |
//! | [`keys`], [`key_sampler`], [`rng`] | records, and which of them an operation meets |
//! | [`record`] | keys and values as bytes, of any size |
//! | [`error`], [`spread`], [`units`], `latency` | what can go wrong; figures, and how people read them |
//! | [`operation_mix`], [`mod@slice`], `worker`, `arrival_schedule` | the work, one timed slice of it, one thread of that, the open loop |
//! | [`subject`] | one slice run on a system |
//! | [`systems`] | the adapters and the one place that builds them by name |
//! | [`verify`] | the final scan |
//! | [`conditions`], [`machine`] | what figures are taken on; what the machine is asked for |
//! | [`plan`], [`compare`] | what is compared, and rounds over systems: the interleaving |
//! | [`replay`] | a file of operations on every system, answers compared |
//! | `table`, [`report`], [`page`] | the figures of a run; the table and the JSON lines; the page with plots |
//! | `figures` | the table and the plots of what has no rounds |
//! | [`costs`], [`recovery`], [`space`] | flushes and lines, the time to come back, bytes a record |
//! | [`profile`], [`servers`] | where the time goes; servers side by side |
//! | `agree` | the ratios of two runs beside each other |
//! | [`documents`] | the figures of the documents: data, tables and plots |
//! | [`arg_values`], [`args`], [`commands`], [`progress`] | the command line, and what it sets off |

mod agree;
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
pub mod operation_mix;
pub mod page;
pub mod plan;
pub mod profile;
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
pub mod units;
pub mod verify;
mod worker;
