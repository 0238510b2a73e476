//! The replies of calls: the value that each is read as.

use std::task::{Context, Poll};

use docent_protocol::{
    Decode, List, Stat, frame,
    jute::Reader,
    operation::{
        AddWatch, CheckWatches, Create, Create2, Delete, Exists, GetAcl, GetAllChildrenNumber,
        GetChildren, GetChildren2, GetData, GetEphemerals, Multi, MultiRead, Operation, Reconfig,
        RemoveWatches, SetAcl, SetData, Sync, WhoAmI,
    },
    reply::{
        Create2Reply, EmptyReply, ErrorReply, GetAclReply, GetAllChildrenNumberReply,
        GetChildrenReply, GetDataReply, PathReply, StatReply, WhoAmIReply,
    },
};

use super::{
    children::Children,
    chroot::Chroot,
    response::{AclEntries, CallContext, ClientInfo, Node, PollFn},
};
use crate::{
    Error, ErrorKind, Outcome,
    driver::{PendingReply, StoredReply},
    machine::Body,
};

/// A call, and how its reply is read. The call itself knows its operation.
pub(super) trait Exchange: Operation {
    /// The value of the reply.
    type Value;

    /// The function that polls for the reply and reads it.
    fn poll_fn(&self) -> PollFn<Self::Value>;
}

/// Declares the decoders of replies, each as a [`PollFn`], and the calls with such a reply. The second parameter is the
/// chroot of the client.
macro_rules! readers {
    ($(
        $(#[$meta:meta])*
        $visibility:vis fn $name:ident($($call:ty),*) -> $value:ty = |$stored:pat_param, $chroot:pat_param| $read:expr;
    )+) => {
        $(
            $(#[$meta])*
            $visibility fn $name(
                pending: &mut PendingReply,
                cx: &Context<'_>,
                context: &CallContext,
            ) -> Poll<Result<$value, Error>> {
                let $chroot = context.chroot();
                pending.poll_read(
                    cx,
                    |error, path| context.named(error, path),
                    |$stored: &mut StoredReply| $read,
                )
            }

            $(exchange!($call => $name -> $value);)*
        )+
    };
}

macro_rules! exchange {
    ($call:ty => $name:ident -> $value:ty) => {
        impl Exchange for $call {
            type Value = $value;

            fn poll_fn(&self) -> PollFn<$value> {
                $name
            }
        }
    };
}

readers! {
    /// For a reply without a record.
    pub(super) fn nothing() -> () = |_, _| Ok(());

    pub(super) fn whole(Multi) -> Body = |stored, _| Ok(stored.reply().to_body());

    fn parts(MultiRead<'_>) -> (Body, usize) = |stored, _| Ok(stored.reply().body_of_parts());

    fn empty(Delete<'_>, Sync<'_>, CheckWatches<'_>, RemoveWatches<'_>) -> () = |stored, _| {
        stored.reply().read::<EmptyReply>()?;
        Ok(())
    };

    /// The body of an addWatch reply: four bytes that repeat the error code. Some servers leave them out.
    fn added(AddWatch<'_>) -> () = |stored, _| {
        if !stored.reply().bytes().is_empty() {
            stored.reply().read::<ErrorReply>()?;
        }
        Ok(())
    };

    /// The server's path.
    fn path() -> String = |stored, _| {
        Ok(stored.reply().read::<PathReply<'_>>()?.path.to_str().into_owned())
    };

    /// The server's path.
    fn path_and_stat() -> (String, Stat) = |stored, _| {
        let created = stored.reply().read::<Create2Reply<'_>>()?;
        Ok((created.path.to_str().into_owned(), created.stat))
    };

    fn stat(SetData<'_>, SetAcl<'_>) -> Stat = |stored, _| Ok(stored.reply().read::<StatReply>()?.stat);

    fn node(GetData<'_>, Reconfig<'_>) -> Node = |stored, _| {
        let GetDataReply { data, stat } = stored.reply().read()?;
        let len = data.map_or(0, <[u8]>::len);
        // The data come first in the record, after their length.
        let data = stored.take_part(frame::LENGTH_SIZE..frame::LENGTH_SIZE + len);
        Ok(Node { data, stat })
    };

    fn children(GetChildren<'_>) -> Children = |stored, _| {
        let reply = stored.reply();
        let mut reader = Reader::new(reply.bytes());
        Ok(Children::read(&mut reader, |list| reply.keep(list))?)
    };

    fn children_with_stat(GetChildren2<'_>) -> (Children, Stat) = |stored, _| {
        let reply = stored.reply();
        let mut reader = Reader::new(reply.bytes());
        let children = Children::read(&mut reader, |list| reply.keep(list))?;
        Ok((children, Stat::decode(&mut reader)?))
    };

    fn acl_and_stat(GetAcl<'_>) -> (AclEntries, Stat) = |stored, _| {
        let reply = stored.reply();
        let stat = reply.read::<GetAclReply<'_>>()?.stat;
        Ok((AclEntries { body: reply.keep(reply.bytes()) }, stat))
    };

    fn children_number(GetAllChildrenNumber<'_>) -> i32 = |stored, _| {
        Ok(stored.reply().read::<GetAllChildrenNumberReply>()?.total_number)
    };

    fn ephemerals(GetEphemerals<'_>) -> Vec<String> = |stored, chroot| {
        let found = stored.reply().read::<GetChildrenReply<'_>>()?;
        let paths = found.children.iter().map(|path| path.to_str());
        // The server compares the prefix as text: under the chroot /app it also matches /apple.
        Ok(paths
            .filter(|path| chroot.contains(path))
            .map(|path| chroot.strip(&path).to_owned())
            .collect())
    };

    fn client_infos(WhoAmI) -> Vec<ClientInfo> = |stored, _| {
        let infos: List<'_, _> = stored.reply().read::<WhoAmIReply<'_>>()?.client_info;
        Ok(infos
            .iter()
            .map(|info| ClientInfo {
                auth_scheme: info.auth_scheme.to_str().into_owned(),
                user: info.user.to_str().into_owned(),
            })
            .collect())
    };
}

impl Exchange for Create<'_> {
    type Value = String;

    fn poll_fn(&self) -> PollFn<String> {
        if self.is_sequential() { created::<true> } else { created::<false> }
    }
}

impl Exchange for Create2<'_> {
    type Value = (String, Stat);

    fn poll_fn(&self) -> PollFn<(String, Stat)> {
        if self.is_sequential() { created_with_stat::<true> } else { created_with_stat::<false> }
    }
}

fn created<const SEQUENTIAL: bool>(
    pending: &mut PendingReply,
    cx: &Context<'_>,
    context: &CallContext,
) -> Poll<Result<String, Error>> {
    path(pending, cx, context).map(|created| {
        client_path(context.chroot(), created?, pending.path(), SEQUENTIAL)
            .map_err(|error| context.named(error, pending.path()))
    })
}

fn created_with_stat<const SEQUENTIAL: bool>(
    pending: &mut PendingReply,
    cx: &Context<'_>,
    context: &CallContext,
) -> Poll<Result<(String, Stat), Error>> {
    path_and_stat(pending, cx, context).map(|created| {
        let (created, stat) = created?;
        client_path(context.chroot(), created, pending.path(), SEQUENTIAL)
            .map(|path| (path, stat))
            .map_err(|error| context.named(error, pending.path()))
    })
}

/// The client's path of a node that a server has created for `asked`: below the chroot, and the same, or with the number
/// of a sequential node behind it.
pub(super) fn client_path(
    chroot: &Chroot,
    created: String,
    asked: &str,
    is_sequential: bool,
) -> Result<String, Error> {
    let path = chroot.strip(&created);
    let number = path.strip_prefix(asked).filter(|_| chroot.contains(&created));
    let is_right = number.is_some_and(|number| {
        is_sequential != number.is_empty()
            && number.bytes().all(|digit| digit.is_ascii_digit() || digit == b'-')
    });
    if !is_right {
        return Err(Error::new(ErrorKind::BadReply, Outcome::Unknown)
            .with_detail(format_args!("the reply names another node, {created}")));
    }
    let below_chroot = (path.len() < created.len()).then(|| path.to_owned());
    Ok(below_chroot.unwrap_or(created))
}

exchange!(Exists<'_> => stat_if_exists -> Option<Stat>);

/// `NoNode` is a value here; an exists of a missing node sets its watch too.
fn stat_if_exists(
    pending: &mut PendingReply,
    cx: &Context<'_>,
    context: &CallContext,
) -> Poll<Result<Option<Stat>, Error>> {
    stat(pending, cx, context).map(|result| match result {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
        Err(error) => Err(error),
    })
}
