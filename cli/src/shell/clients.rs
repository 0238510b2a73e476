//! The clients of `docent shell`, by name, and what they print as it comes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use docent::{Client, ConnectionState, Watcher};
use tokio::{sync::mpsc, task::JoinSet, time::timeout};

use crate::{
    command::{CLOSE_TIMEOUT, Command as _},
    connect::ServerArgs,
    exit::{self, Failure},
    nodes::{
        Watching,
        watch::{Printed, Printer, Watch},
    },
    output::{print, report},
    prompt,
};

pub(super) struct Clients {
    server: ServerArgs,
    by_name: BTreeMap<String, Named>,
}

/// A client, with the tasks that print its events.
struct Named {
    client: Client,
    /// The watches that reads have left.
    watchers: mpsc::UnboundedSender<Watcher>,
    printed: Arc<Printed>,
    /// The number of events that were waited for.
    awaited: u64,
}

impl Clients {
    pub(super) const fn new(server: ServerArgs) -> Self {
        Self { server, by_name: BTreeMap::new() }
    }

    pub(super) const fn server(&self) -> &ServerArgs {
        &self.server
    }

    pub(super) fn get(&self, name: &str) -> Result<&Client, Failure> {
        self.named(name).map(|named| &named.client)
    }

    fn named(&self, name: &str) -> Result<&Named, Failure> {
        self.by_name.get(name).ok_or_else(|| missing(name))
    }

    /// Connects a client, whose name is new or that of one that has ended.
    pub(super) async fn connect(&mut self, name: &str) -> Result<(), Failure> {
        if self.by_name.contains_key(name) {
            return Err(Failure::usage(format_args!("there is a client {name} already")));
        }
        let client = self.server.connect().await?;
        let id = client.session().map_or(0, |session| session.session_id());
        print(&format!("{name}: session {id:#x}\n"))?;
        let (watchers, left) = mpsc::unbounded_channel();
        let printed = Arc::<Printed>::default();
        tokio::spawn(print_states(name.to_owned(), client.clone(), Arc::clone(&printed)));
        tokio::spawn(print_events(Printer::of(name, &printed), left));
        let named = Named { client, watchers, printed, awaited: 0 };
        self.by_name.insert(name.to_owned(), named);
        Ok(())
    }

    /// Where a read of a client leaves its watch.
    pub(super) fn watching(&self, name: &str, watches: bool) -> Result<Watching, Failure> {
        let named = self.named(name)?;
        Ok(if watches { Watching::by(named.watchers.clone()) } else { Watching::default() })
    }

    /// Sets a watch, and prints its events in the background.
    pub(super) async fn watch(&self, name: &str, mut command: Watch) -> Result<(), Failure> {
        let named = self.named(name)?;
        command.prepare(&self.server)?;
        command.printer = Printer::of(name, &named.printed);
        let watcher = command.set(&named.client).await?;
        let (name, printed) = (name.to_owned(), Arc::clone(&named.printed));
        tokio::spawn(async move {
            if let Err(failure) = command.follow(watcher).await
                && !printed.is_over()
            {
                report(format_args!("{name}: {failure}"));
            }
        });
        Ok(())
    }

    /// Waits until an event is printed that was not waited for.
    pub(super) async fn wait(
        &mut self,
        name: &str,
        limit: Option<Duration>,
    ) -> Result<(), Failure> {
        let named = self.by_name.get_mut(name).ok_or_else(|| missing(name))?;
        let mut printed = named.printed.count();
        let next = named.awaited + 1;
        // The sender is in `named`.
        let event = printed.wait_for(|printed| *printed >= next);
        if timeout(limit.unwrap_or(Duration::MAX), event).await.is_err() {
            return Err(Failure::new(exit::NOT_ACQUIRED, "no event came in time"));
        }
        named.awaited = next;
        Ok(())
    }

    pub(super) async fn close(&mut self, name: &str) -> Result<(), Failure> {
        let named = self.remove(name)?;
        named.close().await;
        Ok(())
    }

    /// Ends a client, and leaves its session to the servers.
    pub(super) fn kill(&mut self, name: &str) -> Result<(), Failure> {
        let named = self.remove(name)?;
        drop(named.client.detach());
        Ok(())
    }

    /// Closes the session of a client from a second connection.
    pub(super) async fn expire(&self, name: &str) -> Result<(), Failure> {
        let token = self.get(name)?.session_token();
        let mut settings = self.server.settings()?;
        let Some(token) = token else {
            return Err(Failure::new(exit::NO_SERVER, "there is no session"));
        };
        settings.config = settings.config.with_session(token);
        settings.connect().await?.close().await?;
        Ok(())
    }

    pub(super) async fn close_all(&mut self) {
        let mut closing = JoinSet::new();
        for named in std::mem::take(&mut self.by_name).into_values() {
            named.printed.end();
            closing.spawn(async move { named.close().await });
        }
        closing.join_all().await;
    }

    fn remove(&mut self, name: &str) -> Result<Named, Failure> {
        let named = self.by_name.remove(name).ok_or_else(|| missing(name))?;
        named.printed.end();
        Ok(named)
    }
}

fn missing(name: &str) -> Failure {
    Failure::usage(format_args!(
        "there is no client or command {name}; `client {name}` connects one, `help` lists the commands"
    ))
}

impl Named {
    async fn close(&self) {
        // A failed close changes nothing for the others; the session expires.
        let _ = timeout(CLOSE_TIMEOUT, self.client.close()).await;
    }
}

/// Prints changes of the connection, in Curator's words.
async fn print_states(name: String, client: Client, printed: Arc<Printed>) {
    let mut states = client.states();
    drop(client);
    while let Some(event) = states.next().await {
        let state = match event.state() {
            Some(ConnectionState::Suspended) => "SUSPENDED",
            Some(ConnectionState::Reconnected) => "RECONNECTED",
            Some(ConnectionState::Lost) => "LOST",
            Some(ConnectionState::ReadOnly) => "READ_ONLY",
            _ => continue,
        };
        if printed.is_over() || print(&format!("{name}: {state}\n")).is_err() {
            return;
        }
        prompt::show();
    }
}

/// Prints events of the watches that reads have left.
async fn print_events(printer: Printer, mut left: mpsc::UnboundedReceiver<Watcher>) {
    while let Some(mut watcher) = left.recv().await {
        let printer = printer.clone();
        tokio::spawn(async move {
            // After the end of its session a watch has no event: the state LOST says so.
            if let Some(event) = watcher.next().await.filter(|event| !event.is_end()) {
                let _ = printer.event(false, &event);
            }
        });
    }
}
