//! PMwCAS: a persistent, latch-free compare-and-swap of several words at once, as specified by
//! Wang, Levandoski and Larson (`pmwcas.txt`, sections 2 to 5).
//!
//! It stands on `pando-pmem` and under the indexes that publish by it. A word that
//! ever takes part in a PMwCAS is only read by [`Pmwcas::read`], and only written by a PMwCAS or
//! by [`Pmwcas::compare_exchange`] and its kin ([`Pmwcas::compare_exchange_dirty`],
//! [`Pmwcas::compare_exchange_undurable`]).
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
//! a reference from a former life is told from one of this life, and a descriptor is used again at
//! once: it waits for no epoch, and a thread that stops for ever keeps the descriptors that it has
//! claimed and no more. This is where we leave the paper, whose references are bare addresses and
//! whose descriptors wait for an epoch (its section 5.1). The paper's finalize callbacks need that
//! epoch. They are left out: no index uses them.
//!
//! # Protocol
//!
//! The status word of the descriptor decides, by one CAS: *succeeded* or *failed*. Everything
//! before it can be undone by anyone, everything after it completed by anyone. There are two ways
//! there ([`Algorithm`]), and one without a descriptor; all may be under way in one pool at once.
//! An operation is *plain* if it owns no blocks.
//!
//! ## Transactional (`transactional.rs`)
//!
//! Where nothing is written back, a plain operation on one word is one CAS, and on several one
//! hardware transaction, if the processor commits it: compare all targets, then change all. Another
//! thread, a kill and (in `Eadr`) a power cut see all of it or nothing, so there is nothing to help
//! or to recover. A target that holds a reference, or eight aborts, and it is executed directly; so
//! nobody waits for a commit.
//!
//! ## Direct (`direct.rs`, `committed_pending.rs`)
//!
//! Only the owner installs references, each by one CAS, and only the owner lets the operation
//! succeed. Anyone may let it fail.
//!
//! Where lines are written back, a plain operation takes two fences. A crash leaves, at most, what
//! the step makes:
//!
//! | step | who | what a crash leaves | recovery |
//! | --- | --- | --- | --- |
//! | look whether all targets hold what is expected; if not, return | owner | nothing | |
//! | fill the descriptor, *installing*; write it back, and the status of the thread's last operation; **fence** | owner | no target touched | |
//! | replace the references of the last operation by its new values | owner | a mixture | completed: *committed, pending* |
//! | replace the expected value of each target by a reference, in order of address | owner | some references; all, if their lines reached the medium | old values; with all of them, new values |
//! | write back the targets, and those of the last operation; **fence** | owner | all references | new values |
//! | the last operation *free* | owner | | |
//! | status := *committed, pending*, if it still is *installing*; **return** | owner | all references | new values |
//! | the next operation, or whoever changes one of the words, or raises the epoch, does the rest | | | |
//!
//! So the medium knows a success by all targets' references first, and by the status before the
//! first of these goes. Recovery looks for the references of each plain operation that is
//! *installing*. It makes its finding durable, as *committed, pending*, before it changes a word.
//!
//! Others may let the operation fail until the owner's CAS. That is safe, since it has not
//! returned, so nobody can tell which way recovery decides. Who lets it fail puts old values back.
//! Either the medium loses a reference by that, and recovery agrees; or it keeps all, and recovery
//! lets the operation succeed. Whatever a thread did durably to one of the words in between took
//! the reference from the medium. (Who does durably to *another* word what is right only because
//! this one did not succeed must write this one's words back first: deletes in place of a BzTree
//! do.) An owner that was let fail takes its references back durably before it does anything else.
//!
//! Operations that own blocks take one fence more, since recovery may act upon the blocks only when
//! all is durable. A plain operation takes these steps too where nothing is written back, without
//! the write-backs and fences; recovery gives it the new values if it finds all references.
//!
//! | step | who | what a crash leaves | recovery |
//! | --- | --- | --- | --- |
//! | fill the descriptor, *installing*; write it back; **fence** | owner | no target touched | new blocks freed |
//! | activate the blocks that it owns | owner | blocks that only the descriptor names | freed |
//! | replace the expected value of each target by a reference, in order of address | owner | references | old values |
//! | write back the targets; **fence** | owner | the same | the same |
//! | status := *succeeded*, if it still is *installing* | owner | decided or not | by the status |
//! | write back the status; **fence** | owner, or who acts upon it | decided | forward |
//! | replace the references by new values | anyone | a mixture | completed |
//! | write back the targets; free blocks, durably; *free* (`finalize.rs`) | owner | a mixture, or done | completed |
//!
//! A thread that meets a reference of an operation that is *installing*
//!
//! * to read: takes the old value from the entry, and asks for the status again. Still
//!   *installing*, so the word held a reference to an operation that could still fail: it held the
//!   old value. Nothing is written, nobody is held up. (Of a
//!   *committed, pending* one it is the new value, which is durable.)
//! * to change the word: looks a bounded number of times ([`Domain::SPINS`](pando_pmem::Domain)),
//!   then sets the status to *failed* and puts the old value back. The owner finds its decision
//!   refused, puts back the others, durably, and begins again in a new life of the descriptor, by
//!   the paper's algorithm. So each operation is interrupted at most once, and lock-freedom is that
//!   of the paper: whoever interrupts goes on, and who was interrupted is helped from then on.
//!
//! Why no install comes too late: a reference that the owner installs after someone let the
//! operation fail stands for the old value, which is what the word held; the owner takes it out
//! before its descriptor has another life. After a success there is none to come: the owner decides
//! it behind its last install. So RDCSS is not needed, nor a record of one's own to help.
//!
//! Why no dirty bits: a final value is put in place when the status is durable, and until the
//! target's line is written back the descriptor stands, with a reference or the final value on the
//! medium; a recovery makes the final value of both. A later operation on that word writes the
//! line back before it can succeed, so it never is more durable than what it built upon. A
//! thread that meets a *committed, pending* or *succeeded* status that may not be durable writes it
//! back before it replaces a reference.
//!
//! Why no reference remains in memory that is used for something else: a word of a committed
//! operation may lie in a block that is freed before its thread comes back. Then recovery would
//! miss that word's reference, and take the others back. So the status is made durable, and the
//! references are replaced, before the epoch is raised
//! ([`Guard::defer`](pando_pmem::Guard::defer)), and no block is reused before that. (On the medium
//! an operation stays on record until its descriptor is used again. If one of its words lies in a
//! block that is freed meanwhile and used again, and a crash finds there a user's eight bytes that
//! equal the reference, sequence number included, recovery takes them for it. The same holds for an
//! operation that a crash cuts short.)
//!
//! An uncontended plain operation on k words takes 2 + 2k swaps (a claim, k installs, the decision,
//! k replacements) and, where lines are written back, two fences: 4 write-backs for one word, 11
//! for four in lines of their own. Fewer fences cannot be had this way: a reference must not reach
//! the medium before the descriptor that knows the old value, nor the answer the user before the
//! references the medium.
//!
//! ## RDCSS (`rdcss.rs`), the paper's
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
//! | *free* | owner | the same | the same |
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
//! Its dirty bits are set only where durability takes a write-back (`Domain::WRITE_BACK`). A final
//! value is put in place with the dirty bit, written back, and the bit cleared; a reader that meets
//! the bit does the same before it returns the value (section 3). References carry no dirty bit:
//! whoever decides the status writes all targets back first.
//!
//! ## Blocks
//!
//! After either: blocks are freed by policy, then the descriptor is *free*, durably
//! (`finalize.rs`).

mod committed_pending;
mod descriptor;
mod direct;
mod error;
mod execute;
mod finalize;
mod operation;
mod participant;
mod pmwcas;
mod policy;
mod rdcss;
mod recovery;
mod transactional;
mod word;

pub use error::{Error, Result};
pub use operation::{Descriptor, Entry};
pub use pmwcas::{Algorithm, Pmwcas, Recovered};
pub use policy::Policy;
pub use word::{BLOCK_MASK, CONTROL_BITS, DIRTY, HINT_SHIFT, MAX_HINT, MAX_VALUE, MAX_WORDS};
