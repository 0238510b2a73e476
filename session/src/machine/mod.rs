//! The session state machine: bytes and instants in, bytes and completions out.
//!
//! [`Session`] has the state that ZooKeeper's Java client keeps in `ClientCnxn`, without its socket, clock and threads.
//! A driver moves the bytes; the machine decides what they mean. Every rule of a session can be tested by feeding it
//! frames and instants, without a runtime.
//!
//! ```text
//!   submit ─────► outgoing ─────► poll_transmit        requests, towards the socket
//!                    │
//!                 pending                              one entry per request, in wire order
//!                    │
//!   handle_input ─► match ──────► poll_completion      replies, towards the callers
//!                    └──────────► poll_event           states and watch events
//! ```
//!
//! Invariants:
//!
//! * `pending` is in wire order. The server replies to requests with a positive xid in that order, so such a reply
//!   belongs to the front entry. Any other xid means that the stream is broken, and the connection is closed. Negative
//!   xids (notification, ping, auth, setWatches) come out of order and do not touch `pending`.
//! * Every token that goes into [`submit`](Session::submit) comes out of
//!   [`poll_completion`](Session::poll_completion) exactly once, whatever happens to the connection.
//! * A request that was handed to the socket is never sent again. An unsent request is sent on the next connection of
//!   the *same* session; when the session ends, it fails, not applied.
//! * A reply that arrived behind an event is not visible before the event is delivered.
//! * When a client has ended, all waits on it have ended: replies, watchers, and streams of states.
//!
//! The fields of [`Session`] are the state; each has its type in a file that knows no rule. The rules are methods of
//! `Session`, in files that import it and the types of its fields, and not each other: `handshake`, `submit`, `receive`,
//! `timers`, `close`, and so on.
//!
//! Methods follow quinn-proto's naming: `handle_*` takes an input, `poll_*` gives an output, and time is
//! always an argument.
//!
//! Source: `ClientCnxn.java` (`readResponse`, `primeConnection`, `onConnected`), ZooKeeper 3.9.

pub(crate) mod answers;
#[cfg(feature = "sasl")]
mod authenticate;
mod buffer_pool;
mod close;
pub(crate) mod connect_string;
mod connection;
pub(crate) mod connection_state;
mod credentials;
mod effect;
mod flow_control;
mod handshake;
mod hosts;
mod identity;
pub(crate) mod lease;
pub(crate) mod metrics;
mod migration;
mod missing_operations;
mod operations;
mod proof;
mod receive;
mod renewal;
mod requests;
pub(crate) mod rng;
#[cfg(feature = "sasl")]
pub(crate) mod sasl;
mod session;
pub(crate) mod settings;
mod submit;
#[cfg(test)]
mod tests;
pub(crate) mod timeouts;
mod timers;
mod unset;
mod visited;
mod watch_modes;
mod watch_requests;
pub(crate) mod watch_table;

#[cfg(feature = "sasl")]
pub use self::sasl::{SaslStep, SaslStepResult};
pub use self::{
    answers::{Answers, Body, Completion, Reply},
    lease::LeaseTimer,
    session::{Connect, Event, Session},
    settings::Settings,
    watch_table::Registration,
};
