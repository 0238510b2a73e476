//! Reads and watches: all requests that are answered from one member's tree.
//!
//! Source: `FinalRequestProcessor`, `DataTree.setWatches`.

use bytes::BufMut;
use docent_protocol::{
    Encode, ErrorCode, EventType, OpCode, Perms, Stat, Text,
    jute::List,
    multi::{MultiHeader, MultiOp, MultiReply, MultiRequest, MultiResult},
    reply::{
        ClientInfo, EmptyReply, ErrorReply, GetAclReply, GetAllChildrenNumberReply,
        GetChildren2Reply, GetChildrenReply, GetDataReply, PathReply, StatReply, WhoAmIReply,
    },
    request::{Request, SetWatches2Request, SetWatchesRequest},
    xid,
};

use super::{
    acl::{self, Ident},
    connection::{Connection, OUTPUT_LIMIT},
    ensemble::Ensemble,
    java,
    member::Role,
    messages::Context,
    prep,
    tree::{Node, Tree},
    watches::Table,
};

impl Ensemble {
    pub(super) fn read(&mut self, context: Context, request: &Request<'_>) {
        match request {
            Request::Ping => {
                let context = Context { xid: xid::PING, ..context };
                self.answer(context, &EmptyReply {});
            }
            Request::CloseSession => self.close_local_session(context),
            Request::Sync(r) => {
                // A leader treats a sync of its own client as a read, which overtakes the waiting commits
                // (`CommitProcessor`, whose `matchSyncs` is false on a leader).
                if self.role(context.member) != Role::Leader {
                    self.catch_up(context.member);
                }
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
                if !watches.is_some_and(|watches| watches.add_watch(&path, context.id, r.mode)) {
                    self.fail(context, ErrorCode::MarshallingError);
                } else if self.version_of(context.member).add_watch_reply_has_body() {
                    self.answer(context, &ErrorReply { err: ErrorCode::Ok });
                } else {
                    self.answer(context, &EmptyReply {});
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
                if let Err(err) = self.handle_read(context, request) {
                    self.fail(context, err);
                }
            }
        }
    }

    pub(super) fn watches_answer(&mut self, context: Context, found: Result<bool, ErrorCode>) {
        match found {
            Ok(true) => self.answer(context, &EmptyReply {}),
            Ok(false) => self.fail(context, ErrorCode::NoWatcher),
            Err(err) => self.fail(context, err),
        }
    }

    /// Handles reads of the tree, which may set a watch.
    pub(super) fn handle_read(
        &mut self,
        context: Context,
        request: &Request<'_>,
    ) -> Result<(), ErrorCode> {
        let ids = self.ids_of(context.id);
        let version = self.version_of(context.member);
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
                let ids: Vec<_> = shown.iter().map(|entry| java::bytes(&entry.who.id)).collect();
                let entries = shown.iter().zip(&ids);
                let acl: Vec<_> = entries.map(|(entry, id)| entry.to_wire(id)).collect();
                let stat = node.stat();
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
                let users: Vec<_> = ids.iter().map(|id| java::bytes(id.user())).collect();
                let infos: Vec<_> = ids
                    .iter()
                    .zip(&users)
                    .map(|(id, user)| ClientInfo {
                        auth_scheme: Text::new(&id.scheme),
                        user: Text::from_bytes(Some(user)),
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
                // Many reads of one large node may make a reply that does not fit into memory.
                if results.iter().map(ReadResult::size).sum::<usize>() > OUTPUT_LIMIT {
                    connection.close();
                    return Ok(());
                }
                // Where a real server fails, the partial body comes with the error.
                let whole = results.len() == count;
                let err = if whole { ErrorCode::Ok } else { ErrorCode::MarshallingError };
                let of_keeper = self.config.version.is_keeper();
                connection.reply(context.xid, zxid, err, &ReadResults { results, of_keeper });
            }
            _ => return Err(ErrorCode::MarshallingError),
        }
        Ok(())
    }

    /// Restores watches, and notifies of the changes missed meanwhile. These events are filtered neither by ACL nor
    /// by version.
    pub(super) fn set_watches(&mut self, context: Context, r: &SetWatches2Request<'_>) {
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

/// The destination of the body of a successful reply.
struct Sink<'a> {
    connection: &'a mut Connection,
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

/// One result of a multiRead.
enum ReadResult<'t> {
    Data(&'t Node, Stat),
    Children(Vec<Text<'t>>),
    Error(OpCode, ErrorCode),
}

/// The body of the reply to a multiRead.
struct ReadResults<'t> {
    results: Vec<ReadResult<'t>>,
    of_keeper: bool,
}

impl Encode for ReadResults<'_> {
    fn encode(&self, out: &mut impl BufMut) {
        for result in &self.results {
            match *result {
                // `ZooKeeperMultiResponse::writeImpl` of ClickHouse: the type of the read, and no record.
                ReadResult::Error(op, err) if self.of_keeper => {
                    MultiHeader { op, done: false, err }.encode(out);
                }
                _ => result.to_wire().encode(out),
            }
        }
        // The end.
        MultiReply::new(&[]).encode(out);
    }
}

impl ReadResult<'_> {
    /// The size of the names or of the data, in bytes.
    fn size(&self) -> usize {
        match self {
            Self::Data(node, _) => node.data.as_ref().map_or(0, |data| data.len()),
            Self::Children(names) => names.iter().map(|name| name.as_bytes().len()).sum(),
            Self::Error(..) => 0,
        }
    }

    fn to_wire(&self) -> MultiResult<'_> {
        match self {
            Self::Data(node, stat) => {
                MultiResult::GetData(GetDataReply { data: node.data.as_deref(), stat: *stat })
            }
            Self::Children(names) => {
                MultiResult::GetChildren(GetChildrenReply { children: List::new(names) })
            }
            Self::Error(_, err) => MultiResult::Error(*err),
        }
    }
}

/// The results of a multiRead, up to the first write or null path.
fn multi_read<'t>(ops: &MultiRequest<'_>, tree: &'t Tree, ids: &[Ident]) -> Vec<ReadResult<'t>> {
    let result = |op| {
        let (MultiOp::GetData(r) | MultiOp::GetChildren(r)) = op else { return None };
        let path = prep::text(r.path).ok()?;
        Some(match (readable(tree, &path, ids), op) {
            (Ok(node), MultiOp::GetData(_)) => ReadResult::Data(node, node.stat()),
            (Ok(node), _) => ReadResult::Children(names(node)),
            (Err(err), _) => ReadResult::Error(op.op_code(), err),
        })
    };
    ops.iter().map_while(result).collect()
}

pub(super) const fn is_read(op: &MultiOp<'_>) -> bool {
    matches!(op, MultiOp::GetData(_) | MultiOp::GetChildren(_))
}
