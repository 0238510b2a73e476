//! The driver and the client, on a server that is scripted by the test.
//!
//! Connections are pipes in memory and time is tokio's paused clock: it jumps to the next timer when all
//! tasks are idle, so a timeout of a minute takes no time, and a busy loop never ends. Tests that need
//! real sockets are in `sockets`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the helpers that only they call"
)]

mod bad_servers;
mod claims;
mod close;
mod contracts;
mod conveniences;
mod dns_srv;
mod ended_runtime;
mod large_trees;
#[cfg(feature = "metrics")]
mod metrics;
mod migration;
mod other_runtime;
#[cfg(feature = "sasl")]
mod sasl;
#[cfg(feature = "sasl")]
mod sasl_mechanism;
mod sessions;
mod silent_servers;
mod sockets;
#[cfg(feature = "stream")]
mod stream;
mod support;
mod timeouts;

use docent_protocol::{
    AddWatchMode, CreateMode, ErrorCode, EventType, OpCode, Stat,
    connect::ConnectResponse,
    frame,
    jute::Reader,
    operation::Read,
    reply::{GetChildrenReply, GetDataReply, PathReply, StatReply},
    request::RequestHeader,
    xid,
};
use docent_session::{
    Client, Config, ConnectionState, CreateOptions, Error, ErrorKind, Outcome,
    config::{Host, WhenFull},
    runtime::{Clock, Connecting, Transport},
};
use docent_testing::TestingServer;
use std::{
    net::Ipv4Addr,
    pin::pin,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc,
};
