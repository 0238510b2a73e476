//! SASL mechanisms: the interface of their implementations, and the computations that a session runs.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crate::machine::connect_string::Host;

/// A SASL mechanism with its credential: how a client proves its identity to a server.
///
/// [`SaslCredential`](crate::sasl::SaslCredential) is DIGEST-MD5, and the crate `docent-gssapi` has GSSAPI (Kerberos).
/// [`Config::with_sasl_mechanism`](crate::Config::with_sasl_mechanism) takes any implementation. The session starts an
/// exchange on each connection, before any other request, and carries its tokens. Their contents, and whether the
/// server has proved itself, are the decision of the mechanism. So is the negotiation of a security layer: a server of
/// ZooKeeper offers none.
///
/// `Debug` must not show secrets: the configuration of a client is printed with it.
///
/// # Example
///
/// PLAIN (RFC 4616), which sends the password itself, and expects nothing of the server:
///
/// ```
/// # extern crate docent_session as docent;
/// use docent::{Config, sasl::{SaslAction, SaslContext, SaslError, SaslExchange, SaslMechanism}};
///
/// struct Plain {
///     user: String,
///     password: String,
/// }
///
/// impl std::fmt::Debug for Plain {
///     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
///         f.debug_struct("Plain").field("user", &self.user).finish_non_exhaustive()
///     }
/// }
///
/// impl SaslMechanism for Plain {
///     fn name(&self) -> &str {
///         "PLAIN"
///     }
///
///     fn exchange(&self, _: &SaslContext<'_>) -> Result<Box<dyn SaslExchange>, SaslError> {
///         let token = format!("\0{}\0{}", self.user, self.password);
///         Ok(Box::new(PlainExchange(Some(token.into_bytes()))))
///     }
/// }
///
/// struct PlainExchange(Option<Vec<u8>>);
///
/// impl SaslExchange for PlainExchange {
///     fn step(&mut self, _: Option<&[u8]>) -> Result<SaslAction, SaslError> {
///         match self.0.take() {
///             Some(token) => Ok(SaslAction::SendLast(token)),
///             None => Err(SaslError::retryable("the server sent a token after the last one")),
///         }
///     }
/// }
///
/// let plain = Plain { user: "bob".to_owned(), password: "bob's password".to_owned() };
/// let config = Config::new("zk1:2181")?.with_sasl_mechanism(plain);
/// assert!(!format!("{config:?}").contains("bob's password"));
/// # Ok::<(), docent::Error>(())
/// ```
pub trait SaslMechanism: Any + fmt::Debug + Send + Sync {
    /// The registered name, such as `DIGEST-MD5`. ZooKeeper does not send it: the server knows one mechanism only.
    fn name(&self) -> &str;

    /// The credential, as an error names it that says that the server refused it. Default: `SASL credential`.
    fn credential_name(&self) -> &str {
        "SASL credential"
    }

    /// Whether a [step](SaslExchange::step) may block, for example to ask a key server. The client then runs each step
    /// on a thread outside its runtime, one at a time. Default: no, and steps run in the task of the client.
    fn is_blocking(&self) -> bool {
        false
    }

    /// Starts an exchange. It is called for each connection, and does not block.
    ///
    /// # Errors
    ///
    /// As [`SaslExchange::step`].
    fn exchange(&self, context: &SaslContext<'_>) -> Result<Box<dyn SaslExchange>, SaslError>;
}

/// The exchange of a mechanism on one connection.
pub trait SaslExchange: Send {
    /// Computes the next action. `token` is the token of the server; `None` for the first step, which sends the initial
    /// response (an empty token, if the mechanism has none).
    ///
    /// A connection that ends drops the exchange. A step that blocks is not interrupted; its result is dropped, and
    /// the step of the next connection begins after it.
    ///
    /// # Errors
    ///
    /// [Retryable](SaslError::retryable): the connection is closed, and the next server is tried.
    /// [Final](SaslError::fatal): the client ends with [`AuthFailed`](crate::ErrorKind::AuthFailed).
    fn step(&mut self, token: Option<&[u8]>) -> Result<SaslAction, SaslError>;

    /// The proof that the next token must contain.
    #[cfg(test)]
    fn expected_proof(&self) -> Option<String> {
        None
    }
}

/// The action of a client in an exchange. `Debug` shows the size of the token only.
#[derive(Clone, PartialEq, Eq)]
pub enum SaslAction {
    /// Send this token, and wait for the next one of the server. A reply without a token is a refusal.
    Send(Vec<u8>),
    /// Send this token, the last one. The server accepts it by a reply without a token.
    SendLast(Vec<u8>),
    /// The server has proved itself by its last token: the client is authenticated.
    Done,
}

impl fmt::Debug for SaslAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(token) => write!(f, "Send({} bytes)", token.len()),
            Self::SendLast(token) => write!(f, "SendLast({} bytes)", token.len()),
            Self::Done => f.write_str("Done"),
        }
    }
}

/// The surroundings of an exchange.
#[derive(Debug, Clone, Copy)]
pub struct SaslContext<'a> {
    host: &'a Host,
    nonce: &'a str,
}

impl<'a> SaslContext<'a> {
    /// For the tests of a mechanism.
    #[must_use]
    pub const fn new(host: &'a Host, nonce: &'a str) -> Self {
        Self { host, nonce }
    }

    /// The server as the connect string names it.
    #[must_use]
    pub const fn host(&self) -> &'a Host {
        self.host
    }

    /// 32 hexadecimal digits that no other exchange has, and that cannot be predicted from those of others. They are
    /// made from the randomness of the client's runtime.
    #[must_use]
    pub const fn nonce(&self) -> &'a str {
        self.nonce
    }
}

/// Why a mechanism cannot go on.
///
/// It is the [`source`](std::error::Error::source) of the client's error, and has the error of the mechanism as its own.
#[derive(Debug, Clone)]
pub struct SaslError {
    text: Box<str>,
    is_final: bool,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl SaslError {
    /// An error of this server or this moment: an invalid token, a key server that is not reachable. The client tries
    /// the next server, after its usual pause.
    #[must_use]
    pub fn retryable(text: impl fmt::Display) -> Self {
        Self { text: text.to_string().into(), is_final: false, source: None }
    }

    /// An error that no other server and no later attempt heals, such as a wrong password. It ends the client with
    /// [`AuthFailed`](crate::ErrorKind::AuthFailed).
    #[must_use]
    pub fn fatal(text: impl fmt::Display) -> Self {
        Self { text: text.to_string().into(), is_final: true, source: None }
    }

    /// Adds the error that caused this one. Its text is not added.
    #[must_use]
    pub fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Whether the error ends the client.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        self.is_final
    }
}

impl fmt::Display for SaslError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for SaslError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

/// A computation of a mechanism that may [block](SaslMechanism::is_blocking). `Debug` shows nothing of it.
///
/// [`Session::poll_sasl_step`](crate::machine::Session::poll_sasl_step) returns it. The driver [runs](Self::run) it
/// where it may block, and passes the result to
/// [`Session::handle_sasl_step`](crate::machine::Session::handle_sasl_step).
pub struct SaslStep {
    /// The number of the exchange.
    pub(crate) number: u64,
    pub(crate) exchange: Box<dyn SaslExchange>,
    pub(crate) token: Option<Vec<u8>>,
}

impl SaslStep {
    /// Runs the computation. A mechanism that panics has failed, with a retryable error.
    #[must_use]
    pub fn run(mut self) -> SaslStepResult {
        // The exchange is dropped after a panic: nothing sees it in an inconsistent state.
        let action = catch_unwind(AssertUnwindSafe(|| self.exchange.step(self.token.as_deref())));
        let action =
            action.unwrap_or_else(|_| Err(SaslError::retryable("the mechanism has panicked")));
        let result = action.map(|action| (self.exchange, action));
        SaslStepResult { number: self.number, is_first: self.token.is_none(), result }
    }

    /// The result of a computation that cannot be run, for example because there is no thread for it.
    #[must_use]
    pub fn fail(self, error: SaslError) -> SaslStepResult {
        SaslStepResult { number: self.number, is_first: self.token.is_none(), result: Err(error) }
    }
}

impl fmt::Debug for SaslStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslStep").finish_non_exhaustive()
    }
}

/// The result of a [`SaslStep`]. `Debug` shows nothing of it.
pub struct SaslStepResult {
    pub(crate) number: u64,
    pub(crate) is_first: bool,
    pub(crate) result: Result<(Box<dyn SaslExchange>, SaslAction), SaslError>,
}

impl fmt::Debug for SaslStepResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslStepResult").finish_non_exhaustive()
    }
}

/// The steps that a driver runs: one at a time, however many connections there are meanwhile.
#[derive(Debug, Default)]
pub(crate) struct SaslSteps {
    /// The number of exchanges so far.
    pub(crate) exchanges: u64,
    /// Whether the driver runs a step.
    pub(crate) running: bool,
    /// The step of the current connection, which the driver has not taken yet.
    pub(crate) next: Option<SaslStep>,
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    struct Panics;

    impl SaslExchange for Panics {
        fn step(&mut self, _: Option<&[u8]>) -> Result<SaslAction, SaslError> {
            panic!("as planned")
        }
    }

    #[test]
    fn a_step_that_panics_is_a_retryable_error() {
        let step = SaslStep { number: 7, exchange: Box::new(Panics), token: None };
        let result = step.run();
        let error = result.result.err().unwrap();
        assert_eq!((result.number, error.is_fatal()), (7, false));
        assert!(error.to_string().contains("panicked"), "{error}");
    }

    #[test]
    fn an_error_has_its_cause_and_debug_shows_no_token() {
        let error = SaslError::fatal("no ticket").caused_by(SaslError::retryable("why"));
        assert_eq!((error.to_string(), error.is_fatal()), ("no ticket".to_owned(), true));
        assert_eq!(error.source().unwrap().to_string(), "why");
        let shown = format!("{:?}", SaslAction::Send(b"hunter2".to_vec()));
        assert_eq!(shown, "Send(7 bytes)");
    }
}
