//! The passwords of sessions, by Java's `Random`.
//!
//! It is implemented here to avoid dependencies. A test double protects nothing, so security does not matter.

/// The password of a session: 16 bytes of `java.util.Random`, seeded with the session id.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Passwords that a 3.8.0 server assigned to these ids, from recorded handshakes.
    #[test]
    fn passwords_are_those_of_a_real_server() {
        let hex = |id| session_passwd(id).iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(0x0100_0010_7ce0_004b), "5ec256f4943c5a064466d4488a1ad067");
        assert_eq!(hex(0x0100_0010_7ce0_004c), "bd6739f4b4b6b65e0eb5d821acc63669");
        assert_eq!(hex(0x0100_0010_7ce0_004d), "d08833f4540296a303f83f4d804f4b36");
    }
}
