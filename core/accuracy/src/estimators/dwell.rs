//! Ours, as shipped: the analysis of every procedure, and what it says of frequencies.

use dwell_analysis::{
    Counted, MachineModel, OuterScale, ProcedureAnalysis, ProcedureInput, Transfer, analyze,
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
    /// Counted windows.
    pub windows: bool,
}

impl Help {
    /// What every sample of time brings with it.
    pub const OWN: Help =
        Help { directions: true, bursts: false, instructions: false, misses: false, windows: false };
    /// Counted windows too.
    pub const WINDOWS: Help = Help { windows: true, ..Help::OWN };
    /// Time alone.
    pub const NONE: Help = Help { directions: false, ..Help::OWN };
    /// Samples of misses too.
    pub const MISSES: Help = Help { misses: true, ..Help::OWN };
    /// Path bursts too.
    pub const BURSTS: Help = Help { bursts: true, ..Help::OWN };
    /// Both.
    pub const BURSTS_AND_WINDOWS: Help = Help { bursts: true, ..Help::WINDOWS };
    /// A counter of instructions too.
    pub const INSTRUCTIONS: Help = Help { instructions: true, ..Help::OWN };
}

/// What is given to the analysis of one procedure.
struct Given<'a> {
    directions: &'a [(u64, u64)],
    transfers: &'a [Transfer],
    counted: Vec<Counted>,
    events: std::collections::BTreeMap<Event, (Vec<u64>, u64)>,
}

/// As `core/query/src/analyse/scales.rs`: procedures with fewer samples have no say in the program's scale …
const SAMPLES_MIN: u64 = 10;
/// … nor have those beyond the hottest so many.
const PROCEDURES_MAX: usize = 300;

/// Analyses every procedure. The one place here that calls the analysis, and as `core/query` does: out of order hot
/// procedures share one scale, by their calls; in order cycles fix each one's.
pub fn analyses(evidence: &Evidence, model: &MachineModel, help: Help) -> Vec<ProcedureAnalysis> {
    let given: Vec<Given> = evidence.procedures.iter().map(|p| give(p, help)).collect();
    let one = |p: usize, outer: OuterScale| {
        let procedure = &evidence.procedures[p];
        analyze(&input(evidence, procedure, &given[p], outer), model)
    };
    let mut analyses: Vec<ProcedureAnalysis> =
        (0..given.len()).map(|p| one(p, OuterScale::default())).collect();
    if model.order == Order::InOrder {
        return analyses;
    }
    let hot = hottest(evidence);
    let members: Vec<Member> = hot
        .iter()
        .map(|&p| Member {
            instructions: &evidence.procedures[p].instructions,
            analysis: &analyses[p],
            transfers: given[p].transfers,
            counted: &given[p].counted,
        })
        .collect();
    let scales = program::scales(&program::shapes(&members));
    for (&p, scale) in hot.iter().zip(scales) {
        analyses[p] = one(p, scale);
    }
    analyses
}

/// Indices of the procedures that share a scale, hottest first.
fn hottest(evidence: &Evidence) -> Vec<usize> {
    let samples = |p: &usize| evidence.procedures[*p].samples.iter().sum::<u64>();
    let mut hot: Vec<usize> = (0..evidence.procedures.len()).filter(|p| samples(p) >= SAMPLES_MIN).collect();
    hot.sort_by_key(|p| std::cmp::Reverse(samples(p)));
    hot.truncate(PROCEDURES_MAX);
    hot
}

fn give(procedure: &Procedure, help: Help) -> Given<'_> {
    let is_given = |event: &Event| match event.name() {
        "instructions" => help.instructions,
        _ => help.misses || *event == Event::KERNEL_TIME,
    };
    let events = procedure.events.iter().filter(|(event, _)| is_given(event));
    Given {
        directions: if help.directions { &procedure.directions } else { &[] },
        transfers: if help.bursts { &procedure.transfers } else { &[] },
        counted: if help.windows { procedure.counted.clone() } else { Vec::new() },
        events: events.map(|(event, counts)| (event.clone(), counts.clone())).collect(),
    }
}

fn input<'a>(
    evidence: &Evidence,
    procedure: &'a Procedure,
    given: &'a Given,
    outer: OuterScale,
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
        counted: &given.counted,
        absolute: &[],
        outer,
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
