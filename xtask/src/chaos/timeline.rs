//! The timeline of a run as SVG: a row for each client of each lock, and one for each member.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::history::Line;
use super::report::{escape, start};

/// What the colours mean.
pub(super) const LEGEND: &str = "<p class=legend>\
<span><i style='background:#4c86c6'></i>held, docent</span>\
<span><i style='background:#0b3d74'></i>of it proven</span>\
<span><i style='background:#8a8a8a'></i>held, Curator</span>\
<span><i style='background:#f6d9a8'></i>fault of members</span>\
<span><i style='background:#d98c2b'></i>member cut off, stopped or ended</span>\
<span><i style='background:#cfe3cf'></i>fault of a client</span>\
<span><i style='background:#e07b00;width:3px'></i>counted overlap</span>\
<span><i style='background:#d00000;width:3px'></i>violation</span></p>
";

const ROW: f64 = 11.0;
const LEFT: f64 = 110.0;
const TOP: f64 = 64.0;

struct Drawing {
    start: u64,
    /// Pixels per second.
    scale: f64,
}

impl Drawing {
    #[expect(clippy::cast_precision_loss, reason = "pixels")]
    fn x(&self, at: u64) -> f64 {
        LEFT + at.saturating_sub(self.start) as f64 / 1e9 * self.scale
    }

    /// A bar as part of a path, which is the shortest way to draw thousands.
    fn bar(&self, path: &mut String, from: u64, to: u64, y: f64) {
        let (from, to) = (self.x(from), self.x(to));
        let _ = write!(path, "M{from:.1} {y:.0}h{:.1}", (to - from).max(0.4));
    }
}

/// Draws it. The times are of the marks.
pub(super) fn draw(lines: &[Line<'_>], violations: &[u64], counted: &[u64]) -> String {
    let run = lines.iter().find(|line| line.word == "run");
    let (start, end) = (start(lines), run.and_then(|run| run.number("end")).unwrap_or(0));
    #[expect(clippy::cast_precision_loss, reason = "pixels")]
    let seconds = end.saturating_sub(start) as f64 / 1e9;
    let scale = if seconds < 150.0 { 8.0 } else { 5.0 };
    let drawing = Drawing { start, scale };
    let width = LEFT + seconds * scale + 20.0;

    let mut rows = BTreeMap::new();
    let mut y = TOP;
    let mut labels = String::new();
    let members = run.and_then(|run| run.number("members")).unwrap_or(0);
    heading(&mut labels, y, "members");
    for member in 0..members {
        y += ROW;
        label(&mut labels, y, &format!("m{}", member + 1));
        rows.insert((String::new(), member.to_string()), y);
    }
    let holds: BTreeSet<_> = lines
        .iter()
        .filter(|line| line.word == "hold")
        .map(|line| (line.text("lock"), line.text("client")))
        .collect();
    let mut last = "";
    for (lock, client) in holds {
        if lock != last {
            y += 2.4 * ROW;
            heading(&mut labels, y, lock);
            last = lock;
        }
        y += ROW;
        label(&mut labels, y, client);
        rows.insert((lock.to_owned(), client.to_owned()), y);
    }
    let height = y + 2.0 * ROW;

    let mut back = String::new();
    let (mut down, mut disturbed) = (String::new(), String::new());
    for line in lines.iter().filter(|line| line.word == "fault") {
        let (Some(from), Some(until)) = (line.number("from"), line.number("until")) else {
            continue;
        };
        let (x, w) = (drawing.x(from), (drawing.x(until) - drawing.x(from)).max(1.0));
        let clients: Vec<_> =
            line.text("clients").split(',').filter(|name| !name.is_empty()).collect();
        let title = escape(&line.text("text").replace('_', " "));
        if clients.is_empty() {
            let _ = writeln!(
                back,
                "<rect x={x:.1} y=18 width={w:.1} height={:.0} fill=#f6d9a8 opacity=.55><title>{title}</title></rect>\
                 <text x={:.1} y=14 transform='rotate(-20 {:.1} 14)'>{}</text>",
                height - 18.0,
                x + 2.0,
                x + 2.0,
                line.text("kind")
            );
            for member in line.text("members").split(',') {
                if let Some(y) = rows.get(&(String::new(), member.to_owned())) {
                    drawing.bar(&mut down, from, until, *y);
                }
            }
        } else {
            for ((lock, client), y) in &rows {
                if !lock.is_empty() && clients.contains(&client.as_str()) {
                    drawing.bar(&mut disturbed, from, until, *y);
                }
            }
        }
    }
    let (mut docent, mut proven, mut curator) = (String::new(), String::new(), String::new());
    for line in lines.iter().filter(|line| line.word == "hold") {
        let row = rows.get(&(line.text("lock").to_owned(), line.text("client").to_owned()));
        let (Some(y), Some((from, to))) = (row, line.text("held").split_once('-')) else {
            continue;
        };
        let (Ok(from), Ok(to)) = (from.parse(), to.parse()) else { continue };
        let path = if line.text("kind") == "docent" { &mut docent } else { &mut curator };
        drawing.bar(path, from, to, *y);
        if let (Some(until), Some(granted)) = (line.number("proven"), line.number("granted")) {
            let until = until.min(line.number("release").unwrap_or(u64::MAX)).min(end);
            if until > granted {
                drawing.bar(&mut proven, granted, until, *y);
            }
        }
    }
    let mut svg = format!(
        "<div class=scroll><svg xmlns='http://www.w3.org/2000/svg' width={width:.0} height={:.0} viewBox='0 -70 {width:.0} {:.0}'>\n",
        height + 70.0,
        height + 70.0
    );
    svg += &back;
    svg += &axis(&drawing, seconds, height);
    for (path, colour, thickness) in [
        (&down, "#d98c2b", 7.0),
        (&disturbed, "#cfe3cf", 9.0),
        (&docent, "#4c86c6", 6.0),
        (&proven, "#0b3d74", 2.5),
        (&curator, "#8a8a8a", 6.0),
    ] {
        let _ =
            writeln!(svg, "<path d='{path}' stroke={colour} stroke-width={thickness} fill=none />");
    }
    for (times, colour, thickness) in [(counted, "#e07b00", 1.0), (violations, "#d00000", 2.0)] {
        let mut path = String::new();
        for at in times.iter().filter(|at| **at > 0) {
            let _ = write!(path, "M{:.1} 18V{height:.0}", drawing.x(*at));
        }
        let _ = writeln!(
            svg,
            "<path d='{path}' stroke={colour} stroke-width={thickness} stroke-opacity=.6 fill=none />"
        );
    }
    svg += &labels;
    svg += "</svg></div>\n";
    svg
}

fn axis(drawing: &Drawing, seconds: f64, height: f64) -> String {
    let mut text = String::new();
    let mut at = 0.0;
    while at <= seconds {
        let x = LEFT + at * drawing.scale;
        let _ = writeln!(
            text,
            "<path d='M{x:.1} 34V{height:.0}' stroke=#bbb stroke-width=.5 /><text x={:.1} y=44>{at:.0} s</text>",
            x + 2.0
        );
        at += 10.0;
    }
    text
}

fn heading(text: &mut String, y: f64, name: &str) {
    let _ = writeln!(text, "<text x=4 y={:.0} font-weight=bold>{}</text>", y + 2.0, escape(name));
}

fn label(text: &mut String, y: f64, name: &str) {
    let _ = writeln!(text, "<text x=12 y={:.0} font-size=9>{}</text>", y + 3.0, escape(name));
}

#[cfg(test)]
mod tests {
    use super::super::history::Line;
    use super::draw;

    #[test]
    fn a_hold_and_a_fault_are_drawn_at_their_times() {
        let lines = [
            "run seed=1 members=3 version=3.8.0 start=0 end=20000000000",
            "fault number=1 kind=kill from=5000000000 until=7000000000 members=1 clients= text=x",
            "hold lock=/a client=c kind=docent token=1 called=0 granted=1000000000 proven=2000000000 release=3000000000 end=released held=1000000000-3000000000",
        ]
        .map(Line::parse);
        let svg = draw(&lines, &[4_000_000_000], &[]);
        // Eight pixels per second, 110 of labels.
        assert!(svg.contains("M118.0 134h16.0"), "the hold: {svg}");
        assert!(svg.contains("M118.0 134h8.0"), "its proven part: {svg}");
        assert!(svg.contains("M150.0 86h16.0"), "the member: {svg}");
        assert!(svg.contains("M142.0 18V"), "the violation: {svg}");
    }
}
