//! A picture as SVG: lines, boxes and text. Their look is defined by classes in a style sheet, so a page can be dark as
//! well as light.

use std::fmt::{self, Write as _};

/// A position, in units of the picture.
pub type Point = (f64, f64);

/// The elements of a picture. Later ones are drawn over earlier ones.
#[derive(Debug, Clone, Default)]
pub struct Svg {
    elements: String,
}

impl Svg {
    /// Draws a line. It needs a `stroke` in the style sheet.
    pub fn line(&mut self, from: Point, to: Point, class: &str) {
        let ((x1, y1), (x2, y2)) = ((unit(from.0), unit(from.1)), (unit(to.0), unit(to.1)));
        self.add(format_args!(
            "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"
        ));
    }

    /// Draws a box. A title that is not empty is shown while the mouse is over the box.
    pub fn rect(&mut self, (x, y): Point, (width, height): Point, class: &str, title: &str) {
        let (x, y, width, height) = (unit(x), unit(y), unit(width), unit(height));
        let title = if title.is_empty() {
            String::new()
        } else {
            format!("<title>{}</title>", escape(title))
        };
        self.add(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\">{title}</rect>"
        ));
    }

    /// Draws a circle.
    pub fn circle(&mut self, (x, y): Point, radius: f64, class: &str) {
        let (x, y, radius) = (unit(x), unit(y), unit(radius));
        self.add(format_args!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"/>"));
    }

    /// Draws a line along the commands of a path.
    pub fn path(&mut self, commands: &str, class: &str) {
        self.add(format_args!("<path class=\"{class}\" d=\"{commands}\"/>"));
    }

    /// Writes text. Its left end is at the position, unless its class sets another `text-anchor`.
    pub fn text(&mut self, (x, y): Point, class: &str, text: &str) {
        let (x, y, text) = (unit(x), unit(y), escape(text));
        self.add(format_args!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>"));
    }

    /// Draws another picture over this one.
    pub fn draw(&mut self, other: &Self) {
        self.elements.push_str(&other.elements);
    }

    /// Returns the file. `shown` is the scale at which the picture is displayed. The class of the background is `page`.
    #[must_use]
    pub fn file(&self, (width, height): Point, shown: f64, title: &str, style: &str) -> String {
        let (title, elements) = (escape(title), &self.elements);
        let (shown, width, height) = (unit(width * shown), unit(width), unit(height));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{shown}\" role=\"img\">\n\
             <title>{title}</title>\n<style>{style}</style>\n\
             <rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{elements}</svg>\n"
        )
    }

    fn add(&mut self, element: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.elements, "{element}");
    }
}

/// Rounds to a tenth of a unit, which is as exact as a picture needs.
fn unit(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::Svg;

    #[test]
    fn elements_are_rounded_and_text_is_escaped() {
        let mut svg = Svg::default();
        svg.line((0.0, 1.04), (2.55, 3.0), "life");
        svg.text((1.0, 2.0), "name", "a < b & c");
        let file = svg.file((10.0, 20.0), 1.5, "<title>", ".life{stroke:#000}");
        assert!(file.contains(r#"<line class="life" x1="0" y1="1" x2="2.6" y2="3"/>"#), "{file}");
        assert!(
            file.contains(r#"<text class="name" x="1" y="2">a &lt; b &amp; c</text>"#),
            "{file}"
        );
        assert!(file.contains(r#"viewBox="0 0 10 20" width="15""#), "{file}");
        assert!(file.contains("<title>&lt;title&gt;</title>"), "{file}");
    }
}
