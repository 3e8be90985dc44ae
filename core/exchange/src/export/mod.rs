//! Profiles out, in others' formats.
//!
//! Enters: samples by instruction ([`Places`]). Leaves: bytes that another tool reads. Never here: files, epochs, analysis.
//! Dwell samples instructions, not stacks of calls, so a stack is an image, a procedure and what was inlined into it.

mod callgrind;
mod firefox;
mod folded;
mod otlp;
mod perf_script;
mod pprof;
mod speedscope;

use dwell_query::answer::{InstructionPlace, Places, ProcedurePlaces};

/// Another tool's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `go tool pprof`, Go's PGO: samples, time, estimated instructions; by address, line and inlined call.
    Pprof,
    /// `flamegraph.pl`, inferno: a line for each stack.
    Folded,
    /// <https://www.speedscope.app>.
    Speedscope,
    /// KCachegrind, `callgrind_annotate`: cycles, and instructions executed where that is known; by address and line.
    Callgrind,
    /// <https://profiler.firefox.com>, `samply load`: by address, line and inlined call.
    Firefox,
    /// The text of `perf script`: a record for each sample of the first event.
    PerfScript,
    /// OpenTelemetry's profiles, a `ProfilesData` message: samples of each event, estimated instructions.
    Otlp,
}

/// The profile in that format.
pub fn export(places: &Places, format: Format) -> Vec<u8> {
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

/// The functions that an instruction belongs to, outermost first: the procedure and what was inlined into it.
fn functions<'a>(procedure: &'a ProcedurePlaces, i: &'a InstructionPlace) -> Vec<&'a str> {
    let inlined = i.frames.iter().rev().skip(1);
    let names = inlined.map(|f| f.function.as_deref().unwrap_or("[inlined]"));
    std::iter::once(procedure.demangled.as_str()).chain(names).collect()
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests;
