//! Counts executions by hardware breakpoints, through perf: no thread is stopped, traced or written to.
//!
//! Enters: a thread and addresses in its process. Leaves: how often each was executed during an interval of its running
//! time. Never here: which addresses, and when.

use std::{
    fs::File,
    io::{self, Read},
    mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use dwell_profile::{Tid, VirtualAddress};
use perf_event_open_sys::{self as perf, bindings as abi};

use super::guard::Guard;

/// Number of breakpoints on every processor that has any (x86: four; a debugger may hold some).
pub const PLACES_MAX: usize = 4;
/// Number of calls by which the cost of one execution is measured. The shortest of [`TIMES`] measurements is used, since
/// other load can only lengthen one.
const CALLS: u32 = 80;
const TIMES: u32 = 5;

/// Breakpoints that count together. Dropping this removes them.
pub struct Breakpoints {
    /// The first one is the group's leader: one call switches all of them.
    files: Vec<File>,
}

/// The counts of an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Number of executions of each place.
    pub executions: Vec<u64>,
    /// How long the thread ran during the interval, in ns.
    pub running_ns: u64,
}

impl Breakpoints {
    /// Sets breakpoints in `thread`, which is guarded, at as many of `addresses` as there are free ones; they do not count yet. Returns an
    /// error if not even two are free, since a single one allows no comparison.
    pub fn set(_: &Guard, thread: Tid, addresses: &[VirtualAddress]) -> io::Result<Self> {
        Self::set_at_least(2, thread, addresses)
    }

    /// Sets breakpoints in `thread`, which is guarded, at all of these addresses. Returns an error, and sets none, if that is not possible.
    pub fn set_all(_: &Guard, thread: Tid, addresses: &[VirtualAddress]) -> io::Result<Self> {
        Self::set_at_least(addresses.len(), thread, addresses)
    }

    fn set_at_least(least: usize, thread: Tid, addresses: &[VirtualAddress]) -> io::Result<Self> {
        let mut files: Vec<File> = Vec::with_capacity(PLACES_MAX);
        for &address in addresses.iter().take(PLACES_MAX) {
            match open(thread, address, files.first()) {
                Ok(file) => files.push(file),
                Err(_) if files.len() >= least => break,
                Err(error) => return Err(error),
            }
        }
        Ok(Breakpoints { files })
    }

    /// Returns how many places are watched: this many of the first addresses.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Starts counting, at all places at once.
    pub fn start(&self) -> io::Result<()> {
        let Some(leader) = self.files.first() else { return Ok(()) };
        // SAFETY: takes no pointer.
        check(unsafe { perf::ioctls::ENABLE(leader.as_raw_fd(), abi::PERF_IOC_FLAG_GROUP) })
    }

    /// Stops counting and returns the counts.
    pub fn stop(&self) -> io::Result<Counts> {
        if let Some(leader) = self.files.first() {
            // SAFETY: takes no pointer.
            check(unsafe { perf::ioctls::DISABLE(leader.as_raw_fd(), abi::PERF_IOC_FLAG_GROUP) })?;
        }
        self.so_far()
    }

    /// Returns the counts so far.
    pub fn so_far(&self) -> io::Result<Counts> {
        let Some(leader) = self.files.first() else {
            return Ok(Counts { executions: Vec::new(), running_ns: 0 });
        };
        // The number of events, the time that they ran, and the count of each.
        let mut bytes = [0; 8 * (2 + PLACES_MAX)];
        let length = (&mut &*leader).read(&mut bytes)?;
        let number =
            |at: usize| bytes[..length].get(8 * at..8 * at + 8)?.try_into().ok().map(u64::from_ne_bytes);
        let executions: Option<Vec<u64>> = (0..self.files.len()).map(|place| number(2 + place)).collect();
        let counts =
            executions.zip(number(1)).map(|(executions, running_ns)| Counts { executions, running_ns });
        counts.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Measures the cost of one execution that a breakpoint counts, in ns of the thread's time, with a function of ours. Returns
/// an error where this machine or this user has no breakpoints. SIGTRAP is caught meanwhile: some hypervisors lose the cause of
/// a debug exception (DR6 is 0) if the virtual processor is interrupted at that moment, and Linux takes that for a trap of the
/// program. The threads of others are guarded against that (`guard.rs`).
pub fn cost_ns() -> io::Result<f64> {
    let address = VirtualAddress(watched as *const () as usize as u64);
    let traps = OwnTraps::catch()?;
    let own = Breakpoints::set_at_least(1, Tid(0), &[address])?;
    own.start()?;
    let of_calls = || {
        let start = Instant::now();
        (0..CALLS).for_each(|i| _ = watched(i));
        start.elapsed()
    };
    let least = (0..TIMES).map(|_| of_calls()).min().unwrap_or_default();
    let counts = own.stop()?;
    drop(traps);
    match counts.executions.first() {
        Some(&n) if n >= u64::from(CALLS * TIMES) => Ok(least.as_nanos() as f64 / f64::from(CALLS)),
        // The breakpoint was set but had no effect: an emulator, or a hypervisor that does not support breakpoints.
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Returns whether a breakpoint of ours was seen to end in SIGTRAP on this machine: see [`cost_ns`].
pub fn was_trapped() -> bool {
    TRAPPED.load(Ordering::Relaxed)
}

/// Returns whether this is a virtual machine, where debug exceptions may end the program that is watched: see [`cost_ns`] and
/// "Debug exceptions in a virtual machine" in docs/measured.md.
pub fn is_virtual_machine() -> bool {
    #[cfg(target_arch = "x86_64")]
    let is_virtual = std::arch::x86_64::__cpuid(1).ecx & 1 << 31 != 0;
    #[cfg(not(target_arch = "x86_64"))]
    let is_virtual = false;
    is_virtual
}

/// Whether a SIGTRAP came while [`OwnTraps`] caught them.
static TRAPPED: AtomicBool = AtomicBool::new(false);

/// Catches SIGTRAP of this process until it is dropped.
struct OwnTraps {
    before: libc::sigaction,
}

impl OwnTraps {
    fn catch() -> io::Result<Self> {
        extern "C" fn handler(_: libc::c_int) {
            TRAPPED.store(true, Ordering::Relaxed);
        }
        // SAFETY: both structures are zeroed and thereby valid; the handler only stores to an atomic.
        unsafe {
            let (mut ours, mut before): (libc::sigaction, libc::sigaction) = (mem::zeroed(), mem::zeroed());
            ours.sa_sigaction = handler as *const () as usize;
            check(libc::sigaction(libc::SIGTRAP, &raw const ours, &raw mut before))?;
            Ok(OwnTraps { before })
        }
    }
}

impl Drop for OwnTraps {
    fn drop(&mut self) {
        // SAFETY: `before` is what the kernel returned for this signal.
        unsafe { libc::sigaction(libc::SIGTRAP, &raw const self.before, std::ptr::null_mut()) };
    }
}

#[inline(never)]
extern "C" fn watched(i: u32) -> u32 {
    std::hint::black_box(i).wrapping_mul(3)
}

fn open(thread: Tid, address: VirtualAddress, leader: Option<&File>) -> io::Result<File> {
    let mut attr = abi::perf_event_attr {
        size: size_of::<abi::perf_event_attr>() as u32,
        type_: abi::PERF_TYPE_BREAKPOINT,
        bp_type: abi::HW_BREAKPOINT_X,
        read_format: u64::from(abi::PERF_FORMAT_GROUP | abi::PERF_FORMAT_TOTAL_TIME_RUNNING),
        ..Default::default()
    };
    attr.__bindgen_anon_3.bp_addr = address.0;
    attr.__bindgen_anon_4.bp_len = size_of::<libc::c_long>() as u64;
    attr.set_disabled(leader.is_none().into());
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    let group = leader.map_or(-1, AsRawFd::as_raw_fd);
    let flags = libc::c_ulong::from(abi::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is a live, initialized perf_event_attr whose `size` is its own; the kernel writes at most its `size`
    // field.
    let fd = unsafe { perf::perf_event_open(&mut attr, thread.0 as libc::pid_t, -1, group, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor, so nobody else owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    extern "C" fn rarely(i: u32) -> u32 {
        std::hint::black_box(i).wrapping_add(1)
    }

    #[inline(never)]
    extern "C" fn often(i: u32) -> u32 {
        std::hint::black_box(i).wrapping_sub(1)
    }

    #[test]
    fn executions_are_counted_exactly() {
        let name = "executions_are_counted_exactly";
        let places =
            [rarely as *const (), often as *const ()].map(|place| VirtualAddress(place as usize as u64));
        let set = match Breakpoints::set(&Guard::for_own_thread(), Tid(0), &places) {
            Ok(set) => set,
            Err(error) => return println!("SKIPPED {name}: {error}"),
        };
        assert_eq!(set.len(), 2);
        (0..5).for_each(|i| _ = often(i)); // not yet
        set.start().unwrap();
        for i in 0..30 {
            rarely(i);
            (0..7).for_each(|i| _ = often(i));
        }
        let counts = set.stop().unwrap();
        (0..5).for_each(|i| _ = often(i)); // no longer
        if counts.executions == [0, 0] {
            return println!("SKIPPED {name}: breakpoints are set without effect");
        }
        assert_eq!(counts.executions, [30, 210]);
        assert!(counts.running_ns > 0);
        assert_eq!(set.stop().unwrap().executions, [30, 210]);
    }

    #[test]
    fn breakpoints_of_a_missing_thread_are_refused() {
        let places = [VirtualAddress(0x1000), VirtualAddress(0x2000)];
        assert!(Breakpoints::set(&Guard::for_own_thread(), Tid(u32::MAX / 2), &places).is_err());
        let none = Breakpoints::set_at_least(0, Tid(0), &[]).unwrap();
        assert!(none.stop().unwrap().executions.is_empty());
    }
}
