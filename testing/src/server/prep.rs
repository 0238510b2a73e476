//! Checks writes, in the order of a real server, and creates their transactions.
//!
//! Every check sees the tree as all earlier writes have left it. The order matters: it decides which error a request
//! with two faults receives.
//!
//! Source: `PrepRequestProcessor.pRequest2Txn`.

use std::borrow::Cow;

use bytes::Bytes;
use docent_protocol::{
    CreateMode, Decode as _, ErrorCode, OpCode, Perms, Text, Ttl,
    acl::AclList,
    jute::Reader,
    multi::{MultiOp, MultiRequest},
    path::{self, PathError},
    request::{CreateRequest, CreateTtlRequest, Request, RequestHeader},
};

use super::{
    acl::{self, Ident},
    tree::{self, Kind, Node, Tree, Txn},
    version::Version,
};

/// The requesting session, and the properties of its server.
pub(crate) struct Asker<'a> {
    pub(crate) session_id: i64,
    pub(crate) ids: &'a [Ident],
    pub(crate) version: Version,
    /// `extendedTypesEnabled`: whether TTL nodes are allowed.
    pub(crate) ttls: bool,
    pub(crate) schemes: acl::Schemes,
    /// Whether changes over the hard limit of a quota are refused.
    pub(crate) quotas: bool,
    /// Whether the session is local, that is, known to one server only.
    pub(crate) local: bool,
}

/// A create, from any of the create operations.
struct NewNode<'a> {
    path: Text<'a>,
    data: Option<&'a [u8]>,
    acl: AclList<'a>,
    flags: i32,
    /// The TTL of a createTTL; `None` for all other operations.
    ttl: Option<i64>,
    container: bool,
}

impl<'a> NewNode<'a> {
    const fn plain(r: &CreateRequest<'a>, container: bool) -> Self {
        Self { path: r.path, data: r.data, acl: r.acl, flags: r.flags, ttl: None, container }
    }

    const fn with_ttl(r: &CreateTtlRequest<'a>) -> Self {
        let container = false;
        Self { path: r.path, data: r.data, acl: r.acl, flags: r.flags, ttl: Some(r.ttl), container }
    }
}

/// The server's reaction to a refused write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A reply with this error.
    Error(ErrorCode),
    /// A request that would damage a real server; here it ends the connection. (createTTL without a TTL mode and with
    /// a negative TTL stops a real server permanently; so does a quota for the whole tree.)
    Destructive,
}

impl From<ErrorCode> for Refusal {
    fn from(err: ErrorCode) -> Self {
        Self::Error(err)
    }
}

/// Creates the transaction of a write other than a multi.
pub(crate) fn prepare(
    request: &Request<'_>,
    tree: &Tree,
    asker: &Asker<'_>,
) -> Result<Txn, Refusal> {
    match request {
        Request::Create(r) | Request::Create2(r) => create(&NewNode::plain(r, false), tree, asker),
        Request::CreateContainer(r) => create(&NewNode::plain(r, true), tree, asker),
        Request::CreateTtl(r) => create(&NewNode::with_ttl(r), tree, asker),
        Request::Delete(r) => Ok(delete(r.path, r.version, tree, asker)?),
        Request::SetData(r) => {
            let path = valid(r.path, asker)?;
            let node = tree.node(&path)?;
            acl::check(&node.acl, Perms::WRITE, asker.ids)?;
            if asker.quotas {
                let old = node.data.as_ref().map_or(0, Bytes::len);
                tree.check_quota(&path, difference(r.data.map_or(0, <[u8]>::len), old), 0)?;
            }
            let version = next_version(node.version, r.version)?;
            Ok(Txn::SetData {
                path: path.into_owned(),
                data: r.data.map(Bytes::copy_from_slice),
                version,
            })
        }
        Request::SetAcl(r) => {
            let path = valid(r.path, asker)?;
            let acl = acl::fix_up(r.acl, asker.ids, asker.version, asker.schemes)?;
            let node = tree.node(&path)?;
            acl::check(&node.acl, Perms::ADMIN, asker.ids)?;
            let version = next_version(node.aversion, r.version)?;
            Ok(Txn::SetAcl { path: path.into_owned(), acl, version })
        }
        Request::Check(r) => {
            let path = valid(r.path, asker)?;
            let node = tree.node(&path)?;
            acl::check(&node.acl, Perms::READ, asker.ids)?;
            next_version(node.version, r.version)?;
            Ok(Txn::Check)
        }
        Request::DeleteContainer(r) if asker.version >= Version::V3_9 => {
            Ok(delete_container(r.path, tree)?)
        }
        _ => Err(Refusal::Error(ErrorCode::BadArguments)),
    }
}

fn create(new: &NewNode<'_>, tree: &Tree, asker: &Asker<'_>) -> Result<Txn, Refusal> {
    let mode = Mode::of(new.flags, asker.version)?;
    if mode.ttl && !asker.ttls {
        return Err(ErrorCode::Unimplemented.into());
    }
    match (mode.ttl, new.ttl) {
        (false, None) => {}
        (true, Some(ttl)) if Ttl::from_millis(ttl).is_some() => {}
        (false, Some(..0)) => return Err(Refusal::Destructive),
        _ => return Err(ErrorCode::BadArguments.into()),
    }
    if mode.ephemeral && asker.local {
        return Err(ErrorCode::EphemeralOnLocalSession.into());
    }
    let asked = text(new.path)?;
    let parent_path = match asked.rsplit_once('/') {
        Some((parent, _)) if !asked.contains('\0') => parent,
        _ => return Err(ErrorCode::BadArguments.into()),
    };
    let acl = acl::fix_up(new.acl, asker.ids, asker.version, asker.schemes)?;
    let parent = tree.node(parent_path)?;
    acl::check(&parent.acl, Perms::CREATE, asker.ids)?;
    let path = if mode.sequential {
        format!("{asked}{:010}", parent.cversion)
    } else {
        asked.clone().into_owned()
    };
    valid_path(&path, asker.version)?;
    if tree.get(&path).is_some() {
        return Err(ErrorCode::NodeExists.into());
    }
    if matches!(parent.kind, Kind::Ephemeral(_)) {
        return Err(ErrorCode::NoChildrenForEphemerals.into());
    }
    if path == tree::ROOT_LIMITS {
        return Err(Refusal::Destructive);
    }
    if asker.quotas {
        tree.check_quota(&path, difference(new.data.map_or(0, <[u8]>::len), 0), 1)?;
    }
    let kind = match mode {
        // ClickHouse#108908.
        _ if new.container => Kind::Container(if asker.version.is_keeper() { i64::MIN } else { 0 }),
        Mode { ttl: true, .. } => Kind::Ttl(new.ttl.unwrap_or(0)),
        Mode { ephemeral: true, .. } => Kind::Ephemeral(asker.session_id),
        _ => Kind::Persistent,
    };
    let data = new.data.map(Bytes::copy_from_slice);
    Ok(Txn::Create { path, data, acl, kind, parent_cversion: parent.cversion.wrapping_add(1) })
}

/// The difference between two lengths.
fn difference(new: usize, old: usize) -> i64 {
    let number = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
    number(new) - number(old)
}

/// The flags of a create, decoded.
#[derive(Debug, Clone, Copy)]
struct Mode {
    ephemeral: bool,
    sequential: bool,
    ttl: bool,
}

impl Mode {
    fn of(flags: i32, version: Version) -> Result<Self, ErrorCode> {
        let last = if version.knows(OpCode::CreateTtl) {
            6
        } else if version.has_containers() {
            4
        } else {
            3
        };
        if !(0..=last).contains(&flags) {
            return Err(ErrorCode::BadArguments);
        }
        let is = |modes: &[CreateMode]| modes.iter().any(|mode| mode.flags() == flags);
        Ok(Self {
            ephemeral: is(&[CreateMode::Ephemeral, CreateMode::EphemeralSequential]),
            sequential: is(&[CreateMode::PersistentSequential, CreateMode::EphemeralSequential])
                || flags == 6,
            ttl: matches!(flags, 5 | 6),
        })
    }
}

/// Whether a request creates an ephemeral node, as far as it can be read.
pub(super) fn creates_ephemeral(op: OpCode, payload: &[u8]) -> bool {
    let is_ephemeral = |flags: i32| {
        [CreateMode::Ephemeral, CreateMode::EphemeralSequential]
            .iter()
            .any(|of| of.flags() == flags)
    };
    let mut reader = Reader::new(payload);
    let request = RequestHeader::decode(&mut reader).and_then(|_| Request::decode(op, &mut reader));
    match request {
        Ok(Request::Create(of) | Request::Create2(of)) => is_ephemeral(of.flags),
        Ok(Request::Multi(ops)) => ops.iter().any(|op| match op {
            MultiOp::Create(of) | MultiOp::Create2(of) => is_ephemeral(of.flags),
            _ => false,
        }),
        _ => false,
    }
}

/// Whether the node can never be deleted.
fn is_special(path: &str, version: Version) -> bool {
    matches!(path, "/" | "/zookeeper" | "/zookeeper/quota")
        || path == "/zookeeper/config" && version.has_config_node()
}

fn delete(path: Text<'_>, version: i32, tree: &Tree, asker: &Asker<'_>) -> Result<Txn, ErrorCode> {
    let path = text(path)?;
    let parent = match path.rsplit_once('/') {
        Some((parent, _)) if !path.contains('\0') && !is_special(&path, asker.version) => parent,
        _ => return Err(ErrorCode::BadArguments),
    };
    acl::check(&tree.node(parent)?.acl, Perms::DELETE, asker.ids)?;
    let node = tree.node(&path)?;
    next_version(node.version, version)?;
    empty(node)?;
    Ok(Txn::Delete { path: path.into_owned() })
}

/// Creates the reaper's delete transaction, without an ACL check for any requester.
pub(crate) fn delete_container(path: Text<'_>, tree: &Tree) -> Result<Txn, ErrorCode> {
    let path = text(path)?;
    if !path.contains('/') || is_special(&path, Version::V3_9) {
        return Err(ErrorCode::BadArguments);
    }
    let node = tree.node(&path)?;
    empty(node)?;
    if matches!(node.kind, Kind::Ephemeral(_)) {
        return Err(ErrorCode::BadVersion);
    }
    Ok(Txn::Delete { path: path.into_owned() })
}

fn empty(node: &Node) -> Result<(), ErrorCode> {
    if node.children.is_empty() { Ok(()) } else { Err(ErrorCode::NotEmpty) }
}

/// The version after `current`, if `wanted` equals `current` or is -1.
fn next_version(current: i32, wanted: i32) -> Result<i32, ErrorCode> {
    if wanted == -1 || wanted == current {
        Ok(current.wrapping_add(1))
    } else {
        Err(ErrorCode::BadVersion)
    }
}

/// The text of a path. A real server fails on a null path with `MarshallingError`.
pub(crate) fn text(path: Text<'_>) -> Result<Cow<'_, str>, ErrorCode> {
    if path.is_null() { Err(ErrorCode::MarshallingError) } else { Ok(path.to_str()) }
}

fn valid<'a>(path: Text<'a>, asker: &Asker<'_>) -> Result<Cow<'a, str>, ErrorCode> {
    if path.is_null() {
        return Err(ErrorCode::BadArguments);
    }
    let path = path.to_str();
    valid_path(&path, asker.version)?;
    Ok(path)
}

fn valid_path(path: &str, version: Version) -> Result<(), ErrorCode> {
    match path::validate(path) {
        Ok(()) => Ok(()),
        Err(PathError::InvalidCharacter(character, _)) if version.allows_in_names(character) => {
            // This version allows the first invalid character; check the rest of the path.
            valid_path(&path.replace(character, "x"), version)
        }
        Err(_) => Err(ErrorCode::BadArguments),
    }
}

/// The result type of an operation in a multi.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultType {
    Create,
    Create2,
    Other(OpCode),
}

/// A checked multi: its changes, and the types of its results.
pub(crate) type PreparedMulti = (Vec<Txn>, Vec<ResultType>);

/// The reason why a multi was refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MultiRefusal {
    /// The multi as a whole; the error is in the header of the reply.
    Whole(ErrorCode),
    /// One operation: its index, the number of operations, and the error.
    At(usize, usize, ErrorCode),
    /// See [`Refusal::Destructive`].
    Destructive,
}

/// Creates the transaction of a multi. Leaves the tree unchanged.
pub(crate) fn prepare_multi(
    ops: &MultiRequest<'_>,
    tree: &mut Tree,
    asker: &Asker<'_>,
) -> Result<PreparedMulti, MultiRefusal> {
    let ops: Vec<_> = ops.iter().collect();
    if !ops.iter().all(|op| is_write(op, asker.version)) {
        return Err(MultiRefusal::Whole(ErrorCode::MarshallingError));
    }
    let (mut txns, mut types, mut undos) = (Vec::new(), Vec::new(), Vec::new());
    let mut refusal = None;
    for (at, op) in ops.iter().enumerate() {
        let (request, result) = match multi_op(*op, asker.version) {
            Ok(understood) => understood,
            Err(err) => {
                refusal = Some(MultiRefusal::Whole(err));
                break;
            }
        };
        match prepare(&request, tree, asker) {
            Ok(txn) => {
                undos.extend(tree.apply_tentatively(&txn));
                txns.push(txn);
                types.push(result);
            }
            Err(Refusal::Error(err)) => {
                refusal = Some(MultiRefusal::At(at, ops.len(), err));
                break;
            }
            Err(Refusal::Destructive) => {
                refusal = Some(MultiRefusal::Destructive);
                break;
            }
        }
    }
    undos.into_iter().rev().for_each(|undo| tree.revert(undo));
    match refusal {
        Some(refusal) => Err(refusal),
        None => Ok((txns, types)),
    }
}

/// The path of an operation of a multi.
pub(crate) const fn path_of<'a>(op: &MultiOp<'a>) -> Text<'a> {
    match op {
        MultiOp::Create(r) | MultiOp::Create2(r) | MultiOp::CreateContainer(r) => r.path,
        MultiOp::CreateTtl(r) => r.path,
        MultiOp::Delete(r) => r.path,
        MultiOp::SetData(r) => r.path,
        MultiOp::Check(r) => r.path,
        MultiOp::GetData(r) | MultiOp::GetChildren(r) => r.path,
        _ => Text::NULL,
    }
}

/// Whether the operation is allowed in a multi.
const fn is_write(op: &MultiOp<'_>, version: Version) -> bool {
    match op {
        MultiOp::Create(_) | MultiOp::Delete(_) | MultiOp::SetData(_) | MultiOp::Check(_) => true,
        MultiOp::Create2(_) | MultiOp::CreateContainer(_) => version.has_containers(),
        MultiOp::CreateTtl(_) => version.knows(OpCode::CreateTtl),
        _ => false,
    }
}

/// Converts an operation of a multi to the request that the server understands, which can differ from the one sent.
/// The differences between versions are measured.
///
/// Source: `MultiOperationRecord.deserialize`, `Op.create`.
fn multi_op(op: MultiOp<'_>, version: Version) -> Result<(Request<'_>, ResultType), ErrorCode> {
    let old = !version.has_containers();
    Ok(match op {
        MultiOp::Create(r) | MultiOp::Create2(r) | MultiOp::CreateContainer(r) => {
            let flags = r.flags;
            let nonsense = !(0..=6).contains(&flags);
            if !old && matches!(flags, 5 | 6) || nonsense && version >= Version::V3_9 {
                return Err(ErrorCode::MarshallingError);
            }
            if !old && flags == 4 {
                (Request::CreateContainer(r), ResultType::Create2)
            } else if version.multi_keeps_create2() {
                match op {
                    MultiOp::Create(_) => (Request::Create(r), ResultType::Create),
                    MultiOp::CreateContainer(_) => {
                        (Request::CreateContainer(r), ResultType::Create2)
                    }
                    _ => (Request::Create2(r), ResultType::Create2),
                }
            } else {
                (Request::Create(r), ResultType::Create)
            }
        }
        MultiOp::CreateTtl(r) => (Request::CreateTtl(r), ResultType::Create2),
        MultiOp::Delete(r) => (Request::Delete(r), ResultType::Other(OpCode::Delete)),
        MultiOp::SetData(r) => (Request::SetData(r), ResultType::Other(OpCode::SetData)),
        MultiOp::Check(r) => (Request::Check(r), ResultType::Other(OpCode::Check)),
        _ => return Err(ErrorCode::MarshallingError),
    })
}
