//! Converts the coloured text of `annotate` for ratatui: lines with SGR sequences become lines of styled spans.

use ratatui::{
    style::{Color, Modifier, Style},
    text::{Line, Span},
};

/// Returns the lines of a coloured text. Other escape sequences, which a hostile name may contain, are shown as text without
/// the escape character.
pub fn lines(text: &str) -> Vec<Line<'static>> {
    text.lines().map(line).collect()
}

fn line(text: &str) -> Line<'static> {
    let mut spans = Vec::new();
    let mut style = Style::new();
    let mut parts = text.split('\u{1b}');
    push(&mut spans, parts.next().unwrap_or_default(), style);
    for part in parts {
        let sequence = part.strip_prefix('[').and_then(|p| p.split_once('m'));
        match sequence.filter(|(codes, _)| codes.bytes().all(|b| b.is_ascii_digit() || b == b';')) {
            Some((codes, rest)) => {
                style = codes.split(';').fold(style, apply);
                push(&mut spans, rest, style);
            }
            None => push(&mut spans, part, style),
        }
    }
    Line::from(spans)
}

fn push(spans: &mut Vec<Span<'static>>, text: &str, style: Style) {
    if !text.is_empty() {
        spans.push(Span::styled(text.replace('\t', "    "), style));
    }
}

fn apply(style: Style, code: &str) -> Style {
    match code {
        "" | "0" => Style::new(),
        "1" => style.add_modifier(Modifier::BOLD),
        "2" => style.add_modifier(Modifier::DIM),
        "31" => style.fg(Color::Red),
        "32" => style.fg(Color::Green),
        "33" => style.fg(Color::Yellow),
        "35" => style.fg(Color::Magenta),
        "36" => style.fg(Color::Cyan),
        _ => style,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_become_styles_and_escapes_never_pass() {
        let painted = crate::text::paint(crate::text::HOT, "hot");
        let read = line(&format!("a {painted} b\u{1b}]0;title\u{7}\u{1b}[2Jc"));
        assert_eq!(read.to_string(), "a hot b]0;title\u{7}[2Jc");
        assert_eq!(read.spans[1].style, Style::new().fg(Color::Red).add_modifier(Modifier::BOLD));
        assert_eq!(read.spans[2].style, Style::new());
    }
}
