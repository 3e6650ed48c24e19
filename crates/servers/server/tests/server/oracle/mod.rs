//! Our replies are equal to those of Debian's Redis, byte for byte.

mod bits;
mod connection;
mod hashes;
mod keys;
mod pipelines;
mod random_picks;
mod range_indexes;
mod sets;
mod sorted_sets;
mod strings;
mod table;
mod transactions;
mod words;
