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
mod tls_errors;
mod tls_renewal;
mod tracing;
mod x509;

use crate::{
    support::{
        certificates::{Authority, Identity},
        eventually,
        fixture::Fixture,
        passes, reaches,
        real::{RealServer, real_server, settings, unique_path},
        session_id, until, within_deadline,
    },
    tls::{certificate_of, embedded, patient, trust},
};
use docent::{
    Acl, AddWatchMode, Client, Config, ConnectionState, CreateMode, CreateOptions, Error,
    ErrorKind, EventType, OpCode, Outcome, Perms, Ttl, Watcher, acl,
    client::Read,
    config::Host,
    runtime::{ByteStream, Connecting, Transport},
    tls::TlsOptions,
    watch::WatcherType,
};
use docent_testing::{
    TestingCluster, TestingServer,
    server::{self, Version},
};
use rcgen::{CertificateParams, KeyPair};
use std::{
    fmt, fs, io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use xtask::TemporaryDirectory;
