//! What a probe costs: measured on a function of our own, which the same payload probes in this process.
//!
//! Enters: nothing. Leaves: the time that a probe adds to a call, and the part of it that falls into the call's own wall time and
//! is taken out of it. Deep call paths cost about a nanosecond a frame more.

use std::{
    fs::File,
    io,
    os::fd::{FromRawFd, OwnedFd},
    ptr,
    time::Instant,
};

use crate::{
    patch::{
        from_image::IndirectJumps,
        function_code::{FunctionCode, Part},
        plan::plan,
        trampoline::{Payload, assemble, jump},
    },
    process::payload,
    shared_memory::{Metrics, SharedMemory},
};

/// Calls of a measurement. The shortest of several is used, since other load can only lengthen one.
const CALLS: u32 = 2000;
const TIMES: u32 = 9;
/// push rbp; mov rbp, rsp; nop; nop; pop rbp; ret; padding.
const FUNCTION: [u8; 16] =
    [0x55, 0x48, 0x89, 0xe5, 0x90, 0x90, 0x5d, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc];
const FUNCTION_BYTES: usize = 8;
/// Where parts are in the memory of the measurement.
const PAYLOAD_AT: usize = 0x1000;
const TRAMPOLINES_AT: usize = 0x8000;
const BYTES: usize = 0x10000;

/// The cost of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Time in ns that a probe adds to a call.
    pub overhead_ns: f64,
    /// Ticks that it adds to the wall time of a call.
    pub inner_ticks: u64,
}

/// Measures the cost of a probe that measures this.
pub fn calibrate(metrics: Metrics, ns_per_tick: f64) -> io::Result<Calibration> {
    let memory = Memory::new()?;
    let mut shared = SharedMemory::create(memfd()?, 4096, ns_per_tick)?;
    shared.add_images(&[])?;
    shared.set_function(0, metrics);
    let gate: Box<[u64; 1]> = Box::new([shared.address()]);
    memory.put(0, &FUNCTION);
    memory.make_executable(true)?;
    let before_ns = memory.ns_per_call();
    memory.make_executable(false)?;
    let at = |offset: usize| memory.address() + offset as u64;
    memory.put(PAYLOAD_AT, payload::CODE);
    let part = Part { address: at(0), bytes: FUNCTION.to_vec(), length: FUNCTION_BYTES };
    let code = FunctionCode::decode(vec![part], IndirectJumps::default()).map_err(io::Error::other)?;
    let payload = Payload {
        gate: gate.as_ptr() as u64,
        enter: at(PAYLOAD_AT) + payload::ENTER_AT,
        leave: at(PAYLOAD_AT) + payload::LEAVE_AT,
    };
    let mut next = TRAMPOLINES_AT;
    for region in plan(&code, metrics.returns).map_err(io::Error::other)? {
        let trampoline = assemble(&region, 0, payload, at(next)).map_err(io::Error::other)?;
        memory.put(next, &trampoline.code);
        let from = (region.address - memory.address()) as usize;
        memory.put(from, &jump(region.address, at(next)).expect("they are close"));
        next += trampoline.code.len().next_multiple_of(16);
    }
    memory.make_executable(true)?;
    let after_ns = memory.ns_per_call();
    let walls = shared.snapshot().paths.into_iter().map(|path| path.wall.quantile(0.5).unwrap_or(0));
    let own_ticks = (before_ns / ns_per_tick) as u64;
    Ok(Calibration {
        overhead_ns: (after_ns - before_ns).max(0.0),
        inner_ticks: walls.min().unwrap_or(0).saturating_sub(own_ticks),
    })
}

fn memfd() -> io::Result<File> {
    // SAFETY: the name is a live string.
    let fd = unsafe { libc::memfd_create(c"dwell-calibration".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor, so nobody else owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Memory that is either writable or executable.
struct Memory {
    base: *mut u8,
}

impl Memory {
    fn new() -> io::Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Memory { base: base.cast() })
    }

    fn address(&self) -> u64 {
        self.base as u64
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= BYTES);
        // SAFETY: within the mapping, which is writable now and which nobody else knows.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at), bytes.len()) };
    }

    fn make_executable(&self, is_executable: bool) -> io::Result<()> {
        let protection = if is_executable { libc::PROT_EXEC } else { libc::PROT_WRITE };
        // SAFETY: our own mapping, in which no thread executes at this moment.
        match unsafe { libc::mprotect(self.base.cast(), BYTES, libc::PROT_READ | protection) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Calls the function at the beginning, which is complete and executable.
    fn ns_per_call(&self) -> f64 {
        // SAFETY: a function without arguments and results is there.
        let function = unsafe { std::mem::transmute::<*mut u8, extern "C" fn()>(self.base) };
        let measure = || {
            let begin = Instant::now();
            (0..CALLS).for_each(|_| function());
            begin.elapsed()
        };
        let shortest = (0..TIMES).map(|_| measure()).min().unwrap_or_default();
        shortest.as_nanos() as f64 / f64::from(CALLS)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by us; no thread executes in it.
        unsafe { libc::munmap(self.base.cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_memory::measure_ns_per_tick;

    #[test]
    fn a_probe_costs_some_nanoseconds() {
        let ns_per_tick = measure_ns_per_tick();
        let all = Metrics { returns: true, wall: true, cpu: true, blocked: true };
        let cost = calibrate(all, ns_per_tick).unwrap();
        assert!(cost.overhead_ns > 1.0 && cost.overhead_ns < 2000.0, "{cost:?}");
        assert!((cost.inner_ticks as f64 * ns_per_tick) < cost.overhead_ns + 50.0, "{cost:?}");
        let calls = calibrate(Metrics::default(), ns_per_tick).unwrap();
        assert_eq!(calls.inner_ticks, 0);
    }
}
