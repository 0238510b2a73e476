//! The driver: a tokio task that moves bytes between a session machine and its socket, and the machine that it shares
//! with the clients.

mod clock;
mod dns_srv;
mod failures;
mod last_connection;
#[cfg(feature = "metrics")]
mod metrics;
mod missing_operations;
mod notifier;
mod outputs;
mod preference;
mod probe;
mod reply_slot;
mod runtime;
#[cfg(feature = "sasl")]
mod sasl_step;
mod settings;
mod shared;
mod task;
mod timer;
mod transport;

#[cfg(feature = "tls-no-provider")]
pub use self::transport::{Tls, TlsOptions};
pub use self::{
    clock::Clock,
    preference::Candidate,
    runtime::{BlockingWork, LocalAddress, Runtime, Task, Timer},
    transport::{ByteStream, Connecting, ServerLookup, Tcp, TcpOptions, Transport},
};
pub(crate) use self::{
    notifier::Notifier,
    preference::Preference,
    reply_slot::{PendingReply, ReplySlots, StoredReply, already_taken, withdraw},
    settings::Settings,
    shared::{Machine, Shared},
    task::run,
    timer::{ClientTimer, timer},
};
