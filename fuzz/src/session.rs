//! docent-session under any text: what holds whatever somebody configures.
//!
//! `session/tests/corpus.rs` includes this file and replays `corpus/` with it.

use docent_protocol::path;
use docent_session::ConnectString;

/// Something that holds for any bytes.
pub type Check = fn(&[u8]);

/// The table: a corpus directory's name and its check.
pub const TARGETS: &[(&str, Check)] = &[("connect_string", connect_string)];

/// A connect string that is taken: it has servers, each with a name and a port, its chroot is a path, and
/// written down again it means the same. One that is refused: the reason is one line.
pub fn connect_string(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let parsed: ConnectString = match text.parse() {
        Ok(parsed) => parsed,
        Err(error) => {
            let reason = format!("{error}");
            assert!(!reason.is_empty() && !reason.contains('\n'), "{reason:?}");
            return;
        }
    };
    assert!(!parsed.hosts().is_empty());
    for host in parsed.hosts() {
        assert!(!host.name.is_empty() && host.port != 0);
        assert!(!host.name.contains([',', '/', '[', ']']) && host.name.trim() == host.name);
    }
    assert!(parsed.chroot().is_none_or(|chroot| chroot != "/" && path::validate(chroot).is_ok()));
    let again: ConnectString = parsed.to_string().parse().expect("what was written down is taken");
    assert_eq!(again, parsed);
}
