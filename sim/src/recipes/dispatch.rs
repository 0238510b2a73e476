//! All recipes, called by name.

use std::pin::Pin;

use fastrand::Rng;

use super::{
    recipe::Recipe,
    step::{Plan, Step},
    worker::Worker,
};
use crate::{plan::draw::Setting, world::check::Checks};

/// How a recipe is drawn.
pub(super) struct Drawing {
    /// Its name, from which its generator is made.
    pub(super) name: &'static str,
    pub(super) weight: u32,
    pub(super) add: fn(&mut Rng, &mut Plan, &Setting),
    pub(super) adjust: fn(&mut Rng, &mut Plan),
}

macro_rules! dispatch {
    ($($recipe:ident: $module:ident,)*) => {
        pub(super) const DRAWINGS: &[Drawing] = &[$(Drawing {
            name: stringify!($recipe),
            weight: super::$module::$recipe::WEIGHT,
            add: super::$module::$recipe::add,
            adjust: super::$module::$recipe::adjust,
        },)*];

        /// Does a step of a recipe. Boxed outside of a future: otherwise each poll of a worker has the largest of them, a
        /// quarter of a megabyte, on its stack.
        pub(super) fn run(worker: &Worker, step: Step) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            match step {
                Step::Sleep { ms } => Box::pin(worker.sleep(ms)),
                // Handled by the program, which starts the client.
                Step::Visit(_) => Box::pin(std::future::ready(())),
                Step::Neighbour(step) => Box::pin(async move { worker.meddle(&step).await }),
                $(Step::$recipe(step) => Box::pin(super::$module::$recipe::run(worker, step)),)*
            }
        }

        /// Judges the objects that a worker has kept.
        pub(super) async fn finish(worker: &Worker) {
            $(super::$module::$recipe::finish(worker).await;)*
        }

        /// Adds the checks of all recipes.
        pub(super) fn checks(checks: Checks) -> Checks {
            $(let checks = super::$module::$recipe::checks(checks);)*
            checks
        }
    };
}

recipes!(dispatch);
