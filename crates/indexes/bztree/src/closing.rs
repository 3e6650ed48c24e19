//! The word by which a leaf is closed, and opened again (`claim.rs`; of a range leaf:
//! `pando_ranged`).

use pando_pmem::Domain;
use pando_pmwcas::Descriptor;
use pando_ranged::Closed;
use pando_tree::context::Context;

use crate::meta::{Gate, Kind, Meta};

/// The word that closed a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Closing {
    /// A slot that was empty.
    Slot { off: u64, meta: Meta },
    /// The gate, of a leaf all of whose slots are claimed.
    Gate { off: u64, gate: Gate },
    /// Of a range leaf, which is never opened again.
    Ranged(Closed),
}

impl Closing {
    /// Makes the operation replace the leaf only if it is still closed by this word.
    pub fn seal<D: Domain>(
        self,
        operation: &mut Descriptor<'_, '_, D>,
    ) -> pando_pmwcas::Result<()> {
        match self {
            Self::Slot { off, meta } => operation.add_word(off, meta.0, Meta::REPLACED.0),
            Self::Gate { off, gate } => operation.add_word(off, gate.0, gate.replaced().0),
            Self::Ranged(closed) => closed.seal(operation),
        }
    }

    /// Opens the leaf, unless it was replaced or opened meanwhile.
    pub fn reopen<D: Domain>(self, context: Context<'_, D>) {
        let (off, closed, opened) = match self {
            Self::Slot { off, meta } if meta.kind() == Kind::Closed => {
                (off, meta.0, meta.aborted().0)
            }
            Self::Gate { off, gate } if !gate.is_replaced() => (off, gate.0, gate.opened().0),
            _ => return,
        };
        // If this fails, another thread has opened or replaced the leaf.
        swap(context, off, closed, opened);
    }
}

/// Changes a slot or a gate. Nothing durable depends on the change, unless it is made durable
/// first. Returns whether it took place.
#[inline]
pub(crate) fn swap<D: Domain>(context: Context<'_, D>, off: u64, from: u64, to: u64) -> bool {
    context.pmwcas.compare_exchange_undurable(context.guard, off, from, to).is_ok()
}
