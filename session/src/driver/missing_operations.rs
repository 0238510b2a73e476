//! The log of the operations that the servers do not support.

use docent_protocol::OpCode;
use tracing::info;

use crate::{error::requirement, session::SessionLease};

/// Logs a new finding, which comes once in a client.
pub(super) fn log(session: &SessionLease, op: OpCode) {
    let session = format_args!("{:#x}", session.session_id());
    let requires = requirement(op).unwrap_or_default();
    info!(session, %op, requires, "the servers lack an operation");
}
