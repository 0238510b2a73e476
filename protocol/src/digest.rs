//! The ids of the scheme `digest`: SHA-1 and Base64, implemented here to avoid dependencies.

use alloc::{format, string::String};

/// The id of `user:password` in an ACL of the scheme `digest`: `user:BASE64(SHA1(user:password))`.
///
/// The argument is the text that `add_auth` sends for the scheme. The user ends at the first colon; the password may
/// contain more of them. A client without these credentials can grant permissions to their owner by this id.
///
/// The id protects the password only against readers that cannot guess it: SHA-1 without a salt is fast to try.
///
/// Servers since 3.7 can be configured to use another hash (`zookeeper.DigestAuthenticationProvider.digestAlg`); they
/// do not recognize this id then.
///
/// ```
/// use docent_protocol::{Acl, Perms, acl::digest_id};
///
/// let id = digest_id("super:test");
/// assert_eq!(id, "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
/// let acl = [Acl::new(Perms::ALL, "digest", &id)];
/// # let _ = acl;
/// ```
///
/// Source: `DigestAuthenticationProvider.generateDigest`.
#[must_use]
pub fn digest_id(user_password: &str) -> String {
    let user = user_password.split(':').next().unwrap_or_default();
    format!("{user}:{}", base64(&sha1(user_password.as_bytes())))
}

/// Whether an id of the scheme `digest` is `user:hash` and not, by mistake, `user:password`: whether it ends with the Base64
/// of a hash of 16 (MD5), 20 (SHA-1), 28, 32, 48 or 64 bytes (SHA-2, SHA-3). A server accepts any text, which then
/// matches no user, and shows a password to every reader of the ACL.
///
/// ```
/// use docent_protocol::acl::is_digest_id;
///
/// assert!(is_digest_id("super:D/InIHSb7yEEbrWz8b9l71RjZJU="));
/// assert!(!is_digest_id("super:test"));
/// ```
///
/// Source: `DigestAuthenticationProvider.matches`, `DigestAlgEnum`.
#[must_use]
pub fn is_digest_id(id: &str) -> bool {
    let Some((user, hash)) = id.split_once(':') else { return false };
    let digits = hash.trim_end_matches('=');
    let is_base64 =
        digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte));
    let bytes = digits.len() * 6 / 8;
    !user.is_empty()
        && is_base64
        && [16, 20, 28, 32, 48, 64].contains(&bytes)
        && hash.len() == bytes.div_ceil(3) * 4
}

/// The size of a block of SHA-1, in bytes.
const BLOCK: usize = 64;

/// The size of the message length at the end of the last block, in bytes.
const LENGTH: usize = 8;

/// Source: RFC 3174.
fn sha1(message: &[u8]) -> [u8; 20] {
    let mut state: [u32; 5] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476, 0xC3D2_E1F0];
    let (blocks, rest) = message.as_chunks::<BLOCK>();
    for block in blocks {
        add_block(&mut state, block);
    }
    // The rest, a bit that is set, zeros, and the length in bits at the end of a block: one block or two.
    let mut tail = [0; 2 * BLOCK];
    let ends = if rest.len() < BLOCK - LENGTH { BLOCK } else { 2 * BLOCK };
    let length = (message.len() as u64).wrapping_mul(8).to_be_bytes();
    let marked = rest.iter().chain(&[0x80]);
    tail.iter_mut().zip(marked).for_each(|(to, from)| *to = *from);
    tail.iter_mut().take(ends).rev().zip(length.iter().rev()).for_each(|(to, from)| *to = *from);
    for block in tail.as_chunks::<BLOCK>().0.iter().take(ends / BLOCK) {
        add_block(&mut state, block);
    }
    let mut digest = [0; 20];
    for (to, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *to = word.to_be_bytes();
    }
    digest
}

fn add_block(state: &mut [u32; 5], block: &[u8; BLOCK]) {
    // The last 16 words, of which the first is the next to use.
    let mut words = [0; 16];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for round in 0..80 {
        let (f, k) = match round {
            0..20 => ((b & c) | (!b & d), 0x5A82_7999_u32),
            20..40 => (b ^ c ^ d, 0x6ED9_EBA1),
            40..60 => ((b & c) | (b & d) | (c & d), 0x8F1B_BCDC),
            _ => (b ^ c ^ d, 0xCA62_C1D6),
        };
        let [word, _, third, .., ninth, _, _, _, _, fourteenth, _, _] = words;
        let next = a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next.wrapping_add(word));
        words.rotate_left(1);
        words[15] = (word ^ third ^ ninth ^ fourteenth).rotate_left(1);
    }
    for (old, add) in state.iter_mut().zip([a, b, c, d, e]) {
        *old = old.wrapping_add(add);
    }
}

/// Source: RFC 4648, section 4.
fn base64(input: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(input.len().div_ceil(3) * 4);
    for chunk in input.chunks(3) {
        let word = (0..3).fold(0_usize, |word, at| {
            word << 8 | usize::from(chunk.get(at).copied().unwrap_or_default())
        });
        for at in 0..4 {
            let letter = LETTERS.get(word >> (18 - 6 * at) & 0x3F).copied().unwrap_or(b'=');
            out.push(char::from(if at > chunk.len() { b'=' } else { letter }));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// From FIPS 180-4 and RFC 3174, and a million times `a`.
    #[test]
    fn sha1_matches_the_published_vectors() {
        for (message, digest) in [
            (&b""[..], "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            (b"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
            (
                b"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
                "a49b2446a02c645bf419f995b67091253a04a259",
            ),
            (&vec![b'a'; 1_000_000], "34aa973cd4c4daa4f61eeb2bdbad27316534016f"),
            (&b"01234567".repeat(80), "dea356a2cddd90c7a7ecedc5ebb563934f460452"),
        ] {
            assert_eq!(hex(&sha1(message)), digest, "{} bytes", message.len());
        }
    }

    /// Every length around the ends of blocks, where the padding takes one block or two; the sums are of `sha1sum`.
    #[test]
    fn sha1_pads_every_length() {
        let digests: Vec<u8> = (0..=200).flat_map(|len| sha1(&vec![b'x'; len])).collect();
        assert_eq!(hex(&sha1(&digests)), "e071bbfd306caea44e4027211afae4a1fb3f0999");
    }

    /// From RFC 4648, section 10.
    #[test]
    fn base64_matches_the_published_vectors() {
        for (input, output) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(input.as_bytes()), output);
        }
        assert_eq!(base64(&[0xFB, 0xEF, 0xFF]), "++//");
    }

    #[test]
    fn a_password_is_no_hash() {
        for bytes in [16, 20, 28, 32, 48, 64] {
            assert!(is_digest_id(&format!("bob:{}", base64(&vec![0xFB; bytes]))), "{bytes}");
        }
        for bytes in [0, 15, 17, 19, 21, 33, 128] {
            assert!(!is_digest_id(&format!("bob:{}", base64(&vec![0xFB; bytes]))), "{bytes}");
        }
        let hash = base64(&[7; 20]);
        for id in [
            "",
            "bob",
            "bob:secret",
            "bob:a:b",
            &hash,
            &format!(":{hash}"),
            &format!("a:{}", &hash[..27]),
        ] {
            assert!(!is_digest_id(id), "{id}");
        }
    }

    /// The first is in ZooKeeper's Administrator's Guide; the others were returned by `generateDigest` of ZooKeeper 3.8.
    #[test]
    fn ids_are_those_of_zookeeper() {
        for (credentials, id) in [
            ("super:test", "super:D/InIHSb7yEEbrWz8b9l71RjZJU="),
            ("alice:secret", "alice:aYXlLOpEooaV1cRAvUL1fp9Qt7E="),
            ("no colon", "no colon:Nal3InMs8gh39HRpq2pZ/hkCa+A="),
            ("a:b:c", "a:cLzgnoJ6mP5qz3w+mwvPE2vDgu0="),
            ("jörg:pässword", "jörg:eXmaYbRHgGb4DuQSPyx0ImQkekE="),
            (":", ":BaefBs8/Z/cm2uaNGKIpD2yaUMk="),
        ] {
            assert_eq!(digest_id(credentials), id);
        }
    }
}
