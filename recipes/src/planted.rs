//! Faults that the simulator plants, as in `docent_session::planted`.

#[cfg(docent_sim)]
pub(crate) use docent_session::planted::is;

#[cfg(not(docent_sim))]
pub(crate) const fn is(_fault: &str) -> bool {
    false
}
