//! Connections: passwords, users, limits, TLS, a standard client.

#[path = "../common/mod.rs"]
mod common;

mod access;
mod limits;
mod python;
mod server;
mod tls;
mod web_requests;
