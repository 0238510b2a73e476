//! Faults that the simulator plants, as in `docent_session::planted`.

#[cfg(docent_sim)]
pub(crate) use docent_session::planted::is;

/// Waits this many seconds if this fault is planted. `#[cfg(docent_sim)]` stands in front of each call.
#[cfg(docent_sim)]
pub(crate) async fn delay(fault: &str, client: &docent_session::Client, seconds: u64) {
    if is(fault) {
        crate::timer::sleep(client, std::time::Duration::from_secs(seconds)).await;
    }
}

#[cfg(not(docent_sim))]
pub(crate) const fn is(_fault: &str) -> bool {
    false
}
