//! Gives an emulated thread the effects of the system calls that the thread itself made meanwhile.
//!
//! Enters: the calls that the thread made since it was released, with its registers and what they wrote. Leaves: the same registers and
//! memory in the emulated thread. Never here: how calls are observed ([`crate::sys::tracer`]).
//!
//! A call has an effect only if the emulated thread makes the same one with the same registers: otherwise emulation went astray. Calls
//! whose effect on memory is unknown have none, and emulation ends there.

use super::{
    End, RDI, RSI, Thread,
    memory::{Fetch, Memory, PAGE_BYTES},
};

const RAX: usize = 0;
const RCX: usize = 1;
const RDX: usize = 2;
const R8: usize = 8;
const R10: usize = 10;
const R11: usize = 11;
/// Results that are errors, and those of them that the kernel replaces before the thread sees them.
const ERRORS: std::ops::Range<i64> = -4095..0;
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;
/// Most bytes that calls write which are copied.
pub const BYTES_MAX: usize = 128 << 10;

/// A system call that returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub number: u64,
    /// The general registers when it returned, by their number in the instruction set.
    pub general: [u64; 16],
    /// The memory that it wrote, from an address on; `None` if that is unknown.
    pub written: Option<(u64, Vec<u8>)>,
}

/// This is a part of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    pub address: u64,
    pub length: usize,
}

/// An effect is what a call does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The call writes these bytes, perhaps none.
    Writes(Bytes),
    /// These bytes are zero from now on.
    Zeros(Bytes),
    /// The heap ends here from now on, and what is new of it is zero.
    Break(u64),
    /// The first bytes are where the second ones are from now on, as many as both have, and zero follows.
    Moves(Bytes, Bytes),
    Unknown,
}

impl Effect {
    const NOTHING: Effect = Effect::Writes(Bytes { address: 0, length: 0 });

    /// Returns what a call did, by its number and the registers when it returned.
    pub fn of(number: u64, general: &[u64; 16]) -> Effect {
        let result = general[RAX] as i64;
        if RESTARTS.contains(&result) {
            return Effect::Unknown;
        }
        if ERRORS.contains(&result) {
            return Effect::NOTHING;
        }
        let [first, second, third, fourth, fifth] =
            [general[RDI], general[RSI], general[RDX], general[R10], general[R8]];
        let writes = |address: u64, length: u64| match usize::try_from(length) {
            Ok(length) if address == 0 || length <= BYTES_MAX => {
                Effect::Writes(Bytes { address, length: if address == 0 { 0 } else { length } })
            }
            _ => Effect::Unknown,
        };
        let Ok(number) = libc::c_long::try_from(number) else { return Effect::Unknown };
        match number {
            libc::SYS_read | libc::SYS_pread64 | libc::SYS_getdents64 | libc::SYS_readlink => {
                writes(second, result as u64)
            }
            libc::SYS_getrandom | libc::SYS_getcwd => writes(first, result as u64),
            libc::SYS_readlinkat => writes(third, result as u64),
            libc::SYS_fstat | libc::SYS_stat | libc::SYS_lstat => {
                writes(second, size_of::<libc::stat>() as u64)
            }
            libc::SYS_newfstatat => writes(third, size_of::<libc::stat>() as u64),
            libc::SYS_statx => writes(fifth, size_of::<libc::statx>() as u64),
            libc::SYS_clock_gettime | libc::SYS_clock_getres => {
                writes(second, size_of::<libc::timespec>() as u64)
            }
            // The zone, which is obsolete, is unknown.
            libc::SYS_gettimeofday if second == 0 => writes(first, size_of::<libc::timeval>() as u64),
            libc::SYS_getrusage => writes(second, size_of::<libc::rusage>() as u64),
            libc::SYS_times => writes(first, size_of::<libc::tms>() as u64),
            libc::SYS_poll | libc::SYS_ppoll => {
                writes(first, second.saturating_mul(size_of::<libc::pollfd>() as u64))
            }
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait => {
                writes(second, (result as u64).saturating_mul(size_of::<libc::epoll_event>() as u64))
            }
            // The sender's address, if it is wanted, is unknown.
            libc::SYS_recvfrom if fifth == 0 => writes(second, result as u64),
            libc::SYS_sigaltstack => writes(second, size_of::<libc::stack_t>() as u64),
            libc::SYS_prlimit64 => writes(fourth, size_of::<libc::rlimit>() as u64),
            libc::SYS_sched_getaffinity => writes(third, result as u64),
            libc::SYS_rt_sigprocmask => writes(third, fourth),
            // The handler, flags, its restorer, and the mask.
            libc::SYS_rt_sigaction => writes(third, 24 + fourth),
            libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_pwrite64
            | libc::SYS_lseek
            | libc::SYS_open
            | libc::SYS_openat
            | libc::SYS_close
            | libc::SYS_access
            | libc::SYS_faccessat
            | libc::SYS_fadvise64
            | libc::SYS_ftruncate
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_dup
            | libc::SYS_dup2
            | libc::SYS_getpid
            | libc::SYS_gettid
            | libc::SYS_getppid
            | libc::SYS_getuid
            | libc::SYS_geteuid
            | libc::SYS_getgid
            | libc::SYS_getegid
            | libc::SYS_unlink
            | libc::SYS_unlinkat
            | libc::SYS_rename
            | libc::SYS_renameat
            | libc::SYS_mkdir
            | libc::SYS_fallocate
            | libc::SYS_flock
            | libc::SYS_sendto
            | libc::SYS_sched_yield
            | libc::SYS_nanosleep
            | libc::SYS_clock_nanosleep
            | libc::SYS_mprotect
            | libc::SYS_munmap => Effect::NOTHING,
            // These write nothing themselves. What other threads write meanwhile is noticed if it matters.
            libc::SYS_futex
                if matches!(
                    second as i32 & libc::FUTEX_CMD_MASK,
                    libc::FUTEX_WAIT
                        | libc::FUTEX_WAKE
                        | libc::FUTEX_REQUEUE
                        | libc::FUTEX_CMP_REQUEUE
                        | libc::FUTEX_WAIT_BITSET
                        | libc::FUTEX_WAKE_BITSET
                ) =>
            {
                Effect::NOTHING
            }
            libc::SYS_fcntl
                if matches!(second as i32, libc::F_GETFL | libc::F_SETFL | libc::F_GETFD | libc::F_SETFD) =>
            {
                Effect::NOTHING
            }
            libc::SYS_mmap if fourth as i32 & libc::MAP_ANONYMOUS != 0 => {
                Effect::Zeros(Bytes { address: general[RAX], length: second as usize })
            }
            libc::SYS_mmap => Effect::NOTHING,
            libc::SYS_madvise => match third as i32 {
                libc::MADV_DONTNEED => Effect::Zeros(Bytes { address: first, length: second as usize }),
                libc::MADV_NORMAL
                | libc::MADV_SEQUENTIAL
                | libc::MADV_RANDOM
                | libc::MADV_WILLNEED
                | libc::MADV_HUGEPAGE
                | libc::MADV_NOHUGEPAGE => Effect::NOTHING,
                _ => Effect::Unknown,
            },
            // Without a length it maps the same memory once more.
            libc::SYS_mremap if second > 0 && fourth as i32 & libc::MREMAP_DONTUNMAP == 0 => Effect::Moves(
                Bytes { address: first, length: second as usize },
                Bytes { address: general[RAX], length: third as usize },
            ),
            libc::SYS_brk => Effect::Break(general[RAX]),
            _ => Effect::Unknown,
        }
    }
}

/// The next calls of a thread, as far as they are known.
#[derive(Debug, Default)]
pub struct Calls {
    next: std::vec::IntoIter<Call>,
    made: usize,
    /// The address at which the heap ends, if it is known.
    heap_end: Option<u64>,
}

impl Calls {
    /// Creates the list of calls in their order.
    pub fn new(calls: Vec<Call>, heap_end: Option<u64>) -> Calls {
        Calls { next: calls.into_iter(), made: 0, heap_end }
    }

    /// Returns the number of calls that were made.
    pub fn made(&self) -> usize {
        self.made
    }
}

impl<F: Fetch> Thread<F> {
    /// Makes the system call that is next, as the thread itself made it. `next` is the address of the instruction after it.
    pub(super) fn call(&mut self, next: u64) -> Result<(), End> {
        let Some(call) = self.calls.next.next() else { return Err(End::SystemCall) };
        let general = &mut self.registers.general;
        let is_same = |register: usize| match register {
            // The number is of 32 bits.
            RAX => general[RAX] as u32 == call.number as u32,
            // The kernel leaves other values there.
            RCX | R11 => true,
            _ => general[register] == call.general[register],
        };
        if !(0..16).all(is_same) || call.general[RCX] != next {
            return Err(End::Differs);
        }
        *general = call.general;
        self.calls.made += 1;
        match (Effect::of(call.number, &call.general), call.written) {
            (Effect::Writes(_), Some((address, bytes))) => write(&mut self.memory, address, &bytes)?,
            (Effect::Zeros(bytes), _) => self.memory.zero(bytes.address, bytes.length),
            (Effect::Moves(from, to), _) => {
                self.memory.relocate(from.address, from.length, to.address, to.length)?
            }
            (Effect::Break(end), _) => {
                let before = self.calls.heap_end.replace(end).ok_or(End::SystemCall)?;
                let start = before.next_multiple_of(PAGE_BYTES as u64);
                self.memory.zero(start, end.saturating_sub(start) as usize);
            }
            _ => return Err(End::SystemCall),
        }
        Ok(())
    }
}

fn write<F: Fetch>(memory: &mut Memory<F>, address: u64, bytes: &[u8]) -> Result<(), End> {
    for (part, bytes) in bytes.chunks(PAGE_BYTES).enumerate() {
        memory.write(address.wrapping_add((part * PAGE_BYTES) as u64), bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(number: libc::c_long, result: i64, arguments: [u64; 5]) -> Effect {
        let mut general = [0; 16];
        general[RAX] = result as u64;
        [RDI, RSI, RDX, R10, R8].into_iter().zip(arguments).for_each(|(at, value)| general[at] = value);
        Effect::of(number as u64, &general)
    }

    #[test]
    fn effects_follow_from_arguments_and_result() {
        let writes = |address, length| Effect::Writes(Bytes { address, length });
        assert_eq!(effect(libc::SYS_read, 5, [3, 0x1000, 100, 0, 0]), writes(0x1000, 5));
        assert_eq!(effect(libc::SYS_read, -11, [3, 0x1000, 100, 0, 0]), Effect::NOTHING);
        assert_eq!(effect(libc::SYS_read, -512, [3, 0x1000, 100, 0, 0]), Effect::Unknown);
        assert_eq!(effect(libc::SYS_read, 1 << 30, [3, 0x1000, 1 << 30, 0, 0]), Effect::Unknown);
        assert_eq!(effect(libc::SYS_clock_gettime, 0, [1, 0x2000, 0, 0, 0]), writes(0x2000, 16));
        assert_eq!(effect(libc::SYS_rt_sigprocmask, 0, [0, 0x2000, 0, 8, 0]), Effect::NOTHING);
        assert_eq!(effect(libc::SYS_brk, 0x5000, [0x5000, 0, 0, 0, 0]), Effect::Break(0x5000));
        let anonymous = u64::from(libc::MAP_ANONYMOUS as u32);
        let zeros = Effect::Zeros(Bytes { address: 0x7000, length: 0x3000 });
        assert_eq!(effect(libc::SYS_mmap, 0x7000, [0, 0x3000, 3, anonymous, 0]), zeros);
        assert_eq!(effect(libc::SYS_madvise, 0, [0x7000, 0x3000, 4, 0, 0]), zeros);
        let moves = |from, to, length| {
            Effect::Moves(Bytes { address: from, length: 0x3000 }, Bytes { address: to, length })
        };
        assert_eq!(
            effect(libc::SYS_mremap, 0x9000, [0x7000, 0x3000, 0x5000, 1, 0]),
            moves(0x7000, 0x9000, 0x5000)
        );
        assert_eq!(effect(libc::SYS_futex, 1, [0x7000, 1, 1, 0, 0]), Effect::NOTHING);
        let unlock_pi = libc::FUTEX_UNLOCK_PI as u64;
        assert_eq!(effect(libc::SYS_futex, 0, [0x7000, unlock_pi, 0, 0, 0]), Effect::Unknown);
        assert_eq!(effect(libc::SYS_mremap, 0x9000, [0x7000, 0, 0x5000, 1, 0]), Effect::Unknown);
        assert_eq!(effect(libc::SYS_recvfrom, 5, [3, 0x1000, 100, 0, 0x2000]), Effect::Unknown);
        assert_eq!(effect(libc::SYS_clone, 0, [0x7000, 0, 0, 0, 0]), Effect::Unknown);
        assert_eq!(effect(-1, 0, [0; 5]), Effect::Unknown);
    }
}
