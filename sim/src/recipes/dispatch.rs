//! All recipes, called by name.

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

        /// Does a step of a recipe.
        pub(super) async fn run(worker: &Worker, step: Step) {
            match step {
                Step::Sleep { ms } => worker.sleep(ms).await,
                // Handled by the program, which starts the client.
                Step::Visit(_) => {}
                Step::Neighbour(step) => worker.meddle(&step).await,
                $(Step::$recipe(step) => super::$module::$recipe::run(worker, step).await,)*
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
