//! Describes what a server sent, as words that can be compared with a script.

use std::collections::BTreeMap;

use docent_protocol::{
    Decode as _, ErrorCode, OpCode, WatcherEvent,
    connect::HandshakeReply,
    fields::{Field, Value},
    jute::Reader,
    multi::MultiReply,
    reply::{Reply, ReplyHeader},
    xid,
};

use crate::value::hex;

/// The largest number of bytes of a frame that a report shows.
const SHOWN_BYTES: usize = 512;

/// What was received, or that nothing was.
#[derive(Debug, Default, Clone)]
pub(crate) struct Received {
    /// `OK` or the name of an error, `event`, `connected`, `refused`, `text`, `closed`, `nothing`, or `garbage`.
    pub(crate) kind: String,
    pub(crate) fields: BTreeMap<String, String>,
    /// The frame, in hexadecimal.
    frame: String,
}

impl Received {
    pub(crate) fn bare(kind: &str) -> Self {
        Self { kind: kind.to_owned(), ..Self::default() }
    }

    /// The reply to a four-letter word.
    pub(crate) fn text(text: &[u8]) -> Self {
        let mut received = Self::bare("text");
        received.set("text", String::from_utf8_lossy(text));
        received
    }

    /// A reply to the handshake.
    pub(crate) fn handshake(payload: &[u8]) -> Self {
        let decoded = HandshakeReply::decode(&mut Reader::new(payload));
        let mut received = match decoded {
            Ok(HandshakeReply::Response(response)) => {
                let kind = if response.is_refused() { "refused" } else { "connected" };
                let mut received = Self::bare(kind);
                let read_only =
                    response.read_only.map_or_else(|| "none".to_owned(), |it| it.to_string());
                received.set("protocolVersion", response.protocol_version);
                received.set("timeOut", response.time_out);
                received.set("id", response.session_id);
                received.set("passwdLength", response.passwd.map_or(0, <[u8]>::len));
                received.set("passwd", format!("hex:{}", hex(response.passwd.unwrap_or_default())));
                received.set("readOnly", read_only);
                received
            }
            Ok(HandshakeReply::Refused(header)) => Self::of_header(header),
            Err(error) => Self::garbage(&error.to_string()),
        };
        received.keep(payload);
        received
    }

    /// A frame after the handshake. `op` returns the operation of the request with an xid.
    pub(crate) fn frame(payload: &[u8], op: impl FnOnce(i32) -> Option<OpCode>) -> Self {
        let mut reader = Reader::new(payload);
        let mut received = match ReplyHeader::decode(&mut reader) {
            Err(error) => Self::garbage(&error.to_string()),
            Ok(header) if header.xid == xid::NOTIFICATION => Self::event(header, &mut reader),
            Ok(header) => Self::reply(header, op(header.xid), &mut reader),
        };
        received.keep(payload);
        received
    }

    fn event(header: ReplyHeader, reader: &mut Reader<'_>) -> Self {
        match WatcherEvent::decode(reader) {
            Err(error) => Self::garbage(&error.to_string()),
            Ok(event) => {
                let mut received = Self { kind: "event".to_owned(), ..Self::of_header(header) };
                received.set("type", event.event_type);
                received.set("state", event.state);
                received.set("path", event.path.to_str());
                received
            }
        }
    }

    fn reply(header: ReplyHeader, op: Option<OpCode>, reader: &mut Reader<'_>) -> Self {
        let mut received = Self::of_header(header);
        received.set("bodyLength", reader.rest().len());
        if header.err != ErrorCode::Ok {
            return received;
        }
        let Some(op) = op else { return received };
        match Reply::decode(op, reader) {
            Err(error) => return Self::garbage(&error.to_string()),
            Ok(Reply::Multi(results)) => received.results(results),
            Ok(reply) => received.record("", &reply.fields()),
        }
        received.set("leftOver", reader.rest().len());
        received
    }

    /// The results of a multi: `0=OK`, `0.path=...`.
    fn results(&mut self, results: MultiReply<'_>) {
        self.set("count", results.iter().count());
        for (index, result) in results.iter().enumerate() {
            match result.reply() {
                Ok((op, reply)) => {
                    self.set(&index.to_string(), "OK");
                    self.set(&format!("{index}.type"), op);
                    self.record(&format!("{index}."), &reply.fields());
                }
                Err(err) => self.set(&index.to_string(), name_of(err)),
            }
        }
    }

    fn of_header(header: ReplyHeader) -> Self {
        let mut received = Self::bare(&name_of(header.err));
        received.set("xid", header.xid);
        received.set("zxid", header.zxid);
        received
    }

    fn garbage(why: &str) -> Self {
        let mut received = Self::bare("garbage");
        received.set("why", why);
        received
    }

    fn record(&mut self, prefix: &str, fields: &[Field<'_>]) {
        for (name, value) in fields {
            let name = format!("{prefix}{name}");
            match value {
                Value::Stat(stat) => self.record(prefix, &stat.fields()),
                value => self.set(&name, text_of(value)),
            }
        }
    }

    fn set(&mut self, name: &str, value: impl ToString) {
        self.fields.insert(name.to_owned(), value.to_string());
    }

    fn keep(&mut self, payload: &[u8]) {
        let more = payload.len().saturating_sub(SHOWN_BYTES);
        self.frame = hex(payload.get(..SHOWN_BYTES).unwrap_or(payload));
        if more > 0 {
            self.frame += &format!("... and {more} bytes");
        }
    }
}

/// One line: the kind, the fields, and the frame.
impl std::fmt::Display for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kind)?;
        for (name, value) in &self.fields {
            write!(f, " {name}={}", value.escape_debug())?;
        }
        if !self.frame.is_empty() {
            write!(f, " [{}]", self.frame)?;
        }
        Ok(())
    }
}

fn name_of(err: ErrorCode) -> String {
    err.name().map_or_else(|| err.number().to_string(), str::to_owned)
}

fn text_of(value: &Value<'_>) -> String {
    let buffer = |bytes: Option<&[u8]>| {
        bytes.map_or_else(|| "null".to_owned(), |bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    let list = |mut texts: Vec<String>| match texts.is_empty() {
        true => "empty".to_owned(),
        false => {
            texts.sort();
            texts.join(",")
        }
    };
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Named(number, name) => name.map_or_else(|| number.to_string(), str::to_owned),
        Value::Text(text) => buffer(text.bytes()),
        Value::Data(data) => buffer(*data),
        Value::Secret(secret) => buffer(secret.0),
        Value::Texts(texts) if texts.is_null() => "null".to_owned(),
        Value::Texts(texts) => list(texts.iter().map(|text| buffer(text.bytes())).collect()),
        Value::Acl(acl) => {
            let entry = |entry: docent_protocol::Acl<'_>| {
                let (scheme, id) = (entry.id.scheme.to_str(), entry.id.id.to_str());
                format!("{scheme}:{id}:{}", entry.perms.number())
            };
            list(acl.iter().map(entry).collect())
        }
        Value::ClientInfos(infos) => list(
            infos
                .iter()
                .map(|info| format!("{}:{}", info.auth_scheme.to_str(), info.user.to_str()))
                .collect(),
        ),
        Value::Id(id) => format!("{}:{}", id.scheme.to_str(), id.id.to_str()),
        _ => String::new(),
    }
}
