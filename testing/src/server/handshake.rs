//! The handshake: grants, resumes or refuses a session.
//!
//! Source: `ZooKeeperServer.processConnectRequest`, `reopenSession`, `finishSessionInit`, `ReadOnlyZooKeeperServer`.

use docent_protocol::{
    Decode as _, ErrorCode, OpCode,
    connect::{ConnectRequest, ConnectResponse, PASSWORD_SIZE},
    jute::Reader,
    reply::ReplyHeader,
};

use super::{
    connection::State,
    ensemble::Ensemble,
    member::{Member, Role},
    messages::{Body, ConnectionId, Context, Resume, Write},
    version::Version,
};

impl Ensemble {
    /// Answers a ConnectRequest.
    pub(crate) fn greet(&mut self, id: ConnectionId, payload: &[u8]) {
        let Some(at) = self.connections.get(&id).map(|c| c.member) else { return };
        let Ok(request) = ConnectRequest::decode(&mut Reader::new(payload)) else {
            return self.close(id);
        };
        let version = self.version_of(at);
        let read_only = self.role(at) == Role::ReadOnly;
        // 3.4 fails on a null password and leaves the client waiting.
        if request.passwd.is_none() && version == Version::V3_4 {
            return self.ignore(id);
        }
        let last_zxid = self.members.get(at).map_or(0, |member| member.tree.last_zxid);
        let wants_writes = request.read_only != Some(true);
        if !self.serves(at) || read_only && wants_writes || request.last_zxid_seen > last_zxid {
            return self.close(id);
        }
        // ClickHouse Keeper reads the id of the session, and ignores it.
        if request.session_id == 0 || version.is_keeper() {
            self.new_session(id, at, &request);
        } else {
            self.reopen_session(id, at, &request);
        }
    }

    fn ignore(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::Ignored;
        }
    }

    fn negotiate(&self, at: usize, asked_ms: i32) -> u64 {
        let max = self.members.get(at).map(|member| member.max_session_timeout);
        self.config.negotiate(asked_ms, max.unwrap_or(self.config.max_session_timeout))
    }

    fn new_session(&mut self, id: ConnectionId, at: usize, request: &ConnectRequest<'_>) {
        let timeout = self.negotiate(at, request.time_out);
        let read_only = self.role(at) == Role::ReadOnly;
        let needs_local = self.version_of(at).read_only_needs_local_sessions();
        if read_only && needs_local && !self.config.local_sessions_enabled {
            let zxid = self.members.get(at).map_or(0, |member| member.tree.last_zxid);
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.send(&ReplyHeader { xid: 0, zxid, err: ErrorCode::NotReadOnly });
            }
            return self.ignore(id);
        }
        let session_id = self.new_session_id(at);
        let has_local =
            self.config.local_sessions_enabled && self.version_of(at).has_local_sessions();
        if read_only || has_local {
            let now = self.now;
            if let Some(member) = self.members.get_mut(at) {
                member.local_sessions.add(session_id, timeout, None, now);
            }
            return self.open(id, at, session_id, timeout, read_only, request.read_only);
        }
        let context = self.joining(id, at, session_id);
        let write = Write::CreateSession { timeout, asked_read_only: request.read_only };
        self.send_to_leader(context, write);
    }

    /// Makes a connection wait for its session.
    fn joining(&mut self, id: ConnectionId, member: usize, session_id: i64) -> Context {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::Joining;
        }
        Context {
            id,
            member,
            session_id,
            local: false,
            xid: 0,
            op: OpCode::CreateSession,
            number: 0,
        }
    }

    fn reopen_session(&mut self, id: ConnectionId, at: usize, request: &ConnectRequest<'_>) {
        let session_id = request.session_id;
        let version = self.version_of(at);
        let read_only = self.role(at) == Role::ReadOnly;
        let is_local = self.is_local(at, session_id);
        let knows = |member: &Member| member.tree.sessions.contains_key(&session_id);
        // Since 3.7 a read-only server resumes no global session; it closes the connection.
        let known = read_only && self.members.get(at).is_some_and(knows);
        if known && !is_local && version.read_only_needs_local_sessions() {
            return self.close(id);
        }
        // The session's old connection to this member is closed first, even if the password is wrong.
        let old = self.members.get(at).and_then(|member| member.attached.get(&session_id)).copied();
        if let Some(old) = old {
            self.close(old);
        }
        let timeout = self.negotiate(at, request.time_out);
        let asked_read_only = request.read_only;
        if request.passwd != Some(&Self::passwd_of(session_id)) {
            return self.refuse(id, read_only, asked_read_only);
        }
        let now = self.now;
        if is_local && let Some(member) = self.members.get_mut(at) {
            member.local_sessions.touch(session_id, timeout, now);
        }
        if is_local || read_only {
            return if is_local || known {
                self.open(id, at, session_id, timeout, read_only, asked_read_only);
            } else {
                self.refuse(id, read_only, asked_read_only);
            };
        }
        // Only the leader knows the open sessions.
        let context = self.joining(id, at, session_id);
        let resume = Resume { context, timeout, asked_read_only };
        match self.members.get_mut(at).and_then(|member| member.leading.as_mut()) {
            Some(leading) => {
                let exists = leading.sessions.attach(session_id, timeout, at, now);
                self.revalidated(resume, exists);
            }
            None => self.post_to_leader(at, Body::Revalidate(resume)),
        }
    }

    /// Completes a handshake that resumes a session; `exists` is the answer of the leader.
    pub(super) fn revalidated(&mut self, resume: Resume, exists: bool) {
        let Resume { context, timeout, asked_read_only } = resume;
        let Context { id, member, session_id, .. } = context;
        if self.connections.get(&id).is_none_or(|c| c.state != State::Joining) {
            return;
        }
        if exists {
            self.open(id, member, session_id, timeout, false, asked_read_only);
        } else {
            self.refuse(id, false, asked_read_only);
        }
    }

    pub(super) fn is_local(&self, at: usize, session_id: i64) -> bool {
        self.members.get(at).is_some_and(|m| m.local_sessions.contains(session_id))
    }

    pub(super) fn open(
        &mut self,
        id: ConnectionId,
        at: usize,
        session_id: i64,
        timeout: u64,
        read_only: bool,
        asked_read_only: Option<bool>,
    ) {
        if let Some(member) = self.members.get_mut(at) {
            member.attached.insert(session_id, id);
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.state = State::Open { session_id };
        connection.timeout = timeout;
        self.opened.push_back(id);
        self.ready.insert(id);
        connection.send(&ConnectResponse {
            protocol_version: 0,
            time_out: i32::try_from(timeout).unwrap_or(i32::MAX),
            session_id,
            passwd: Some(&Self::passwd_of(session_id)),
            // Present only if the client sent the byte.
            read_only: asked_read_only.map(|_| read_only),
        });
    }

    /// Refuses a session that does not exist or whose password is wrong.
    fn refuse(&mut self, id: ConnectionId, read_only: bool, asked_read_only: Option<bool>) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.send(&ConnectResponse {
                protocol_version: 0,
                time_out: 0,
                session_id: 0,
                passwd: Some(&[0; PASSWORD_SIZE]),
                read_only: asked_read_only.map(|_| read_only),
            });
        }
        self.close(id);
    }
}
