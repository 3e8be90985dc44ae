//! Reads the fields of a sample record without allocating.
//!
//! Enters: the bytes of a PERF_RECORD_SAMPLE, and the sample format of its event. Leaves: the fields that samples are
//! aggregated by. Never here: what the fields mean. (The parser's own records omit branch stacks, and confuse the layouts
//! of the value of a single counter and of the values of a group.)
//!
//! The layout: `PERF_RECORD_SAMPLE` in `include/uapi/linux/perf_event.h` of Linux.

use dwell_profile::{BranchEntry, Pid, Tid, VirtualAddress};
use linux_perf_data::linux_perf_event_reader::{
    AttrFlags, BranchSampleFormat, ReadFormat, SampleFormat, SamplingPolicy,
};

use super::{
    attribute::{Attribute, READ_LOST},
    fields::{half_at, word_at},
};

/// The fields of fixed size, in their order; each takes 8 bytes.
const FIXED: [SampleFormat; 9] = [
    SampleFormat::IDENTIFIER,
    SampleFormat::IP,
    SampleFormat::TID,
    SampleFormat::TIME,
    SampleFormat::ADDR,
    SampleFormat::ID,
    SampleFormat::STREAM_ID,
    SampleFormat::CPU,
    SampleFormat::PERIOD,
];

/// Positions of the fields in the samples of an event.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    format: SampleFormat,
    /// Positions of the fields that samples are aggregated by; `None` for a field that the samples do not have.
    ip_at: Option<usize>,
    pid_at: Option<usize>,
    period_at: Option<usize>,
    /// Size of all fields of fixed size, in bytes.
    fixed_bytes: usize,
    /// The complete `read_format`: the parser's type drops unknown bits.
    read_format: u64,
    has_branch_index: bool,
    /// Whether a word follows for each branch, behind all of them (Linux 6.8).
    has_branch_counters: bool,
    /// Numbers of the user registers that samples have, as a bit mask.
    user_registers: u64,
    /// What the samples report about their callers.
    pub callers: CallersFormat,
    little_endian: bool,
    /// The period of samples that do not report their own.
    period: u64,
}

/// What the samples of an event report about their callers.
#[derive(Clone, Copy, Debug)]
pub struct CallersFormat {
    /// Whether they have call chains.
    pub has_chains: bool,
    /// Whether they have the registers of the user's code and a copy of its stack.
    pub has_copies: bool,
    /// Whether their branch stacks hold the calls that have not returned.
    pub has_calls: bool,
    /// Whether their call chains lack the user's part.
    pub lacks_user: bool,
    /// Largest number of addresses in a call chain.
    pub addresses_max: usize,
}

/// The fields of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The process; [`Pid::ENDED`] if the sample does not report it.
    pub pid: Pid,
    /// The thread; the largest number if the sample does not report it.
    pub tid: Tid,
    /// The instruction pointer; `None` if the sample does not report it.
    pub ip: Option<VirtualAddress>,
    /// The period: how many occurrences of the event the sample stands for.
    pub period: u64,
    /// The values of counters, of its own event or of the whole group; `None` if they were not requested.
    pub values: Option<Values<'a>>,
    /// The call chain, innermost first; empty if there is none.
    pub chain: Words<'a>,
    /// The user's registers and stack; `None` if the sample does not have both.
    pub user: Option<UserCopy<'a>>,
    /// The branch stack, latest branch first.
    pub branches: Branches<'a>,
}

/// Words as the record has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words<'a> {
    bytes: &'a [u8],
    little_endian: bool,
}

impl<'a> Words<'a> {
    /// Returns the words in these bytes.
    #[cfg(test)]
    pub fn new(bytes: &'a [u8], little_endian: bool) -> Self {
        Words { bytes, little_endian }
    }

    /// Iterates over the words.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.bytes.chunks_exact(WORD_BYTES).map(|word| word_at(word, 0, self.little_endian).unwrap_or(0))
    }
}

/// The user's registers and a copy of its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserCopy<'a> {
    /// The kind of code: [`ABI_64`] for 64-bit code; 0 if there are no registers, because the user's code did not run.
    pub abi: u64,
    registers: Words<'a>,
    /// Numbers of the registers, as a bit mask.
    mask: u64,
    /// The stack, from the stack pointer on.
    pub stack: &'a [u8],
    /// Whether the stack may go on behind the copy.
    pub is_cut: bool,
}

/// `PERF_SAMPLE_REGS_ABI_64`.
pub const ABI_64: u64 = 2;

impl UserCopy<'_> {
    /// Returns the register with perf's number (`perf_regs.h` of the architecture).
    pub fn register(&self, number: u32) -> Option<u64> {
        let bit = 1 << number;
        let before = (self.mask & (bit - 1)).count_ones() as usize;
        (self.mask & bit != 0).then(|| self.registers.iter().nth(before)).flatten()
    }
}

/// The values of counters, as the record has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values<'a> {
    bytes: &'a [u8],
    bytes_each: usize,
    id_at: Option<usize>,
    little_endian: bool,
}

impl Values<'_> {
    /// Iterates over the counters: the id, if the record has it, and the value.
    pub fn iter(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let word = |bytes: &[u8], at: usize| word_at(bytes, at, self.little_endian);
        let value = move |bytes| (self.id_at.and_then(|at| word(bytes, at)), word(bytes, 0).unwrap_or(0));
        self.bytes.chunks_exact(self.bytes_each.max(1)).map(value)
    }
}

/// A branch stack as the record has it, with 24 bytes for each branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Branches<'a> {
    bytes: &'a [u8],
    swapped: bool,
}

impl<'a> Branches<'a> {
    /// Returns the branches in these bytes.
    #[cfg(test)]
    pub fn new(bytes: &'a [u8]) -> Self {
        Branches { bytes, swapped: false }
    }

    /// Iterates over the branches that were executed, latest first.
    pub fn iter(&self) -> impl Iterator<Item = BranchEntry> + '_ {
        let word = |bytes: &[u8], at: usize| word_at(bytes, at, !self.swapped).unwrap_or(0);
        // Big-endian machines number the flags from the other end, but do not report speculation.
        let flags = move |entry: &[u8]| if self.swapped { 0 } else { word(entry, 16) };
        let entries = self.bytes.chunks_exact(BranchEntry::BYTES);
        entries
            .map(move |entry| BranchEntry {
                from: VirtualAddress(word(entry, 0)),
                to: VirtualAddress(word(entry, 8)),
                flags: flags(entry),
            })
            .filter(|entry| !entry.is_wrong_path())
    }

    /// Returns whether there are no branches.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Layout {
    /// Returns the layout of an event's samples.
    pub fn new(attribute: &Attribute, little_endian: bool) -> Self {
        let (read_format, branch_format) = (attribute.read_format, attribute.branch_format);
        let attribute = &attribute.attr;
        let format = attribute.sample_format;
        let mut fixed_bytes = 0;
        let [_, ip_at, pid_at, .., period_at] = FIXED.map(|part| {
            let at = fixed_bytes;
            let is_there = format.contains(part);
            fixed_bytes += if is_there { 8 } else { 0 };
            is_there.then_some(at)
        });
        Layout {
            format,
            ip_at,
            pid_at,
            period_at,
            fixed_bytes,
            read_format,
            has_branch_index: attribute.branch_sample_format.contains(BranchSampleFormat::HW_INDEX),
            has_branch_counters: branch_format & BRANCH_COUNTERS != 0,
            user_registers: attribute.sample_regs_user,
            callers: CallersFormat {
                has_chains: format.contains(SampleFormat::CALLCHAIN),
                has_copies: format.contains(SampleFormat::REGS_USER | SampleFormat::STACK_USER),
                has_calls: format.contains(SampleFormat::BRANCH_STACK)
                    && attribute.branch_sample_format.contains(BranchSampleFormat::CALL_STACK),
                lacks_user: attribute.flags.contains(AttrFlags::EXCLUDE_CALLCHAIN_USER),
                addresses_max: match attribute.sample_max_stack {
                    0 => USUAL_ADDRESSES_MAX,
                    max => max.into(),
                },
            },
            little_endian,
            period: match attribute.sampling_policy {
                SamplingPolicy::Period(period) => period.get(),
                _ => 1,
            },
        }
    }

    /// Reads a sample; `None` if its record is too short for its fields.
    pub fn read<'a>(&self, record: &'a [u8]) -> Option<Sample<'a>> {
        let (fixed, rest) = record.split_at_checked(self.fixed_bytes)?;
        let word = |at: Option<usize>| word_at(fixed, at?, self.little_endian);
        let pid = |at: usize| half_at(fixed, at, self.little_endian);
        let mut sample = Sample {
            pid: self.pid_at.and_then(pid).map_or(Pid::ENDED, Pid),
            tid: self.pid_at.and_then(|at| pid(at + 4)).map_or(Tid(u32::MAX), Tid),
            ip: word(self.ip_at).map(VirtualAddress),
            period: word(self.period_at).unwrap_or(self.period).max(1),
            ..Sample::default()
        };
        let has_variable =
            self.format.intersects(SampleFormat::READ | SampleFormat::BRANCH_STACK | SampleFormat::CALLCHAIN);
        if has_variable || self.callers.has_copies {
            let mut cursor = Cursor { rest, little_endian: self.little_endian };
            self.read_variable(&mut cursor, &mut sample)?;
            // A sample is counted, whether its stack can be read or not.
            sample.user =
                if self.callers.has_copies { self.read_user(&mut cursor, sample.branches) } else { None };
        }
        Some(sample)
    }

    fn read_variable<'a>(&self, cursor: &mut Cursor<'a>, sample: &mut Sample<'a>) -> Option<()> {
        if self.format.contains(SampleFormat::READ) {
            sample.values = Some(self.read_values(cursor)?);
        }
        if self.format.contains(SampleFormat::CALLCHAIN) {
            let addresses = cursor.word()?;
            let bytes = cursor.take(addresses, WORD_BYTES)?;
            sample.chain = Words { bytes, little_endian: self.little_endian };
        }
        if self.format.contains(SampleFormat::RAW) {
            let bytes = cursor.half()?;
            cursor.take(bytes.into(), 1)?;
        }
        if self.format.contains(SampleFormat::BRANCH_STACK) {
            let branches = cursor.word()?;
            cursor.skip(self.has_branch_index)?;
            let bytes = cursor.take(branches, BranchEntry::BYTES)?;
            sample.branches = Branches { bytes, swapped: !self.little_endian };
        }
        Some(())
    }

    /// Reads the registers and the copy of the stack, which follow the branches.
    fn read_user<'a>(&self, cursor: &mut Cursor<'a>, branches: Branches<'_>) -> Option<UserCopy<'a>> {
        if self.has_branch_counters {
            cursor.take((branches.bytes.len() / BranchEntry::BYTES) as u64, WORD_BYTES)?;
        }
        let (abi, mask) = (cursor.word()?, self.user_registers);
        let registers = if abi == 0 { 0 } else { mask.count_ones() };
        let bytes = cursor.take(registers.into(), WORD_BYTES)?;
        let registers = Words { bytes, little_endian: self.little_endian };
        let size_bytes = cursor.word()?;
        let room = cursor.take(size_bytes, 1)?;
        // How much of the room was used follows, unless there is none.
        let used = if room.is_empty() { 0 } else { usize::try_from(cursor.word()?).ok()?.min(room.len()) };
        let stack = &room[..used];
        Some(UserCopy { abi, registers, mask, stack, is_cut: used == room.len() })
    }

    /// Reads the value of a counter, or the values of a group.
    fn read_values<'a>(&self, cursor: &mut Cursor<'a>) -> Option<Values<'a>> {
        let has = |bits: u64| usize::from(self.read_format & bits != 0);
        let times = has(ReadFormat::TOTAL_TIME_ENABLED.bits()) + has(ReadFormat::TOTAL_TIME_RUNNING.bits());
        let (id, lost) = (has(ReadFormat::ID.bits()), has(READ_LOST));
        let is_group = has(ReadFormat::GROUP.bits()) == 1;
        // A group has the times once; a single counter has them between its value and its id.
        let (counters, before_id) = match is_group {
            true => (cursor.word()?, 0),
            false => (1, times),
        };
        if is_group {
            cursor.take(times as u64, WORD_BYTES)?;
        }
        let bytes_each = (1 + before_id + id + lost) * WORD_BYTES;
        Some(Values {
            bytes: cursor.take(counters, bytes_each)?,
            bytes_each,
            id_at: (id == 1).then_some((1 + before_id) * WORD_BYTES),
            little_endian: self.little_endian,
        })
    }
}

const WORD_BYTES: usize = 8;
/// The bit PERF_SAMPLE_BRANCH_COUNTERS of `branch_sample_type`.
const BRANCH_COUNTERS: u64 = 1 << 19;
/// Largest number of addresses in a call chain if the event does not say it: `kernel.perf_event_max_stack` of Linux.
const USUAL_ADDRESSES_MAX: usize = 127;

struct Cursor<'a> {
    rest: &'a [u8],
    little_endian: bool,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: u64, bytes_each: usize) -> Option<&'a [u8]> {
        let bytes = usize::try_from(count).ok()?.checked_mul(bytes_each)?;
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    fn skip(&mut self, is_there: bool) -> Option<()> {
        if is_there { self.take(1, 8).map(|_| ()) } else { Some(()) }
    }

    fn word(&mut self) -> Option<u64> {
        let bytes = self.take(1, 8)?;
        word_at(bytes, 0, self.little_endian)
    }

    fn half(&mut self) -> Option<u32> {
        half_at(self.take(1, 4)?, 0, self.little_endian)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the layout of samples with these fields, with the registers `mask`.
    fn layout(format: SampleFormat, mask: u64, branch_format: u64) -> Layout {
        let mut attribute = vec![0; 136];
        let words = [(24, format.bits()), (72, branch_format), (80, mask), (88, 32), (104, 9 << 32)];
        words.iter().for_each(|(at, word)| attribute[*at..at + 8].copy_from_slice(&word.to_le_bytes()));
        attribute[4] = 136;
        Layout::new(&Attribute::parse(&attribute, true).unwrap().0, true)
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_copy_of_the_stack_follows_chain_and_branches() {
        let format = SampleFormat::IP
            | SampleFormat::CALLCHAIN
            | SampleFormat::BRANCH_STACK
            | SampleFormat::REGS_USER
            | SampleFormat::STACK_USER;
        let with_counters = layout(format, 1 << 6 | 1 << 8, BRANCH_COUNTERS);
        assert_eq!(with_counters.callers.addresses_max, 9);
        let record = bytes(&[0x10, 2, 7, 8, 1, 0x20, 0x30, 0, 99, ABI_64, 66, 88, 16, 0xaa, 0xbb, 8]);
        let sample = with_counters.read(&record).unwrap();
        let ip = Some(VirtualAddress(0x10));
        assert_eq!((sample.ip, sample.chain.iter().collect::<Vec<_>>()), (ip, vec![7, 8]));
        let copy = sample.user.unwrap();
        assert_eq!([6, 7, 8].map(|number| copy.register(number)), [Some(66), None, Some(88)]);
        assert_eq!((copy.stack, copy.is_cut), (&0xaa_u64.to_le_bytes()[..], false));
        // The sample counts, even if the copy cannot be read.
        let cut = with_counters.read(&record[..record.len() - 8]).unwrap();
        assert_eq!((cut.ip, cut.user, cut.branches.iter().count()), (ip, None, 1));
        let full = bytes(&[0x10, 0, 0, ABI_64, 66, 88, 8, 0xaa, 8]);
        assert!(with_counters.read(&full).unwrap().user.unwrap().is_cut);
        let none = bytes(&[0x10, 0, 0, 0, 0]);
        let none = with_counters.read(&none).unwrap().user.unwrap();
        assert_eq!((none.abi, none.register(6), none.stack.len()), (0, None, 0));
    }
}
