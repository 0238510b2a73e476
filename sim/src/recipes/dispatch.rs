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
    /// Its name, which its generator is made of.
    pub(super) name: &'static str,
    pub(super) weight: u32,
    pub(super) draw: fn(&mut Rng, &mut Plan, &Setting),
    pub(super) adjust: fn(&mut Rng, &mut Plan),
}

macro_rules! dispatch {
    ($($recipe:ident: $folder:ident,)*) => {
        pub(super) const DRAWINGS: &[Drawing] = &[$(Drawing {
            name: stringify!($recipe),
            weight: super::$folder::$recipe::WEIGHT,
            draw: super::$folder::$recipe::draw,
            adjust: super::$folder::$recipe::adjust,
        },)*];

        /// Does a step of a recipe.
        pub(super) async fn run(worker: &Worker, step: Step) {
            match step {
                Step::Sleep { ms } => worker.sleep(ms).await,
                // The program starts the client.
                Step::Visit(_) => {}
                $(Step::$recipe(step) => super::$folder::$recipe::run(worker, step).await,)*
            }
        }

        /// Judges what a worker has kept.
        pub(super) async fn finish(worker: &Worker) {
            $(super::$folder::$recipe::finish(worker).await;)*
        }

        /// Adds the checks of all recipes.
        pub(super) fn checks(checks: Checks) -> Checks {
            $(let checks = super::$folder::$recipe::checks(checks);)*
            checks
        }
    };
}

recipes!(dispatch);
