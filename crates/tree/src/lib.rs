//! What all indexes share. It stands above `pando-pmwcas` and below every index.
//!
//! * [`room`](mod@room): another try for an operation to which a full pool refused room.

pub mod room;
