//! Numbers and widths for people.

use anstyle::{AnsiColor, Style};
use dwell_query::answer::{ListingSource, ListingStall};

/// Quiet: what is there to be looked up.
pub const DIM: Style = Style::new().dimmed();
/// Headings.
pub const BOLD: Style = Style::new().bold();
/// What costs much.
pub const HOT: Style = AnsiColor::Red.on_default().bold();
/// What costs some.
pub const WARM: Style = AnsiColor::Yellow.on_default();
/// Who is to blame.
pub const CULPRIT: Style = AnsiColor::Magenta.on_default();
/// Source text.
pub const SOURCE: Style = AnsiColor::Cyan.on_default();

/// `text` in `style`; colours are dropped later where the output wants none.
pub fn paint(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// The style of a share of the whole, 0 to 1.
pub fn heat(share: f64) -> Style {
    match share {
        s if s >= 0.1 => HOT,
        s if s >= 0.01 => WARM,
        _ => Style::new(),
    }
}

/// `1234567` as `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 procedure`, `2,000 procedures`.
pub fn counted(n: usize, what: &str) -> String {
    format!("{} {what}{}", grouped(n as u64), if n == 1 { "" } else { "s" })
}

/// `14.2 MiB`.
pub fn bytes(n: u64) -> String {
    match n as f64 {
        n if n >= 1_073_741_824.0 => format!("{:.1} GiB", n / 1_073_741_824.0),
        n if n >= 1_048_576.0 => format!("{:.1} MiB", n / 1_048_576.0),
        n => format!("{:.1} KiB", n / 1024.0),
    }
}

/// Three significant digits and a decimal prefix: `4.10 G`.
pub fn si(value: f64) -> String {
    const PREFIXES: [&str; 6] = ["", " k", " M", " G", " T", " P"];
    let mut value = value;
    let mut prefix = 0;
    while value.abs() >= 999.5 && prefix + 1 < PREFIXES.len() {
        value /= 1000.0;
        prefix += 1;
    }
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ if prefix == 0 && value.fract() == 0.0 => 0,
        _ => 2,
    };
    format!("{value:.decimals$}{}", PREFIXES[prefix])
}

/// [`si`], or a dash where there is no estimate.
pub fn si_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), si)
}

/// Two decimals, or a dash where there is no estimate.
pub fn cpi(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |v| format!("{v:.2}"))
}

/// A share in percent. What rounds to zero has no sign: sums of shares are off by a trifle.
pub fn percent(share: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}%", 100.0 * share);
    let is_zero = text.bytes().all(|b| !(b'1'..=b'9').contains(&b));
    if is_zero { text.trim_start_matches('-').to_owned() } else { text }
}

/// `text` cut to `width` columns, its end kept for paths.
pub fn fit(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

/// The terminal's width, or 110 where there is none.
pub fn width() -> usize {
    terminal_size::terminal_size().map_or(110, |(w, _)| usize::from(w.0).max(60))
}

/// A cause as people read it, and its letter in bubbles (DCPI Figure 2).
pub fn cause(name: &str) -> (char, &str) {
    match name {
        "slotting" => ('s', "slotting"),
        "dependency" => ('a', "operand not ready"),
        "functional-unit" => ('f', "functional unit busy"),
        "i-cache-miss" => ('i', "I-cache miss"),
        "itlb-miss" => ('I', "ITLB miss"),
        "d-cache-miss" => ('d', "D-cache miss"),
        "dtlb-miss" => ('D', "DTLB miss"),
        "write-buffer" => ('w', "write buffer full"),
        "synchronization" => ('y', "synchronization"),
        "branch-mispredict" => ('p', "branch mispredict"),
        "divider" => ('v', "divider"),
        "multiplier" => ('m', "multiplier"),
        "store-forwarding" => ('o', "store not forwarded"),
        "4k-aliasing" => ('4', "4K aliasing"),
        "system" => ('k', "system call or interrupt"),
        "page-fault" => ('g', "page fault"),
        "unexplained" => ('?', "unexplained"),
        other => ('?', other),
    }
}

/// `from L2 (92% of executions) or memory (10%)`: where the data of the longest data miss among these may have come from; empty
/// where there is none.
pub fn origin(stalls: &[&ListingStall]) -> String {
    let missed = stalls.iter().filter(|s| !s.sources.is_empty());
    let Some(longest) = missed.max_by(|a, b| a.cycles_max.total_cmp(&b.cycles_max)) else {
        return String::new();
    };
    let part = |s: &ListingSource| match s.part {
        part if part < 0.01 => "<1%".to_owned(),
        part => format!("{:.0}%", 100.0 * part),
    };
    let (first, rest) = longest.sources.split_first().expect("it has some");
    let mut text = format!("from {} ({} of executions)", level(&first.level), part(first));
    for (i, source) in rest.iter().enumerate() {
        let joint = if i + 1 == rest.len() { " or" } else { "," };
        text += &format!("{joint} {} ({})", level(&source.level), part(source));
    }
    text
}

/// A level of the memory as people read it.
fn level(name: &str) -> &str {
    match name {
        "l2" => "L2",
        "last-level" => "LLC",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_of_data() {
        let stall = |cycles_max, sources: &[(&str, f64)]| ListingStall {
            kind: "dynamic".into(),
            cause: "d-cache-miss".into(),
            cycles_min: 0.0,
            cycles_max,
            culprit_address: None,
            sources: sources
                .iter()
                .map(|&(level, part)| ListingSource { level: level.into(), part })
                .collect(),
        };
        let short = stall(9.0, &[("l2", 0.75), ("last-level", 0.2), ("memory", 0.004)]);
        let long = stall(90.0, &[("memory", 0.9)]);
        assert_eq!(origin(&[&short]), "from L2 (75% of executions), LLC (20%) or memory (<1%)");
        assert_eq!(origin(&[&short, &long]), "from memory (90% of executions)");
        assert_eq!(origin(&[&stall(1.0, &[])]), "");
    }

    #[test]
    fn numbers_are_short_and_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(
            [0.0, 7.0, 0.25, 12.34, 999.4, 999.6, 4.1e9].map(si),
            ["0", "7", "0.25", "12.3", "999", "1.00 k", "4.10 G"]
        );
        assert_eq!(fit("abcdef", 4), "abc…");
        assert_eq!(
            [0.0, -0.0, -0.0004, -0.0006, 0.4128].map(|s| percent(s, 1)),
            ["0.0%", "0.0%", "0.0%", "-0.1%", "41.3%"]
        );
    }
}
