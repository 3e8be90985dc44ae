//! Finds the callers of a sample of perf.data: by its call chain, its branch stack or its copy of the user's stack.
//!
//! Enters: samples in order of time, when the mappings are those of their moment. Leaves: the places of their frames, and why
//! there are no more. Never here: counts; a copy of a stack once it was unwound.
//!
//! A call chain of perf holds what the kernel found by frame pointers. Its addresses are return addresses; a frame is the byte
//! before. The kernel does not say why it found no more: if the outermost frame is not one that has no caller by the unwind
//! tables, its code kept no frame pointer.

use dwell_image::{Caller, UnwindRules};
use dwell_profile::{Pid, StackEnd, VirtualAddress};
use dwell_unwind::{
    Code, CodeOfProcess, Frame, Rules, StackCopy, ends_with_call, ends_with_system_call, walk,
};
use linux_perf_data::{DsoKey, linux_perf_event_reader::CpuMode};

use super::{
    call_stacks::Place,
    chain::Chain,
    imported::{ImportedProfile, Target},
    locate::Locator,
    sample::{ABI_64, CallersFormat, Sample, UserCopy},
};

/// Finds the callers of samples.
pub(super) struct Unwinder<'l> {
    locator: &'l Locator<'l>,
    rules: Rules<u32>,
    chain: Chain,
    addresses: Vec<VirtualAddress>,
    /// The frames of one stack, innermost first.
    frames: Vec<Place>,
}

impl<'l> Unwinder<'l> {
    /// Returns an unwinder that finds images by `locator`.
    pub fn new(locator: &'l Locator<'l>) -> Self {
        Unwinder {
            locator,
            rules: Rules::default(),
            chain: Chain::default(),
            addresses: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// Returns the frames of a sample that was counted at `place`, innermost first, and how its stack ends; `None` if the samples
    /// of its event say nothing about their callers.
    pub fn stack(
        &mut self,
        imported: &mut ImportedProfile,
        format: CallersFormat,
        (mode, sample): (CpuMode, &Sample<'_>),
        place: Place,
    ) -> Option<(&[Place], StackEnd)> {
        if !format.has_chains && !format.has_copies && !format.has_calls {
            return None;
        }
        self.chain.read(sample.chain);
        self.frames.clear();
        self.frames.push(place);
        if mode == CpuMode::Kernel {
            // The chain begins with the sampled instruction.
            for address in self.chain.kernel.iter().skip(1) {
                let address = address.back(1);
                let caller = imported.kernel_place(address);
                self.frames.push(caller.unwrap_or_else(|| imported.unknown_place(address.as_offset())));
            }
        }
        imported.tallies.deferred_chains += u64::from(self.chain.is_deferred);
        let end = match sample.user {
            _ if !matches!(mode, CpuMode::User | CpuMode::Kernel) => StackEnd::Unknown,
            _ if self.chain.is_deferred || self.chain.has_others => StackEnd::Unknown,
            Some(copy) => self.by_copy(imported, (mode, sample), copy),
            None if format.has_copies => StackEnd::NoRegisters,
            None if format.has_calls && self.chain.has_user => self.by_calls(imported, mode, sample),
            None if self.chain.has_user => self.by_chain(imported, (mode, sample.pid), format),
            // The kernel's own threads have no user's code.
            None if mode == CpuMode::Kernel && !format.lacks_user => StackEnd::Root,
            None => StackEnd::Unknown,
        };
        Some((&self.frames, end))
    }

    /// Appends the user's frames of a call chain.
    fn by_chain(
        &mut self,
        imported: &mut ImportedProfile,
        (mode, pid): (CpuMode, Pid),
        format: CallersFormat,
    ) -> StackEnd {
        if mode == CpuMode::Kernel {
            self.entered_from(imported, pid, self.chain.user.first().copied());
        }
        let known = self.frames.len();
        for address in self.chain.user.iter().skip(1) {
            let address = address.back(1);
            let caller = imported.user_place(pid, address);
            self.frames.push(caller.unwrap_or_else(|| imported.unknown_place(address.as_offset())));
        }
        // Where rbp was no frame pointer, what it led to is no frame.
        let is_code = |(target, _): &Place| !matches!(imported.targets[*target as usize], Target::Other(_));
        let code = self.frames[known..].iter().rposition(is_code).map_or(0, |last| last + 1);
        let is_broken = known + code < self.frames.len();
        self.frames.truncate(known + code);
        match self.end(imported, self.chain.len() < format.addresses_max) {
            StackEnd::NoFramePointer if is_broken => StackEnd::Broken,
            end => end,
        }
    }

    /// Appends the user's frames of a branch stack that holds the calls that have not returned, latest first. perf builds its
    /// chain from it in the same way (`resolve_lbr_callchain_sample`). Their addresses are those of the call instructions.
    fn by_calls(&mut self, imported: &mut ImportedProfile, mode: CpuMode, sample: &Sample<'_>) -> StackEnd {
        let pid = sample.pid;
        if mode == CpuMode::Kernel {
            let called = || sample.branches.iter().next().map(|call| call.to);
            self.entered_from(imported, pid, self.chain.user.first().copied().or_else(called));
        }
        for call in sample.branches.iter() {
            let caller = imported.user_place(pid, call.from);
            self.frames.push(caller.unwrap_or_else(|| imported.unknown_place(call.from.as_offset())));
        }
        // The processor keeps a fixed number of calls, and none from before the recording.
        if self.end(imported, false) == StackEnd::Root { StackEnd::Root } else { StackEnd::Cut }
    }

    /// Appends the frame of the user's instruction that entered the kernel; `pc` is where it continues.
    fn entered_from(&mut self, imported: &mut ImportedProfile, pid: Pid, pc: Option<VirtualAddress>) {
        let Some(pc) = pc else { return };
        let mut code = ProcessCode { imported, rules: &mut self.rules, locator: self.locator, pid };
        let is_call = code.before(pc).is_some_and(|code| ends_with_system_call(&code));
        let address = if is_call { pc.back(SYSCALL_BYTES) } else { pc };
        let place = imported.user_place(pid, address);
        self.frames.push(place.unwrap_or_else(|| imported.unknown_place(address.as_offset())));
    }

    /// Appends the user's frames that a copy of the stack leads to.
    fn by_copy(
        &mut self,
        imported: &mut ImportedProfile,
        (mode, sample): (CpuMode, &Sample<'_>),
        copy: UserCopy<'_>,
    ) -> StackEnd {
        let registers = (copy.register(RIP), copy.register(RSP), copy.register(RBP));
        let (Some(pc), Some(sp), Some(rbp)) = registers else {
            let is_of_kernel = copy.abi == 0 && mode == CpuMode::Kernel;
            return if is_of_kernel { StackEnd::Root } else { StackEnd::NoRegisters };
        };
        if copy.abi != ABI_64 || !imported.is_x86_64() {
            return StackEnd::NoRegisters;
        }
        let is_user = mode == CpuMode::User;
        let (pc, sp) = (VirtualAddress(pc), VirtualAddress(sp));
        // A precise event reports an instruction before the one that was interrupted.
        let pc = sample.ip.filter(|_| is_user).unwrap_or(pc);
        let first = if is_user { pc } else { entered_from(&copy, pc) };
        self.addresses.clear();
        let pid = sample.pid;
        let mut code = ProcessCode { imported, rules: &mut self.rules, locator: self.locator, pid };
        let stack = StackCopy { start: sp, bytes: copy.stack, is_cut: copy.is_cut };
        let end = walk(first, Frame { pc, sp, rbp }, stack, &mut code, &mut self.addresses);
        // The innermost frame is the sample's own place.
        for address in self.addresses.iter().skip(usize::from(is_user)) {
            let place = imported.user_place(pid, *address);
            self.frames.push(place.unwrap_or_else(|| imported.unknown_place(address.as_offset())));
        }
        end
    }

    /// Returns why the outermost frame has no caller, if frames were found by frame pointers. `is_whole` says that there was
    /// room for another one.
    fn end(&mut self, imported: &mut ImportedProfile, is_whole: bool) -> StackEnd {
        let Some(&(target, offset)) = self.frames.last() else { return StackEnd::Unknown };
        if !imported.is_x86_64() {
            return StackEnd::Unknown;
        }
        let mut code =
            ProcessCode { imported, rules: &mut self.rules, locator: self.locator, pid: Pid::ENDED };
        match code.at((target, offset)) {
            Code::Rule(Caller::Outermost, _) => StackEnd::Root,
            _ if !is_whole => StackEnd::TooDeep,
            Code::WithoutRule(StackEnd::NoImage) => StackEnd::NoImage,
            // Go's own chains end at the start of a goroutine, which no rule describes.
            _ if self.rules.keeps_frame_pointers(target) => StackEnd::Root,
            _ => StackEnd::NoFramePointer,
        }
    }
}

/// perf's numbers of registers of x86-64 (`arch/x86/include/uapi/asm/perf_regs.h` of Linux).
const RCX: u32 = 2;
const RBP: u32 = 6;
const RSP: u32 = 7;
const RIP: u32 = 8;
const FLAGS: u32 = 9;
const R11: u32 = 19;
/// Length of the instruction `syscall`.
const SYSCALL_BYTES: u64 = 2;

/// Returns the address of the user's instruction that entered the kernel. `syscall` leaves the address of its successor in rcx
/// and the flags in r11, by which it is recognized.
fn entered_from(copy: &UserCopy<'_>, pc: VirtualAddress) -> VirtualAddress {
    let is_call = copy.register(RCX) == Some(pc.0)
        && copy.register(R11).is_some()
        && copy.register(R11) == copy.register(FLAGS);
    if is_call { pc.back(SYSCALL_BYTES) } else { pc }
}

/// The code of the sampled process.
struct ProcessCode<'a, 'l> {
    imported: &'a mut ImportedProfile,
    rules: &'a mut Rules<u32>,
    locator: &'a Locator<'l>,
    pid: Pid,
}

impl ProcessCode<'_, '_> {
    fn at(&mut self, (target, offset): Place) -> Code {
        if matches!(self.imported.targets[target as usize], Target::Jit { .. }) {
            return Code::WithoutRule(StackEnd::NoUnwindInformation);
        }
        let ProcessCode { imported, rules, locator, .. } = self;
        rules.find(target, offset, || open(imported, locator, target))
    }

    /// Returns the code before an address; `None` if it cannot be read.
    fn before(&mut self, address: VirtualAddress) -> Option<[u8; dwell_unwind::CODE_BEFORE_BYTES]> {
        let (target, offset) = self.imported.user_place(self.pid, address)?;
        let ProcessCode { imported, rules, locator, .. } = self;
        rules.code_before(target, offset, || open(imported, locator, target))
    }
}

impl CodeOfProcess for ProcessCode<'_, '_> {
    fn code(&mut self, address: VirtualAddress) -> Code {
        self.imported.user_place(self.pid, address).map_or(Code::None, |place| self.at(place))
    }

    fn is_call_before(&mut self, address: VirtualAddress) -> bool {
        self.before(address).is_none_or(|code| ends_with_call(&code))
    }
}

/// Returns how callers are found in a target's file, if it is on this machine.
fn open(imported: &ImportedProfile, locator: &Locator<'_>, target: u32) -> Option<UnwindRules> {
    match &imported.targets[target as usize] {
        Target::File(named) => locator.unwind_rules(&imported.identified(named)),
        Target::Vdso => locator.unwind_rules_of_vdso(imported.build_id(&DsoKey::Vdso64)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use dwell_profile::BranchEntry;

    use super::{
        super::sample::{Branches, Words},
        *,
    };
    use crate::ImportFile;

    const PID: Pid = Pid(7);
    const KERNEL: u64 = -128_i64 as u64;
    const USER: u64 = -512_i64 as u64;
    const CHAINS: CallersFormat = CallersFormat {
        has_chains: true,
        has_copies: false,
        has_calls: false,
        lacks_user: false,
        addresses_max: 127,
    };

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Describes the stack of a sample at the first address of its chain: frames from the innermost one, and the end. A program
    /// that is not on this machine is mapped at 0x1000 to 0x5000, and memory without a file at 0x8000 to 0x9000. In kernel
    /// mode the sample is in the kernel.
    fn stack(format: CallersFormat, mode: CpuMode, chain: &[u64], calls: &[(u64, u64)]) -> String {
        let request = ImportFile::default();
        let locator = Locator::new(&request, None, None);
        let mut imported = ImportedProfile::default();
        imported.map(PID, false, (VirtualAddress(0x1000), 0x4000, 0), b"/nowhere/program", None);
        imported.map(PID, false, (VirtualAddress(0x8000), 0x1000, 0), b"//anon", None);
        let calls: Vec<u64> = calls.iter().flat_map(|(from, to)| [*from, *to, 0]).collect();
        let (chain, calls) = (bytes(chain), bytes(&calls));
        assert!(calls.len().is_multiple_of(BranchEntry::BYTES));
        let sample = Sample {
            pid: PID,
            chain: Words::new(&chain, true),
            branches: Branches::new(&calls),
            ..Sample::default()
        };
        let leaf = match mode {
            CpuMode::User => imported.user_place(PID, VirtualAddress(0x1010)).unwrap(),
            _ => (imported.intern(Target::Kernel), 0x10),
        };
        let mut unwinder = Unwinder::new(&locator);
        let (frames, end) = unwinder.stack(&mut imported, format, (mode, &sample), leaf).unwrap();
        let named = |(target, offset): &Place| match &imported.targets[*target as usize] {
            Target::File(_) => format!("{offset:x}"),
            Target::Jit { .. } => format!("jit:{offset:x}"),
            Target::Kernel => format!("kernel:{offset:x}"),
            _ => format!("unknown:{offset:x}"),
        };
        format!("{} {}", frames.iter().map(named).collect::<Vec<_>>().join(" "), end.name())
    }

    #[test]
    fn chains_are_kept_as_far_as_they_lead_through_code() {
        let user = |chain: &[u64]| stack(CHAINS, CpuMode::User, chain, &[]);
        // The file is not on this machine, so nothing says whether a stack is complete.
        assert_eq!(user(&[USER, 0x1010, 0x1020, 0x2030]), "10 1f 102f no-image");
        assert_eq!(user(&[USER, 0x1010, 0x1020, 0x77, 0x2030]), "10 1f unknown:76 102f no-image");
        assert_eq!(user(&[USER, 0x1010, 0x1020, 0x77, 0x88]), "10 1f no-image", "what rbp led to is no code");
        assert_eq!(user(&[USER, 0x1010, 0x8100]), "10 jit:80ff no-frame-pointer");
        assert_eq!(user(&[USER, 0x1010, 0x8100, 0x77]), "10 jit:80ff broken");
        assert_eq!(user(&[USER]), "10 no-image");
        assert_eq!(user(&[]), "10 unknown");
        let long: Vec<u64> = [USER, 0x1010].into_iter().chain([0x8100; 126]).collect();
        assert!(
            user(&long).ends_with("jit:80ff too-deep") && user(&long[..126]).ends_with("no-frame-pointer")
        );
    }

    #[test]
    fn the_kernels_frames_are_inside_those_of_the_user() {
        let kernel = |chain: &[u64]| stack(CHAINS, CpuMode::Kernel, chain, &[]);
        let (at, called_from) = (0x8000_0000_0000_0010, 0x8000_0000_0000_0101);
        let chain = [KERNEL, at, called_from, USER, 0x1010, 0x8100];
        assert_eq!(kernel(&chain), "kernel:10 unknown:8000000000000100 10 jit:80ff no-frame-pointer");
        assert_eq!(kernel(&chain[..3]), "kernel:10 unknown:8000000000000100 root", "a thread of the kernel");
        assert_eq!(kernel(&[KERNEL]), "kernel:10 root");
        assert_eq!(kernel(&[KERNEL, at, -640_i64 as u64, 5]), "kernel:10 unknown");
        let lacks_user = CallersFormat { lacks_user: true, ..CHAINS };
        assert_eq!(stack(lacks_user, CpuMode::Kernel, &chain[..2], &[]), "kernel:10 unknown");
        let copies = CallersFormat { has_copies: true, ..CHAINS };
        assert_eq!(stack(copies, CpuMode::User, &[USER, 0x1010], &[]), "10 no-registers");
    }

    #[test]
    fn calls_that_have_not_returned_are_the_callers() {
        let format = CallersFormat { has_calls: true, ..CHAINS };
        let calls = [(0x2020, 0x1000), (0x3030, 0x2000)];
        assert_eq!(stack(format, CpuMode::User, &[USER, 0x1010, 0x77], &calls), "10 1020 2030 cut");
        let chain = [KERNEL, 1 << 63, USER, 0x1018];
        assert_eq!(stack(format, CpuMode::Kernel, &chain, &calls), "kernel:10 18 1020 2030 cut");
        assert_eq!(stack(format, CpuMode::Kernel, &chain[..3], &calls), "kernel:10 0 1020 2030 cut");
        assert_eq!(stack(format, CpuMode::Kernel, &chain[..2], &calls), "kernel:10 root");
    }
}
