//! One procedure analysed: its instructions, their samples, their costs, their source lines.

use std::{collections::BTreeMap, sync::Arc};

use dwell_analysis::{
    AbsoluteCount, Block, Confidence, Counted, InstructionCost, Interval, MachineModel, OuterScale,
    ProcedureAnalysis, ProcedureInput, ScaleKind, Transfer, analyze_keeping, directions,
    frequency::Estimates, recover_jump_targets,
};
use dwell_image::{Arch, Flow, Image, ImageAddress, Instruction};
use dwell_profile::{Event, ImagePlace};

use crate::{
    procedures::ProcedureSamples,
    scales::Scaled,
    selection::{CountsByEvent, ImageSamples, Selection, add_counts},
    totals::Totals,
};

/// A procedure with everything that answers are made of.
pub struct ProcedureCosts {
    /// The image; `None` where it is not at hand and the profile alone names its places.
    pub image: Option<Arc<Image>>,
    /// The model of the processor that was sampled.
    pub model: &'static MachineModel,
    /// By ascending address.
    pub instructions: Vec<Instruction>,
    /// Samples of each instruction.
    pub samples: Vec<CountsByEvent>,
    /// Where each instruction was written: file and line of the innermost inlined call.
    pub lines: Vec<Option<(Arc<str>, u32)>>,
    /// What the analysis made of it.
    pub analysis: ProcedureAnalysis,
}

/// The cycles per instruction of what nothing is known of.
const UNKNOWN: Interval = Interval { min: 0.0, max: f64::INFINITY };

/// What is known of a procedure before it is analysed.
pub struct Sampled {
    /// The model of the processor that was sampled.
    pub model: &'static MachineModel,
    /// By ascending address; never empty.
    pub instructions: Vec<Instruction>,
    /// Samples of each instruction.
    pub samples: Vec<CountsByEvent>,
    /// What was seen of it while single-stepping.
    pub transfers: Vec<Transfer>,
    /// What was counted of it in windows.
    pub counted: Vec<Counted>,
    /// What was counted of it while it ran undisturbed.
    pub absolute: Vec<AbsoluteCount>,
}

impl Sampled {
    /// Reads `procedure`, whose image is `image`.
    pub fn new(selection: &Selection, procedure: &ProcedureSamples, image: &Image) -> Option<Self> {
        let start = procedure.address?;
        let instructions = image.instructions(start, procedure.size_bytes);
        if instructions.is_empty() {
            return None;
        }
        let points = &selection.images[procedure.image];
        let samples = spread(image, points, procedure, &instructions, selection.events.len());
        let model = MachineModel::for_cpu(&selection.epochs.last()?.cpu);
        let transfers = selection.stepped.transfers(procedure.image, image, &instructions);
        let counted = selection.windows.counted(procedure.image, image, &instructions);
        let absolute = selection.execution_counts.absolute(
            procedure.image,
            image,
            &instructions,
            selection.period_cycles(),
        );
        Some(Sampled { model, instructions, samples, transfers, counted, absolute })
    }
}

impl ProcedureCosts {
    /// Analyses `procedure`, whose image is `image`; `scaled` is its part of [`scales`](crate::scales).
    pub fn new(
        selection: &Selection,
        procedure: &ProcedureSamples,
        image: Arc<Image>,
        scaled: Option<&Scaled>,
    ) -> Option<Self> {
        let sampled = Sampled::new(selection, procedure, &image)?;
        let lines = image.lines_at(sampled.instructions.iter().map(|i| i.address));
        let (scale, mut kept) =
            scaled.map_or_else(Default::default, |s| (s.outer.clone(), s.frequencies.clone()));
        let mut analysis = analysis(selection, &image, &sampled, scale, &mut kept);
        let Sampled { model, instructions, samples, .. } = sampled;
        if !selection.primary().is_some_and(dwell_profile::Event::is_time) {
            // Without time there is no head of the machine: samples stay where they landed.
            for (cost, counts) in analysis.instructions.iter_mut().zip(&samples) {
                cost.head_samples = counts.first().copied().unwrap_or(0) as f64;
            }
        }
        Some(ProcedureCosts { image: Some(image), model, instructions, samples, lines, analysis })
    }

    /// The places of `procedure` that the profile named, as instructions without text; `None` where it named none. Nothing is
    /// estimated: samples stay where they landed.
    pub fn of_places(selection: &Selection, procedure: &ProcedureSamples) -> Option<Self> {
        let samples = &selection.images[procedure.image];
        let places = &samples.record.places;
        let points = || procedure.points.iter().map(|&p| p as usize);
        if !points().any(|p| places.at(samples.points.offset(p)).is_some()) {
            return None;
        }
        let counts: Vec<CountsByEvent> =
            points().map(|p| CountsByEvent::from_slice(samples.points.counts(p))).collect();
        let line = |p| places.at(samples.points.offset(p)).and_then(ImagePlace::line);
        let address = |p| if places.numbered { 0 } else { samples.points.offset(p).0 };
        let cost = |counts: &CountsByEvent| InstructionCost {
            frequency: None,
            frequency_interval: None,
            confidence: Confidence::Low,
            cpi: None,
            cpi_interval: UNKNOWN,
            issue_cycles_min: 0.0,
            best_case_cycles: 0.0,
            gain_cycles: 0.0,
            head_samples: counts.first().copied().unwrap_or(0) as f64,
            stalls: Vec::new(),
            kernel: None,
        };
        let note = "the code is not on this machine: these are the places that the profile names";
        Some(ProcedureCosts {
            image: None,
            model: MachineModel::for_cpu(&selection.epochs.last()?.cpu),
            instructions: points().map(|p| without_text(ImageAddress(address(p)))).collect(),
            lines: points().map(line).collect(),
            analysis: ProcedureAnalysis {
                // Answers go by blocks; nothing tells where these would end.
                blocks: vec![Block {
                    instructions: 0..counts.len(),
                    frequency: None,
                    frequency_interval: None,
                    confidence: Confidence::Low,
                    cpi: None,
                    cpi_interval: UNKNOWN,
                    best_case_cpi: 0.0,
                    per_entry: None,
                    class: 0,
                }],
                edges: Vec::new(),
                instructions: counts.iter().map(cost).collect(),
                missing_edges: true,
                notes: vec![note.to_owned()],
                basis: Default::default(),
                scale: Default::default(),
            },
            samples: counts,
        })
    }

    /// Totals over the instructions at `indices`.
    pub fn totals(&self, indices: impl IntoIterator<Item = usize>) -> Totals {
        let width = self.model.issue_width.min(self.model.retire_width).max(1);
        let mut totals = Totals::none(1.0 / f64::from(width));
        let costs = indices.into_iter().map(|i| &self.analysis.instructions[i]);
        costs.for_each(|cost| totals.add_instruction(cost, &self.analysis.scale));
        totals
    }

    /// Whether frequencies times the period are numbers of executions.
    pub fn is_absolute(&self) -> bool {
        self.analysis.scale.kind == ScaleKind::Absolute
    }

    /// The instruction set, where the image is at hand.
    pub fn arch(&self) -> Option<Arch> {
        self.image.as_ref().map(|image| image.arch())
    }

    /// Totals over all instructions.
    pub fn all_totals(&self) -> Totals {
        self.totals(0..self.instructions.len())
    }
}

fn without_text(address: ImageAddress) -> Instruction {
    Instruction {
        address,
        length: 1,
        mnemonic: "".into(),
        text: "".into(),
        reads: Default::default(),
        writes: Default::default(),
        operands: Default::default(),
        flow: Flow::Next,
    }
}

/// The samples of each instruction; one that lies inside an instruction counts for it.
fn spread(
    image: &Image,
    samples: &ImageSamples,
    procedure: &ProcedureSamples,
    instructions: &[Instruction],
    events: usize,
) -> Vec<CountsByEvent> {
    let mut spread = vec![CountsByEvent::from_elem(0, events); instructions.len()];
    for point in procedure.points.iter().map(|&p| p as usize) {
        let Some(address) = image.address_of(samples.points.offset(point)) else { continue };
        let after = instructions.partition_point(|i| i.address <= address);
        if let Some(sum) = after.checked_sub(1).and_then(|i| spread.get_mut(i)) {
            add_counts(sum, samples.points.counts(point));
        }
    }
    spread
}

/// The analysis of one procedure, its frequencies, which may be `kept`, brought to `scale`.
pub fn analysis(
    selection: &Selection,
    image: &Image,
    sampled: &Sampled,
    scale: OuterScale,
    kept: &mut Option<Estimates>,
) -> ProcedureAnalysis {
    let Sampled { model, instructions, samples, transfers, counted, absolute } = sampled;
    let column = |event: &Event| -> Option<Vec<u64>> {
        let index = selection.events.iter().position(|e| e == event)?;
        Some(samples.iter().map(|s| s[index]).collect())
    };
    let zero = || vec![0; instructions.len()];
    let time = selection.primary().filter(|e| e.is_time());
    let pair = |taken: &Event, not_taken: &Event| -> Vec<(u64, u64)> {
        let counts = [taken, not_taken].map(|event| column(event).unwrap_or_else(zero));
        let [taken, not_taken] = counts;
        taken.into_iter().zip(not_taken).collect()
    };
    let at_branch = pair(&Event::BRANCH_TAKEN, &Event::BRANCH_NOT_TAKEN);
    let ahead = pair(&Event::AHEAD_TAKEN, &Event::AHEAD_NOT_TAKEN);
    // An event that some of the epochs did not record would be compared with executions of all of them.
    let in_all = |event: &&Event| selection.epochs.iter().all(|e| e.events.contains_key(*event));
    let others = selection.events.iter().filter(|e| !e.is_time() && !e.is_derived()).filter(in_all);
    // An analysis knows events by what they count. Of several that count the same (`instructions`, `instructions:u`) it
    // takes the one with the most samples, which comes first.
    let mut event_samples: BTreeMap<Event, (Vec<u64>, u64)> = BTreeMap::new();
    for e in others {
        let record = selection.epochs.iter().rev().find_map(|epoch| epoch.events.get(e));
        if let Some((samples, record)) = column(e).zip(record) {
            event_samples.entry(Event::named(e.base_name())).or_insert((samples, record.period));
        }
    }
    // It has the period of the time samples, with which alone it is compared.
    event_samples.extend(column(&Event::KERNEL_TIME).map(|samples| (Event::KERNEL_TIME, (samples, 0))));
    let arch = image.arch();
    let jump_targets = recover_jump_targets(arch, instructions, &|a, buffer| image.read(a, buffer));
    let input = ProcedureInput {
        arch,
        instructions,
        jump_targets: &jump_targets,
        time_samples: &time.and_then(column).unwrap_or_else(zero),
        period_cycles: selection.period_cycles(),
        event_samples: &event_samples,
        branch_directions: &directions(instructions, &at_branch, &ahead),
        transfers,
        counted,
        absolute,
        outer: scale,
    };
    analyze_keeping(&input, model, kept)
}
