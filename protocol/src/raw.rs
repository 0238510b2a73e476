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
    multi::MultiOp,
    request::{CreateTtlRequest, Request},
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

/// Whether the request is one of the three that harm a server, by itself or inside a multi.
///
/// Judged by the servers that mind the most; many would refuse it.
#[must_use]
pub fn is_harmful(request: &Request<'_>) -> bool {
    match request {
        Request::Check(_) | Request::DeleteContainer(_) => true,
        Request::CreateTtl(create) => is_harmful_create(create),
        Request::Multi(ops) | Request::MultiRead(ops) => ops
            .iter()
            .any(|op| matches!(op, MultiOp::CreateTtl(create) if is_harmful_create(&create))),
        _ => false,
    }
}

/// No mode with a TTL, and a TTL that no server checks then.
const fn is_harmful_create(create: &CreateTtlRequest<'_>) -> bool {
    !matches!(create.flags, 5 | 6) && create.ttl < 0
}

/// Bytes as they are, for a body that is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawBody<'a>(pub &'a [u8]);

impl Encode for RawBody<'_> {
    fn encode(&self, out: &mut impl bytes::BufMut) {
        out.put_slice(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        List,
        multi::MultiRequest,
        request::{CheckVersionRequest, DeleteRequest, PathRequest},
    };

    fn create_ttl(flags: i32, ttl: i64) -> CreateTtlRequest<'static> {
        CreateTtlRequest { path: "/a".into(), data: None, acl: List::NULL, flags, ttl }
    }

    #[test]
    fn what_harms_a_server_is_known() {
        let check = CheckVersionRequest { path: "/a".into(), version: -1 };
        let path = PathRequest { path: "/a".into() };
        for (request, expected) in [
            (Request::Check(check), true),
            (Request::DeleteContainer(path), true),
            (Request::CreateTtl(create_ttl(0, -1)), true),
            (Request::CreateTtl(create_ttl(0, 0)), false),
            (Request::CreateTtl(create_ttl(5, -1)), false),
            (Request::CreateTtl(create_ttl(6, -1)), false),
            (Request::Multi(MultiRequest::new(&[MultiOp::CreateTtl(create_ttl(4, -1))])), true),
            (Request::Multi(MultiRequest::new(&[MultiOp::CreateTtl(create_ttl(5, 1))])), false),
            // check belongs into a multi.
            (Request::Multi(MultiRequest::new(&[MultiOp::Check(check)])), false),
            (Request::Delete(DeleteRequest { path: "/a".into(), version: -1 }), false),
            (Request::Sync(path), false),
        ] {
            assert_eq!(is_harmful(&request), expected, "{request}");
        }
    }
}
