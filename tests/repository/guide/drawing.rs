//! A diagram as a picture: narrow enough for a phone, readable on light and dark pages, and on a slide.

use std::fmt::Write as _;

use super::diagram::{Diagram, Frame, Kind, Row};

/// The width in units of the picture; a phone shows about one pixel for each.
const WIDTH: usize = 360;
const SIDE: usize = 26;
/// The most letters of a line: about 6 units each at the size of 10.
const LETTERS: usize = (WIDTH - 20) / 6;
const LINE: usize = 12;

/// On a dark page the picture is dark too.
const STYLE: &str = "<style>
text{fill:#1b2430}.page{fill:#fff}.life{stroke:#9aa4b0}.note{fill:#fff3c9;stroke:#e0c56a}
.request line,.request path{stroke:#14527a}.request .head,.request .badge{fill:#14527a}.request text{fill:#0f4163}
.reply line,.reply path{stroke:#5a6572}.reply .head{fill:#5a6572}.reply text{fill:#434c57}
.event line,.event path{stroke:#b3261e}.event .head,.event .badge{fill:#b3261e}.event text{fill:#9c1c15}
.hold{fill:#3f9142}.pause{fill:#5a6572;font-style:italic}path.cross{stroke:#d0021b;stroke-width:2.5}
.remark{font-style:italic}text.number{fill:#fff;font-weight:bold}
@media (prefers-color-scheme:dark){
text{fill:#e6e9ee}.page{fill:#1c2026}.life{stroke:#667080}.note{fill:#4a3f14;stroke:#8a7530}
.request line,.request path{stroke:#6cb8ec}.request .head,.request .badge{fill:#6cb8ec}.request text{fill:#9fd2f5}
.reply line,.reply path{stroke:#a4adb8}.reply .head{fill:#a4adb8}.reply text{fill:#c3cad3}
.event line,.event path{stroke:#ff8a80}.event .head,.event .badge{fill:#ff8a80}.event text{fill:#ffb0a9}
.hold{fill:#63c267}.pause{fill:#a4adb8}path.cross{stroke:#ff5a4e}text.number{fill:#10151b}}
</style>";

/// The picture so far: what is drawn behind the rows, and the rows.
#[derive(Default)]
struct Picture {
    behind: String,
    rows: String,
    y: usize,
}

impl Diagram {
    pub(crate) fn svg(&self) -> String {
        let mut picture = Picture { y: 30, ..Picture::default() };
        // The beginning of each client's hold.
        let mut held: Vec<Option<usize>> = vec![None; self.clients.len()];
        for row in &self.rows {
            match row {
                Row::Note(text) => picture.note(text),
                Row::Pause(text) => picture.pause(text),
                Row::Holds { client, held: begins } => {
                    let column = self.column(client);
                    if *begins {
                        held[column].get_or_insert(picture.y);
                    } else if let Some(from) = held[column].take() {
                        picture.hold(self.x(client), from);
                    }
                }
                Row::Frame(frame) => picture.frame(frame, self.x(&frame.client)),
            }
        }
        for (column, from) in held.iter().enumerate() {
            if let Some(from) = from {
                picture.hold(self.x(&self.clients[column]), *from);
            }
        }
        let end = picture.y + 6;
        picture.y += 14;
        self.legend(&mut picture);
        let height = picture.y + 4;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{}\" role=\"img\" \
             font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"10\">\n\
             <title>{}</title>\n{STYLE}\n<rect class=\"page\" width=\"100%\" height=\"100%\" rx=\"4\"/>\n",
            WIDTH * 3 / 2,
            escape(self.title)
        );
        let names = self.clients.iter().map(|name| (self.x(name), &**name));
        for (x, name) in names.chain([(server(), "ZooKeeper")]) {
            // The last name would pass the edge.
            let (at, anchor) = if x == server() { (WIDTH - 6, "end") } else { (x, "middle") };
            let _ = writeln!(
                out,
                "<text x=\"{at}\" y=\"18\" text-anchor=\"{anchor}\" font-size=\"12\" font-weight=\"bold\">{name}</text>\
                 <line class=\"life\" x1=\"{x}\" y1=\"24\" x2=\"{x}\" y2=\"{end}\"/>"
            );
        }
        out + &picture.behind + &picture.rows + "</svg>\n"
    }

    fn column(&self, client: &str) -> usize {
        self.clients.iter().position(|name| name == client).unwrap_or(0)
    }

    /// The lifeline of a client.
    fn x(&self, client: &str) -> usize {
        let step = if self.clients.len() > 3 { 34 } else { 52 };
        SIDE + self.column(client) * step
    }

    /// Explains what occurs in this diagram.
    fn legend(&self, picture: &mut Picture) {
        let frames = || {
            self.rows.iter().filter_map(|row| match row {
                Row::Frame(frame) => Some(frame),
                _ => None,
            })
        };
        let has = |kind| frames().any(|frame| frame.kind == kind);
        let is_held = self.rows.iter().any(|row| matches!(row, Row::Holds { .. }));
        let line = |dash: &str| format!("<line x1=\"0\" y1=\"-3\" x2=\"18\" y2=\"-3\"{dash}/>");
        let mut items = Vec::new();
        for (kind, name, text) in [
            (Kind::Request, "request", "request"),
            (Kind::Reply, "reply", "reply"),
            (Kind::Event, "event", "event"),
        ] {
            if has(kind) {
                let dash = if kind == Kind::Reply { DASHES } else { "" };
                items.push((format!("<g class=\"{name}\">{}</g>", line(dash)), text));
            }
        }
        if frames().any(|frame| frame.lost) {
            items.push((format!("<g transform=\"translate(0 -3)\">{}</g>", cross(9, 0)), "lost"));
        }
        if is_held {
            items.push((
                "<rect class=\"hold\" x=\"6\" y=\"-9\" width=\"5\" height=\"11\"/>".to_owned(),
                "holds the lock, as far as it knows",
            ));
        }
        if frames().any(|frame| frame.step.is_some()) {
            items.push((
                "<g class=\"request\"><circle class=\"badge\" cx=\"9\" cy=\"-3\" r=\"6\"/></g>\
                 <text class=\"number\" x=\"9\" y=\"0.5\" text-anchor=\"middle\" font-size=\"9\">5</text>"
                    .to_owned(),
                "step of LockInternals",
            ));
        }
        let mut x = 8;
        for (sign, text) in items {
            let width = 34 + text.len() * 6;
            if x + width > WIDTH {
                (x, picture.y) = (8, picture.y + LINE + 3);
            }
            let _ = writeln!(
                picture.rows,
                "<g transform=\"translate({x} {y})\">{sign}<text x=\"23\" y=\"0\" font-size=\"9.5\">{text}</text></g>",
                y = picture.y + 6
            );
            x += width;
        }
        picture.y += LINE;
    }
}

const DASHES: &str = " stroke-dasharray=\"4 3\"";

fn server() -> usize {
    WIDTH - SIDE
}

fn cross(x: usize, y: usize) -> String {
    format!("<path class=\"cross\" fill=\"none\" d=\"M{x} {y} m-5 -5 l10 10 m0 -10 l-10 10\"/>")
}

impl Picture {
    fn note(&mut self, text: &str) {
        let lines = wrapped(text, LETTERS);
        let height = lines.len() * LINE + 6;
        self.y += 6;
        let _ = writeln!(
            self.rows,
            "<rect class=\"note\" x=\"4\" y=\"{}\" width=\"{}\" height=\"{height}\" rx=\"2\"/>",
            self.y,
            WIDTH - 8
        );
        for (number, line) in lines.iter().enumerate() {
            let y = self.y + (number + 1) * LINE;
            let _ = writeln!(self.rows, "<text x=\"9\" y=\"{y}\">{}</text>", escape(line));
        }
        self.y += height + 4;
    }

    /// Room in which nothing is sent: the lifelines are interrupted.
    fn pause(&mut self, text: &str) {
        let lines = wrapped(text, LETTERS - 6);
        let height = 34 + lines.len() * LINE;
        let (top, end) = (self.y + 8, self.y + height - 4);
        let _ = writeln!(
            self.behind,
            "<rect class=\"page\" x=\"0\" y=\"{top}\" width=\"{WIDTH}\" height=\"{}\"/>",
            end - top
        );
        for y in [top, end] {
            let _ = writeln!(
                self.behind,
                "<line class=\"life\" x1=\"4\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke-dasharray=\"1 4\"/>",
                WIDTH - 4
            );
        }
        for (number, line) in lines.iter().enumerate() {
            let y = top + 16 + number * LINE;
            let _ = writeln!(
                self.rows,
                "<text class=\"pause\" x=\"{}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
                WIDTH / 2,
                escape(line)
            );
        }
        self.y += height;
    }

    fn hold(&mut self, x: usize, from: usize) {
        let _ = writeln!(
            self.behind,
            "<rect class=\"hold\" x=\"{}\" y=\"{from}\" width=\"6\" height=\"{}\" rx=\"2\"/>",
            x - 3,
            (self.y + 4).saturating_sub(from)
        );
    }

    fn frame(&mut self, frame: &Frame, client: usize) {
        let class = match frame.kind {
            Kind::Request => "request",
            Kind::Reply => "reply",
            Kind::Event => "event",
        };
        let mut lines: Vec<_> =
            wrapped(&frame.text, LETTERS).into_iter().map(|line| (line, "")).collect();
        if let Some(remark) = &frame.remark {
            lines.extend(
                wrapped(remark, LETTERS).into_iter().map(|line| (line, " class=\"remark\"")),
            );
        }
        let _ = writeln!(self.rows, "<g class=\"{class}\">");
        let widest = lines.iter().map(|(line, _)| line.chars().count() * 6).max().unwrap_or(0);
        let left = (client + 12).min((WIDTH - 10).saturating_sub(widest)).max(8);
        for (line, style) in &lines {
            self.y += LINE;
            // Lifelines do not cross the letters.
            let text = line.trim_start();
            let indent = 6 * (line.len() - text.len());
            let _ = writeln!(
                self.rows,
                "<rect class=\"page\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{LINE}\"/>\
                 <text x=\"{}\" y=\"{}\"{style}>{}</text>",
                left + indent - 1,
                self.y - 9,
                text.chars().count() * 6 + 2,
                left + indent,
                self.y,
                escape(text)
            );
        }
        let y = self.y + 7;
        self.y = y + 5;
        // The number stands at the client's end.
        let near = client + if frame.step.is_some() { 7 } else { 0 };
        let (from, to, head) = match frame.kind {
            Kind::Request => (near, server(), -6),
            Kind::Reply | Kind::Event => (server(), near, 6),
        };
        let dash = if frame.kind == Kind::Reply { DASHES } else { "" };
        if frame.lost {
            let middle = usize::midpoint(from, to);
            let _ = writeln!(
                self.rows,
                "<line x1=\"{from}\" y1=\"{y}\" x2=\"{middle}\" y2=\"{y}\"{dash}/>{}",
                cross(middle, y)
            );
        } else {
            let _ = writeln!(
                self.rows,
                "<line x1=\"{from}\" y1=\"{y}\" x2=\"{to}\" y2=\"{y}\"{dash}/>\
                 <path class=\"head\" d=\"M{to} {y} l{head} -3 v6 z\"/>"
            );
        }
        if let Some(step) = frame.step {
            let _ = writeln!(
                self.rows,
                "<circle class=\"badge\" cx=\"{client}\" cy=\"{y}\" r=\"7\"/>\
                 <text class=\"number\" x=\"{client}\" y=\"{}\" text-anchor=\"middle\">{step}</text>",
                y + 4
            );
        }
        self.rows.push_str("</g>\n");
    }
}

/// Lines of at most `letters` letters, if no word is longer. All but the first are indented.
fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("  {word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[test]
fn lines_fit_and_lose_no_word() {
    let text =
        "getChildren2 OK [_c_G1-lock-0000000000, _c_G2-lock-0000000001, _c_G3-lock-0000000002]";
    let lines = wrapped(text, LETTERS);
    assert!(
        lines.len() > 1 && lines.iter().all(|line| line.chars().count() <= LETTERS),
        "{lines:?}"
    );
    assert_eq!(lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "), text);
}
