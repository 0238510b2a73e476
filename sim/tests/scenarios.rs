//! Each finding stays as a scenario: a plan of a few lines. A scenario with a planted fault must break a rule; any
//! other shows a defect that was mended.

use std::{fs, path::Path};

use docent_sim::{Plan, run};

#[test]
fn mended_defects_are_gone_and_planted_ones_are_found() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "ron"));
    files.sort();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let name = file.display();
        let plan = Plan::from_ron(&fs::read_to_string(&file).unwrap());
        let plan = plan.unwrap_or_else(|error| panic!("{name}:{error}"));
        let outcome = run::run(&plan);
        match plan.plant.as_deref() {
            None => assert!(outcome.is_good(), "{name}:\n{}", outcome.history),
            Some(plant) => assert!(!outcome.is_good(), "{name}: {plant} is not found"),
        }
        let without = run::run(&Plan { plant: None, ..plan });
        assert!(without.is_good(), "{name}, without its fault:\n{}", without.history);
    }
}
