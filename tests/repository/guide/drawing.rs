//! A diagram as a picture: narrow enough for a phone, readable on light and dark pages, and on a slide.

use docent_drawing::{Point, Svg};

use super::diagram::{Bar, Belief, Diagram, Frame, Kind, Row};

/// The width in units of the picture; a phone shows about one pixel for each.
const WIDTH: f64 = 360.0;
const SIDE: f64 = 26.0;
/// The lifeline of the server.
const SERVER: f64 = WIDTH - SIDE;
/// The width of a letter at the size of 10.
const LETTER: f64 = 6.0;
/// The maximum number of letters in a line.
const LETTERS: usize = 56;
const LINE: f64 = 12.0;

/// On a dark page the picture is dark too.
const STYLE: &str = "
text{fill:#1b2430;font:10px ui-monospace,Menlo,Consolas,monospace}
.name{font-size:12px;font-weight:bold}.middle{text-anchor:middle}.end{text-anchor:end}.small{font-size:9.5px}
.page{fill:#fff}.life{stroke:#9aa4b0}.dotted{stroke-dasharray:1 4}.note{fill:#fff3c9;stroke:#e0c56a}
line.request{stroke:#14527a}path.request,circle.request{fill:#14527a}text.request{fill:#0f4163}
line.reply{stroke:#5a6572;stroke-dasharray:4 3}path.reply{fill:#5a6572}text.reply{fill:#434c57}
line.event{stroke:#b3261e}path.event,circle.event{fill:#b3261e}text.event{fill:#9c1c15}
.hold{fill:#3f9142}.wait{fill:#fff;stroke:#3f9142;stroke-width:1.5}
text.belief{fill:#2b6b2e;font-style:italic}circle.belief{fill:#3f9142}text.pause{fill:#5a6572;font-style:italic}path.cross{fill:none;stroke:#d0021b;stroke-width:2.5}
text.remark{font-style:italic}text.number{fill:#fff;font-weight:bold}
@media (prefers-color-scheme:dark){
text{fill:#e6e9ee}.page{fill:#1c2026}.life{stroke:#667080}.note{fill:#4a3f14;stroke:#8a7530}
line.request{stroke:#6cb8ec}path.request,circle.request{fill:#6cb8ec}text.request{fill:#9fd2f5}
line.reply{stroke:#a4adb8}path.reply{fill:#a4adb8}text.reply{fill:#c3cad3}
line.event{stroke:#ff8a80}path.event,circle.event{fill:#ff8a80}text.event{fill:#ffb0a9}
.hold{fill:#63c267}.wait{fill:#1c2026;stroke:#63c267}text.belief{fill:#8fd892}circle.belief{fill:#63c267}
text.pause{fill:#a4adb8}path.cross{stroke:#ff5a4e}text.number{fill:#10151b}}
";

/// The picture so far: what is drawn behind the rows, and the rows.
#[derive(Default)]
struct Picture {
    behind: Svg,
    rows: Svg,
    y: f64,
}

impl Diagram {
    pub(crate) fn svg(&self) -> String {
        let mut picture = Picture { y: 30.0, ..Picture::default() };
        // The bar of each client, and its beginning.
        let mut bars = vec![(Bar::None, 0.0); self.clients.len()];
        for row in &self.rows {
            match row {
                Row::Note(text) => picture.note(text),
                Row::Pause(text) => picture.pause(text),
                Row::Belief(belief) => {
                    let (client, x) = (&belief.client, self.x(&belief.client));
                    let from = picture.belief(belief, x);
                    let (bar, since) = &mut bars[self.column(client)];
                    if *bar != belief.bar {
                        picture.bar(*bar, x, *since, from);
                        (*bar, *since) = (belief.bar, from);
                    }
                }
                Row::Frame(frame) => picture.frame(frame, self.x(&frame.client)),
            }
        }
        for (client, (bar, from)) in self.clients.iter().zip(bars) {
            picture.bar(bar, self.x(client), from, picture.y + 4.0);
        }
        let end = picture.y + 6.0;
        picture.y += 14.0;
        self.legend(&mut picture);
        let mut page = Svg::default();
        for client in &self.clients {
            page.text((self.x(client), 18.0), "name middle", client);
            page.line((self.x(client), 24.0), (self.x(client), end), "life");
        }
        // Centred text would cross the edge.
        page.text((WIDTH - 6.0, 18.0), "name end", "ZooKeeper");
        page.line((SERVER, 24.0), (SERVER, end), "life");
        page.draw(&picture.behind);
        page.draw(&picture.rows);
        page.file((WIDTH, picture.y + 4.0), 1.5, self.title, STYLE)
    }

    fn column(&self, client: &str) -> usize {
        self.clients.iter().position(|name| name == client).unwrap_or(0)
    }

    /// The lifeline of a client.
    fn x(&self, client: &str) -> f64 {
        let step = if self.clients.len() > 3 { 34.0 } else { 52.0 };
        SIDE + self.column(client) as f64 * step
    }

    /// Explains the symbols that occur in this diagram.
    fn legend(&self, picture: &mut Picture) {
        let frames = || {
            self.rows.iter().filter_map(|row| match row {
                Row::Frame(frame) => Some(frame),
                _ => None,
            })
        };
        let has = |kind| frames().any(|frame| frame.kind == kind);
        let beliefs = || {
            self.rows.iter().filter_map(|row| match row {
                Row::Belief(belief) => Some(belief),
                _ => None,
            })
        };
        let (mut x, mut y) = (8.0, picture.y + 6.0);
        let mut item = |text: &str, sign: &dyn Fn(&mut Svg, Point)| {
            let width = 34.0 + text.len() as f64 * LETTER;
            if x + width > WIDTH {
                (x, y) = (8.0, y + LINE + 3.0);
            }
            sign(&mut picture.rows, (x, y));
            picture.rows.text((x + 23.0, y), "small", text);
            x += width;
        };
        for kind in [Kind::Request, Kind::Reply, Kind::Event] {
            if has(kind) {
                item(class(kind), &|svg, (x, y)| {
                    svg.line((x, y - 3.0), (x + 18.0, y - 3.0), class(kind));
                });
            }
        }
        if frames().any(|frame| frame.lost) {
            item("lost", &|svg, (x, y)| cross(svg, (x + 9.0, y - 3.0)));
        }
        for (bar, text) in [(Bar::Waits, "waits"), (Bar::Holds, "holds, as far as it knows")] {
            if beliefs().any(|belief| belief.bar == bar) {
                item(text, &|svg, (x, y)| bar_between(svg, bar, x + 8.5, y - 9.0, y + 2.0));
            }
        }
        let has_time = |text: &String| text.contains(" until T ");
        if beliefs().any(|belief| belief.text.as_ref().is_some_and(has_time)) {
            item("session timeout, less 5 %", &|svg, (x, y)| {
                svg.text((x + 9.0, y), "belief middle", "T");
            });
        }
        if frames().any(|frame| frame.step.is_some()) {
            item("step of LockInternals", &|svg, at| badge(svg, at, 6.0, "request", 5));
        }
        picture.y = y - 6.0 + LINE;
    }
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Request => "request",
        Kind::Reply => "reply",
        Kind::Event => "event",
    }
}

fn bar_between(svg: &mut Svg, bar: Bar, x: f64, from: f64, to: f64) {
    match bar {
        Bar::None => {}
        Bar::Waits => svg.rect((x - 2.0, from), (4.0, to - from), "wait", ""),
        Bar::Holds => svg.rect((x - 3.0, from), (6.0, to - from), "hold", ""),
    }
}

fn cross(svg: &mut Svg, (x, y): Point) {
    svg.path(&format!("M{x} {y} m-5 -5 l10 10 m0 -10 l-10 10"), "cross");
}

/// Draws the number of a step, at the left end of a line of text.
fn badge(svg: &mut Svg, (x, y): Point, radius: f64, class: &str, step: u64) {
    svg.circle((x + 9.0, y - 3.0), radius, class);
    svg.text((x + 9.0, y + 0.5), "number middle", &step.to_string());
}

impl Picture {
    fn note(&mut self, text: &str) {
        let lines = wrapped(text, LETTERS);
        let height = lines.len() as f64 * LINE + 6.0;
        self.y += 6.0;
        self.rows.rect((4.0, self.y), (WIDTH - 8.0, height), "note", "");
        let mut y = self.y;
        for line in lines {
            y += LINE;
            self.rows.text((9.0, y), "", &line);
        }
        self.y += height + 4.0;
    }

    /// A space in which nothing is sent: the lifelines are interrupted.
    fn pause(&mut self, text: &str) {
        let lines = wrapped(text, LETTERS - 6);
        let height = 34.0 + lines.len() as f64 * LINE;
        let (top, end) = (self.y + 8.0, self.y + height - 4.0);
        self.behind.rect((0.0, top), (WIDTH, end - top), "page", "");
        for y in [top, end] {
            self.behind.line((4.0, y), (WIDTH - 4.0, y), "life dotted");
        }
        let mut y = top + 4.0;
        for line in lines {
            y += LINE;
            // Bars do not cross the letters.
            let width = line.chars().count() as f64 * LETTER;
            self.rows.rect(((WIDTH - width) / 2.0, y - 9.0), (width, LINE), "page", "");
            self.rows.text((WIDTH / 2.0, y), "pause middle", &line);
        }
        self.y += height;
    }

    fn bar(&mut self, bar: Bar, x: f64, from: f64, to: f64) {
        bar_between(&mut self.behind, bar, x, from, to);
    }

    /// Writes what a client believes from here on, and returns the height of this moment.
    fn belief(&mut self, belief: &Belief, client: f64) -> f64 {
        let Some(text) = &belief.text else { return self.y + 4.0 };
        self.y += LINE + 4.0;
        let width = text.chars().count() as f64 * LETTER;
        let x = (client + 12.0).min(WIDTH - 10.0 - width);
        self.rows.rect((x - 1.0, self.y - 9.0), (width + 2.0, LINE), "page", "");
        self.rows.text((x, self.y), "belief", text);
        match belief.step {
            Some(step) => badge(&mut self.rows, (client - 9.0, self.y), 7.0, "belief", step),
            None => self.rows.circle((client, self.y - 3.0), 3.0, "belief"),
        }
        self.y += 4.0;
        self.y - 7.0
    }

    fn frame(&mut self, frame: &Frame, client: f64) {
        let class = class(frame.kind);
        let text = wrapped(&frame.text, LETTERS);
        let remark = frame.remark.iter().flat_map(|remark| wrapped(remark, LETTERS));
        let lines: Vec<_> = text
            .into_iter()
            .map(|line| (line, ""))
            .chain(remark.map(|line| (line, " remark")))
            .collect();
        let width = |text: &str| text.chars().count() as f64 * LETTER;
        let widest = lines.iter().map(|(line, _)| width(line)).fold(0.0, f64::max);
        let left = (client + 12.0).min(WIDTH - 10.0 - widest).max(8.0);
        for (line, style) in &lines {
            self.y += LINE;
            let text = line.trim_start();
            let x = left + width(line) - width(text);
            // Lifelines do not cross the letters.
            self.rows.rect((x - 1.0, self.y - 9.0), (width(text) + 2.0, LINE), "page", "");
            self.rows.text((x, self.y), &format!("{class}{style}"), text);
        }
        let y = self.y + 7.0;
        self.y = y + 5.0;
        // The number stands at the client's end.
        let near = client + if frame.step.is_some() { 7.0 } else { 0.0 };
        let (from, to, head) = match frame.kind {
            Kind::Request => (near, SERVER, -6),
            Kind::Reply | Kind::Event => (SERVER, near, 6),
        };
        if frame.lost {
            let middle = f64::midpoint(from, to);
            self.rows.line((from, y), (middle, y), class);
            cross(&mut self.rows, (middle, y));
        } else {
            self.rows.line((from, y), (to, y), class);
            self.rows.path(&format!("M{to} {y} l{head} -3 v6 z"), class);
        }
        if let Some(step) = frame.step {
            badge(&mut self.rows, (client - 9.0, y + 3.0), 7.0, class, step);
        }
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
