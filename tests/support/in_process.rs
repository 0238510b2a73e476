//! A server in this process, without sockets, so that time can be paused.

use std::{io, sync::Arc, time::Duration};

use docent::{
    Client, Config,
    config::Host,
    runtime::{Clock, Connecting, Transport},
};
use docent_testing::TestingServer;

/// Connections to a server in this process.
#[derive(Debug, Clone)]
pub struct InProcess(pub Arc<TestingServer>);

impl Transport for InProcess {
    fn connect<'a>(&'a self, _: &'a Host, _: Duration) -> Connecting<'a> {
        Box::pin(async move {
            let stream = self.0.connect().ok_or(io::ErrorKind::ConnectionRefused)?;
            Ok(Box::new(stream) as _)
        })
    }
}

/// The settings of a client with tokio's clock.
pub fn config(server: &Arc<TestingServer>) -> Config {
    let config = Config::new("in-process:2181").unwrap();
    config.with_clock(Clock::tokio()).with_transport(InProcess(Arc::clone(server)))
}

/// A client with these settings.
pub async fn client(server: &Arc<TestingServer>) -> Client {
    config(server).connect().await.unwrap()
}

/// A server, and a client with a session timeout of 20 s.
pub async fn server_and_client() -> (Arc<TestingServer>, Client) {
    let server = Arc::new(TestingServer::start().await.unwrap());
    let config = config(&server).with_session_timeout(Duration::from_secs(20));
    let client = config.connect().await.unwrap();
    (server, client)
}
