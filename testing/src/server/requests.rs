//! The operations and their replies.
//!
//! Requests of a connection are answered in the order of their arrival: behind a write that waits for the leader, even
//! pings wait. (A real server answers auth, SASL and unknown operations out of order.)
//!
//! Source: `FinalRequestProcessor`, `ZooKeeperServer.processPacket`, `ReadOnlyRequestProcessor`.

use bytes::Bytes;
#[cfg(feature = "sasl")]
use docent_protocol::xid;
use docent_protocol::{
    Decode as _, Encode, ErrorCode, OpCode,
    acl::digest_id,
    jute::Reader,
    reply::{EmptyReply, SaslReply},
    request::{AuthRequest, Request, RequestHeader},
};

#[cfg(feature = "sasl")]
use super::version::Version;
use super::{
    acl::Ident,
    ensemble::Ensemble,
    member::Role,
    messages::{Answer, Body, ConnectionId, Context, Forwarded, Waiting, Write},
    prep,
    tree::Applied,
};

impl Ensemble {
    /// Handles a request.
    pub(crate) fn request(&mut self, id: ConnectionId, session_id: i64, payload: &Bytes) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (member, timeout) = (connection.member, connection.timeout);
        let mut reader = Reader::new(payload);
        let Ok(RequestHeader { xid, op }) = RequestHeader::decode(&mut reader) else {
            return self.close(id);
        };
        connection.counts.last_op = Some(op);
        let must_look = connection.waiting.is_empty();
        if must_look && let Some(number) = self.ordered_before(member, session_id) {
            self.wait(id, Waiting::BehindEarlierWrite { number });
        }
        let is_first = self.connections.get(&id).is_some_and(|c| c.waiting.is_empty());
        self.touch(member, session_id, timeout, op);
        let local = self.is_local(member, session_id);
        let number = self.next_number();
        let context = Context { id, member, session_id, local, xid, op, number };
        let version = self.version_of(member);
        match op {
            OpCode::Auth => return self.auth(context, &mut reader),
            OpCode::Sasl if version.knows(op) => {
                return self.sasl(context, &mut reader);
            }
            _ => {}
        }
        #[cfg(feature = "sasl")]
        if self.must_prove(id) {
            let ping = Context { xid: xid::PING, ..context };
            let context = if op == OpCode::Ping { ping } else { context };
            self.reply(context, 0, ErrorCode::SessionClosedRequireSaslAuth, &EmptyReply {});
            return self.close(id);
        }
        let known = version.knows(op);
        if known && self.throttles(version, op) {
            self.wait(id, Waiting::Done(context, Answer::Error(ErrorCode::ThrottledOp), None));
            return self.flush(id);
        }
        let has_leader = self.role(member) != Role::ReadOnly;
        let is_leader = self.members.get(member).is_some_and(|m| m.leading.is_some());
        let is_own = local && op == OpCode::CloseSession;
        if known && has_leader && op.is_write() && !is_own {
            let local = local && !self.upgrade(context, timeout, payload);
            self.send_to_leader(Context { local, ..context }, Write::Request(payload.clone()));
        } else if known && has_leader && op == OpCode::Sync && !is_leader {
            self.wait(id, Waiting::Sent { number, payload: Some(payload.clone()) });
            self.forward(context, Body::Sync(context));
        } else if is_first {
            self.handle_locally(context, payload);
        } else {
            self.wait(id, Waiting::Later(context, payload.clone()));
        }
    }

    fn next_number(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    /// Makes a local session one that all servers know, in front of a request that creates an ephemeral node. Returns whether
    /// it has.
    ///
    /// Source: `QuorumZooKeeperServer.checkUpgradeSession`, `UpgradeableSessionTracker.upgradeSession`.
    fn upgrade(&mut self, context: Context, timeout: u64, payload: &[u8]) -> bool {
        let Context { member, session_id, op, .. } = context;
        if !self.config.local_sessions_upgrading_enabled
            || !context.local
            || !prep::creates_ephemeral(op, payload)
        {
            return false;
        }
        if let Some(member) = self.members.get_mut(member) {
            member.local_sessions.remove(session_id);
        }
        let number = self.next_number();
        let context = Context { local: false, op: OpCode::CreateSession, number, ..context };
        // Nobody waits for it: there is no reply.
        self.order(context, Write::CreateSession { timeout, asked_read_only: None });
        true
    }

    /// Records that a session is alive: at once on its leader, with the next ping on a follower; a local one only here.
    ///
    /// Source: `LearnerSessionTracker.touchSession`.
    fn touch(&mut self, at: usize, session_id: i64, timeout: u64, op: OpCode) {
        let renews = self.version_of(at).renews_at_a_follower(op);
        let Some(member) = self.members.get_mut(at) else { return };
        if member.local_sessions.contains(session_id) {
            return member.local_sessions.touch(session_id, timeout, self.now);
        }
        if let Some(leading) = &mut member.leading {
            leading.sessions.touch(session_id, timeout, self.now);
        } else if let Some(following) = member.following.as_mut().filter(|_| renews) {
            following.touched.insert(session_id, timeout);
        }
    }

    /// The last write of a session that a leader has ordered, or a follower has sent to its leader, and that is not
    /// applied yet. All later requests of the session wait for it, on a new connection too.
    ///
    /// Source: `CommitProcessor.pendingRequests`, which is keyed by the session.
    fn ordered_before(&self, member: usize, session_id: i64) -> Option<u64> {
        let member = self.members.get(member)?;
        let is_own = |context: &&Context| context.session_id == session_id;
        let last = if let Some(following) = &member.following {
            following.forwarded.iter().rfind(is_own)
        } else {
            let ordered = member.leading.as_ref().map(|_| member.accepted.iter());
            ordered?.rev().filter_map(|entry| entry.origin()).find(is_own)
        };
        last.map(|context| context.number)
    }

    /// Releases the requests that wait for this write of an earlier connection.
    pub(super) fn release_waiting(&mut self, member: usize, context: Context) {
        if let Some(following) = self.members.get_mut(member).and_then(|m| m.following.as_mut()) {
            following.forwarded.retain(|forwarded| forwarded.number != context.number);
        }
        let released = |waiting: &Waiting| matches!(waiting, Waiting::BehindEarlierWrite { number } if *number == context.number);
        let mut ids = Vec::new();
        for (id, connection) in &mut self.connections {
            if connection.member == member && connection.waiting.iter().any(released) {
                connection.waiting.retain(|waiting| !released(waiting));
                ids.push(*id);
            }
        }
        ids.into_iter().for_each(|id| self.flush(id));
    }

    fn wait(&mut self, id: ConnectionId, waiting: Waiting) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.waiting.push_back(waiting);
        }
    }

    /// Lets the leader order a write.
    pub(super) fn send_to_leader(&mut self, context: Context, write: Write) {
        self.wait(context.id, Waiting::Sent { number: context.number, payload: None });
        self.order(context, write);
    }

    fn order(&mut self, context: Context, write: Write) {
        let Context { id, member, .. } = context;
        let forwarded = Forwarded { context, ids: self.ids_of(id), write };
        if self.members.get(member).is_some_and(|member| member.leading.is_some()) {
            self.lead_write(member, &forwarded);
        } else {
            self.forward(context, Body::Request(forwarded));
        }
    }

    /// Sends a request to the leader of its member.
    fn forward(&mut self, context: Context, body: Body) {
        let member = self.members.get_mut(context.member);
        if let Some(following) = member.and_then(|member| member.following.as_mut()) {
            following.forwarded.push_back(context);
        }
        self.post_to_leader(context.member, body);
    }

    /// Handles a request without the leader.
    fn handle_locally(&mut self, context: Context, payload: &[u8]) {
        let Context { id, op, .. } = context;
        let version = self.version_of(context.member);
        if !version.knows(op) {
            if version.is_keeper() {
                return self.close(id);
            }
            self.reply(context, -1, ErrorCode::Unimplemented, &EmptyReply {});
            return self.close(id);
        }
        let is_write = op.is_write() && op != OpCode::CloseSession;
        if is_write && op == OpCode::CreateSession {
            return self.fail(context, ErrorCode::MarshallingError);
        }
        if self.role(context.member) == Role::ReadOnly && (is_write || op == OpCode::Sync) {
            return self.fail(context, ErrorCode::NotReadOnly);
        }
        let mut reader = Reader::new(payload);
        let request =
            RequestHeader::decode(&mut reader).and_then(|_| Request::decode(op, &mut reader));
        match request {
            Ok(request) => self.read(context, &request),
            Err(_) => self.fail(context, ErrorCode::MarshallingError),
        }
    }

    /// Replies to a request without a change, in its turn.
    pub(super) fn finish(&mut self, context: Context, answer: Answer) {
        self.release_waiting(context.member, context);
        let Some((place, payload)) = self.place_of(context) else { return };
        *place = match (answer, payload) {
            (Answer::Synced, Some(payload)) => Waiting::Later(context, payload),
            (answer, _) => Waiting::Done(context, answer, None),
        };
        self.flush(context.id);
    }

    /// Replies to a write that has been applied, in its turn.
    pub(super) fn written(
        &mut self,
        context: Context,
        zxid: i64,
        answer: &Answer,
        applied: Applied,
    ) {
        let Some((place, _)) = self.place_of(context) else { return };
        *place = Waiting::Done(context, answer.clone(), Some((zxid, applied)));
        self.flush(context.id);
    }

    /// The place of a request that is at the leader among those that wait, and its payload.
    fn place_of(&mut self, context: Context) -> Option<(&mut Waiting, Option<Bytes>)> {
        let connection = self.connections.get_mut(&context.id)?;
        connection.waiting.iter_mut().find_map(|waiting| match waiting {
            Waiting::Sent { number, payload } if *number == context.number => {
                let payload = payload.take();
                Some((waiting, payload))
            }
            _ => None,
        })
    }

    /// Handles the waiting requests of a connection, up to the first one that waits for the leader.
    pub(super) fn flush(&mut self, id: ConnectionId) {
        loop {
            let Some(connection) = self.connections.get_mut(&id) else { return };
            if !connection.has_room() && !connection.waiting.is_empty() {
                connection.is_held_back = true;
                return;
            }
            match connection.waiting.pop_front() {
                None => return self.read_on(id),
                Some(sent @ (Waiting::Sent { .. } | Waiting::BehindEarlierWrite { .. })) => {
                    connection.waiting.push_front(sent);
                    return self.read_on(id);
                }
                Some(Waiting::Later(context, payload)) => self.handle_locally(context, &payload),
                Some(Waiting::Done(context, answer, change)) => {
                    let no_change = || (self.last_zxid_of(context.member), Applied::Nothing);
                    let (zxid, applied) = change.unwrap_or_else(no_change);
                    self.send_answer(context, zxid, &answer, &applied);
                }
            }
            self.ready.insert(id);
        }
    }

    /// Resumes a connection that was held back because too many of its requests waited.
    fn read_on(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && connection.is_held_back
        {
            self.opened.push_back(id);
        }
    }

    /// The zxid in replies to reads: that of the last change this member has applied.
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

    pub(super) fn ids_of(&self, id: ConnectionId) -> std::sync::Arc<[Ident]> {
        self.connections.get(&id).map_or_else(|| [].into(), |connection| connection.ids.clone())
    }

    // Credentials.

    pub(super) fn auth(&mut self, context: Context, reader: &mut Reader<'_>) {
        let Ok(request) = AuthRequest::decode(reader) else { return self.close(context.id) };
        let data = request.auth.map(|auth| String::from_utf8_lossy(auth).into_owned());
        let proved = match (&*request.scheme.to_str(), data) {
            ("digest", Some(data)) => {
                let id = digest_id(&data);
                let is_super = self.config.super_digest.as_deref() == Some(id.as_str());
                let connection = self.connections.get_mut(&context.id);
                if let Some(connection) = connection.filter(|_| is_super) {
                    connection.add_identity(Ident::new("super", ""));
                }
                Some(Ident { scheme: "digest".to_owned(), id })
            }
            ("ip", _) => self.ids_of(context.id).first().cloned(),
            // The certificate proves it, not the data. A connection without a certificate has no such id.
            ("x509", _) => self.ids_of(context.id).iter().find(|id| id.scheme == "x509").cloned(),
            _ => None,
        };
        let Some(connection) = self.connections.get_mut(&context.id) else { return };
        match proved {
            Some(id) => {
                connection.add_identity(id);
                self.reply(context, 0, ErrorCode::Ok, &EmptyReply {});
            }
            None => {
                self.reply(context, 0, ErrorCode::AuthFailed, &EmptyReply {});
                self.close(context.id);
            }
        }
    }

    /// Adds the identity of a client certificate.
    ///
    /// Source: `X509AuthenticationProvider.handleAuthentication`.
    #[cfg(feature = "tls-no-provider")]
    pub(super) fn prove_x509(&mut self, id: ConnectionId, subject: &str) {
        let connection = self.connections.get_mut(&id);
        if let Some(connection) = connection.filter(|_| self.config.version.knows_x509()) {
            connection.add_identity(Ident::new("x509", subject));
        }
    }

    /// Handles a SASL token. A server without SASL answers with a null token.
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
        let nonce = || digest_id(&format!("nonce:{seed}")).replace("nonce:", "");
        let Some(connection) = self.connections.get_mut(&context.id) else { return };
        let step = step(&mut connection.sasl, token, nonce, &self.config.sasl_users);
        let ok = ErrorCode::Ok;
        match step {
            Step::Challenge(token) => {
                self.reply(context, 0, ok, &SaslReply { token: Some(&token) });
            }
            Step::Proved(token, user) => {
                connection.add_identity(Ident { scheme: "sasl".to_owned(), id: user });
                self.reply(context, 0, ok, &SaslReply { token: Some(&token) });
            }
            // 3.4 closes the connection without a reply.
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

    /// Whether the connection still has to authenticate by SASL.
    #[cfg(feature = "sasl")]
    fn must_prove(&self, id: ConnectionId) -> bool {
        let proved =
            self.connections.get(&id).is_some_and(|c| c.sasl == super::sasl::Exchange::Done);
        self.config.sasl_required && !proved && self.config.version > Version::V3_5
    }

    /// Ends a session without the leader: a local one, or none that a read-only server could end.
    pub(super) fn close_local_session(&mut self, context: Context) {
        let Context { member, session_id, .. } = context;
        self.answer(context, &EmptyReply {});
        if !self.end_local_session(member, session_id) {
            self.cut_session(session_id);
        }
    }
}
