//! Reads the fields of a sample record without allocating.
//!
//! Enters: the bytes of a PERF_RECORD_SAMPLE, and the sample format of its event. Leaves: the fields that samples are
//! aggregated by. Never here: what the fields mean. (The parser's own records omit branch stacks, and confuse the layouts
//! of the value of a single counter and of the values of a group.)
//!
//! The layout: `PERF_RECORD_SAMPLE` in `include/uapi/linux/perf_event.h` of Linux.

use dwell_profile::{BranchEntry, Pid, Tid};
use linux_perf_data::linux_perf_event_reader::{
    BranchSampleFormat, ReadFormat, SampleFormat, SamplingPolicy,
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
    little_endian: bool,
    /// The period of samples that do not report their own.
    period: u64,
}

/// The fields of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The process; [`Pid::ENDED`] if the sample does not report it.
    pub pid: Pid,
    /// The thread; the largest number if the sample does not report it.
    pub tid: Tid,
    /// The instruction pointer; `None` if the sample does not report it.
    pub ip: Option<u64>,
    /// The period: how many occurrences of the event the sample stands for.
    pub period: u64,
    /// The values of counters, of its own event or of the whole group; `None` if they were not requested.
    pub values: Option<Values<'a>>,
    /// Whether the sample has a call chain.
    pub has_call_chain: bool,
    /// The branch stack, latest branch first.
    pub branches: Branches<'a>,
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

impl Branches<'_> {
    /// Iterates over the branches that were executed, latest first.
    pub fn iter(&self) -> impl Iterator<Item = BranchEntry> + '_ {
        let word = |bytes: &[u8], at: usize| word_at(bytes, at, !self.swapped).unwrap_or(0);
        // Big-endian machines number the flags from the other end, but do not report speculation.
        let flags = move |entry: &[u8]| if self.swapped { 0 } else { word(entry, 16) };
        let entries = self.bytes.chunks_exact(BranchEntry::BYTES);
        entries
            .map(move |entry| BranchEntry { from: word(entry, 0), to: word(entry, 8), flags: flags(entry) })
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
        let (attribute, read_format) = (&attribute.attr, attribute.read_format);
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
            ip: word(self.ip_at),
            period: word(self.period_at).unwrap_or(self.period).max(1),
            ..Sample::default()
        };
        if self.format.intersects(SampleFormat::READ | SampleFormat::BRANCH_STACK | SampleFormat::CALLCHAIN) {
            let mut cursor = Cursor { rest, little_endian: self.little_endian };
            self.read_variable(&mut cursor, &mut sample)?;
        }
        Some(sample)
    }

    fn read_variable<'a>(&self, cursor: &mut Cursor<'a>, sample: &mut Sample<'a>) -> Option<()> {
        if self.format.contains(SampleFormat::READ) {
            sample.values = Some(self.read_values(cursor)?);
        }
        if self.format.contains(SampleFormat::CALLCHAIN) {
            let calls = cursor.word()?;
            cursor.take(calls, 8)?;
            sample.has_call_chain = true;
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
