//! What is told while one waits, if a person is watching.

use std::{
    future::pending,
    io::{IsTerminal as _, Write as _, stderr},
    time::Duration,
};

use docent::Client;

use crate::queue::Queue;

/// Nobody needs to know about a wait shorter than that.
const PATIENCE: Duration = Duration::from_millis(500);

/// Writes our place in the queue to the standard error, again and again, if that is a terminal. Does not return.
pub(super) async fn show(client: &Client, path: &str) {
    if !stderr().is_terminal() {
        return pending().await;
    }
    let _line = Line;
    loop {
        tokio::time::sleep(PATIENCE).await;
        let connected = client.state().borrow().is_some_and(docent::ConnectionState::is_connected);
        let line = if connected {
            let session = client.session().map(|session| session.session_id());
            match Queue::read(client, path).await {
                Ok(queue) => place(&queue, session),
                Err(_) => continue,
            }
        } else {
            Some("no connection".to_owned())
        };
        if let Some(line) = line {
            // To the beginning of the line, and over what is there.
            let _ = write!(stderr(), "\r\x1b[Kdocent lock: waiting for {path}: {line}");
        }
    }
}

/// Our place, in words.
fn place(queue: &Queue, session: Option<i64>) -> Option<String> {
    let waiting: Vec<_> = queue.waiting().collect();
    let at = waiting.iter().position(|one| Some(one.session) == session)?;
    let ahead = match (at, queue.holders().next()) {
        (0, Some(holder)) => format!("next, behind {}", holder.owner()),
        (0, None) => "next".to_owned(),
        (at, _) => format!("{at} ahead in the queue"),
    };
    Some(ahead)
}

/// The line, which goes with the waiting.
struct Line;

impl Drop for Line {
    fn drop(&mut self) {
        let _ = write!(stderr(), "\r\x1b[K");
    }
}
