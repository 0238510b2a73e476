//! The client on servers: each operation, many clients at once, TLS and SASL.

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
