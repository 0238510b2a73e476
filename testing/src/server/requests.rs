//! What each operation does, and what it is answered.
//!
//! Everything is answered in the order in which it came. (A real server answers auth, SASL and unknown
//! operations out of turn.)
//!
//! Source: `FinalRequestProcessor`, `ZooKeeperServer.processPacket`, `ReadOnlyRequestProcessor`.

use docent_protocol::{
    Decode as _, Encode, ErrorCode, EventType, OpCode, Perms, Stat, Text,
    jute::{List, Reader},
    multi::{MultiOp, MultiReply, MultiRequest, MultiResult},
    reply::{
        ClientInfo, Create2Reply, EmptyReply, ErrorReply, GetAclReply, GetAllChildrenNumberReply,
        GetChildren2Reply, GetChildrenReply, GetDataReply, PathReply, SaslReply, StatReply,
        WhoAmIReply,
    },
    request::{AuthRequest, Request, RequestHeader, SetWatches2Request, SetWatchesRequest},
    xid,
};

use super::{
    acl::{self, Ident},
    digest,
    ensemble::{ConnectionId, Ensemble, Role},
    java,
    prep::{self, Asker, MultiRefusal, Refusal, ResultType},
    tree::{Applied, Node, Tree, Txn},
    version::Version,
    watches::Table,
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
        if !self.config.version.knows(op) {
            self.reply(context, -1, ErrorCode::Unimplemented, &EmptyReply {});
            return self.close(id);
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

    fn moved(&mut self, context: Context) {
        if self.config.version == Version::V3_4 && context.op == OpCode::Multi {
            let results = [MultiResult::Error(ErrorCode::SessionMoved)];
            return self.answer(context, &MultiReply::new(&results));
        }
        self.close(context.id);
    }

    /// The zxid that replies to reads have: of the last change this member has applied.
    fn last_zxid_of(&self, member: usize) -> i64 {
        self.members.get(member).map_or(0, |member| member.tree.last_zxid)
    }

    fn reply(&mut self, context: Context, zxid: i64, err: ErrorCode, body: &impl Encode) {
        if let Some(connection) = self.connections.get_mut(&context.id) {
            connection.reply(context.xid, zxid, err, body);
        }
    }

    fn answer(&mut self, context: Context, body: &impl Encode) {
        let zxid = self.last_zxid_of(context.member);
        self.reply(context, zxid, ErrorCode::Ok, body);
    }

    fn fail(&mut self, context: Context, err: ErrorCode) {
        let zxid = self.last_zxid_of(context.member);
        self.reply(context, zxid, err, &EmptyReply {});
    }

    /// An error with the end of an empty multi behind it.
    fn fail_with_empty_multi(&mut self, context: Context) {
        let zxid = self.last_zxid_of(context.member);
        self.reply(context, zxid, ErrorCode::MarshallingError, &MultiReply::new(&[]));
    }

    fn ids_of(&self, id: ConnectionId) -> std::sync::Arc<[Ident]> {
        self.connections.get(&id).map_or_else(|| [].into(), |connection| connection.ids.clone())
    }

    // Credentials.

    fn auth(&mut self, context: Context, reader: &mut Reader<'_>) {
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

    /// As a server without SASL: an empty token is answered by none at all.
    fn sasl(&mut self, context: Context, reader: &mut Reader<'_>) {
        match reader.buffer("token") {
            Ok(Some(_)) => self.reply(context, 0, ErrorCode::Ok, &SaslReply { token: None }),
            _ => self.close(context.id),
        }
    }

    // Writes.

    fn write(&mut self, context: Context, request: &Request<'_>) {
        let Some(leader) = self.leader() else { return self.close(context.id) };
        if let Request::Multi(ops) = request {
            return self.multi(context, leader, ops);
        }
        let prepared = match request {
            Request::Reconfig(_) => Err(ErrorCode::ReconfigDisabled.into()),
            request => {
                self.with_asker(context, leader, |tree, asker| prep::prepare(request, tree, asker))
            }
        };
        match prepared {
            Ok(txn) => {
                let (zxid, applied) = self.commit(context.member, txn);
                self.written(context, zxid, &applied);
            }
            Err(Refusal::Error(err)) => {
                let (zxid, _) = self.commit(context.member, Txn::Error);
                self.reply(context, zxid, err, &EmptyReply {});
            }
            Err(Refusal::Destructive) => self.close(context.id),
        }
    }

    /// Runs a check on the leader's tree.
    fn with_asker<T>(
        &mut self,
        context: Context,
        leader: usize,
        check: impl FnOnce(&mut Tree, &Asker<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let ids = self.ids_of(context.id);
        let asker = Asker {
            session_id: context.session_id,
            ids: &ids,
            version: self.config.version,
            ttls: self.config.extended_types_enabled,
            local: context.local,
        };
        let member = self.members.get_mut(leader).ok_or(ErrorCode::SystemError)?;
        check(&mut member.tree, &asker)
    }

    fn written(&mut self, context: Context, zxid: i64, applied: &Applied) {
        let ok = ErrorCode::Ok;
        match applied {
            Applied::Created(path, stat) => {
                let path = Text::new(path);
                if context.op == OpCode::Create {
                    self.reply(context, zxid, ok, &PathReply { path });
                } else {
                    self.reply(context, zxid, ok, &Create2Reply { path, stat: *stat });
                }
            }
            Applied::Stat(stat) => self.reply(context, zxid, ok, &StatReply { stat: *stat }),
            Applied::Nothing | Applied::Multi(_) => self.reply(context, zxid, ok, &EmptyReply {}),
        }
    }

    fn multi(&mut self, context: Context, leader: usize, ops: &MultiRequest<'_>) {
        let reads = ops.iter().filter(is_read).count();
        let mixed = reads > 0 && reads < ops.iter().count();
        if !mixed && ops.iter().any(|op| prep::path_of(&op).is_null()) {
            // A real server stumbles before it has made a transaction: its number is lost.
            self.skip_zxid();
            return self.fail_with_empty_multi(context);
        }
        let prepared = self
            .with_asker(context, leader, |tree, asker| Ok(prep::prepare_multi(ops, tree, asker)));
        let Ok(prepared) = prepared else { return self.close(context.id) };
        match prepared {
            Ok((txns, types)) => {
                let (zxid, applied) = self.commit(context.member, Txn::Multi(txns));
                let Applied::Multi(applied) = applied else { return self.close(context.id) };
                let results: Vec<_> = applied
                    .iter()
                    .zip(types)
                    .map(|(applied, kind)| result(applied, kind))
                    .collect();
                self.reply(context, zxid, ErrorCode::Ok, &MultiReply::new(&results));
            }
            Err(MultiRefusal::At(failed, count, err)) => {
                let (zxid, _) = self.commit(context.member, Txn::Error);
                let results: Vec<_> = (0..count)
                    .map(|at| match at.cmp(&failed) {
                        std::cmp::Ordering::Less => MultiResult::Error(ErrorCode::Ok),
                        std::cmp::Ordering::Equal => MultiResult::Error(err),
                        std::cmp::Ordering::Greater => {
                            MultiResult::Error(ErrorCode::RuntimeInconsistency)
                        }
                    })
                    .collect();
                self.reply(context, zxid, ErrorCode::Ok, &MultiReply::new(&results));
            }
            Err(MultiRefusal::Whole(err)) => {
                let (zxid, _) = self.commit(context.member, Txn::Error);
                self.reply(context, zxid, err, &EmptyReply {});
            }
            Err(MultiRefusal::Destructive) => self.close(context.id),
        }
    }

    fn close_session(&mut self, context: Context) {
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

    // Reads.

    fn read(&mut self, context: Context, request: &Request<'_>) {
        match request {
            Request::Ping => {
                let context = Context { xid: xid::PING, ..context };
                self.answer(context, &EmptyReply {});
            }
            Request::CloseSession => self.close_session(context),
            Request::Sync(r) => {
                self.catch_up(context.member);
                let echo = r.path.bytes().map(|_| java::bytes(&r.path.to_str()).into_owned());
                self.answer(context, &PathReply { path: Text::from_bytes(echo.as_deref()) });
            }
            Request::SetWatches(r) => {
                let SetWatchesRequest { relative_zxid, data_watches, exist_watches, child_watches } =
                    *r;
                let (persistent_watches, persistent_recursive_watches) =
                    (List::new(&[]), List::new(&[]));
                self.set_watches(
                    context,
                    &SetWatches2Request {
                        relative_zxid,
                        data_watches,
                        exist_watches,
                        child_watches,
                        persistent_watches,
                        persistent_recursive_watches,
                    },
                );
            }
            Request::SetWatches2(r) => self.set_watches(context, r),
            Request::AddWatch(r) => {
                let path = r.path.to_str();
                let watches = self.members.get_mut(context.member).map(|m| &mut m.watches);
                if watches.is_some_and(|watches| watches.add_watch(&path, context.id, r.mode)) {
                    self.answer(context, &ErrorReply { err: ErrorCode::Ok });
                } else {
                    self.fail(context, ErrorCode::MarshallingError);
                }
            }
            Request::CheckWatches(r) => {
                let watches = self.members.get(context.member).map(|member| &member.watches);
                let found =
                    watches.map(|watches| watches.contains(r.path, r.watcher_type, context.id));
                self.watches_answer(context, found.unwrap_or(Err(ErrorCode::SystemError)));
            }
            Request::RemoveWatches(r) => {
                let member = self.members.get_mut(context.member);
                let removed = member.and_then(|member| {
                    member.watches.remove(&r.path.to_str(), r.watcher_type, context.id)
                });
                self.watches_answer(context, removed.ok_or(ErrorCode::MarshallingError));
            }
            request => {
                if let Err(err) = self.look(context, request) {
                    self.fail(context, err);
                }
            }
        }
    }

    fn watches_answer(&mut self, context: Context, found: Result<bool, ErrorCode>) {
        match found {
            Ok(true) => self.answer(context, &EmptyReply {}),
            Ok(false) => self.fail(context, ErrorCode::NoWatcher),
            Err(err) => self.fail(context, err),
        }
    }

    /// Reads that only look at the tree, and may leave a watch.
    fn look(&mut self, context: Context, request: &Request<'_>) -> Result<(), ErrorCode> {
        let ids = self.ids_of(context.id);
        let version = self.config.version;
        let Some(member) = self.members.get_mut(context.member) else {
            return Err(ErrorCode::SystemError);
        };
        let (tree, watches) = (&member.tree, &mut member.watches);
        let zxid = tree.last_zxid;
        let Some(connection) = self.connections.get_mut(&context.id) else { return Ok(()) };
        let mut ok = |body: &dyn Fn(&mut Sink<'_>)| {
            body(&mut Sink { connection, xid: context.xid, zxid });
        };
        match request {
            Request::Exists(r) => {
                let path = prep::text(r.path)?;
                if path.contains('\0') {
                    return Err(ErrorCode::BadArguments);
                }
                let node = tree.get(&path);
                if let Some(node) = node.filter(|_| version.exists_needs_read()) {
                    acl::check(&node.acl, Perms::READ, &ids)?;
                }
                if r.watch {
                    watches.watch(Table::Data, &path, context.id);
                }
                let stat = node.ok_or(ErrorCode::NoNode)?.stat();
                ok(&|out| out.put(&StatReply { stat }));
            }
            Request::GetData(r) => {
                let path = prep::text(r.path)?;
                let node = readable(tree, &path, &ids)?;
                if r.watch {
                    watches.watch(Table::Data, &path, context.id);
                }
                ok(&|out| out.put(&GetDataReply { data: node.data.as_deref(), stat: node.stat() }));
            }
            Request::GetChildren(r) => {
                let path = prep::text(r.path)?;
                let node = readable(tree, &path, &ids)?;
                if r.watch {
                    watches.watch(Table::Child, &path, context.id);
                }
                let children = names(node);
                ok(&|out| out.put(&GetChildrenReply { children: List::new(&children) }));
            }
            Request::GetChildren2(r) => {
                let path = prep::text(r.path)?;
                let node = readable(tree, &path, &ids)?;
                if r.watch {
                    watches.watch(Table::Child, &path, context.id);
                }
                let (children, stat) = (names(node), node.stat());
                ok(&|out| out.put(&GetChildren2Reply { children: List::new(&children), stat }));
            }
            Request::GetAcl(r) => {
                let node = tree.node(&prep::text(r.path)?)?;
                acl::check(&node.acl, Perms::READ | Perms::ADMIN, &ids)?;
                let hidden = acl::without_digests(&node.acl);
                let shown = if acl::allows(&node.acl, Perms::ADMIN, &ids) {
                    &node.acl
                } else {
                    &hidden[..]
                };
                let (acl, stat) = (acl::to_wire(shown), node.stat());
                ok(&|out| out.put(&GetAclReply { acl: List::new(&acl), stat }));
            }
            Request::GetAllChildrenNumber(r) => {
                let path = prep::text(r.path)?;
                readable(tree, &path, &ids)?;
                let total_number = i32::try_from(tree.descendants(&path)).unwrap_or(i32::MAX);
                ok(&|out| out.put(&GetAllChildrenNumberReply { total_number }));
            }
            Request::GetEphemerals(r) => {
                let prefix = r.path.to_str();
                let own = tree.ephemerals(context.session_id);
                let all = matches!(&*prefix, "" | "/");
                let paths: Vec<_> =
                    own.filter(|p| all || p.starts_with(&*prefix)).map(Text::new).collect();
                ok(&|out| out.put(&GetChildrenReply { children: List::new(&paths) }));
            }
            Request::WhoAmI => {
                let infos: Vec<_> = ids
                    .iter()
                    .map(|id| ClientInfo {
                        auth_scheme: Text::new(&id.scheme),
                        user: Text::new(id.user()),
                    })
                    .collect();
                ok(&|out| out.put(&WhoAmIReply { client_info: List::new(&infos) }));
            }
            Request::MultiRead(ops) => {
                let reads = ops.iter().filter(is_read).count();
                let count = ops.iter().count();
                if reads > 0 && reads < count {
                    return Err(ErrorCode::MarshallingError);
                }
                let results = multi_read(ops, tree, &ids);
                // Where a real server stumbles, what there is of the body comes with the error.
                let whole = results.len() == count;
                let err = if whole { ErrorCode::Ok } else { ErrorCode::MarshallingError };
                let results: Vec<_> = results.iter().map(ReadResult::to_wire).collect();
                connection.reply(context.xid, zxid, err, &MultiReply::new(&results));
            }
            _ => return Err(ErrorCode::MarshallingError),
        }
        Ok(())
    }

    /// Sets watches again, and tells what has happened meanwhile. Not filtered by ACL, not by version.
    fn set_watches(&mut self, context: Context, r: &SetWatches2Request<'_>) {
        let lists = [r.data_watches, r.exist_watches, r.child_watches];
        let persistent = [r.persistent_watches, r.persistent_recursive_watches];
        if lists.iter().chain(&persistent).any(List::is_null) {
            return self.fail(context, ErrorCode::MarshallingError);
        }
        let Some(member) = self.members.get_mut(context.member) else { return };
        let Some(connection) = self.connections.get_mut(&context.id) else { return };
        let (tree, watches) = (&member.tree, &mut member.watches);
        let (id, since) = (context.id, r.relative_zxid);
        for path in r.data_watches {
            let path = path.to_str();
            match tree.get(&path) {
                None => connection.notify(-1, EventType::NodeDeleted, &path),
                Some(node) if node.mzxid > since => {
                    connection.notify(-1, EventType::NodeDataChanged, &path);
                }
                Some(_) => watches.watch(Table::Data, &path, id),
            }
        }
        for path in r.exist_watches {
            let path = path.to_str();
            match tree.get(&path) {
                Some(_) => connection.notify(-1, EventType::NodeCreated, &path),
                None => watches.watch(Table::Data, &path, id),
            }
        }
        for path in r.child_watches {
            let path = path.to_str();
            match tree.get(&path) {
                None => connection.notify(-1, EventType::NodeDeleted, &path),
                Some(node) if node.pzxid > since => {
                    connection.notify(-1, EventType::NodeChildrenChanged, &path);
                }
                Some(_) => watches.watch(Table::Child, &path, id),
            }
        }
        for (paths, mode) in persistent.iter().zip([0, 1]) {
            for path in *paths {
                watches.add_watch(&path.to_str(), id, mode.into());
            }
        }
        self.answer(context, &EmptyReply {});
    }
}

/// Where the body of a good reply goes.
struct Sink<'a> {
    connection: &'a mut super::connection::Connection,
    xid: i32,
    zxid: i64,
}

impl Sink<'_> {
    fn put(&mut self, body: &impl Encode) {
        self.connection.reply(self.xid, self.zxid, ErrorCode::Ok, body);
    }
}

fn readable<'t>(tree: &'t Tree, path: &str, ids: &[Ident]) -> Result<&'t Node, ErrorCode> {
    let node = tree.node(path)?;
    acl::check(&node.acl, Perms::READ, ids)?;
    Ok(node)
}

fn names(node: &Node) -> Vec<Text<'_>> {
    node.children.iter().map(|name| Text::new(name)).collect()
}

fn result(applied: &Applied, kind: ResultType) -> MultiResult<'_> {
    match (applied, kind) {
        (Applied::Created(path, _), ResultType::Create) => {
            MultiResult::Create(PathReply { path: Text::new(path) })
        }
        (Applied::Created(path, stat), _) => {
            MultiResult::Create2(Create2Reply { path: Text::new(path), stat: *stat })
        }
        (Applied::Stat(stat), _) => MultiResult::SetData(StatReply { stat: *stat }),
        (_, ResultType::Other(OpCode::Delete)) => MultiResult::Delete,
        _ => MultiResult::Check,
    }
}

/// One answer of a multiRead.
enum ReadResult<'t> {
    Data(&'t Node, Stat),
    Children(Vec<Text<'t>>),
    Error(ErrorCode),
}

impl ReadResult<'_> {
    fn to_wire(&self) -> MultiResult<'_> {
        match self {
            Self::Data(node, stat) => {
                MultiResult::GetData(GetDataReply { data: node.data.as_deref(), stat: *stat })
            }
            Self::Children(names) => {
                MultiResult::GetChildren(GetChildrenReply { children: List::new(names) })
            }
            Self::Error(err) => MultiResult::Error(*err),
        }
    }
}

const fn is_read(op: &MultiOp<'_>) -> bool {
    matches!(op, MultiOp::GetData(_) | MultiOp::GetChildren(_))
}

/// As many results as there are before a write or a null path.
fn multi_read<'t>(ops: &MultiRequest<'_>, tree: &'t Tree, ids: &[Ident]) -> Vec<ReadResult<'t>> {
    let result = |op| {
        let (MultiOp::GetData(r) | MultiOp::GetChildren(r)) = op else { return None };
        let path = prep::text(r.path).ok()?;
        Some(match (readable(tree, &path, ids), op) {
            (Ok(node), MultiOp::GetData(_)) => ReadResult::Data(node, node.stat()),
            (Ok(node), _) => ReadResult::Children(names(node)),
            (Err(err), _) => ReadResult::Error(err),
        })
    };
    ops.iter().map_while(result).collect()
}
