//! Call stacks of samples: unwinds them when their sample is counted, and adds up equal ones.
//!
//! Enters: samples with a copy of their stack, in order of time. Leaves: a tree of frames each time it is taken. Never here: how
//! a caller is found ([`dwell_unwind`]), the copies, which are dropped at once.

use dwell_attribution::{ExecutionId, ImageIndex};
use dwell_profile::{
    CallStacksRecord, CallTree, CodePlace, Event, EventIndex, ImageKind, ImageOffset, Pid, StackEnd,
    StackRoot, StoredCallTree, VirtualAddress,
};
use dwell_unwind::{Code, CodeOfProcess, Frame, Rules, StackCopy, continue_by_chain, ends_with_call, walk};
use rustc_hash::FxHashMap;

use super::{
    attribution::{Attribution, SampleContext},
    dimensions::ValuesIndex,
    generated_code::Waiting,
    spot::Spot,
};
use crate::{
    host::Host,
    registers::Registers,
    source::{
        owned_record::RawCallStack,
        records::{Mode, Sample},
    },
};

/// What all samples under one root have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Root {
    event: EventIndex,
    execution: ExecutionId,
    end: StackEnd,
}

/// A stack as addresses. They are looked up when it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnwoundStack {
    /// The frames in user mode, innermost first.
    user: Box<[VirtualAddress]>,
    /// The kernel's calls: the innermost instruction, then return addresses outwards.
    kernel: Box<[VirtualAddress]>,
    /// The reason why there are no further frames in user mode.
    end: StackEnd,
}

impl UnwoundStack {
    /// Returns the stack of a thread of which only the instruction is known.
    pub(super) fn of_place(pc: VirtualAddress) -> Self {
        UnwoundStack { user: [pc].into(), kernel: [].into(), end: StackEnd::NoRegisters }
    }
}

/// Holds the call stacks that were counted since they were last taken.
#[derive(Default)]
pub struct CallStacks {
    tree: CallTree<Root, Spot>,
    rules: Rules<ImageIndex>,
    /// Addresses of one stack, innermost first.
    addresses: Vec<VirtualAddress>,
    /// Addresses that were looked up for it, in this order.
    spots: Vec<(VirtualAddress, Option<Spot>)>,
    /// The same frames by place, outermost first.
    frames: Vec<Spot>,
    record: CallStacksRecord,
}

impl CallStacks {
    /// Sets the rate that records of the epoch report.
    pub(super) fn set_rate(&mut self, hz: u32) {
        self.record.hz = hz;
    }

    /// Returns whether stacks are recorded.
    pub(super) fn is_on(&self) -> bool {
        self.record.hz > 0
    }

    /// Adds the stack of a sample, whose innermost frame is `place`.
    pub(super) fn add<H: Host>(
        &mut self,
        attribution: &mut Attribution<H>,
        event: EventIndex,
        (sample, place): (&Sample, Spot),
        stack: &RawCallStack,
        context: &SampleContext,
    ) {
        let end = self.unwind(attribution, sample, stack, context.execution);
        let CallStacks { addresses, spots, frames, .. } = self;
        frames.clear();
        // Each frame was looked up in this order, and some addresses that turned out to be none.
        let mut looked_up = spots.iter();
        let spot = |address: &VirtualAddress| {
            looked_up.find(|(known, _)| known == address).and_then(|(_, spot)| *spot)
        };
        frames.extend(addresses.iter().filter_map(spot));
        frames.reverse();
        if sample.mode == Mode::User {
            if addresses.len() == frames.len() {
                frames.pop(); // The innermost frame is the sample's own place.
            }
        } else {
            // The kernel's chain begins with the sampled instruction.
            push_kernel_frames(attribution, frames, stack.kernel.iter().skip(1), context);
        }
        self.frames.push(place);
        self.add_frames(attribution, Root { event, execution: context.execution, end }, 1);
    }

    /// Adds samples of a stack that was unwound before, by the mappings of the process now.
    pub(super) fn add_unwound<H: Host>(
        &mut self,
        attribution: &mut Attribution<H>,
        event: EventIndex,
        (pid, stack): (Pid, &UnwoundStack),
        context: &SampleContext,
        samples: u64,
    ) {
        let execution = context.execution;
        self.frames.clear();
        let spot = |address: &VirtualAddress| attribution.mapped_place(pid, *address, execution);
        self.frames.extend(stack.user.iter().rev().filter_map(spot));
        push_kernel_frames(attribution, &mut self.frames, stack.kernel.iter(), context);
        if !self.frames.is_empty() {
            self.add_frames(attribution, Root { event, execution, end: stack.end }, samples);
        }
    }

    /// Unwinds the stack of a thread that left its CPU in the kernel.
    pub(super) fn unwound<H: Host>(
        &mut self,
        attribution: &mut Attribution<H>,
        sample: &Sample,
        stack: &RawCallStack,
        execution: ExecutionId,
    ) -> UnwoundStack {
        let end = self.unwind(attribution, sample, stack, execution);
        UnwoundStack { user: self.addresses.as_slice().into(), kernel: stack.kernel.clone(), end }
    }

    /// Finds the addresses of a sample's frames in user mode. Returns how they end.
    fn unwind<H: Host>(
        &mut self,
        attribution: &mut Attribution<H>,
        sample: &Sample,
        stack: &RawCallStack,
        execution: ExecutionId,
    ) -> StackEnd {
        let CallStacks { addresses, spots, rules, .. } = self;
        addresses.clear();
        spots.clear();
        match &sample.registers {
            Some(registers) => {
                let mut code = ProcessCode { attribution, rules, spots, pid: sample.pid, execution };
                code.walk(sample, registers, stack, addresses)
            }
            None if sample.mode == Mode::User => StackEnd::NoRegisters,
            None => StackEnd::Root,
        }
    }

    /// Adds samples of the stack in `self.frames`.
    fn add_frames<H: Host>(&mut self, attribution: &mut Attribution<H>, root: Root, samples: u64) {
        let Root { execution, end, .. } = root;
        // Names are looked up, and stacks added up, by the execution that samples count for.
        let execution = attribution.apps.counted_as(execution);
        for frame in &self.frames {
            if let Spot::Code(code, address) = *frame {
                let waiting = Waiting { address, execution, dimensions: ValuesIndex::NONE, event: None };
                attribution.wait_for_name(code, waiting, 0);
            }
        }
        self.record.samples += samples;
        if !end.is_complete() {
            *self.record.incomplete.entry(end.name().to_owned()).or_default() += samples;
        }
        self.tree.add(Root { execution, ..root }, self.frames.iter().copied(), samples);
    }

    /// Returns the number of frames in memory.
    pub(super) fn len(&self) -> usize {
        self.tree.nodes().len()
    }

    /// Returns the stacks since the last call, and the offsets of their images that need symbols. All names of generated code
    /// must have been looked up.
    pub(super) fn take<H: Host>(
        &mut self,
        attribution: &mut Attribution<H>,
        events: &[Event],
    ) -> (StoredCallTree, FxHashMap<ImageIndex, Vec<u64>>) {
        let taken = std::mem::take(&mut self.tree);
        let named = std::mem::take(&mut attribution.generated.frames);
        let root = |root: &Root, attribution: &mut Attribution<H>| {
            let of = attribution.apps.resolve(root.execution);
            StackRoot {
                event: events[root.event.index()].clone(),
                app: of.app,
                instance: of.instance,
                end: root.end,
            }
        };
        let roots: Vec<StackRoot> = taken.roots().iter().map(|r| root(r, attribution)).collect();
        let of_nodes = taken.roots_of_nodes();
        let executions: Vec<ExecutionId> = taken.roots().iter().map(|root| root.execution).collect();
        let mut used: FxHashMap<ImageIndex, Vec<u64>> = FxHashMap::default();
        let mut places: Vec<CodePlace> = Vec::with_capacity(taken.nodes().len());
        for (node, root) in taken.nodes().iter().zip(of_nodes) {
            let (image, offset) = match node.frame {
                Spot::Image(image, offset) => (image, offset),
                Spot::Code(code, address) => {
                    let execution = executions[root as usize];
                    let known = named.get(&(code, address, execution)).copied();
                    known.unwrap_or_else(|| attribution.jit_place(address, execution))
                }
            };
            let (offsets, record) = (used.entry(image).or_default(), attribution.images.record(image));
            if matches!(record.kind, ImageKind::Kernel | ImageKind::Module) {
                offsets.push(offset);
            }
            places.push(CodePlace { image: record.id.clone(), offset: ImageOffset(offset) });
        }
        let mut stored = StoredCallTree::default();
        stored.absorb(&taken, &roots, places);
        (stored, used)
    }

    /// Returns the numbers of the epoch's stacks.
    pub fn record(&self) -> &CallStacksRecord {
        &self.record
    }

    /// Begins a new epoch.
    pub(super) fn begin_epoch(&mut self) {
        self.record = CallStacksRecord { hz: self.record.hz, ..CallStacksRecord::default() };
    }

    /// Forgets rules, because images were renumbered.
    pub(super) fn clear_rules(&mut self) {
        self.rules.clear();
    }
}

/// Appends the frames of a call chain in the kernel, which is given from the innermost return address outwards.
fn push_kernel_frames<'a, H: Host>(
    attribution: &mut Attribution<H>,
    frames: &mut Vec<Spot>,
    returns: impl DoubleEndedIterator<Item = &'a VirtualAddress>,
    context: &SampleContext,
) {
    for address in returns.rev() {
        let address = address.back(1);
        let caller = attribution.kernel_place(address, context.interval);
        // Code that nothing names, such as BPF's, stays a frame.
        frames.push(caller.unwrap_or_else(|_| attribution.unknown_spot(address)));
    }
}

/// The code of the sampled process.
struct ProcessCode<'a, H> {
    attribution: &'a mut Attribution<H>,
    rules: &'a mut Rules<ImageIndex>,
    spots: &'a mut Vec<(VirtualAddress, Option<Spot>)>,
    pid: Pid,
    execution: ExecutionId,
}

impl<H: Host> ProcessCode<'_, H> {
    fn walk(
        &mut self,
        sample: &Sample,
        registers: &Registers,
        stack: &RawCallStack,
        addresses: &mut Vec<VirtualAddress>,
    ) -> StackEnd {
        let Some(frame) = registers.frame() else { return StackEnd::NoRegisters };
        // In user mode the sample's own pc holds: it may have been put back from moved code.
        let (pc, first) = match sample.mode {
            Mode::User => (sample.pc, sample.pc),
            _ => (frame.pc, registers.entered_from()),
        };
        let copy = StackCopy { start: frame.sp, bytes: &stack.user, is_cut: stack.is_cut };
        let end = walk(first, Frame { pc, ..frame }, copy, self, addresses);
        let outermost = addresses.last().copied().unwrap_or_default();
        if !end.is_complete()
            && self.keeps_frame_pointers(outermost)
            && continue_by_chain(&stack.frame_pointers, self, addresses)
        {
            return StackEnd::Root;
        }
        end
    }

    /// Returns whether all code of an image keeps frame pointers.
    fn keeps_frame_pointers(&mut self, address: VirtualAddress) -> bool {
        let Some(Spot::Image(image, _)) = self.spot(address) else { return false };
        self.rules.keeps_frame_pointers(image)
    }

    fn spot(&mut self, address: VirtualAddress) -> Option<Spot> {
        self.attribution.mapped_place(self.pid, address, self.execution)
    }
}

impl<H: Host> CodeOfProcess for ProcessCode<'_, H> {
    fn code(&mut self, address: VirtualAddress) -> Code {
        let spot = self.spot(address);
        self.spots.push((address, spot));
        match spot {
            None => Code::None,
            Some(Spot::Code(..)) => Code::WithoutRule(StackEnd::NoUnwindInformation),
            Some(Spot::Image(image, offset)) => {
                let Attribution { images, host, .. } = &mut *self.attribution;
                self.rules.find(image, offset, || host.unwind_rules(images.record(image)))
            }
        }
    }

    fn is_call_before(&mut self, address: VirtualAddress) -> bool {
        let Some(Spot::Image(image, offset)) = self.spot(address) else { return true };
        let Attribution { images, host, .. } = &mut *self.attribution;
        let code = self.rules.code_before(image, offset, || host.unwind_rules(images.record(image)));
        code.is_none_or(|code| ends_with_call(&code))
    }
}
