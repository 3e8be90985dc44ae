//! Exports profiles in the formats of other tools.
//!
//! Enters: samples by instruction ([`Places`]), and call stacks ([`Stacks`]) where they were recorded. Leaves: bytes that
//! another tool reads. Never here: files, epochs, analysis. Without call stacks, a stack consists of an image, a procedure and
//! the functions inlined into it.

mod callgrind;
mod firefox;
mod flame;
mod flame_colors;
mod folded;
mod otlp;
mod perf_script;
mod pprof;
mod speedscope;
mod without_stacks;

pub use flame::flame_graph;
pub use flame_colors::{FlameColor, colored_flame_graph, flame_diff_graph};

use dwell_query::answer::{InstructionPlace, Places, ProcedurePlaces, Stacks};

/// The format of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pprof, for `go tool pprof` and Go's PGO: samples, time and estimated instructions, by address, line and inlined
    /// call.
    Pprof,
    /// Folded stacks, for `flamegraph.pl` and inferno: a line for each stack.
    Folded,
    /// The format of <https://www.speedscope.app>.
    Speedscope,
    /// Callgrind's format, for KCachegrind and `callgrind_annotate`: cycles, and executed instructions if they are
    /// known, by address and line.
    Callgrind,
    /// The format of <https://profiler.firefox.com> and `samply load`: samples by address, line and inlined call.
    Firefox,
    /// The text of `perf script`: a record for each sample of the first event.
    PerfScript,
    /// The profiles of OpenTelemetry, as a `ProfilesData` message: samples of each event, and estimated instructions.
    Otlp,
}

pub use otlp::rejection as otlp_rejection;

/// The call stacks of a profile that is exported.
#[derive(Clone, Copy, Debug)]
pub struct Stacked<'a> {
    /// The stacks.
    pub stacks: &'a Stacks,
    /// Whether samples without a stack are exported too, in the formats that can tell them apart: folded stacks, pprof and
    /// OpenTelemetry's profiles.
    pub all_samples: bool,
}

/// Returns the profile in this format, with call stacks where the format has them and they were recorded.
pub fn export(places: &Places, stacked: Option<Stacked<'_>>, format: Format) -> Vec<u8> {
    if let Some(Stacked { stacks, all_samples }) = stacked {
        match format {
            Format::Pprof => return pprof::write_stacks(places, stacks, all_samples),
            Format::Folded => return folded::write_stacks(places, stacks, all_samples).into_bytes(),
            Format::Speedscope => return speedscope::write_stacks(places, stacks).into_bytes(),
            Format::Firefox => return firefox::write_stacks(places, stacks).into_bytes(),
            Format::PerfScript => return perf_script::write_stacks(stacks).into_bytes(),
            Format::Otlp => return otlp::write_stacks(places, stacks, all_samples),
            Format::Callgrind => {} // It has costs of calls, which must be counted, not sampled.
        }
    }
    match format {
        Format::Pprof => pprof::write(places),
        Format::Folded => folded::write(places).into_bytes(),
        Format::Speedscope => speedscope::write(places).into_bytes(),
        Format::Callgrind => callgrind::write(places).into_bytes(),
        Format::Firefox => firefox::write(places).into_bytes(),
        Format::PerfScript => perf_script::write(places).into_bytes(),
        Format::Otlp => otlp::write(places),
    }
}

/// Returns the functions that an instruction belongs to, outermost first: the procedure and those inlined into it.
fn functions<'a>(procedure: &'a ProcedurePlaces, i: &'a InstructionPlace) -> Vec<&'a str> {
    let inlined = i.frames.iter().rev().skip(1);
    let names = inlined.map(|f| f.function.as_deref().unwrap_or("[inlined]"));
    std::iter::once(procedure.demangled.as_str()).chain(names).collect()
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod stacks_tests;
#[cfg(test)]
mod tests;
