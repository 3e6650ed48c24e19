//! PMwCAS: a persistent, latch-free compare-and-swap of several words at once, as specified by
//! Wang, Levandoski and Larson (`pmwcas.txt`, sections 2 to 5).
//!
//! In the house it stands on `pando-pmem` and under the indexes that publish by it. A word that
//! ever takes part in a PMwCAS is only read by [`Pmwcas::read`], and only written by a PMwCAS or
//! by [`Pmwcas::compare_exchange`].
//!
//! # Words
//!
//! The top three bits of a word are control bits (`word.rs`); a value that needs them is refused.
//!
//! ```text
//! bit   63      62     61     60 .. 20     19 .. 16  15 .. 0
//!       MWCAS   RDCSS  DIRTY  sequence     entry     descriptor    if MWCAS or RDCSS is set
//!       0       0      DIRTY  value                                otherwise
//! ```
//!
//! A reference to a descriptor carries the descriptor's *sequence number*, raised at each use. So
//! a reference from a former life is told from one of this life, and a descriptor is used again
//! at once: it waits for no epoch, and no thread that stops for ever can exhaust the descriptors.
//! This is where we leave the paper, whose references are bare addresses and whose descriptors
//! wait for an epoch (its section 5.1).
//!
//! # Protocol
//!
//! The status word of the descriptor decides: *undecided*, then *succeeded* or *failed*, by one
//! CAS. Everything before it can be undone by anyone, everything after it completed by anyone.
//!
//! | step | who | what a crash leaves | recovery |
//! | --- | --- | --- | --- |
//! | fill the descriptor, *undecided*, durable | owner | no target touched | new blocks freed |
//! | activate the blocks that it owns | owner | blocks that only the descriptor names | freed |
//! | phase 1: RDCSS each target, in order of address, to a reference | anyone | references | old values |
//! | write back the targets | anyone | the same | the same |
//! | status := *succeeded* or *failed* | anyone, by CAS | decided or not | by the status |
//! | write back the status, clear its dirty bit | anyone | decided | forward or back |
//! | phase 2: references to new or old values, dirty; write back; clear dirty bits | anyone | a mixture | completed |
//! | free blocks by policy; *free*, durable if there were any | owner | blocks freed or not | freed again, which changes nothing |
//!
//! RDCSS (Harris, Fraser, Pratt) installs a reference only while the status is undecided. It puts
//! first a conditional reference (RDCSS bit) into the word, then looks at the status, and then
//! replaces the conditional reference by the reference, or by the old value. Anyone who meets a
//! conditional reference completes it, for which it needs the old value:
//!
//! * The **owner**'s conditional reference names the entry of its own descriptor. The owner does
//!   not return before all its own installs are settled, so the entry stands as long as needed.
//! * A **helper**'s must not: it may be late, when the operation is long over and its descriptor
//!   in another life. So it names a record of the helper's own, the first descriptor of its
//!   partition, with the address, the old value and the operation; made durable before use.
//!
//! Phase 2 completes conditional references first: once the status is decided they only can turn
//! into old values, so after it no word holds a reference of this life, nor ever will again.
//!
//! # Dirty bits
//!
//! Only where durability takes a write-back (`Domain::WRITE_BACK`). A final value is put in place
//! with the dirty bit, written back, and the bit cleared; a reader that meets the bit does the
//! same before it returns the value (section 3). References carry no dirty bit: whoever decides
//! the status writes all targets back first.

mod descriptor;
mod error;
mod execute;
mod finalize;
mod maps;
mod pmwcas;
mod recovery;
mod word;

pub use descriptor::{Descriptor, Entry, MAX_WORDS};
pub use error::{Error, Result};
pub use finalize::{Finalization, Finalize, FinalizedWord, MAX_CALLBACKS, Policy};
pub use maps::MapError;
pub use pmwcas::Pmwcas;
pub use recovery::Recovered;
pub use word::{CONTROL_BITS, MAX_HINT, MAX_VALUE};
