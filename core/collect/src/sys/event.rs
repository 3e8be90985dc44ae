//! Opens, controls and reads perf events.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use dwell_profile::{CpuId, Tid};
use perf_event_open_sys::{self as perf, bindings as abi};
use rustix::thread::sched_getcpu;

use crate::sys::event_times::EventTimes;

/// Registers in samples: all general-purpose ones and the flags, in the order in which the kernel dumps them (ascending bits
/// of `enum perf_event_x86_regs`: AX BX CX DX SI DI BP SP IP FLAGS, then R8…R15). The user's IP equals that of the sample
/// only outside the kernel.
#[cfg(target_arch = "x86_64")]
pub const REGISTER_MASK: u64 = 0x3ff | 0xff << 16;
/// Registers in samples, by the bits of `enum perf_event_arm_regs`: X0…X29 LR SP PC.
#[cfg(target_arch = "aarch64")]
pub const REGISTER_MASK: u64 = (1 << 33) - 1;
/// Registers in samples: none, since branch outcomes are interpreted on x86-64 and AArch64 only.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub const REGISTER_MASK: u64 = 0;

/// An event in the kernel's numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The event's type: `PERF_TYPE_HARDWARE`, `PERF_TYPE_SOFTWARE`, `PERF_TYPE_HW_CACHE` or `PERF_TYPE_TRACEPOINT`.
    pub kind: u32,
    /// The event's number within its type.
    pub config: u64,
}

impl Counter {
    /// The timer that runs while a CPU is not idle.
    pub const CPU_CLOCK: Counter =
        Counter { kind: abi::PERF_TYPE_SOFTWARE, config: abi::PERF_COUNT_SW_CPU_CLOCK as u64 };
    /// The accesses for which the kernel had to find a page.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub const PAGE_FAULTS: Counter =
        Counter { kind: abi::PERF_TYPE_SOFTWARE, config: abi::PERF_COUNT_SW_PAGE_FAULTS as u64 };

    /// Returns the event of a tracepoint, by its id.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub fn of_tracepoint(id: u64) -> Counter {
        Counter { kind: abi::PERF_TYPE_TRACEPOINT, config: id }
    }
}

/// The attributes that an event is opened with.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// The event to count.
    pub counter: Counter,
    /// Number of occurrences between two samples.
    pub period: u64,
    /// Exclude the kernel and the hypervisor.
    pub exclude_kernel: bool,
    /// Exclude the idle task.
    pub exclude_idle: bool,
    /// Count in children as well.
    pub inherit: bool,
    /// Start at the next exec of the task.
    pub enable_on_exec: bool,
    /// Report mappings, executions, forks and exits.
    pub side_band: bool,
    /// Report build IDs with mappings (needs Linux 5.12).
    pub build_ids: bool,
    /// Count the records that the event could not write (needs Linux 6.0): see [`Counts::lost`].
    pub lost: bool,
    /// A BPF program takes the samples, if there are any, and none is written to a ring, so the kernel need not collect
    /// their contents. Linux collects them before it runs the program, which cannot see them, with code and structures that
    /// are in no cache (docs/benchmarks.md).
    pub for_program: bool,
    /// The requested precision of a sample's instruction: `precise_ip`.
    pub precise: u8,
    /// Sample the user-mode registers.
    pub registers: bool,
    /// Sample how long the event was enabled, and counted, so far.
    pub times: bool,
    /// Sample the counts of the event and of those in its group with these times, after them.
    pub group: bool,
    /// Sample what a tracepoint reports.
    pub fields: bool,
    /// Sample the last branches that user code took.
    pub branch_stacks: bool,
    /// Sample this many bytes of the user's stack, and the calls in the kernel; 0: neither. A multiple of 8.
    pub call_stack_bytes: u32,
    /// Sample this many bytes of the user's stack alone; 0: none. A multiple of 8.
    pub stack_bytes: u32,
    /// Record when a thread gets a CPU and when it leaves it.
    pub context_switches: bool,
    /// Number of bytes in the ring that wake the reader.
    pub watermark_bytes: u32,
}

/// The highest `precise_ip` that is requested: the exact instruction. Kernels of other architectures accept any value and
/// ignore it (drivers/perf/arm_pmu.c never reads it), so its acceptance would prove nothing.
const PRECISE_MAX: u8 = if cfg!(target_arch = "x86_64") { 2 } else { 0 };

/// The counts that an event keeps of itself.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// How long it was enabled and counted.
    pub times: EventTimes,
    /// Number of records that found no room, if the event was opened to count them.
    pub lost: u64,
}

/// An open event. It is disabled until [`PerfEvent::enable`], or until the next exec if that was requested.
pub struct PerfEvent {
    fd: OwnedFd,
}

impl PerfEvent {
    /// Opens an event for `task` on `cpu`; `None` means every task on that CPU.
    pub fn open(attributes: &Attributes, task: Option<Tid>, cpu: CpuId) -> io::Result<Self> {
        PerfEvent::open_in(attributes, task, cpu, None)
    }

    /// Opens an event in the group of another one, for the same task and CPU.
    pub fn open_in(
        attributes: &Attributes,
        task: Option<Tid>,
        cpu: CpuId,
        leader: Option<&PerfEvent>,
    ) -> io::Result<Self> {
        let mut attr = attributes.to_abi();
        let pid = task.map_or(-1, |t| t.0 as libc::pid_t);
        let group = leader.map_or(-1, |leader| leader.fd.as_raw_fd());
        let flags = libc::c_ulong::from(abi::PERF_FLAG_FD_CLOEXEC);
        // SAFETY: `attr` is a live, initialized perf_event_attr whose `size` is its own; the kernel writes at most
        // its `size` field.
        let fd = unsafe { perf::perf_event_open(&mut attr, pid, cpu.0 as libc::c_int, group, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor, so nobody else owns it.
        Ok(PerfEvent { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Returns the highest `precise_ip` that this machine supports for a processor counter, by opening events for this
    /// thread.
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

    /// Wraps the descriptor of an event that was opened elsewhere.
    pub(super) fn of_descriptor(fd: OwnedFd) -> Self {
        PerfEvent { fd }
    }

    /// Wraps a descriptor that is no event but can be polled like one, for tests.
    #[cfg(test)]
    pub fn stand_in(fd: OwnedFd) -> Self {
        PerfEvent { fd }
    }

    /// Returns the descriptor, for polling and mapping.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Returns the id that the event's records carry.
    pub fn id(&self) -> io::Result<u64> {
        let mut id = 0;
        // SAFETY: PERF_EVENT_IOC_ID writes one u64 to the pointer, which is live.
        check(unsafe { perf::ioctls::ID(self.fd.as_raw_fd(), &mut id) })?;
        Ok(id)
    }

    /// Returns the counts so far, including those of tasks that inherited the event. Interrupts the event's CPU.
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

    /// Replaces the period. The progress towards the next sample is lost (see `period.rs`).
    pub fn set_period(&self, period: u64) -> io::Result<()> {
        // The crate's type for this argument is a number, but the kernel takes a pointer to one.
        let pointer = (&raw const period).addr() as u64;
        // SAFETY: PERF_EVENT_IOC_PERIOD reads one u64 from the pointer, which is live.
        check(unsafe { perf::ioctls::PERIOD(self.fd.as_raw_fd(), pointer) })
    }

    /// Makes a BPF program run at each overflow. From then on the program decides whether a sample is written.
    pub fn set_bpf(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: the argument is a descriptor, not a pointer.
        check(unsafe { perf::ioctls::SET_BPF(self.fd.as_raw_fd(), program.as_raw_fd() as u32) })
    }

    /// Redirects the event's records into the ring of `owner`, an event on the same CPU.
    pub fn set_output(&self, owner: &PerfEvent) -> io::Result<()> {
        // SAFETY: the argument is a descriptor, not a pointer.
        check(unsafe { perf::ioctls::SET_OUTPUT(self.fd.as_raw_fd(), owner.fd.as_raw_fd()) })
    }
}

impl Attributes {
    /// Attributes of an event that samples the place and nothing else.
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
            times: false,
            group: false,
            fields: false,
            branch_stacks: false,
            call_stack_bytes: 0,
            stack_bytes: 0,
            context_switches: false,
            watermark_bytes: 1 << 20,
        }
    }

    /// Returns whether the event's records end with time and identifier. These are left out only if the event writes nothing
    /// except throttling, whose records contain both, and losses, which the event counts. Precise samples need a time from a
    /// clock that the processor cannot read. Otherwise the processor would collect many samples and deliver them when the
    /// registers have other values (arch/x86/events/intel/core.c, intel_pmu_large_pebs_flags).
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
        attr.set_context_switch(self.context_switches.into());
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
        if self.group {
            attr.read_format |= u64::from(abi::PERF_FORMAT_GROUP);
        }
        if self.times {
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_READ);
        }
        if self.fields {
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_RAW);
        }
        if self.call_stack_bytes > 0 {
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_CALLCHAIN | abi::PERF_SAMPLE_STACK_USER);
            attr.sample_stack_user = self.call_stack_bytes;
        }
        if self.stack_bytes > 0 {
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_STACK_USER);
            attr.sample_stack_user = self.stack_bytes;
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
