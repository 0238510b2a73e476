//! What each operation does, and what it is answered.
//!
//! Everything is answered in the order in which it came. (A real server answers auth, SASL and unknown
//! operations out of turn.)
//!
//! Source: `FinalRequestProcessor`, `ZooKeeperServer.processPacket`, `ReadOnlyRequestProcessor`.

#[cfg(feature = "sasl")]
use docent_protocol::xid;
use docent_protocol::{
    Decode as _, Encode, ErrorCode, OpCode,
    jute::Reader,
    multi::{MultiReply, MultiResult},
    reply::{EmptyReply, SaslReply},
    request::{AuthRequest, Request, RequestHeader},
};

use super::{
    acl::Ident,
    digest,
    ensemble::{ConnectionId, Ensemble, Role},
    tree::Txn,
    version::Version,
};

/// What is known of a request before it is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    pub(crate) id: ConnectionId,
    pub(crate) member: usize,
    pub(crate) session_id: i64,
    pub(crate) local: bool,
    pub(crate) xid: i32,
    pub(crate) op: OpCode,
}

impl Ensemble {
    /// Answers a request.
    pub(crate) fn request(
        &mut self,
        id: ConnectionId,
        session_id: i64,
        local: bool,
        payload: &[u8],
    ) {
        let Some(member) = self.connections.get(&id).map(|c| c.member) else { return };
        let mut reader = Reader::new(payload);
        let Ok(RequestHeader { xid, op }) = RequestHeader::decode(&mut reader) else {
            return self.close(id);
        };
        let context = Context { id, member, session_id, local, xid, op };
        self.sessions.touch(session_id, self.now);
        match op {
            OpCode::Auth => return self.auth(context, &mut reader),
            OpCode::Sasl => return self.sasl(context, &mut reader),
            _ => {}
        }
        #[cfg(feature = "sasl")]
        if self.must_prove(id) {
            let ping = Context { xid: xid::PING, ..context };
            let context = if op == OpCode::Ping { ping } else { context };
            self.reply(context, 0, ErrorCode::SessionClosedRequireSaslAuth, &EmptyReply {});
            return self.close(id);
        }
        if !self.config.version.knows(op) {
            self.reply(context, -1, ErrorCode::Unimplemented, &EmptyReply {});
            return self.close(id);
        }
        if self.throttles(op) {
            return self.fail(context, ErrorCode::ThrottledOp);
        }
        if op == OpCode::CreateSession {
            self.commit(member, Txn::Error);
            return self.fail(context, ErrorCode::MarshallingError);
        }
        // Moved: writes from the old connection end it; reads and pings go on, closeSession is honoured.
        let moved = self.sessions.get(session_id).is_some_and(|s| s.member != member);
        let is_write = op.is_write() && op != OpCode::CloseSession;
        if moved && is_write && !local {
            return self.moved(context);
        }
        if self.role(member) == Role::ReadOnly && (is_write || op == OpCode::Sync) {
            return self.fail(context, ErrorCode::NotReadOnly);
        }
        match Request::decode(op, &mut reader) {
            Ok(request) if is_write => self.write(context, &request),
            Ok(request) => self.read(context, &request),
            Err(_) if op == OpCode::MultiRead => {
                self.fail(context, ErrorCode::MarshallingError);
            }
            Err(_) if is_write => {
                let early = op != OpCode::Reconfig && self.config.version.bad_write_uses_zxid();
                if op == OpCode::Multi || early {
                    self.commit(member, Txn::Error);
                }
                self.fail(context, ErrorCode::MarshallingError);
            }
            Err(_) => self.fail(context, ErrorCode::MarshallingError),
        }
    }

    pub(super) fn moved(&mut self, context: Context) {
        if self.config.version == Version::V3_4 && context.op == OpCode::Multi {
            let results = [MultiResult::Error(ErrorCode::SessionMoved)];
            return self.answer(context, &MultiReply::new(&results));
        }
        self.close(context.id);
    }

    /// The zxid that replies to reads have: of the last change this member has applied.
    pub(super) fn last_zxid_of(&self, member: usize) -> i64 {
        self.members.get(member).map_or(0, |member| member.tree.last_zxid)
    }

    pub(super) fn reply(
        &mut self,
        context: Context,
        zxid: i64,
        err: ErrorCode,
        body: &impl Encode,
    ) {
        if let Some(connection) = self.connections.get_mut(&context.id) {
            connection.reply(context.xid, zxid, err, body);
        }
    }

    pub(super) fn answer(&mut self, context: Context, body: &impl Encode) {
        let zxid = self.last_zxid_of(context.member);
        self.reply(context, zxid, ErrorCode::Ok, body);
    }

    pub(super) fn fail(&mut self, context: Context, err: ErrorCode) {
        let zxid = self.last_zxid_of(context.member);
        self.reply(context, zxid, err, &EmptyReply {});
    }

    /// An error with the end of an empty multi behind it.
    pub(super) fn fail_with_empty_multi(&mut self, context: Context) {
        let zxid = self.last_zxid_of(context.member);
        self.reply(context, zxid, ErrorCode::MarshallingError, &MultiReply::new(&[]));
    }

    pub(super) fn ids_of(&self, id: ConnectionId) -> std::sync::Arc<[Ident]> {
        self.connections.get(&id).map_or_else(|| [].into(), |connection| connection.ids.clone())
    }

    // Credentials.

    pub(super) fn auth(&mut self, context: Context, reader: &mut Reader<'_>) {
        let Ok(request) = AuthRequest::decode(reader) else { return self.close(context.id) };
        let data = request.auth.map(|auth| String::from_utf8_lossy(auth).into_owned());
        let proved = match (&*request.scheme.to_str(), data) {
            ("digest", Some(data)) => {
                let id = digest::generate_digest(&data);
                let is_super = self.config.super_digest.as_deref() == Some(id.as_str());
                let connection = self.connections.get_mut(&context.id);
                if let Some(connection) = connection.filter(|_| is_super) {
                    connection.prove(Ident::new("super", ""));
                }
                Some(Ident { scheme: "digest".to_owned(), id })
            }
            ("ip", _) => self.ids_of(context.id).first().cloned(),
            _ => None,
        };
        let Some(connection) = self.connections.get_mut(&context.id) else { return };
        match proved {
            Some(id) => {
                connection.prove(id);
                self.reply(context, 0, ErrorCode::Ok, &EmptyReply {});
            }
            None => {
                self.reply(context, 0, ErrorCode::AuthFailed, &EmptyReply {});
                self.close(context.id);
            }
        }
    }

    /// A server without SASL answers an empty token with none at all.
    pub(super) fn sasl(&mut self, context: Context, reader: &mut Reader<'_>) {
        let Ok(Some(token)) = reader.buffer("token") else { return self.close(context.id) };
        #[cfg(feature = "sasl")]
        if self.config.has_sasl() {
            return self.sasl_step(context, token);
        }
        let _ = token;
        self.reply(context, 0, ErrorCode::Ok, &SaslReply { token: None });
    }

    #[cfg(feature = "sasl")]
    fn sasl_step(&mut self, context: Context, token: &[u8]) {
        use super::sasl::{Step, step};
        let seed = self.config.seed ^ context.id;
        let nonce = || digest::generate_digest(&format!("nonce:{seed}")).replace("nonce:", "");
        let Some(connection) = self.connections.get_mut(&context.id) else { return };
        let step = step(&mut connection.sasl, token, nonce, &self.config.sasl_users);
        let ok = ErrorCode::Ok;
        match step {
            Step::Challenge(token) => {
                self.reply(context, 0, ok, &SaslReply { token: Some(&token) });
            }
            Step::Proved(token, user) => {
                connection.prove(Ident { scheme: "sasl".to_owned(), id: user });
                self.reply(context, 0, ok, &SaslReply { token: Some(&token) });
            }
            // 3.4 says nothing.
            Step::Refused if self.config.version == Version::V3_4 => self.close(context.id),
            Step::Refused => {
                let required = self.config.sasl_required;
                let err = if required {
                    ErrorCode::SessionClosedRequireSaslAuth
                } else {
                    ErrorCode::AuthFailed
                };
                self.reply(context, 0, err, &SaslReply { token: None });
                self.close(context.id);
            }
        }
    }

    /// Whether the connection has yet to prove itself by SASL.
    #[cfg(feature = "sasl")]
    fn must_prove(&self, id: ConnectionId) -> bool {
        let proved =
            self.connections.get(&id).is_some_and(|c| c.sasl == super::sasl::Exchange::Done);
        self.config.sasl_required && !proved && self.config.version != Version::V3_4
    }

    pub(super) fn close_session(&mut self, context: Context) {
        let session_id = context.session_id;
        if context.local {
            if let Some(member) = self.members.get_mut(context.member) {
                member.local_sessions.remove(&session_id);
            }
        } else if self.leader().is_some() {
            self.sessions.remove(session_id);
            self.commit(context.member, Txn::CloseSession { session_id });
        }
        self.answer(context, &EmptyReply {});
        self.cut_session(session_id);
    }
}
