//! The embedded server and the tap.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the helpers that only they call"
)]

mod corpus;
mod differential;
mod foreign;
mod keeper;
mod limits;
mod machine;
mod partitions;
mod pauses;
mod reconfig;
mod server;
mod support;
mod tap;

use crate::support::{
    Answer, DEADLINE, Random, Raw, create,
    machine::{Bench, Greeting, bench, ms},
    number, real_server, unique,
};
use docent_protocol::{
    Acl, AddWatchMode, ErrorCode, EventType, OpCode, Perms, Text, WatcherEvent,
    connect::ConnectRequest,
    frame,
    jute::Reader,
    multi::{MultiOp, MultiRequest},
    operation,
    raw::{RawBody, put_request_parts},
    reply::{GetDataReply, ReplyHeader},
    request::{
        AddWatchRequest, AuthRequest, CreateRequest, CreateTtlRequest, DeleteRequest, PathRequest,
        ReadRequest, ReconfigRequest, SetAclRequest, SetDataRequest,
    },
};
use docent_testing::{
    TestingServer,
    server::{Config, ConnectionId, Peer, Role, Version},
};
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    path::Path,
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};
