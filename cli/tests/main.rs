//! The program `docent` as shells and other programs use it. The tests of faults, `chaos.rs`, are a separate program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the helpers that only they call"
)]

#[cfg(unix)]
mod cli_md;
mod conform;
mod conform_client;
mod decode;
#[cfg(unix)]
mod guide_pages;
#[cfg(unix)]
mod lab;
#[cfg(unix)]
mod lead;
#[cfg(unix)]
mod lock;
#[cfg(unix)]
mod locks;
mod nodes;
#[cfg(unix)]
mod output;
mod refusals;
mod serve;
mod serve_secure;
mod sessions;
mod shell;
mod support;
#[cfg(target_os = "linux")]
mod terminal;
mod transcripts;
#[cfg(unix)]
mod tree;

use crate::support::{
    DEADLINE, Ran, TemporaryFile, Watching, client, docent, ended, eventually, new_chroot, run,
    run_with_input, server, unique_path, until, within_deadline,
};
#[cfg(unix)]
use crate::support::{children, kill, processes_with, terminate, until_children, until_no_process};
use docent::CreateMode;
#[cfg(unix)]
use docent::{Client, OpCode, locks::InterProcessMutex};
use docent_testing::{TestingServer, fault::Fault, tap::Tap};
use serde_json::Value;
#[cfg(target_os = "linux")]
use std::sync::{Arc, Mutex};
#[cfg(unix)]
use std::time::Duration;
use std::{fs, process::Stdio, time::Instant};
use tokio::process::Child;
