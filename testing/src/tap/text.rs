//! Records as text, one per line, in the form of the reference traces of Curator.
//!
//! ```text
//! A -> create2(15) /l/_c_G1-lock- data="10.0.0.1" acl=31:world:anyone flags=3
//! A <- create2 OK path=/l/_c_G1-lock-0000000000 +stat
//! B <- EVENT NodeDeleted /l/_c_G1-lock-0000000000
//! ```

use std::fmt::Write as _;

use docent_protocol::{ErrorCode, Escaped, OpCode, dissect::Direction};

use super::record::{Field, Record, Side, Value, What};

/// How a trace is formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// Replaces GUIDs by `G1`, `G2`… in order of appearance. Default: true.
    pub mask_guids: bool,
    /// Replaces session ids by `0` and `prev`. Default: true.
    pub mask_sessions: bool,
    /// Leaves out pings and their replies. Default: true.
    pub omit_pings: bool,
    /// Leaves out the ends of connections. Default: true.
    pub omit_closes: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { mask_guids: true, mask_sessions: true, omit_pings: true, omit_closes: true }
    }
}

/// Formats the records, one line each.
#[must_use]
pub(super) fn lines<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    options: TextOptions,
) -> Vec<String> {
    let mut printer = Printer::new(options);
    records.into_iter().filter_map(|record| printer.line(record)).collect()
}

/// Formats records one at a time, and remembers their GUIDs.
#[derive(Debug)]
pub struct Printer {
    options: TextOptions,
    guids: Guids,
}

impl Printer {
    /// A printer that has seen no GUID.
    #[must_use]
    pub fn new(options: TextOptions) -> Self {
        Self { options, guids: Guids::default() }
    }

    /// Formats a record; `None` if the options leave it out.
    pub fn line(&mut self, record: &Record) -> Option<String> {
        let is_ping = record.op() == Some(OpCode::Ping);
        let is_close = matches!(record.what, What::Closed { .. });
        if is_ping && self.options.omit_pings || is_close && self.options.omit_closes {
            return None;
        }
        let line = line(record, self.options.mask_sessions);
        Some(if self.options.mask_guids { self.guids.mask(&line) } else { line })
    }
}

/// Formats one record, with its GUIDs unmasked.
#[must_use]
pub(super) fn line(record: &Record, mask_sessions: bool) -> String {
    let mut out = String::new();
    let arrow = match record.direction() {
        Some(Direction::ToServer) => " -> ",
        Some(Direction::ToClient) => " <- ",
        None => " -- ",
    };
    if !matches!(record.what, What::Note(_)) {
        out.push_str(&record.client);
        out.push_str(arrow);
    }
    content(&mut out, &record.what, mask_sessions);
    if let Some(injected) = record.injected {
        out.push_str("   [[");
        if record.direction() == Some(Direction::ToServer) {
            out.push_str("inject ");
        }
        out.push_str(injected);
        out.push_str("]]");
    }
    out
}

// Writing to a String cannot fail: this file ignores the results of `write!`.
fn content(out: &mut String, what: &What, mask_sessions: bool) {
    match what {
        What::Connect { session_id: 0, .. } => out.push_str("connect sid=0"),
        What::Connect { .. } if mask_sessions => out.push_str("connect sid=prev"),
        What::Connect { session_id, .. } => {
            let _ = write!(out, "connect sid={session_id:#x}");
        }
        What::Connected { time_out, session_id, read_only } => {
            let _ = write!(out, "connected timeout={time_out}");
            if *session_id == 0 || *time_out <= 0 {
                out.push_str(" (SESSION EXPIRED)");
            } else if !mask_sessions {
                let _ = write!(out, " sid={session_id:#x}");
            }
            if *read_only == Some(true) {
                out.push_str(" readOnly");
            }
        }
        What::Refused { err } => {
            let _ = write!(out, "refused {}", error_name(*err));
        }
        What::Request { op, fields, .. } => {
            let _ = write!(out, "{op}({})", op.number());
            request_parts(out, fields);
        }
        What::Reply { op, err, fields, xid, .. } => {
            match op {
                Some(op) => out.push_str(&op.to_string()),
                None => {
                    let _ = write!(out, "unasked({xid})");
                }
            }
            out.push(' ');
            out.push_str(&error_name(*err));
            if err.is_ok() {
                reply_parts(out, fields, *op);
            }
        }
        What::Event { event_type, path, .. } => {
            let _ = write!(out, "EVENT {event_type} {}", Escaped(path));
        }
        What::Raw { text, len, .. } => {
            let _ = write!(out, "RAW {len} bytes \"{}\"", Escaped(text));
        }
        What::Closed { by } => out.push_str(match by {
            Side::Client => "closed by client",
            Side::Server => "closed by server",
            Side::Tap => "closed by tap",
        }),
        What::Note(note) => {
            let _ = write!(out, "   # {}", Escaped(note));
        }
    }
}

/// The name of an error code (`NONODE`, `OK`), or its number if it has no name.
#[must_use]
pub(super) fn error_name(err: ErrorCode) -> String {
    err.name().map_or_else(|| err.number().to_string(), str::to_owned)
}

fn request_parts(out: &mut String, fields: &[Field]) {
    for field in fields {
        out.push(' ');
        match &field.value {
            Value::Multi(ops) => multi(out, ops, true),
            path @ Value::Path(_) => {
                let _ = write!(out, "{}", Shown(path));
            }
            value => {
                let _ = write!(out, "{}={}", field.name, Shown(value));
            }
        }
    }
}

/// As in the reference traces, a Stat is `+stat` after the path of a create's reply, and left out elsewhere.
fn reply_parts(out: &mut String, fields: &[Field], op: Option<OpCode>) {
    let creates = op.is_some_and(|op| {
        matches!(op, OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl)
    });
    for field in fields {
        match &field.value {
            Value::Stat(_) if creates => out.push_str(" +stat"),
            Value::Stat(_) => {}
            Value::Multi(results) => {
                out.push(' ');
                multi(out, results, false);
            }
            value => {
                let _ = write!(out, " {}={}", field.name, Shown(value));
            }
        }
    }
}

fn multi(out: &mut String, items: &[(String, Option<i32>, Vec<Field>)], request: bool) {
    out.push('[');
    for (index, (name, number, fields)) in items.iter().enumerate() {
        if index > 0 {
            out.push_str("; ");
        }
        out.push_str(name);
        if let Some(number) = number {
            let _ = write!(out, "({number})");
        }
        if request {
            request_parts(out, fields);
        } else {
            let op = name.starts_with("create2").then_some(OpCode::Create2);
            reply_parts(out, fields, op);
        }
    }
    out.push(']');
}

/// Formats a value for the right side of `name=`.
struct Shown<'a>(&'a Value);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Value::Text(None) => f.write_str("null"),
            Value::Path(text) | Value::Text(Some(text)) => write!(f, "{}", Escaped(text)),
            Value::Int(number) => write!(f, "{number}"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Data(None) => f.write_str("<null>"),
            Value::Data(Some(bytes)) => show_data(f, bytes),
            Value::Acl(acl) => {
                for (index, (perms, scheme, id)) in acl.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{perms}:{}:{}", Escaped(scheme), Escaped(id))?;
                }
                Ok(())
            }
            Value::List(items) => write!(f, "[{}]", Escaped(&items.join(", "))),
            Value::Stat(_) => f.write_str("stat"),
            Value::Multi(items) => write!(f, "{} items", items.len()),
            Value::Undecoded(len) => write!(f, "<{len} bytes>"),
        }
    }
}

/// Maximum number of binary data bytes in a line.
const SHOWN_BYTES: usize = 64;

fn show_data(f: &mut std::fmt::Formatter<'_>, bytes: &[u8]) -> std::fmt::Result {
    if bytes.is_empty() {
        return f.write_str("<empty>");
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => write!(f, "\"{}\"", Escaped(text)),
        _ => {
            f.write_str("0x")?;
            for byte in bytes.iter().take(SHOWN_BYTES) {
                write!(f, "{byte:02x}")?;
            }
            if bytes.len() > SHOWN_BYTES { write!(f, "…({} bytes)", bytes.len()) } else { Ok(()) }
        }
    }
}

/// The GUIDs seen so far, in order of appearance.
#[derive(Debug, Default)]
pub(crate) struct Guids(Vec<String>);

impl Guids {
    /// Returns `text` with each GUID replaced by `G` and its number.
    pub(crate) fn mask(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, guid, after)) = next_guid(rest) {
            out.push_str(before);
            let number = self.0.iter().position(|known| known == guid).unwrap_or_else(|| {
                self.0.push(guid.to_owned());
                self.0.len() - 1
            });
            let _ = write!(out, "G{}", number + 1);
            rest = after;
        }
        out.push_str(rest);
        out
    }
}

const GUID_LEN: usize = 36;

/// Splits `text` at its first GUID: the text before it, the GUID, the text after it.
fn next_guid(text: &str) -> Option<(&str, &str, &str)> {
    let start = text.as_bytes().windows(GUID_LEN).position(is_guid)?;
    let (before, rest) = text.split_at_checked(start)?;
    let (guid, after) = rest.split_at_checked(GUID_LEN)?;
    Some((before, guid, after))
}

fn is_guid(window: &[u8]) -> bool {
    window.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_are_numbered_in_order_of_appearance() {
        let mut guids = Guids::default();
        let (a, b) =
            ("0b2f3f0e-92c2-4f0a-8f7b-111111111111", "0b2f3f0e-92c2-4f0a-8f7b-222222222222");
        assert_eq!(guids.mask(&format!("/l/_c_{b}-lock-")), "/l/_c_G1-lock-");
        assert_eq!(guids.mask(&format!("[_c_{a}-x, _c_{b}-y]")), "[_c_G2-x, _c_G1-y]");
        assert_eq!(guids.mask("nothing here"), "nothing here");
    }
}
