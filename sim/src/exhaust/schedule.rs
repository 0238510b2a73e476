//! A schedule: the choices of one run, as a file.

use serde::{Deserialize, Serialize};

use super::Scope;
use crate::{
    Plan,
    faults::planted,
    plan,
    run::{Outcome, Watch, diagram},
    world::director::KnownStates,
};

/// The choices of one run of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The name of the scope.
    pub scope: String,
    /// The planted fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plant: Option<String>,
    /// The choices; behind the last one, the first alternative is taken.
    pub choices: Vec<u8>,
}

impl Schedule {
    /// Parses a schedule.
    ///
    /// # Errors
    ///
    /// The place (`line:column`) and the reason, in one line.
    pub fn from_ron(text: &str) -> Result<Self, String> {
        let schedule: Self = plan::parse(text)?;
        match &schedule.plant {
            Some(plant) if planted::plant_named(plant).is_none() => {
                Err(format!(" no planted fault is called `{plant}`"))
            }
            _ => Ok(schedule),
        }
    }

    /// The schedule as text, with the rule that it breaks and its diagram in comments.
    #[must_use]
    pub fn to_ron(&self, rule: &str, diagram: &str) -> String {
        let plant = self.plant.as_ref().map(|plant| format!("  plant: {plant:?},\n"));
        let (scope, plant) = (&self.scope, plant.unwrap_or_default());
        let rows: String = diagram.lines().map(|row| format!("// {row}\n")).collect();
        let choices = format!("  choices: {:?},\n", self.choices);
        format!("// {rule}\n(\n  scope: {scope:?},\n{plant}{choices})\n//\n{rows}")
    }

    /// Runs it, with frames.
    ///
    /// # Errors
    ///
    /// Its scope does not exist, or has no such schedule any more.
    pub fn run(&self) -> Result<(Outcome, String), String> {
        let (outcome, plan) = self.run_watched(&Watch::with_frames())?;
        let diagram = diagram::draw(&outcome.history, plan.processes.len(), plan.servers.count);
        Ok((outcome, diagram))
    }

    /// Runs it, and looks at it in some way. Returns the plan of its scope, too.
    ///
    /// # Errors
    ///
    /// Its scope does not exist, or has no such schedule any more.
    pub fn run_watched(&self, watch: &Watch) -> Result<(Outcome, Plan), String> {
        let mut scope = Scope::named(&self.scope)?;
        if self.plant.is_some() {
            scope.plan.plant.clone_from(&self.plant);
        }
        let (outcome, taken, _) = scope.run(self.choices.clone(), KnownStates::default(), watch);
        if !taken.iter().map(|(choice, _)| choice).take(self.choices.len()).eq(&self.choices) {
            let scope = &self.scope;
            return Err(format!(
                "the scope `{scope}` has changed, and has no such schedule any more"
            ));
        }
        Ok((outcome, scope.plan))
    }
}
