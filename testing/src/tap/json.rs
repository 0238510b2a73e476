//! Records as JSON, one object per line.
//!
//! ```text
//! {"seq":3,"us":1520,"conn":1,"client":"A","dir":"c2s","kind":"request","xid":1,"op":"delete","type":2,"path":"/a","v":-1}
//! ```
//!
//! Data are an object `{"text":…}` if they are UTF-8, and `{"hex":…}` otherwise; null stays null.

use std::fmt::Write as _;

use docent_protocol::{EscapedJson, fields};

use super::{
    record::{Field, Record, Side, Value, What},
    text::error_name,
};

/// The record as one JSON object.
#[must_use]
pub fn json(record: &Record) -> String {
    let mut out = Object::new();
    out.number("seq", record.seq);
    out.number("us", record.at.as_micros());
    out.number("conn", record.connection);
    out.string("client", &record.client);
    if let Some(direction) = record.direction() {
        out.string("dir", direction.name());
    }
    what(&mut out, &record.what);
    if let Some(injected) = record.injected {
        out.string("injected", injected);
    }
    EscapedJson(&out.end()).to_string()
}

fn what(out: &mut Object, what: &What) {
    match what {
        What::Connect { session_id, last_zxid_seen, time_out, read_only } => {
            out.string("kind", "connect");
            out.string("session", &format!("{session_id:#x}"));
            out.number("lastZxidSeen", last_zxid_seen);
            out.number("timeOut", time_out);
            optional_bool(out, "readOnly", *read_only);
        }
        What::Connected { session_id, time_out, read_only } => {
            out.string("kind", "connected");
            out.string("session", &format!("{session_id:#x}"));
            out.number("timeOut", time_out);
            optional_bool(out, "readOnly", *read_only);
        }
        What::Refused { err } => {
            out.string("kind", "refused");
            out.number("err", err.number());
        }
        What::Request { xid, op, fields } => {
            out.string("kind", "request");
            out.number("xid", xid);
            out.string("op", &op.to_string());
            out.number("type", op.number());
            parts(out, fields);
        }
        What::Reply { xid, op, zxid, err, fields } => {
            out.string("kind", "reply");
            out.number("xid", xid);
            if let Some(op) = op {
                out.string("op", &op.to_string());
            }
            out.number("zxid", zxid);
            out.number("err", err.number());
            out.string("result", &error_name(*err));
            parts(out, fields);
        }
        What::Event { zxid, event_type, path } => {
            out.string("kind", "event");
            out.number("zxid", zxid);
            out.string("event", &event_type.to_string());
            out.string("path", path);
        }
        What::Raw { text, len, .. } => {
            out.string("kind", "raw");
            out.number("len", len);
            out.string("text", text);
        }
        What::Closed { by } => {
            out.string("kind", "closed");
            out.string(
                "by",
                match by {
                    Side::Client => "client",
                    Side::Server => "server",
                    Side::Tap => "tap",
                },
            );
        }
        What::Note(note) => {
            out.string("kind", "note");
            out.string("text", note);
        }
    }
}

fn optional_bool(out: &mut Object, key: &str, value: Option<bool>) {
    if let Some(value) = value {
        out.raw(key, if value { "true" } else { "false" });
    }
}

fn parts(out: &mut Object, fields: &[Field]) {
    for field in fields {
        out.raw(field.name, &value(&field.value));
    }
}

fn value(value: &Value) -> String {
    match value {
        Value::Path(text) => quoted(text),
        Value::Text(None) | Value::Data(None) => "null".to_owned(),
        Value::Text(Some(text)) => quoted(text),
        Value::Int(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Data(Some(bytes)) => data(bytes),
        Value::Acl(acl) => array(acl.iter().map(|(perms, scheme, id)| {
            let mut one = Object::new();
            one.number("perms", perms);
            one.string("scheme", scheme);
            one.string("id", id);
            one.end()
        })),
        Value::List(items) => array(items.iter().map(|item| quoted(item))),
        Value::Stat(stat) => {
            let mut out = Object::new();
            for (name, value) in stat.fields() {
                match value {
                    fields::Value::Int(owner) if name == "ephemeralOwner" => {
                        out.string(name, &format!("{owner:#x}"));
                    }
                    fields::Value::Int(number) => out.number(name, number),
                    _ => {}
                }
            }
            out.end()
        }
        Value::Multi(items) => array(items.iter().map(|(name, number, fields)| {
            let mut one = Object::new();
            one.string("op", name);
            if let Some(number) = number {
                one.number("type", number);
            }
            parts(&mut one, fields);
            one.end()
        })),
        Value::Undecoded(len) => len.to_string(),
    }
}

fn data(bytes: &[u8]) -> String {
    let mut out = Object::new();
    match std::str::from_utf8(bytes) {
        Ok(text) => out.string("text", text),
        Err(_) => {
            let mut hex = String::with_capacity(bytes.len() * 2);
            for byte in bytes {
                let _ = write!(hex, "{byte:02x}");
            }
            out.string("hex", &hex);
        }
    }
    out.end()
}

fn array(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            control if u32::from(control) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// A JSON object under construction.
struct Object(String);

impl Object {
    fn new() -> Self {
        Self("{".to_owned())
    }

    fn raw(&mut self, key: &str, value: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&quoted(key));
        self.0.push(':');
        self.0.push_str(value);
    }

    fn string(&mut self, key: &str, value: &str) {
        self.raw(key, &quoted(value));
    }

    fn number(&mut self, key: &str, value: impl std::fmt::Display) {
        self.raw(key, &value.to_string());
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(quoted("a\"b\\c\nd\u{1}"), r#""a\"b\\c\nd\u0001""#);
        assert_eq!(data(b"\xff\x00"), r#"{"hex":"ff00"}"#);
    }
}
