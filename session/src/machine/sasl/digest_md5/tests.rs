//! DIGEST-MD5 compared with RFC 2831 and real servers, and on invalid input.

use proptest::prelude::*;

use super::*;

const URI: &str = super::super::DIGEST_URI;

/// The response to a challenge, and the proof it expects.
fn exchange(challenge: &str, user: &str, password: &str) -> Result<(String, String), Unusable> {
    let response = respond(challenge.as_bytes(), user, password, URI, "C")?;
    Ok((String::from_utf8(response.token).unwrap(), response.proof.0))
}

/// The `response` and the `rspauth`.
fn digests(challenge: &str, user: &str, password: &str) -> (String, String) {
    let (token, proof) = exchange(challenge, user, password).unwrap();
    let (_, rest) = token.split_once("response=").unwrap();
    (rest.split(',').next().unwrap().to_owned(), proof)
}

const CHALLENGE: &str = "realm=\"zk-sasl-md5\",nonce=\"N\",charset=utf-8,algorithm=md5-sess";

/// RFC 2831, chapter 4.
#[test]
fn the_example_of_the_rfc_comes_out_as_there() {
    let challenge = "realm=\"elwood.innosoft.com\",nonce=\"OA6MG9tEQGm2hh\",qop=\"auth\",\
                     algorithm=md5-sess,charset=utf-8";
    let response = respond(
        challenge.as_bytes(),
        "chris",
        "secret",
        "imap/elwood.innosoft.com",
        "OA6MHXh6VqTrRk",
    )
    .unwrap();
    assert_eq!(
        String::from_utf8(response.token).unwrap(),
        "charset=utf-8,username=\"chris\",realm=\"elwood.innosoft.com\",nonce=\"OA6MG9tEQGm2hh\",\
         nc=00000001,cnonce=\"OA6MHXh6VqTrRk\",digest-uri=\"imap/elwood.innosoft.com\",\
         maxbuf=65536,response=d388dad90d4bbd760a152321f2143af7,qop=auth"
    );
    let proof = response.proof;
    assert_eq!(proof.is_given_by(b"rspauth=ea40f60335c427b5527b84dbabcdfffd"), Ok(true));
    assert_eq!(proof.is_given_by(b"rspauth=ea40f60335c427b5527b84dbabcdfffe"), Ok(false));
}

/// The challenges, responses and proofs of 3.4.14, 3.6.3, 3.8.0 and 3.9.5.
#[test]
fn real_exchanges_are_reproduced() {
    for (nonce, cnonce, response, rspauth) in [
        (
            "Pe+dBuRenj5AeQPctkOlRm416Z4WA4/bD9bVZuYw",
            "081d5e8598429f357addc20479367b",
            "637525d7f78a00c812b1d12cb8a142a3",
            "ce9699d8130f50c0698adc8362ad70ad",
        ),
        (
            "7x488qiazepBJtHloDQbqCDntd4+DRxEw40zwIzi",
            "2dbcc1a5ac46dbc26bc7087c917f51",
            "9f15cf777451fbe3cea12e6be12b702b",
            "fe7fafd50a90a40afaf93af2d59f2a37",
        ),
        (
            "Kp11+3eibaW5ZKqJQkyFULtKa3xN9xRSwgh4YHCP",
            "2aabac23064626ca2cadb96d5388b5",
            "7a7d4d3be031054d4ae630ca65738268",
            "f092b62ab88e277f9645b1b4ac5ad26f",
        ),
        (
            "G0tJdwLPteyg5JThyek9r/mwfgSGMa9i2P8F8xP0",
            "8ce73f7bc51b7781de39b22ea50fba",
            "8fbf5a6b29397c93ebdc1a4587d15f7c",
            "077c75833d2836fe72cb8853266a5cf2",
        ),
    ] {
        let challenge = CHALLENGE.replace("\"N\"", &format!("\"{nonce}\""));
        let answer = respond(challenge.as_bytes(), "bob", "bobsecret", URI, cnonce).unwrap();
        assert_eq!(
            String::from_utf8(answer.token).unwrap(),
            format!(
                "charset=utf-8,username=\"bob\",realm=\"zk-sasl-md5\",nonce=\"{nonce}\",nc=00000001,\
                 cnonce=\"{cnonce}\",digest-uri=\"zookeeper/zk-sasl-md5\",maxbuf=65536,\
                 response={response},qop=auth"
            )
        );
        let last_word = format!("rspauth={rspauth}");
        assert_eq!(answer.proof.is_given_by(last_word.as_bytes()), Ok(true), "{nonce}");
    }
}

/// Responses of another client with wrong passwords, and with an unknown user, that real servers refused.
#[test]
fn a_wrong_password_gives_the_response_that_real_servers_refused() {
    for (user, nonce, cnonce, response) in [
        (
            "bob",
            "ZWXZBzk3Pe+aO8jtRfxaUOvNh845gDagsJxdRhDu",
            "f64f594e9be5477b0c32fafcdba524",
            "7b5909898107282369567e44f57bfdda",
        ),
        (
            "eve",
            "NJBUcb8eIoQco8s/BMyuEx1BTbC1PVvRP5IrAxmK",
            "230993100bf713f99431fd16388a68",
            "b37a04cc8130337caeb5891b6fefdd30",
        ),
    ] {
        let challenge = CHALLENGE.replace("\"N\"", &format!("\"{nonce}\""));
        let answer = respond(challenge.as_bytes(), user, "wrong", URI, cnonce).unwrap();
        let token = String::from_utf8(answer.token).unwrap();
        assert!(token.contains(&format!("response={response},")), "{token}");
    }
}

/// All values are computed by another implementation.
#[test]
fn text_is_hashed_as_latin_1_if_it_can_be_and_else_as_utf_8() {
    for (user, password, response, rspauth) in [
        ("bob", "pw", "796fd74242fc60e81b1f7a2ea4ce9890", "dbde62d3293516979b35ce0514563f0e"),
        ("bob", "pässwört", "dfd615c035afb4f72cb8d20cfdb5e22e", "1309bf5f516f17eb238124e8465e3930"),
        ("bob", "päss✓", "5b1651b51252162f7016c31f78711052", "27f56b135192921ab56b98b46ff24cf2"),
        ("jürgen", "pw", "98ace76febae3c02f5638476493bb572", "c3dc486499dda992b69a5aacda49125e"),
    ] {
        let expected = (response.to_owned(), rspauth.to_owned());
        assert_eq!(digests(CHALLENGE, user, password), expected, "{user} {password}");
    }
}

#[test]
fn without_a_charset_everything_is_latin_1_or_cannot_be_said() {
    let challenge = CHALLENGE.replace("charset=utf-8,", "");
    let response = respond(challenge.as_bytes(), "jürgen", "pw", URI, "C").unwrap();
    // The user is in Latin-1, and the response does not name UTF-8; the digest is the same.
    let token: Vec<u8> = response.token.clone();
    assert!(token.starts_with(b"username=\"j\xFCrgen\",realm="), "{}", token.escape_ascii());
    let digest = b"response=98ace76febae3c02f5638476493bb572,";
    assert!(token.windows(digest.len()).any(|window| window == digest));

    let refusal = exchange(&challenge, "bob", "päss✓").unwrap_err();
    assert!(refusal.to_string().contains("does not support UTF-8"), "{refusal}");
}

#[test]
fn quotes_and_backslashes_are_escaped_on_the_wire_and_not_in_the_digest() {
    let (token, _) = exchange(CHALLENGE, "b\"o\\b", "pw").unwrap();
    assert!(token.contains("username=\"b\\\"o\\\\b\","), "{token}");
    assert_eq!(digests(CHALLENGE, "b\"o\\b", "pw").0, "737f73ab00a8034da46060c6c006f402");

    let challenge = CHALLENGE.replace("\"N\"", "\"N\\\"\\\\\"");
    let (token, _) = exchange(&challenge, "bob", "pw").unwrap();
    assert!(token.contains("nonce=\"N\\\"\\\\\","), "{token}");
    assert_eq!(digests(&challenge, "bob", "pw").0, "c19f61719c0bec0de1b26fb35ba9c50d");
}

#[test]
fn the_list_may_have_holes_spaces_and_unknown_directives() {
    let usual = exchange(CHALLENGE, "bob", "pw").unwrap();
    for challenge in [
        " , NONCE = \"N\" ,,Algorithm=MD5-sess, realm=\"zk-sasl-md5\"\t,charset=UTF-8,",
        "nonce=N,realm=zk-sasl-md5,charset=utf-8,algorithm=\"md5-sess\",stale=true,x-new=\"a,b\"",
        "realm=\"zk-sasl-md5\",realm=\"second\",nonce=\"N\",qop=\"auth-int, AUTH\",charset=utf-8,\
         algorithm=md5-sess,maxbuf=9,cipher=\"rc4,des\"",
    ] {
        assert_eq!(exchange(challenge, "bob", "pw").unwrap(), usual, "{challenge}");
    }
}

#[test]
fn without_a_realm_none_is_named_and_an_empty_one_hashed() {
    let challenge = "nonce=\"N\",charset=utf-8,algorithm=md5-sess";
    let (token, _) = exchange(challenge, "bob", "pw").unwrap();
    assert!(!token.contains("realm="), "{token}");
    assert_eq!(digests(challenge, "bob", "pw").0, "13a9a36a14a88c1433539613424a0f63");
}

#[test]
fn an_invalid_challenge_is_refused_with_the_rule() {
    let long = format!("{CHALLENGE},x=\"{}\"", "x".repeat(2048));
    for (challenge, rule) in [
        ("", "no nonce"),
        ("nonsense", "no equals sign"),
        ("=x", "invalid name"),
        ("a b=x", "invalid name"),
        ("nonce=", "invalid value"),
        ("nonce=a\"b", "invalid value"),
        ("nonce=\"N", "not closed"),
        ("nonce=\"N\\", "not closed"),
        ("nonce=\"N\\\"", "not closed"),
        ("nonce=\"N\"algorithm=md5-sess", "no comma"),
        ("nonce=N algorithm=md5-sess", "no comma"),
        ("algorithm=md5-sess", "no nonce"),
        ("nonce=\"N\",nonce=\"M\",algorithm=md5-sess", "twice"),
        ("nonce=\"N\"", "another algorithm"),
        ("nonce=\"N\",algorithm=md5", "another algorithm"),
        ("nonce=\"N\",algorithm=md5-sess,algorithm=md5-sess", "twice"),
        ("nonce=\"N\",algorithm=md5-sess,qop=\"auth-int,auth-conf\"", "signed or encrypted"),
        ("nonce=\"N\",algorithm=md5-sess,charset=utf-16", "another charset"),
        (&long, "2,048 bytes"),
    ] {
        let refusal = exchange(challenge, "bob", "pw").unwrap_err().to_string();
        assert!(refusal.contains(rule), "{challenge}: {refusal}");
    }
    let realm = b"realm=\"\xFF\",nonce=\"N\",charset=utf-8,algorithm=md5-sess";
    let refusal = respond(realm, "bob", "pw", URI, "C").unwrap_err();
    assert!(refusal.to_string().contains("not UTF-8"), "{refusal}");
}

#[test]
fn only_the_right_last_word_is_a_proof() {
    let response = respond(CHALLENGE.as_bytes(), "bob", "pw", URI, "C").unwrap();
    let said = |token: &str| response.proof.is_given_by(token.as_bytes());
    assert_eq!(said("rspauth=dbde62d3293516979b35ce0514563f0e"), Ok(true));
    assert_eq!(said("rspauth=\"dbde62d3293516979b35ce0514563f0e\""), Ok(true));
    // The client's own response sent back, and an empty value.
    assert_eq!(said("rspauth=796fd74242fc60e81b1f7a2ea4ce9890"), Ok(false));
    assert_eq!(said("rspauth=\"\""), Ok(false));
    assert_eq!(said(""), Err(Unusable("rspauth is missing")));
    assert!(said("rspauth").is_err());
    let right = "rspauth=dbde62d3293516979b35ce0514563f0e";
    assert!(said(&format!("{right},{right}")).is_err());
}

#[test]
fn debug_shows_nothing_that_could_be_used() {
    let response = respond(CHALLENGE.as_bytes(), "bob", "pw", URI, "C").unwrap();
    let shown = format!("{response:?} {:?}", response.proof);
    assert!(!shown.contains("dbde62d3") && !shown.contains("796f"), "{shown}");
}

proptest! {
    #[test]
    fn no_challenge_and_no_last_word_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        user in "\\PC{0,20}",
        password in ".{0,20}",
    ) {
        let _ = respond(&bytes, &user, &password, URI, "C");
        let _ = Proof(String::new()).is_given_by(&bytes);
    }

    /// Challenges made of the meaningful pieces.
    #[test]
    fn no_nearly_valid_challenge_panics(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "nonce", "realm", "algorithm", "charset", "qop", "rspauth", "=", "\"", "\\", ",",
                " ", "md5-sess", "utf-8", "auth", "\u{e9}", "\u{2713}",
            ]),
            0..40,
        ),
    ) {
        let text = pieces.concat();
        let _ = respond(text.as_bytes(), "bob", "pw", URI, "C");
        let _ = Proof(String::new()).is_given_by(text.as_bytes());
    }

    /// Parsing the response returns the values that were put in.
    #[test]
    fn quoted_text_can_be_read_again(nonce in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut challenge = Vec::new();
        put_quoted(&mut challenge, "nonce", &nonce);
        challenge.extend_from_slice(b"algorithm=md5-sess");
        let response = respond(&challenge, "bob", "pw", URI, "C").unwrap();
        let read = directives(&response.token).unwrap();
        prop_assert_eq!(only(&read, "nonce"), Ok(Some(&*nonce)));
        prop_assert_eq!(only(&read, "username"), Ok(Some(&b"bob"[..])));
    }
}
