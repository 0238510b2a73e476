//! Writes: checked on the leader's tree, put into the log, answered with what they have done.
//!
//! Source: `FinalRequestProcessor`, `PrepRequestProcessor`.

use docent_protocol::{
    ErrorCode, OpCode, Text,
    multi::{MultiReply, MultiRequest, MultiResult},
    reply::{Create2Reply, EmptyReply, PathReply, StatReply},
    request::Request,
};

use super::{
    ensemble::Ensemble,
    prep::{self, Asker, MultiRefusal, Refusal, ResultType},
    reads::is_read,
    requests::Context,
    tree::{Applied, Tree, Txn},
};

impl Ensemble {
    pub(super) fn write(&mut self, context: Context, request: &Request<'_>) {
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
    pub(super) fn with_asker<T>(
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
            sasl: self.config.has_sasl(),
            local: context.local,
        };
        let member = self.members.get_mut(leader).ok_or(ErrorCode::SystemError)?;
        check(&mut member.tree, &asker)
    }

    pub(super) fn written(&mut self, context: Context, zxid: i64, applied: &Applied) {
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

    pub(super) fn multi(&mut self, context: Context, leader: usize, ops: &MultiRequest<'_>) {
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
