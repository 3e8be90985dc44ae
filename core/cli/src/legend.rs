//! Renders `dwell legend`: what the numbers mean. The text is that of the editors: lsp-server/src/legend.ts writes it.
//!
//! Input: the width of the terminal. Output: the text in lines of that width. Never here: a word of the text.

/// The whole text. Its lines are as long as in the editors.
pub const TEXT: &str = include_str!("legend.txt");

/// Number of columns by which the other lines of an entry are indented.
const INDENT: usize = 4;

/// Renders the text in lines of at most `width` columns.
pub fn render(width: usize) -> String {
    paragraphs(TEXT).iter().map(|paragraph| wrapped(paragraph, width)).collect()
}

/// Joins lines that continue the line before them. Entries of lists and tables, and examples, are lines of their own.
fn paragraphs(text: &str) -> Vec<String> {
    let is_own = |line: &str| line.is_empty() || line.contains("   ") || line.starts_with("- ");
    let mut all: Vec<String> = Vec::new();
    for line in text.lines() {
        match all.last_mut().filter(|last| !last.is_empty() && !is_own(line) && !last.contains("   ")) {
            Some(last) => *last += &format!(" {}", line.trim_start()),
            None => all.push(line.to_owned()),
        }
    }
    all
}

/// Breaks a paragraph at spaces.
fn wrapped(paragraph: &str, width: usize) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in paragraph.split(' ') {
        if !line.trim().is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines += &format!("{line}\n");
            line =
                " ".repeat(if paragraph.contains("   ") || paragraph.starts_with("- ") { INDENT } else { 0 });
        } else if !line.is_empty() || paragraph.starts_with(' ') {
            line.push(' ');
        }
        line += word;
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legend_fits_the_terminal() {
        for width in [60, 80, 120] {
            let text = render(width);
            let example = "28 % · 3.0 s · waits for memory";
            assert!(text.contains(example) && text.starts_with("What do these numbers mean?\n\n"), "{text}");
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= width, "{longest} {width}:\n{text}");
        }
        assert_eq!(paragraphs("one\ntwo\n\na   b\n- c\n  d"), ["one two", "", "a   b", "- c d"]);
        assert_eq!(wrapped("what   a long row", 12), "what   a\n    long row\n");
    }
}
