//! Connections without sockets, so that time can be paused.

use std::{fmt, io, sync::Arc, time::Duration};

use docent_session::{Connecting, Host, Transport};
use docent_testing::TestingServer;

/// Connections to a server in this process.
#[derive(Clone)]
pub(crate) struct InProcess(pub(crate) Arc<TestingServer>);

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InProcess")
    }
}

impl Transport for InProcess {
    fn connect<'a>(&'a self, _: &'a Host, _: Duration) -> Connecting<'a> {
        Box::pin(async move {
            let stream = self.0.connect().ok_or(io::ErrorKind::ConnectionRefused)?;
            Ok(Box::new(stream) as _)
        })
    }
}
