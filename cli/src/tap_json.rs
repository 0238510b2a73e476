//! Records of a tap as JSON.

use docent_testing::tap::{Field, Record, Side, Value as FieldValue, What};
use serde_json::{Map, Value, json};

/// An object with all that is known of a record. Data are an object `{"text": …}` if they are UTF-8, `{"hex": …}` otherwise,
/// and null stays null.
pub(crate) fn json(record: &Record) -> Value {
    let (what, fields) = what(&record.what);
    let micros = u64::try_from(record.at.as_micros()).unwrap_or(u64::MAX);
    let mut object = Map::new();
    for (name, value) in [
        ("seq", json!(record.seq)),
        ("us", json!(micros)),
        ("conn", json!(record.connection)),
        ("client", json!(*record.client)),
        ("dir", json!(record.direction().map(|direction| direction.name()))),
        ("injected", json!(record.injected)),
    ] {
        object.insert(name.to_owned(), value);
    }
    if let Value::Object(what) = what {
        object.extend(what);
    }
    object.retain(|_, value| !value.is_null());
    object.extend(members(fields));
    Value::Object(object)
}

/// What is known of a frame besides its fields, and these.
fn what(what: &What) -> (Value, &[Field]) {
    let object = match what {
        What::Connect { session_id, last_zxid_seen, time_out, read_only } => json!({
            "kind": "connect", "session": hex_number(*session_id), "lastZxidSeen": last_zxid_seen,
            "timeOut": time_out, "readOnly": read_only,
        }),
        What::Connected { session_id, time_out, read_only } => json!({
            "kind": "connected", "session": hex_number(*session_id), "timeOut": time_out,
            "readOnly": read_only,
        }),
        What::Refused { err } => json!({ "kind": "refused", "err": err.number() }),
        What::Request { xid, op, fields } => {
            let op_name = op.to_string();
            let request =
                json!({ "kind": "request", "xid": xid, "op": op_name, "type": op.number() });
            return (request, fields);
        }
        What::Reply { xid, op, zxid, err, fields } => {
            let result = err.name().map_or_else(|| err.number().to_string(), str::to_owned);
            let reply = json!({
                "kind": "reply", "xid": xid, "op": op.map(|op| op.to_string()), "zxid": zxid,
                "err": err.number(), "result": result,
            });
            return (reply, fields);
        }
        What::Event { zxid, event_type, path } => json!({
            "kind": "event", "zxid": zxid, "event": event_type.to_string(), "path": path,
        }),
        What::Raw { text, len, .. } => json!({ "kind": "raw", "len": len, "text": text }),
        What::Closed { by } => {
            let by = match by {
                Side::Client => "client",
                Side::Server => "server",
                Side::Tap => "tap",
            };
            json!({ "kind": "closed", "by": by })
        }
        What::Note(note) => json!({ "kind": "note", "text": note }),
    };
    (object, &[])
}

fn members(fields: &[Field]) -> Map<String, Value> {
    fields.iter().map(|field| (field.name.to_owned(), value(&field.value))).collect()
}

fn value(value: &FieldValue) -> Value {
    match value {
        FieldValue::Path(text) => json!(text),
        FieldValue::Text(text) => json!(text),
        FieldValue::Int(number) => json!(number),
        FieldValue::Bool(value) => json!(value),
        FieldValue::Data(data) => json!(data.as_deref().map(self::data)),
        FieldValue::Acl(acl) => acl
            .iter()
            .map(|(perms, scheme, id)| json!({ "perms": perms, "scheme": scheme, "id": id }))
            .collect(),
        FieldValue::List(items) => json!(items),
        FieldValue::Stat(stat) => json!(stat),
        FieldValue::Multi(items) => items
            .iter()
            .map(|(op, number, fields)| {
                let mut operation = members(fields);
                operation.insert("op".to_owned(), json!(op));
                if let Some(number) = number {
                    operation.insert("type".to_owned(), json!(number));
                }
                Value::Object(operation)
            })
            .collect(),
        FieldValue::Undecoded(len) => json!(len),
    }
}

fn data(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "text": text }),
        Err(_) => {
            json!({ "hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() })
        }
    }
}

fn hex_number(number: i64) -> String {
    format!("{number:#x}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use docent_protocol::OpCode;

    use super::*;

    #[test]
    fn a_record_is_an_object_with_all_of_its_fields() {
        let fields = vec![
            Field { name: "path", value: FieldValue::Path("/a".to_owned()) },
            Field { name: "data", value: FieldValue::Data(Some(b"\xff\x00".to_vec())) },
            Field { name: "text", value: FieldValue::Text(None) },
        ];
        let record = Record {
            seq: 3,
            at: Duration::from_micros(1520),
            connection: 1,
            client: "A".into(),
            what: What::Request { xid: 1, op: OpCode::Create, fields },
            injected: None,
        };
        let expected = r#"{"client":"A","conn":1,"data":{"hex":"ff00"},"dir":"c2s","kind":"request","op":"create","path":"/a","seq":3,"text":null,"type":1,"us":1520,"xid":1}"#;
        assert_eq!(json(&record).to_string(), expected);
    }
}
