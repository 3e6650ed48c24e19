//! The methods of a map, on maps of every kind: of each index, plain and transactional, of a pool
//! with a log, and of a store. A new index is tested without a change here.

mod common;
mod key_vectors;
mod model;
mod pins;
mod races;
mod scans;
mod typed;
mod values;
