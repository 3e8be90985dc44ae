//! The analysis of one procedure, from samples to culprits. Only this file knows the order of the steps.

use dwell_profile::Event;

use crate::{
    Basis, Block, Confidence, Edge, InstructionCost, Interval, ProcedureAnalysis, ProcedureInput, Scale,
    ScaleKind, Stall, StallKind,
    bounds::Bounds,
    certainty::Certainty,
    cfg::Cfg,
    culprits::{self, ProcedureContext, ProcedureFacts, StalledInstruction},
    entries::per_entry,
    equivalence::Equivalence,
    frequency::{self, Estimates, Evidence, Retired},
    machine::{MachineModel, Order},
    schedule::{Schedule, StaticStall},
};

/// Returns the shortest dynamic stall that is explained, in cycles and in standard errors of its samples. In order a
/// small stall is real; out of order the best case of a block is only a bound, whose distribution over instructions is a
/// guess.
fn stall_min(order: Order) -> (f64, f64) {
    match order {
        Order::InOrder => (0.05, 1.0),
        Order::OutOfOrder => (0.25, 3.0),
    }
}

/// Computes frequency, CPI, stalls and culprits of one procedure (DCPI §6). Every procedure has a result; where little is
/// known, its notes say so. Slices of counts that are shorter than the instructions count as zero beyond their end.
///
/// Out of order the CPI of an instruction is the time during which it was the oldest to retire, with the skid of samples
/// undone (see [`InstructionCost::head_samples`]): a load that misses has its own cycles, not those of the instruction
/// after it.
pub fn analyze(input: &ProcedureInput, model: &MachineModel) -> ProcedureAnalysis {
    analyze_keeping(input, model, &mut None)
}

/// Analyses a procedure again with another outer scale. Its frequencies, which are most of the work, are taken from
/// `kept` if they are there, and stored there otherwise.
pub fn analyze_keeping(
    input: &ProcedureInput,
    model: &MachineModel,
    kept: &mut Option<Estimates>,
) -> ProcedureAnalysis {
    let (analysis, possible) = analyze_checking(input, model, kept, cfg!(debug_assertions));
    debug_assert_eq!(possible, Ok(()));
    analysis
}

/// Analyses a procedure and checks that the result is possible. Use it where a wrong result is worse than none.
///
/// # Errors
///
/// The error names what the processor cannot have done in the time that was sampled.
pub fn analyze_verified(input: &ProcedureInput, model: &MachineModel) -> Result<ProcedureAnalysis, String> {
    let (analysis, possible) = analyze_checking(input, model, &mut None, true);
    possible.map(|()| analysis)
}

fn analyze_checking(
    input: &ProcedureInput,
    model: &MachineModel,
    kept: &mut Option<Estimates>,
    is_checked: bool,
) -> (ProcedureAnalysis, Result<(), String>) {
    let n = input.instructions.len();
    if n == 0 {
        let analysis = ProcedureAnalysis {
            blocks: Vec::new(),
            edges: Vec::new(),
            instructions: Vec::new(),
            missing_edges: false,
            notes: vec!["no estimate: the function has no instructions".into()],
            basis: Basis::default(),
            scale: Scale::default(),
        };
        return (analysis, Ok(()));
    }
    let samples = padded(input.time_samples, n);
    let directions = padded(input.branch_directions, n);
    let cfg = Cfg::build(input.instructions, input.jump_targets);
    let equivalence = Equivalence::new(&cfg);
    let schedule = Schedule::new(model, input.arch, input.instructions, &cfg);
    let is_anchored = input.outer.kind == ScaleKind::Absolute;
    let estimate = || {
        frequency::estimate(&Evidence {
            model,
            cfg: &cfg,
            equivalence: &equivalence,
            schedule: &schedule,
            samples: &samples,
            directions: &directions,
            transfers: input.transfers,
            counted: input.counted,
            retired: retired(input),
            absolute: input.absolute,
            is_anchored,
        })
    };
    // Deviations are not computed while the scale is unknown.
    let kept = match kept {
        Some(kept) if !is_anchored || !kept.deviations.is_empty() => kept,
        _ => kept.insert(estimate()),
    };
    let mut estimates = kept.clone();
    let repeated = |block: usize| repeated_part(&cfg, &estimates, block);
    let bounds = Bounds::new(model, &schedule, &cfg, repeated);
    let certainty = Certainty::new(&mut estimates, bounds, &cfg, &input.outer);
    let facts = ProcedureFacts::new(model, input.instructions, &cfg, &schedule, &estimates);
    let context = ProcedureContext {
        model,
        arch: input.arch,
        instructions: input.instructions,
        cfg: &cfg,
        schedule: &schedule,
        estimates: &estimates,
        directions: &directions,
        events: input.event_samples,
        period_cycles: input.period_cycles,
        facts: &facts,
    };
    let analysis = assemble(&context, &equivalence, &certainty);
    let check = || verify_analysis(&analysis, n).and_then(|()| certainty.verify(&analysis));
    let possible = if is_checked { check() } else { Ok(()) };
    (analysis, possible)
}

/// Returns the samples of retired instructions, if their period can be compared with that of the time samples.
fn retired<'a>(input: &ProcedureInput<'a>) -> Option<Retired<'a>> {
    let (samples, period) = input.event_samples.get(&Event::INSTRUCTIONS)?;
    let frequency = *period as f64 / input.period_cycles.filter(|p| *p > 0.0)?;
    // With a period of 0 every sample would stand for nothing.
    let is_sound = frequency > 1e-150 && frequency < 1e150 && samples.iter().any(|&s| s > 0);
    is_sound.then_some(Retired { samples, frequency })
}

fn padded<T: Copy + Default>(counts: &[T], n: usize) -> Vec<T> {
    let mut counts = counts[..counts.len().min(n)].to_vec();
    counts.resize(n, T::default());
    counts
}

fn assemble(
    context: &ProcedureContext,
    equivalence: &Equivalence,
    certainty: &Certainty,
) -> ProcedureAnalysis {
    let ProcedureContext { cfg, schedule, estimates, .. } = *context;
    let mut instructions = Vec::with_capacity(context.instructions.len());
    let mut blocks = Vec::with_capacity(cfg.blocks.len());
    let per_entry = per_entry(cfg, estimates, &context.facts.loops);
    for (index, range) in cfg.blocks.iter().enumerate() {
        let len = range.len() as f64;
        let head_samples: f64 = range.clone().map(|i| estimates.head_samples[i]).sum();
        let frequency = estimates.blocks[index].map(|e| e.frequency);
        let frequency_interval = certainty.frequency_interval(index, frequency, head_samples);
        let of_block = (index, frequency_interval);
        instructions.extend(range.clone().map(|i| instruction_cost(context, certainty, of_block, i)));
        let least = certainty.bounds.blocks[index].max(certainty.bounds.slot * len);
        let cycles =
            frequency.filter(|&f| determine_cycles(head_samples, f)).map(|f| finite(head_samples / f));
        let interval = certainty.cycles_interval(index, frequency, head_samples, least);
        blocks.push(Block {
            instructions: range.clone(),
            frequency,
            frequency_interval,
            confidence: certainty.confidence(index, estimates.blocks[index]),
            cpi: cycles.map(|cycles| cycles.max(least) / len),
            cpi_interval: Interval { min: interval.min / len, max: interval.max / len },
            best_case_cpi: schedule.best_case_cycles[index] / len,
            per_entry: per_entry[index],
            class: equivalence.block_class[index],
        });
    }
    ProcedureAnalysis {
        blocks,
        edges: inner_edges(cfg, estimates),
        instructions,
        missing_edges: cfg.missing_edges,
        notes: estimates.notes.clone(),
        basis: estimates.basis,
        scale: certainty.scale.clone(),
    }
}

/// Returns the part of a block's executions that directly follow another execution of it.
fn repeated_part(cfg: &Cfg, estimates: &Estimates, block: usize) -> f64 {
    let frequency = estimates.blocks[block].map_or(0.0, |e| e.frequency);
    let own = cfg.successors[block].iter().filter(|&&e| cfg.edges[e].to == block);
    let repeated: f64 = own.filter_map(|&e| estimates.edges[e]).map(|e| e.frequency).sum();
    if frequency > 0.0 { repeated / frequency } else { 0.0 }
}

/// Whether samples determine a block's cycles. Up to three samples may be missing by chance (with 95% confidence), so a
/// block without any is known to be fast only where three would be less than a cycle per execution.
fn determine_cycles(head_samples: f64, frequency: f64) -> bool {
    const MISSED_MAX: f64 = 3.0;
    frequency > 0.0 && (head_samples > 0.0 || frequency >= MISSED_MAX)
}

/// Returns the edges between blocks; those of the virtual entry and exit are left out.
fn inner_edges(cfg: &Cfg, estimates: &Estimates) -> Vec<Edge> {
    let is_inner = |e: &crate::cfg::CfgEdge| e.from < cfg.blocks.len() && e.to < cfg.blocks.len();
    let edges = cfg.edges.iter().zip(&estimates.edges).filter(|(e, _)| is_inner(e));
    edges
        .map(|(e, estimate)| Edge {
            from: e.from,
            to: e.to,
            frequency: estimate.map(|e| e.frequency),
            confidence: estimate.map_or(Confidence::Low, |e| e.confidence),
        })
        .collect()
}

fn instruction_cost(
    context: &ProcedureContext,
    certainty: &Certainty,
    (block, frequency_interval): (usize, Option<Interval>),
    i: usize,
) -> InstructionCost {
    let estimate = context.estimates.blocks[block];
    let head_samples = context.estimates.head_samples[i];
    let frequency = estimate.map(|e| e.frequency);
    let cpi = frequency.filter(|&f| f > 0.0).map(|f| finite(head_samples / f));
    let slot = certainty.bounds.slots[i];
    let cpi_interval = certainty.cycles_interval(block, frequency, head_samples, slot);
    let mut stalls = static_stalls(context, i);
    if let (Some(cpi), Some(frequency)) = (cpi, frequency) {
        let excess = cpi - expected_cycles(context, i);
        let error = head_samples.max(1.0).sqrt() / frequency;
        let (cycles_min, errors_min) = stall_min(context.model.order);
        if excess >= cycles_min && excess >= errors_min * error {
            let certain_part = (cpi_interval.min / cpi).min(1.0);
            stalls.extend(culprits::explain(&StalledInstruction::new(context, i, excess, certain_part)));
        }
    }
    InstructionCost {
        frequency,
        frequency_interval,
        confidence: certainty.confidence(block, estimate),
        // With fewer cycles it issued or retired together with its predecessor (DCPI Figure 2, "dual issue").
        cpi: cpi.filter(|&cpi| cpi >= certainty.bounds.slot),
        cpi_interval,
        issue_cycles_min: context.schedule.issue_cycles_min[i],
        best_case_cycles: expected_cycles(context, i),
        gain_cycles: frequency.map_or(0.0, |f| gain_cycles(context, i, f)),
        head_samples,
        stalls,
        kernel: culprits::in_the_kernel(context, i, frequency),
    }
}

/// Returns the cycles by which an instruction was faster than the model's best case, if that is no sampling error:
/// latencies that overlapped an earlier dynamic stall, or a model that is too slow. It is 0 out of order, where the
/// distribution of a block's bound over instructions is a guess.
fn gain_cycles(context: &ProcedureContext, i: usize, frequency: f64) -> f64 {
    const CYCLES_MIN: f64 = 0.25;
    const ERRORS_MIN: f64 = 3.0;
    if context.model.order == Order::OutOfOrder || frequency <= 0.0 {
        return 0.0;
    }
    // The latencies that predecessors leave behind are hidden by any stall on the way.
    let expected = context.schedule.issue_cycles_min[i];
    let gain = expected - context.estimates.head_samples[i] / frequency;
    let error = (expected * frequency).max(1.0).sqrt() / frequency;
    if gain >= CYCLES_MIN && gain >= ERRORS_MIN * error { gain } else { 0.0 }
}

/// Returns the cycles that the model expects of one execution. In order M includes the block's own static stalls; those
/// of predecessors are added.
fn expected_cycles(context: &ProcedureContext, i: usize) -> f64 {
    let left_behind: f64 = left_behind(context, i).iter().map(|s| s.cycles).sum();
    match context.model.order {
        Order::InOrder => context.schedule.issue_cycles_min[i] + left_behind,
        Order::OutOfOrder => context.schedule.expected_cycles(i),
    }
}

fn left_behind<'a>(context: &ProcedureContext<'a>, i: usize) -> &'a [StaticStall] {
    context.facts.left_behind.get(&i).map_or(&[], |stalls| stalls)
}

fn static_stalls(context: &ProcedureContext, i: usize) -> Vec<Stall> {
    let stalls = context.schedule.static_stalls[i].iter().chain(left_behind(context, i));
    stalls
        .map(|s| Stall {
            kind: StallKind::Static,
            cause: s.cause,
            cycles_min: s.cycles,
            cycles_max: s.cycles,
            culprit: s.culprit,
            sources: Vec::new(),
        })
        .collect()
}

/// Limits a CPI, which a frequency near zero could make infinite.
fn finite(x: f64) -> f64 {
    x.min(f64::MAX)
}

/// Checks a result: blocks cover the procedure, edges join blocks, figures are finite and not negative, and the range of
/// each stall ascends.
pub fn verify_analysis(analysis: &ProcedureAnalysis, instructions: usize) -> Result<(), String> {
    let tiled = analysis.blocks.iter().try_fold(0, |at, b| {
        (b.instructions.start == at && !b.instructions.is_empty()).then_some(b.instructions.end)
    });
    if tiled != Some(instructions) || analysis.instructions.len() != instructions {
        return Err("blocks do not cover every instruction once".into());
    }
    let bad = |x: f64| !x.is_finite() || x < 0.0;
    if let Some(e) = analysis.edges.iter().find(|e| e.from.max(e.to) >= analysis.blocks.len()) {
        return Err(format!("an edge joins {} and {}", e.from, e.to));
    }
    for (i, cost) in analysis.instructions.iter().enumerate() {
        if cost.frequency.is_some_and(bad) || cost.cpi.is_some_and(bad) || bad(cost.head_samples) {
            return Err(format!("instruction {i}: {cost:?}"));
        }
        let is_range =
            |s: &Stall| !bad(s.cycles_min) && !bad(s.cycles_max) && s.cycles_min <= s.cycles_max + 1e-9;
        if let Some(stall) = cost.stalls.iter().find(|s| !is_range(s)) {
            return Err(format!("instruction {i}: {stall:?}"));
        }
    }
    Ok(())
}
