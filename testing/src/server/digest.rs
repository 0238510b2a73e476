//! What a server computes of credentials: SHA-1 and Base64 for `digest`, Java's `Random` for session
//! passwords.
//!
//! Here by hand so that the crate needs no other: nothing in a test double protects anything.

/// The id of `user:password` as the digest scheme stores it: `user:BASE64(SHA1(user:password))`.
///
/// Source: `DigestAuthenticationProvider.generateDigest`.
pub(crate) fn generate_digest(id_password: &str) -> String {
    let user = id_password.split(':').next().unwrap_or_default();
    format!("{user}:{}", base64(&sha1(id_password.as_bytes())))
}

/// The password of a session: sixteen bytes of `java.util.Random` seeded with its id.
///
/// Source: `ZooKeeperServer.generatePasswd`.
pub(crate) fn session_passwd(session_id: i64) -> [u8; 16] {
    const SUPER_SECRET: i64 = 0xB341_5C00;
    const MULTIPLIER: i64 = 0x5_DEEC_E66D;
    const MASK: i64 = (1 << 48) - 1;
    let mut seed = ((session_id ^ SUPER_SECRET) ^ MULTIPLIER) & MASK;
    let mut passwd = [0; 16];
    for chunk in passwd.chunks_mut(4) {
        seed = seed.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        // Bits 47 to 16, lowest byte first.
        let bytes = (seed >> 16).to_le_bytes();
        chunk.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    }
    passwd
}

fn sha1(input: &[u8]) -> [u8; 20] {
    let mut state: [u32; 5] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476, 0xC3D2_E1F0];
    let mut message = input.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    message.extend_from_slice(&(input.len() as u64 * 8).to_be_bytes());
    for block in message.chunks_exact(64) {
        sha1_block(&mut state, block);
    }
    let mut out = [0; 20];
    for (to, word) in out.chunks_mut(4).zip(state) {
        to.copy_from_slice(&word.to_be_bytes());
    }
    out
}

fn sha1_block(state: &mut [u32; 5], block: &[u8]) {
    let mut words: Vec<u32> = block
        .chunks_exact(4)
        .filter_map(|bytes| bytes.first_chunk().map(|chunk| u32::from_be_bytes(*chunk)))
        .collect();
    for at in 16..80 {
        let word = |back: usize| words.get(at - back).copied().unwrap_or_default();
        let next = (word(3) ^ word(8) ^ word(14) ^ word(16)).rotate_left(1);
        words.push(next);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (round, word) in words.into_iter().enumerate() {
        let (f, k) = match round {
            0..20 => ((b & c) | (!b & d), 0x5A82_7999),
            20..40 => (b ^ c ^ d, 0x6ED9_EBA1),
            40..60 => ((b & c) | (b & d) | (c & d), 0x8F1B_BCDC),
            _ => (b ^ c ^ d, 0xCA62_C1D6),
        };
        let next =
            a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    for (old, add) in state.iter_mut().zip([a, b, c, d, e]) {
        *old = old.wrapping_add(add);
    }
}

fn base64(input: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in input.chunks(3) {
        let mut word = 0_u32;
        for at in 0..3 {
            word = word << 8 | u32::from(chunk.get(at).copied().unwrap_or(0));
        }
        for at in 0..4 {
            let index = usize::try_from(word >> (18 - 6 * at) & 0x3F).unwrap_or(0);
            let letter = LETTERS.get(index).copied().unwrap_or(b'=');
            out.push(char::from(if at > chunk.len() { b'=' } else { letter }));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From ZooKeeper's documentation and from `openssl`.
    #[test]
    fn digests_are_zookeepers() {
        assert_eq!(generate_digest("super:test"), "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        assert_eq!(generate_digest("no colon"), "no colon:Nal3InMs8gh39HRpq2pZ/hkCa+A=");
        assert_eq!(base64(b"a"), "YQ==");
    }

    /// Golden frames 1, 3 and 5: the passwords a 3.8.0 server gave to these ids.
    #[test]
    fn passwords_are_those_of_a_real_server() {
        let hex = |id| session_passwd(id).iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(0x0100_0010_7ce0_004b), "5ec256f4943c5a064466d4488a1ad067");
        assert_eq!(hex(0x0100_0010_7ce0_004c), "bd6739f4b4b6b65e0eb5d821acc63669");
        assert_eq!(hex(0x0100_0010_7ce0_004d), "d08833f4540296a303f83f4d804f4b36");
    }
}
