//! A page that compares reports: a row for each case, a column for each report.

use std::collections::BTreeSet;

use crate::report::{Verdict, VerdictKind, count, escaped};

const STYLE: &str = "body{font:14px system-ui,sans-serif;margin:2em}table{border-collapse:collapse}\
td,th{border:1px solid #bbb;padding:.2em .5em;text-align:left;vertical-align:top}\
.pass{background:#d9f2d9}.fail{background:#f7c9c4;font-weight:bold}.skip{color:#666}\
details{max-width:48em;overflow-wrap:anywhere}code{font-size:12px}";

/// A page with this title and a column for each list of verdicts. The lists may come from different versions of this program: if one
/// lacks a case, its cell is empty.
#[must_use]
pub fn matrix(title: &str, reports: &[Vec<Verdict>]) -> String {
    let title = escaped(title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n<table>\n\
         <tr><th>case<th>level<th>what it is about"
    );
    for verdicts in reports {
        let of = |field: fn(&Verdict) -> &str| escaped(verdicts.first().map_or("", field));
        let [pass, fail, skip] = [VerdictKind::Pass, VerdictKind::Fail, VerdictKind::Skip]
            .map(|kind| count(verdicts, kind));
        let (version, server) = (of(|one| &one.version), of(|one| &one.server));
        page += &format!("<th>{version}<br>{server}<br>{pass} pass, {fail} fail, {skip} skip");
    }
    page += "\n";
    let mut seen = BTreeSet::new();
    for case in reports.iter().flatten().filter(|one| seen.insert(&one.id)) {
        let [id, about, source] = [&case.id, &case.about, &case.source].map(|text| escaped(text));
        let level = case.level;
        page += &format!("<tr><td>{id}<td>{level}<td>{about}<br><small>{source}</small>");
        for verdicts in reports {
            page += &cell(verdicts.iter().find(|one| one.id == case.id));
        }
        page += "\n";
    }
    page + "</table></html>\n"
}

fn cell(verdict: Option<&Verdict>) -> String {
    let Some(one) = verdict else { return "<td>".to_owned() };
    let [step, expected, actual] = [&one.step, &one.expected, &one.actual].map(|it| escaped(it));
    match one.result {
        VerdictKind::Pass => format!("<td class=\"pass\">pass<br><small>{actual}</small>"),
        VerdictKind::Skip => format!("<td class=\"skip\">skip<br><small>{step}</small>"),
        VerdictKind::Fail => format!(
            "<td class=\"fail\"><details><summary>fail</summary><code>{step}</code><br>\
             expected <code>{expected}</code><br>actual <code>{actual}</code></details>"
        ),
    }
}
