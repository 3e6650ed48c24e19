//! Redis's serialization protocol: requests as clients send them, replies as they expect them.
//!
//! * `request.rs`: reads requests, arrays of bulk strings or inline; the same in RESP2 and RESP3.
//!   Our own, because requests need three things that the parsers at hand do not give together:
//!   inline commands, limits that hold before anything is allocated, and Redis's words for each
//!   error.
//! * `reply.rs`: writes replies in either version.

pub(crate) mod reply;
pub(crate) mod request;
