//! How a plan is made smaller, and when two broken rules are the same.

use docent_sim::run::shrink::{shape, simpler, without_process};
use serde_json::json;

#[test]
fn a_rule_is_the_same_whatever_its_numbers() {
    assert_eq!(
        shape("/mutex-0 p0.1 (Exclusive) and /mutex-0 p1.0 (Exclusive) both hold it"),
        shape("/mutex-1 p3.0 (Exclusive) and /mutex-1 p2.2 (Exclusive) both hold it"),
    );
    let stuck = "no progress after the peace: p0";
    assert_eq!(shape(stuck), shape("no progress after the peace: p1, p3, p4"));
    assert_ne!(shape("session 0x1 is left"), shape("/mutex-0/_c_1 is left"));
}

#[test]
fn the_faults_of_a_removed_process_go_with_it() {
    let fault =
        |process| json!({ "at_ms": 1, "kind": { "Stop": { "process": process, "for_ms": 1 } } });
    let other = json!({ "at_ms": 1, "kind": { "Throttle": { "requests": 1 } } });
    let plan = json!({ "processes": [0, 1, { "resumes": 1 }, { "resumes": 2 }], "faults": [fault(0), fault(1), fault(2), other] });
    let left = json!({ "processes": [0, { "resumes": null }, { "resumes": 1 }], "faults": [fault(0), fault(1), other] });
    assert_eq!(without_process(&plan, 1), left);
}

#[test]
fn simpler_values_come_to_an_end() {
    for number in [15_000_i64, 7_777, -12_345, 1, -1] {
        let (mut value, mut steps) = (json!(number), 0);
        while let Some(next) = simpler(&value).pop() {
            (value, steps) = (next, steps + 1);
            assert!(steps < 100, "{number}");
        }
    }
}
