//! Builds requests from the words of a script. Nothing is checked, because a script may send what no client should.

use bytes::BufMut as _;
use docent_protocol::{
    Encode as _, OpCode, Text,
    jute::Reader,
    multi::MultiHeader,
    raw,
    request::{Request, RequestHeader},
};

use crate::value::{Values, bytes};

/// The type of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Data,
    Acl,
    Int,
    Long,
    Bool,
    Texts,
}

use Kind::{Acl, Bool, Data, Int, Long, Text as Str, Texts};

/// A field: its name, its type, and its value if the script gives none.
type Field = (&'static str, Kind, &'static str);

const PATH: Field = ("path", Str, "null");
const DATA: Field = ("data", Data, "");
const OPEN: Field = ("acl", Acl, "world:anyone:31");
const FLAGS: Field = ("flags", Int, "0");
const VERSION: Field = ("version", Int, "-1");
const WATCH: Field = ("watch", Bool, "false");
const CREATE: &[Field] = &[PATH, DATA, OPEN, FLAGS];
const READ: &[Field] = &[PATH, WATCH];
const WATCHES: [Field; 4] = [
    ("zxid", Long, "0"),
    ("data", Texts, "empty"),
    ("exist", Texts, "empty"),
    ("child", Texts, "empty"),
];

/// The operations by their ZooKeeper names, with their fields in the order of a script.
const OPERATIONS: &[(&str, OpCode, &[Field])] = &[
    ("create", OpCode::Create, CREATE),
    ("delete", OpCode::Delete, &[PATH, VERSION]),
    ("exists", OpCode::Exists, READ),
    ("getData", OpCode::GetData, READ),
    ("setData", OpCode::SetData, &[PATH, DATA, VERSION]),
    ("getACL", OpCode::GetAcl, &[PATH]),
    ("setACL", OpCode::SetAcl, &[PATH, OPEN, VERSION]),
    ("getChildren", OpCode::GetChildren, READ),
    ("sync", OpCode::Sync, &[PATH]),
    ("ping", OpCode::Ping, &[]),
    ("getChildren2", OpCode::GetChildren2, READ),
    ("check", OpCode::Check, &[PATH, VERSION]),
    ("multi", OpCode::Multi, &[]),
    ("create2", OpCode::Create2, CREATE),
    (
        "reconfig",
        OpCode::Reconfig,
        &[
            ("joining", Str, "null"),
            ("leaving", Str, "null"),
            ("members", Str, "null"),
            ("version", Long, "-1"),
        ],
    ),
    ("checkWatches", OpCode::CheckWatches, &[PATH, ("type", Int, "3")]),
    ("removeWatches", OpCode::RemoveWatches, &[PATH, ("type", Int, "3")]),
    ("createContainer", OpCode::CreateContainer, &[PATH, DATA, OPEN, ("flags", Int, "4")]),
    ("deleteContainer", OpCode::DeleteContainer, &[PATH]),
    (
        "createTTL",
        OpCode::CreateTtl,
        &[PATH, ("ttl", Long, "60000"), ("flags", Int, "5"), DATA, OPEN],
    ),
    ("multiRead", OpCode::MultiRead, &[]),
    ("auth", OpCode::Auth, &[("scheme", Str, "null"), ("auth", Data, "null"), ("type", Int, "0")]),
    ("setWatches", OpCode::SetWatches, &WATCHES),
    ("sasl", OpCode::Sasl, &[("token", Data, "")]),
    ("getEphemerals", OpCode::GetEphemerals, &[PATH]),
    ("getAllChildrenNumber", OpCode::GetAllChildrenNumber, &[PATH]),
    (
        "setWatches2",
        OpCode::SetWatches2,
        &[
            WATCHES[0],
            WATCHES[1],
            WATCHES[2],
            WATCHES[3],
            ("persistent", Texts, "empty"),
            ("recursive", Texts, "empty"),
        ],
    ),
    ("addWatch", OpCode::AddWatch, &[PATH, ("mode", Int, "0")]),
    ("whoAmI", OpCode::WhoAmI, &[]),
    ("closeSession", OpCode::CloseSession, &[]),
];

/// The order of the fields on the wire, where it differs from that of a script.
const WIRE_ORDER: &[(OpCode, &[&str])] = &[
    (OpCode::CreateTtl, &["path", "data", "acl", "flags", "ttl"]),
    (OpCode::Auth, &["type", "scheme", "auth"]),
];

/// A request.
pub(crate) struct Built {
    pub(crate) op: OpCode,
    pub(crate) body: Vec<u8>,
    /// The xid, if the script gives it.
    pub(crate) xid: Option<i32>,
}

impl Built {
    /// Builds a request from `OPERATION ARGUMENTS` or `op=NUMBER body=hex:...`; `xid=N` may follow.
    pub(crate) fn read(words: &[String], values: &Values) -> Result<Self, String> {
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut xid = None;
        if let Some(number) = words.last().and_then(|word| word.strip_prefix("xid=")) {
            xid = Some(number.parse().map_err(|_| format!("{number} is no xid"))?);
            words.pop();
        }
        let (name, arguments) = words.split_first().ok_or("no operation")?;
        if let Some(number) = name.strip_prefix("op=") {
            let number: i32 = number.parse().map_err(|_| format!("{number} is no operation"))?;
            let body = arguments.first().and_then(|word| word.strip_prefix("body="));
            let body = bytes(body.unwrap_or_default())?;
            return Ok(Self { op: OpCode::from_number(number), body, xid });
        }
        let (op, fields) = operation(name)?;
        let body = match op {
            OpCode::Multi | OpCode::MultiRead => sequence(arguments, values)?,
            _ => record(op, fields, arguments, values)?,
        };
        Ok(Self { op, body, xid })
    }

    /// Whether the request may harm a server.
    pub(crate) fn is_harmful(&self) -> bool {
        Request::decode(self.op, &mut Reader::new(&self.body))
            .is_ok_and(|request| raw::is_harmful(&request))
    }

    /// The payload of the request's frame.
    pub(crate) fn payload(&self, xid: i32) -> Vec<u8> {
        let mut payload = Vec::new();
        RequestHeader { xid, op: self.op }.encode(&mut payload);
        payload.extend_from_slice(&self.body);
        payload
    }
}

fn operation(name: &str) -> Result<(OpCode, &'static [Field]), String> {
    let found = OPERATIONS.iter().find(|(known, ..)| *known == name);
    found.map(|(_, op, fields)| (*op, *fields)).ok_or_else(|| format!("{name} is no operation"))
}

/// Encodes the operations of a multi, which `;` separates, and the end of the sequence.
fn sequence(words: &[&str], values: &Values) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    let err = docent_protocol::ErrorCode::SystemError;
    for words in words.split(|word| *word == ";").filter(|words| !words.is_empty()) {
        let (name, arguments) = words.split_first().ok_or("no operation")?;
        let (op, fields) = operation(name)?;
        MultiHeader { op, done: false, err }.encode(&mut body);
        body.extend(record(op, fields, arguments, values)?);
    }
    MultiHeader { op: OpCode::from_number(-1), done: true, err }.encode(&mut body);
    Ok(body)
}

/// Encodes the fields of a record, which are given by position or as `name=value`.
fn record(
    op: OpCode,
    fields: &[Field],
    words: &[&str],
    values: &Values,
) -> Result<Vec<u8>, String> {
    let mut given: Vec<&str> = fields.iter().map(|(.., default)| *default).collect();
    let mut next = 0;
    for word in words {
        let by_name = word.split_once('=').and_then(|(name, value)| {
            let index = fields.iter().position(|(known, ..)| *known == name)?;
            Some((index, value))
        });
        let (index, value) = by_name.unwrap_or((next, word));
        next = index + 1;
        *given.get_mut(index).ok_or_else(|| format!("{word}: no such field"))? = value;
    }
    let mut fields: Vec<_> = fields.iter().zip(given).collect();
    if let Some((_, order)) = WIRE_ORDER.iter().find(|(known, _)| *known == op) {
        fields.sort_by_key(|((name, ..), _)| order.iter().position(|one| one == name));
    }
    let mut body = Vec::new();
    for ((name, kind, _), value) in fields {
        put(&mut body, *kind, value, values).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(body)
}

fn put(out: &mut Vec<u8>, kind: Kind, word: &str, values: &Values) -> Result<(), String> {
    match kind {
        Str | Data if word == "null" => out.put_i32(-1),
        Acl | Texts if word == "null" => out.put_i32(-1),
        Str | Data => put_buffer(out, &bytes(&values.expand(word)?)?)?,
        Texts => {
            let list = values.expand_list(word)?;
            put_length(out, list.len())?;
            for text in list {
                put_buffer(out, text.as_bytes())?;
            }
        }
        Acl => {
            let list = values.expand_list(word)?;
            put_length(out, list.len())?;
            for entry in list {
                put_acl(out, &entry)?;
            }
        }
        Int => out.put_i32(number(word, values)?),
        Long => out.put_i64(number(word, values)?),
        Bool => out.put_u8(match word {
            "watch" => 1,
            "false" => 0,
            other => other.parse().map_err(|_| format!("{other} is no boolean"))?,
        }),
    }
    Ok(())
}

/// Encodes `SCHEME:ID:PERMS`, where a part may be `null`.
fn put_acl(out: &mut Vec<u8>, entry: &str) -> Result<(), String> {
    let wrong = || format!("{entry} is not SCHEME:ID:PERMS");
    let (scheme, rest) = entry.split_once(':').ok_or_else(wrong)?;
    let (id, perms) = rest.rsplit_once(':').ok_or_else(wrong)?;
    out.put_i32(perms.parse().map_err(|_| wrong())?);
    for part in [scheme, id] {
        let text = if part == "null" { Text::NULL } else { Text::from(part) };
        text.encode(out);
    }
    Ok(())
}

fn number<T: std::str::FromStr>(word: &str, values: &Values) -> Result<T, String> {
    let named = match word {
        "ephemeral" => "1",
        "sequential" => "2",
        "ephemeral-sequential" => "3",
        "container" => "4",
        "ttl" => "5",
        "ttl-sequential" => "6",
        other => other,
    };
    let text = values.expand(named)?;
    text.parse().map_err(|_| format!("{text} is no number"))
}

fn put_buffer(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), String> {
    put_length(out, bytes.len())?;
    out.extend_from_slice(bytes);
    Ok(())
}

fn put_length(out: &mut Vec<u8>, length: usize) -> Result<(), String> {
    out.put_i32(i32::try_from(length).map_err(|_| "too long".to_owned())?);
    Ok(())
}
