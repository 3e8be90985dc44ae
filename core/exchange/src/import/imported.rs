//! What was read of a profile, independent of its format: sums of samples by target, and what is known about processes
//! and the kernel.
//!
//! Enters: mappings, samples and names, as the reader of a format finds them. Leaves: sums, tallies and remarks, from
//! which `finish` makes an epoch. Never here: bytes of a format, files.

use std::time::Duration;

use dwell_attribution::{ExecutionId, Interval, KernelLayout, Mapping, TargetIndex};
use dwell_profile::{
    BranchSums, BuildId, ImageId, ImageKind, NamedFrame, Pid, SampleAccumulator, VirtualAddress,
};
use linux_perf_data::{
    DsoKey,
    linux_perf_event_reader::{CpuMode, PerfEventAttr},
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    ImportFile,
    call_stacks::{ImportedStacks, Place},
    kallsyms::{IS_ELSEWHERE, Kallsyms, KernelNames, Reading},
    locate::Named,
    names::Names,
    slot::Slot,
    space::Spaces,
};

/// What a sample belongs to: a file, or what is treated like one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    File(Named),
    Vdso,
    /// Memory without a file that this process mapped. The sampled process may have inherited it from that parent.
    Anonymous(Pid),
    /// Code that was generated in a process, or in the process that mapped its memory before the fork.
    Jit {
        process: Pid,
        owner: Pid,
    },
    Kernel,
    /// Places that the profile names without addresses, in an image with this path.
    Numbered(Vec<u8>),
    /// An image that is not a file, as another profile recorded it.
    Recorded(ImageId, ImageKind, Box<str>),
    Other(&'static str),
}

impl Target {
    /// Returns the target of a kernel module.
    pub(super) fn module(name: &str) -> Target {
        Target::Recorded(
            ImageId::named(&format!("module:{name}")),
            ImageKind::Module,
            format!("[{name}]").into(),
        )
    }
}

/// The numbers of samples of an event.
#[derive(Clone, Debug, Default)]
pub(super) struct EventTally {
    pub samples: u64,
    pub lost: u64,
    /// Samples that PERF_RECORD_LOST_SAMPLES reports as lost.
    pub lost_samples: u64,
    pub throttled: u64,
    pub unknown: u64,
    pub periods: u128,
    pub period_min: u64,
    pub period_max: u64,
}

impl EventTally {
    /// Returns the whole samples that a sum of periods stands for, rounded.
    pub fn whole_samples(&self, periods: u128) -> u128 {
        periods.saturating_mul(u128::from(self.samples)).saturating_add(self.periods / 2)
            / self.periods.max(1)
    }
}

/// The machine and command that a profile was recorded of.
#[derive(Default)]
pub(super) struct Origin {
    pub cpu: Vec<String>,
    pub host: Option<String>,
    pub release: Option<String>,
    pub arch: Option<String>,
    pub command: Vec<String>,
    pub cpus: u32,
    /// Time from the first sample to the last, if the file reports it.
    pub took: Option<Duration>,
}

/// Numbers of records that notes report, most of them because they were left out.
#[derive(Default)]
pub(super) struct RecordTallies {
    pub branch_stacks: u64,
    /// Samples with the name of a caller, in a text or a profile of pprof.
    pub with_callers: u64,
    /// Samples whose call chain lacks the user's part, which is in a record of its own.
    pub deferred_chains: u64,
    pub aux_records: u64,
    pub unreadable: u64,
    /// Samples whose id belongs to no event.
    pub unknown_ids: u64,
    /// Samples that were derived from the counters in another event's sample: `perf record -e '{a,b}:S'`.
    pub members: u64,
}

/// What is known of the sampled kernel.
#[derive(Default)]
pub(super) struct Kernel {
    pub layout: KernelLayout,
    /// Target of the kernel's own code, once it was sampled.
    target: Option<u32>,
    /// The source of the names of its functions.
    kallsyms: Option<Kallsyms>,
    /// The names, while they are read.
    names: Option<Reading>,
}

/// Everything that was read of a profile.
#[derive(Default)]
pub(super) struct ImportedProfile {
    pub attributes: Vec<(String, Option<PerfEventAttr>)>,
    pub events: Vec<EventTally>,
    /// Names of events whose periods are nanoseconds, where the profile says so.
    pub(super) in_ns: FxHashSet<String>,
    pub(super) spaces: Spaces,
    pub(super) kernel: Kernel,
    pub(super) targets: Vec<Target>,
    pub(super) by_target: FxHashMap<Target, u32>,
    /// Sums of periods by slot and offset.
    pub(super) sums: SampleAccumulator<Slot>,
    pub(super) branches: BranchSums<u32>,
    pub(super) call_stacks: ImportedStacks,
    pub(super) names: Names,
    pub(super) build_ids: Vec<(DsoKey, BuildId)>,
    pub origin: Origin,
    pub tallies: RecordTallies,
    /// Whether the profile has counts but no samples.
    pub(super) is_stat: bool,
    /// Why records are missing at the end of the file.
    pub cut: Option<String>,
    /// Other remarks for the user.
    pub remarks: Vec<String>,
}

impl ImportedProfile {
    pub(super) fn map(
        &mut self,
        pid: Pid,
        kernel: bool,
        (start, length, offset): (VirtualAddress, u64, u64),
        path: &[u8],
        build_id: Option<BuildId>,
    ) {
        let text = String::from_utf8_lossy(path);
        if kernel {
            return self.kernel.layout.map(&text, start, length, offset);
        }
        let nameless = ["//anon", "/memfd:", "/dev/zero", "/anon_hugepage", "/SYSV"];
        let target = if text.starts_with("[vdso") {
            Target::Vdso
        } else if !text.starts_with('/')
            || (build_id.is_none() && nameless.iter().any(|n| text.starts_with(n)))
        {
            Target::Anonymous(pid)
        } else {
            let path = path.strip_suffix(b" (deleted)").unwrap_or(path).to_vec();
            Target::File(Named { path, build_id })
        };
        let file_name = matches!(target, Target::File(_)).then(|| text.rsplit('/').next()).flatten();
        let target = self.intern(target);
        let (end, target) = (start.saturating_offset(length), TargetIndex(target));
        let mapping = Mapping { start, end, file_offset: offset, target, anonymous: None };
        self.spaces.map(pid, mapping, file_name);
    }

    /// Returns target and number of a place that a profile names without an address, in an image with this path.
    /// `within` is its distance from the start of its procedure.
    pub(super) fn numbered(&mut self, path: &[u8], frames: Vec<NamedFrame>, within: u64) -> Place {
        let target = self.intern(Target::Numbered(path.to_vec()));
        let number = self.names.number(target, &frames, within);
        self.names.add(target, number, None, frames);
        (target, number)
    }

    pub(super) fn intern(&mut self, target: Target) -> u32 {
        if let Some(&index) = self.by_target.get(&target) {
            return index;
        }
        let index = self.targets.len() as u32;
        self.targets.push(target.clone());
        self.by_target.insert(target, index);
        index
    }

    fn kernel_target(&mut self) -> u32 {
        if let Some(target) = self.kernel.target {
            return target;
        }
        self.read_kallsyms();
        let target = self.intern(Target::Kernel);
        self.kernel.target = Some(target);
        target
    }

    /// Returns target and offset of an address in a process; `None` if nothing is mapped there.
    pub(super) fn user_place(&mut self, pid: Pid, pc: VirtualAddress) -> Option<Place> {
        let mapping = self.spaces.find(pid, pc)?;
        let (target, offset) = (mapping.target.0, mapping.offset_of(pc));
        Some(match self.targets[target as usize] {
            // Another process may have other code at the same address.
            Target::Anonymous(owner) => (self.intern(Target::Jit { process: pid, owner }), pc.as_offset()),
            _ => (target, offset),
        })
    }

    /// Returns target and offset of an address in the kernel; `None` if no mapping reports it.
    pub(super) fn kernel_place(&mut self, pc: VirtualAddress) -> Option<Place> {
        let place = self.kernel.layout.place(pc, Interval { since_ns: 0, until_ns: u64::MAX })?;
        let target = match place.module {
            None => self.kernel_target(),
            Some(name) => self.intern(Target::module(&name)),
        };
        Some((target, place.offset))
    }

    /// Returns the place of an address that belongs to nothing. It may be one of a process, or of whatever else the format has.
    pub(super) fn unknown_place(&mut self, address: u64) -> Place {
        (self.intern(Target::Other("unknown")), address)
    }

    /// Returns a file with the build ID that its mapping or the profile's list reports.
    pub(super) fn identified(&self, named: &Named) -> Named {
        let known = DsoKey::detect(&named.path, CpuMode::User).and_then(|key| self.build_id(&key));
        Named { path: named.path.clone(), build_id: named.build_id.clone().or(known.cloned()) }
    }

    /// Returns whether the profile was recorded on x86-64, or does not say.
    pub(super) fn is_x86_64(&self) -> bool {
        self.origin.arch.as_ref().is_none_or(|arch| arch == "x86_64")
    }

    /// Counts a sample at a target and offset, and returns them; without a place it is counted as unknown, at its address.
    pub(super) fn count(
        &mut self,
        event: usize,
        execution: ExecutionId,
        place: Option<Place>,
        address: u64,
        period: u64,
    ) -> Place {
        self.count_many(event, execution, place, address, period, 1)
    }

    /// Counts `samples` samples at a place, with `periods` in all, like `count`.
    pub(super) fn count_many(
        &mut self,
        event: usize,
        execution: ExecutionId,
        place: Option<Place>,
        address: u64,
        periods: u64,
        samples: u64,
    ) -> Place {
        let unknown = place.is_none();
        let (target, offset) = place.unwrap_or_else(|| self.unknown_place(address));
        let tally = &mut self.events[event];
        let (period, first) = (periods / samples.max(1), tally.samples == 0);
        tally.samples = tally.samples.saturating_add(samples);
        tally.unknown = tally.unknown.saturating_add(if unknown { samples } else { 0 });
        tally.periods += u128::from(periods);
        tally.period_min = if first { period } else { tally.period_min.min(period) };
        tally.period_max = tally.period_max.max(period);
        let hint = target ^ execution.0 << 2;
        self.sums.add(Slot { target, execution, event: event as u16 }, hint, offset, periods);
        (target, offset)
    }

    /// Chooses a possible source for the names of the kernel's functions, from what the profile reports before its
    /// records.
    pub(super) fn look_for_kallsyms(&mut self, request: &ImportFile) {
        let kernel = self.build_id(&DsoKey::Kernel);
        self.kernel.kallsyms =
            Kallsyms::choose(request.kallsyms.as_deref(), kernel, self.origin.release.as_deref());
    }

    /// Starts to read the names of the kernel's functions.
    fn read_kallsyms(&mut self) {
        self.kernel.names = self.kernel.kallsyms.clone().map(Kallsyms::read);
    }

    /// Returns the names of the kernel's functions, or why there are none.
    pub(super) fn kernel_names(&mut self, request: &ImportFile) -> Result<KernelNames, String> {
        if self.kernel.names.is_none() {
            self.look_for_kallsyms(request);
            self.read_kallsyms();
        }
        let reading = self.kernel.names.take().ok_or(IS_ELSEWHERE)?;
        reading.join(self.kernel.layout.text)
    }

    pub(super) fn build_id(&self, key: &DsoKey) -> Option<&BuildId> {
        self.build_ids.iter().find(|(k, _)| k == key).map(|(_, id)| id)
    }
}

/// Returns the process with the number in a record.
pub(super) fn pid_of(number: i32) -> Pid {
    Pid(number as u32)
}
