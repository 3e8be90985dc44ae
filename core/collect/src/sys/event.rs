//! Opening, switching and reading perf events.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use dwell_profile::{CpuId, Tid};
use perf_event_open_sys::{self as perf, bindings as abi};
use rustix::thread::sched_getcpu;

use crate::source::times::EventTimes;

/// Registers in samples: all general ones and the flags, in the order in which the kernel dumps them (ascending bits
/// of `enum perf_event_x86_regs`: AX BX CX DX SI DI BP SP IP FLAGS, then R8…R15). The user's IP is that of the sample
/// only outside the kernel.
#[cfg(target_arch = "x86_64")]
pub const REGISTER_MASK: u64 = 0x3ff | 0xff << 16;
/// `enum perf_event_arm_regs`: X0…X29 LR SP PC.
#[cfg(target_arch = "aarch64")]
pub const REGISTER_MASK: u64 = (1 << 33) - 1;
/// No registers: branch outcomes are interpreted on x86-64 and AArch64 only.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub const REGISTER_MASK: u64 = 0;

/// What to count, as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// `PERF_TYPE_HARDWARE` or `PERF_TYPE_SOFTWARE`, `PERF_TYPE_HW_CACHE`.
    pub kind: u32,
    /// Which of that type.
    pub config: u64,
}

impl Counter {
    /// The timer that runs while a CPU is not idle.
    pub const CPU_CLOCK: Counter =
        Counter { kind: abi::PERF_TYPE_SOFTWARE, config: abi::PERF_COUNT_SW_CPU_CLOCK as u64 };
}

/// How an event is opened.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// What to count.
    pub counter: Counter,
    /// Occurrences between two samples.
    pub period: u64,
    /// Leave out the kernel and the hypervisor.
    pub exclude_kernel: bool,
    /// Leave out the idle task.
    pub exclude_idle: bool,
    /// Children count too.
    pub inherit: bool,
    /// Start with the next exec of the task.
    pub enable_on_exec: bool,
    /// Report mappings, executions, forks and exits.
    pub side_band: bool,
    /// Report build IDs with mappings (Linux 5.12).
    pub build_ids: bool,
    /// Count what the event could not write (Linux 6.0): see [`Counts::lost`].
    pub lost: bool,
    /// Samples, if there are any, are a BPF program's, and none is written: what they hold need not be found out. Linux does
    /// so before it runs the program, which is told nothing of it, by code and from structures that are in no cache
    /// (docs/benchmarks.md).
    pub for_program: bool,
    /// How precisely a sample is to tell the instruction: `precise_ip`.
    pub precise: u8,
    /// Sample the user's registers.
    pub registers: bool,
    /// Sample the last branches that user code took.
    pub branch_stacks: bool,
    /// Bytes in the ring that wake the reader.
    pub watermark_bytes: u32,
}

/// The most that `precise_ip` is asked for: the instruction itself. Elsewhere kernels take the wish and ignore it
/// (drivers/perf/arm_pmu.c never looks at it), so that one that was accepted would tell nothing.
const PRECISE_MAX: u8 = if cfg!(target_arch = "x86_64") { 2 } else { 0 };

/// What an event tells of itself.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// For how long it counted.
    pub times: EventTimes,
    /// Records that found no room, if it was opened to count them.
    pub lost: u64,
}

/// An open event, disabled until [`PerfEvent::enable`] or, if so asked, the next exec.
pub struct PerfEvent {
    fd: OwnedFd,
}

impl PerfEvent {
    /// Opens an event for `task` (`None`: whatever runs) on `cpu`.
    pub fn open(attributes: &Attributes, task: Option<Tid>, cpu: CpuId) -> io::Result<Self> {
        let mut attr = attributes.to_abi();
        let pid = task.map_or(-1, |t| t.0 as libc::pid_t);
        let flags = libc::c_ulong::from(abi::PERF_FLAG_FD_CLOEXEC);
        // SAFETY: `attr` is a live, initialized perf_event_attr whose `size` is its own; the kernel writes at most
        // its `size` field.
        let fd = unsafe { perf::perf_event_open(&mut attr, pid, cpu.0 as libc::c_int, -1, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor, so nobody else owns it.
        Ok(PerfEvent { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// How precisely this machine tells what it sampled by a processor's counter, tried with one of this thread.
    pub fn precise_at_best(counter: Counter, period: u64) -> u8 {
        let opens = |precise: &u8| {
            let attributes = Attributes { precise: *precise, ..Attributes::of(counter, period) };
            PerfEvent::open(
                &Attributes { exclude_kernel: true, ..attributes },
                Some(Tid(0)),
                CpuId(sched_getcpu() as u32),
            )
            .is_ok()
        };
        (1..=PRECISE_MAX).rev().find(opens).unwrap_or(0)
    }

    /// An event that was opened otherwise.
    pub(super) fn of_descriptor(fd: OwnedFd) -> Self {
        PerfEvent { fd }
    }

    /// A stand-in for tests: not an event, but polled like one.
    #[cfg(test)]
    pub fn stand_in(fd: OwnedFd) -> Self {
        PerfEvent { fd }
    }

    /// The descriptor, for polling and mapping.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The id that its records carry.
    pub fn id(&self) -> io::Result<u64> {
        let mut id = 0;
        // SAFETY: PERF_EVENT_IOC_ID writes one u64 to the pointer, which is live.
        check(unsafe { perf::ioctls::ID(self.fd.as_raw_fd(), &mut id) })?;
        Ok(id)
    }

    /// What it tells of itself so far, of those who inherited it too. Interrupts its CPU.
    pub fn counts(&self) -> io::Result<Counts> {
        let mut bytes = [0; 32]; // Occurrences, time enabled, time running, and losses where they are counted.
        if rustix::io::read(&self.fd, &mut bytes)? < 24 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let number =
            |at: usize| u64::from_ne_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
        let times = EventTimes { enabled_ns: number(1), running_ns: number(2) };
        Ok(Counts { times, lost: number(3) })
    }

    /// Starts counting.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: takes no pointer.
        check(unsafe { perf::ioctls::ENABLE(self.fd.as_raw_fd(), 0) })
    }

    /// Stops counting.
    pub fn disable(&self) -> io::Result<()> {
        // SAFETY: takes no pointer.
        check(unsafe { perf::ioctls::DISABLE(self.fd.as_raw_fd(), 0) })
    }

    /// Replaces the period; the progress towards the next sample is lost (see `period.rs`).
    pub fn set_period(&self, period: u64) -> io::Result<()> {
        // The crate's type for this argument is a number, but the kernel takes a pointer to one.
        let pointer = (&raw const period).addr() as u64;
        // SAFETY: PERF_EVENT_IOC_PERIOD reads one u64 from the pointer, which is live.
        check(unsafe { perf::ioctls::PERIOD(self.fd.as_raw_fd(), pointer) })
    }

    /// Has a BPF program run at each overflow; whether it writes a sample is the program's to say from then on.
    pub fn set_bpf(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: the argument is a descriptor, not a pointer.
        check(unsafe { perf::ioctls::SET_BPF(self.fd.as_raw_fd(), program.as_raw_fd() as u32) })
    }

    /// Sends its records into the ring of `owner`, an event on the same CPU.
    pub fn set_output(&self, owner: &PerfEvent) -> io::Result<()> {
        // SAFETY: the argument is a descriptor, not a pointer.
        check(unsafe { perf::ioctls::SET_OUTPUT(self.fd.as_raw_fd(), owner.fd.as_raw_fd()) })
    }
}

impl Attributes {
    /// An event that samples places and no more.
    pub fn of(counter: Counter, period: u64) -> Self {
        Attributes {
            counter,
            period,
            exclude_kernel: false,
            exclude_idle: false,
            inherit: false,
            enable_on_exec: false,
            side_band: false,
            build_ids: false,
            lost: false,
            for_program: false,
            precise: 0,
            registers: false,
            branch_stacks: false,
            watermark_bytes: 1 << 20,
        }
    }

    /// Whether its records end in time and identifier. They do without only if nothing is left to write but throttling,
    /// which says both by itself, and losses, which the event counts. Precise samples are asked for their time by a clock
    /// that the processor cannot read, or it would gather many, to be handed over when their registers are long gone
    /// (arch/x86/events/intel/core.c, intel_pmu_large_pebs_flags).
    fn has_trailer(&self) -> bool {
        self.side_band || !self.for_program || !self.lost || self.precise > 0
    }

    fn to_abi(self) -> abi::perf_event_attr {
        let mut attr = abi::perf_event_attr {
            size: size_of::<abi::perf_event_attr>() as u32,
            type_: self.counter.kind,
            config: self.counter.config,
            clockid: libc::CLOCK_MONOTONIC,
            ..Default::default()
        };
        attr.__bindgen_anon_1.sample_period = self.period;
        attr.__bindgen_anon_2.wakeup_watermark = self.watermark_bytes;
        attr.set_watermark(1);
        attr.set_disabled(1);
        attr.set_use_clockid(1);
        attr.set_exclude_kernel(self.exclude_kernel.into());
        attr.set_exclude_hv(self.exclude_kernel.into());
        attr.set_exclude_idle(self.exclude_idle.into());
        attr.set_inherit(self.inherit.into());
        attr.set_enable_on_exec(self.enable_on_exec.into());
        attr.set_precise_ip(self.precise.into());
        if self.side_band {
            attr.set_mmap(1);
            attr.set_mmap2(1);
            attr.set_comm(1);
            attr.set_comm_exec(1);
            attr.set_task(1);
            attr.set_build_id(self.build_ids.into());
        }
        attr.read_format =
            u64::from(abi::PERF_FORMAT_TOTAL_TIME_ENABLED | abi::PERF_FORMAT_TOTAL_TIME_RUNNING);
        if self.lost {
            attr.read_format |= u64::from(abi::PERF_FORMAT_LOST);
        }
        if self.has_trailer() {
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_IDENTIFIER | abi::PERF_SAMPLE_TIME);
            attr.set_sample_id_all(1);
        }
        if !self.for_program {
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_IP | abi::PERF_SAMPLE_TID);
        }
        if self.registers && REGISTER_MASK != 0 {
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_REGS_USER);
            attr.sample_regs_user = REGISTER_MASK;
        }
        if self.branch_stacks {
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_BRANCH_STACK);
            attr.branch_sample_type = u64::from(abi::PERF_SAMPLE_BRANCH_USER | abi::PERF_SAMPLE_BRANCH_ANY);
        }
        attr
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precise_samples_carry_their_time() {
        let of = |precise| {
            let lone = Attributes { for_program: true, lost: true, ..Attributes::of(Counter::CPU_CLOCK, 1) };
            let attr = Attributes { precise, ..lone }.to_abi();
            (attr.precise_ip(), attr.sample_type & u64::from(abi::PERF_SAMPLE_TIME) != 0)
        };
        assert_eq!([0, 1, 2].map(of), [(0, false), (1, true), (2, true)]);
    }
}
