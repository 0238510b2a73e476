//! Replies that no ZooKeeper sends. Each function turns a right reply, with its length, into a wrong one.

/// The sizes of the parts in front of the body: the length, then xid, zxid and err.
const LENGTH: usize = 4;
const HEADER: usize = LENGTH + 4 + 8 + 4;
const ERR: usize = HEADER - 4;

fn part(reply: &[u8], range: std::ops::Range<usize>) -> Vec<u8> {
    reply.get(range).unwrap_or_default().to_vec()
}

/// Puts the length in front.
fn frame(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), payload].concat()
}

/// The reply with another body.
pub(super) fn with_body(reply: &[u8], body: &[u8]) -> Vec<u8> {
    frame(&[&part(reply, LENGTH..HEADER), body].concat())
}

/// The reply with an error, and so without a body.
pub(super) fn with_err(reply: &[u8], err: i32) -> Vec<u8> {
    frame(&[&part(reply, LENGTH..ERR)[..], &err.to_be_bytes()].concat())
}

/// The reply with another length in front.
pub(super) fn with_length(reply: &[u8], length: i32) -> Vec<u8> {
    [&length.to_be_bytes(), &part(reply, LENGTH..reply.len())[..]].concat()
}

/// A reply to `getData` with this data, and the stat of the right one.
pub(super) fn with_data(reply: &[u8], data: Option<&[u8]>) -> Vec<u8> {
    let length = data.map_or(-1, |data| i32::try_from(data.len()).unwrap_or(i32::MAX));
    let stat = part(reply, reply.len().saturating_sub(STAT)..reply.len());
    with_body(reply, &[&length.to_be_bytes(), data.unwrap_or_default(), &stat].concat())
}

/// The size of a stat.
const STAT: usize = 68;

/// A reply to `getChildren` or `getChildren2` with these names.
pub(super) fn with_children(
    reply: &[u8],
    count: i32,
    name: impl Fn(i32) -> Vec<u8>,
    names: i32,
) -> Vec<u8> {
    let mut body = count.to_be_bytes().to_vec();
    for at in 0..names {
        let name = name(at);
        body.extend(i32::try_from(name.len()).unwrap_or(0).to_be_bytes());
        body.extend(name);
    }
    // A stat, which the reply to `getChildren` lacks; what follows a record is ignored.
    body.extend([0; STAT]);
    with_body(reply, &body)
}

/// The reply to another request, with other data: the xid of a request that nobody has sent.
pub(super) fn of_another_request(reply: &[u8]) -> Vec<u8> {
    let xid = part(reply, LENGTH..LENGTH + 4).try_into().map_or(0, i32::from_be_bytes);
    let mut wrong = with_data(reply, Some(b"wrong"));
    let new = xid.wrapping_add(7).to_be_bytes();
    wrong.iter_mut().skip(LENGTH).zip(new).for_each(|(byte, new)| *byte = new);
    wrong
}

/// An event in front of the reply.
pub(super) fn behind_event(reply: &[u8], event_type: i32, path: &[u8]) -> Vec<u8> {
    let (xid, zxid, err, connected) =
        ((-1_i32).to_be_bytes(), (-1_i64).to_be_bytes(), [0; 4], 3_i32.to_be_bytes());
    let length = i32::try_from(path.len()).unwrap_or(0).to_be_bytes();
    let event =
        [&xid[..], &zxid, &err, &event_type.to_be_bytes(), &connected, &length, path].concat();
    [frame(&event), reply.to_vec()].concat()
}
