//! The tap's records: one [`Record`] per frame, with owned data.

use std::{sync::Arc, time::Duration};

use docent_protocol::{
    Acl, ErrorCode, EventType, OpCode, Stat,
    dissect::Direction,
    fields,
    multi::{MultiOp, MultiResult},
    reply::{ClientInfo, Reply},
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

/// The fields of a request. Credentials are left out.
#[must_use]
pub(crate) fn request_fields(request: &Request<'_>) -> Vec<Field> {
    let (Request::Multi(ops) | Request::MultiRead(ops)) = request else {
        return fields(request.fields());
    };
    let one = |op: MultiOp<'_>| {
        let code = op.op_code();
        (code.to_string(), Some(code.number()), fields(op.request().fields()))
    };
    vec![Field { name: "ops", value: Value::Multi(ops.iter().map(one).collect()) }]
}

/// The fields of a reply.
// Public for tests, which compare replies.
#[doc(hidden)]
#[must_use]
pub fn reply_fields(reply: &Reply<'_>) -> Vec<Field> {
    match reply {
        Reply::Multi(results) => {
            let one = |result: MultiResult<'_>| match result.reply() {
                Ok((op, reply)) => (format!("{op} OK"), None, fields(reply.fields())),
                Err(err) => (format!("error {err}"), None, Vec::new()),
            };
            let results = results.iter().map(one).collect();
            vec![Field { name: "results", value: Value::Multi(results) }]
        }
        Reply::Other(body) => vec![Field { name: "body", value: Value::Undecoded(body.len()) }],
        _ => fields(reply.fields()),
    }
}

fn fields(fields: Vec<fields::Field<'_>>) -> Vec<Field> {
    fields.into_iter().filter_map(|(name, value)| field(name, value)).collect()
}

/// A field as the reference traces show it, under their name; `None` if they leave it out.
fn field(jute_name: &'static str, value: fields::Value<'_>) -> Option<Field> {
    let name = match jute_name {
        "version" => "v",
        "relativeZxid" => "zxid",
        "persistentRecursiveWatches" => "recursive",
        "joiningServers" => "joining",
        "leavingServers" => "leaving",
        "newMembers" => "members",
        "curConfigId" => "config",
        "totalNumber" => "total",
        "clientInfo" => "ids",
        name => name.strip_suffix("Watches").unwrap_or(name),
    };
    let value = match (value, name) {
        // In an auth, the type, which has no meaning, and the credentials. In the reply to an addWatch, the
        // repeated error of the header.
        (fields::Value::Int(_), "type")
        | (fields::Value::Secret(_), "auth")
        | (fields::Value::Named(..), "err") => return None,
        (fields::Value::Text(path), "path") => Value::Path(path.to_string()),
        (fields::Value::Text(text), _) => {
            Value::Text((!text.is_null()).then(|| text.to_str().into_owned()))
        }
        (fields::Value::Bool(value), _) => Value::Bool(value),
        (fields::Value::Int(number), _) => Value::Int(number),
        (fields::Value::Named(number, _), _) => Value::Int(number.into()),
        (fields::Value::Data(data), _) => Value::Data(data.map(<[u8]>::to_vec)),
        // Its length; -1 is null.
        (fields::Value::Secret(secret), _) => {
            Value::Int(secret.0.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX)))
        }
        (fields::Value::Texts(texts), _) => {
            Value::List(texts.iter().map(|text| text.to_string()).collect())
        }
        (fields::Value::Acl(acl), _) => {
            let one = |acl: Acl<'_>| {
                (acl.perms.number(), acl.id.scheme.to_string(), acl.id.id.to_string())
            };
            Value::Acl(acl.iter().map(one).collect())
        }
        (fields::Value::Stat(stat), _) => Value::Stat(stat),
        (fields::Value::ClientInfos(infos), _) => {
            let one = |info: ClientInfo<'_>| format!("{}:{}", info.auth_scheme, info.user);
            Value::List(infos.iter().map(one).collect())
        }
        _ => return None,
    };
    Some(Field { name, value })
}
