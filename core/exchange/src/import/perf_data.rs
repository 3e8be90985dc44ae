//! perf.data, read record by record.
//!
//! Enters: a file that [`guard`](super::guard) let through. Leaves: an epoch with counts and images. Never here: more than
//! one round of records in memory. Samples are weighted by their period (`perf record -F` changes it), so that shares are
//! of time; the weights are whole samples again at the end, their sum unchanged.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::Path,
    time::Duration,
};

use dwell_profile::{BranchSums, BuildId, CodePlace, ImageId, ImageKind, Ledger, NamedFrame};
use jiff::Timestamp;
use linux_perf_data::{
    DsoKey, PerfFile, PerfFileReader,
    linux_perf_event_reader::{
        CpuMode, EventRecord as Parsed, Mmap2FileId, PerfEventAttr, RawEventRecord, RecordParseInfo,
        RecordType,
    },
};
use rustc_hash::FxHashMap;

use super::{
    Gathered, ImportFile,
    guard::{self, Shape},
    kallsyms::{Kallsyms, Reading},
    kernel::KernelSpace,
    locate::{Locator, Named},
    names::Names,
    pprof,
    records::{Record, Records},
    sample::{Layout, Sample},
    script,
    space::{Execution, Mapping, Spaces},
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
    let mut file = open(path).map_err(io)?;
    let written = file.metadata().ok().and_then(|m| m.modified().ok());
    let locator = Locator::new(request, debuginfod, written);
    if let Some(told) = others(&mut file, &locator).map_err(io)? {
        let told = told.map_err(bad)?;
        if told.events.iter().all(|e| e.samples == 0) {
            return Err(ExchangeError::NoSamples { path: path.clone(), why: told.cut });
        }
        return Ok(told.finish(request, &locator, now));
    }
    let shape = guard::check(&mut file).map_err(bad)?;
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    // What the parser gets wrong must not end a session: its panic is an error of the file.
    let parsed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| parse(file, shape, request)));
    let told = parsed.unwrap_or_else(|_| Err("its parser gave up on it".to_owned())).map_err(bad)?;
    if told.events.iter().all(|e| e.samples == 0) {
        return Err(ExchangeError::NoSamples { path: path.clone(), why: told.cut });
    }
    Ok(told.finish(request, &locator, now))
}

/// What is no perf.data file, but may be the text of `perf script` or a profile of pprof's.
fn others(file: &mut File, locator: &Locator<'_>) -> io::Result<Option<Result<Told, String>>> {
    let mut start = Vec::new();
    file.by_ref().take(256).read_to_end(&mut start)?;
    file.seek(SeekFrom::Start(0))?;
    if start.starts_with(b"PERFILE") || start.starts_with(b"2ELIF") {
        return Ok(None);
    }
    let text = script::is_text(&start);
    Ok(match () {
        () if text && !start.starts_with(b"\n") => Some(script::read(BufReader::new(file), locator)),
        () if pprof::is_pprof(&start) => Some(pprof::read(file, locator)),
        () => None,
    })
}

pub(super) fn parse(mut file: impl Read + Seek, shape: Shape, request: &ImportFile) -> Result<Told, String> {
    let text = |e: linux_perf_data::Error| e.to_string();
    let (start, bytes, cut, description) = match shape {
        Shape::Pipe { start, data_bytes } => {
            let reader = PerfFileReader::parse_pipe(BufReader::new((&mut file).take(start)));
            (start, data_bytes, false, reader.map_err(text)?.perf_file)
        }
        Shape::File { start, data_bytes, cut, .. } => {
            let patched = Patched { file: &mut file, at: 0, shape };
            let reader = PerfFileReader::parse_file(BufReader::new(patched));
            (start, data_bytes, cut, reader.map_err(text)?.perf_file)
        }
    };
    file.seek(SeekFrom::Start(start)).map_err(|e| e.to_string())?;
    let mut told = Told::new(&description)?;
    told.features(&description);
    told.look_for_kallsyms(request);
    let mut records = Records::new(file, bytes, &description);
    told.records(&mut records);
    told.aux_records = records.aux_records;
    told.cut = match records.failed {
        Some(why) => Some(format!("its records end early ({why})")),
        None => (cut || records.cut).then(|| "the file is cut off".to_owned()),
    };
    Ok(told)
}

/// The file; standard input goes through a temporary one, since its sizes must be checked first.
fn open(path: &Path) -> io::Result<File> {
    if path.as_os_str() != "-" {
        return File::open(path);
    }
    let mut spool = tempfile::tempfile()?;
    io::copy(&mut io::stdin().lock(), &mut spool)?;
    Ok(spool)
}

const DATA_SIZE_END: u64 = guard::DATA_SIZE_AT + 8;

/// A file whose header tells the truth about the records that are there: `perf record` that was killed left zero, a file
/// that was cut promises more. In both the features after the records are missing.
struct Patched<F> {
    file: F,
    at: u64,
    shape: Shape,
}

impl<F: Read> Read for Patched<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        if let Shape::File { data_bytes, cut: true, little_endian, .. } = self.shape {
            let size = if little_endian { data_bytes.to_le_bytes() } else { data_bytes.to_be_bytes() };
            for (i, byte) in buffer[..count].iter_mut().enumerate() {
                match self.at + i as u64 {
                    at @ guard::DATA_SIZE_AT..DATA_SIZE_END => {
                        *byte = size[(at - guard::DATA_SIZE_AT) as usize];
                    }
                    guard::FEATURES_AT..guard::HEADER_END => *byte = 0,
                    _ => {}
                }
            }
        }
        self.at += count as u64;
        Ok(count)
    }
}

impl<F: Seek> Seek for Patched<F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = self.file.seek(to)?;
        Ok(self.at)
    }
}

/// What a sample is counted by, beside its offset, before images are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub target: u32,
    pub execution: Execution,
    pub event: u8,
}

/// What is sampled: a file, or what stands for one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    File(Named),
    Vdso,
    /// Memory of no file, which this process mapped: it may have been inherited from a parent.
    Anonymous(i32),
    /// Code that was generated in a process, or in the one that mapped its memory before it was born.
    Jit {
        process: i32,
        owner: i32,
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
    /// Why records are missing at its end.
    pub cut: Option<String>,
    /// What else one must know.
    pub remarks: Vec<String>,
}

impl Told {
    /// What a file says of itself before its records.
    fn new(file: &PerfFile) -> Result<Told, String> {
        let (attributes, endian) = (file.event_attributes(), file.endian());
        if attributes.len() > usize::from(u8::MAX) {
            return Err(format!("it has {} events", attributes.len()));
        }
        let named = |a: &linux_perf_data::AttributeDescription| {
            (a.name().unwrap_or_default().to_owned(), Some(*a.attributes()))
        };
        Ok(Told {
            attributes: attributes.iter().map(named).collect(),
            events: vec![EventTally::default(); attributes.len()],
            layouts: attributes.iter().map(|a| Layout::new(a.attributes(), endian)).collect(),
            infos: attributes.iter().map(|a| RecordParseInfo::new(a.attributes(), endian)).collect(),
            sums: Ledger::beside(),
            ..Told::default()
        })
    }

    fn records(&mut self, records: &mut Records<impl Read + Seek>) {
        while let Some(Record { kind, misc, event, body }) = records.next() {
            if kind == RecordType::SAMPLE {
                match self.layouts[event].read(body) {
                    Some(sample) => self.sample(event, CpuMode::from_misc(misc), &sample),
                    None => self.unreadable += 1,
                }
                continue;
            }
            let misc = believable_misc(kind, misc, body);
            let record = RawEventRecord::new(kind, misc, body.into(), self.infos[event]);
            match record.parse() {
                // perf tells of processes that ran already as if they were born, at no time.
                // (Each of its threads too, after its mappings.)
                Ok(Parsed::Fork(f)) if record.timestamp().unwrap_or(0) == 0 => {
                    if f.tid == f.pid {
                        self.spaces.forget(f.pid);
                    }
                }
                Ok(parsed) => self.record(event, parsed),
                Err(_) => self.unreadable += 1,
            }
        }
    }

    fn record(&mut self, event: usize, record: Parsed<'_>) {
        match record {
            Parsed::Comm(c) if c.pid == c.tid || c.is_execve => {
                self.spaces.comm(c.pid, &String::from_utf8_lossy(&c.name.as_slice()), c.is_execve);
            }
            Parsed::Fork(f) => self.spaces.fork(f.pid, f.ppid),
            Parsed::Mmap(m) if m.is_executable => {
                let kernel = m.pid == -1 || m.cpu_mode == CpuMode::Kernel;
                self.map(m.pid, kernel, (m.address, m.length, m.page_offset), &m.path.as_slice(), None);
            }
            Parsed::Mmap2(m) if m.protection & 4 != 0 || m.pid == -1 => {
                let kernel = m.pid == -1 || m.cpu_mode == CpuMode::Kernel;
                let build_id = match &m.file_id {
                    Mmap2FileId::BuildId(bytes) => BuildId::new(bytes),
                    Mmap2FileId::InodeAndVersion(_) => None,
                };
                self.map(m.pid, kernel, (m.address, m.length, m.page_offset), &m.path.as_slice(), build_id);
            }
            Parsed::Lost(lost) => self.events[event].lost += lost.count,
            Parsed::Throttle(_) => self.events[event].throttled += 1,
            _ => {}
        }
    }

    pub(super) fn map(
        &mut self,
        pid: i32,
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
        let mapping = Mapping { start, end: start.saturating_add(length), file_offset: offset, target };
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
    pub(super) fn user_place(&mut self, pid: i32, pc: u64) -> Option<(u32, u64)> {
        let mapping = self.spaces.find(pid, pc)?;
        Some(self.in_mapping(pid, &mapping, pc))
    }

    fn in_mapping(&mut self, pid: i32, mapping: &Mapping, pc: u64) -> (u32, u64) {
        match self.targets[mapping.target as usize] {
            // Another process may have other code at the same address.
            Target::Anonymous(owner) => (self.intern(Target::Jit { process: pid, owner }), pc),
            _ => (mapping.target, mapping.file_offset.wrapping_add(pc - mapping.start)),
        }
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
        let (execution, mapping) = self.spaces.locate(pid, pc);
        let place = match mode {
            CpuMode::User => mapping.map(|m| self.in_mapping(pid, &m, pc)),
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
            let file = matches!(self.targets[mapping.target as usize], Target::File(_));
            let offset = mapping.file_offset.wrapping_add(address - mapping.start);
            file.then_some(CodePlace { image: mapping.target, offset })
        };
        self.stacks.add(sample.branches.iter().map(|entry| (place(entry.from), place(entry.to))));
    }

    /// Counts a sample at a place, by target and offset; at its address, as unknown, where there is none.
    pub(super) fn count(
        &mut self,
        event: usize,
        execution: Execution,
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
        execution: Execution,
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
        self.sums.add(Slot { target, execution, event: event as u8 }, hint, offset, periods);
    }

    /// What the sections behind the records tell; each may be missing.
    fn features(&mut self, file: &PerfFile) {
        let owned = |text: Result<Option<&str>, _>| text.ok().flatten().map(str::to_owned);
        self.host = owned(file.hostname());
        self.release = owned(file.os_release());
        self.arch = owned(file.arch());
        let id = file.cpu_id().ok().flatten().unwrap_or_default();
        self.cpu = [file.cpu_desc().ok().flatten().unwrap_or_default()]
            .into_iter()
            .chain(id.split(','))
            .map(str::to_owned)
            .collect();
        self.command =
            file.cmdline().ok().flatten().unwrap_or_default().into_iter().map(str::to_owned).collect();
        let times = file.sample_time_range().ok().flatten();
        self.took =
            times.map(|t| Duration::from_nanos(t.last_sample_time.saturating_sub(t.first_sample_time)));
        self.cpus = file.nr_cpus().ok().flatten().map_or(1, |n| n.nr_cpus_online);
        let ids = file.build_ids().unwrap_or_default();
        self.build_ids =
            ids.into_iter().filter_map(|(key, info)| Some((key, BuildId::new(&info.build_id)?))).collect();
    }
}

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
