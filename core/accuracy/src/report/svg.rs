//! A small writer of pictures: text, lines, boxes and axes as SVG for light and dark pages.
//!
//! Enters: shapes in pixels. Leaves: a whole SVG file. Colours are names of classes; the style sheet defines both themes.

use std::fmt::Write;

/// A picture that is being drawn.
#[derive(Clone, Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// The anchor of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The text begins at the position.
    Start,
    /// The text is centred at the position.
    Middle,
    /// The text ends at the position.
    End,
}

/// The colours of series: distinct in both themes, and by their lightness for the colour-blind.
pub const COLOURS: usize = 8;

const STYLE: &str = "\
svg{--page:#ffffff;--ink:#1f2328;--faint:#656d76;--rule:#d0d7de;--soft:#eaeef2;\
--c0:#0969da;--c1:#bc4c00;--c2:#8250df;--c3:#1a7f37;--c4:#8c959f;--c5:#bf8700;--c6:#cf222e;--c7:#57606a}\
@media(prefers-color-scheme:dark){svg{--page:#0d1117;--ink:#e6edf3;--faint:#8d96a0;--rule:#30363d;--soft:#21262d;\
--c0:#58a6ff;--c1:#f0883e;--c2:#bc8cff;--c3:#56d364;--c4:#6e7681;--c5:#e3b341;--c6:#ff7b72;--c7:#b1bac4}}\
.page{fill:var(--page)}text{font:12px system-ui,sans-serif;fill:var(--ink)}.faint{fill:var(--faint)}\
.title{font-size:15px;font-weight:600}.small{font-size:10.5px}.rule{stroke:var(--rule);fill:none}\
.soft{stroke:var(--soft);fill:none}.axis{stroke:var(--faint);fill:none}.line{fill:none;stroke-width:2;stroke-linejoin:round}\
.thin{stroke-width:1;opacity:.55}.pale{opacity:.35}";

impl Svg {
    /// Creates an empty picture with a title.
    pub fn new(width: f64, height: f64, title: &str) -> Svg {
        let mut svg = Svg { width, height, body: String::new() };
        svg.text(16.0, 26.0, Anchor::Start, "title", title);
        svg
    }

    /// Draws text. `class` is `title`, `small`, `faint`, or empty.
    pub fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{escaped}</text>"#
        );
    }

    /// Draws a straight line of a class of the style sheet: `rule`, `soft` or `axis`.
    pub fn rule(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = writeln!(
            self.body,
            r#"<path class="{class}" d="M{:.1} {:.1}L{:.1} {:.1}"/>"#,
            from.0, from.1, to.0, to.1
        );
    }

    /// Draws a line through points, in a series' colour.
    pub fn line(&mut self, colour: usize, class: &str, points: &[(f64, f64)]) {
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let _ = writeln!(
            self.body,
            r#"<path class="line {class}" style="stroke:var(--c{})" d="M{}"/>"#,
            colour % COLOURS,
            path.join("L")
        );
    }

    /// Draws a filled box in a series' colour.
    pub fn area(&mut self, colour: usize, class: &str, corner: (f64, f64), size: (f64, f64)) {
        let _ = writeln!(
            self.body,
            r#"<rect class="{class}" style="fill:var(--c{})" x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}"/>"#,
            colour % COLOURS,
            corner.0,
            corner.1,
            size.0.max(0.0),
            size.1.max(0.0)
        );
    }

    /// Draws the names of series with their colours, in as many rows as needed. Returns the height.
    pub fn legend(&mut self, corner: (f64, f64), names: &[(usize, &str)]) -> f64 {
        const GLYPH: f64 = 6.8;
        let (mut x, mut y) = corner;
        for (colour, name) in names {
            let width = 26.0 + GLYPH * name.chars().count() as f64;
            if x + width > self.width - 16.0 {
                (x, y) = (corner.0, y + 18.0);
            }
            self.area(*colour, "", (x, y - 9.0), (12.0, 10.0));
            self.text(x + 17.0, y, Anchor::Start, "", name);
            x += width + 8.0;
        }
        y - corner.1 + 18.0
    }

    /// Returns the SVG file.
    pub fn finish(self) -> String {
        let Svg { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\">\n<style>{STYLE}</style>\n\
             <rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n"
        )
    }
}

/// A rectangle with axes, which maps values to pixels.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// Left edge, in pixels.
    pub x: f64,
    /// Top edge, in pixels.
    pub y: f64,
    /// Width in pixels.
    pub width: f64,
    /// Height in pixels.
    pub height: f64,
    /// The values at the left and right edge.
    pub across: (f64, f64),
    /// The values at the bottom and top edge.
    pub up: (f64, f64),
}

impl Panel {
    /// Returns the position of a value in pixels.
    pub fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let part = |v: f64, (low, high): (f64, f64)| (v - low) / (high - low);
        (self.x + part(x, self.across) * self.width, self.y + (1.0 - part(y, self.up)) * self.height)
    }

    /// Draws grid lines with labels, and a heading.
    pub fn axes(&self, svg: &mut Svg, heading: &str, across: &[(f64, String)], up: &[(f64, String)]) {
        svg.text(self.x, self.y - 10.0, Anchor::Start, "", heading);
        for (value, label) in up {
            let (_, y) = self.at(self.across.0, *value);
            svg.rule("soft", (self.x, y), (self.x + self.width, y));
            svg.text(self.x - 6.0, y + 4.0, Anchor::End, "faint small", label);
        }
        for (value, label) in across {
            let (x, _) = self.at(*value, self.up.0);
            svg.rule("soft", (x, self.y), (x, self.y + self.height));
            svg.text(x, self.y + self.height + 15.0, Anchor::Middle, "faint small", label);
        }
        let bottom = self.y + self.height;
        svg.rule("axis", (self.x, bottom), (self.x + self.width, bottom));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_the_file_is_whole() {
        let mut svg = Svg::new(100.0, 50.0, "a < b & c");
        svg.line(9, "", &[(0.0, 0.0), (1.0, 2.0)]);
        let text = svg.finish();
        assert!(
            text.contains("a &lt; b &amp; c") && text.contains("var(--c1)") && text.ends_with("</svg>\n")
        );
    }

    #[test]
    fn values_become_pixels() {
        let panel =
            Panel { x: 10.0, y: 20.0, width: 100.0, height: 50.0, across: (0.0, 45.0), up: (0.0, 1.0) };
        assert_eq!((panel.at(0.0, 0.0), panel.at(45.0, 1.0)), ((10.0, 70.0), (110.0, 20.0)));
    }
}
