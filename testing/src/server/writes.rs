//! Writes: checked by the leader, appended to the log, and answered with their result by the client's server.
//!
//! Source: `FinalRequestProcessor`, `PrepRequestProcessor`.

use std::sync::Arc;

use docent_protocol::{
    Decode as _, ErrorCode, OpCode, Perms, Text,
    jute::Reader,
    multi::{MultiReply, MultiRequest, MultiResult},
    reply::{Create2Reply, EmptyReply, GetDataReply, PathReply, StatReply},
    request::{ReconfigRequest, Request, RequestHeader},
};

use super::{
    acl::{self, Ident},
    ensemble::Ensemble,
    membership::Membership,
    messages::{Answer, Body, Context, Forwarded, Write},
    prep::{self, Asker, MultiRefusal, Refusal, ResultType},
    reads::is_read,
    sessions::Standing,
    tree::{Applied, CONFIG_NODE, Tree, Txn},
    version::Version,
};

/// A write as checked by the leader.
enum Outcome {
    /// A change to order, and the reply when it is applied.
    Change(Txn, Answer),
    /// A reply without a change.
    Answer(Answer),
}

impl Outcome {
    /// A refusal that uses up a zxid.
    const fn refusal(err: ErrorCode) -> Self {
        Self::Change(Txn::Error, Answer::Error(err))
    }
}

impl Ensemble {
    /// Handles a write, as the leader `at`.
    pub(super) fn lead_write(&mut self, at: usize, forwarded: &Forwarded) {
        let context = forwarded.context;
        match self.check_write(at, forwarded) {
            Outcome::Change(txn, answer) => self.propose(at, txn, Some((context, answer))),
            Outcome::Answer(answer) if context.member == at => self.finish(context, answer),
            Outcome::Answer(answer) => {
                self.post_to_learner(at, context.member, Body::Answer(context, answer));
            }
        }
    }

    fn check_write(&mut self, at: usize, forwarded: &Forwarded) -> Outcome {
        let Forwarded { context, ids, write } = forwarded;
        let Context { session_id, member, op, .. } = *context;
        let now = self.now;
        let Some(leading) = self.members.get_mut(at).and_then(|m| m.leading.as_mut()) else {
            return Outcome::Answer(Answer::Closed);
        };
        let payload = match write {
            Write::CreateSession { timeout, asked_read_only } => {
                let (timeout, asked_read_only) = (*timeout, *asked_read_only);
                leading.sessions.add(session_id, timeout, Some(member), now);
                let answer = Answer::SessionOpened { timeout, asked_read_only };
                return Outcome::Change(Txn::CreateSession { session_id, timeout }, answer);
            }
            Write::Request(payload) => payload,
        };
        if op == OpCode::CreateSession {
            return Outcome::refusal(ErrorCode::MarshallingError);
        }
        let mut reader = Reader::new(payload);
        let request =
            RequestHeader::decode(&mut reader).and_then(|_| Request::decode(op, &mut reader));
        if op == OpCode::CloseSession {
            if request.is_err() {
                return Outcome::Answer(Answer::Error(ErrorCode::MarshallingError));
            }
            leading.sessions.remove(session_id);
            return Outcome::Change(Txn::CloseSession { session_id }, Answer::SessionClosed);
        }
        // A write does not touch the session of another member's client.
        match leading.sessions.check(session_id, member) {
            Standing::Owned => {}
            // On the former server of the session, reads and pings still work, and closeSession is honoured.
            Standing::Moved => return Outcome::Answer(Answer::Moved),
            Standing::Unknown if context.local => {}
            Standing::Unknown => return Outcome::refusal(ErrorCode::SessionExpired),
        }
        match request {
            Ok(Request::Multi(ops)) => self.check_multi(at, context, ids, &ops),
            Ok(Request::Reconfig(request)) => match self.check_reconfig(at, ids, &request) {
                Ok(membership) => {
                    let text = membership.to_string().into();
                    Outcome::Change(Txn::Reconfig(Arc::new(membership)), Answer::Config(text))
                }
                Err(err) => Outcome::refusal(err),
            },
            Ok(request) => {
                let check =
                    |tree: &mut Tree, asker: &Asker<'_>| prep::prepare(&request, tree, asker);
                match self.with_asker(at, context, ids, check) {
                    Some(Ok(txn)) => Outcome::Change(txn, Answer::Written),
                    Some(Err(Refusal::Error(err))) => Outcome::refusal(err),
                    Some(Err(Refusal::Destructive)) | None => Outcome::Answer(Answer::Closed),
                }
            }
            Err(_) => {
                let early = op != OpCode::Reconfig && self.version_of(at).bad_write_uses_zxid();
                if op == OpCode::Multi || early {
                    Outcome::refusal(ErrorCode::MarshallingError)
                } else {
                    Outcome::Answer(Answer::Error(ErrorCode::MarshallingError))
                }
            }
        }
    }

    /// Runs a check on the tree with all changes that the leader has ordered.
    fn with_asker<T>(
        &mut self,
        at: usize,
        context: &Context,
        ids: &[Ident],
        check: impl FnOnce(&mut Tree, &Asker<'_>) -> T,
    ) -> Option<T> {
        let version = self.version_of(at);
        let asker = Asker {
            session_id: context.session_id,
            ids,
            version,
            ttls: self.config.extended_types_enabled,
            schemes: self.config.schemes(),
            quotas: self.config.enforce_quota && version.enforces_quotas(),
            local: context.local,
        };
        Some(check(self.ordered_tree(at)?, &asker))
    }

    /// Checks a change of the members. The permission is checked last, as in a real server.
    ///
    /// Source: `PrepRequestProcessor.pRequest2Txn`.
    fn check_reconfig(
        &mut self,
        at: usize,
        ids: &[Ident],
        request: &ReconfigRequest<'_>,
    ) -> Result<Membership, ErrorCode> {
        if !self.config.reconfig_enabled {
            return Err(ErrorCode::ReconfigDisabled);
        }
        if !self.config.is_ensemble() {
            return Err(ErrorCode::Unimplemented);
        }
        let committed = self.membership_of(at).version;
        let member = self.members.get(at).ok_or(ErrorCode::SystemError)?;
        let zxid = member.leading.as_ref().map_or(0, |leading| leading.zxid);
        let synced: Vec<_> = self.synced(at).collect();
        let tree = self.ordered_tree(at).ok_or(ErrorCode::SystemError)?;
        let current = Arc::clone(&tree.membership);
        if current.version != committed {
            return Err(ErrorCode::ReconfigInProgress);
        }
        if ![-1, current.version].contains(&request.cur_config_id) {
            return Err(ErrorCode::BadVersion);
        }
        let acl = tree.node(CONFIG_NODE)?.acl.clone();
        let standalone_enabled = self.config.standalone_enabled;
        let changed =
            current.changed(request, zxid + 1, standalone_enabled, self.version_of(at))?;
        if !changed.is_quorum(synced) {
            return Err(ErrorCode::NewConfigNoQuorum);
        }
        acl::check(&acl, Perms::WRITE, ids)?;
        Ok(changed)
    }

    fn check_multi(
        &mut self,
        at: usize,
        context: &Context,
        ids: &[Ident],
        ops: &MultiRequest<'_>,
    ) -> Outcome {
        let reads = ops.iter().filter(is_read).count();
        let mixed = reads > 0 && reads < ops.iter().count();
        if !mixed && ops.iter().any(|op| prep::path_of(&op).is_null()) {
            // A real server fails before it creates a transaction; the zxid is lost.
            self.skip_zxid(at);
            return Outcome::Answer(Answer::EmptyMulti);
        }
        let check = |tree: &mut Tree, asker: &Asker<'_>| prep::prepare_multi(ops, tree, asker);
        match self.with_asker(at, context, ids, check) {
            Some(Ok((txns, types))) => Outcome::Change(Txn::Multi(txns), Answer::Multi(types)),
            Some(Err(MultiRefusal::At(failed, count, err))) => {
                Outcome::Change(Txn::Error, Answer::MultiFailed { failed, count, err })
            }
            Some(Err(MultiRefusal::Whole(err))) => Outcome::refusal(err),
            Some(Err(MultiRefusal::Destructive)) | None => Outcome::Answer(Answer::Closed),
        }
    }

    /// Sends the reply to a request whose turn it is.
    pub(super) fn send_answer(
        &mut self,
        context: Context,
        zxid: i64,
        answer: &Answer,
        applied: &Applied,
    ) {
        let ok = ErrorCode::Ok;
        self.ready.insert(context.id);
        #[cfg(docent_sim)]
        self.controls.moved.extend(matches!(answer, Answer::Moved).then_some(context.session_id));
        match answer {
            Answer::Written => match applied {
                Applied::Created(path, stat) => {
                    let path = Text::new(path);
                    if context.op == OpCode::Create {
                        self.reply(context, zxid, ok, &PathReply { path });
                    } else {
                        self.reply(context, zxid, ok, &Create2Reply { path, stat: *stat });
                    }
                }
                Applied::Stat(stat) => self.reply(context, zxid, ok, &StatReply { stat: *stat }),
                Applied::Nothing | Applied::Multi(_) => {
                    self.reply(context, zxid, ok, &EmptyReply {});
                }
            },
            Answer::Multi(types) => {
                let Applied::Multi(applied) = applied else { return self.close(context.id) };
                let results: Vec<_> = applied
                    .iter()
                    .zip(types)
                    .map(|(applied, kind)| result(applied, *kind))
                    .collect();
                self.reply(context, zxid, ok, &MultiReply::new(&results));
            }
            Answer::MultiFailed { failed, count, err } => {
                let results: Vec<_> = (0..*count)
                    .map(|at| match at.cmp(failed) {
                        std::cmp::Ordering::Less => MultiResult::Error(ErrorCode::Ok),
                        std::cmp::Ordering::Equal => MultiResult::Error(*err),
                        std::cmp::Ordering::Greater => {
                            MultiResult::Error(ErrorCode::RuntimeInconsistency)
                        }
                    })
                    .collect();
                self.reply(context, zxid, ok, &MultiReply::new(&results));
            }
            Answer::Config(text) => {
                let Applied::Stat(stat) = applied else { return self.close(context.id) };
                self.reply(context, zxid, ok, &GetDataReply { data: Some(&text[..]), stat: *stat });
            }
            Answer::EmptyMulti => {
                self.reply(context, zxid, ErrorCode::MarshallingError, &MultiReply::new(&[]));
            }
            Answer::Error(err) => self.reply(context, zxid, *err, &EmptyReply {}),
            Answer::Moved
                if self.version_of(context.member) == Version::V3_4
                    && context.op == OpCode::Multi =>
            {
                let results = [MultiResult::Error(ErrorCode::SessionMoved)];
                self.reply(context, zxid, ok, &MultiReply::new(&results));
            }
            Answer::SessionOpened { timeout, asked_read_only } => {
                let Context { id, member, session_id, .. } = context;
                self.open(id, member, session_id, *timeout, false, *asked_read_only);
            }
            Answer::SessionClosed => {
                self.reply(context, zxid, ok, &EmptyReply {});
                self.close(context.id);
            }
            Answer::Moved | Answer::Closed | Answer::Synced => self.close(context.id),
        }
    }
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
