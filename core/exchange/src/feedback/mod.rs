//! What optimizers are told: how often code was executed, in the format of each.
//!
//! Enters: executions by instruction, edge and call ([`Feedback`]). Leaves: the bytes that a compiler or a linker reads. Never
//! here: files, epochs, analysis. A sample of time says what code costs; an optimizer wants to know how often it
//! runs, and takes one for the other where it has nothing better. What is written here are executions.

mod bolt;
mod gcov;
mod go;
mod llvm;
mod tree;

use dwell_query::answer::{Feedback, FeedbackInstruction, FeedbackProcedure};

/// Who is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimizer {
    /// `clang -fprofile-sample-use=`, and whatever else stands on LLVM: text.
    Clang,
    /// `gcc -fauto-profile=`: gcov, of that version of the format.
    Gcc {
        /// Which GCC reads which: `AUTO_PROFILE_VERSION` in its gcc/auto-profile.cc.
        version: u32,
    },
    /// `go build -pgo=`: calls, as a CPU profile.
    Go,
    /// `llvm-bolt -data=`: transfers between blocks and calls.
    Bolt,
    /// The same without transfers, as BOLT takes profiles where there is no LBR.
    BoltBlocks,
}

/// What counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Estimated executions.
    Executions,
    /// Samples where they landed: what other tools write without LBR. To compare with, and nothing else.
    Samples,
}

/// The profile in the format that `optimizer` reads.
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

/// The same with samples in place of executions. They say nothing of edges and calls; a procedure is entered as often as
/// its first line was sampled, as AutoFDO has it.
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

/// As a whole number, which all formats want.
fn whole(executions: f64) -> u64 {
    executions.round().clamp(0.0, 1e18) as u64
}

#[cfg(test)]
mod tests;
