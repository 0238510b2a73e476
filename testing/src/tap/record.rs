//! The tap's records: one [`Record`] per frame, with owned data.

use std::{sync::Arc, time::Duration};

use docent_protocol::{
    Acl, ErrorCode, EventType, OpCode, Stat, Text,
    acl::AclList,
    dissect::Direction,
    multi::{MultiOp, MultiResult},
    reply::Reply,
    request::Request,
};

/// One frame or other event of a connection, in the order in which the proxy saw them.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The record's number over the whole tap: 0, 1, 2…
    pub seq: u64,
    /// Time since the start of the tap.
    pub at: Duration,
    /// The TCP connection, numbered from 1 in order of acceptance; 0 for notes.
    pub connection: u64,
    /// The client: the label of the listener, or a letter for the session. Empty for notes.
    pub client: Arc<str>,
    /// The content.
    pub what: What,
    /// The fault that the tap applied, as the text trace shows it.
    pub injected: Option<&'static str>,
}

/// The content of a [`Record`].
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A ConnectRequest. The password is not kept.
    Connect {
        /// 0 for a new session.
        session_id: i64,
        /// The last zxid that the client has seen.
        last_zxid_seen: i64,
        /// The requested session timeout, in milliseconds.
        time_out: i32,
        /// Whether the client accepts a read-only server.
        read_only: Option<bool>,
    },
    /// A ConnectResponse.
    Connected {
        /// 0 if refused.
        session_id: i64,
        /// The session timeout, in milliseconds; 0 if refused.
        time_out: i32,
        /// Whether the server is read-only.
        read_only: Option<bool>,
    },
    /// A reply header in place of a ConnectResponse.
    Refused {
        /// The error code.
        err: ErrorCode,
    },
    /// A request.
    Request {
        /// Its xid.
        xid: i32,
        /// Its operation.
        op: OpCode,
        /// Its fields.
        fields: Vec<Field>,
    },
    /// A reply.
    Reply {
        /// The xid of its request.
        xid: i32,
        /// The operation of its request; `None` for a reply without a request.
        op: Option<OpCode>,
        /// The zxid of its header.
        zxid: i64,
        /// The error code of its header.
        err: ErrorCode,
        /// Its fields.
        fields: Vec<Field>,
    },
    /// A watch event.
    Event {
        /// The zxid of its header.
        zxid: i64,
        /// The type of the event.
        event_type: EventType,
        /// The path of the node.
        path: String,
    },
    /// Bytes that are not a frame: a four-letter word, its reply, or garbage.
    Raw {
        /// Their direction.
        direction: Direction,
        /// The first bytes, as text.
        text: String,
        /// Their number.
        len: usize,
    },
    /// The end of a connection.
    Closed {
        /// The side that ended it.
        by: Side,
    },
    /// A line added by the test.
    Note(String),
}

/// The side that ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
    /// The tap, because of a fault.
    Tap,
}

/// One named field of a request or reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The field's name in the Jute record.
    pub name: &'static str,
    /// The field's value.
    pub value: Value,
}

/// The value of a [`Field`].
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant is what its name says")]
pub enum Value {
    Path(String),
    Text(Option<String>),
    Int(i64),
    Bool(bool),
    Data(Option<Vec<u8>>),
    Acl(Vec<(i32, String, String)>),
    List(Vec<String>),
    Stat(Stat),
    /// The operations or results of a multi: name, number (requests only), fields.
    Multi(Vec<(String, Option<i32>, Vec<Field>)>),
    /// A body that does not decode: its length in bytes.
    Undecoded(usize),
}

impl Record {
    /// The direction of the frame; `None` for a record that is not a frame.
    #[must_use]
    pub const fn direction(&self) -> Option<Direction> {
        match &self.what {
            What::Connect { .. } | What::Request { .. } => Some(Direction::ToServer),
            What::Connected { .. }
            | What::Refused { .. }
            | What::Reply { .. }
            | What::Event { .. } => Some(Direction::ToClient),
            What::Raw { direction, .. } => Some(*direction),
            What::Closed { .. } | What::Note(_) => None,
        }
    }

    /// The operation of a request or reply.
    #[must_use]
    pub const fn op(&self) -> Option<OpCode> {
        match &self.what {
            What::Request { op, .. } => Some(*op),
            What::Reply { op, .. } => *op,
            _ => None,
        }
    }

    /// The path of a request, of a create's reply, or of an event.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match &self.what {
            What::Request { fields, .. } | What::Reply { fields, .. } => path_of(fields),
            What::Event { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Whether this is a request of the operation.
    #[must_use]
    pub fn is_request(&self, wanted: OpCode) -> bool {
        matches!(&self.what, What::Request { op, .. } if *op == wanted)
    }

    /// Whether this is a reply to the operation.
    #[must_use]
    pub fn is_reply(&self, wanted: OpCode) -> bool {
        matches!(&self.what, What::Reply { op: Some(op), .. } if *op == wanted)
    }

    /// Whether this is the given event of the given node.
    #[must_use]
    pub fn is_event(&self, wanted: EventType, of: &str) -> bool {
        matches!(&self.what, What::Event { event_type, path, .. } if *event_type == wanted && path == of)
    }
}

pub(crate) fn path_of(fields: &[Field]) -> Option<&str> {
    fields.iter().find_map(|field| match &field.value {
        Value::Path(path) => Some(path.as_str()),
        _ => None,
    })
}

fn path(text: Text<'_>) -> Field {
    Field { name: "path", value: Value::Path(text.to_string()) }
}

fn text(name: &'static str, text: Text<'_>) -> Field {
    let value = (!text.is_null()).then(|| text.to_str().into_owned());
    Field { name, value: Value::Text(value) }
}

const fn int(name: &'static str, number: i64) -> Field {
    Field { name, value: Value::Int(number) }
}

fn small(name: &'static str, number: i32) -> Field {
    int(name, i64::from(number))
}

fn data(bytes: Option<&[u8]>) -> Field {
    Field { name: "data", value: Value::Data(bytes.map(<[u8]>::to_vec)) }
}

const fn stat(stat: Stat) -> Field {
    Field { name: "stat", value: Value::Stat(stat) }
}

fn list<'a>(name: &'static str, items: impl Iterator<Item = Text<'a>>) -> Field {
    Field { name, value: Value::List(items.map(|item| item.to_string()).collect()) }
}

fn acl(acl: AclList<'_>) -> Field {
    let one = |acl: Acl<'_>| (acl.perms.number(), acl.id.scheme.to_string(), acl.id.id.to_string());
    Field { name: "acl", value: Value::Acl(acl.iter().map(one).collect()) }
}

/// The fields of a request. Credentials are left out.
#[must_use]
pub fn request_fields(request: &Request<'_>) -> Vec<Field> {
    match request {
        Request::Create(r) | Request::Create2(r) | Request::CreateContainer(r) => {
            vec![path(r.path), data(r.data), acl(r.acl), small("flags", r.flags)]
        }
        Request::CreateTtl(r) => {
            vec![path(r.path), data(r.data), acl(r.acl), small("flags", r.flags), int("ttl", r.ttl)]
        }
        Request::Delete(r) => vec![path(r.path), small("v", r.version)],
        Request::Check(r) => vec![path(r.path), small("v", r.version)],
        Request::Exists(r)
        | Request::GetData(r)
        | Request::GetChildren(r)
        | Request::GetChildren2(r) => {
            vec![path(r.path), Field { name: "watch", value: Value::Bool(r.watch) }]
        }
        Request::SetData(r) => vec![path(r.path), data(r.data), small("v", r.version)],
        Request::SetAcl(r) => vec![path(r.path), acl(r.acl), small("v", r.version)],
        Request::GetAcl(r)
        | Request::Sync(r)
        | Request::DeleteContainer(r)
        | Request::GetEphemerals(r)
        | Request::GetAllChildrenNumber(r) => vec![path(r.path)],
        Request::CheckWatches(r) | Request::RemoveWatches(r) => {
            vec![path(r.path), small("type", r.watcher_type.number())]
        }
        Request::AddWatch(r) => vec![path(r.path), small("mode", r.mode.number())],
        Request::Reconfig(r) => vec![
            text("joining", r.joining_servers),
            text("leaving", r.leaving_servers),
            text("members", r.new_members),
            int("config", r.cur_config_id),
        ],
        Request::Auth(r) => vec![text("scheme", r.scheme)],
        Request::Sasl(r) => {
            vec![small("token", r.token.map_or(-1, |t| i32::try_from(t.len()).unwrap_or(i32::MAX)))]
        }
        Request::SetWatches(r) => vec![
            int("zxid", r.relative_zxid),
            list("data", r.data_watches.iter()),
            list("exist", r.exist_watches.iter()),
            list("child", r.child_watches.iter()),
        ],
        Request::SetWatches2(r) => vec![
            int("zxid", r.relative_zxid),
            list("data", r.data_watches.iter()),
            list("exist", r.exist_watches.iter()),
            list("child", r.child_watches.iter()),
            list("persistent", r.persistent_watches.iter()),
            list("recursive", r.persistent_recursive_watches.iter()),
        ],
        Request::Multi(ops) | Request::MultiRead(ops) => {
            let one = |op: MultiOp<'_>| {
                let code = op.op_code();
                (code.to_string(), Some(code.number()), request_fields(&as_request(op)))
            };
            vec![Field { name: "ops", value: Value::Multi(ops.iter().map(one).collect()) }]
        }
        _ => Vec::new(),
    }
}

/// Converts an operation of a multi to the equivalent single request.
pub(crate) fn as_request(op: MultiOp<'_>) -> Request<'_> {
    match op {
        MultiOp::Create(r) => Request::Create(r),
        MultiOp::Delete(r) => Request::Delete(r),
        MultiOp::SetData(r) => Request::SetData(r),
        MultiOp::Check(r) => Request::Check(r),
        MultiOp::Create2(r) => Request::Create2(r),
        MultiOp::CreateContainer(r) => Request::CreateContainer(r),
        MultiOp::CreateTtl(r) => Request::CreateTtl(r),
        MultiOp::GetData(r) => Request::GetData(r),
        MultiOp::GetChildren(r) => Request::GetChildren(r),
        _ => Request::Other(OpCode::Unknown(0), &[]),
    }
}

/// The fields of a reply.
#[must_use]
pub fn reply_fields(reply: &Reply<'_>) -> Vec<Field> {
    match reply {
        Reply::Path(r) => vec![path(r.path)],
        Reply::Create2(r) => vec![path(r.path), stat(r.stat)],
        Reply::Stat(r) => vec![stat(r.stat)],
        Reply::GetData(r) => vec![data(r.data), stat(r.stat)],
        Reply::GetAcl(r) => vec![acl(r.acl), stat(r.stat)],
        Reply::GetChildren(r) => vec![list("children", r.children.iter())],
        Reply::GetChildren2(r) => vec![list("children", r.children.iter()), stat(r.stat)],
        Reply::GetAllChildrenNumber(r) => vec![small("total", r.total_number)],
        Reply::Sasl(r) => {
            vec![small("token", r.token.map_or(-1, |t| i32::try_from(t.len()).unwrap_or(i32::MAX)))]
        }
        Reply::WhoAmI(r) => {
            let ids =
                r.client_info.iter().map(|info| format!("{}:{}", info.auth_scheme, info.user));
            vec![Field { name: "ids", value: Value::List(ids.collect()) }]
        }
        Reply::Multi(results) => {
            let results = results.iter().map(multi_result).collect();
            vec![Field { name: "results", value: Value::Multi(results) }]
        }
        Reply::Other(body) => vec![Field { name: "body", value: Value::Undecoded(body.len()) }],
        _ => Vec::new(),
    }
}

fn multi_result(result: MultiResult<'_>) -> (String, Option<i32>, Vec<Field>) {
    let (name, fields) = match result {
        MultiResult::Create(r) => ("create OK", vec![path(r.path)]),
        MultiResult::Delete => ("delete OK", Vec::new()),
        MultiResult::SetData(r) => ("setData OK", vec![stat(r.stat)]),
        MultiResult::Check => ("check OK", Vec::new()),
        MultiResult::Create2(r) => ("create2 OK", vec![path(r.path), stat(r.stat)]),
        MultiResult::GetData(r) => ("getData OK", vec![data(r.data), stat(r.stat)]),
        MultiResult::GetChildren(r) => {
            ("getChildren OK", vec![list("children", r.children.iter())])
        }
        MultiResult::Error(err) => return (format!("error {err}"), None, Vec::new()),
        _ => ("?", Vec::new()),
    };
    (name.to_owned(), None, fields)
}
