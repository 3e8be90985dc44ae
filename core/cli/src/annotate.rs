//! Renders `dwell annotate`: the listing of a procedure with bubbles above stalled instructions, after DCPI's Figure 2.

use std::{collections::BTreeMap, fmt::Write, path::Path};

use anstyle::Style;
use dwell_query::answer::{
    Listing, ListingBlock, ListingInstruction, ListingScale, ListingStall, ScaleKind, StallKind,
};

use crate::text::{
    BOLD, CULPRIT as BLAMED, DIM, SOURCE, counted, cycles_interval, cycles_of, executed, fit, grouped, heat,
    in_kernel, origin, paint, seconds, si, stalled,
};

/// Options of the rendering.
pub struct View {
    /// Width of the terminal in columns.
    pub width: usize,
    /// Whether to interleave source lines.
    pub source: bool,
    /// Whether to show blocks without samples.
    pub full: bool,
    /// Whether to show samples at the instruction that the interrupt reported, instead of the one that was waited for.
    pub raw: bool,
}

/// Renders the listing as text.
pub fn render(listing: &Listing, style: &View) -> String {
    let mut page = Page { listing, style, out: String::new(), legend: Vec::new(), line: None };
    page.head();
    let mut folded = 0;
    for (block, instructions) in blocks(listing) {
        if !style.full && instructions.iter().all(|i| i.samples.is_empty() && i.head_samples < 0.5) {
            folded += instructions.len();
            continue;
        }
        page.fold(std::mem::take(&mut folded));
        page.block(block, instructions);
    }
    page.fold(folded);
    page.notes();
    page.out
}

/// Iterates over the blocks, each with its instructions.
fn blocks(listing: &Listing) -> impl Iterator<Item = (&ListingBlock, &[ListingInstruction])> {
    let starts: Vec<usize> = listing
        .blocks
        .iter()
        .map(|b| listing.instructions.partition_point(|i| i.address < b.address))
        .chain([listing.instructions.len()])
        .collect();
    listing.blocks.iter().enumerate().map(move |(b, block)| {
        (block, listing.instructions.get(starts[b]..starts[b + 1]).unwrap_or_default())
    })
}

struct Page<'a> {
    listing: &'a Listing,
    style: &'a View,
    out: String,
    /// Names of the causes whose letters have been explained.
    legend: Vec<String>,
    /// File and line of the source line that was shown last.
    line: Option<(&'a str, u32)>,
}

/// Number of columns before and after the text of an instruction.
const ADDRESS: usize = 10;
/// Width of the address column for kernel code, whose addresses have 16 digits.
const ADDRESS_OF_KERNEL: usize = 18;
const COUNTS: usize = SAMPLES + TIME + 2 + CULPRIT + CPI;
const SAMPLES: usize = 9;
const TIME: usize = 8;
const CULPRIT: usize = 13;
const CPI: usize = 8;

impl<'a> Page<'a> {
    fn head(&mut self) {
        let l = self.listing;
        let samples = l.procedure.samples.get(&l.time_event).copied().unwrap_or(0);
        let share = paint(heat(l.procedure.share), format!("{:.1}%", 100.0 * l.procedure.share));
        self.say(format!("{}  {}", paint(BOLD, &l.procedure.demangled), paint(DIM, &l.image.path)));
        self.say(format!(
            "{share} of the recording's {} samples ({}): {}{}",
            l.time_event,
            l.epoch,
            grouped(samples),
            [
                l.period_seconds.map(|p| format!(", {}", seconds(Some(p * samples as f64)))),
                l.period_cycles.map(|p| format!(", {} cycles", si(p * samples as f64))),
            ]
            .map(Option::unwrap_or_default)
            .concat()
        ));
        let period = l.period.get(&l.time_event);
        self.say(paint(
            DIM,
            format!(
                "machine model {}, one sample every {}",
                l.machine_model,
                period.map_or("?".to_owned(), |p| format!("{} {}", grouped(p.value), p.unit))
            ),
        ));
        self.say(paint(DIM, scale_told(&l.scale)));
        let is_countable = l.image.arch == "x86_64" && !l.image.path.starts_with('[');
        if is_countable && l.scale.kind != ScaleKind::Absolute {
            self.say(paint(
                DIM,
                "`dwell record --count -- COMMAND` counts executions, for about 2 % of the time",
            ));
        }
        self.say("");
        let (indent, width) = (self.indent(), self.text_width());
        let head = format!(
            "{:<indent$}{:<width$}{:>SAMPLES$}{:>TIME$}  {:<CULPRIT$}{}",
            "Address",
            "Instruction",
            "Samples",
            "Time",
            "Culprit",
            self.cpi_column("CPI".to_owned())
        );
        self.say(paint(BOLD, head.trim_end()));
    }

    fn block(&mut self, block: &ListingBlock, instructions: &'a [ListingInstruction]) {
        if self.listing.has_code() {
            self.block_head(block, instructions);
        }
        for instruction in instructions {
            self.source_line(instruction);
            self.bubbles(instruction);
            self.kernel(instruction);
            self.instruction(instruction);
        }
    }

    fn block_head(&mut self, block: &ListingBlock, instructions: &'a [ListingInstruction]) {
        let n = instructions.len() as f64;
        let best = format!("{:.1}/{n} = {:.2}", block.best_case_cpi * n, block.best_case_cpi);
        let sampled = instructions.iter().map(|i| i.head_samples).sum::<f64>() >= 0.5;
        let actual = match block.cpi {
            _ if !sampled => "no samples".to_owned(),
            None if block.frequency.is_none() => "no estimate".to_owned(),
            None => format!("actual ≥ {:.2} CPI", block.cpi_min),
            Some(c) => {
                let interval = cycles_interval(block.cpi, Some(block.cpi_min), block.cpi_max);
                let interval = interval.map_or(String::new(), |interval| format!(" ({interval})"));
                format!("actual {:.1}/{n} = {c:.2} CPI{interval}", c * n)
            }
        };
        let gain: f64 = instructions.iter().map(|i| i.gain_cycles).sum();
        let gain = if gain < 0.05 { String::new() } else { format!(", unexplained gain {gain:.1} cycles") };
        self.say("");
        self.say(paint(
            DIM,
            format!(
                "*** best case {best} CPI, {actual}{gain}, {} ({} confidence)",
                executed(self.listing, block, instructions),
                block.confidence.name()
            ),
        ));
    }

    fn source_line(&mut self, instruction: &'a ListingInstruction) {
        let Some(line) = instruction.file.as_deref().zip(instruction.line) else { return };
        if !self.style.source || self.line == Some(line) {
            return;
        }
        self.line = Some(line);
        let (file, number) = line;
        let text = self.listing.source_lines.get(file).and_then(|f| f.get(&number));
        if text.is_none() && !self.listing.source_lines.is_empty() {
            return; // Inlined from a library whose sources are missing here; such a line would only be noise.
        }
        let text = text.map_or("", |t| t.trim());
        let name = Path::new(file).file_name().map_or(file.into(), |n| n.to_string_lossy());
        let place = format!("{name}:{number}");
        let room = self.style.width.saturating_sub(place.len() + 4);
        self.say(format!("  {}  {}", paint(DIM, place), paint(SOURCE, fit(text, room))));
    }

    /// Adds the lines above a stalled instruction: what may have stalled it, and for how long.
    fn bubbles(&mut self, instruction: &ListingInstruction) {
        let of_kind = |kind| instruction.stalls.iter().filter(|s| s.kind == kind).collect::<Vec<_>>();
        for stalls in [of_kind(StallKind::Static), of_kind(StallKind::Dynamic)] {
            let Some((longest, duration)) = stalled(&self.listing.scale, &stalls, "cy") else { continue };
            let letters: String = stalls.iter().map(|s| s.letter).collect();
            let bar = "•".repeat(1 + (2.0 * longest.log2().max(0.0)).min(24.0) as usize);
            let style = if longest >= 4.0 { heat(1.0) } else { Style::new() };
            let explained = self.explain(&stalls);
            let indent = self.indent();
            let line = format!("{:>indent$}{}", "", paint(style, format!("{letters} {bar} {duration}")));
            self.say(format!("{line}{}{}", led_by_space(origin(&stalls)), paint(DIM, explained)));
        }
    }

    /// Adds the line above an instruction that entered the kernel: why, and how long that took.
    fn kernel(&mut self, instruction: &ListingInstruction) {
        let Some(kernel) = &instruction.kernel else { return };
        let Some(told) = in_kernel(kernel, "cy") else { return };
        let text = format!("{} {told}", kernel.letter);
        let all = self.listing.procedure.samples.get(&self.listing.time_event).copied().unwrap_or(0).max(1);
        let style = heat(kernel.samples as f64 / all as f64);
        let indent = self.indent();
        self.say(format!(
            "{:>indent$}{}{}",
            "",
            paint(style, text),
            paint(DIM, format!("   {}", kernel.label))
        ));
    }

    /// Explains the letters that have not been explained yet: `   d = D-cache miss, …`.
    fn explain(&mut self, stalls: &[&ListingStall]) -> String {
        let mut fresh = Vec::new();
        for stall in stalls {
            if !self.legend.contains(&stall.cause) {
                self.legend.push(stall.cause.clone());
                fresh.push(format!("{} = {}", stall.letter, stall.label));
            }
        }
        if fresh.is_empty() { String::new() } else { format!("   {}", fresh.join(", ")) }
    }

    fn instruction(&mut self, i: &ListingInstruction) {
        let landed = i.samples.get(&self.listing.time_event).copied().unwrap_or(0);
        let samples = if self.style.raw { landed } else { i.head_samples.round() as u64 };
        let all = self.listing.procedure.samples.get(&self.listing.time_event).copied().unwrap_or(0).max(1);
        let (indent, width) = (self.indent(), self.text_width());
        let count = if samples == 0 { String::new() } else { grouped(samples) };
        // The instruction issued or retired together with its predecessor (the paper's "(dual issue)"), or took too little
        // time to be seen.
        let cycles = match samples == 0 || i.text.is_empty() {
            true => "·".to_owned(),
            false => cycles_of(i),
        };
        let time = self.listing.period_seconds.filter(|_| samples > 0);
        let time = time.map_or(String::new(), |period| seconds(Some(period * samples as f64)));
        let line = format!(
            "{:<indent$}{:<width$}{}{time:>TIME$}  {}{}",
            if i.address == 0 && i.text.is_empty() { "–".to_owned() } else { format!("{:x}", i.address) },
            fit(&i.text, width - 1),
            paint(heat(samples as f64 / all as f64), format!("{count:>SAMPLES$}")),
            paint(BLAMED, format!("{:<CULPRIT$}", culprits(i))),
            self.cpi_column(cycles),
        );
        self.say(line.trim_end());
    }

    fn fold(&mut self, instructions: usize) {
        if instructions > 0 {
            self.say("");
            self.say(paint(DIM, format!("… {} without samples", counted(instructions, "instruction"))));
            self.line = None;
        }
    }

    fn notes(&mut self) {
        if !self.listing.notes.is_empty() {
            self.say("");
        }
        for note in &self.listing.notes {
            self.say(paint(DIM, format!("note: {note}")));
        }
    }

    fn indent(&self) -> usize {
        let is_kernel = self.listing.instructions.last().is_some_and(|i| i.address >> 40 != 0);
        if is_kernel { ADDRESS_OF_KERNEL } else { ADDRESS }
    }

    fn text_width(&self) -> usize {
        self.style.width.saturating_sub(self.indent() + COUNTS).clamp(30, 60)
    }

    /// Returns the last column, which is left out first where room is short.
    fn cpi_column(&self, text: String) -> String {
        let has_room = self.indent() + self.text_width() + COUNTS <= self.style.width;
        if has_room { format!("{text:>CPI$}") } else { String::new() }
    }

    fn say(&mut self, line: impl std::fmt::Display) {
        writeln!(self.out, "{line}").expect("a String takes every text");
    }
}

/// Describes in one line how far executions and CPI can be trusted.
fn scale_told(scale: &ListingScale) -> String {
    let told = match scale.kind {
        ScaleKind::Absolute => "executions are absolute numbers",
        ScaleKind::Program => {
            "executions are known as ratios between functions of the program; CPI has lower bounds only"
        }
        ScaleKind::Procedure => {
            "executions are known as ratios within the function; CPI has lower bounds only"
        }
    };
    match scale.evidence.is_empty() {
        true => told.to_owned(),
        false => format!("{told} ({})", scale.evidence.join("; ")),
    }
}

fn led_by_space(text: String) -> String {
    if text.is_empty() { text } else { format!(" {text}") }
}

/// Returns the addresses of the instructions to blame, each once, with the letters of the causes.
fn culprits(instruction: &ListingInstruction) -> String {
    let mut blamed: BTreeMap<u64, String> = BTreeMap::new();
    for stall in instruction.stalls.iter().filter(|s| s.kind == StallKind::Dynamic) {
        if let Some(address) = stall.culprit_address.filter(|a| *a != instruction.address) {
            blamed.entry(address).or_default().push(stall.letter);
        }
    }
    blamed.iter().map(|(address, letters)| format!("{letters}←{address:x}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::fixture::listing;

    /// Renders the rows from the titles on, without colors.
    fn rendered(scale: ScaleKind, width: usize) -> String {
        let view = View { width, source: true, full: true, raw: false };
        let text = anstream::adapter::strip_str(&render(&listing(scale), &view)).to_string();
        text[text.find("Address").unwrap()..].to_owned()
    }

    #[test]
    fn a_listing_without_numbers_says_how_to_get_them() {
        let view = View { width: 80, source: true, full: true, raw: false };
        let says = |scale| render(&listing(scale), &view).contains("record --count");
        assert_eq!(
            [ScaleKind::Absolute, ScaleKind::Program, ScaleKind::Procedure].map(says),
            [false, true, true]
        );
    }

    #[test]
    fn time_comes_first_then_the_culprit_then_the_cpi() {
        expect![[r#"
            Address   Instruction                     Samples    Time  Culprit           CPI

            *** best case 1.3/1 = 1.30 CPI, no samples, executed 980 k–1.02 M times (high confidence)
            1000      xor eax, eax                                                         ·

            *** best case 2.6/2 = 1.30 CPI, actual 132.0/2 = 66.00 CPI (64.5–67.5), executed 49.0–51.0 M times (high confidence)
                      dD ••••••••••••••• 130.0 cy   d = D-cache miss, D = DTLB miss
            1002      mov rdi, qword ptr [rdi + 0x…     3,000   3.0 s  dD←1000        132.00
            1006      jne 0x1002                           40   40 ms                   1.76
        "#]].assert_eq(&rendered(ScaleKind::Absolute, 80));
        expect![[r#"
            Address   Instruction                     Samples    Time  Culprit           CPI

            *** best case 1.3/1 = 1.30 CPI, no samples, 1.0% of the function's executed instructions (high confidence)
            1000      xor eax, eax                                                         ·

            *** best case 2.6/2 = 1.30 CPI, actual ≥ 4.00 CPI, 99.0% of the function's executed instructions (high confidence)
                      dD • 0 to 98% of its time   d = D-cache miss, D = DTLB miss
            1002      mov rdi, qword ptr [rdi + 0x…     3,000   3.0 s  dD←1000         ≥0.17
            1006      jne 0x1002                           40   40 ms                  ≥0.17
        "#]].assert_eq(&rendered(ScaleKind::Program, 80));
        let narrow = rendered(ScaleKind::Absolute, 75);
        assert!(!narrow.lines().next().unwrap().contains("CPI") && narrow.contains("Culprit"), "{narrow}");
    }
}
