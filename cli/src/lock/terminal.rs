//! Who has the terminal. A command in a process group of its own can read from it only as the foreground group,
//! which a shell arranges for its jobs, and we for ours.

use std::io;

use nix::sys::signal::{SigSet, Signal};
use rustix::{
    process::{Pid, getpgrp},
    termios::{isatty, tcgetpgrp, tcsetpgrp},
};

/// Whether our group has the terminal that is our standard input.
pub(super) fn is_ours() -> bool {
    isatty(io::stdin()) && tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}

/// Gives the terminal to our own group.
pub(super) fn take() {
    give(getpgrp());
}

/// The same, but only from this group: a command in the background has nothing that could be taken back.
pub(super) fn take_back(group: Pid) {
    if isatty(io::stdin()) && tcgetpgrp(io::stdin()).is_ok_and(|now| now == group) {
        take();
    }
}

/// Gives the terminal to a group, unless there is none.
pub(super) fn give(group: Pid) {
    if !isatty(io::stdin()) {
        return;
    }
    // The background is stopped when it does so, but for those who block that signal.
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTTOU);
    let before = blocked.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
    let _ = tcsetpgrp(io::stdin(), group);
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
}
