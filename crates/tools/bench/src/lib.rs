//! The measure: Pando's indexes beside the maps that a user would otherwise pick.
//!
//! What a figure from here means, and why it can be believed:
//!
//! * **Interleaved.** All sides are loaded first and live side by side. Each round gives every
//!   side one short slice of the same work, one after the other, in turning order; the ratio of
//!   two sides is taken within a round, and its median is reported with its least and greatest
//!   value. A machine that slows down for a while slows both.
//! * **The same work.** One seed gives the same operations on every side. The key of record `i`
//!   is a bijective mix of `i` ([`keys`]), so no side is helped or hindered by a table of keys.
//! * **Checked.** Every read must hit and bring a value that belongs to its key, every insert
//!   must find its key absent and every delete find it present; counts are compared after each
//!   slice that changes them, and at the end a full scan must give exactly the records that are
//!   due ([`verify`]). A side that loses or invents a key gets no figure: the run fails and
//!   names the key.
//!
//! It stands above the indexes and below the `pando` command, which carries it as `pando bench`;
//! `pando-bench` is the same alone. The papers' experiments (`pando-papers`) stand on it. One file,
//! one idea:
//!
//! | file | what |
//! | --- | --- |
//! | [`side`] | what is measured, seen by the harness |
//! | [`sides`] | the adapters and the one place that builds them by name |
//! | [`keys`], [`key_sampler`], [`rng`] | records, and which of them an operation meets |
//! | [`record`] | keys and values as bytes, of any size |
//! | [`mix`], [`mod@slice`], [`worker`], [`arrival_schedule`] | the work, one timed slice of it, one thread of that, the open loop |
//! | [`verify`] | the final scan |
//! | [`compare`] | rounds over sides: the interleaving |
//! | [`replay`] | a file of operations on every side, answers compared |
//! | [`table`], [`report`], [`page`] | the figures of a run; the table and the JSON lines; the page with plots |
//! | [`figures`] | the table and the plots of what has no rounds |
//! | [`conditions`], [`machine`] | what figures are taken on; what the machine is asked for |
//! | [`profile`], [`servers`] | where the time goes; servers side by side |
//! | [`agree`] | the ratios of two runs beside each other |
//! | [`args`], [`commands`] | the command line, and what it sets off |
//! | [`costs`], [`recovery`], [`space`] | flushes and lines, the time to come back, bytes a record |

mod agree;
pub mod args;
mod arrival_schedule;
pub mod commands;
pub mod compare;
pub mod conditions;
pub mod costs;
pub mod error;
mod figures;
pub mod key_sampler;
pub mod keys;
pub mod machine;
pub mod mix;
pub mod page;
pub mod profile;
pub mod record;
pub mod recovery;
pub mod replay;
pub mod report;
pub mod rng;
pub mod servers;
pub mod side;
pub mod sides;
pub mod slice;
pub mod space;
mod table;
pub mod verify;
mod worker;
