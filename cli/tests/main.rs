//! The program `docent` as shells and other programs use it. `chaos.rs` has the faults, in its own program.

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
mod decode;
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
#[cfg(unix)]
mod shell_chapter;
mod support;
#[cfg(target_os = "linux")]
mod terminal;
#[cfg(unix)]
mod tree;
