//! PMwCAS: a persistent, latch-free (lock-free) compare-and-swap of several words at once, as
//! specified by Wang, Levandoski and Larson (their paper, sections 2 to 5).
//!
//! The crate uses `pando-pmem`; the indexes publish their changes by it. A word that ever takes
//! part in a PMwCAS is read only by [`Pmwcas::read`]. It is written only by a PMwCAS or by a
//! single-word CAS of this crate ([`Pmwcas::compare_exchange`], [`Pmwcas::compare_exchange_dirty`],
//! [`Pmwcas::compare_exchange_undurable`]).
//!
//! # Terms
//!
//! | term | meaning |
//! | --- | --- |
//! | target | a word that an operation changes |
//! | owner | the thread that began the operation |
//! | helper | another thread that completes a part of the operation |
//! | reference | a target's value while the operation runs: it names the descriptor and the entry |
//! | conditional reference | a reference that RDCSS has not confirmed yet |
//! | life | one use of a descriptor; each has its own sequence number |
//! | plain operation | an operation that owns no blocks |
//! | settle a word | complete or undo the operation that the word refers to, as far as the word needs it |
//!
//! # Words
//!
//! The top three bits of a word are control bits (`word.rs`). A value that needs them is refused.
//!
//! ```text
//! bit   63      62     61     60 .. 20     19 .. 16  15 .. 0
//!       MWCAS   RDCSS  DIRTY  sequence     entry     descriptor    if MWCAS or RDCSS is set
//!       0       0      DIRTY  value                                otherwise
//! ```
//!
//! A reference carries the descriptor's *sequence number*, which rises at each use. So a reference
//! of an earlier life differs from one of this life, and a descriptor can be used again at once: it
//! waits for no epoch. A stalled thread keeps the descriptors that it has claimed, and no others.
//! Here we leave the paper: its references are bare addresses, and its descriptors wait for an
//! epoch (its section 5.1). The paper's finalize callbacks need that epoch. They are left out: no
//! index uses them.
//!
//! # Protocol
//!
//! One CAS of the descriptor's status word decides the operation: *succeeded* or *failed*. Before
//! it, any thread can undo the operation; after it, any thread can complete it. There are two
//! executions with a descriptor, and one without ([`Algorithm`]). All may run in one pool at once.
//!
//! ## Transactional (`transactional.rs`)
//!
//! This execution applies where nothing is written back. A plain operation on one word is one CAS.
//! A plain operation on several words is one hardware transaction, if the processor commits it: it
//! compares all targets, then changes all. Another thread, a kill and (with eADR) a power cut see
//! all of it or nothing, so there is nothing to help or to recover. If a target holds a reference,
//! or after eight aborts, the operation is executed directly. So no thread waits for a commit.
//!
//! ## Direct (`direct.rs`, `committed_pending.rs`)
//!
//! Only the owner installs references, each by one CAS, and only the owner lets the operation
//! succeed. Any thread may let it fail.
//!
//! Where lines are written back, a plain operation takes two fences. The column "after a crash"
//! says what the medium holds at most:
//!
//! | step | thread | after a crash | recovery |
//! | --- | --- | --- | --- |
//! | compare all targets with the expected values; return if one differs | owner | nothing | |
//! | fill the descriptor, *installing*; write it back, and the status of the thread's last operation; **fence** | owner | no target changed | |
//! | replace the references of the last operation by its new values | owner | some references, some new values | completes it: *committed, pending* |
//! | replace the expected value of each target by a reference, in order of address | owner | some references; all, if their lines reached the medium | old values; with all references, new values |
//! | write back the targets, and those of the last operation; **fence** | owner | all references | new values |
//! | the last operation *free* | owner | | |
//! | status := *committed, pending*, if it still is *installing*; **return** | owner | all references | new values |
//! | the rest is done by the next operation, by a thread that changes one of the words, or by a thread that raises the epoch | | | |
//!
//! So the medium knows a success first by the references of all targets. It knows it by the status
//! before the first of these references is replaced. Recovery looks for the references of each
//! plain operation that is *installing*. It makes its decision durable, as *committed, pending*,
//! before it changes a word.
//!
//! Other threads may let the operation fail until the owner's CAS. That is safe: the operation has
//! not returned, so no caller can tell which way recovery decides. The thread that lets it fail
//! puts old values back. If the medium loses a reference by that, recovery agrees; if it keeps all
//! of them, recovery lets the operation succeed. A durable change to one of the words in between
//! has taken the reference from the medium. A thread that makes *another* word durable, and relies
//! on this operation having failed, must write back this operation's words first; deletes in place
//! of a BzTree do so. If another thread has let the operation fail, the owner takes its references
//! back durably before it does anything else.
//!
//! An operation that owns blocks takes one more fence, since recovery may act upon the blocks only
//! when everything is durable. A plain operation takes these steps too where nothing is written
//! back, but without the write-backs and fences. Recovery gives it the new values if it finds all
//! references.
//!
//! | step | thread | after a crash | recovery |
//! | --- | --- | --- | --- |
//! | fill the descriptor, *installing*; write it back; **fence** | owner | no target changed | frees the new blocks |
//! | activate the blocks that it owns | owner | blocks that only the descriptor names | frees them |
//! | replace the expected value of each target by a reference, in order of address | owner | references | old values |
//! | write back the targets; **fence** | owner | the same | the same |
//! | status := *succeeded*, if it still is *installing* | owner | decided or not | by the status |
//! | write back the status; **fence** | owner, or a thread that acts upon it | decided | forward |
//! | replace the references by new values | any thread | some references, some new values | completes it |
//! | write back the targets; free blocks, durably; *free* (`finalize.rs`) | owner | the same, or done | completes it |
//!
//! A thread that finds a reference of an operation that is *installing* acts as follows.
//!
//! * To read: it takes the old value from the entry, and reads the status again. If that still is
//!   *installing*, the word held a reference to an operation that could still fail, so it held the
//!   old value. Nothing is written, and no thread is delayed. (Of an operation that is *committed,
//!   pending* it takes the new value, which is durable.)
//! * To change the word: it reads the status a bounded number of times
//!   ([`Domain::SPINS`](pando_pmem::Domain)), then sets it to *failed* and puts the old value back.
//!   The owner's deciding CAS then fails. The owner puts the other old values back, durably, and
//!   starts again in a new life of the descriptor, by the paper's algorithm. So each operation is
//!   interrupted at most once, and lock-freedom is that of the paper: the interrupting thread makes
//!   progress, and the interrupted operation is helped from then on.
//!
//! Why no install comes too late: the owner may install a reference after another thread let the
//! operation fail. That reference stands for the old value, which is what the word held, and the
//! owner takes it out before its descriptor has another life. After a success no install follows:
//! the owner decides the success after its last install. So neither RDCSS nor a helper's own record
//! is needed.
//!
//! Why no dirty bits: a final value is stored when the status is durable. Until the target's line
//! is written back, the descriptor stays, and the medium holds a reference or the final value;
//! recovery makes both the final value. A later operation on that word writes the line back before
//! it can succeed, so it is never durable before the change that it builds upon. A thread that
//! finds a *committed, pending* or *succeeded* status that may not be durable writes the status
//! back before it replaces a reference.
//!
//! Why no reference remains in memory that is reused: a word of a committed operation may lie in a
//! block that is freed before the operation's thread comes back. Then recovery would miss the
//! reference in that word, and undo the others. So the status is made durable, and the references
//! are replaced, before the epoch is raised ([`Guard::defer`](pando_pmem::Guard::defer)); no block
//! is reused before that. (On the medium, an operation stays recorded until its descriptor is used
//! again. Suppose that one of its words lies in a block that is freed and reused meanwhile, and
//! that a crash finds there eight bytes of a user that equal the reference, sequence number
//! included. Recovery takes them for the reference. The same holds for an operation that a crash
//! interrupts.)
//!
//! An uncontended plain operation on k words takes 2 + 2k swaps (a claim, k installs, the decision,
//! k replacements). Where lines are written back, it takes two fences, and 4 write-backs for one
//! word, 11 for four words in lines of their own. This design needs both fences: a reference must
//! not reach the medium before the descriptor that knows the old value, and the operation must not
//! return before its references have reached the medium.
//!
//! ## RDCSS (`rdcss.rs`), the paper's
//!
//! | step | thread | after a crash | recovery |
//! | --- | --- | --- | --- |
//! | fill the descriptor, *undecided*, durable | owner | no target changed | frees the new blocks |
//! | activate the blocks that it owns | owner | blocks that only the descriptor names | frees them |
//! | phase 1: RDCSS each target, in order of address, to a reference | any thread | references | old values |
//! | write back the targets | any thread | the same | the same |
//! | status := *succeeded* or *failed* | any thread, by CAS | decided or not | by the status |
//! | write back the status, clear its dirty bit | any thread | decided | forward or back |
//! | phase 2: references to new or old values, dirty; write back; clear dirty bits | any thread | some references, some final values | completes it |
//! | *free* | owner | the same | the same |
//!
//! RDCSS (Harris, Fraser, Pratt) installs a reference only while the status is undecided. It first
//! puts a conditional reference (RDCSS bit) into the word, and then reads the status. Then it
//! replaces the conditional reference by the reference, or by the old value. Any thread that finds
//! a conditional reference completes it, and needs the old value for that:
//!
//! * The **owner**'s conditional reference names the entry of its own descriptor. The owner does
//!   not return before all its own installs are settled, so the entry stays valid as long as
//!   needed.
//! * A **helper**'s must not name it: the helper may be late, when the operation is over and its
//!   descriptor is in another life. So it names a record of the helper: the first descriptor of the
//!   helper's partition, with the address, the old value and the operation. The record is durable
//!   before it is used.
//!
//! Phase 2 completes conditional references first. Once the status is decided they can only become
//! old values. So after phase 2 no word holds a reference of this life, and none ever will again.
//!
//! Dirty bits are set only where durability takes a write-back (`Domain::needs_write_back`). A
//! final value is stored with the dirty bit, written back, and then the bit is cleared. A reader
//! that finds the bit does the same before it returns the value (section 3). References carry no
//! dirty bit: the thread that decides the status writes all targets back first.
//!
//! ## Blocks
//!
//! After both executions, blocks are freed by policy, and then the descriptor becomes *free*,
//! durably (`finalize.rs`).

mod committed_pending;
mod dead_process;
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
