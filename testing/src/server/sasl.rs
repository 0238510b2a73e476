//! SASL DIGEST-MD5, to the extent that ZooKeeper uses it.
//!
//! ```text
//!   client  (empty)
//!   server  realm="zk-sasl-md5",nonce="…",charset=utf-8,algorithm=md5-sess
//!   client  charset=utf-8,username="bob",realm="zk-sasl-md5",nonce="…",nc=00000001,cnonce="…",
//!           digest-uri="zookeeper/zk-sasl-md5",maxbuf=65536,response=…,qop=auth
//!   server  rspauth=…
//! ```
//!
//! MD5 is insecure. It is here because clients use it, and it protects only tests.
//!
//! Source: RFC 2831; `ZooKeeperSaslServer`, `SaslServerCallbackHandler`.

use std::collections::BTreeMap;

const REALM: &str = "zk-sasl-md5";
const DIGEST_URI: &str = "zookeeper/zk-sasl-md5";

/// The state of an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Exchange {
    /// No token was exchanged.
    #[default]
    None,
    /// Waits for the response to the challenge with this nonce.
    Challenged(String),
    /// The client is authenticated.
    Done,
}

/// The reaction to a client's token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send this token and continue the exchange.
    Challenge(Vec<u8>),
    /// Send this token; the connection is authenticated as this user.
    Proved(Vec<u8>, String),
    /// The client is refused.
    Refused,
}

/// Handles a client's token.
pub(crate) fn step(
    exchange: &mut Exchange,
    token: &[u8],
    nonce: impl FnOnce() -> String,
    users: &BTreeMap<String, String>,
) -> Step {
    match std::mem::take(exchange) {
        Exchange::None => {
            let nonce = nonce();
            let challenge =
                format!("realm=\"{REALM}\",nonce=\"{nonce}\",charset=utf-8,algorithm=md5-sess");
            *exchange = Exchange::Challenged(nonce);
            Step::Challenge(challenge.into_bytes())
        }
        Exchange::Challenged(nonce) => match proof(token, &nonce, users) {
            Some((user, rspauth)) => {
                *exchange = Exchange::Done;
                Step::Proved(format!("rspauth={rspauth}").into_bytes(), user)
            }
            None => Step::Refused,
        },
        Exchange::Done => Step::Refused,
    }
}

/// Verifies a response. Returns the user and the server's `rspauth`.
fn proof(token: &[u8], nonce: &str, users: &BTreeMap<String, String>) -> Option<(String, String)> {
    let token = String::from_utf8_lossy(token);
    let parts = directives(&token);
    let part = |name: &str| parts.get(name).map(String::as_str);
    let user = part("username")?;
    let passwd = users.get(user)?;
    let cnonce = part("cnonce")?;
    let fits = part("authzid").is_none_or(|authzid| authzid == user)
        && part("realm").is_none_or(|realm| realm == REALM)
        && part("nonce") == Some(nonce)
        && part("nc") == Some("00000001")
        && part("digest-uri") == Some(DIGEST_URI)
        && part("qop").is_none_or(|qop| qop == "auth");
    // The Java client sends an authorization id besides its user name.
    let authzid = part("authzid").map(|authzid| format!(":{authzid}")).unwrap_or_default();
    let session = format!(":{nonce}:{cnonce}{authzid}");
    let answer =
        |method| response(&format!("{user}:{REALM}:{passwd}"), &session, nonce, cnonce, method);
    (fits && part("response") == Some(&answer("AUTHENTICATE")))
        .then(|| (user.to_owned(), answer("")))
}

fn response(secret: &str, session: &str, nonce: &str, cnonce: &str, method: &str) -> String {
    let mut a1 = md5(secret.as_bytes()).to_vec();
    a1.extend(session.bytes());
    let a1 = hex(&md5(&a1));
    let a2 = hex(&md5(format!("{method}:{DIGEST_URI}").as_bytes()));
    hex(&md5(format!("{a1}:{nonce}:00000001:{cnonce}:auth:{a2}").as_bytes()))
}

/// Parses `name=value` and `name="value"`, separated by commas. A backslash escapes the next character.
fn directives(text: &str) -> BTreeMap<String, String> {
    let mut parts = BTreeMap::new();
    let mut rest = text.chars().peekable();
    while rest.peek().is_some() {
        let name: String = rest.by_ref().take_while(|c| *c != '=').collect();
        let mut value = String::new();
        if rest.next_if_eq(&'"').is_some() {
            while let Some(c) = rest.next().filter(|c| *c != '"') {
                value.extend(if c == '\\' { rest.next() } else { Some(c) });
            }
            rest.next_if_eq(&',');
        } else {
            value.extend(rest.by_ref().take_while(|c| *c != ','));
        }
        parts.insert(name.trim().to_owned(), value);
    }
    parts
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn md5(input: &[u8]) -> [u8; 16] {
    let mut state: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];
    let mut message = input.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    message.extend_from_slice(&(input.len() as u64 * 8).to_le_bytes());
    for block in message.chunks_exact(64) {
        md5_block(&mut state, block);
    }
    let mut out = [0; 16];
    for (to, word) in out.chunks_mut(4).zip(state) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    out
}

fn md5_block(state: &mut [u32; 4], block: &[u8]) {
    const SHIFTS: [[u32; 4]; 4] =
        [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let words: Vec<u32> = block
        .chunks_exact(4)
        .filter_map(|bytes| bytes.first_chunk().map(|chunk| u32::from_le_bytes(*chunk)))
        .collect();
    let [mut a, mut b, mut c, mut d] = *state;
    for round in 0..64_u32 {
        let (f, word) = match round / 16 {
            0 => ((b & c) | (!b & d), round),
            1 => ((d & b) | (!d & c), 5 * round + 1),
            2 => (b ^ c ^ d, 3 * round + 5),
            _ => (c ^ (b | !d), 7 * round),
        };
        // The table of RFC 1321 is 2^32 times the absolute sine of the round's number, which is below 2^32.
        let constant = (f64::from(round + 1).sin().abs() * 4_294_967_296.0) as u32;
        let word = words.get((word % 16) as usize).copied().unwrap_or_default();
        let shift =
            SHIFTS.get((round / 16) as usize).and_then(|s| s.get((round % 4) as usize)).copied();
        let sum = a.wrapping_add(f).wrapping_add(constant).wrapping_add(word);
        (a, d, c, b) = (d, c, b, b.wrapping_add(sum.rotate_left(shift.unwrap_or_default())));
    }
    for (old, add) in state.iter_mut().zip([a, b, c, d]) {
        *old = old.wrapping_add(add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn md5_is_md5() {
        assert_eq!(hex(&md5(b"")), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex(&md5(&[b'a'; 100])), "36a92cc94a9e0fa21f625f8bfb007adf");
    }

    /// The expected values were computed by another implementation.
    #[test]
    fn the_right_password_is_proved_and_answered() {
        let users = BTreeMap::from([("bob".to_owned(), "bobpw".to_owned())]);
        let mut exchange = Exchange::default();
        let mut step =
            |token: &str| super::step(&mut exchange, token.as_bytes(), || "N".into(), &users);
        let Step::Challenge(challenge) = step("") else { panic!() };
        assert_eq!(
            challenge,
            b"realm=\"zk-sasl-md5\",nonce=\"N\",charset=utf-8,algorithm=md5-sess"
        );
        let answer = "charset=utf-8,username=\"b\\ob\",realm=\"zk-sasl-md5\",nonce=\"N\",nc=00000001,\
                      cnonce=\"C\",digest-uri=\"zookeeper/zk-sasl-md5\",maxbuf=65536,\
                      response=RESPONSE,qop=auth";
        let Step::Proved(token, user) =
            step(&answer.replace("RESPONSE", "8b5380172d11182f9b97b3808075cd02"))
        else {
            panic!()
        };
        assert_eq!(
            (token, user),
            (b"rspauth=cfaf8c260d1c9f4147a5c9107a1ab331".to_vec(), "bob".to_owned())
        );
        assert_eq!(step(""), Step::Refused);
    }

    /// From a recorded frame of a client whose password for bob is `wrong`.
    #[test]
    fn a_captured_answer_is_understood() {
        let users = BTreeMap::from([("bob".to_owned(), "wrong".to_owned())]);
        let token = "charset=utf-8,username=\"bob\",realm=\"zk-sasl-md5\",\
                     nonce=\"ZWXZBzk3Pe+aO8jtRfxaUOvNh845gDagsJxdRhDu\",nc=00000001,\
                     cnonce=\"f64f594e9be5477b0c32fafcdba524\",digest-uri=\"zookeeper/zk-sasl-md5\",\
                     maxbuf=65536,response=7b5909898107282369567e44f57bfdda,qop=auth";
        let nonce = "ZWXZBzk3Pe+aO8jtRfxaUOvNh845gDagsJxdRhDu";
        assert_eq!(proof(token.as_bytes(), nonce, &users).unwrap().0, "bob");
    }

    #[test]
    fn a_host_name_in_the_uri_or_a_wrong_password_is_refused() {
        let users = BTreeMap::from([("bob".to_owned(), "bobpw".to_owned())]);
        for (uri, response) in
            [(DIGEST_URI, "0"), ("zookeeper/localhost", "8b5380172d11182f9b97b3808075cd02")]
        {
            let mut exchange = Exchange::Challenged("N".to_owned());
            let token = format!(
                "username=\"bob\",nonce=\"N\",nc=00000001,cnonce=\"C\",digest-uri=\"{uri}\",\
                 response={response},qop=auth"
            );
            let refused = step(&mut exchange, token.as_bytes(), String::new, &users);
            assert_eq!(refused, Step::Refused, "{uri}");
        }
    }
}
