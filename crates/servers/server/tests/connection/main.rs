//! What a connection may do, and how long it lasts: passwords, users, limits, TLS, a stock client.

#[path = "../common/mod.rs"]
mod common;

mod access;
mod limits;
mod python;
mod server;
mod tls;
mod web_requests;
