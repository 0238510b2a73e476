//! Faults that the simulator and the scenarios of threads plant, to prove that their checks find them: docs/SIMULATION.md.
//!
//! Only `--cfg docent_sim` makes it possible to plant one. Without it, the questions below are constants, and the
//! compiler removes the faults. A fault that waits has `#[cfg(docent_sim)]` in front: a wait that is never reached would
//! make the future larger all the same.

#[cfg(docent_sim)]
pub use enabled::{is, one_in, plant};

#[cfg(docent_sim)]
mod enabled {
    use std::cell::Cell;

    thread_local! {
        /// The fault planted into all clients of this thread, and how often it was asked for.
        static PLANTED: Cell<(Option<&'static str>, u32)> = const { Cell::new((None, 0)) };
    }

    /// Plants a fault into all clients that run on this thread, in place of the one before.
    pub fn plant(fault: Option<&'static str>) {
        PLANTED.set((fault, 0));
    }

    /// Whether this fault is planted.
    #[must_use]
    pub fn is(fault: &str) -> bool {
        PLANTED.get().0 == Some(fault)
    }

    /// Whether this fault is planted, and acts this time: on every question whose number is a multiple
    /// of `times`.
    #[must_use]
    pub fn one_in(fault: &str, times: u32) -> bool {
        let (planted, asked) = PLANTED.get();
        if planted != Some(fault) {
            return false;
        }
        PLANTED.set((planted, asked.wrapping_add(1)));
        asked % times.max(1) == times - 1
    }
}

#[cfg(not(docent_sim))]
pub(crate) const fn is(_fault: &str) -> bool {
    false
}

#[cfg(not(docent_sim))]
pub(crate) const fn one_in(_fault: &str, _times: u32) -> bool {
    false
}
