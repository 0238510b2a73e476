//! What administrators and tools ask for: ACLs, ids, counts, the ensemble's members, any request at all.

use docent_protocol::{
    Acl, Decode, List, OpCode, Stat, Text,
    acl::AclList,
    call::{
        Call, GetAcl, GetAllChildrenNumber, GetEphemerals, Reconfig as ReconfigCall, SetAcl, WhoAmI,
    },
    jute::Reader,
    reply::{GetAclReply, GetAllChildrenNumberReply, GetChildrenReply, WhoAmIReply},
    request::{PathRequest, ReconfigRequest, SetAclRequest},
};

use super::{ANY_VERSION, Client, node, stat};
use crate::{Node, Response, WatchResponse, chroot::Chroot, response::readers, state::Body};

/// The ensemble's configuration.
///
/// Source: `ZooDefs.CONFIG_NODE`.
const CONFIG_NODE: &str = "/zookeeper/config";

impl Client {
    /// Reads the ACL of a node, and its Stat: `aversion` is what [`set_acl`](Self::set_acl) compares.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth` (neither READ nor ADMIN is allowed). Who lacks ADMIN sees digest ids without their
    /// digests.
    ///
    /// Source: op 6.
    pub fn get_acl(&self, path: &str) -> Response<(AclEntries, Stat)> {
        self.path_call(OpCode::GetAcl, path, acl_and_stat, |at| {
            self.call(path, &GetAcl(PathRequest { path: at.into() }))
        })
    }

    /// Writes the ACL of a node, if it has this *ACL* version (`aversion`); `None` is any. Returns the new Stat.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth` (ADMIN is not allowed), `InvalidAcl`, `BadVersion`; `ConnectionLoss` with
    /// [`Outcome::Unknown`](crate::Outcome::Unknown) when it may have been written.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future gives up the answer, not the request.
    ///
    /// Source: op 7.
    pub fn set_acl(&self, path: &str, acl: &[Acl<'_>], version: Option<i32>) -> Response<Stat> {
        self.path_call(OpCode::SetAcl, path, stat, |at| {
            let version = version.unwrap_or(ANY_VERSION);
            self.call(
                path,
                &SetAcl(SetAclRequest { path: at.into(), acl: AclList::new(acl), version }),
            )
        })
    }

    /// Lists the paths of this session's ephemeral nodes that begin with `prefix`; `/` is all. The prefix is
    /// one of text: `/a` finds `/ab`. Servers since 3.6.0.
    ///
    /// Under a chroot, only nodes below it are listed, by the client's paths. (Java does neither.)
    ///
    /// # Errors
    ///
    /// `Unimplemented` from older servers, which then close the connection.
    ///
    /// Source: op 103.
    pub fn get_ephemerals(&self, prefix: &str) -> Response<Vec<String>> {
        self.path_call(OpCode::GetEphemerals, prefix, ephemerals, |at| {
            self.call(prefix, &GetEphemerals(PathRequest { path: at.into() }))
        })
    }

    /// Counts a node's descendants, not itself. Servers since 3.6.0.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth`; `Unimplemented` from older servers, which then close the connection.
    ///
    /// Source: op 104.
    pub fn get_all_children_number(&self, path: &str) -> Response<i32> {
        self.path_call(OpCode::GetAllChildrenNumber, path, children_number, |at| {
            self.call(path, &GetAllChildrenNumber(PathRequest { path: at.into() }))
        })
    }

    /// Asks under which ids the server knows this connection. Servers since 3.7.0.
    ///
    /// # Errors
    ///
    /// `Unimplemented` from older servers, which then close the connection.
    ///
    /// Source: op 107.
    pub fn who_am_i(&self) -> Response<Vec<ClientInfo>> {
        Response::waiting(self.call("", &WhoAmI), client_infos, OpCode::WhoAmI, Chroot::default())
    }

    /// Reads the ensemble's configuration: its members and its version, as text. No chroot applies.
    ///
    /// # Errors
    ///
    /// `NoNode` from servers before 3.5, `NoAuth`.
    ///
    /// Source: `ZooKeeper.getConfig`: op 4 on `/zookeeper/config`.
    pub fn get_config(&self) -> Response<Node> {
        self.without_chroot().get_data(CONFIG_NODE)
    }

    /// As [`get_config`](Self::get_config), and watches for the next reconfiguration.
    ///
    /// # Errors
    ///
    /// As [`get_config`](Self::get_config); there is no watch then.
    pub fn get_config_and_watch(&self) -> WatchResponse<Node> {
        self.without_chroot().get_data_and_watch(CONFIG_NODE)
    }

    /// Changes the ensemble's members, if its configuration has this version; `None` is any. Returns the new
    /// configuration.
    ///
    /// # Errors
    ///
    /// `NoAuth` (it takes the super user unless the ACL of `/zookeeper/config` was changed), `BadVersion`,
    /// `BadArguments`, `NewConfigNoQuorum`, `ReconfigInProgress`, `ReconfigDisabled` (`reconfigEnabled` is off
    /// by default), `Unimplemented` (a server outside an ensemble). With
    /// [`Outcome::Unknown`](crate::Outcome::Unknown) on `ConnectionLoss`, which is likely when the server this
    /// client is connected to is removed.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future gives up the answer, not the request.
    ///
    /// Source: `ZooKeeperAdmin.reconfigure`; op 16.
    pub fn reconfig(&self, change: Reconfig<'_>, from_config: Option<i64>) -> Response<Node> {
        let (joining, leaving, members) = match change {
            Reconfig::Incremental { joining, leaving } => (
                joining.map_or(Text::NULL, Text::new),
                leaving.map_or(Text::NULL, Text::new),
                Text::NULL,
            ),
            Reconfig::Members(members) => (Text::NULL, Text::NULL, Text::new(members)),
        };
        let call = ReconfigCall(ReconfigRequest {
            joining_servers: joining,
            leaving_servers: leaving,
            new_members: members,
            cur_config_id: from_config.unwrap_or(-1),
        });
        Response::waiting(self.call("", &call), node, OpCode::Reconfig, Chroot::default())
    }

    /// Sends any request a client may send and returns the reply's body as it came, for tools. Paths are the
    /// server's: no chroot applies, and none is checked. No watch is registered here for a request that
    /// leaves one.
    ///
    /// # Errors
    ///
    /// Whatever the server answers; `RequestTooLarge`.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future gives up the answer, not the request.
    pub fn submit(&self, call: &impl Call) -> Response<Body> {
        Response::waiting(self.call("", call), whole, call.op_code(), Chroot::default())
    }
}

/// How [`Client::reconfig`] changes the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reconfig<'a> {
    /// Some come, some go.
    Incremental {
        /// Comma-separated, as in a configuration file:
        /// `server.3=host:2888:3888:participant;2181`.
        joining: Option<&'a str>,
        /// Comma-separated ids: `1,2`.
        leaving: Option<&'a str>,
    },
    /// These and no others, as in a configuration file, comma-separated.
    Members(&'a str),
}

/// One id of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ClientInfo {
    /// How it was proved: `ip`, `digest`, `sasl`, `x509`, `super`.
    pub auth_scheme: String,
    /// Who; of a digest, the user alone.
    pub user: String,
}

/// The ACL of a node, as the server sent it.
#[derive(Clone, Default)]
pub struct AclEntries {
    /// A [`GetAclReply`] that was decoded once without an error.
    body: bytes::Bytes,
}

impl AclEntries {
    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = Acl<'_>> {
        GetAclReply::decode(&mut Reader::new(&self.body))
            .into_iter()
            .flat_map(|reply| reply.acl.iter())
    }

    /// The entries, as [`Client::set_acl`] takes them.
    #[must_use]
    pub fn to_vec(&self) -> Vec<Acl<'_>> {
        self.iter().collect()
    }
}

impl std::fmt::Debug for AclEntries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

readers! {
    pub(crate) fn whole -> Body = |reply| Ok(reply.body());

    fn children_number -> i32 = |reply| Ok(reply.read::<GetAllChildrenNumberReply>()?.total_number);

    fn acl_and_stat -> (AclEntries, Stat) = |reply| {
        let stat = reply.read::<GetAclReply<'_>>()?.stat;
        Ok((AclEntries { body: reply.keep(reply.bytes()) }, stat))
    };

    fn ephemerals -> Vec<String> = |reply| {
        let found = reply.read::<GetChildrenReply<'_>>()?;
        let chroot = reply.chroot();
        let paths = found.children.iter().map(|path| path.to_str());
        // The server's prefix is one of text: under the chroot /app it finds /apple too.
        Ok(paths
            .filter(|path| chroot.contains(path))
            .map(|path| chroot.strip(&path).to_owned())
            .collect())
    };

    fn client_infos -> Vec<ClientInfo> = |reply| {
        let infos: List<'_, _> = reply.read::<WhoAmIReply<'_>>()?.client_info;
        Ok(infos
            .iter()
            .map(|info| ClientInfo {
                auth_scheme: info.auth_scheme.to_str().into_owned(),
                user: info.user.to_str().into_owned(),
            })
            .collect())
    };
}
