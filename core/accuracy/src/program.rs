//! A capture joined with its image: the evidence that estimators may use, apart from the truth that judges them.
//!
//! Enters: a capture. Leaves: every sampled procedure's instructions and samples ([`Evidence`]), and the same procedure's
//! executions, edges and stalls ([`Truth`]). Cost: decoding the sampled procedures, and a look-up for each row.

use std::collections::BTreeMap;

use anyhow::Context;
use dwell_analysis::{
    Counted, Level, MachineModel, Transfer,
    breakpoint_counts::{Compared, compare},
    cfg::Cfg,
    directions, recover_jump_targets,
};
use dwell_collect::branch::{CODE_BYTES, a64};
use dwell_image::{Arch, Flow, Image, ImageAddress, ImageOffset, Instruction, ProcedureOffsets};
use dwell_profile::Event;
use rustc_hash::FxHashMap;

use crate::{
    capture::{Address, Capture, Expectation, McaBlock, TrueStall},
    truth::TrueCause,
};

/// A program to be judged.
#[derive(Clone, Debug)]
pub struct Program {
    /// The measurements.
    pub evidence: Evidence,
    /// The truth of each procedure of `evidence`.
    pub truth: Vec<Truth>,
    /// Whether estimates can be compared with the truth without a scale.
    pub is_absolute: bool,
    /// Number of samples that are on no instruction of a procedure. They are not judged.
    pub stray_samples: u64,
    /// Executions of edges inside procedures without samples, for which no estimate can be right.
    pub unsampled_edge_executions: u64,
}

/// What an estimator may use.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The instruction set.
    pub arch: Arch,
    /// The model of the machine that was sampled.
    pub model: MachineModel,
    /// Cycles between two time samples; `None` if the clock is unknown.
    pub period_cycles: Option<f64>,
    /// Procedures with samples, by address.
    pub procedures: Vec<Procedure>,
    /// Whether breakpoints counted executions, even if none of these procedures.
    pub has_breakpoint_counts: bool,
    /// The figures of llvm-mca, by the address of a block's first instruction.
    pub mca: Option<BTreeMap<Address, McaBlock>>,
}

/// One procedure's instructions and samples. Vectors are indexed by instruction.
#[derive(Clone, Debug)]
pub struct Procedure {
    /// Its linkage name.
    pub name: String,
    /// Its instructions by ascending address.
    pub instructions: Vec<Instruction>,
    /// Recovered targets of its indirect jumps.
    pub jump_targets: BTreeMap<usize, Vec<ImageAddress>>,
    /// Its control-flow graph.
    pub cfg: Cfg,
    /// Time samples as they landed.
    pub samples: Vec<u64>,
    /// Observed directions: taken, not taken.
    pub directions: Vec<(u64, u64)>,
    /// Samples of other events with their periods.
    pub events: BTreeMap<Event, (Vec<u64>, u64)>,
    /// Transfers in path bursts.
    pub transfers: Vec<Transfer>,
    /// Executions that breakpoints counted.
    pub counted: Vec<Counted>,
}

/// The truth of one procedure.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Executions by instruction; `None` where they were not counted.
    pub executions: Vec<Option<u64>>,
    /// Transfers by branches and jumps between its instructions.
    pub edges: Vec<TrueEdge>,
    /// Cycles at the head of the queue; `None` if no simulator provided them.
    pub stalls: Option<Vec<Stall>>,
    /// What a kernel's comments say of its instructions.
    pub expected: Vec<(usize, Expectation)>,
}

/// A transfer between two instructions of a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrueEdge {
    /// Index of the branch.
    pub from: usize,
    /// Index of the instruction that it went to.
    pub to: usize,
    /// Number of transfers.
    pub executions: u64,
}

/// Cycles that an instruction truly waited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stall {
    /// Index of the instruction.
    pub instruction: usize,
    /// The cause of the stall, as the simulator knows it.
    pub cause: TrueCause,
    /// The culprit's address.
    pub culprit: Option<Address>,
    /// Number of cycles over the run.
    pub cycles: f64,
    /// For a data miss, the level that the data came from.
    pub level: Option<Level>,
}

impl Program {
    /// Opens the capture's image and joins all tables with it.
    pub fn load(capture: &Capture) -> anyhow::Result<Program> {
        let path = capture.program();
        let image = Image::open(&path).with_context(|| path.display().to_string())?;
        let model = MachineModel::named(&capture.meta.machine).with_context(|| {
            format!("{}: no machine model \"{}\"", capture.folder.display(), capture.meta.machine)
        })?;
        let mut join = Join::new(&image, capture);
        let stray_samples = join.samples();
        join.other_evidence();
        let unsampled_edge_executions = join.truth();
        Ok(Program {
            evidence: Evidence {
                arch: image.arch(),
                model: model.clone(),
                period_cycles: capture.period_cycles(),
                procedures: join.procedures,
                has_breakpoint_counts: !capture.windows.is_empty(),
                mca: capture.mca.clone(),
            },
            truth: join.truth,
            is_absolute: capture.is_absolute(),
            stray_samples,
            unsampled_edge_executions,
        })
    }

    /// Returns the number of time samples of all procedures.
    pub fn samples(&self) -> u64 {
        self.evidence.procedures.iter().flat_map(|p| &p.samples).sum()
    }
}

impl Procedure {
    /// Creates a procedure without samples.
    pub fn new(
        name: String,
        instructions: Vec<Instruction>,
        jump_targets: BTreeMap<usize, Vec<ImageAddress>>,
    ) -> Procedure {
        let n = instructions.len();
        let cfg = Cfg::build(&instructions, &jump_targets);
        Procedure {
            name,
            instructions,
            jump_targets,
            cfg,
            samples: vec![0; n],
            directions: vec![(0, 0); n],
            events: BTreeMap::new(),
            transfers: Vec::new(),
            counted: Vec::new(),
        }
    }

    /// Returns the instruction that contains `address`.
    fn index_of(&self, address: Address) -> Option<usize> {
        let after = self.instructions.partition_point(|i| i.address.0 <= address);
        let i = after.checked_sub(1)?;
        (address < self.instructions[i].end().0).then_some(i)
    }
}

struct Join<'a> {
    image: &'a Image,
    capture: &'a Capture,
    procedures: Vec<Procedure>,
    truth: Vec<Truth>,
    /// Returns the procedures by their first address.
    starts: FxHashMap<Address, usize>,
}

impl<'a> Join<'a> {
    fn new(image: &'a Image, capture: &'a Capture) -> Join<'a> {
        let mut join =
            Join { image, capture, procedures: vec![], truth: vec![], starts: FxHashMap::default() };
        for &address in capture.samples.keys() {
            join.open_procedure_at(address);
        }
        join
    }

    fn open_procedure_at(&mut self, address: Address) {
        let Some(found) = self.image.procedure_at(ImageAddress(address)) else { return };
        if self.starts.contains_key(&found.address.0) {
            return;
        }
        let instructions = self.image.instructions(found.address, found.size_bytes);
        if instructions.is_empty() {
            return;
        }
        let read = |at, buffer: &mut [u8]| self.image.read(at, buffer);
        let targets = recover_jump_targets(self.image.arch(), &instructions, &read);
        self.starts.insert(found.address.0, self.procedures.len());
        self.truth.push(Truth { executions: vec![None; instructions.len()], ..Truth::default() });
        self.procedures.push(Procedure::new(found.name().into_owned(), instructions, targets));
    }

    /// Returns the indices of procedure and instruction at `address`, if the procedure has samples.
    fn place(&self, address: Address) -> Option<(usize, usize)> {
        let start = self.image.procedure_at(ImageAddress(address))?.address.0;
        let &procedure = self.starts.get(&start)?;
        Some((procedure, self.procedures[procedure].index_of(address)?))
    }

    /// Adds the samples, and returns how many are outside of all procedures.
    fn samples(&mut self) -> u64 {
        let mut stray = 0;
        for (&address, &count) in &self.capture.samples {
            match self.place(address) {
                Some((p, i)) => self.procedures[p].samples[i] += count,
                None => stray += count,
            }
        }
        stray
    }

    fn other_evidence(&mut self) {
        for (&address, &seen) in &self.capture.directions {
            if let Some((p, i)) = self.place(address) {
                self.procedures[p].directions[i] = seen;
            }
        }
        self.directions_ahead();
        for (name, event) in &self.capture.events {
            let named = Event::named(name);
            for procedure in &mut self.procedures {
                let zeros = vec![0; procedure.instructions.len()];
                procedure.events.insert(named.clone(), (zeros, event.period));
            }
            for (&address, &count) in &event.counts {
                if let Some((p, i)) = self.place(address)
                    && let Some((counts, _)) = self.procedures[p].events.get_mut(&named)
                {
                    counts[i] += count;
                }
            }
        }
        self.execution_evidence();
    }

    /// Adds the directions of samples whose registers decide the next branch according to the collector's own
    /// interpreter, which depends on the code alone.
    fn directions_ahead(&mut self) {
        let mut ahead: BTreeMap<usize, Vec<(u64, u64)>> = BTreeMap::new();
        for (&address, &seen) in &self.capture.ahead {
            let Some((p, i)) = self.place(address) else { continue };
            if self.decides_branch(address) {
                let n = self.procedures[p].instructions.len();
                ahead.entry(p).or_insert_with(|| vec![(0, 0); n])[i] = seen;
            }
        }
        for (p, ahead) in ahead {
            let procedure = &mut self.procedures[p];
            procedure.directions = directions(&procedure.instructions, &procedure.directions, &ahead);
        }
    }

    fn decides_branch(&self, address: Address) -> bool {
        let mut code = [0; CODE_BYTES];
        let is_read = self.image.read(ImageAddress(address), &mut code);
        is_read && self.image.arch() == Arch::Aarch64 && a64::NextBranch::decode(&code).is_some()
    }

    /// Adds the transfers of bursts and the compared breakpoint counts, as `core/query/src/load` does.
    fn execution_evidence(&mut self) {
        let offset = |address: Address| self.image.offset_of(ImageAddress(address));
        let mut sums: BTreeMap<(ImageOffset, Option<ImageOffset>), f64> = BTreeMap::new();
        for &(from, to, count) in self.capture.bursts.iter().flat_map(|b| &b.transfers) {
            if let Some(from) = offset(from) {
                *sums.entry((from, offset(to))).or_default() += count as f64;
            }
        }
        let compared = compare(self.capture.windows.iter().map(|window| window.iter().copied())).into_iter();
        let compared: BTreeMap<_, Compared> = compared.filter_map(|(a, c)| Some((offset(a)?, c))).collect();
        for procedure in &mut self.procedures {
            let offsets = ProcedureOffsets::new(self.image, &procedure.instructions);
            let (start, end) = offsets.range().into_inner();
            let own = sums.range((start, None)..=(end, Some(ImageOffset(u64::MAX))));
            let transfers = own.filter_map(|(&(from, to), &count)| {
                let from = offsets.index_of(from)?;
                Some(Transfer { from, to: to.and_then(|to| offsets.index_of(to)), count })
            });
            let own = compared.range(start..=end);
            let counted = own.filter_map(|(o, compared)| Some(compared.counted(offsets.index_of(*o)?)));
            (procedure.transfers, procedure.counted) = (transfers.collect(), counted.collect());
        }
    }

    /// Fills in the truth. Returns the executions of edges in procedures without samples.
    fn truth(&mut self) -> u64 {
        let runs = self.capture.meta.runs.unwrap_or(1);
        for (&address, &count) in &self.capture.executions {
            if let Some((p, i)) = self.place(address)
                && self.procedures[p].instructions[i].address.0 == address
            {
                self.truth[p].executions[i] = Some(count.saturating_mul(runs));
            }
        }
        if let Some(stalls) = &self.capture.stalls {
            self.truth.iter_mut().for_each(|t| t.stalls = Some(Vec::new()));
            for stall in stalls {
                if let Some((p, instruction)) = self.place(stall.address) {
                    let of = self.truth[p].stalls.get_or_insert_default();
                    let TrueStall { cause, culprit, cycles, level, .. } = *stall;
                    of.push(Stall { instruction, cause, culprit, cycles, level });
                }
            }
        }
        for &expectation in &self.capture.expected {
            if let Some((p, i)) = self.place(expectation.address) {
                self.truth[p].expected.push((i, expectation));
            }
        }
        self.edges()
    }

    fn edges(&mut self) -> u64 {
        let mut unsampled = 0;
        let runs = self.capture.meta.runs.unwrap_or(1);
        for (&(from, to), &executions) in &self.capture.edges {
            let executions = executions.saturating_mul(runs);
            let procedure = |a| self.image.procedure_at(ImageAddress(a)).map(|p| p.address.0);
            let (source, target) = (procedure(from), procedure(to));
            if source != target || source.is_none() {
                continue; // These are calls, returns, tail calls and jumps to cold parts.
            }
            match (self.place(from), self.place(to)) {
                (Some((p, from)), Some((_, to))) => {
                    if !matches!(self.procedures[p].instructions[from].flow, Flow::Call { .. }) {
                        self.truth[p].edges.push(TrueEdge { from, to, executions });
                    }
                }
                _ if Some(to) == target => {} // This is probably a recursive call; decoding would be needed to be sure.
                _ => unsampled += executions,
            }
        }
        self.truth.iter_mut().for_each(|t| t.edges.sort_unstable_by_key(|e| (e.from, e.to)));
        unsampled
    }
}
