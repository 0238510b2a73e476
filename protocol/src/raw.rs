//! Encoding of arbitrary requests, for fuzzers, test servers and tools.
//!
//! **Never use it on a server that somebody needs.** This module can encode the four requests that harm a
//! server. createTTL with flags other than 5 and 6 and a negative TTL stops a 3.6 to 3.9 server, which then
//! cannot start on its log. check outside a multi makes the next start of a server before 3.9.3
//! fail (ZOOKEEPER-2623). deleteContainer deletes any empty node of a server of 3.9 to 3.9.5, without an ACL check
//! (CVE-2026-79993). Some writes to nodes of quotas stop a server for good (CVE-2026-100300):
//! [`ApplicationOperation::harm`](crate::operation::ApplicationOperation::harm).

use crate::{
    FrameTooLarge, OpCode,
    frame::{self, FrameBuf},
    harmful,
    jute::Encode,
    multi::MultiOp,
    request::{CreateRequest, CreateTtlRequest, Request},
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

/// Whether the request is one of the four that harm a server, alone or inside a multi.
///
/// True if it harms any version; many versions reject it.
#[must_use]
pub fn is_harmful(request: &Request<'_>) -> bool {
    match request {
        Request::Check(_) | Request::DeleteContainer(_) => true,
        Request::CreateTtl(create) => is_harmful_create(create),
        Request::Create(create) | Request::Create2(create) | Request::CreateContainer(create) => {
            is_harmful_quota(create)
        }
        Request::SetData(write) => harmful::set_data(write.path.as_bytes(), write.data).is_some(),
        Request::Multi(ops) | Request::MultiRead(ops) => ops.iter().any(|op| match op {
            MultiOp::CreateTtl(create) => is_harmful_create(&create),
            MultiOp::Create(create)
            | MultiOp::Create2(create)
            | MultiOp::CreateContainer(create) => is_harmful_quota(&create),
            MultiOp::SetData(write) => {
                harmful::set_data(write.path.as_bytes(), write.data).is_some()
            }
            _ => false,
        }),
        _ => false,
    }
}

/// The flags do not matter: a sequential node has another name.
fn is_harmful_quota(create: &CreateRequest<'_>) -> bool {
    harmful::create(create.path.as_bytes(), create.data).is_some()
}

/// The flags are not of a mode with a TTL, so no server checks the TTL, and the TTL is negative. Or it is a node of a
/// quota.
fn is_harmful_create(create: &CreateTtlRequest<'_>) -> bool {
    !matches!(create.flags, 5 | 6) && create.ttl < 0
        || harmful::create(create.path.as_bytes(), create.data).is_some()
}

/// A request body of raw bytes.
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
        request::{CheckVersionRequest, DeleteRequest, PathRequest, SetDataRequest},
    };

    fn create_ttl(flags: i32, ttl: i64) -> CreateTtlRequest<'static> {
        CreateTtlRequest { path: "/a".into(), data: None, acl: List::NULL, flags, ttl }
    }

    // Case (Pitfalls of the wire, 13): check outside a multi.
    #[test]
    fn requests_that_harm_a_server_are_recognized() {
        let check = CheckVersionRequest { path: "/a".into(), version: -1 };
        let path = PathRequest { path: "/a".into() };
        let limits = CreateRequest {
            path: "/zookeeper/quota/zookeeper_limits".into(),
            data: Some(b"count=1"),
            acl: List::NULL,
            flags: 0,
        };
        let stats = "/zookeeper/quota/a/zookeeper_stats".into();
        let stats = SetDataRequest { path: stats, data: Some(b"many"), version: -1 };
        let numbers = SetDataRequest { data: Some(b"count=1,bytes=2"), ..stats };
        for (request, expected) in [
            (Request::Check(check), true),
            (Request::DeleteContainer(path), true),
            (Request::CreateTtl(create_ttl(0, -1)), true),
            (Request::CreateTtl(create_ttl(0, 0)), false),
            (Request::CreateTtl(create_ttl(5, -1)), false),
            (Request::CreateTtl(create_ttl(6, -1)), false),
            (Request::Multi(MultiRequest::new(&[MultiOp::CreateTtl(create_ttl(4, -1))])), true),
            (Request::Multi(MultiRequest::new(&[MultiOp::CreateTtl(create_ttl(5, 1))])), false),
            (Request::Create2(limits), true),
            (Request::SetData(stats), true),
            (Request::SetData(numbers), false),
            (Request::Multi(MultiRequest::new(&[MultiOp::Create(limits)])), true),
            (Request::Multi(MultiRequest::new(&[MultiOp::SetData(stats)])), true),
            (Request::Multi(MultiRequest::new(&[MultiOp::SetData(numbers)])), false),
            // A check inside a multi is harmless.
            (Request::Multi(MultiRequest::new(&[MultiOp::Check(check)])), false),
            (Request::Delete(DeleteRequest { path: "/a".into(), version: -1 }), false),
            (Request::Sync(path), false),
        ] {
            assert_eq!(is_harmful(&request), expected, "{request}");
        }
    }
}
