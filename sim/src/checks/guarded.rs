//! Guarded writes: applied only while the nodes of all their locks or of their leadership exist, and their tokens never
//! go back.

use std::collections::BTreeMap;

use crate::world::check::{Check, Findings, View};

/// The registers of guarded writes: nodes whose data are a token and the paths of the nodes that guard it.
#[derive(Default)]
pub(crate) struct GuardedWrites {
    registers: BTreeMap<String, Register>,
    /// The nodes that guard writes, and whether each has existed at every look so far.
    guards: BTreeMap<String, bool>,
}

#[derive(Default)]
struct Register {
    is_ordered: bool,
    mzxid: i64,
    token: i64,
}

impl GuardedWrites {
    /// A guarded write to a register begins.
    pub(crate) fn begin(&mut self, register: &str, guard: &str, is_ordered: bool) {
        self.registers.entry(register.to_owned()).or_default().is_ordered = is_ordered;
        for guard in guard.split(' ') {
            self.guards.entry(guard.to_owned()).or_insert(true);
        }
    }
}

impl Check for GuardedWrites {
    fn look(&mut self, view: &View<'_>, found: &mut Findings) {
        let core = view.core();
        let ensemble = core.ensemble();
        for (path, register) in &mut self.registers {
            let Some((data, stat)) = ensemble.node(path) else { continue };
            if stat.mzxid <= register.mzxid {
                continue;
            }
            register.mzxid = stat.mzxid;
            let text = String::from_utf8_lossy(&data).into_owned();
            let Some((token, guard)) = text.split_once(' ') else { continue };
            let token = token.parse().unwrap_or(0);
            if register.is_ordered && token < register.token {
                let before = register.token;
                found.violation(format!("{path}: {token} after {before}"));
            }
            register.token = token;
            if guard.split(' ').any(|guard| self.guards.get(guard) == Some(&false)) {
                found.violation(format!("{path}: written without {guard}"));
            }
        }
        for (path, existed) in &mut self.guards {
            *existed = *existed && ensemble.node(path).is_some();
        }
    }
}
