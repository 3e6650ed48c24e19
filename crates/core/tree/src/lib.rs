//! The common part of all indexes. It uses `pando-pmwcas`, and every index uses it.
//!
//! * [`batch`]: the records that a cursor has copied, and lends.
//! * [`blocks`]: the blocks that a change of a record allocates and frees.
//! * [`checked`]: checks that let operations on damaged pools end without a panic.
//! * [`cursor`]: a scan that copies batches; an index only fills them.
//! * [`context`]: the PMwCAS, guard and pool of one operation.
//! * [`handle`]: the place of an index, and the loop in which an operation is attempted.
//! * [`key`](mod@key): keys as searches compare them.
//! * [`maps`]: the named maps of a pool, and the traits of an index.
//! * [`record_block`]: blocks of records with their keys.
//! * [`room`](mod@room): further attempts of an operation for which a full pool had no room.
//! * [`value_block`]: blocks of values.
//! * `testing`: the test kit of the indexes.

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
