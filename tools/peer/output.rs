//! The lines on standard output, and the clocks that time them.

use std::{env, io::Write as _, process::exit, sync::LazyLock};

use super::{Answer, Failure};

/// Whether lines begin with a time: `LOCK_PEER_TIMES`.
pub(super) static HAS_TIMES: LazyLock<bool> =
    LazyLock::new(|| env::var_os("LOCK_PEER_TIMES").is_some());

/// Writes a line and flushes it.
pub(super) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let time = if *HAS_TIMES { format!("@{} ", monotonic_nanos()) } else { String::new() };
    // Without a reader, there is nothing left to do.
    if writeln!(out, "{time}{line}").and_then(|()| out.flush()).is_err() {
        exit(0);
    }
}

pub(super) fn answer(id: &str, answer: Answer) {
    match answer {
        Ok(Some(text)) if text.is_empty() => say(&format!("{id} ok")),
        Ok(Some(text)) => say(&format!("{id} ok {text}")),
        Ok(None) => say(&format!("{id} false")),
        Err(Failure(kind, text)) => say(&format!("{id} err {kind} {}", text.replace('\n', " "))),
    }
}

/// The machine's monotonic clock, which `System.nanoTime` of a JVM reads too.
pub(super) fn monotonic_nanos() -> u64 {
    #[cfg(unix)]
    return nanos_of(rustix::time::ClockId::Monotonic);
    #[cfg(not(unix))]
    return 0;
}

/// The CPU time of this process.
pub(super) fn cpu_nanos() -> u64 {
    #[cfg(unix)]
    return nanos_of(rustix::time::ClockId::ProcessCPUTime);
    #[cfg(not(unix))]
    return 0;
}

#[cfg(unix)]
fn nanos_of(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    seconds * 1_000_000_000 + nanos
}
