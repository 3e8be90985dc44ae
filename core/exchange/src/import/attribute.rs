//! Events as a perf.data file describes them: `perf_event_attr`, ids and names.
//!
//! Enters: the bytes of a `perf_event_attr`. Leaves: which fields the event's samples have, and perf's name for the
//! event. Never here: a sample.
//!
//! Dwell has its own parser because linux-perf-data has three limits. It refuses a whole file for one type, event or
//! clock that it does not know. It drops bits of `read_format` that are newer than it is, such as PERF_FORMAT_LOST of
//! Linux 6.0, so each group that it reads is one word shorter than in the record. It also misreads the flags of
//! big-endian machines, which number bits from the other end.
//!
//! The layout: `struct perf_event_attr` in `include/uapi/linux/perf_event.h` of Linux.

use linux_perf_data::linux_perf_event_reader::{
    AttrFlags, BranchSampleFormat, PerfClock, PerfEventAttr, PerfEventType, ReadFormat, SampleFormat,
    SamplingPolicy, WakeupPolicy,
};
use rustc_hash::FxHashMap;

use super::fields::{half_at, word_at};

/// Size of the first `perf_event_attr`, of Linux 2.6.32; also assumed if an attribute does not report its size.
pub const BYTES_MIN: usize = 64;
const PERF_TYPE_RAW: u32 = 4;
/// The bit PERF_FORMAT_LOST of `read_format`.
pub const READ_LOST: u64 = 1 << 4;

/// An event that was sampled, with the ids and the name that perf gave it.
#[derive(Clone, Debug)]
pub struct Attribute {
    /// The attribute in the form that the parser of records needs.
    pub attr: PerfEventAttr,
    /// The field `read_format`, including bits that the parser does not know.
    pub read_format: u64,
    /// The field `branch_sample_type`, including bits that the parser does not know.
    pub branch_format: u64,
    /// The numbers `type` and `config`, which say what is counted.
    pub counter: (u32, u64),
    /// The ids that the event's records contain.
    pub ids: Vec<u64>,
    /// The event's name, as perf spells it.
    pub name: String,
}

impl Attribute {
    /// Parses an attribute and returns it with its size in bytes; `None` if there are too few bytes.
    pub fn parse(bytes: &[u8], little_endian: bool) -> Option<(Attribute, usize)> {
        let size = half_at(bytes, 4, little_endian)? as usize;
        let size = if size == 0 { BYTES_MIN } else { size };
        let bytes = bytes.get(..size).filter(|_| size >= BYTES_MIN)?;
        // A field that older kernels did not have is zero.
        let word = |at| word_at(bytes, at, little_endian).unwrap_or(0);
        let half = |at| half_at(bytes, at, little_endian).unwrap_or(0);
        // Two fields of 16 bits each; the second one is reserved.
        let max_stack = if little_endian { half(108) } else { half(108).rotate_left(16) } as u16;
        let (kind, config, flags) = (half(0), word(8), word(40));
        let flags = AttrFlags::from_bits_truncate(if little_endian { flags } else { flags.reverse_bits() });
        let raw = || PerfEventType::parse(PERF_TYPE_RAW, 0, config, 0, 0);
        let type_ = PerfEventType::parse(kind, half(52), config, word(56), word(64)).or_else(raw)?;
        let period = std::num::NonZeroU64::new(word(16));
        let attr = PerfEventAttr {
            type_,
            sampling_policy: match period {
                _ if flags.contains(AttrFlags::FREQ) => SamplingPolicy::Frequency(word(16)),
                Some(period) => SamplingPolicy::Period(period),
                None => SamplingPolicy::NoSampling,
            },
            sample_format: SampleFormat::from_bits_truncate(word(24)),
            read_format: ReadFormat::from_bits_truncate(word(32)),
            flags,
            wakeup_policy: WakeupPolicy::EventCount(0),
            branch_sample_format: BranchSampleFormat::from_bits_truncate(word(72)),
            sample_regs_user: word(80),
            sample_stack_user: half(88),
            clock: PerfClock::Default,
            sample_regs_intr: word(96),
            aux_watermark: 0,
            sample_max_stack: max_stack,
            aux_sample_size: 0,
            sig_data: 0,
        };
        let name = [counted(kind, config), modifiers(flags)].concat();
        let counter = (kind, config);
        let (read_format, branch_format) = (word(32), word(72));
        Some((Attribute { attr, read_format, branch_format, counter, ids: Vec::new(), name }, size))
    }
}

/// Returns the numbers of events by the ids that their records contain.
pub fn by_id(attributes: &[Attribute]) -> FxHashMap<u64, u16> {
    let all = (0..).zip(attributes);
    all.flat_map(|(event, attribute)| attribute.ids.iter().map(move |id| (*id, event))).collect()
}

/// Returns the name of what is counted if only numbers are known.
fn counted(kind: u32, config: u64) -> String {
    const HARDWARE: [&str; 10] = [
        "cycles",
        "instructions",
        "cache-references",
        "cache-misses",
        "branches",
        "branch-misses",
        "bus-cycles",
        "stalled-cycles-frontend",
        "stalled-cycles-backend",
        "ref-cycles",
    ];
    const SOFTWARE: [&str; 12] = [
        "cpu-clock",
        "task-clock",
        "page-faults",
        "context-switches",
        "cpu-migrations",
        "minor-faults",
        "major-faults",
        "alignment-faults",
        "emulation-faults",
        "dummy",
        "bpf-output",
        "cgroup-switches",
    ];
    const CACHES: [&str; 7] = ["L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node"];
    const ACCESSES: [[&str; 2]; 3] =
        [["loads", "load-misses"], ["stores", "store-misses"], ["prefetches", "prefetch-misses"]];
    let known = |names: &[&str], config: u64| {
        usize::try_from(config).ok().and_then(|at| names.get(at)).map(|name| (*name).to_owned())
    };
    let byte = |shift: u32| (config >> shift & 0xff) as usize;
    let cache = || {
        let access = ACCESSES.get(byte(8))?.get(byte(16))?;
        Some(format!("{}-{access}", CACHES.get(byte(0))?))
    };
    let name = match kind {
        // The upper half names the counting unit, on processors that have several.
        0 => known(&HARDWARE, config & u64::from(u32::MAX)),
        1 => known(&SOFTWARE, config),
        2 => Some(format!("tracepoint {config}")),
        3 => cache(),
        PERF_TYPE_RAW => Some(format!("r{config:x}")),
        5 => Some("breakpoint".to_owned()),
        _ => None,
    };
    name.unwrap_or_else(|| format!("type {kind} config {config:#x}"))
}

/// Returns perf's modifiers for what an event excludes, such as `:u`. As in perf, the usual case has no modifier.
fn modifiers(flags: AttrFlags) -> String {
    let counts = |left_out| !flags.contains(left_out);
    let parts = [
        (counts(AttrFlags::EXCLUDE_KERNEL), 'k'),
        (counts(AttrFlags::EXCLUDE_USER), 'u'),
        (counts(AttrFlags::EXCLUDE_HV), 'h'),
    ];
    let machines = [(counts(AttrFlags::EXCLUDE_HOST), 'H'), (counts(AttrFlags::EXCLUDE_GUEST), 'G')];
    let letters = |parts: &[(bool, char)]| -> String {
        parts.iter().filter(|(counts, _)| *counts).map(|(_, letter)| *letter).collect()
    };
    let is_narrowed = parts.iter().any(|(counts, _)| !counts);
    let precise = (flags.bits() >> 15 & 3) as usize;
    let mut suffix = if is_narrowed { letters(&parts) } else { String::new() };
    suffix.push_str(&"p".repeat(precise));
    let leaves_guests_out = is_narrowed || precise > 0;
    let [(counts_host, _), (counts_guest, _)] = machines;
    if !counts_host || counts_guest != leaves_guests_out {
        suffix.push_str(&letters(&machines));
    }
    if suffix.is_empty() { suffix } else { format!(":{suffix}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a `perf_event_attr` of 136 bytes.
    fn bytes(kind: u32, config: u64, read_format: u64, flags: u64) -> Vec<u8> {
        let mut bytes = vec![0; 136];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4] = 136;
        for (at, word) in [(8, config), (16, 4000), (24, 0x1_0007), (32, read_format), (40, flags)] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn events_without_names_are_named_by_their_numbers() {
        let name =
            |kind, config, flags| Attribute::parse(&bytes(kind, config, 0, flags), true).unwrap().0.name;
        let no_guests = 1 << 20;
        assert_eq!(name(0, 0, no_guests), "cycles");
        assert_eq!(name(1, 9, 0), "dummy:HG");
        assert_eq!(name(0, 8 << 32, 1 << 5 | 1 << 6), "cycles:u");
        assert_eq!(name(0, 0, no_guests | 1 << 5 | 1 << 6), "cycles:uH");
        assert_eq!(name(0, 0, no_guests | 2 << 15), "cycles:ppH");
        assert_eq!(name(0, 1, 1 << 4 | 2 << 15), "instructions:khpp");
        assert_eq!(name(1, 1, no_guests), "task-clock");
        assert_eq!(name(1, 77, no_guests), "type 1 config 0x4d");
        assert_eq!(name(3, 0x1_0003, no_guests), "dTLB-load-misses");
        assert_eq!(name(4, 0x1c2, no_guests), "r1c2");
    }

    #[test]
    fn attributes_newer_than_the_parser_are_read() {
        let (attribute, size) = Attribute::parse(&bytes(77, 1, 0x1c, 0), true).unwrap();
        assert_eq!((attribute.read_format, size), (0x1c, 136));
        assert!(Attribute::parse(&bytes(0, 0, 0, 0)[..135], true).is_none());
        assert!(Attribute::parse(&[0; 63], true).is_none() && Attribute::parse(&[0; 64], true).is_some());
    }

    #[test]
    fn flags_of_big_endian_machines_count_from_the_other_end() {
        let mut swapped = vec![0; 64];
        swapped[7] = 64;
        // sample_id_all is bit 18 of the flags; counted from the other end it is in the third byte.
        swapped[42] = 0x20;
        let (attribute, _) = Attribute::parse(&swapped, false).unwrap();
        assert_eq!(attribute.attr.flags, AttrFlags::SAMPLE_ID_ALL);
    }
}
