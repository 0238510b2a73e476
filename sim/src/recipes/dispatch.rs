//! All recipes, called by name.

use super::{
    recipe::{Adjust, Draw, Recipe},
    step::Step,
    worker::Worker,
};
use crate::world::check::Checks;

/// How a recipe is drawn.
pub(super) struct Drawing {
    /// Its name, which its generator is made of.
    pub(super) name: &'static str,
    pub(super) weight: u32,
    pub(super) draw: Draw,
    pub(super) adjust: Adjust,
}

macro_rules! dispatch {
    ($($recipe:ident: $folder:ident,)*) => {
        pub(super) const DRAWINGS: &[Drawing] = &[$(Drawing {
            name: stringify!($recipe),
            weight: super::$folder::$recipe::WEIGHT,
            draw: super::$folder::$recipe::DRAW,
            adjust: super::$folder::$recipe::ADJUST,
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

        /// Judges the objects that a worker has kept.
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
