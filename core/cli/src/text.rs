//! Formats numbers and widths for users.

use anstyle::{AnsiColor, Style};
use dwell_query::answer::{
    Level, Listing, ListingBlock, ListingInstruction, ListingKernel, ListingScale, ListingSource,
    ListingStall, ScaleKind, StallKind,
};

/// Style of details that a reader looks up only if needed.
pub const DIM: Style = Style::new().dimmed();
/// Style of headings.
pub const BOLD: Style = Style::new().bold();
/// Style of high costs.
pub const HOT: Style = AnsiColor::Red.on_default().bold();
/// Style of moderate costs.
pub const WARM: Style = AnsiColor::Yellow.on_default();
/// Style of culprits.
pub const CULPRIT: Style = AnsiColor::Magenta.on_default();
/// Style of source text.
pub const SOURCE: Style = AnsiColor::Cyan.on_default();

/// Returns `text` in `style`. If the output is not coloured, the colours are removed later.
pub fn paint(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Returns the style for a share of the whole, 0 to 1.
pub fn heat(share: f64) -> Style {
    match share {
        s if s >= 0.1 => HOT,
        s if s >= 0.01 => WARM,
        _ => Style::new(),
    }
}

/// Groups digits: `1234567` becomes `1,234,567`.
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

/// Formats a number with a noun: `1 procedure`, `2,000 procedures`.
pub fn counted(n: usize, what: &str) -> String {
    format!("{} {what}{}", grouped(n as u64), if n == 1 { "" } else { "s" })
}

/// Formats a number of bytes: `14.2 MiB`.
pub fn bytes(n: u64) -> String {
    match n as f64 {
        n if n >= 1_073_741_824.0 => format!("{:.1} GiB", n / 1_073_741_824.0),
        n if n >= 1_048_576.0 => format!("{:.1} MiB", n / 1_048_576.0),
        n => format!("{:.1} KiB", n / 1024.0),
    }
}

/// Formats a number with three significant digits and a decimal prefix: `4.10 G`.
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

/// Formats a number like [`si`], or as a dash if there is no estimate.
pub fn si_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), si)
}

/// Formats a range of numbers: `16.4–16.9 M`, or one number if both ends read the same.
pub fn si_range(min: f64, max: f64) -> String {
    let (least, most) = (si(min), si(max));
    match (least.split_once(' '), most.split_once(' ')) {
        _ if least == most => most,
        (Some((number, prefix)), Some((_, same))) if prefix == same => format!("{number}–{most}"),
        _ => format!("{least}–{most}"),
    }
}

/// Formats a share in percent. A value that rounds to zero has no sign, since sums of shares have small errors.
pub fn percent(share: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}%", 100.0 * share);
    let is_zero = text.bytes().all(|b| !(b'1'..=b'9').contains(&b));
    if is_zero { text.trim_start_matches('-').to_owned() } else { text }
}

/// Formats a range of shares: `20–85%`, `≤ 85%`, `≥ 20%`, or `85%` if its ends are equal. Returns `None` if it excludes nothing.
pub fn share_range(min: f64, max: f64) -> Option<String> {
    let (least, most) = (percent(min, 0), percent(max, 0));
    match (least.as_str(), most.as_str()) {
        ("0%", "100%") => None,
        (a, b) if a == b => Some(most),
        ("0%", _) => Some(format!("≤ {most}")),
        (_, "100%") => Some(format!("≥ {least}")),
        _ => Some(format!("{}–{most}", least.trim_end_matches('%'))),
    }
}

/// Cuts `text` to `width` columns. A text that was cut ends with `…`.
pub fn fit(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

/// Returns the width of the terminal, or 110 if there is none.
pub fn width() -> usize {
    terminal_size::terminal_size().map_or(110, |(w, _)| usize::from(w.0).max(60))
}

/// Describes where the data of the longest data cache miss among these stalls may have come from: `from L2 (92% of
/// executions) or memory (10%)`, or `from L2, LLC or memory` without an absolute scale. Returns an empty text if there is no
/// such miss.
pub fn origin(stalls: &[&ListingStall]) -> String {
    let missed = stalls.iter().filter(|s| !s.sources.is_empty());
    let Some(longest) = missed.max_by(|a, b| a.share_max.total_cmp(&b.share_max)) else {
        return String::new();
    };
    let name = |(i, s): (usize, &ListingSource)| {
        let part =
            s.part.map(|part| if part < 0.01 { "<1%".to_owned() } else { format!("{:.0}%", 100.0 * part) });
        match part {
            Some(part) if i == 0 => format!("{} ({part} of executions)", level(s.level)),
            Some(part) => format!("{} ({part})", level(s.level)),
            None => level(s.level).to_owned(),
        }
    };
    let names: Vec<String> = longest.sources.iter().enumerate().map(name).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("from {} or {last}", rest.join(", ")),
        _ => format!("from {}", names.concat()),
    }
}

/// Formats cycles per execution: `1.23`, `≥0.56` without an absolute scale, or a dash if nothing is known.
pub fn cycles_each(cpi: Option<f64>, cpi_min: Option<f64>) -> String {
    match (cpi, cpi_min) {
        (Some(cpi), _) => format!("{cpi:.2}"),
        (None, Some(min)) => format!("≥{min:.2}"),
        (None, None) => "–".to_owned(),
    }
}

/// Formats the cycles of one instruction like [`cycles_each`]. An instruction whose executions are known and that was measured
/// faster than the least possible has no number: it issued or retired together with its predecessor (the paper's "dual issue").
pub fn cycles_of(i: &ListingInstruction) -> String {
    match (i.executions, i.cpi) {
        (Some(executions), None) if executions > 0.0 && i.cpi_min >= 0.005 => format!("<{:.2}", i.cpi_min),
        (Some(executions), None) if executions > 0.0 => "·".to_owned(),
        _ => cycles_each(i.cpi, i.executions_relative.map(|_| i.cpi_min)),
    }
}

/// Formats the 90 % interval of cycles per execution with about three digits: `2.95–3.10`, `237–257`. Returns `None` if there is
/// no number, or if both ends read like it.
pub fn cycles_interval(cpi: Option<f64>, cpi_min: Option<f64>, cpi_max: Option<f64>) -> Option<String> {
    let digits = |x: f64| match x {
        x if x < 10.0 => format!("{x:.2}"),
        x if x < 100.0 => format!("{x:.1}"),
        x => format!("{x:.0}"),
    };
    let (min, max, number) = (digits(cpi_min?), digits(cpi_max?), digits(cpi?));
    (min != number || max != number).then(|| format!("{min}–{max}"))
}

/// Describes the executions of a block, of which `instructions` are its own: `executed 1.15–1.25 M times` with an absolute scale,
/// otherwise `executed 2.0 per entry of the loop`. If entries were observed too rarely for that, the share of what the function
/// executed is known.
pub fn executed(listing: &Listing, block: &ListingBlock, instructions: &[ListingInstruction]) -> String {
    let share = || executed_share(listing, instructions);
    match (block.executions, &block.per_entry) {
        (Some(executions), _) => format!("executed {} times", interval(block, executions)),
        (None, Some(ratio)) => {
            format!("executed {} per entry of the {}", times(ratio.executions), ratio.of.name())
        }
        (None, None) => share().map_or("executions unknown".to_owned(), |share| {
            format!("{} of the function's executed instructions", percent(share, 1))
        }),
    }
}

/// Formats the executions of a block for a column: `1.15–1.25 M`, `2.0/entry`, `12.5%`.
pub fn executed_short(
    listing: &Listing,
    block: &ListingBlock,
    instructions: &[ListingInstruction],
) -> String {
    let share = || executed_share(listing, instructions);
    match (block.executions, &block.per_entry) {
        (Some(executions), _) => interval(block, executions),
        (None, Some(ratio)) => format!("{}/entry", times(ratio.executions)),
        (None, None) => share().map_or("–".to_owned(), |share| percent(share, 1)),
    }
}

/// Formats the 90 % interval of a block's executions.
fn interval(block: &ListingBlock, executions: f64) -> String {
    let end = |end: Option<f64>| end.unwrap_or(executions);
    si_range(end(block.executions_min), end(block.executions_max))
}

/// Returns the part of the instructions executed in the function that `instructions` are. It needs only ratios of frequencies.
fn executed_share(listing: &Listing, instructions: &[ListingInstruction]) -> Option<f64> {
    let sum = |of: &[ListingInstruction]| of.iter().filter_map(|i| i.executions_relative).sum::<f64>();
    let part = sum(instructions);
    (part > 0.0).then(|| part / sum(&listing.instructions))
}

/// Formats a ratio: `2.0`, `0.013`, `1.20 k`.
pub fn times(ratio: f64) -> String {
    match ratio {
        r if r >= 999.5 => si(r),
        r if r >= 0.095 || r == 0.0 => format!("{r:.1}"),
        r => format!("{r:.3}"),
    }
}

/// Formats CPU time: `3.0 s`, `12 ms`.
pub fn seconds(seconds: Option<f64>) -> String {
    match seconds {
        None => "–".to_owned(),
        Some(s) if s >= 99.5 => format!("{} s", grouped(s.round() as u64)),
        Some(s) if s >= 0.995 => format!("{s:.1} s"),
        Some(s) if s >= 0.000_995 => format!("{:.0} ms", 1000.0 * s),
        Some(s) => format!("{:.0} µs", 1e6 * s),
    }
}

/// Describes how long the stalls of one instruction and one kind last: `18.0 cy`, `2.0 to 18.0 cy` if several causes may
/// share the time, or `20 to 95% of its time` without an absolute scale. The number is the cycles that a bar for them
/// represents. Returns `None` if the stalls are too short to be shown.
pub fn stalled(scale: &ListingScale, stalls: &[&ListingStall], cycles: &str) -> Option<(f64, String)> {
    let longest = stalls.iter().max_by(|a, b| a.share_max.total_cmp(&b.share_max))?;
    if scale.kind != ScaleKind::Absolute && longest.kind == StallKind::Dynamic {
        let least = if let [one] = stalls { one.share_min } else { 0.0 };
        let (least, most) = (100.0 * least, 100.0 * longest.share_max);
        let part = if most - least < 0.5 { String::new() } else { format!("{least:.0} to ") };
        let told = format!("{part}{most:.0}% of its time");
        return (most >= 0.5).then_some((longest.cycles_min, told));
    }
    let most = stalls.iter().map(|s| s.cycles_max).fold(0.0, f64::max);
    let least = if let [one] = stalls { one.cycles_min } else { most };
    let told = match most - least < 0.05 {
        true => format!("{most:.1} {cycles}"),
        false => format!("{least:.1} to {most:.1} {cycles}"),
    };
    (most >= STALL_MIN).then_some((most, told))
}

/// Least number of cycles of a stall that is shown.
const STALL_MIN: f64 = 0.05;

/// Describes the time that an instruction spends in the kernel: `120 cy in the kernel, 34 samples`. Returns `None` if it is
/// too short to be shown.
pub fn in_kernel(kernel: &ListingKernel, cycles: &str) -> Option<String> {
    let samples = counted(kernel.samples as usize, "sample");
    match kernel.cycles {
        Some(each) if each < STALL_MIN => None,
        Some(each) => Some(format!("{} {cycles} in the kernel, {samples}", si(each))),
        None => Some(format!("{samples} in the kernel")),
    }
}

/// Returns the name of a level of the memory hierarchy for users.
fn level(level: Level) -> &'static str {
    match level {
        Level::Second => "L2",
        Level::Last => "LLC",
        Level::Memory => "memory",
    }
}

#[cfg(test)]
mod tests {
    use dwell_query::answer::{Entered, ListingPerEntry};

    use super::*;
    use crate::fixture::listing;

    #[test]
    fn origins_of_data_are_described() {
        let stall = |share_max, sources: &[(Level, Option<f64>)]| ListingStall {
            kind: StallKind::Dynamic,
            cause: "d-cache-miss".into(),
            label: "D-cache miss",
            letter: 'd',
            cycles_min: 0.0,
            cycles_max: 1.0,
            share_min: 0.0,
            share_max,
            culprit_address: None,
            levels: Vec::new(),
            sources: sources.iter().map(|&(level, part)| ListingSource { level, part }).collect(),
        };
        let short = stall(
            0.1,
            &[(Level::Second, Some(0.75)), (Level::Last, Some(0.2)), (Level::Memory, Some(0.004))],
        );
        let long = stall(0.9, &[(Level::Memory, Some(0.9))]);
        assert_eq!(origin(&[&short]), "from L2 (75% of executions), LLC (20%) or memory (<1%)");
        assert_eq!(origin(&[&short, &long]), "from memory (90% of executions)");
        assert_eq!(origin(&[&stall(0.1, &[])]), "");
        let scale = ListingScale { kind: ScaleKind::Procedure, evidence: Vec::new() };
        let unknown = stall(0.5, &[(Level::Second, None), (Level::Last, None), (Level::Memory, None)]);
        assert_eq!(origin(&[&unknown]), "from L2, LLC or memory");
        assert_eq!(stalled(&scale, &[&unknown], "cy"), Some((0.0, "0 to 50% of its time".to_owned())));
    }

    #[test]
    fn unknown_values_are_shown_as_bounds_or_ratios() {
        let told = |scale: ScaleKind, per_entry: Option<f64>| {
            let listing = listing(scale);
            let mut block = listing.blocks[1].clone();
            block.per_entry = per_entry.map(|executions| ListingPerEntry { executions, of: Entered::Loop });
            let own = &listing.instructions[1..];
            [executed(&listing, &block, own), executed_short(&listing, &block, own)]
        };
        assert_eq!(told(ScaleKind::Absolute, Some(2.0)), ["executed 49.0–51.0 M times", "49.0–51.0 M"]);
        assert_eq!(told(ScaleKind::Program, Some(2.0)), ["executed 2.0 per entry of the loop", "2.0/entry"]);
        // A loop that is entered too rarely for a ratio.
        let share = ["99.0% of the function's executed instructions", "99.0%"];
        assert_eq!(told(ScaleKind::Program, None), share);
        let ranges = [(1.2e6, 1.2001e6), (16.4e6, 16.9e6), (950e3, 1.05e6)].map(|(a, b)| si_range(a, b));
        assert_eq!(ranges, ["1.20 M", "16.4–16.9 M", "950 k–1.05 M"]);
        let mut fast = listing(ScaleKind::Absolute).instructions[1].clone();
        assert_eq!(cycles_of(&fast), "132.00");
        (fast.cpi, fast.cpi_min) = (None, 0.17);
        assert_eq!(cycles_of(&fast), "<0.17", "it was measured to be faster");
        fast.cpi_min = 0.0;
        assert_eq!(cycles_of(&fast), "·");
        (fast.executions, fast.cpi_min) = (None, 0.17);
        assert_eq!(cycles_of(&fast), "≥0.17", "a bound");
        assert_eq!(cycles_interval(Some(3.0), Some(2.95), Some(3.1)).as_deref(), Some("2.95–3.10"));
        assert_eq!(cycles_interval(Some(247.1), Some(236.97), Some(257.3)).as_deref(), Some("237–257"));
        assert_eq!(cycles_interval(Some(3.0), Some(3.0), Some(3.001)), None);
        assert_eq!(cycles_interval(None, Some(0.5), Some(3.1)), None);
        assert_eq!([0.0, 0.02, 12.34, 4321.0].map(times), ["0.0", "0.020", "12.3", "4.32 k"]);
        assert_eq!(cycles_each(None, Some(0.5)), "≥0.50");
        let shares = [(0.0, 1.0), (0.85, 0.85), (0.0, 0.85), (0.2, 1.0), (0.2, 0.85)];
        let ranges = shares.map(|(min, max)| share_range(min, max).unwrap_or_default());
        assert_eq!(ranges, ["", "85%", "≤ 85%", "≥ 20%", "20–85%"]);
        let told = [None, Some(123.4), Some(3.04), Some(0.0124), Some(1.2e-5)].map(seconds);
        assert_eq!(told, ["–", "123 s", "3.0 s", "12 ms", "12 µs"]);
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
