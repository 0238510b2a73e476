//! The steps of all recipes.

use serde::{Deserialize, Serialize};

use crate::plan::{self, ClientPlan, PlanStep};

/// A plan with steps of all recipes.
pub type Plan = plan::Plan<Step>;

macro_rules! steps {
    ($($recipe:ident: $module:ident,)*) => {
        /// A step of a worker.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub enum Step {
            /// Does nothing for a time.
            Sleep {
                /// Milliseconds of the process's clock.
                ms: u64,
            },
            /// Another client of the process, which comes and goes.
            Visit(VisitStep),
            /// A neighbour touches a node, or deletes it.
            Neighbour(NeighbourStep),
            $(
                #[doc = concat!("A step of `", stringify!($module), "`.")]
                $recipe(super::$module::Step),
            )*
        }

        $(
            impl From<super::$module::Step> for Step {
                fn from(step: super::$module::Step) -> Self {
                    Self::$recipe(step)
                }
            }
        )*

        impl Step {
            fn inner(&self) -> &dyn PlanStep {
                match self {
                    Self::Sleep { .. } | Self::Neighbour(_) => &(),
                    Self::Visit(step) => step,
                    $(Self::$recipe(step) => step,)*
                }
            }

            fn inner_mut(&mut self) -> Option<&mut dyn PlanStep> {
                match self {
                    Self::Sleep { .. } | Self::Neighbour(_) => None,
                    Self::Visit(step) => Some(step),
                    $(Self::$recipe(step) => Some(step),)*
                }
            }
        }
    };
}

recipes!(steps);

impl PlanStep for Step {
    fn lasts_ms(&self) -> u64 {
        self.inner().lasts_ms()
    }

    fn is_quiet(&self) -> bool {
        matches!(self, Self::Sleep { .. }) || self.inner().is_quiet()
    }

    fn hold_ms(&mut self) -> Option<&mut u64> {
        self.inner_mut()?.hold_ms()
    }

    fn renew_ms(&mut self) -> Option<&mut Option<u64>> {
        self.inner_mut()?.renew_ms()
    }

    fn never_retry(&mut self) {
        if let Some(inner) = self.inner_mut() {
            inner.never_retry();
        }
    }

    fn client(&mut self) -> Option<&mut ClientPlan> {
        self.inner_mut()?.client()
    }
}

/// What a neighbour, who means no harm, does to a node of any recipe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NeighbourStep {
    /// Which node, among those that are there.
    pub node: u16,
    /// Whether it is deleted behind the write of its data, if its recipe allows for that.
    pub deletes: bool,
}

/// Another client of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VisitStep {
    pub client: ClientPlan,
    pub steps: Vec<Step>,
    /// How it ends.
    pub end: VisitEnd,
}

impl PlanStep for VisitStep {
    fn client(&mut self) -> Option<&mut ClientPlan> {
        Some(&mut self.client)
    }
}

/// How a visiting client ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum VisitEnd {
    /// `close().await`.
    Close,
    /// Two closes at once.
    CloseTwice,
    /// `close()` is begun, and its future dropped.
    CancelledClose,
    /// The client is dropped.
    Drop,
    /// `detach()`; another client resumes the session and closes it.
    Resume,
}
