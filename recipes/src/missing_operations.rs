//! Operations that the servers of a session do not support: found out once, and logged once.

use docent_protocol::OpCode;
use docent_session::{Error, SessionLease};
use tracing::info;

/// As [`SessionLease::record_reply`], and logs a new finding at INFO, with the substitute.
pub(crate) fn record_reply<R>(
    session: &SessionLease,
    op: OpCode,
    losses: u8,
    reply: &Result<R, Error>,
) {
    if !session.record_reply(op, losses, reply) {
        return;
    }
    let substitute = match op {
        OpCode::AddWatch => "one-shot watches",
        _ => "plain creates; persistent nodes instead of containers",
    };
    let id = format_args!("{:#x}", session.session_id());
    info!(session = id, %op, substitute, "the servers lack an operation");
}
