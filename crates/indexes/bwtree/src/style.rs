//! How pages change: the interface of the two styles of section 7.2 of the PMwCAS paper.
//!
//! Everything else is common code: pages, deltas, searches, scans, and the decisions when to
//! consolidate, split or merge a page. The domain is another type parameter, so the paper's four
//! primitives are four types:
//!
//! | primitive | style | domain |
//! | --- | --- | --- |
//! | CAS | `SingleWord` (feature `papers`) | `Process` |
//! | MwCAS | [`MultiWord`](crate::MultiWord) | `Process` |
//! | PCAS | `SingleWord` (feature `papers`) | `Adr`, for measurements: a crash may leave a state that no code repairs |
//! | PMwCAS | [`MultiWord`](crate::MultiWord) | `Adr` |
//!
//! The domain also chooses the write-back instruction.

use std::fmt::Debug;

use pando_index::Result;
use pando_pmem::Domain;
use pando_tree::blocks::{Blocks, NewBlock};
use pando_tree::context::Context;

use crate::context::At;
use crate::gather::Gathered;
use crate::layout::Link;
use crate::prepend::Prepared;
use crate::residence::Residence;
use crate::table::FreePid;
use crate::tree::BwTree;

/// A prepared change of a record.
#[derive(Debug)]
pub struct Change<'op, D: Domain> {
    pub delta: Prepared<'op, D>,
    pub values: Blocks<'op, D>,
}

/// A prepared base page, which is to replace a chain.
#[derive(Debug)]
pub struct Replacement<'op, D: Domain> {
    pub page: NewBlock<'op, D>,
    /// To the page, or to the newest of the deltas that stand beside it already.
    pub link: Link,
    /// The chain's blocks.
    pub freed: &'op [u64],
    pub values: Blocks<'op, D>,
}

/// A root that is to take the place of its only child.
#[derive(Debug)]
pub struct Collapse<'op> {
    pub root: At,
    pub child: At,
    /// The root's blocks.
    pub freed: &'op [u64],
}

/// A prepared split: the right half is a page, and two deltas are ready to be prepended.
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

/// The change above the page.
#[derive(Debug)]
pub enum Above<'op, D: Domain> {
    /// Its parent gets an index entry.
    Parent(At, Prepared<'op, D>),
    /// The page is the root: its content moves to another PID, and a page with two children
    /// replaces it.
    Root(FreePid, NewBlock<'op, D>),
}

/// A prepared merge: a delta is ready to be prepended to the parent.
#[derive(Debug)]
pub struct Merge<'op, D: Domain> {
    pub left: At,
    /// It is merged into the left one.
    pub right: At,
    /// The lowest key of the right one.
    pub separator: &'op [u8],
    pub parent: At,
    pub delete: Prepared<'op, D>,
    /// The level of both pages.
    pub level: u8,
}

/// How pages change.
///
/// Each function returns whether the change took place. It did not if another change came first;
/// then nothing is changed, and what was prepared is free again. `Err` means that nothing is
/// changed, because the pool has no room.
pub trait Style<D: Domain>: Residence {
    /// Prepends a delta to the page.
    fn prepend(context: Context<'_, D>, at: At, change: Change<'_, D>) -> Result<bool>;

    /// Replaces the chain by a base page.
    fn replace(context: Context<'_, D>, at: At, new: Replacement<'_, D>) -> Result<bool>;

    /// Splits a page.
    fn split(tree: &BwTree<D, Self>, context: Context<'_, D>, split: Split<'_, D>) -> Result<bool>;

    /// Merges a page into its left neighbour.
    fn merge(tree: &BwTree<D, Self>, context: Context<'_, D>, merge: Merge<'_, D>) -> Result<bool>;

    /// Replaces the content of the root by that of its only child.
    fn collapse(
        tree: &BwTree<D, Self>,
        context: Context<'_, D>,
        collapse: Collapse<'_>,
    ) -> Result<bool>;

    /// Called before a search continues at the right sibling of `at`: the parent may have no entry
    /// for the sibling yet.
    fn passed_side_link(tree: &BwTree<D, Self>, context: Context<'_, D>, at: At) -> Result<()>;

    /// Completes the removal of `at`, whose newest record is a remove-node delta.
    fn complete_removal(tree: &BwTree<D, Self>, context: Context<'_, D>, at: At) -> Result<()>;

    /// Completes changes in progress among the children of an inner page that stand in its chain,
    /// so that another base may replace the chain.
    fn settle(
        tree: &BwTree<D, Self>,
        context: Context<'_, D>,
        page: &Gathered<'_, D>,
    ) -> Result<()>;
}
