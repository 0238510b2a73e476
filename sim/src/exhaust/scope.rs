//! A scope: a plan, and the faults that may happen at any point of it.

use std::{fs, path::Path};

use serde::Deserialize;

use crate::{
    Plan,
    faults::{FaultKind, planted},
    plan,
    run::{self, Outcome, Watch, specification},
    world::{
        PossibleFault,
        core::Core,
        director::{Choice, Director, KnownStates},
        time::Pid,
    },
};

/// A plan that is run in every order.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// The name of its file.
    #[serde(skip)]
    pub name: String,
    /// If set, the only rule is that each trace follows the specification, in which this mistake is made; empty: none.
    #[serde(skip)]
    pub mistake: Option<&'static str>,
    /// Whether it belongs to the tests.
    #[serde(default)]
    pub quick: bool,
    /// The faults that may happen at any point before the peace.
    #[serde(default)]
    pub faults: Vec<FaultKind>,
    /// How many of them may happen in one run.
    #[serde(default)]
    pub budget: usize,
    /// The planted faults that the search must find.
    #[serde(default)]
    pub finds: Vec<String>,
    /// The errors with which calls may end although no fault explains them, by the names of their kinds.
    #[serde(default)]
    pub errors: Vec<String>,
    /// Everything else. Its seed decides the GUIDs; its delays are not used.
    pub plan: Plan,
}

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scopes");

impl Scope {
    /// The names of all scopes, sorted.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn names() -> Result<Vec<String>, String> {
        let error = |error| format!("{DIRECTORY}: {error}");
        let mut names = Vec::new();
        for entry in fs::read_dir(DIRECTORY).map_err(error)? {
            let path = entry.map_err(error)?.path();
            if path.extension().is_some_and(|extension| extension == "ron") {
                names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
            }
        }
        names.sort();
        Ok(names)
    }

    /// The scope of this name.
    ///
    /// # Errors
    ///
    /// There is none, or its file does not parse.
    pub fn named(name: &str) -> Result<Self, String> {
        let names = Self::names()?;
        if !names.iter().any(|known| known == name) {
            return Err(format!(
                "no scope is called `{name}`; sim/scopes has {}",
                names.join(", ")
            ));
        }
        let file = Path::new(DIRECTORY).join(format!("{name}.ron"));
        let text = fs::read_to_string(&file);
        let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
        let scope = Self::from_ron(&text);
        scope
            .map(|scope| Self { name: name.to_owned(), ..scope })
            .map_err(|error| format!("{}:{error}", file.display()))
    }

    /// Parses a scope.
    ///
    /// # Errors
    ///
    /// The place (`line:column`) and the reason, in one line.
    pub fn from_ron(text: &str) -> Result<Self, String> {
        let scope: Self = plan::parse(text)?;
        scope.plan.servers.version().map_err(|error| format!(" {error}"))?;
        let processes = scope.plan.processes.len();
        let unknown = |fault: &&FaultKind| fault.process().is_some_and(|pid| pid >= processes);
        if let Some(fault) = scope.faults.iter().find(unknown) {
            return Err(format!(" {fault:?}: the plan has no such process"));
        }
        match scope.finds.iter().find(|name| planted::plant_named(name).is_none()) {
            Some(name) => Err(format!(" no planted fault is called `{name}`")),
            None => Ok(scope),
        }
    }

    /// Runs the plan with these choices, and the first ones behind them, until a state that is known. Returns all choices, and the
    /// first record that is no step of the specification, if the history is compared with it.
    pub(super) fn run(
        &self,
        script: Vec<u8>,
        known: KnownStates,
        watch: &Watch,
    ) -> (Outcome, Vec<Choice>, Option<String>) {
        let (outcome, mut director) = self.run_directed(self.director(script, known), watch);
        let follower = director.follower.as_mut().map(|follower| {
            follower.follow(&outcome.history.records);
            follower.refused().map(str::to_owned)
        });
        (outcome, director.taken, follower.flatten())
    }

    pub(super) fn director(&self, script: Vec<u8>, known: KnownStates) -> Director {
        let mut director = Director::new(script, known, self.budget);
        director.errors.clone_from(&self.errors);
        director.follower = self.mistake.and_then(|of| specification::follower(&self.plan, of));
        director
    }

    pub(super) fn run_directed(&self, by: Director, watch: &Watch) -> (Outcome, Box<Director>) {
        let faults = self.faults.iter().map(possible).collect();
        run::run_directed(&self.plan, watch, by, faults)
    }
}

fn possible(kind: &FaultKind) -> PossibleFault {
    let (pid, kind) = (kind.process(), kind.clone());
    let begun = kind.clone();
    PossibleFault {
        pid,
        applies: Box::new(move |core| pid.is_none_or(|pid| applies(core, pid, &kind))),
        begin: Box::new(move |world| world.begin(&begun)),
    }
}

/// Whether a fault would have an effect on a process.
fn applies(core: &Core, pid: Pid, kind: &FaultKind) -> bool {
    let session = core.process(pid).session;
    core.is_active(pid)
        && core.network.is_connected(pid)
        && match kind {
            FaultKind::Expire { .. } => {
                session.is_some_and(|session| core.ensemble().session_ids().contains(&session))
            }
            _ => true,
        }
}
