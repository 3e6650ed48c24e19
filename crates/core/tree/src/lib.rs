//! What all indexes share. It stands above `pando-pmwcas` and below every index.
//!
//! * [`batch`]: the records that a cursor has copied, and lends.
//! * [`blocks`]: the blocks that come and go with a change of a record.
//! * [`checked`]: what keeps operations on damaged pools from panicking and from going in circles.
//! * [`cursor`]: a scan that copies batches, over an index that fills them.
//! * [`context`]: the PMwCAS, guard and pool of one operation.
//! * [`handle`]: where an index is, and the loop in which an operation is attempted.
//! * [`key`](mod@key): keys as searches compare them.
//! * [`maps`]: the named maps of a pool, and what an index is to be so that it can be one.
//! * [`record_block`]: records that stand apart, with their keys.
//! * [`room`](mod@room): another try for an operation to which a full pool refused room.
//! * [`value_block`]: values that stand apart from their records.
//! * `testing`: what the tests of indexes share.

pub mod batch;
pub mod blocks;
pub mod checked;
pub mod context;
pub mod cursor;
pub mod handle;
pub mod key;
pub mod maps;
pub mod record_block;
pub mod room;
#[cfg(feature = "testing")]
pub mod testing;
pub mod value_block;
