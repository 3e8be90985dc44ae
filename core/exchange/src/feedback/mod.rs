//! Profiles for optimizers: how often code was executed, in the format of each optimizer.
//!
//! Enters: executions by instruction, edge and call ([`Feedback`]). Leaves: the bytes that a compiler or a linker
//! reads. Never here: files, epochs, analysis. A sample of time measures what code costs, while an optimizer needs to
//! know how often it runs, and treats samples as executions if it has nothing better. The profiles here contain
//! executions.

mod bolt;
mod gcov;
mod go;
mod llvm;
mod tree;

use dwell_query::answer::{Feedback, FeedbackInstruction, FeedbackProcedure};

/// The optimizer that reads a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimizer {
    /// `clang -fprofile-sample-use=` and other compilers that are based on LLVM: text.
    Clang,
    /// `gcc -fauto-profile=`: gcov, in the given version of the format.
    Gcc {
        /// Version that the GCC reads: `AUTO_PROFILE_VERSION` in its gcc/auto-profile.cc.
        version: u32,
    },
    /// `go build -pgo=`: calls, as a CPU profile.
    Go,
    /// `llvm-bolt -data=`: transfers between blocks and calls.
    Bolt,
    /// `llvm-bolt -data=`, with counts of blocks instead of transfers, as BOLT reads profiles of machines without LBR.
    BoltBlocks,
}

/// The kind of counts that a profile contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Estimated executions.
    Executions,
    /// Samples at the instructions that they name, as other tools write them without LBR. They serve only for
    /// comparison.
    Samples,
}

/// Returns the profile in the format that `optimizer` reads.
pub fn feedback(feedback: &Feedback, optimizer: Optimizer, counts: Counts) -> Vec<u8> {
    let by_samples;
    let feedback = match counts {
        Counts::Executions => feedback,
        Counts::Samples => {
            by_samples = with_samples(feedback);
            &by_samples
        }
    };
    match (optimizer, counts) {
        (Optimizer::Clang, _) => llvm::write(feedback).into_bytes(),
        (Optimizer::Gcc { version }, _) => gcov::write(feedback, version),
        (Optimizer::Go, _) => go::write(feedback),
        (Optimizer::Bolt, Counts::Executions) => bolt::transfers(feedback).into_bytes(),
        (Optimizer::BoltBlocks, Counts::Executions) => bolt::blocks(feedback).into_bytes(),
        (Optimizer::Bolt | Optimizer::BoltBlocks, Counts::Samples) => bolt::samples(feedback).into_bytes(),
    }
}

/// Returns the feedback with samples in place of executions. Samples give no edges and calls. As in AutoFDO, the
/// entries of a procedure are the samples of its first line.
fn with_samples(feedback: &Feedback) -> Feedback {
    let instruction = |i: &FeedbackInstruction| FeedbackInstruction {
        executions: Some(i.samples as f64),
        calls: Vec::new(),
        ..i.clone()
    };
    let procedure = |p: &FeedbackProcedure| FeedbackProcedure {
        entries: first_line_samples(p) as f64,
        instructions: p.instructions.iter().map(instruction).collect(),
        edges: Vec::new(),
        ..p.clone()
    };
    Feedback { procedures: feedback.procedures.iter().map(procedure).collect(), ..feedback.clone() }
}

fn first_line_samples(p: &FeedbackProcedure) -> u64 {
    let own = p.instructions.iter().filter_map(|i| Some((i.frames.last()?, i.samples)));
    let lines = own.filter(|(frame, _)| frame.line >= frame.start_line.max(1)).map(|(f, n)| (f.line, n));
    let first = lines.clone().map(|(line, _)| line).min();
    lines.filter(|(line, _)| Some(*line) == first).map(|(_, samples)| samples).max().unwrap_or(0)
}

/// Rounds to a whole number, as all formats require.
fn whole(executions: f64) -> u64 {
    executions.round().clamp(0.0, 1e18) as u64
}

#[cfg(test)]
mod tests;
