//! The guide's chapter on choosing a lock: its figures are those of the document.
//!
//! A figure is `{{WHAT ...}}` in `choosing.md`: `late`, `token`, `next` or `after` of a fault and a service, or `cycle`,
//! `waiting` or `overtakes` of a service.

use serde_json::Value;

use xtask::Result;

use super::{
    results::{P5, at, field, runs, together},
    speed::{cell, median_of},
};
use crate::markdown::number;

/// Replaces the figures of a text.
pub(super) fn text(template: &str, speed: &[Value], faults: &[Value]) -> Result<String> {
    let mut parts = template.split("{{");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (figure, rest) = part.split_once("}}").ok_or("a figure without an end")?;
        text.push_str(&number(value(figure, speed, faults)?));
        text.push_str(rest);
    }
    Ok(text)
}

fn value(figure: &str, speed: &[Value], faults: &[Value]) -> Result<Option<f64>> {
    let words: Vec<_> = figure.split(' ').collect();
    let of_rounds =
        |fault: &str, service: &str, name: &str| together(&runs(faults, fault, service), name);
    Ok(match words[..] {
        ["late", fault, service] => of_rounds(fault, service, "violations"),
        ["token", fault, service] => of_rounds(fault, service, "violations_despite_token"),
        ["next", fault, service] => of_rounds(fault, service, "next_acquired"),
        ["after", fault, service] => {
            let runs = runs(faults, fault, service);
            runs.last().and_then(|run| run["next_after_ms"].as_f64())
        }
        ["cycle", service] => {
            median_of(&cell(speed, service, "cycle", "", true), at("quantiles", P5))
        }
        ["waiting", service] => {
            median_of(&cell(speed, service, "waiters", "", true), field("flights_per_second"))
        }
        ["overtakes", service] => {
            let cell = cell(speed, service, "handoff", "--contenders 8 ", true);
            median_of(&cell, field("grants_that_overtake")).map(|share| share * 100.0)
        }
        _ => return Err(format!("no figure {figure:?}").into()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::text;

    #[test]
    fn figures_are_those_of_the_values() {
        let faults = [
            json!({"fault": "pooler", "service": "a", "rounds": 200, "violations": 50}),
            json!({"fault": "pooler", "service": "a", "rounds": 50, "violations": 0, "next_after_ms": 7.0}),
        ];
        let shown =
            text("late {{late pooler a}}, after {{after pooler a}}.", &[], &faults).unwrap();
        assert_eq!(shown, "late 20.0, after 7.00.");
        assert!(text("{{early pooler a}}", &[], &faults).is_err());
    }

    #[test]
    fn every_figure_of_the_chapter_is_known() {
        text(include_str!("choosing.md"), &[], &[]).unwrap();
    }
}
