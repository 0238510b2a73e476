//! The timeline of a run as SVG: a row for each client of each lock, and one for each member.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use docent_drawing::Svg;
use docent_judge::{Judgement, Line};

use crate::history::start;

const STYLE: &str = "
text{font:11px system-ui,sans-serif;fill:#333}.row{font-size:9px}.lock{font-weight:bold}
.fault{transform-box:fill-box;transform-origin:left bottom;transform:rotate(-20deg)}
.page{fill:#fff}.axis{stroke:#bbb;stroke-width:.5}path{fill:none}
rect.members{fill:#f6d9a8;opacity:.55}.down{stroke:#d98c2b;stroke-width:7}.client{stroke:#cfe3cf;stroke-width:9}
.docent{stroke:#4c86c6;stroke-width:6}.proven{stroke:#0b3d74;stroke-width:2.5}.curator{stroke:#8a8a8a;stroke-width:6}
.counted{stroke:#e07b00;stroke-opacity:.6}.violation{stroke:#d00000;stroke-width:2;stroke-opacity:.6}
@media (prefers-color-scheme:dark){
text{fill:#e6e9ee}.page{fill:#1c2026}.axis{stroke:#555}rect.members{fill:#7a5a24}.client{stroke:#3c5a3c}}
";

/// The legend: the class of each colour in the style, and its text.
const LEGEND: [(&str, &str); 7] = [
    ("docent", "held, docent"),
    ("proven", "of it proven"),
    ("curator", "held, Curator"),
    ("down", "member cut off, stopped or ended"),
    ("client", "fault of a client"),
    ("counted", "counted overlap"),
    ("violation", "violation"),
];

/// Up to this number of events, their texts are listed below the picture.
const FEW: usize = 8;

const ROW: f64 = 11.0;
const LEFT: f64 = 110.0;
/// The space above the rows, for the legend and the names of faults.
const TOP: f64 = 100.0;
/// The smallest width of the picture, for short runs.
const NARROWEST: f64 = 760.0;

/// The vertical position of each row, by lock and client. Rows of members have an empty lock.
type Rows = BTreeMap<(String, String), f64>;

struct Timeline {
    start: u64,
    /// Pixels per second.
    scale: f64,
    rows: Rows,
    /// The vertical position of the end of the rows.
    bottom: f64,
    svg: Svg,
    /// Where the next item of the legend goes.
    legend: f64,
}

/// Draws the history of a run.
pub(crate) fn draw(title: &str, lines: &[Line<'_>], judgement: &Judgement) -> String {
    let run = lines.iter().find(|line| line.word == "run");
    let number = |name| run.and_then(|run| run.number(name).ok()).unwrap_or(0);
    let (start, end) = (start(lines), number("end"));
    let seconds = end.saturating_sub(start) as f64 / 1e9;
    let scale = if seconds < 150.0 { 8.0 } else { 5.0 };
    let scale = f64::max(scale, (NARROWEST - LEFT) / seconds.max(1.0)).min(20.0);
    let mut labels = Svg::default();
    let (rows, bottom) = rows(lines, number("members"), &mut labels);
    let mut timeline = Timeline { start, scale, rows, bottom, svg: Svg::default(), legend: 4.0 };
    timeline.faults(lines);
    timeline.axis(seconds);
    timeline.holds(lines, end);
    for (events, class) in [(&judgement.counted, "counted"), (&judgement.violations, "violation")] {
        let mut path = String::new();
        for (at, _) in events.iter().filter(|(at, _)| *at > 0) {
            let _ = write!(path, "M{:.1} {TOP}V{bottom}", timeline.x(*at));
        }
        timeline.path(&path, class);
    }
    timeline.svg.draw(&labels);
    let texts = || judgement.violations.iter().chain(&judgement.counted);
    let mut height = bottom + 2.0 * ROW;
    if texts().count() <= FEW {
        for (at, text) in texts() {
            height += 1.5 * ROW;
            let at = at.saturating_sub(start) as f64 / 1e9;
            timeline.svg.text((12.0, height), "", &format!("{at:.1} s: {text}"));
        }
        height += ROW;
    }
    let width = LEFT + seconds * scale + 20.0;
    timeline.svg.file((width.max(NARROWEST), height), 1.0, title, STYLE)
}

/// Assigns and labels the rows. Returns them with the position of their end.
fn rows(lines: &[Line<'_>], members: u64, labels: &mut Svg) -> (Rows, f64) {
    let mut rows = Rows::new();
    let mut y = TOP + 20.0;
    labels.text((4.0, y + 2.0), "lock", "members");
    for member in 0..members {
        y += ROW;
        labels.text((12.0, y + 3.0), "row", &format!("m{}", member + 1));
        rows.insert((String::new(), member.to_string()), y);
    }
    let holds = lines.iter().filter(|line| line.word == "hold");
    let holds: BTreeSet<_> = holds.map(|line| (line.text("lock"), line.text("client"))).collect();
    let mut last = "";
    for (lock, client) in holds {
        if lock != last {
            y += 2.4 * ROW;
            labels.text((4.0, y + 2.0), "lock", lock);
            last = lock;
        }
        y += ROW;
        labels.text((12.0, y + 3.0), "row", client);
        rows.insert((lock.to_owned(), client.to_owned()), y);
    }
    (rows, y + ROW)
}

impl Timeline {
    fn x(&self, at: u64) -> f64 {
        LEFT + at.saturating_sub(self.start) as f64 / 1e9 * self.scale
    }

    /// Adds a bar to a path. One path for thousands of bars keeps the file small.
    fn bar(&self, path: &mut String, from: u64, to: u64, y: f64) {
        let (from, to) = (self.x(from), self.x(to));
        let _ = write!(path, "M{from:.1} {y:.0}h{:.1}", (to - from).max(0.4));
    }

    /// Draws a path and adds its class to the legend; an empty path is left out.
    fn path(&mut self, commands: &str, class: &str) {
        let text = LEGEND.iter().find(|(of, _)| *of == class).map_or("", |(_, text)| text);
        if !commands.is_empty() {
            self.svg.path(commands, class);
            self.svg.path(&format!("M{} 12h16", self.legend), class);
            self.svg.text((self.legend + 20.0, 16.0), "", text);
            self.legend += 34.0 + 6.0 * text.len() as f64;
        }
    }

    fn axis(&mut self, seconds: f64) {
        let mut at = 0.0;
        while at <= seconds {
            let x = LEFT + at * self.scale;
            self.svg.line((x, TOP - 10.0), (x, self.bottom), "axis");
            self.svg.text((x + 2.0, TOP), "", &format!("{at:.0} s"));
            at += 10.0;
        }
    }

    fn faults(&mut self, lines: &[Line<'_>]) {
        let (mut down, mut disturbed) = (String::new(), String::new());
        for line in lines.iter().filter(|line| line.word == "fault") {
            let (Ok(from), Ok(until)) = (line.number("from"), line.number("until")) else {
                continue;
            };
            let clients = line.text("clients");
            for ((lock, client), y) in &self.rows {
                let is_of = |names: &str| names.split(',').any(|name| name == client);
                if lock.is_empty() && clients.is_empty() && is_of(line.text("members")) {
                    self.bar(&mut down, from, until, *y);
                } else if !lock.is_empty() && is_of(clients) {
                    self.bar(&mut disturbed, from, until, *y);
                }
            }
            if clients.is_empty() {
                let (x, width) = (self.x(from), (self.x(until) - self.x(from)).max(1.0));
                let size = (width, self.bottom - TOP + 20.0);
                let title = line.text("text").replace('_', " ");
                self.svg.rect((x, TOP - 20.0), size, "members", &title);
                self.svg.text((x + 2.0, TOP - 24.0), "fault", line.text("kind"));
            }
        }
        self.path(&down, "down");
        self.path(&disturbed, "client");
    }

    fn holds(&mut self, lines: &[Line<'_>], end: u64) {
        let (mut docent, mut proven, mut curator) = (String::new(), String::new(), String::new());
        for line in lines.iter().filter(|line| line.word == "hold") {
            let row =
                self.rows.get(&(line.text("lock").to_owned(), line.text("client").to_owned()));
            let (Some(y), Some((from, to))) = (row, line.text("held").split_once('-')) else {
                continue;
            };
            let (Ok(from), Ok(to)) = (from.parse(), to.parse()) else { continue };
            let path = if line.text("kind") == "docent" { &mut docent } else { &mut curator };
            self.bar(path, from, to, *y);
            if let (Ok(until), Ok(granted)) = (line.number("proven"), line.number("granted")) {
                let until = until.min(line.number("release").unwrap_or(u64::MAX)).min(end);
                if until > granted {
                    self.bar(&mut proven, granted, until, *y);
                }
            }
        }
        for (path, class) in [(docent, "docent"), (proven, "proven"), (curator, "curator")] {
            self.path(&path, class);
        }
    }
}
