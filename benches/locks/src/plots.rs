//! The plots of the report, as SVG.

use std::fmt::Write as _;

use crate::services::ENTRIES;

/// One colour a service, distinct also in print.
const COLOURS: [&str; ENTRIES.len()] = [
    "#1f77b4", "#17becf", "#9467bd", "#2ca02c", "#d62728", "#ff7f0e", "#bcbd22", "#8c564b",
    "#e377c2", "#7f7f7f", "#000000", "#00ff00",
];

const WIDTH: f64 = 860.0;

fn colour(index: usize) -> &'static str {
    COLOURS.get(index).copied().unwrap_or("#000000")
}

fn begin(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"12\" y=\"20\" font-size=\"15\">{}</text>\n",
        escape(title)
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The distributions of latencies: for each service its quantiles from 0 to 1 in equal steps, in microseconds.
pub(crate) fn distributions(title: &str, series: &[(String, Vec<f64>)]) -> String {
    const HEIGHT: f64 = 420.0;
    let (left, right, top, bottom) = (50.0, 640.0, 40.0, 370.0);
    let positive = || series.iter().flat_map(|(_, values)| values).filter(|value| **value > 0.0);
    let least = positive().copied().reduce(f64::min).unwrap_or(1.0).log10().floor();
    let most = positive().copied().fold(1.0, f64::max).log10().ceil().max(least + 1.0);
    let x = |value: f64| {
        left + (value.max(1e-3).log10().max(least) - least) / (most - least) * (right - left)
    };
    let y = |part: f64| bottom - part * (bottom - top);
    let mut svg = begin(HEIGHT, title);
    let mut decade = least;
    while decade <= most {
        let at = x(10_f64.powf(decade));
        let label = label(10_f64.powf(decade));
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"{top}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            bottom + 18.0
        );
        decade += 1.0;
    }
    for percent in [0, 25, 50, 75, 100] {
        let at = y(f64::from(percent) / 100.0);
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{percent} %</text>",
            left - 6.0,
            at + 4.0
        );
    }
    for (index, (name, values)) in series.iter().enumerate() {
        let steps = (values.len().max(2) - 1) as f64;
        let points = values.iter().enumerate();
        let points =
            points.map(|(step, value)| format!("{:.1},{:.1}", x(*value), y(step as f64 / steps)));
        let points: Vec<_> = points.collect();
        let (colour, row) = (colour(index), top + 18.0 * index as f64 + 8.0);
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <rect x=\"{:.1}\" y=\"{:.1}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            points.join(" "),
            right + 14.0,
            row - 6.0,
            right + 34.0,
            row,
            escape(name)
        );
    }
    svg + "</svg>\n"
}

/// A duration of microseconds with its unit.
pub(crate) fn label(microseconds: f64) -> String {
    if microseconds >= 1e6 {
        format!("{} s", microseconds / 1e6)
    } else if microseconds >= 1e3 {
        format!("{} ms", microseconds / 1e3)
    } else {
        format!("{microseconds} µs")
    }
}

/// Rows of bars up to 100 %, in groups: in red, and those that remain with tokens in dark.
pub(crate) fn bars(title: &str, groups: &[(String, Vec<Bar>)]) -> String {
    let rows: usize = groups.iter().map(|(_, bars)| bars.len() + 1).sum();
    let height = 60.0 + 17.0 * rows as f64;
    let (left, right) = (230.0, 740.0);
    let mut svg = begin(height, title);
    let mut y = 40.0;
    for (group, bars) in groups {
        let _ = writeln!(
            svg,
            "<text x=\"12\" y=\"{:.1}\" font-weight=\"bold\">{}</text>",
            y + 12.0,
            escape(group)
        );
        y += 17.0;
        for bar in bars {
            let length = |value: f64| value / 100.0 * (right - left);
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
                 <rect x=\"{left}\" y=\"{:.1}\" width=\"{:.1}\" height=\"10\" fill=\"#d62728\"/>",
                left - 6.0,
                y + 11.0,
                escape(&bar.name),
                y + 2.0,
                length(bar.value),
            );
            let mut text = format!("{:.1} %", bar.value);
            if let Some(with_token) = bar.with_token {
                let _ = writeln!(
                    svg,
                    "<rect x=\"{left}\" y=\"{:.1}\" width=\"{:.1}\" height=\"4\" fill=\"#333333\"/>",
                    y + 5.0,
                    length(with_token),
                );
                let _ = write!(text, ", with the token {with_token:.1} %");
            }
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
                left + length(bar.value) + 5.0,
                y + 11.0
            );
            y += 17.0;
        }
    }
    svg + "</svg>\n"
}

/// One bar.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) with_token: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_ends_at_the_top() {
        let svg = distributions("a < b", &[("one".into(), vec![10.0, 100.0, 1000.0])]);
        assert!(svg.contains("a &lt; b"));
        assert!(svg.contains("points=\"50.0,370.0 345.0,205.0 640.0,40.0\""), "{svg}");
    }

    #[test]
    fn plots_without_values_are_plots() {
        assert!(distributions("", &[]).ends_with("</svg>\n"));
        assert!(distributions("", &[("zero".into(), vec![0.0, 0.0])]).ends_with("</svg>\n"));
        assert!(bars("", &[]).ends_with("</svg>\n"));
    }

    #[test]
    fn a_bar_of_all_rounds_has_the_whole_width() {
        let bar = Bar { name: "one".into(), value: 100.0, with_token: Some(0.0) };
        let svg = bars("", &[("fault".into(), vec![bar])]);
        assert!(svg.contains("width=\"510.0\" height=\"10\""), "{svg}");
        assert!(svg.contains("100.0 %, with the token 0.0 %"));
    }

    #[test]
    fn each_service_has_a_colour_of_its_own() {
        let mut colours = COLOURS.to_vec();
        colours.sort_unstable();
        colours.dedup();
        assert_eq!(colours.len(), ENTRIES.len());
    }

    #[test]
    fn labels_have_the_largest_unit() {
        assert_eq!(label(10.0), "10 µs");
        assert_eq!(label(1e4), "10 ms");
        assert_eq!(label(1e6), "1 s");
    }
}
