//! Who has the terminal. A command in a process group of its own can read from it only as the foreground group,
//! which a shell arranges for its jobs, and we for ours:
//!
//! * at once, when both the standard input and output are the terminal: nobody but the command is there;
//! * else when it is stopped for wanting to read (SIGTTIN) or to change it (SIGTTOU): in `docent lock ... | less`
//!   the terminal is the pager's, which is in our group, unless the command needs it.

use std::{
    fs::File,
    io::{self, IsTerminal as _},
};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::{
    process::{Pid, getpgrp},
    termios::{tcgetpgrp, tcsetpgrp},
};

/// The terminal of our session, if it has one.
fn ours() -> Option<File> {
    File::options().read(true).write(true).open("/dev/tty").ok()
}

/// The foreground group.
fn foreground() -> Option<Pid> {
    tcgetpgrp(ours()?).ok()
}

/// Whether our group has it.
pub(super) fn is_ours() -> bool {
    foreground() == Some(getpgrp())
}

/// Whether the command gets it at once.
pub(super) fn is_the_commands() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && is_ours()
}

/// Gives the terminal to our own group.
pub(super) fn take() {
    give(getpgrp());
}

/// The same, but only from this group: a command in the background has nothing that could be taken back.
pub(super) fn take_back(group: Pid) {
    if foreground() == Some(group) {
        take();
    }
}

/// Gives the terminal to a group, unless there is none.
pub(super) fn give(group: Pid) {
    let Some(terminal) = ours() else { return };
    // The background is stopped when it does so, but for those who block that signal.
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTTOU);
    let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let _ = tcsetpgrp(terminal, group);
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
}
