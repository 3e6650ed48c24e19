//! What all indexes share. It stands above `pando-pmwcas` and below every index.
//!
//! * [`batch`]: the records that a cursor has copied, and lends.
//! * [`checked`]: what keeps operations on damaged pools from panicking and from going in circles.
//! * [`cursor`]: a scan that copies batches, over an index that fills them.
//! * [`maps`]: the named maps of a pool, and what an index is to be so that it can be one.
//! * [`room`](mod@room): another try for an operation to which a full pool refused room.
//! * `testing`: what the tests of indexes share.

pub mod batch;
pub mod checked;
pub mod cursor;
pub mod maps;
pub mod room;
#[cfg(feature = "testing")]
pub mod testing;
