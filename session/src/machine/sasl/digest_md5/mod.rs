//! The client side of DIGEST-MD5: computes the response to a challenge, and the proof to expect.
//!
//! ```text
//!   server  realm="zk-sasl-md5",nonce="N",charset=utf-8,algorithm=md5-sess
//!   client  charset=utf-8,username="bob",realm="zk-sasl-md5",nonce="N",nc=00000001,cnonce="C",
//!           digest-uri="zookeeper/zk-sasl-md5",maxbuf=65536,response=R,qop=auth
//!   server  rspauth=P
//! ```
//!
//! Only `qop=auth`: nothing after the exchange is signed or encrypted, as in Java's client. No `authzid`: Java repeats
//! the user's name there, and servers use only the authenticated name.
//!
//! Source: RFC 2831.

use std::{borrow::Cow, fmt};

use md5::{Digest, Md5};

/// Both sides count their exchanges; this is always the first one.
const NONCE_COUNT: &str = "00000001";

/// Challenges and final replies must be shorter than this, in bytes (RFC 2831, 2.1.1).
const MAX_CHALLENGE: usize = 2048;

/// The client's reply to a challenge.
#[derive(PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) token: Vec<u8>,
    /// The reply that only a server with the password can give.
    pub(crate) proof: Proof,
}

/// The `rspauth` that proves knowledge of the password.
#[derive(PartialEq, Eq)]
pub(crate) struct Proof(String);

/// The reason why a message of the server is unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unusable(&'static str);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// By hand, to keep the contents out of logs.
impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proof").finish_non_exhaustive()
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").finish_non_exhaustive()
    }
}

/// Computes the response to a challenge. `cnonce` is the client's own nonce, of letters and digits.
pub(crate) fn respond(
    challenge: &[u8],
    user: &str,
    password: &str,
    digest_uri: &str,
    cnonce: &str,
) -> Result<Response, Unusable> {
    let challenge = Challenge::parse(challenge)?;
    let utf8 = challenge.utf8;
    let realm = challenge.realm.as_deref().unwrap_or_default();
    let secret = hash_bytes(&[
        &hashed(user, utf8)?,
        b":",
        &hashed_realm(realm, utf8)?,
        b":",
        &hashed(password, utf8)?,
    ]);
    let nonce = &challenge.nonce;
    let a1 = hash(&[&secret, b":", nonce, b":", cnonce.as_bytes()]);
    let answer = |method: &str| {
        let a2 = hash(&[method.as_bytes(), b":", digest_uri.as_bytes()]);
        let cnonce = cnonce.as_bytes();
        let count = NONCE_COUNT.as_bytes();
        hash(&[a1.as_bytes(), b":", nonce, b":", count, b":", cnonce, b":auth:", a2.as_bytes()])
    };

    let mut token = Vec::new();
    if utf8 {
        token.extend_from_slice(b"charset=utf-8,");
    }
    put_quoted(&mut token, "username", &sent(user, utf8)?);
    if let Some(realm) = &challenge.realm {
        put_quoted(&mut token, "realm", realm);
    }
    put_quoted(&mut token, "nonce", nonce);
    put_plain(&mut token, "nc", NONCE_COUNT);
    put_quoted(&mut token, "cnonce", cnonce.as_bytes());
    put_quoted(&mut token, "digest-uri", digest_uri.as_bytes());
    put_plain(&mut token, "maxbuf", "65536");
    put_plain(&mut token, "response", &answer("AUTHENTICATE"));
    token.extend_from_slice(b"qop=auth");
    Ok(Response { token, proof: Proof(answer("")) })
}

impl Proof {
    /// Whether a server's final reply proves that it knows the password.
    pub(crate) fn is_given_by(&self, token: &[u8]) -> Result<bool, Unusable> {
        let directives = directives(token)?;
        let rspauth = only(&directives, "rspauth")?.ok_or(Unusable("rspauth is missing"))?;
        Ok(*rspauth == *self.0.as_bytes())
    }

    #[cfg(test)]
    pub(crate) fn expected(&self) -> &str {
        &self.0
    }
}

/// The challenge of a server.
struct Challenge {
    /// The first realm, if there are several.
    realm: Option<Vec<u8>>,
    nonce: Vec<u8>,
    /// Whether text is UTF-8; otherwise it is ISO-8859-1.
    utf8: bool,
}

impl Challenge {
    fn parse(text: &[u8]) -> Result<Self, Unusable> {
        let directives = directives(text)?;
        let realm = directives.iter().find(|directive| directive.is("realm"));
        let nonce = only(&directives, "nonce")?.ok_or(Unusable("the challenge has no nonce"))?;
        let algorithm = only(&directives, "algorithm")?;
        if !algorithm.is_some_and(|name| name.eq_ignore_ascii_case(b"md5-sess")) {
            return Err(Unusable("the challenge is for another algorithm than md5-sess"));
        }
        let qops = only(&directives, "qop")?;
        let plain = |qop: &[u8]| qop.trim_ascii().eq_ignore_ascii_case(b"auth");
        if qops.is_some_and(|qops| !qops.split(|byte| *byte == b',').any(plain)) {
            return Err(Unusable("the challenge requires signed or encrypted messages"));
        }
        let charset = only(&directives, "charset")?;
        if charset.is_some_and(|charset| !charset.eq_ignore_ascii_case(b"utf-8")) {
            return Err(Unusable("the challenge has another charset than utf-8"));
        }
        Ok(Self {
            realm: realm.map(|directive| directive.value.to_vec()),
            nonce: nonce.to_vec(),
            utf8: charset.is_some(),
        })
    }
}

/// `name=value` or `name="value"`.
struct Directive<'a> {
    name: &'a [u8],
    value: Cow<'a, [u8]>,
}

impl Directive<'_> {
    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// The value of a directive that may occur at most once.
fn only<'a>(directives: &'a [Directive<'_>], name: &str) -> Result<Option<&'a [u8]>, Unusable> {
    let mut values = directives.iter().filter(|directive| directive.is(name));
    let value = values.next().map(|directive| &*directive.value);
    match values.next() {
        None => Ok(value),
        Some(_) => Err(Unusable("a directive that must be unique occurs twice")),
    }
}

/// Parses the list: its elements are separated by commas. Elements may be empty and surrounded by white space.
fn directives(text: &[u8]) -> Result<Vec<Directive<'_>>, Unusable> {
    if text.len() >= MAX_CHALLENGE {
        return Err(Unusable("it has 2,048 bytes or more"));
    }
    let mut directives = Vec::new();
    let mut rest = text.trim_ascii_start();
    while let Some(first) = rest.first() {
        if *first == b',' {
            rest = rest.get(1..).unwrap_or_default().trim_ascii_start();
            continue;
        }
        let (directive, tail) = directive(rest)?;
        directives.push(directive);
        rest = tail.trim_ascii_start();
        if rest.first().is_some_and(|next| *next != b',') {
            return Err(Unusable("there is no comma between two directives"));
        }
    }
    Ok(directives)
}

fn directive(text: &[u8]) -> Result<(Directive<'_>, &[u8]), Unusable> {
    let equals = text.iter().position(|byte| *byte == b'=');
    let (name, value) = equals
        .and_then(|at| text.split_at_checked(at))
        .ok_or(Unusable("a directive has no equals sign"))?;
    let name = name.trim_ascii_end();
    if name.is_empty() || !name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-') {
        return Err(Unusable("a directive has an invalid name"));
    }
    let value = value.get(1..).unwrap_or_default().trim_ascii_start();
    if let Some(quoted) = value.strip_prefix(b"\"") {
        let (value, rest) = unquote(quoted)?;
        return Ok((Directive { name, value: value.into() }, rest));
    }
    let ends = |byte: &u8| *byte == b',' || byte.is_ascii_whitespace();
    let (value, rest) = value.split_at(value.iter().position(ends).unwrap_or(value.len()));
    if value.is_empty() || value.contains(&b'"') {
        return Err(Unusable("a directive has an invalid value"));
    }
    Ok((Directive { name, value: value.into() }, rest))
}

/// Returns the value up to the closing quote, and the rest behind the quote. A backslash escapes the next byte.
fn unquote(text: &[u8]) -> Result<(Vec<u8>, &[u8]), Unusable> {
    let mut value = Vec::new();
    let mut rest = text;
    loop {
        rest = match rest {
            [b'"', tail @ ..] => return Ok((value, tail)),
            [b'\\', byte, tail @ ..] | [byte, tail @ ..] => {
                value.push(*byte);
                tail
            }
            [] => return Err(Unusable("a quote is not closed")),
        };
    }
}

fn put_quoted(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"=\"");
    for byte in value {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.extend_from_slice(b"\",");
}

fn put_plain(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.push(b'=');
    out.extend_from_slice(value.as_bytes());
    out.push(b',');
}

/// Encodes text for the wire.
fn sent(text: &str, utf8: bool) -> Result<Cow<'_, [u8]>, Unusable> {
    if utf8 { Ok(text.as_bytes().into()) } else { hashed(text, false) }
}

/// Encodes text for the digest: in ISO-8859-1 if it can be represented in it, whatever the charset is.
fn hashed(text: &str, utf8: bool) -> Result<Cow<'_, [u8]>, Unusable> {
    if text.is_ascii() {
        return Ok(text.as_bytes().into());
    }
    let latin: Result<Vec<u8>, _> = text.chars().map(|c| u8::try_from(u32::from(c))).collect();
    match latin {
        Ok(latin) => Ok(latin.into()),
        Err(_) if utf8 => Ok(text.as_bytes().into()),
        Err(_) => Err(Unusable(
            "the server does not support UTF-8, which the user or the password requires",
        )),
    }
}

fn hashed_realm(realm: &[u8], utf8: bool) -> Result<Cow<'_, [u8]>, Unusable> {
    if !utf8 {
        return Ok(realm.into());
    }
    let text = str::from_utf8(realm).map_err(|_| Unusable("the realm is not UTF-8"))?;
    hashed(text, utf8)
}

fn hash_bytes(parts: &[&[u8]]) -> [u8; 16] {
    let mut md5 = Md5::new();
    for part in parts {
        md5.update(part);
    }
    md5.finalize().into()
}

/// The MD5 of all parts in sequence, in hexadecimal.
pub(crate) fn hash(parts: &[&[u8]]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or_default();
    hash_bytes(parts).iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xF)]).collect()
}

#[cfg(test)]
mod tests;
