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
    let mut line = Line(None);
    loop {
        tokio::time::sleep(PATIENCE).await;
        let connected = client.state().borrow().is_some_and(docent::ConnectionState::is_connected);
        let place = if connected {
            let session = client.session().map(|session| session.session_id());
            match Queue::read(client, path).await {
                Ok(queue) => place(path, &queue, session),
                Err(_) => continue,
            }
        } else {
            Some(format!("waiting for {path}: no connection"))
        };
        line.write(place);
    }
}

/// Our place, in words.
fn place(path: &str, queue: &Queue, session: Option<i64>) -> Option<String> {
    let waiting: Vec<_> = queue.waiting().collect();
    let at = waiting.iter().position(|one| Some(one.session) == session)?;
    let ahead = match (at, queue.holders().next()) {
        (0, Some(holder)) => format!("next, behind {}", holder.owner()),
        (0, None) => "next".to_owned(),
        (at, _) => format!("{at} ahead in the queue"),
    };
    Some(format!("waiting for {path}: {ahead}"))
}

/// What stands on the terminal's line, and goes with the waiting.
struct Line(Option<String>);

/// To the beginning of the line, and over what is there.
const ANEW: &str = "\r\x1b[K";

impl Line {
    fn write(&mut self, text: Option<String>) {
        if text.is_some() && text != self.0 {
            let _ = write!(stderr(), "{ANEW}docent lock: {}", text.as_deref().unwrap_or_default());
            self.0 = text;
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.0.is_some() {
            let _ = write!(stderr(), "{ANEW}");
        }
    }
}
