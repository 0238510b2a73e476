//! Anything at all, for fuzzers, test servers and tools.
//!
//! **Not for a server that somebody needs.** Three requests harm one, and can be sent from here: createTTL
//! with flags other than 5 and 6 and a negative TTL ends a 3.6 to 3.9 server and keeps it from starting
//! again; check outside a multi does the same to the next start of one before 3.9 (ZOOKEEPER-2623);
//! deleteContainer lets anybody delete any empty node of a 3.9 server.

use crate::{
    FrameTooLarge, OpCode,
    frame::{self, FrameBuf},
    jute::Encode,
    request::Request,
};

/// Appends the frame of any request.
///
/// # Errors
///
/// As [`frame::put`].
pub fn put_request(
    out: &mut impl FrameBuf,
    limit: usize,
    xid: i32,
    request: &Request<'_>,
) -> Result<(), FrameTooLarge> {
    frame::put_with_header(out, limit, xid, request.op_code(), request)
}

/// Appends the frame of a request with any operation code and any body.
///
/// # Errors
///
/// As [`frame::put`].
pub fn put_request_parts(
    out: &mut impl FrameBuf,
    limit: usize,
    xid: i32,
    op: OpCode,
    body: &impl Encode,
) -> Result<(), FrameTooLarge> {
    frame::put_with_header(out, limit, xid, op, body)
}

/// Bytes as they are, for a body that is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawBody<'a>(pub &'a [u8]);

impl Encode for RawBody<'_> {
    fn encode(&self, out: &mut impl bytes::BufMut) {
        out.put_slice(self.0);
    }
}
