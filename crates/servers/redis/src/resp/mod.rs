//! Redis's serialization protocol: requests and replies.
//!
//! * `request.rs`: parses requests, which are arrays of bulk strings or inline; RESP2 and RESP3
//!   have the same requests. We have our own parser because requests need three properties that no
//!   available parser combines: inline commands, limits that apply before an allocation, and
//!   Redis's words for each error.
//! * `reply.rs`: writes replies in both versions.

pub(crate) mod reply;
pub(crate) mod request;
