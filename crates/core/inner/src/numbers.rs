//! The descent for a key of eight bytes, as far as all separators have eight bytes, too.
//!
//! It reads the words that [`Inner::search`] and [`Inner::child_span`] read, and decides as they
//! do. It is a function of its own with few values to keep, because most operations begin with it:
//! within an operation, processors have too few registers for it.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Words};
use pando_pmwcas::CONTROL_BITS;
use pando_tree::context::Context;

use crate::guess::{Span, guess_of_all, search_guessed};
use crate::layout::{HEADER_BYTES, Link, MAX_HEIGHT};
use crate::node::{Inner, Leaves, Node};
use crate::slices::search_few;

/// So many separators have no window around a guess, and lie in two or three lines.
const MAX_FEW: u64 = 15;

/// The first node from `root` on, on the way to `number`, that is a leaf, or has separators of
/// other lengths, or is damaged.
#[inline(never)]
pub(crate) fn descend_numbers<D: Domain, L: Leaves>(
    context: Context<'_, D>,
    root: Link,
    number: u64,
) -> Link {
    let (mut link, mut span, mut guess) = (root, Span::ALL, None);
    for _ in 0..MAX_HEIGHT {
        let Some(inner) = Inner::uniform_at(context, link) else { break };
        let (words, first) = (inner.node.words(context), inner.node.shape().sorted_at / 8);
        let separators = inner.children() - 1;
        let index = if separators <= MAX_FEW {
            search_few(words, first, separators, number)
        } else {
            let guess = guess.unwrap_or_else(|| guess_of_all(number, separators));
            search_guessed(words, first, separators, number, true, guess)
                .unwrap_or_else(|| search_all(context, link, number))
        };
        link = link_in(context, inner, words, index);
        // Relaxed: as of all separators.
        let separator = |index: u64| words.load(first + index, Ordering::Relaxed).swap_bytes();
        if index > 0 {
            span.low = separator(index - 1);
        }
        if index < separators {
            span.high = separator(index);
        }
        guess = Some(link.prefetch::<D, L>(context, span, Some(number)));
    }
    link
}

/// The child of the inner node that `link` names, by a search of all separators.
#[cold]
#[inline(never)]
fn search_all<D: Domain>(context: Context<'_, D>, link: Link, number: u64) -> u64 {
    Inner { node: Node::at(context, link) }.search_all(context, number, true)
}

/// Child `index` of `inner`, whose words are `words`.
#[inline(always)]
fn link_in<D: Domain>(
    context: Context<'_, D>,
    inner: Inner,
    words: Words<'_, D>,
    index: u64,
) -> Link {
    // Acquire: pairs with the swap that stored the link, as in `Pmwcas::read`.
    let found = words.load(HEADER_BYTES / 8 + index, Ordering::Acquire);
    if found & CONTROL_BITS == 0 { Link(found) } else { inner.child(context, index) }
}
