//! Runs the computations of a SASL mechanism that may block, outside the runtime's tasks.
//!
//! A step that may block never runs under the machine's lock or in a task. There is one at a time; the result for a
//! connection that is gone is dropped. A step that is not run has a result too: without one there would be no other
//! step.

use std::sync::Arc;

use super::{runtime::Runtime, shared::Shared};
use crate::{
    machine::{SaslStep, SaslStepResult},
    sasl::SaslError,
};

/// Runs a computation, and those of later connections that wait for its end.
pub(super) fn spawn(shared: &Arc<Shared>, runtime: &dyn Runtime, step: SaslStep) {
    let mut work = Work { shared: Arc::clone(shared), step: Some(step) };
    runtime.spawn_blocking(Box::new(move || {
        while let Some(step) = work.step.take() {
            work.step = work.finish(step.run());
        }
    }));
}

/// A computation that has not been run yet.
struct Work {
    shared: Arc<Shared>,
    step: Option<SaslStep>,
}

impl Work {
    /// Passes a result to the session, and returns the next computation.
    fn finish(&self, result: SaslStepResult) -> Option<SaslStep> {
        self.shared.with(|machine| {
            machine.handle_sasl_step(result);
            machine.poll_sasl_step()
        })
    }
}

impl Drop for Work {
    /// Fails the computation if there was no thread for it: the session gives out no other one before its result.
    fn drop(&mut self) {
        while let Some(step) = self.step.take() {
            let error = SaslError::retryable("there is no thread for the mechanism");
            self.step = self.finish(step.fail(error));
        }
    }
}
