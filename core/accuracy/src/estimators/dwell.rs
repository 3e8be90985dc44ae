//! Ours, as shipped: the analysis of every procedure, and what it says of frequencies.

use dwell_analysis::{
    MachineModel, ProcedureAnalysis, ProcedureInput, Transfer, analyze,
    machine::Order,
    program::{self, Member},
};
use dwell_profile::Event;
use rustc_hash::FxHashMap;

use super::Estimates;
use crate::program::{Evidence, Procedure};

/// What the analysis is given beside time samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Help {
    /// Directions of branches in the samples' registers.
    pub directions: bool,
    /// Path bursts.
    pub bursts: bool,
    /// Samples of retired instructions.
    pub instructions: bool,
    /// Samples of all other events: misses, which bound what culprits can explain.
    pub misses: bool,
}

impl Help {
    /// What every sample of time brings with it.
    pub const OWN: Help = Help { directions: true, bursts: false, instructions: false, misses: false };
    /// Time alone.
    pub const NONE: Help = Help { directions: false, ..Help::OWN };
    /// Samples of misses too.
    pub const MISSES: Help = Help { misses: true, ..Help::OWN };
    /// Path bursts too.
    pub const BURSTS: Help = Help { bursts: true, ..Help::OWN };
    /// A counter of instructions too.
    pub const INSTRUCTIONS: Help = Help { instructions: true, ..Help::OWN };
}

/// What is given to the analysis of one procedure.
struct Given<'a> {
    directions: &'a [(u64, u64)],
    transfers: &'a [Transfer],
    events: std::collections::BTreeMap<Event, (Vec<u64>, u64)>,
}

/// Analyses every procedure. The one place here that calls the analysis. Out of order procedures share one scale, by
/// their calls; in order cycles fix each one's.
pub fn analyses(evidence: &Evidence, model: &MachineModel, help: Help) -> Vec<ProcedureAnalysis> {
    let given: Vec<Given> = evidence.procedures.iter().map(|p| give(p, help)).collect();
    let analyze_all = |scales: &dyn Fn(usize) -> f64| -> Vec<ProcedureAnalysis> {
        let inputs = evidence.procedures.iter().zip(&given).enumerate();
        inputs.map(|(i, (p, g))| analyze(&input(evidence, p, g, scales(i)), model)).collect()
    };
    let alone = analyze_all(&|_| 1.0);
    if model.order == Order::InOrder {
        return alone;
    }
    let members = evidence.procedures.iter().zip(&given).zip(&alone);
    let members: Vec<Member> = members
        .map(|((p, g), analysis)| Member { instructions: &p.instructions, analysis, transfers: g.transfers })
        .collect();
    let scales = program::scales(&program::shapes(&members));
    analyze_all(&|i| scales[i])
}

fn give(procedure: &Procedure, help: Help) -> Given<'_> {
    let is_given =
        |event: &Event| if event.name() == "instructions" { help.instructions } else { help.misses };
    let events = procedure.events.iter().filter(|(event, _)| is_given(event));
    Given {
        directions: if help.directions { &procedure.directions } else { &[] },
        transfers: if help.bursts { &procedure.transfers } else { &[] },
        events: events.map(|(event, counts)| (event.clone(), counts.clone())).collect(),
    }
}

fn input<'a>(
    evidence: &Evidence,
    procedure: &'a Procedure,
    given: &'a Given,
    frequency_scale: f64,
) -> ProcedureInput<'a> {
    ProcedureInput {
        arch: evidence.arch,
        instructions: &procedure.instructions,
        jump_targets: &procedure.jump_targets,
        time_samples: &procedure.samples,
        period_cycles: evidence.period_cycles,
        event_samples: &given.events,
        branch_directions: given.directions,
        transfers: given.transfers,
        frequency_scale,
    }
}

/// Frequencies as executions.
pub fn estimate(analysis: &ProcedureAnalysis, period_cycles: f64) -> Estimates {
    let executions = |frequency: Option<f64>| frequency.map(|f| f * period_cycles);
    let mut edges = FxHashMap::default();
    for edge in &analysis.edges {
        let places =
            (analysis.blocks[edge.from].instructions.end - 1, analysis.blocks[edge.to].instructions.start);
        if let Some(more) = executions(edge.frequency) {
            *edges.entry(places).or_default() += more;
        }
    }
    Estimates { instructions: analysis.instructions.iter().map(|i| executions(i.frequency)).collect(), edges }
}
