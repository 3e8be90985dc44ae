//! The outermost structure of SQL text: where statements end, and whether the last one has ended.
//!
//! Enters: text that a user typed. Leaves: its statements. Never here: what a statement means; DuckDB parses it. The
//! rules for quotes and comments are those of DuckDB, which has them from PostgreSQL.

/// The statements of a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Statements<'a> {
    /// Texts of the statements, without the semicolons. Statements that consist of blanks and comments are left out.
    pub texts: Vec<&'a str>,
    /// Whether the text ends inside a statement, a quoted text or a comment.
    pub is_open: bool,
}

/// Cuts a text at the semicolons between statements.
pub fn statements(text: &str) -> Statements<'_> {
    let mut found = Statements { texts: Vec::new(), is_open: false };
    let (mut start, mut at, mut has_words, mut is_whole) = (0, 0, false, true);
    while at < text.len() {
        let Piece { length, kind, is_closed } = piece(&text[at..]);
        is_whole = is_closed;
        match kind {
            Kind::Semicolon => {
                if has_words {
                    found.texts.push(text[start..at].trim());
                }
                (start, has_words) = (at + length, false);
            }
            Kind::Blank => {}
            Kind::Word => has_words = true,
        }
        at += length;
    }
    if has_words {
        found.texts.push(text[start..].trim());
    }
    found.is_open = has_words || !is_whole;
    found
}

/// Returns the text after `EXPLAIN`, `EXPLAIN ANALYZE` or `EXPLAIN (options)`; `None` if the statement is no `EXPLAIN`.
pub fn explained(statement: &str) -> Option<&str> {
    let rest = after_word(statement, "explain")?;
    let rest = after_word(rest, "analyze").unwrap_or(rest);
    Some(if rest.starts_with('(') { after_options(rest).unwrap_or(rest) } else { rest })
}

/// Returns the text after options in parentheses. A parenthesis that begins a query is none of options.
fn after_options(text: &str) -> Option<&str> {
    let inner = skip_blanks(&text[1..]);
    let is_query = ["select", "with", "from", "values", "("].iter().any(|word| starts_with(inner, word));
    if is_query { None } else { text.find(')').map(|end| skip_blanks(&text[end + 1..])) }
}

fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let text = skip_blanks(text);
    let rest = text.get(word.len()..).filter(|_| starts_with(text, word))?;
    let ends = !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    ends.then(|| skip_blanks(rest))
}

fn starts_with(text: &str, word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Skips blanks and comments.
fn skip_blanks(mut text: &str) -> &str {
    while !text.is_empty() {
        let piece = piece(text);
        if piece.kind != Kind::Blank {
            break;
        }
        text = &text[piece.length..];
    }
    text
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Blank,
    Semicolon,
    Word,
}

/// A blank, a comment, a quoted text or any other character at the start of a text.
struct Piece {
    length: usize,
    kind: Kind,
    /// Whether the quoted text or comment has an end.
    is_closed: bool,
}

fn piece(text: &str) -> Piece {
    let first = text.chars().next().expect("the text is not empty");
    let word = |end: Option<usize>| Piece {
        length: end.unwrap_or(text.len()),
        kind: Kind::Word,
        is_closed: end.is_some(),
    };
    if text.starts_with("--") {
        return Piece { length: text.find('\n').unwrap_or(text.len()), kind: Kind::Blank, is_closed: true };
    }
    if text.starts_with("/*") {
        let end = end_of_comment(text);
        return Piece { kind: Kind::Blank, ..word(end) };
    }
    match first {
        ';' => Piece { length: 1, kind: Kind::Semicolon, is_closed: true },
        c if c.is_whitespace() => Piece { length: c.len_utf8(), kind: Kind::Blank, is_closed: true },
        '\'' | '"' => word(end_of_quoted(text, first, false)),
        // E'…' has escapes with backslashes.
        'e' | 'E' if text[1..].starts_with('\'') => {
            word(end_of_quoted(&text[1..], '\'', true).map(|end| end + 1))
        }
        '$' => word(end_of_dollars(text)),
        c if c.is_alphanumeric() || c == '_' => {
            let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '$');
            word(Some(end.unwrap_or(text.len())))
        }
        c => word(Some(c.len_utf8())),
    }
}

/// Returns the end of a comment, in which others may be nested.
fn end_of_comment(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0, 0);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Returns the end of a quoted text. A doubled quote stands for itself.
fn end_of_quoted(text: &str, quote: char, has_escapes: bool) -> Option<usize> {
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, character)) = characters.next() {
        if has_escapes && character == '\\' {
            characters.next();
        } else if character == quote {
            match characters.peek() {
                Some((_, next)) if *next == quote => characters.next(),
                _ => return Some(at + 1),
            };
        }
    }
    None
}

/// Returns the end of `$tag$…$tag$`, or of a single dollar sign, which begins a parameter.
fn end_of_dollars(text: &str) -> Option<usize> {
    let name_end = text[1..].find(|c: char| !c.is_alphanumeric() && c != '_');
    let is_tag = name_end.is_some_and(|end| {
        text[1 + end..].starts_with('$') && !text[1..].starts_with(|c: char| c.is_ascii_digit())
    });
    if !is_tag {
        return Some(1);
    }
    let tag = &text[..name_end? + 2];
    text[tag.len()..].find(tag).map(|end| end + 2 * tag.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons_outside_of_quotes() {
        let check = |text, texts: &[&str], is_open| {
            assert_eq!(statements(text), Statements { texts: texts.to_vec(), is_open }, "{text}");
        };
        check("", &[], false);
        check(" ; -- nothing\n;", &[], false);
        check("select 1; select 2 ;", &["select 1", "select 2"], false);
        check("select 1", &["select 1"], true);
        check("select ';''', \";\" -- ;\n, 2; x", &["select ';''', \";\" -- ;\n, 2", "x"], true);
        check("/* ; /* ; */ ; */ select 1;", &["/* ; /* ; */ ; */ select 1"], false);
        check("select $$ ; $$, $a$ $$ ; $a$, $1;", &["select $$ ; $$, $a$ $$ ; $a$, $1"], false);
        check("select E'\\'; ' ;", &["select E'\\'; '"], false);
        check("select '", &["select '"], true);
        check("select 1; /*", &["select 1"], true);
        check("select 'é;ü';", &["select 'é;ü'"], false);
        check("select typ'e';", &["select typ'e'"], false);
    }

    #[test]
    fn the_statement_of_an_explain_is_found() {
        assert_eq!(explained("explain select 1"), Some("select 1"));
        assert_eq!(explained("/* a */ EXPLAIN -- b\n Analyze (select 1)"), Some("(select 1)"));
        assert_eq!(explained("explain (format json) copy t to 'f'"), Some("copy t to 'f'"));
        assert_eq!(explained("explainer"), None);
        assert_eq!(explained("select 'explain x'"), None);
    }
}
