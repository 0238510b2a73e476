//! The lines of standard input, with a prompt in a terminal.

use std::{
    io::{self, BufRead, IsTerminal as _, Read as _, Write as _},
    time::Duration,
};

use tokio::sync::mpsc;

/// How long a background process waits before it tries again to read from its terminal.
const BACKGROUND: Duration = Duration::from_millis(500);

/// A line of more bytes than a request can have is wrong.
const MAX_LINE: u64 = 2 << 20;

/// The number of lines that are read in advance.
const AHEAD: usize = 16;

/// A line, or what is wrong with it.
pub(crate) type Line = Result<String, &'static str>;

/// Reads lines in a separate thread, because a read of standard input cannot be cancelled.
pub(crate) struct Prompt {
    lines: mpsc::Receiver<Line>,
    is_visible: bool,
}

impl Prompt {
    pub(crate) fn start() -> Self {
        let (send, lines) = mpsc::channel(AHEAD);
        std::thread::spawn(move || read(&send));
        Self { lines, is_visible: is_terminal() }
    }

    /// Whether lines are typed at a terminal, and not those of a script.
    pub(crate) const fn is_visible(&self) -> bool {
        self.is_visible
    }

    /// The next line; `None` if standard input was closed.
    pub(crate) async fn line(&mut self) -> Option<Line> {
        self.lines.recv().await
    }
}

fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Shows the prompt, if there is a terminal.
pub(crate) fn show() {
    if is_terminal() {
        let mut out = io::stdout();
        let _ = out.write_all(b"docent> ").and_then(|()| out.flush());
    }
}

fn read(lines: &mpsc::Sender<Line>) {
    block_sigttin();
    let mut input = io::stdin().lock();
    loop {
        match next_line(&mut input) {
            Ok(Some(line)) => {
                if lines.blocking_send(line).is_err() {
                    return;
                }
            }
            Err(error) if is_background(&error) => std::thread::sleep(BACKGROUND),
            Ok(None) | Err(_) => return,
        }
    }
}

fn next_line(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    if input.take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.len() as u64 == MAX_LINE && !line.ends_with(b"\n") {
        input.skip_until(b'\n')?;
        return Ok(Some(Err("the line is longer than 2 MiB")));
    }
    let line = String::from_utf8(line).map_err(|_| "the line is no text in UTF-8");
    Ok(Some(line.map(|line| line.trim_end().to_owned())))
}

/// Makes a read fail instead of stopping the process, if it is in the background of its terminal: `docent serve &`
/// must keep serving.
#[cfg(unix)]
fn block_sigttin() {
    use nix::sys::signal::{SigSet, Signal};

    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTIN);
    let _ = signals.thread_block();
}

#[cfg(not(unix))]
const fn block_sigttin() {}

/// Whether a read has failed because the process is in the background.
#[cfg(unix)]
fn is_background(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) && io::stdin().is_terminal()
}

#[cfg(not(unix))]
const fn is_background(_: &io::Error) -> bool {
    false
}
