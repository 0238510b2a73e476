//! The traces of the simulator are behaviours of the specification; a change in either is seen.

use docent_sim::exhaust::{Report, Scope, search};

fn compared(name: &str, plant: Option<&str>, mistake: &'static str) -> Report {
    let mut scope = Scope::named(name).unwrap();
    scope.plan.plant = plant.map(str::to_owned);
    scope.mistake = Some(mistake);
    search(&scope, None, |_| {})
}

#[test]
fn probe() {
    for name in std::env::var("SCOPES").unwrap().split(' ') {
        let report = compared(name, None, "");
        println!("{report}: {:?}", report.found.as_ref().map(|f| &f.rule));
        if let Some(found) = report.found {
            println!("{}", found.schedule.run().unwrap().0.history);
        }
    }
}
