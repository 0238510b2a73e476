//! Operations for administrators and tools: ACLs, authentication ids, counts, the members of the ensemble, and raw
//! requests.

use docent_protocol::{
    Acl, OpCode, Stat, Text,
    acl::AclList,
    operation::{
        ApplicationOperation, GetAcl, GetAllChildrenNumber, GetEphemerals,
        Reconfig as ReconfigCall, SetAcl, WhoAmI,
    },
    request::{PathRequest, ReconfigRequest, SetAclRequest},
};

use super::{
    arguments::ANY_VERSION,
    chroot::Chroot,
    client::Client,
    exchange::{nothing, whole},
    response::{AclEntries, ClientInfo, Node, Response},
    watcher::WatchResponse,
};
use crate::{config::Credential, driver::Machine, machine::Body};

/// The node of the ensemble's configuration.
///
/// Source: `ZooDefs.CONFIG_NODE`.
const CONFIG_NODE: &str = "/zookeeper/config";

/// # Access control and administration
impl Client {
    /// Adds credentials. They are sent to this server now, and to every later server before any request. For `digest`,
    /// `auth` is `user:password`, which is sent in clear text unless the connection is encrypted.
    ///
    /// # Errors
    ///
    /// `AuthFailed` when the server refuses them. The client has then ended and cannot be used again, as in Java.
    /// `RequestTooLarge` above [`max_request_bytes`](crate::Config::with_max_request_bytes): nothing is sent or kept.
    /// `ConnectionLoss` when there is no usable connection for the [connection
    /// timeout](crate::Config::with_connection_timeout), `OperationTimeout` when there is no reply within the [request
    /// timeout](crate::Config::with_request_timeout), if there is one: they are sent on the next connection all the same.
    ///
    /// Source: `ZooKeeper.addAuthInfo`; op 100, xid -4.
    pub fn add_auth(&self, scheme: &str, auth: &[u8]) -> Response<()> {
        let credential = Credential::new(scheme, auth);
        let shared = &self.handle.shared;
        let now = || shared.clock().now();
        let add = |machine: &mut Machine, token| machine.add_auth(credential, token, now);
        let answer = shared.request("", add);
        Response::waiting(answer, nothing, OpCode::Auth, Chroot::default())
    }

    /// Reads the ACL and the Stat of a node. [`set_acl`](Self::set_acl) compares with the Stat's `aversion`.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth` (both READ and ADMIN are denied). Without ADMIN, digest ids are returned without their
    /// digests.
    ///
    /// Source: op 6.
    pub fn get_acl(&self, path: &str) -> Response<(AclEntries, Stat)> {
        let at = self.chroot.prefix(path);
        self.request(path, &GetAcl(PathRequest { path: (&*at).into() }))
    }

    /// Writes the ACL of a node if it has this *ACL* version (`aversion`); `None` matches any version. Returns the new
    /// Stat.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth` (ADMIN is denied), `InvalidAcl`, `BadVersion`. `ConnectionLoss` with
    /// [`Outcome::Unknown`](crate::Outcome::Unknown) when the ACL may have been written.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future discards the reply; the request is still sent.
    ///
    /// Source: op 7.
    pub fn set_acl(&self, path: &str, acl: &[Acl<'_>], version: Option<i32>) -> Response<Stat> {
        let (at, acl) = (self.chroot.prefix(path), AclList::new(acl));
        let version = version.unwrap_or(ANY_VERSION);
        self.request(path, &SetAcl(SetAclRequest { path: (&*at).into(), acl, version }))
    }

    /// Lists the paths of this session's ephemeral nodes that begin with `prefix`; `/` lists all. The prefix is
    /// compared as text, not by components: `/a` matches `/ab`. Servers since 3.6.0.
    ///
    /// Under a chroot, only nodes below it are listed, with the client's paths. (Java does neither.)
    ///
    /// # Errors
    ///
    /// `Unimplemented` from older servers; see [missing operations](#missing-operations).
    ///
    /// Source: op 103.
    pub fn get_ephemerals(&self, prefix: &str) -> Response<Vec<String>> {
        let at = self.chroot.prefix(prefix);
        self.request(prefix, &GetEphemerals(PathRequest { path: (&*at).into() }))
    }

    /// Counts the descendants of a node, without the node itself. Servers since 3.6.0.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth`; `Unimplemented` from older servers; see [missing operations](#missing-operations).
    ///
    /// Source: op 104.
    pub fn get_all_children_number(&self, path: &str) -> Response<i32> {
        let at = self.chroot.prefix(path);
        self.request(path, &GetAllChildrenNumber(PathRequest { path: (&*at).into() }))
    }

    /// Reads the ids by which the server has authenticated this connection. Servers since 3.7.0.
    ///
    /// # Errors
    ///
    /// `Unimplemented` from older servers; see [missing operations](#missing-operations).
    ///
    /// Source: op 107.
    pub fn who_am_i(&self) -> Response<Vec<ClientInfo>> {
        self.request_if(Ok(()), "", &WhoAmI)
    }

    /// Reads the ensemble's configuration, its members and its version, as text. The chroot does not apply.
    ///
    /// # Errors
    ///
    /// `NoNode` from servers before 3.5, `NoAuth`.
    ///
    /// Source: `ZooKeeper.getConfig`: op 4 on `/zookeeper/config`.
    pub fn get_config(&self) -> Response<Node> {
        self.without_chroot().get_data(CONFIG_NODE)
    }

    /// As [`get_config`](Self::get_config), with a watch for the next reconfiguration.
    ///
    /// # Errors
    ///
    /// As [`get_config`](Self::get_config); no watch is set then.
    pub fn get_config_and_watch(&self) -> WatchResponse<Node> {
        self.without_chroot().get_data_and_watch(CONFIG_NODE)
    }

    /// Changes the members of the ensemble if its configuration has this version; `None` matches any version. Returns
    /// the new configuration.
    ///
    /// # Errors
    ///
    /// `NoAuth` (the super user is required unless the ACL of `/zookeeper/config` was changed), `BadVersion`,
    /// `BadArguments`, `NewConfigNoQuorum`, `ReconfigInProgress`, `ReconfigDisabled` (`reconfigEnabled` is off by
    /// default), `Unimplemented` (a server outside an ensemble). `ConnectionLoss` has
    /// [`Outcome::Unknown`](crate::Outcome::Unknown); it is likely when the server of this connection is removed.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future discards the reply; the request is still sent.
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
        self.request_if(Ok(()), "", &call)
    }

    /// Sends any client request and returns the raw body of its reply, for tools. Paths are the server's: the chroot
    /// does not apply, and paths are not checked. A request that sets a watch on the server registers none in the
    /// client.
    ///
    /// The session's own requests cannot be sent here: see [`ApplicationOperation`]. For example, a ping is answered under a
    /// reserved xid that matches no pending request, so that it would break the connection:
    ///
    /// ```compile_fail,E0277
    /// # use docent_protocol::operation::Ping;
    /// # fn example(client: &docent_session::Client) {
    /// drop(client.submit(&Ping));
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Every error that the server returns; `RequestTooLarge`; `BadArguments` for a write that would stop the server, which
    /// is not sent: [`harm`](ApplicationOperation::harm).
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself. Dropping the future discards the reply; the request is still sent.
    // Public for tests that send what no other method does: the requests are types of docent-protocol.
    #[doc(hidden)]
    pub fn submit(&self, call: &impl ApplicationOperation) -> Response<Body> {
        let answer = self.handle.shared.submit("", call, None);
        Response::waiting(answer, whole, call.op_code(), Chroot::default())
    }
}

/// How [`Client::reconfig`] changes the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reconfig<'a> {
    /// Some members join, some leave.
    Incremental {
        /// Comma-separated, in the syntax of a configuration file:
        /// `server.3=host:2888:3888:participant;2181`.
        joining: Option<&'a str>,
        /// Comma-separated ids: `1,2`.
        leaving: Option<&'a str>,
    },
    /// The complete list of members, comma-separated, in the syntax of a configuration file.
    Members(&'a str),
}
