//! The experiments of the five papers, by name: `bztree:fig4`, `pmwcas:fig5`, and so on.
//!
//! Each prints the paper's figures beside ours, and the differences in machine and method. The
//! paper's figures are those of its text. Values that only a plot shows are left out, because they
//! would be guesses.
//!
//! The default sizes fit a laptop. Comparisons are interleaved and checked, as everywhere in
//! `pando-bench`, which this crate uses.
//!
//! | file | what |
//! | --- | --- |
//! | [`command`] | the command line: `pando paper`, and `pando-papers` alone |
//! | [`catalogue`] | the one table of all experiments, and how one of them is run |
//! | [`experiment`] | what such an entry says |
//! | [`outcome`], [`report`] | what a run gives: lines of paper and ours; as a table and as JSON lines |
//! | [`arrays`] | PMwCAS alone on arrays of words |
//! | [`traces`] | sequences of operations that stand for the Bw-tree paper's real ones |
//! | [`baselines`] | what the wB+-Tree paper compares its trees with |
//! | [`sizes`] | how many words each PMwCAS of a tree operation has |
//! | [`pcm`] | the medium of the wB+-Tree paper's simulator |
//! | [`pmwcas`], [`bztree`], [`nbtree`], [`bwtree`], [`wbtree`] | the experiments of those papers that can be run today |
//! | [`store`] | those of the store that the Bw-tree paper describes: cache, flushes, cleaning, recovery |

pub mod arrays;
pub mod baselines;
pub mod bwtree;
pub mod bztree;
pub mod catalogue;
pub mod command;
pub mod error;
pub mod experiment;
pub mod nbtree;
pub mod outcome;
pub mod pcm;
pub mod pmwcas;
pub mod report;
pub mod sizes;
pub mod store;
pub mod traces;
pub mod wbtree;

pub use catalogue::{EXPERIMENTS, find, run};
pub use error::Error;
pub use experiment::{Built, Experiment, Settings};
pub use outcome::Outcome;
