//! Parser of the kernel's perf records: from the bytes of a ring buffer to validated values.
//!
//! Enters: the bytes of one `perf_event_header` and its body, as `perf_event_open(2)` lays them out for the sample type that
//! `sys::event` requests (IDENTIFIER | TIME; for samples that are written to the ring IP | TID, sometimes REGS_USER,
//! BRANCH_STACK for the event of branch stacks, and CALLCHAIN and STACK_USER for that of call stacks; `sample_id_all`), or for
//! events without any sample type. Leaves: [`Record`]s. Never here: a panic, whatever the bytes are; state.
//!
//! The length of a sample shows whether it carries registers, so no other record needs to be known. Whether it carries
//! branches or a stack depends on the event, which the caller knows: a sample with an empty branch stack looks like one
//! without registers.

use dwell_attribution::FileTag;
use dwell_profile::{BranchEntry, CpuId, Pid, Tid, VirtualAddress};
use perf_event_open_sys::bindings as abi;

use crate::registers::{REGISTER_COUNT, Registers};

/// Bytes of `perf_event_header`: type (u32), misc (u16), size (u16).
pub const HEADER_BYTES: usize = 8;
/// Bytes of the trailer that `sample_id_all` appends: time and identifier. The writer's pid and tid may precede it, behind
/// the body. They are skipped, since the bodies contain those that we need.
const TRAILER_BYTES: usize = 16;
/// Bytes of a record of losses behind its header: identifier and number. An event without `sample_id_all` writes no trailer,
/// so this is its whole record.
const LOST_BYTES: usize = 16;

/// A parsed record, with its time and the event that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// CLOCK_MONOTONIC in ns. 0 for records of losses that carry no time.
    pub time_ns: u64,
    /// The id of the event that wrote the record.
    pub event_id: u64,
    /// The content of the record.
    pub body: Body<'a>,
}

/// The content of a record, by its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// An instruction was sampled.
    Sample(Sample),
    /// An instruction was sampled, with its call stack.
    SampleWithStack(Sample, CallStack<'a>),
    /// The last taken branches of a thread.
    Branches(BranchStack<'a>),
    /// Executable memory was mapped.
    Mmap(Mmap<'a>),
    /// A task got a new name, by executing a program if `exec` is set.
    Comm {
        /// The process of the task.
        pid: Pid,
        /// The thread of the task.
        tid: Tid,
        /// Whether the task executed a new program.
        exec: bool,
        /// The bytes of the name.
        comm: &'a [u8],
    },
    /// A task was created.
    Fork {
        /// Process of the new task.
        pid: Pid,
        /// Process of its parent. Equal to `pid` if the new task is a thread.
        parent_pid: Pid,
        /// Thread of the new task.
        tid: Tid,
        /// The thread that created it.
        parent_tid: Tid,
    },
    /// A task ended.
    Exit {
        /// Process of the task.
        pid: Pid,
        /// Thread of the task.
        tid: Tid,
    },
    /// A thread got a CPU or left it.
    Switch {
        /// The process of the thread.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// Which of both happened.
        to: SwitchTo,
    },
    /// The ring was full: this many records are missing.
    Lost(u64),
    /// The counter overflowed while its buffer was full: this many samples are missing.
    LostSamples(u64),
    /// The kernel stopped the event for the rest of a timer tick.
    Throttle,
    /// The kernel resumed a throttled event.
    Unthrottle,
    /// A record of another type. The parser ignores its content.
    Other(u32),
}

/// The state that a thread changes to at a context switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchTo {
    /// The thread runs on a CPU.
    Running,
    /// The thread is off the CPU because it waits.
    Waiting,
    /// The thread is off the CPU although it is ready to run: another one runs.
    Ready,
}

/// A sampled instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The mode that the processor was in.
    pub mode: Mode,
    /// The virtual address of the sampled instruction.
    pub pc: VirtualAddress,
    /// The process that ran. `u32::MAX` if the task was past its end.
    pub pid: Pid,
    /// The thread that ran.
    pub tid: Tid,
    /// The CPU, where it is known.
    pub cpu: Option<CpuId>,
    /// The user-mode registers, where they were sampled and the task had any. They are boxed because records are moved when
    /// they are sorted.
    pub registers: Option<Box<Registers>>,
}

/// The call stack of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallStack<'a> {
    /// The kernel's call chain as it was written.
    chain: &'a [u8],
    /// The user's stack from the stack pointer on.
    pub user: &'a [u8],
    /// Whether as many bytes of the user's stack were copied as were requested, so it may go on.
    pub is_cut: bool,
}

impl CallStack<'_> {
    /// Iterates over the addresses of the kernel's call chain: the sampled one, then return addresses. Empty in user mode.
    pub fn kernel(&self) -> impl Iterator<Item = VirtualAddress> + '_ {
        self.chain_in(abi::PERF_CONTEXT_KERNEL)
    }

    /// Iterates over the addresses that the kernel found in user mode by following frame pointers: the user's pc, then what
    /// it took for return addresses.
    pub fn frame_pointers(&self) -> impl Iterator<Item = VirtualAddress> + '_ {
        self.chain_in(abi::PERF_CONTEXT_USER)
    }

    /// Iterates over the addresses behind a marker of the call chain, up to the next one.
    fn chain_in(&self, context: u64) -> impl Iterator<Item = VirtualAddress> + '_ {
        /// Values from this on are no addresses (`PERF_CONTEXT_MAX`). They say which stack follows.
        const CONTEXTS: u64 = -4095_i64 as u64;
        let words = self.chain.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        let behind = words.skip_while(move |word| *word != context).skip(1);
        behind.take_while(|word| *word < CONTEXTS).map(VirtualAddress)
    }
}

/// The optional fields of an event's samples, beside registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SampleFields {
    /// None.
    #[default]
    None,
    /// The last branches, and no registers.
    Branches,
    /// The call chain in the kernel, and a copy of the user's stack.
    CallStack,
}

/// The last branches that were taken before a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchStack<'a> {
    /// The process that ran.
    pub pid: Pid,
    /// The entries as the kernel wrote them.
    entries: &'a [u8],
}

impl BranchStack<'_> {
    /// Iterates over the source and target addresses of the branches that were executed, the latest first.
    pub fn taken(&self) -> impl Iterator<Item = (VirtualAddress, VirtualAddress)> + '_ {
        let entries = self.entries.chunks_exact(BranchEntry::BYTES).map_while(|entry| {
            let mut fields = Fields(entry);
            Some(BranchEntry { from: fields.address()?, to: fields.address()?, flags: fields.u64()? })
        });
        entries.filter(|entry| !entry.is_wrong_path()).map(|entry| (entry.from, entry.to))
    }
}

/// The processor's mode when the sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// User mode.
    User,
    /// Kernel mode.
    Kernel,
    /// Hypervisor mode.
    Hypervisor,
    /// Kernel mode of a guest.
    GuestKernel,
    /// User mode of a guest.
    GuestUser,
    /// The mode is not known.
    Unknown,
}

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mmap<'a> {
    /// The process.
    pub pid: Pid,
    /// First virtual address of the mapping.
    pub start: VirtualAddress,
    /// Length in bytes.
    pub length: u64,
    /// Offset in the file of the mapping's first byte.
    pub file_offset: u64,
    /// Whether the mapping is executable.
    pub executable: bool,
    /// The file that was mapped.
    pub file: FileTag<'a>,
    /// The path as the process sees it, or `//anon`, `[vdso]`, ….
    pub path: &'a [u8],
}

/// Why bytes could not be parsed as a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// There are fewer bytes than a header has, or the size in the header does not fit the bytes.
    #[error("a record has {given} bytes, but its header says {claimed}")]
    Size {
        /// Number of bytes given.
        given: usize,
        /// Number of bytes that the header claims.
        claimed: usize,
    },
    /// The record is shorter than its type requires.
    #[error("a record of type {kind} is too short: {given} bytes")]
    Short {
        /// The record's type.
        kind: u32,
        /// Number of bytes given.
        given: usize,
    },
    /// A sample carries another number of registers than was requested.
    #[error("a sample carries {bytes} bytes of registers")]
    Registers {
        /// Number of bytes after the fixed fields.
        bytes: usize,
    },
    /// The call stack of a sample does not fill it exactly.
    #[error("a sample carries {bytes} bytes of registers and stack, which do not fit each other")]
    CallStack {
        /// Number of bytes after the fixed fields.
        bytes: usize,
    },
    /// The branches of a sample do not fill it exactly.
    #[error("a sample carries {bytes} bytes of branches, but says that there are {claimed} branches")]
    Branches {
        /// Number of bytes of branch entries.
        bytes: usize,
        /// Number of entries that the sample claims.
        claimed: u64,
    },
}

/// The bytes of the first record, and the bytes after it.
pub type Split<'a> = Result<(&'a [u8], &'a [u8]), RecordError>;

/// Splits the first record off `stream`, by the size in its header. Returns `None` at the end of the stream.
pub fn split_record(stream: &[u8]) -> Option<Split<'_>> {
    if stream.is_empty() {
        return None;
    }
    let claimed = stream.get(6..8).map_or(0, |b| usize::from(u16::from_ne_bytes([b[0], b[1]])));
    let whole = (claimed >= HEADER_BYTES).then(|| stream.split_at_checked(claimed)).flatten();
    Some(whole.ok_or(RecordError::Size { given: stream.len(), claimed }))
}

/// Parses one whole record, header included, of an event whose samples carry no branches.
pub fn parse_record(bytes: &[u8]) -> Result<Record<'_>, RecordError> {
    parse_record_of(bytes, |_| SampleFields::None)
}

/// Parses one whole record, header included. `fields_of` returns which fields the samples of the event with this id have.
pub fn parse_record_of(
    bytes: &[u8],
    fields_of: impl FnOnce(u64) -> SampleFields,
) -> Result<Record<'_>, RecordError> {
    let (record, rest) = split_record(bytes).unwrap_or(Err(RecordError::Size { given: 0, claimed: 0 }))?;
    if !rest.is_empty() {
        return Err(RecordError::Size { given: bytes.len(), claimed: record.len() });
    }
    let mut fields = Fields(record);
    let kind = fields.u32().unwrap_or(0);
    let misc = fields.u16().unwrap_or(0);
    fields.u16();
    let short = RecordError::Short { kind, given: record.len() };
    match kind {
        abi::PERF_RECORD_SAMPLE => return parse_sample(fields, misc, short, fields_of),
        abi::PERF_RECORD_THROTTLE | abi::PERF_RECORD_UNTHROTTLE => {
            let (time_ns, event_id) = fields.u64().zip(fields.u64()).ok_or(short)?;
            let is_begin = kind == abi::PERF_RECORD_THROTTLE;
            let body = if is_begin { Body::Throttle } else { Body::Unthrottle };
            return Ok(Record { time_ns, event_id, body });
        }
        abi::PERF_RECORD_LOST if fields.0.len() == LOST_BYTES => {
            let (event_id, lost) = fields.u64().zip(fields.u64()).ok_or(short)?;
            return Ok(Record { time_ns: 0, event_id, body: Body::Lost(lost) });
        }
        _ => {}
    }
    let (body, trailer) =
        fields.0.split_at_checked(fields.0.len().wrapping_sub(TRAILER_BYTES)).ok_or(short)?;
    let mut trailer = Fields(trailer);
    let (time_ns, event_id) = trailer.u64().zip(trailer.u64()).ok_or(short)?;
    let body = parse_body(kind, misc, Fields(body)).ok_or(short)?;
    Ok(Record { time_ns, event_id, body })
}

fn parse_sample(
    mut fields: Fields<'_>,
    misc: u16,
    short: RecordError,
    fields_of: impl FnOnce(u64) -> SampleFields,
) -> Result<Record<'_>, RecordError> {
    let mut fixed = || Some((fields.u64()?, fields.address()?, fields.u32()?, fields.u32()?, fields.u64()?));
    let (event_id, pc, pid, tid, time_ns) = fixed().ok_or(short)?;
    let kind = fields_of(event_id);
    if kind == SampleFields::Branches {
        let claimed = fields.u64().ok_or(short)?;
        let stack = BranchStack { pid: Pid(pid), entries: fields.0 };
        let bytes = usize::try_from(claimed).ok().and_then(|n| n.checked_mul(BranchEntry::BYTES));
        return match bytes {
            Some(bytes) if bytes == fields.0.len() => {
                Ok(Record { time_ns, event_id, body: Body::Branches(stack) })
            }
            _ => Err(RecordError::Branches { bytes: fields.0.len(), claimed }),
        };
    }
    let sample = |registers| Sample {
        mode: Mode::from_misc(misc),
        pc,
        pid: Pid(pid),
        tid: Tid(tid),
        cpu: None,
        registers,
    };
    let body = if kind == SampleFields::CallStack {
        let bad = RecordError::CallStack { bytes: fields.0.len() };
        let (registers, stack) = parse_call_stack(fields).ok_or(bad)?;
        Body::SampleWithStack(sample(registers), stack)
    } else {
        Body::Sample(sample(parse_registers(fields)?))
    };
    Ok(Record { time_ns, event_id, body })
}

/// Parses the call chain, the registers and the copy of the stack, which fill the rest of a sample.
fn parse_call_stack(mut fields: Fields<'_>) -> Option<(Option<Box<Registers>>, CallStack<'_>)> {
    let chain_bytes = usize::try_from(fields.u64()?).ok()?.checked_mul(8)?;
    let chain = fields.take(chain_bytes)?;
    let abi = Fields(fields.0).u64()?;
    let registers_bytes = if abi == 0 { 8 } else { 8 + 8 * REGISTER_COUNT };
    let registers = parse_registers(Fields(fields.take(registers_bytes)?)).ok()?;
    let size = usize::try_from(fields.u64()?).ok()?;
    let bytes = fields.take(size)?;
    // The kernel reserves the requested size and says how much of it was filled; without a stack it says nothing.
    let filled = if size == 0 { 0 } else { usize::try_from(fields.u64()?).ok()? };
    let is_whole = fields.0.is_empty();
    let user = bytes.get(..filled).filter(|_| is_whole)?;
    Some((registers, CallStack { chain, user, is_cut: filled == size }))
}

fn parse_registers(mut fields: Fields<'_>) -> Result<Option<Box<Registers>>, RecordError> {
    let bad = RecordError::Registers { bytes: fields.0.len() };
    match (fields.u64(), fields.0.len()) {
        (None, 0) => Ok(None),                            // not sampled
        (Some(0), 0) => Ok(None),                         // kernel threads have no user-mode registers
        (Some(1), length) if length % 8 == 0 => Ok(None), // 32-bit code: not interpreted
        (Some(2), length) if length == 8 * REGISTER_COUNT => {
            let mut values = [0; REGISTER_COUNT];
            values.iter_mut().for_each(|v| *v = fields.u64().unwrap_or(0));
            Ok(Some(Box::new(Registers(values))))
        }
        _ => Err(bad),
    }
}

fn parse_body(kind: u32, misc: u16, mut fields: Fields<'_>) -> Option<Body<'_>> {
    let f = &mut fields;
    Some(match kind {
        abi::PERF_RECORD_MMAP => Body::Mmap(parse_mmap(f, misc)?),
        abi::PERF_RECORD_MMAP2 => Body::Mmap(parse_mmap2(f, misc)?),
        abi::PERF_RECORD_COMM => {
            let exec = u32::from(misc) & abi::PERF_RECORD_MISC_COMM_EXEC != 0;
            Body::Comm { pid: Pid(f.u32()?), tid: Tid(f.u32()?), exec, comm: f.text() }
        }
        abi::PERF_RECORD_FORK => {
            let (pid, parent_pid, tid, parent_tid, _time) =
                (f.u32()?, f.u32()?, f.u32()?, f.u32()?, f.u64()?);
            Body::Fork {
                pid: Pid(pid),
                parent_pid: Pid(parent_pid),
                tid: Tid(tid),
                parent_tid: Tid(parent_tid),
            }
        }
        abi::PERF_RECORD_EXIT => {
            let (pid, _parent_pid, tid, _parent_tid, _time) =
                (f.u32()?, f.u32()?, f.u32()?, f.u32()?, f.u64()?);
            Body::Exit { pid: Pid(pid), tid: Tid(tid) }
        }
        abi::PERF_RECORD_SWITCH | abi::PERF_RECORD_SWITCH_CPU_WIDE => parse_switch(f, kind, misc)?,
        abi::PERF_RECORD_LOST => Body::Lost((f.u64()?, f.u64()?).1),
        abi::PERF_RECORD_LOST_SAMPLES => Body::LostSamples(f.u64()?),
        other => Body::Other(other),
    })
}

/// Parses a context switch. Its thread is in the trailer, in front of the time: an event that records switches samples threads.
fn parse_switch<'a>(f: &mut Fields<'a>, kind: u32, misc: u16) -> Option<Body<'a>> {
    if kind == abi::PERF_RECORD_SWITCH_CPU_WIDE {
        f.u64()?; // The other thread of the switch, which has a record of its own.
    }
    let misc = u32::from(misc);
    let to = match misc & abi::PERF_RECORD_MISC_SWITCH_OUT != 0 {
        false => SwitchTo::Running,
        true if misc & abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0 => SwitchTo::Ready,
        true => SwitchTo::Waiting,
    };
    Some(Body::Switch { pid: Pid(f.u32()?), tid: Tid(f.u32()?), to })
}

/// Parses the older form of a mapping (PERF_RECORD_MMAP), which contains neither the file's identity nor the protection. It
/// is taken for code unless it is marked as data.
fn parse_mmap<'a>(f: &mut Fields<'a>, misc: u16) -> Option<Mmap<'a>> {
    let (pid, _tid, start, length, file_offset) = (f.u32()?, f.u32()?, f.address()?, f.u64()?, f.u64()?);
    let executable = u32::from(misc) & abi::PERF_RECORD_MISC_MMAP_DATA == 0;
    let file = FileTag::Inode { major: 0, minor: 0, inode: 0 };
    Some(Mmap { pid: Pid(pid), start, length, file_offset, executable, file, path: f.text() })
}

fn parse_mmap2<'a>(f: &mut Fields<'a>, misc: u16) -> Option<Mmap<'a>> {
    const PROT_EXEC: u32 = 4;
    let (pid, _tid, start, length, file_offset) = (f.u32()?, f.u32()?, f.address()?, f.u64()?, f.u64()?);
    let tag = f.take(24)?;
    let (protection, _flags) = (f.u32()?, f.u32()?);
    let file = if u32::from(misc) & abi::PERF_RECORD_MISC_MMAP_BUILD_ID != 0 {
        FileTag::BuildId(tag.get(4..)?.get(..usize::from(*tag.first()?))?)
    } else {
        let mut tag = Fields(tag);
        FileTag::Inode { major: tag.u32()?, minor: tag.u32()?, inode: tag.u64()? }
    };
    Some(Mmap {
        pid: Pid(pid),
        start,
        length,
        file_offset,
        executable: protection & PROT_EXEC != 0,
        file,
        path: f.text(),
    })
}

impl Mode {
    fn from_misc(misc: u16) -> Self {
        match u32::from(misc) & abi::PERF_RECORD_MISC_CPUMODE_MASK {
            abi::PERF_RECORD_MISC_USER => Mode::User,
            abi::PERF_RECORD_MISC_KERNEL => Mode::Kernel,
            abi::PERF_RECORD_MISC_HYPERVISOR => Mode::Hypervisor,
            abi::PERF_RECORD_MISC_GUEST_KERNEL => Mode::GuestKernel,
            abi::PERF_RECORD_MISC_GUEST_USER => Mode::GuestUser,
            _ => Mode::Unknown,
        }
    }
}

/// A reader of bytes, field by field. It returns `None` past their end.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.0.split_first_chunk().map(|(b, rest)| (self.0 = rest, u16::from_ne_bytes(*b)).1)
    }

    fn u32(&mut self) -> Option<u32> {
        self.0.split_first_chunk().map(|(b, rest)| (self.0 = rest, u32::from_ne_bytes(*b)).1)
    }

    fn u64(&mut self) -> Option<u64> {
        self.0.split_first_chunk().map(|(b, rest)| (self.0 = rest, u64::from_ne_bytes(*b)).1)
    }

    fn address(&mut self) -> Option<VirtualAddress> {
        self.u64().map(VirtualAddress)
    }

    /// Returns the remaining bytes up to the first zero byte.
    fn text(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }
}
