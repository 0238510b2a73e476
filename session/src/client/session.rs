//! The session itself: its servers, its hand-over, its load.

use std::{future::Future, time::Duration};

use docent_protocol::OpCode;

use super::Client;
use crate::{
    ConnectString, Error, ErrorKind, Host, Metrics, Response, SessionToken, chroot::Chroot,
    response::nothing,
};

impl Client {
    /// Takes another list of servers. A client whose server is not in it moves; when servers were added, so
    /// many clients move, by chance, that each server gets its share. A move loses no request: what was sent
    /// is answered first, what waits goes out on the next connection, of the same session.
    ///
    /// # Errors
    ///
    /// `InvalidConfig`: not a connect string, or one with another chroot than the client's.
    ///
    /// Source: `ZooKeeper.updateServerList`, `StaticHostProvider`.
    pub fn update_server_list(&self, connect_string: &str) -> Result<(), Error> {
        let new: ConnectString = connect_string
            .parse()
            .map_err(|error| Error::refused(ErrorKind::InvalidConfig, error))?;
        if let Some(chroot) = new.chroot()
            && self.handle.config.connect_string.chroot() != Some(chroot)
        {
            return Err(Error::refused(
                ErrorKind::InvalidConfig,
                format_args!("the chroot {chroot:?} is not this client's: it cannot be changed"),
            ));
        }
        self.handle.shared.update_server_list(new.hosts());
        Ok(())
    }

    /// The server that the client is connected to; `None` while it is connected to none. A server's name stands for
    /// all its addresses.
    #[must_use]
    pub fn server(&self) -> Option<Host> {
        self.handle.shared.server()
    }

    /// The highest zxid that this client has seen, if every server has closed the last handshake with it
    /// without a word. A server does that when it is behind what a client has seen, and when it serves
    /// nobody; it does not say which. If all are behind for long, they were restored from a backup, or are
    /// not the ensemble they were. `None` otherwise, and always while connected.
    ///
    /// The client goes on trying, in case they catch up, and after the session timeout begins a new session
    /// that has seen nothing. Who will not wait for that makes a new client.
    #[must_use]
    pub fn ahead_of_servers(&self) -> Option<i64> {
        self.handle.shared.ahead_of_servers()
    }

    /// All it takes to go on with the session in another client or process
    /// ([`Config::with_session`](crate::Config::with_session)): a secret. `None` while there is no session.
    ///
    /// Source: `ZooKeeper.getSessionId`, `getSessionPasswd`.
    #[must_use]
    pub fn session_token(&self) -> Option<SessionToken> {
        self.handle.shared.session_token()
    }

    /// Ends the client and leaves the session, with its ephemeral nodes, to whoever goes on with it before its
    /// timeout. Sends nothing: requests without an answer fail with `Closed`, and may have been applied. `None`
    /// when there was no session.
    #[must_use = "without it, nobody can go on with the session"]
    pub fn detach(&self) -> Option<SessionToken> {
        self.handle.shared.detach()
    }

    /// Waits until there is room in the queue: at once, unless as many requests wait as
    /// [`max_requests`](crate::Config::max_requests) or
    /// [`max_pending_bytes`](crate::Config::max_pending_bytes) allow; then until half of them are answered. Who
    /// awaits it before each call is slowed down to the server's pace instead of being refused with
    /// `TooManyRequests`. (With [`WhenFull::Wait`](crate::WhenFull::Wait) nothing is refused, and who awaits each
    /// call is slowed down without it.)
    ///
    /// Room is not reserved: with many callers, the queue may be full again.
    ///
    /// # Errors
    ///
    /// `Closed` or `AuthFailed` when nothing will be sent again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the line.
    pub fn ready(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let answer = self.handle.shared.ready();
        let response: Response<()> =
            Response::waiting(answer, nothing, OpCode::Unknown(0), Chroot::default());
        async move { response.await.map_err(|error| Error::new(error.kind(), error.outcome())) }
    }

    /// What the client has counted so far, and what it holds now. Takes the session's lock for a moment.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.handle.shared.metrics()
    }

    /// The session timeout in force: granted by the server, or asked for until then.
    #[must_use]
    pub fn session_timeout(&self) -> Duration {
        self.handle.shared.session_timeout()
    }
}
