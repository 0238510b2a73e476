//! The status line that shows the position in the queue on a terminal.

use std::{
    future::pending,
    io::{IsTerminal as _, Write as _, stderr},
    time::Duration,
};

use docent::Client;

use crate::{output::escape, queue::Queue};

/// The interval between updates. A wait shorter than this shows no status line.
const UPDATE_INTERVAL: Duration = Duration::from_millis(500);

/// Shows the position in the queue on standard error, if that is a terminal. Does not return.
pub(crate) async fn show(name: &str, client: &Client, path: &str) {
    if !stderr().is_terminal() {
        return pending().await;
    }
    let mut line = StatusLine { name, shown: None };
    loop {
        tokio::time::sleep(UPDATE_INTERVAL).await;
        let connected = client.state().get().is_some_and(docent::ConnectionState::is_connected);
        let status = if connected {
            let session = client.session().map(|session| session.session_id());
            match Queue::read(client, path).await {
                Ok(queue) => queue_status(path, &queue, session),
                Err(_) => continue,
            }
        } else {
            Some(format!("waiting for {}: no connection", escape(path)))
        };
        line.write(status);
    }
}

/// Describes the position of this session in the queue.
fn queue_status(path: &str, queue: &Queue, session: Option<i64>) -> Option<String> {
    let waiting: Vec<_> = queue.waiting().collect();
    let position = waiting.iter().position(|entry| Some(entry.session) == session)?;
    let text = match (position, queue.holders().next()) {
        (0, Some(holder)) => format!("next, behind {}", holder.owner()),
        (0, None) => "next".to_owned(),
        (position, _) => format!("{position} ahead in the queue"),
    };
    Some(format!("waiting for {}: {text}", escape(path)))
}

/// The text on the terminal; the line is cleared on drop.
struct StatusLine<'a> {
    /// The subcommand.
    name: &'a str,
    shown: Option<String>,
}

/// Moves the cursor to the beginning of the line and erases it.
const CLEAR_LINE: &str = "\r\x1b[K";

impl StatusLine<'_> {
    fn write(&mut self, text: Option<String>) {
        if text.is_some() && text != self.shown {
            let _ = write!(
                stderr(),
                "{CLEAR_LINE}docent {}: {}",
                self.name,
                text.as_deref().unwrap_or_default()
            );
            self.shown = text;
        }
    }
}

impl Drop for StatusLine<'_> {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(stderr(), "{CLEAR_LINE}");
        }
    }
}
