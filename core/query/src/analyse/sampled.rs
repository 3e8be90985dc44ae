//! A procedure before its analysis: instructions, samples, and other observations of its execution.

use std::collections::BTreeMap;

use dwell_analysis::{
    AbsoluteCount, Counted, MachineModel, OuterScale, ProcedureAnalysis, ProcedureInput, Transfer,
    analyze_keeping, directions, frequency::Estimates, program::BurstTransfer, recover_jump_targets,
};
use dwell_image::{Image, Instruction, ProcedureOffsets};
use dwell_profile::Event;

use crate::{
    analyse::procedures::ProcedureSamples,
    load::{
        samples::{CountsByEvent, ImageSamples, add_counts},
        selection::Selection,
    },
};

/// All that is known of a procedure before it is analysed.
pub struct Sampled {
    /// Machine model of the processor that was sampled.
    pub model: &'static MachineModel,
    /// Instructions, by ascending address; never empty.
    pub instructions: Vec<Instruction>,
    /// Samples of each instruction.
    pub samples: Vec<CountsByEvent>,
    /// Control transfers in path bursts and branch stacks.
    pub transfers: Vec<Transfer>,
    /// Control transfers in each path burst.
    pub bursts: Vec<BurstTransfer>,
    /// Executions that hardware breakpoints counted.
    pub counted: Vec<Counted>,
    /// Executions that were counted while the program ran undisturbed.
    pub absolute: Vec<AbsoluteCount>,
}

impl Sampled {
    /// Reads the instructions and observations of `procedure`, which is in `image`. Returns `None` if it has no
    /// instructions.
    pub fn new(selection: &Selection, procedure: &ProcedureSamples, image: &Image) -> Option<Self> {
        let start = procedure.address?;
        let instructions = image.instructions(start, procedure.size_bytes);
        if instructions.is_empty() {
            return None;
        }
        let points = &selection.images[procedure.image];
        let samples = spread(image, points, procedure, &instructions, selection.events.len());
        let model = MachineModel::for_cpu(&selection.epochs.last()?.cpu);
        let offsets = ProcedureOffsets::new(image, &instructions);
        let transfers = selection.transfers.within(procedure.image, &offsets);
        let bursts = selection.bursts.within(procedure.image, &offsets);
        let counted = selection.breakpoint_counts.within(procedure.image, &offsets);
        let period = selection.period_cycles();
        let absolute = selection.execution_counts.absolute(procedure.image, &offsets, period);
        Some(Sampled { model, instructions, samples, transfers, bursts, counted, absolute })
    }
}

/// Returns the samples of each instruction. A sample inside an instruction counts for that instruction.
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

/// Analyses one procedure and scales its frequencies to `scale`. Frequencies in `kept` are reused; if it is empty, the
/// estimated ones are stored there.
pub fn analysis(
    selection: &Selection,
    image: &Image,
    sampled: &Sampled,
    scale: OuterScale,
    kept: &mut Option<Estimates>,
) -> ProcedureAnalysis {
    let Sampled { model, instructions, samples, transfers, counted, absolute, .. } = sampled;
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
    // Only events that all epochs recorded are used: others would be compared with executions of all epochs.
    let in_all = |event: &&Event| selection.epochs.iter().all(|e| e.events.contains_key(*event));
    let others = selection.events.iter().filter(|e| !e.is_time() && !e.is_derived()).filter(in_all);
    // An analysis identifies events by what they count. If several count the same (`instructions`, `instructions:u`), it
    // uses the one with the most samples, which comes first.
    let mut event_samples: BTreeMap<Event, (Vec<u64>, u64)> = BTreeMap::new();
    for e in others {
        let record = selection.epochs.iter().rev().find_map(|epoch| epoch.events.get(e));
        if let Some((samples, record)) = column(e).zip(record) {
            event_samples.entry(Event::named(e.base_name())).or_insert((samples, record.period));
        }
    }
    // Kernel time has the period of the time samples and is compared with those only.
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
