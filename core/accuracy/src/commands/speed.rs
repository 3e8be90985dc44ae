//! `speed`: how long the analysis of every procedure with samples takes, beside disassembling the same procedures.
//!
//! Enters: captures. Leaves: seconds on all processors, for each set. Never here: the truth.

use std::{path::PathBuf, time::Instant};

use anyhow::{Context, ensure};
use dwell_image::{Image, ImageAddress};

use super::judge::in_parallel;
use crate::{
    capture::{self, Capture},
    estimators::dwell::{self, EvidenceKinds},
    program::{Evidence, Program},
};

const ROUNDS: usize = 5;

/// These arguments select what `speed` measures.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A capture, or a folder with captures up to two levels below.
    pub captures_root: PathBuf,
    /// Only this set. May be repeated.
    #[arg(long)]
    pub set: Vec<String>,
}

/// A procedure of one of the programs.
struct Task<'a> {
    image: &'a Image,
    evidence: Evidence,
    start: ImageAddress,
    size_bytes: u64,
    instructions: usize,
}

/// Measures and prints the times.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let root = &arguments.captures_root;
    let mut images = Vec::new();
    let mut programs = Vec::new();
    let mut bytes = 0;
    for folder in capture::find(root).with_context(|| root.display().to_string())? {
        let (set, _) = capture::identify(&folder)?;
        if arguments.set.is_empty() || arguments.set.contains(&set) {
            let capture = Capture::read(&folder)?;
            let path = capture.program();
            bytes += std::fs::metadata(&path).with_context(|| path.display().to_string())?.len();
            images.push(Image::open(&path).with_context(|| path.display().to_string())?);
            programs.push(Program::load(&capture)?.evidence);
        }
    }
    let tasks: Vec<Task> = images.iter().zip(&programs).flat_map(|(i, e)| tasks(i, e)).collect();
    ensure!(!tasks.is_empty(), "{}: no procedure with samples", root.display());
    let mut analysis = Vec::new();
    let mut decoding = Vec::new();
    for _ in 0..ROUNDS {
        analysis.push(seconds(|| {
            in_parallel(&tasks, |t| {
                Ok(dwell::analyses(&t.evidence, &t.evidence.model, EvidenceKinds::OWN).len())
            })
        })?);
        decoding.push(seconds(|| {
            in_parallel(&tasks, |t| Ok(t.image.instructions(t.start, t.size_bytes).len()))
        })?);
    }
    print(&tasks, bytes, programs.len(), analysis, decoding);
    Ok(())
}

fn tasks<'a>(image: &'a Image, evidence: &Evidence) -> Vec<Task<'a>> {
    let one = |procedure: &crate::program::Procedure| {
        let (first, last) = (procedure.instructions.first()?, procedure.instructions.last()?);
        Some(Task {
            image,
            start: first.address,
            size_bytes: last.end().0.saturating_sub(first.address.0),
            instructions: procedure.instructions.len(),
            evidence: Evidence { procedures: vec![procedure.clone()], mca: None, ..evidence.clone() },
        })
    };
    let mut tasks: Vec<Task> = evidence.procedures.iter().filter_map(one).collect();
    // The longest procedures are first, so that no processor waits for another at the end.
    tasks.sort_by_key(|t| std::cmp::Reverse(t.instructions));
    tasks
}

fn seconds<T>(f: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<f64> {
    let start = Instant::now();
    f()?;
    Ok(start.elapsed().as_secs_f64())
}

fn print(tasks: &[Task], bytes: u64, programs: usize, analysis: Vec<f64>, decoding: Vec<f64>) {
    let spread = |mut s: Vec<f64>| {
        s.sort_by(f64::total_cmp);
        (s[s.len() / 2], format!("{:.3} s ({:.3}–{:.3})", s[s.len() / 2], s[0], s[s.len() - 1]))
    };
    let instructions: usize = tasks.iter().map(|t| t.instructions).sum();
    println!(
        "{programs} programs, {:.1} MB, {} procedures with samples, {instructions} instructions",
        bytes as f64 / 1e6,
        tasks.len()
    );
    let ((analysis, a), (decoding, d)) = (spread(analysis), spread(decoding));
    println!("analysis     {a}, {:.2} µs an instruction", analysis / instructions as f64 * 1e6);
    println!("disassembly  {d}; analysis takes {:.1} times as long", analysis / decoding);
}
