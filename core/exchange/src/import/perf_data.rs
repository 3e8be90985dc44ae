//! perf.data, read record by record.
//!
//! Enters: a file whose [`header`] was read. Leaves: an epoch with counts and images. Never here: more than
//! one round of records in memory. Samples are weighted by their period (`perf record -F` changes it), so that shares are
//! of time; the weights are whole samples again at the end, their sum unchanged.

use std::{
    io::{BufReader, Read, Seek, SeekFrom},
    time::Duration,
};

use dwell_attribution::{ExecutionId, Mapping, TargetIndex};
use dwell_profile::{BranchSums, BuildId, CodePlace, ImageId, ImageKind, Ledger, NamedFrame, Pid, Tid};
use jiff::Timestamp;
use linux_perf_data::{
    DsoKey,
    linux_perf_event_reader::{
        AttrFlags, CpuMode, Endianness, EventRecord as Parsed, Mmap2FileId, PerfEventAttr, RawEventRecord,
        RecordParseInfo, RecordType,
    },
};
use rustc_hash::FxHashMap;

use super::{
    Gathered, ImportFile,
    attribute::{Attribute, READ_LOST, by_id},
    fields::word_at,
    header::{self, Header},
    kallsyms::{Kallsyms, Reading},
    kernel::KernelSpace,
    locate::{Locator, Named},
    names::Names,
    packed::Packing,
    pprof,
    records::{Record, Records},
    sample::{Layout, Sample},
    script,
    slot::Slot,
    source::{self, Source},
    space::Spaces,
};
use crate::{Debuginfod, ExchangeError};

/// Reads the whole file.
pub fn gather(
    request: &ImportFile,
    debuginfod: Option<&Debuginfod>,
    now: Timestamp,
) -> Result<Gathered, ExchangeError> {
    let path = &request.path;
    let io = |source| ExchangeError::Io { path: path.clone(), source };
    let bad = |why: String| ExchangeError::BadPerfData { path: path.clone(), why };
    let source = source::open(path)?;
    let written = source.file.metadata().ok().and_then(|m| m.modified().ok());
    let locator = Locator::new(request, debuginfod, written);
    let (is_folder, ends_early) = (source.is_folder, source.ends_early.clone());
    let mut told = match others(source, &locator) {
        Ok(told) => told.map_err(bad)?,
        Err(Source { mut file, folder, .. }) => {
            let header = header::read(&mut file).map_err(bad)?;
            let in_parts = is_folder || header.features.is_folder();
            let more = if in_parts { source::parts(&folder).map_err(io)? } else { Vec::new() };
            // What the parser gets wrong must not end a session: its panic is an error of the file.
            let parse = std::panic::AssertUnwindSafe(|| parse(file, &header, more, request));
            let told = std::panic::catch_unwind(parse);
            told.unwrap_or_else(|_| Err("its parser gave up on it".to_owned())).map_err(bad)?
        }
    };
    if ends_early.is_some() {
        told.cut = ends_early;
    }
    if told.events.iter().all(|e| e.samples == 0) {
        return Err(ExchangeError::NoSamples { path: path.clone(), why: told.why_empty() });
    }
    Ok(told.finish(request, &locator, now))
}

/// What is no perf.data file, but may be the text of `perf script` or a profile of pprof's; else the source again.
fn others(source: Source, locator: &Locator<'_>) -> Result<Result<Told, String>, Source> {
    let start = &source.start;
    if header::is_perf_data(start) {
        return Err(source);
    }
    let was_gzip = source.packing == Some(Packing::Gzip);
    match () {
        () if script::is_text(start) && !start.starts_with(b"\n") => {
            Ok(script::read(BufReader::new(source.file), locator))
        }
        // A profile that is not compressed is known by the tag of its first field alone.
        () if was_gzip || pprof::is_pprof(start) => {
            let why = |why| if was_gzip { format!("gzip packed no perf.data file, and {why}") } else { why };
            Ok(pprof::read(source.file, locator).map_err(why))
        }
        () => Err(source),
    }
}

/// Reads all records of a file, and of those that go on where it ends.
pub(super) fn parse<R: Read + Seek>(
    mut file: R,
    header: &Header,
    more: Vec<(R, u64)>,
    request: &ImportFile,
) -> Result<Told, String> {
    file.seek(SeekFrom::Start(header.start)).map_err(|e| e.to_string())?;
    let mut told = Told::new(header);
    told.look_for_kallsyms(request);
    let is_alone = header.features.is_folder() && more.is_empty();
    let mut records = Records::new(file, header, more);
    told.records(&mut records);
    told.aux_records = records.aux_records;
    told.strangers = records.strangers;
    told.settle_losses(header);
    told.cut = match records.failed {
        Some(why) => Some(format!("its records end early ({why})")),
        None if is_alone => {
            Some("the files data.0, data.1, … that its records are in are not beside it".to_owned())
        }
        None => (header.cut || records.cut).then(|| "the file is cut off".to_owned()),
    };
    Ok(told)
}

/// What is sampled: a file, or what stands for one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    File(Named),
    Vdso,
    /// Memory of no file, which this process mapped: it may have been inherited from a parent.
    Anonymous(Pid),
    /// Code that was generated in a process, or in the one that mapped its memory before it was born.
    Jit {
        process: Pid,
        owner: Pid,
    },
    Kernel,
    Module(usize),
    /// What a profile names by itself, in an image of this path, without addresses.
    Numbered(Vec<u8>),
    /// An image that is no file, as another profile recorded it.
    Recorded(ImageId, ImageKind, Box<str>),
    Other(&'static str),
}

/// An event's tallies.
#[derive(Clone, Debug, Default)]
pub(super) struct EventTally {
    pub samples: u64,
    pub lost: u64,
    /// Of PERF_RECORD_LOST_SAMPLES.
    pub lost_samples: u64,
    pub throttled: u64,
    pub unknown: u64,
    pub periods: u128,
    pub period_min: u64,
    pub period_max: u64,
}

/// Everything that a file tells.
#[derive(Default)]
pub(super) struct Told {
    pub attributes: Vec<(String, Option<PerfEventAttr>)>,
    pub events: Vec<EventTally>,
    pub(super) spaces: Spaces,
    pub(super) kernel: KernelSpace,
    pub(super) targets: Vec<Target>,
    by_target: FxHashMap<Target, u32>,
    kernel_target: Option<u32>,
    pub(super) kallsyms: Option<Kallsyms>,
    pub(super) kernel_names: Option<Reading>,
    layouts: Vec<Layout>,
    infos: Vec<RecordParseInfo>,
    by_id: FxHashMap<u64, u16>,
    /// What each counter stood at last, by its id, and by thread where each has a counter of its own.
    counters: FxHashMap<(u64, Option<Tid>), u64>,
    /// Sums of periods.
    pub(super) sums: Ledger<Slot>,
    pub(super) stacks: BranchSums<u32>,
    pub(super) names: Names,
    pub(super) build_ids: Vec<(DsoKey, BuildId)>,
    pub cpu: Vec<String>,
    pub host: Option<String>,
    pub release: Option<String>,
    pub arch: Option<String>,
    pub command: Vec<String>,
    pub cpus: u32,
    /// From the first sample to the last, where the file says it.
    pub took: Option<Duration>,
    pub branch_stacks: u64,
    pub call_chains: u64,
    pub aux_records: u64,
    pub unreadable: u64,
    /// Samples that bear the id of no event.
    pub strangers: u64,
    /// Samples of events whose counters another event's sample told: `perf record -e '{a,b}:S'`.
    pub members: u64,
    /// Whether it counts without sampling.
    pub(super) is_stat: bool,
    /// Why records are missing at its end.
    pub cut: Option<String>,
    /// What else one must know.
    pub remarks: Vec<String>,
}

impl Told {
    /// What a file says of itself before its records.
    fn new(header: &Header) -> Told {
        let (attributes, features) = (&header.attributes, &header.features);
        let info = |a: &Attribute| RecordParseInfo::new(&a.attr, header.endian());
        Told {
            attributes: attributes.iter().map(|a| (a.name.clone(), Some(a.attr))).collect(),
            events: vec![EventTally::default(); attributes.len()],
            layouts: attributes.iter().map(|a| Layout::new(a, header.little_endian)).collect(),
            infos: attributes.iter().map(info).collect(),
            by_id: by_id(attributes),
            sums: Ledger::beside(),
            host: features.host(),
            release: features.release(),
            arch: features.arch(),
            cpu: features.cpu(),
            command: features.command(),
            took: features.took(),
            cpus: features.cpus().unwrap_or(1),
            build_ids: features.build_ids(),
            is_stat: features.is_stat(),
            ..Told::default()
        }
    }

    fn records(&mut self, records: &mut Records<impl Read + Seek>) {
        while let Some(Record { kind, misc, event, body }) = records.next() {
            if kind == RecordType::SAMPLE {
                match self.layouts[event].read(body) {
                    Some(sample) => self.deliver(event, CpuMode::from_misc(misc), &sample),
                    None => self.unreadable += 1,
                }
                continue;
            }
            if kind == RecordType::LOST_SAMPLES {
                let count = word_at(body, 0, self.infos[event].endian == Endianness::LittleEndian);
                let is_filtered = misc & FILTERED != 0;
                let tally = &mut self.events[event];
                let count = count.filter(|_| !is_filtered).unwrap_or(0);
                tally.lost_samples = tally.lost_samples.saturating_add(count);
                continue;
            }
            let misc = believable_misc(kind, misc, body);
            let record = RawEventRecord::new(kind, misc, body.into(), self.infos[event]);
            match record.parse() {
                // perf tells of processes that ran already as if they were born, at no time.
                // (Each of its threads too, after its mappings.)
                Ok(Parsed::Fork(f)) if record.timestamp().unwrap_or(0) == 0 => {
                    if f.tid == f.pid {
                        self.spaces.forget(pid_of(f.pid));
                    }
                }
                Ok(parsed) => self.record(event, parsed),
                Err(_) => self.unreadable += 1,
            }
        }
    }

    /// Counts a sample, and where it has the counters of its group, one for each that went on since the sample before: a group
    /// is sampled by its first event, and perf takes the place of the sample for that of all (`evlist__deliver_sample`).
    fn deliver(&mut self, event: usize, mode: CpuMode, sample: &Sample<'_>) {
        let Some(values) = sample.values else { return self.sample(event, mode, sample) };
        let by_thread = self.attributes[event].1.is_some_and(|a| a.flags.contains(AttrFlags::INHERIT));
        let thread = by_thread.then_some(sample.tid);
        for (id, value) in values.iter() {
            let Some(id) = id else { return self.sample(event, mode, sample) };
            let Some(&member) = self.by_id.get(&id) else {
                self.strangers += 1;
                continue;
            };
            let last = std::mem::replace(self.counters.entry((id, thread)).or_default(), value);
            let period = value.saturating_sub(last);
            if period == 0 {
                continue;
            }
            if usize::from(member) == event {
                self.sample(event, mode, &Sample { period, ..*sample });
                continue;
            }
            self.members += 1;
            let (pid, ip) = (sample.pid, sample.ip);
            self.sample(usize::from(member), mode, &Sample { pid, ip, period, ..Sample::default() });
        }
    }

    /// A kernel from 6.0 on tells for each event how many of its samples were lost, at the end of the recording; what it
    /// told on the way, of whole buffers, are the same losses. Those of earlier kernels are others: a unit of the processor
    /// had no room.
    fn settle_losses(&mut self, header: &Header) {
        let told_twice = header.attributes.iter().any(|a| a.read_format & READ_LOST != 0);
        let sum = |lost: fn(&EventTally) -> u64| self.events.iter().map(lost).map(u128::from).sum::<u128>();
        let by_event = sum(|e| e.lost_samples) >= sum(|e| e.lost);
        for event in &mut self.events {
            event.lost = match (told_twice, by_event) {
                (false, _) => event.lost.saturating_add(event.lost_samples),
                (true, true) => event.lost_samples,
                (true, false) => event.lost,
            };
        }
    }

    fn record(&mut self, event: usize, record: Parsed<'_>) {
        match record {
            Parsed::Comm(c) if c.pid == c.tid || c.is_execve => {
                let (bytes, pid) = (c.name.as_slice(), pid_of(c.pid));
                let name = String::from_utf8_lossy(&bytes);
                if c.is_execve { self.spaces.exec(pid, &name) } else { self.spaces.comm(pid, &name) }
            }
            Parsed::Fork(f) => self.spaces.fork(pid_of(f.pid), pid_of(f.ppid)),
            Parsed::Mmap(m) if m.is_executable => {
                let kernel = m.pid == -1 || m.cpu_mode == CpuMode::Kernel;
                self.map(
                    pid_of(m.pid),
                    kernel,
                    (m.address, m.length, m.page_offset),
                    &m.path.as_slice(),
                    None,
                );
            }
            Parsed::Mmap2(m) if m.protection & 4 != 0 || m.pid == -1 => {
                let kernel = m.pid == -1 || m.cpu_mode == CpuMode::Kernel;
                let build_id = match &m.file_id {
                    Mmap2FileId::BuildId(bytes) => BuildId::new(bytes),
                    Mmap2FileId::InodeAndVersion(_) => None,
                };
                self.map(
                    pid_of(m.pid),
                    kernel,
                    (m.address, m.length, m.page_offset),
                    &m.path.as_slice(),
                    build_id,
                );
            }
            Parsed::Lost(lost) => {
                let tally = &mut self.events[event];
                tally.lost = tally.lost.saturating_add(lost.count);
            }
            Parsed::Throttle(_) => self.events[event].throttled += 1,
            _ => {}
        }
    }

    pub(super) fn map(
        &mut self,
        pid: Pid,
        kernel: bool,
        (start, length, offset): (u64, u64, u64),
        path: &[u8],
        build_id: Option<BuildId>,
    ) {
        let text = String::from_utf8_lossy(path);
        if kernel {
            return self.kernel.map(&text, start, length, offset);
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
        let (end, target) = (start.saturating_add(length), TargetIndex(target));
        let mapping = Mapping { start, end, file_offset: offset, target, anonymous: None };
        self.spaces.map(pid, mapping, file_name);
    }

    /// The place that a profile names without saying where it is, in an image of that path; `within`: how far it is from where
    /// its procedure begins.
    pub(super) fn numbered(&mut self, path: &[u8], frames: Vec<NamedFrame>, within: u64) -> (u32, u64) {
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
        if let Some(target) = self.kernel_target {
            return target;
        }
        self.read_kallsyms();
        let target = self.intern(Target::Kernel);
        self.kernel_target = Some(target);
        target
    }

    /// Target and offset of an address in a process; `None` where nothing is mapped.
    pub(super) fn user_place(&mut self, pid: Pid, pc: u64) -> Option<(u32, u64)> {
        let mapping = self.spaces.find(pid, pc)?;
        let (target, offset) = (mapping.target.0, mapping.offset_of(pc));
        Some(match self.targets[target as usize] {
            // Another process may have other code at the same address.
            Target::Anonymous(owner) => (self.intern(Target::Jit { process: pid, owner }), pc),
            _ => (target, offset),
        })
    }

    /// Target and offset of an address in the kernel; `None` where no mapping tells.
    pub(super) fn kernel_place(&mut self, pc: u64) -> Option<(u32, u64)> {
        Some(match self.kernel.place(pc)? {
            (None, offset) => (self.kernel_target(), offset),
            (Some(module), offset) => (self.intern(Target::Module(module)), offset),
        })
    }

    pub(super) fn sample(&mut self, event: usize, mode: CpuMode, sample: &Sample<'_>) {
        let (pid, pc) = (sample.pid, sample.ip.unwrap_or(0));
        let execution = self.spaces.execution(pid);
        let place = match mode {
            CpuMode::User => self.user_place(pid, pc),
            CpuMode::Kernel => self.kernel_place(pc),
            CpuMode::Hypervisor => Some((self.intern(Target::Other("hypervisor")), pc)),
            CpuMode::GuestKernel => Some((self.intern(Target::Other("guest-kernel")), pc)),
            CpuMode::GuestUser => Some((self.intern(Target::Other("guest-user")), pc)),
            _ => None,
        };
        self.count(event, execution, place, pc, sample.period);
        self.call_chains += u64::from(sample.has_call_chain);
        if sample.branches.is_empty() {
            return;
        }
        self.branch_stacks += 1;
        let place = |address| {
            let mapping = self.spaces.find(pid, address)?;
            let (image, offset) = (mapping.target.0, mapping.offset_of(address));
            matches!(self.targets[image as usize], Target::File(_)).then_some(CodePlace { image, offset })
        };
        self.stacks.add(sample.branches.iter().map(|entry| (place(entry.from), place(entry.to))));
    }

    /// Counts a sample at a place, by target and offset; at its address, as unknown, where there is none.
    pub(super) fn count(
        &mut self,
        event: usize,
        execution: ExecutionId,
        place: Option<(u32, u64)>,
        pc: u64,
        period: u64,
    ) {
        self.count_many(event, execution, place, pc, period, 1);
    }

    /// The same of `samples` with `periods` in all.
    pub(super) fn count_many(
        &mut self,
        event: usize,
        execution: ExecutionId,
        place: Option<(u32, u64)>,
        pc: u64,
        periods: u64,
        samples: u64,
    ) {
        let unknown = place.is_none();
        let (target, offset) = place.unwrap_or_else(|| (self.intern(Target::Other("unknown")), pc));
        let tally = &mut self.events[event];
        let (period, first) = (periods / samples.max(1), tally.samples == 0);
        tally.samples += samples;
        tally.unknown += if unknown { samples } else { 0 };
        tally.periods += u128::from(periods);
        tally.period_min = if first { period } else { tally.period_min.min(period) };
        tally.period_max = tally.period_max.max(period);
        let hint = target ^ execution.0 << 2;
        self.sums.add(Slot { target, execution, event: event as u16 }, hint, offset, periods);
    }
}

/// A process by the number that a record has.
pub(super) fn pid_of(number: i32) -> Pid {
    Pid(number as u32)
}

/// PERF_RECORD_MISC_LOST_SAMPLES_BPF: a filter of the user's left them out.
const FILTERED: u16 = 1 << 15;

/// A mapping's flags without the one for a build id where there is none: a kernel that writes a mapping for one event with build
/// ids and then for another one without leaves the flag set, and a device's number stands where the length would (seen
/// with Linux 6.18; perf 6.1 gives up on such files). The parser asserts that a build id has at most 20 bytes.
fn believable_misc(kind: RecordType, misc: u16, body: &[u8]) -> u16 {
    const BUILD_ID: u16 = 1 << 14;
    const LENGTH_AT: usize = 32;
    let has_none = kind == RecordType::MMAP2 && body.get(LENGTH_AT).is_none_or(|length| *length > 20);
    if has_none { misc & !BUILD_ID } else { misc }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_of_impossible_length_is_none() {
        let body = |length: u8| [vec![0; 32], vec![length, 0, 0, 0]].concat();
        let misc = |kind, body: &[u8]| believable_misc(kind, 0x4002, body);
        assert_eq!(misc(RecordType::MMAP2, &body(20)), 0x4002);
        assert_eq!(misc(RecordType::MMAP2, &body(254)), 2);
        assert_eq!(misc(RecordType::MMAP2, &[]), 2);
        assert_eq!(misc(RecordType::COMM, &[]), 0x4002);
    }
}
