//! One analysed procedure: its instructions, their samples, their costs and their source lines.

use std::sync::Arc;

use dwell_analysis::{
    Block, Confidence, InstructionCost, Interval, MachineModel, ProcedureAnalysis, ScaleKind,
};
use dwell_image::{Arch, Flow, Image, ImageAddress, Instruction};
use dwell_profile::ImagePlace;

use crate::{
    analyse::{
        procedures::ProcedureSamples,
        sampled::{Sampled, analysis},
        scales::Scaled,
        totals::Totals,
    },
    load::{samples::CountsByEvent, selection::Selection},
};

/// Least share of the samples for which a procedure is analysed to find the costs of its lines. Below it, samples count at
/// the instruction that the interrupt reported.
pub const LINES_SHARE_MIN: f64 = 0.0005;

/// One procedure with all data that answers are built from.
pub struct ProcedureCosts {
    /// The image; `None` if it is not at hand, and the profile names its places or the analysis was stored.
    pub image: Option<Arc<Image>>,
    /// Machine model of the processor that was sampled.
    pub model: &'static MachineModel,
    /// Instructions, by ascending address.
    pub instructions: Vec<Instruction>,
    /// Samples of each instruction.
    pub samples: Vec<CountsByEvent>,
    /// Source file and line of each instruction, taken from the innermost inlined call.
    pub lines: Vec<Option<(Arc<str>, u32)>>,
    /// Result of the analysis.
    pub analysis: ProcedureAnalysis,
}

/// Cycles per instruction if nothing is known.
const UNKNOWN: Interval = Interval { min: 0.0, max: f64::INFINITY };

impl ProcedureCosts {
    /// Analyses `procedure`, which is in `image`; `scaled` is its entry in [`scales`](crate::analyse::scales).
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
            // Without samples of time there is no head of the queue: samples stay where they landed.
            for (cost, counts) in analysis.instructions.iter_mut().zip(&samples) {
                cost.head_samples = counts.first().copied().unwrap_or(0) as f64;
            }
        }
        Some(ProcedureCosts { image: Some(image), model, instructions, samples, lines, analysis })
    }

    /// Returns the places of `procedure` that the profile named, as instructions without text; `None` if it named none.
    /// Nothing is estimated: samples stay where they landed.
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
        let note = "the binary is not on this machine: only places that the profile names are shown";
        Some(ProcedureCosts {
            image: None,
            model: MachineModel::for_cpu(&selection.epochs.last()?.cpu),
            instructions: points().map(|p| bare_instruction(ImageAddress(address(p)))).collect(),
            lines: points().map(line).collect(),
            analysis: ProcedureAnalysis {
                // Answers are built block by block; the ends of the blocks are unknown here, so all places are one block.
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

    /// Returns totals over the instructions at `indices`.
    pub fn totals(&self, indices: impl IntoIterator<Item = usize>) -> Totals {
        let width = self.model.issue_width.min(self.model.retire_width).max(1);
        let mut totals = Totals::none(1.0 / f64::from(width));
        let costs = indices.into_iter().map(|i| &self.analysis.instructions[i]);
        costs.for_each(|cost| totals.add_instruction(cost, &self.analysis.scale));
        totals
    }

    /// Returns whether the scale is absolute: frequency times period is the number of executions.
    pub fn is_absolute(&self) -> bool {
        self.analysis.scale.kind == ScaleKind::Absolute
    }

    /// Returns the address of the first byte, as `instructions` have it. Where the image is not at hand, `procedure` and call stacks have
    /// offsets in place of addresses.
    pub fn begin(&self, procedure: &ProcedureSamples) -> Option<ImageAddress> {
        let first = self.instructions.first().filter(|first| self.image.is_none() && !first.text.is_empty());
        first.map(|first| first.address).or(procedure.address)
    }

    /// Returns the instruction set, if the image is at hand.
    pub fn arch(&self) -> Option<Arch> {
        self.image.as_ref().map(|image| image.arch())
    }

    /// Returns totals over all instructions.
    pub fn all_totals(&self) -> Totals {
        self.totals(0..self.instructions.len())
    }
}

/// Returns an instruction of which only its place is known.
pub fn bare_instruction(address: ImageAddress) -> Instruction {
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
