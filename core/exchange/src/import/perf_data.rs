//! Reads perf.data record by record.
//!
//! Enters: a file whose [`super::header`] was read. Leaves: an epoch with counts and images. Never here: more than one round
//! of records in memory. Samples are weighted by their period (`perf record -F` changes it), so that shares are shares
//! of time. At the end the weights become whole samples with the same sum.

use std::io::{Read, Seek, SeekFrom};

use dwell_profile::{BuildId, CodePlace, ImageOffset, SampleAccumulator, Tid, VirtualAddress};
use linux_perf_data::linux_perf_event_reader::{
    AttrFlags, CpuMode, Endianness, EventRecord as Parsed, Mmap2FileId, RawEventRecord, RecordParseInfo,
    RecordType,
};
use rustc_hash::FxHashMap;

use super::{
    attribute::{Attribute, READ_LOST, by_id},
    call_stacks::Root,
    fields::word_at,
    header::Header,
    imported::{EventTally, ImportedProfile, Origin, Target, pid_of},
    locate::Locator,
    records::{Record, Records},
    sample::{Branches, Layout, Sample},
    unwind::Unwinder,
};

/// Reads all records of a file, and of the files that continue it.
pub(super) fn parse<R: Read + Seek>(
    mut file: R,
    header: &Header,
    more: Vec<(R, u64)>,
    locator: &Locator<'_>,
) -> Result<ImportedProfile, String> {
    file.seek(SeekFrom::Start(header.start)).map_err(|e| e.to_string())?;
    let mut reader = Reader::new(header, locator);
    reader.imported.look_for_kallsyms(locator.request());
    let is_alone = header.features.is_folder() && more.is_empty();
    let mut records = Records::new(file, header, more);
    reader.records(&mut records);
    let mut imported = reader.imported;
    imported.tallies.aux_records = records.aux_records;
    imported.tallies.unknown_ids = records.unknown_ids;
    settle_losses(&mut imported.events, header);
    imported.cut = match records.failed {
        Some(why) => Some(format!("its records end early ({why})")),
        None if is_alone => {
            Some("its records are in files data.0, data.1, …, which are not beside it".to_owned())
        }
        None => (header.cut || records.cut).then(|| "the file is cut off".to_owned()),
    };
    Ok(imported)
}

/// The state while the records of a perf.data file are read.
struct Reader<'l> {
    imported: ImportedProfile,
    unwinder: Unwinder<'l>,
    layouts: Vec<Layout>,
    infos: Vec<RecordParseInfo>,
    by_id: FxHashMap<u64, u16>,
    /// The latest value of each counter, by its id, and also by thread if each thread has its own counter.
    counters: FxHashMap<(u64, Option<Tid>), u64>,
}

impl<'l> Reader<'l> {
    /// Takes what a file reports before its records.
    fn new(header: &Header, locator: &'l Locator<'l>) -> Self {
        let (attributes, features) = (&header.attributes, &header.features);
        let info = |a: &Attribute| RecordParseInfo::new(&a.attr, header.endian());
        let imported = ImportedProfile {
            attributes: attributes.iter().map(|a| (a.name.clone(), Some(a.attr))).collect(),
            events: vec![EventTally::default(); attributes.len()],
            sums: SampleAccumulator::beside(),
            origin: Origin {
                host: features.host(),
                release: features.release(),
                arch: features.arch(),
                cpu: features.cpu(),
                command: features.command(),
                took: features.took(),
                cpus: features.cpus().unwrap_or(1),
            },
            build_ids: features.build_ids(),
            is_stat: features.is_stat(),
            ..ImportedProfile::default()
        };
        Reader {
            imported,
            unwinder: Unwinder::new(locator),
            layouts: attributes.iter().map(|a| Layout::new(a, header.little_endian)).collect(),
            infos: attributes.iter().map(info).collect(),
            by_id: by_id(attributes),
            counters: FxHashMap::default(),
        }
    }

    fn records(&mut self, records: &mut Records<impl Read + Seek>) {
        while let Some(Record { kind, misc, event, body }) = records.next() {
            if kind == RecordType::SAMPLE {
                match self.layouts[event].read(body) {
                    Some(sample) => self.deliver(event, CpuMode::from_misc(misc), &sample),
                    None => self.imported.tallies.unreadable += 1,
                }
                continue;
            }
            if kind == RecordType::LOST_SAMPLES {
                let count = word_at(body, 0, self.infos[event].endian == Endianness::LittleEndian);
                let is_filtered = misc & FILTERED != 0;
                let tally = &mut self.imported.events[event];
                let count = count.filter(|_| !is_filtered).unwrap_or(0);
                tally.lost_samples = tally.lost_samples.saturating_add(count);
                continue;
            }
            let misc = believable_misc(kind, misc, body);
            let record = RawEventRecord::new(kind, misc, body.into(), self.infos[event]);
            match record.parse() {
                // perf reports processes that ran already as forks at time 0, and does so for each of their threads
                // too, after the mappings.
                Ok(Parsed::Fork(f)) if record.timestamp().unwrap_or(0) == 0 => {
                    if f.tid == f.pid {
                        self.imported.spaces.forget(pid_of(f.pid));
                    }
                }
                Ok(parsed) => self.record(event, parsed),
                Err(_) => self.imported.tallies.unreadable += 1,
            }
        }
    }

    /// Counts a sample. If the sample has the counters of its group, one sample is counted for each counter that
    /// advanced since the previous sample. A group is sampled by its first event, and perf uses the place of that
    /// sample for all its events (`evlist__deliver_sample`).
    fn deliver(&mut self, event: usize, mode: CpuMode, sample: &Sample<'_>) {
        let Some(values) = sample.values else { return self.sample(event, mode, sample) };
        let by_thread =
            self.imported.attributes[event].1.is_some_and(|a| a.flags.contains(AttrFlags::INHERIT));
        let thread = by_thread.then_some(sample.tid);
        for (id, value) in values.iter() {
            let Some(id) = id else { return self.sample(event, mode, sample) };
            let Some(&member) = self.by_id.get(&id) else {
                self.imported.tallies.unknown_ids += 1;
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
            self.imported.tallies.members += 1;
            let of_member = Sample { period, branches: Branches::default(), ..*sample };
            self.sample(usize::from(member), mode, &of_member);
        }
    }

    fn record(&mut self, event: usize, record: Parsed<'_>) {
        match record {
            Parsed::Comm(c) if c.pid == c.tid || c.is_execve => {
                let (bytes, pid) = (c.name.as_slice(), pid_of(c.pid));
                let name = String::from_utf8_lossy(&bytes);
                if c.is_execve {
                    self.imported.spaces.exec(pid, &name)
                } else {
                    self.imported.spaces.comm(pid, &name)
                }
            }
            Parsed::Fork(f) => self.imported.spaces.fork(pid_of(f.pid), pid_of(f.ppid)),
            Parsed::Mmap(m) if m.is_executable => {
                let kernel = m.pid == -1 || m.cpu_mode == CpuMode::Kernel;
                self.imported.map(
                    pid_of(m.pid),
                    kernel,
                    (VirtualAddress(m.address), m.length, m.page_offset),
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
                self.imported.map(
                    pid_of(m.pid),
                    kernel,
                    (VirtualAddress(m.address), m.length, m.page_offset),
                    &m.path.as_slice(),
                    build_id,
                );
            }
            Parsed::Lost(lost) => {
                let tally = &mut self.imported.events[event];
                tally.lost = tally.lost.saturating_add(lost.count);
            }
            Parsed::Throttle(_) => self.imported.events[event].throttled += 1,
            _ => {}
        }
    }

    pub(super) fn sample(&mut self, event: usize, mode: CpuMode, sample: &Sample<'_>) {
        let (pid, pc) = (sample.pid, sample.ip.unwrap_or_default());
        let execution = self.imported.spaces.execution(pid);
        let place = match mode {
            CpuMode::User => self.imported.user_place(pid, pc),
            CpuMode::Kernel => self.imported.kernel_place(pc),
            CpuMode::Hypervisor => Some((self.imported.intern(Target::Other("hypervisor")), pc.as_offset())),
            CpuMode::GuestKernel => {
                Some((self.imported.intern(Target::Other("guest-kernel")), pc.as_offset()))
            }
            CpuMode::GuestUser => Some((self.imported.intern(Target::Other("guest-user")), pc.as_offset())),
            _ => None,
        };
        let place = self.imported.count(event, execution, place, pc.as_offset(), sample.period);
        let callers = self.layouts[event].callers;
        let stack = self.unwinder.stack(&mut self.imported, callers, (mode, sample), place);
        if let Some((frames, end)) = stack {
            let root = Root { event: event as u16, execution, end };
            self.imported.call_stacks.add(root, frames, sample.period, 1);
        }
        // The calls that have not returned are no consecutive branches.
        if sample.branches.is_empty() || callers.has_calls {
            return;
        }
        self.imported.tallies.branch_stacks += 1;
        let place = |address| {
            let mapping = self.imported.spaces.find(pid, address)?;
            let (image, offset) = (mapping.target.0, mapping.offset_of(address));
            matches!(self.imported.targets[image as usize], Target::File(_))
                .then_some(CodePlace { image, offset: ImageOffset(offset) })
        };
        self.imported.branches.add(sample.branches.iter().map(|entry| (place(entry.from), place(entry.to))));
    }
}

/// Determines the number of lost samples. A kernel from 6.0 on reports for each event how many of its samples were
/// lost, at the end of the recording; these include the losses of whole buffers that it reported before. In earlier
/// kernels the two are different losses: there, lost samples are those for which a unit of the processor had no room.
fn settle_losses(events: &mut [EventTally], header: &Header) {
    let told_twice = header.attributes.iter().any(|a| a.read_format & READ_LOST != 0);
    let sum = |lost: fn(&EventTally) -> u64| events.iter().map(lost).map(u128::from).sum::<u128>();
    let by_event = sum(|e| e.lost_samples) >= sum(|e| e.lost);
    for event in events {
        event.lost = match (told_twice, by_event) {
            (false, _) => event.lost.saturating_add(event.lost_samples),
            (true, true) => event.lost_samples,
            (true, false) => event.lost,
        };
    }
}

/// The flag PERF_RECORD_MISC_LOST_SAMPLES_BPF: a user's filter dropped the samples.
const FILTERED: u16 = 1 << 15;

/// Returns a mapping's flags, without the flag for a build ID if there is none. A kernel that writes a mapping for one
/// event with build IDs and then for another one without leaves the flag set, and the number of a device is where the
/// length would be (seen with Linux 6.18; perf 6.1 gives up on such files). The parser asserts that a build ID has at
/// most 20 bytes.
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
    fn a_build_id_of_impossible_length_is_ignored() {
        let body = |length: u8| [vec![0; 32], vec![length, 0, 0, 0]].concat();
        let misc = |kind, body: &[u8]| believable_misc(kind, 0x4002, body);
        assert_eq!(misc(RecordType::MMAP2, &body(20)), 0x4002);
        assert_eq!(misc(RecordType::MMAP2, &body(254)), 2);
        assert_eq!(misc(RecordType::MMAP2, &[]), 2);
        assert_eq!(misc(RecordType::COMM, &[]), 0x4002);
    }
}
