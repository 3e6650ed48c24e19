//! The way to a key: down the inner pages, along side links, and through a leaf's chain.
//!
//! Every page may have been split since the word was read that led to it, so each is asked first whether
//! the target lies behind it. A chain is walked from the newest record on: what comes first holds. A split
//! delta is older than all deltas of keys that it left in the page, and newer than those of keys that it
//! took out of it; a node merge delta stands for two chains, of which one is gone on with.
//!
//! A page that was removed has been merged into another before its parent led there no more, in one step;
//! so whoever comes to a removed page has read its parent before, begins again at the root, and finds the
//! way changed.

use std::ops::Range;

use pando_index::Error;
use pando_pmem::Domain;

use crate::context::{Context, Pid, Probe, Target, Value};
use crate::layout::{Kind, Link, NO_POSITION};
use crate::page::Located;
use crate::style::Style;
use crate::tree::{BwTree, Damaged};

/// Where a target lies from a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// In this child of the inner page.
    Child(Pid),
    /// In the page itself, which is a leaf.
    Here,
    /// Behind it, from its right sibling on.
    Right(Pid),
}

/// What a leaf says of a key.
#[derive(Clone, Copy, Debug)]
pub enum Found<'op> {
    /// The record is there. And where its key stands in the base, if that is known.
    Value(Value<'op>, u16),
    /// There is no record. And where its key would stand.
    Absent(u16),
    /// The key lies behind the leaf.
    Right(Pid),
}

/// A page, and what the mapping table had of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub pid: Pid,
    pub link: Link,
}

impl<'op, D: Domain> Context<'op, '_, D> {
    /// Where the target lies from the page that `link` leads to.
    #[inline(always)]
    pub fn route(self, link: Link, target: Target<'_>) -> Route {
        let mut link = link;
        while let Some(delta) = self.delta(link) {
            link = delta.next();
            match delta.info.kind {
                // The range begins there.
                Kind::IndexEntry if !target.reaches_head(delta.key_head()) => {}
                Kind::IndexEntry | Kind::IndexEntryDelete => {
                    let entry = delta.entry();
                    let is_within = target.reaches(entry.low)
                        && entry.high.is_none_or(|high| !target.reaches(high));
                    if is_within {
                        return Route::Child(entry.child);
                    }
                }
                Kind::Split if target.reaches(delta.key()) => {
                    return Route::Right(delta.value_word());
                }
                Kind::NodeMerge if target.reaches(delta.key()) => link = Link(delta.value_word()),
                _ => {}
            }
        }
        if link == Link::EMPTY {
            return Route::Here;
        }
        let page = self.base(link);
        let is_behind = match target {
            Target::Holding(probe) => page.is_before(probe),
            _ => page.high().is_some_and(|high| target.reaches(high)),
        };
        if is_behind {
            return Route::Right(page.right());
        }
        if page.level() == 0 {
            return Route::Here;
        }
        // The separators from the second child on; the first child has what is before them.
        let position = match target {
            Target::Last => page.records(),
            Target::Holding(probe) => match page.locate(probe) {
                Located::At(at) => at + 1,
                Located::Before(before) => before,
            },
            Target::Before(probe) => match page.locate(probe) {
                Located::At(at) => at,
                Located::Before(before) => before,
            },
        };
        Route::Child(page.child(position.saturating_sub(1)))
    }

    /// What the leaf says of the key.
    #[inline(always)]
    pub fn find(self, link: Link, probe: Probe<'_>, shortcuts: bool) -> Found<'op> {
        let mut link = link;
        // Where the key can stand in the base.
        let (mut from, mut to) = (0, usize::MAX);
        let mut is_known = true;
        while let Some(delta) = self.delta(link) {
            link = delta.next();
            let info = delta.info;
            match info.kind {
                Kind::Insert | Kind::Modify | Kind::Delete => {
                    let head = delta.key_head();
                    if head == probe.head && delta.is_of(probe) {
                        let position = if is_known { info.position } else { NO_POSITION };
                        return match info.kind {
                            Kind::Delete => Found::Absent(position),
                            _ => Found::Value(delta.value(), position),
                        };
                    }
                    if shortcuts {
                        // Without a branch on what is found: there is no pattern in it. What is not known
                        // is above all positions that there are.
                        let position = usize::from(info.position);
                        let is_below = head < probe.head && info.position != NO_POSITION;
                        let is_above = head > probe.head;
                        from = from.max(if is_below { position } else { 0 });
                        to = to.min(if is_above { position } else { usize::MAX });
                    }
                }
                Kind::Split if delta.is_not_behind(probe) => {
                    return Found::Right(delta.value_word());
                }
                Kind::NodeMerge => {
                    is_known = false;
                    if delta.is_not_behind(probe) {
                        link = Link(delta.value_word());
                        (from, to) = (0, usize::MAX);
                    }
                }
                _ => {}
            }
        }
        if link == Link::EMPTY {
            return Found::Absent(NO_POSITION);
        }
        let page = self.base(link);
        if page.is_before(probe) {
            return Found::Right(page.right());
        }
        let known = |position: usize| match u16::try_from(position) {
            Ok(position) if is_known => position.min(NO_POSITION),
            _ => NO_POSITION,
        };
        let range: Range<usize> = from..to.min(page.records());
        match page.locate_in(range, probe) {
            Located::At(at) => Found::Value(page.value(at), known(at)),
            Located::Before(before) => Found::Absent(known(before)),
        }
    }
}

impl<D: Domain, S: Style> BwTree<D, S> {
    /// The leaf to which the target leads; it may have been split since.
    #[inline(always)]
    pub(crate) fn find_leaf(
        &self,
        context: Context<'_, '_, D>,
        target: Target<'_>,
    ) -> Result<At, Error> {
        'root: loop {
            let mut at = self.root(context);
            loop {
                if at.link.is_removed() {
                    self.refuse_damaged(at)?;
                    continue 'root;
                }
                if !at.link.is_inner() {
                    return Ok(at);
                }
                let next = match context.route(at.link, target) {
                    Route::Child(pid) => pid,
                    Route::Right(pid) => self.step_right(context, at, pid)?,
                    Route::Here => return Err(damaged(at)),
                };
                at = self.arrive(context, next);
            }
        }
    }

    /// The leaf in which the target lies.
    pub(crate) fn find_holder(
        &self,
        context: Context<'_, '_, D>,
        target: Target<'_>,
    ) -> Result<At, Error> {
        'root: loop {
            let mut at = self.find_leaf(context, target)?;
            while let Route::Right(right) = context.route(at.link, target) {
                let right = self.step_right(context, at, right)?;
                at = self.arrive(context, right);
                if at.link.is_removed() {
                    continue 'root;
                }
            }
            return Ok(at);
        }
    }

    /// The page on `level`, above the leaves, to which the target leads, and the child there; `None` if
    /// the tree is not so high.
    pub(crate) fn find_inner(
        &self,
        context: Context<'_, '_, D>,
        target: Target<'_>,
        level: u8,
    ) -> Result<Option<(At, Pid)>, Error> {
        'root: loop {
            let mut at = self.root(context);
            loop {
                if at.link.is_removed() {
                    self.refuse_damaged(at)?;
                    continue 'root;
                }
                if !at.link.is_inner() {
                    return Ok(None);
                }
                let found = context.base(at.link).level();
                if found < level {
                    return Ok(None);
                }
                let next = match context.route(at.link, target) {
                    Route::Child(pid) if found == level => return Ok(Some((at, pid))),
                    Route::Child(pid) => pid,
                    Route::Right(pid) => self.step_right(context, at, pid)?,
                    Route::Here => return Err(damaged(at)),
                };
                at = self.arrive(context, next);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn root(&self, context: Context<'_, '_, D>) -> At {
        let pid = self.root_pid(context);
        At { pid, link: context.link(pid) }
    }

    /// What is at `pid` now; its lines are asked for.
    #[inline(always)]
    pub(crate) fn arrive(&self, context: Context<'_, '_, D>, pid: Pid) -> At {
        let link = context.link(pid);
        if let Some(base) = link.base_off() {
            // The header, the first slices; and the newest deltas, which stand one before the other.
            for line in 0..6 {
                context.pool().prefetch(base + line * 64);
            }
            if link.off() != base {
                context.pool().prefetch(link.off());
                context.pool().prefetch(link.off() - 64);
                context.pool().prefetch(link.off() - 128);
            }
        }
        At { pid, link }
    }

    /// The right sibling of `at`, to which a search goes on that has found its target behind the page.
    #[cold]
    pub(crate) fn step_right(
        &self,
        context: Context<'_, '_, D>,
        at: At,
        right: Pid,
    ) -> Result<Pid, Error> {
        if right == 0 {
            return Err(damaged(at));
        }
        S::passed_side_link(self, context, at)?;
        Ok(right)
    }

    /// An error if the word is one that no removal leaves.
    #[cold]
    pub(crate) fn refuse_damaged(&self, at: At) -> Result<(), Error> {
        if at.link.0 == pando_pmwcas::MAX_VALUE { Err(damaged(at)) } else { Ok(()) }
    }
}

pub(crate) fn damaged(at: At) -> Error {
    Error::storage(Damaged { off: at.link.off() })
}
