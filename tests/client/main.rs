//! The client on servers: each operation, many clients at once, TLS and SASL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the functions that they call"
)]

extern crate docent_tests as support;

mod conformance;
mod ended_runtime;
mod flood;
mod harmful;
mod keeper;
mod missing_operations;
mod reconnect;
mod sasl;
mod tls;
mod tls_renewal;
mod tracing;
mod x509;
