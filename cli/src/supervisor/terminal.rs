//! The foreground process group of the terminal. The command has a separate process group, and can read from the
//! terminal only while that is the foreground group. As a shell does for its jobs, `docent` gives it the terminal:
//!
//! * at once, if standard input and standard output are the terminal, so the command is alone there;
//! * otherwise when the command is stopped because it reads from the terminal (SIGTTIN) or changes it
//!   (SIGTTOU): in `docent lock ... | less` the pager, which is in the group of `docent`, has the terminal
//!   until then.

use std::{
    fs::File,
    io::{self, IsTerminal as _},
};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::{
    process::{Pid, getpgrp},
    termios::{tcgetpgrp, tcsetpgrp},
};

/// Opens the controlling terminal, if there is one.
fn controlling_terminal() -> Option<File> {
    File::options().read(true).write(true).open("/dev/tty").ok()
}

/// Returns the foreground group.
fn foreground() -> Option<Pid> {
    tcgetpgrp(controlling_terminal()?).ok()
}

/// Whether the group of this process is in the foreground.
pub(super) fn is_foreground() -> bool {
    foreground() == Some(getpgrp())
}

/// Whether the command is given the terminal at once.
pub(super) fn goes_to_command() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && is_foreground()
}

/// Makes the group of this process the foreground group.
pub(super) fn take_foreground() {
    give_to(getpgrp());
}

/// Makes the group of this process the foreground group if `group` is it: a background command does not
/// have the terminal.
pub(super) fn take_back(group: Pid) {
    if foreground() == Some(group) {
        take_foreground();
    }
}

/// Makes `group` the foreground group. Does nothing without a terminal.
pub(super) fn give_to(group: Pid) {
    let Some(terminal) = controlling_terminal() else { return };
    // A background process that calls tcsetpgrp is stopped by SIGTTOU unless it blocks that signal.
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTTOU);
    let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let _ = tcsetpgrp(terminal, group);
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
}
