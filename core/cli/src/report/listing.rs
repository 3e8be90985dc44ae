//! The listing of a procedure as rows of a table: source lines, bubbles above stalled instructions (DCPI's Figure 2),
//! instructions.

use std::{collections::BTreeSet, path::Path};

use dwell_query::answer::{Listing, ListingBlock, ListingInstruction, ListingScale, ListingStall, StallKind};

use super::cause_class::class;
use crate::text::{
    cycles_interval, cycles_of, executed, executed_short, grouped, in_kernel, origin, stalled,
};

/// Largest number of instructions of a procedure that are shown: those of its most sampled blocks.
pub const INSTRUCTIONS_MAX: usize = 600;

/// One row of the listing.
pub enum Row {
    /// The begin of a basic block.
    Block {
        told: String,
        confidence: &'static str,
    },
    /// The source line that the next instructions come from.
    Source {
        place: String,
        text: String,
    },
    /// The reason why the next instruction took long.
    Bubble {
        class: &'static str,
        width: f64,
        duration: String,
        causes: String,
        culprits: Vec<Culprit>,
    },
    Instruction(Box<InstructionRow>),
    /// Instructions that are left out.
    Fold {
        told: String,
    },
}

/// An instruction to blame.
pub struct Culprit {
    pub address: String,
    /// Whether the page has a row for the instruction, so that a link is possible.
    pub is_here: bool,
}

pub struct InstructionRow {
    pub address: String,
    pub mnemonic: String,
    pub operands: String,
    pub samples: String,
    /// Share of the procedure's samples, 0 to 100.
    pub percent: f64,
    pub heat: &'static str,
    pub cpi: String,
    pub executed: String,
}

/// Returns the stall that may have cost most.
pub fn worst<'a>(scale: &ListingScale, i: &'a ListingInstruction) -> Option<&'a ListingStall> {
    let longest = i.stalls.iter().max_by(|a, b| a.share_max.total_cmp(&b.share_max));
    longest.filter(|s| stalled(scale, &[s], "").is_some())
}

/// Returns the rows of the most sampled blocks of a listing, by ascending address.
pub fn rows(listing: &Listing) -> Vec<Row> {
    let blocks = blocks(listing);
    let shown = hottest(&blocks);
    let here: BTreeSet<u64> = shown.iter().flat_map(|b| blocks[*b].1.iter().map(|i| i.address)).collect();
    let mut rows = Rows { listing, here, rows: Vec::new(), line: None, executed: String::new() };
    let mut folded = 0;
    for (b, (block, instructions)) in blocks.iter().enumerate() {
        if !shown.contains(&b) {
            folded += instructions.len();
            continue;
        }
        rows.fold(std::mem::take(&mut folded));
        rows.block(block, instructions);
        instructions.iter().for_each(|i| rows.instruction(i));
    }
    rows.fold(folded);
    rows.rows
}

type Block<'a> = (&'a ListingBlock, &'a [ListingInstruction]);

fn blocks(listing: &Listing) -> Vec<Block<'_>> {
    let ends = listing.blocks.iter().skip(1).map(|b| b.address).chain([u64::MAX]);
    let block = |(block, end): (&'_ ListingBlock, u64)| {
        let from = listing.instructions.partition_point(|i| i.address < block.address);
        let to = listing.instructions.partition_point(|i| i.address < end);
        from..to
    };
    let ranges: Vec<_> = listing.blocks.iter().zip(ends).map(block).collect();
    listing.blocks.iter().zip(ranges).map(|(b, range)| (b, &listing.instructions[range])).collect()
}

/// Returns the indices of the most sampled blocks, as many as the page shows.
fn hottest(blocks: &[Block<'_>]) -> BTreeSet<usize> {
    let samples = |b: usize| blocks[b].1.iter().map(|i| i.head_samples).sum::<f64>();
    let mut order: Vec<usize> = (0..blocks.len()).filter(|b| samples(*b) >= 0.5).collect();
    order.sort_by(|a, b| samples(*b).total_cmp(&samples(*a)));
    let mut room = INSTRUCTIONS_MAX;
    let mut shown = BTreeSet::new();
    for b in order {
        let Some(rest) = room.checked_sub(blocks[b].1.len()) else { break };
        room = rest;
        shown.insert(b);
    }
    shown
}

struct Rows<'a> {
    listing: &'a Listing,
    /// Addresses that have a row.
    here: BTreeSet<u64>,
    rows: Vec<Row>,
    /// File and line of the source line that was shown last.
    line: Option<(&'a str, u32)>,
    /// Executions of the block, for a column.
    executed: String,
}

impl<'a> Rows<'a> {
    fn fold(&mut self, instructions: usize) {
        if instructions > 0 {
            self.line = None;
            let s = if instructions == 1 { "" } else { "s" };
            self.rows.push(Row::Fold {
                told: format!("{} instruction{s} left out", grouped(instructions as u64)),
            });
        }
    }

    fn block(&mut self, block: &ListingBlock, instructions: &[ListingInstruction]) {
        let n = instructions.len() as f64;
        let actual = match block.cpi {
            Some(cpi) => {
                let interval = cycles_interval(block.cpi, Some(block.cpi_min), block.cpi_max);
                let interval = interval.map_or(String::new(), |interval| format!(" ({interval})"));
                format!("took {:.1} cycles, CPI {cpi:.2}{interval}", cpi * n)
            }
            None if block.frequency.is_none() => "no estimate".to_owned(),
            None => format!("took CPI ≥ {:.2}", block.cpi_min),
        };
        let told = format!(
            "{} · best case {:.1} cycles, CPI {:.2} · {actual}",
            executed(self.listing, block, instructions),
            block.best_case_cpi * n,
            block.best_case_cpi,
        );
        self.executed = executed_short(self.listing, block, instructions);
        self.rows.push(Row::Block { told, confidence: block.confidence.name() });
    }

    fn instruction(&mut self, i: &'a ListingInstruction) {
        self.source(i);
        self.bubbles(i);
        let (mnemonic, operands) = i.text.split_once(' ').unwrap_or((&i.text, ""));
        let all = self.listing.procedure.samples.get(&self.listing.time_event).copied().unwrap_or(0).max(1);
        let share = i.head_samples / all as f64;
        let samples = i.head_samples.round() as u64;
        self.rows.push(Row::Instruction(Box::new(InstructionRow {
            address: format!("{:x}", i.address),
            mnemonic: mnemonic.to_owned(),
            operands: operands.trim().to_owned(),
            samples: if samples == 0 { String::new() } else { grouped(samples) },
            percent: 100.0 * share.min(1.0),
            heat: heat(share),
            cpi: match samples == 0 {
                true => "·".to_owned(),
                false => cycles_of(i),
            },
            executed: self.executed.clone(),
        })));
    }

    fn source(&mut self, i: &'a ListingInstruction) {
        let Some(line) = i.file.as_deref().zip(i.line) else { return };
        if self.line == Some(line) {
            return;
        }
        self.line = Some(line);
        let (file, number) = line;
        let text = self.listing.source_lines.get(file).and_then(|f| f.get(&number));
        if text.is_none() && !self.listing.source_lines.is_empty() {
            return; // Inlined from a library whose sources are missing here; such a line would only be noise.
        }
        let name = Path::new(file).file_name().map_or(file.into(), |n| n.to_string_lossy());
        let text = text.map_or(String::new(), |t| t.trim().to_owned());
        self.rows.push(Row::Source { place: format!("{name}:{number}"), text });
    }

    fn bubbles(&mut self, i: &ListingInstruction) {
        for kind in [StallKind::Static, StallKind::Dynamic] {
            let stalls: Vec<&ListingStall> = i.stalls.iter().filter(|s| s.kind == kind).collect();
            let Some((cycles, duration)) = stalled(&self.listing.scale, &stalls, "cycles") else { continue };
            self.bubble(i.address, &stalls, cycles, duration);
        }
        if let Some((kernel, duration)) = i.kernel.as_ref().and_then(|k| Some((k, in_kernel(k, "cycles")?))) {
            self.rows.push(Row::Bubble {
                class: class(&kernel.cause),
                width: width(kernel.cycles.unwrap_or(0.0)),
                duration,
                causes: kernel.label.to_owned(),
                culprits: Vec::new(),
            });
        }
    }

    fn bubble(&mut self, address: u64, stalls: &[&ListingStall], cycles: f64, duration: String) {
        let Some(longest) = stalls.iter().max_by(|a, b| a.share_max.total_cmp(&b.share_max)) else { return };
        let mut causes: Vec<&str> = stalls.iter().map(|s| s.label).collect();
        causes.dedup();
        let mut blamed: Vec<u64> = stalls.iter().filter_map(|s| s.culprit_address).collect();
        blamed.retain(|a| *a != address);
        blamed.sort_unstable();
        blamed.dedup();
        let culprit = |a: u64| Culprit { address: format!("{a:x}"), is_here: self.here.contains(&a) };
        self.rows.push(Row::Bubble {
            class: if longest.kind == StallKind::Static { "fixed" } else { class(&longest.cause) },
            width: width(cycles),
            duration,
            causes: format!("{} {}", causes.join(" or "), origin(stalls)).trim_end().to_owned(),
            culprits: blamed.into_iter().map(culprit).collect(),
        });
    }
}

/// Returns the width of a bubble in the CSS unit `ch`. It grows with the logarithm, so that one cycle and a miss to memory
/// are both readable.
fn width(cycles: f64) -> f64 {
    (1.0 + 2.2 * (1.0 + cycles).log2()).clamp(1.0, 24.0)
}

fn heat(share: f64) -> &'static str {
    match share {
        s if s >= 0.1 => "hot",
        s if s >= 0.01 => "warm",
        _ => "cold",
    }
}
