//! How pages change: what the two styles of section 7.2 of `pmwcas.txt` have to say.
//!
//! All else is the same code: pages, deltas, searches, scans, and the decisions when a page is
//! consolidated, split or merged and what with. In which domain a style runs is another type, so
//! the paper's four primitives are four types:
//!
//! | primitive | style | domain |
//! | --- | --- | --- |
//! | CAS | `SingleWord` (feature `papers`) | `Volatile` |
//! | MwCAS | [`MultiWord`](crate::MultiWord) | `Volatile` |
//! | PCAS | `SingleWord` (feature `papers`) | `Adr`, for measuring: a crash may leave what no code repairs |
//! | PMwCAS | [`MultiWord`](crate::MultiWord) | any |
//!
//! The flush variants are the domain's: what it writes back with.

use std::fmt::Debug;

use pando_index::Result;
use pando_pmem::Domain;
use pando_tree::blocks::{Blocks, NewBlock};
use pando_tree::context::Context;

use crate::context::At;
use crate::gather::Gathered;
use crate::prepend::Prepared;
use crate::table::FreePid;
use crate::tree::BwTree;

/// A split, prepared: the right half is a page, and two deltas wait to be prepended.
#[derive(Debug)]
pub struct Split<'op, D: Domain> {
    /// The page to be split.
    pub left: At,
    pub split: Prepared<'op, D>,
    /// For the right half.
    pub right: FreePid,
    pub page: NewBlock<'op, D>,
    pub is_inner: bool,
    pub above: Above<'op, D>,
}

/// What a split changes above the page.
#[derive(Debug)]
pub enum Above<'op, D: Domain> {
    /// Its parent gets an index entry.
    Parent(At, Prepared<'op, D>),
    /// The page is the root: its content goes to another PID, and a page with two children takes
    /// its place.
    Root(FreePid, NewBlock<'op, D>),
}

/// A merge, prepared: a delta waits to be prepended to the parent.
#[derive(Debug)]
pub struct Merge<'op, D: Domain> {
    pub left: At,
    /// It is merged into the left one.
    pub right: At,
    /// Where the right one begins.
    pub separator: &'op [u8],
    pub parent: At,
    pub delete: Prepared<'op, D>,
    /// Of the two.
    pub level: u8,
}

/// How pages change.
///
/// Each of these says whether it took place: not, if something has come between; then nothing is
/// changed, and what was prepared is free again. `Err` without a change if the pool could not
/// serve.
pub trait Style: Sized + Copy + Debug + Send + Sync + 'static {
    /// Prepends a delta to the page.
    fn prepend<D: Domain>(
        context: Context<'_, D>,
        at: At,
        delta: Prepared<'_, D>,
        values: Blocks<'_, D>,
    ) -> Result<bool>;

    /// Puts a base page in the place of the chain, whose blocks are `freed`.
    fn replace<D: Domain>(
        context: Context<'_, D>,
        at: At,
        page: NewBlock<'_, D>,
        is_inner: bool,
        freed: &[u64],
        values: Blocks<'_, D>,
    ) -> Result<bool>;

    /// Splits a page.
    fn split<D: Domain>(
        tree: &BwTree<D, Self>,
        context: Context<'_, D>,
        split: Split<'_, D>,
    ) -> Result<bool>;

    /// Merges a page into its left neighbour.
    fn merge<D: Domain>(
        tree: &BwTree<D, Self>,
        context: Context<'_, D>,
        merge: Merge<'_, D>,
    ) -> Result<bool>;

    /// Puts the content of the root's only child in the place of the root, whose blocks are
    /// `freed`.
    fn collapse<D: Domain>(
        tree: &BwTree<D, Self>,
        context: Context<'_, D>,
        root: At,
        child: At,
        freed: &[u64],
    ) -> Result<bool>;

    /// Does what is to be done before a search goes on to the right sibling of `at`, since that is
    /// not known to the parent yet, perhaps.
    fn passed_side_link<D: Domain>(
        tree: &BwTree<D, Self>,
        context: Context<'_, D>,
        at: At,
    ) -> Result<()>;

    /// Completes the removal of `at`, whose newest record is a remove-node delta.
    fn complete_removal<D: Domain>(
        tree: &BwTree<D, Self>,
        context: Context<'_, D>,
        at: At,
    ) -> Result<()>;

    /// Completes what is under way among the children of an inner page and stands in its chain, so
    /// that another base may take the chain's place.
    fn settle<D: Domain>(
        tree: &BwTree<D, Self>,
        context: Context<'_, D>,
        page: &Gathered<'_, D>,
    ) -> Result<()>;
}
