//! Answers as text, to compare with what is expected.

use std::{collections::BTreeMap, fmt::Write};

use dwell_analysis::{
    AbsoluteCount, Counted, MachineModel, OuterScale, ProcedureAnalysis, ProcedureInput, StallKind, Transfer,
    analyze,
    cfg::{Cfg, Node},
    equivalence::Equivalence,
};
use dwell_image::{Arch, ImageAddress, Instruction};
use dwell_profile::Event;

/// A procedure and what was sampled, with defaults for what a test leaves out.
pub struct Case<'a> {
    pub machine: &'a str,
    pub arch: Arch,
    pub instructions: Vec<Instruction>,
    pub jump_targets: BTreeMap<usize, Vec<ImageAddress>>,
    pub samples: Vec<u64>,
    pub directions: Vec<(u64, u64)>,
    pub transfers: Vec<Transfer>,
    pub counted: Vec<Counted>,
    pub absolute: Vec<AbsoluteCount>,
    pub events: BTreeMap<Event, (Vec<u64>, u64)>,
    pub period_cycles: Option<f64>,
}

impl Case<'_> {
    pub fn new(machine: &str, arch: Arch, instructions: Vec<Instruction>) -> Case<'_> {
        let n = instructions.len();
        Case {
            machine,
            arch,
            instructions,
            jump_targets: BTreeMap::new(),
            samples: vec![0; n],
            directions: vec![(0, 0); n],
            transfers: Vec::new(),
            counted: Vec::new(),
            absolute: Vec::new(),
            events: BTreeMap::new(),
            period_cycles: None,
        }
    }

    pub fn analyze(&self) -> ProcedureAnalysis {
        let input = ProcedureInput {
            arch: self.arch,
            instructions: &self.instructions,
            jump_targets: &self.jump_targets,
            time_samples: &self.samples,
            period_cycles: self.period_cycles,
            event_samples: &self.events,
            branch_directions: &self.directions,
            transfers: &self.transfers,
            counted: &self.counted,
            absolute: &self.absolute,
            outer: OuterScale::default(),
        };
        analyze(&input, MachineModel::named(self.machine).expect("a model"))
    }
}

/// Formats blocks, edges and classes.
pub fn graph(cfg: &Cfg) -> String {
    let classes = Equivalence::new(cfg);
    let name = |n: Node| match n {
        n if n == cfg.entry() => "entry".to_owned(),
        n if n == cfg.exit() => "exit".to_owned(),
        n => n.to_string(),
    };
    let mut text = String::new();
    for (b, range) in cfg.blocks.iter().enumerate() {
        writeln!(text, "{b}: {range:?} class {}", classes.block_class[b]).unwrap();
    }
    for (e, edge) in cfg.edges.iter().enumerate() {
        writeln!(
            text,
            "{} -> {} {:?} class {}",
            name(edge.from),
            name(edge.to),
            edge.kind,
            classes.edge_class[e]
        )
        .unwrap();
    }
    if cfg.missing_edges {
        text.push_str("missing edges\n");
    }
    text
}

/// Each instruction with CPI, M and its stalls.
pub fn listing(case: &Case) -> String {
    let analysis = case.analyze();
    let mut text = String::new();
    for block in &analysis.blocks {
        let cpi = block.cpi.map_or("-".into(), |c| format!("{c:.2}"));
        let frequency = block.frequency.map_or("-".into(), |f| format!("{f:.0}"));
        let confidence = block.confidence;
        writeln!(text, "frequency {frequency} {confidence:?}, cpi {cpi}, best {:.2}", block.best_case_cpi)
            .unwrap();
        for i in block.instructions.clone() {
            let cost = &analysis.instructions[i];
            let cpi = cost.cpi.map_or("-".into(), |c| format!("{c:.1}"));
            for s in &cost.stalls {
                let kind = if s.kind == StallKind::Static { "static" } else { "dynamic" };
                let culprit =
                    s.culprit.map_or(String::new(), |c| format!(" by {}", case.instructions[c].text));
                let (min, max) = (s.cycles_min, s.cycles_max);
                writeln!(text, "      {kind} {:?} {min:.1}..{max:.1}{culprit}", s.cause).unwrap();
            }
            if let Some(kernel) = cost.kernel {
                writeln!(text, "      in the kernel: {:?} {:.1}", kernel.cause, kernel.cycles).unwrap();
            }
            writeln!(text, "  {cpi:>6} {} {}", cost.issue_cycles_min, case.instructions[i].text).unwrap();
        }
    }
    analysis.notes.iter().for_each(|n| writeln!(text, "note: {n}").unwrap());
    text
}
