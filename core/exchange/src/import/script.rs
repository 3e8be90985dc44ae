//! The text of `perf script`, read line by line.
//!
//! Enters: text with its default fields. Leaves: what a perf.data file would have told, as far as the text tells it. Never here: a
//! guess. The text has no mappings unless `--show-mmap-events` printed them; without, a place is found by the name that
//! perf gave it, in an image that is here, and what has none is counted as unknown.

use std::io::{self, BufRead};

use dwell_image::Image;
use linux_perf_data::linux_perf_event_reader::CpuMode;
use rustc_hash::FxHashMap;

use super::{
    locate::{Locator, Named},
    perf_data::{EventTally, Target, Told},
    sample::Sample,
};

/// A longer line is none of perf's.
const LINE_BYTES_MAX: u64 = 1 << 20;
const EVENTS_MAX: usize = 255;

/// Whether this is how such a text may begin: with printable characters alone.
pub fn is_text(start: &[u8]) -> bool {
    let printable = |b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..);
    !start.is_empty() && start.iter().all(printable)
}

/// Reads the whole text; an error where it holds no line of perf's.
pub fn read(mut text: impl BufRead, locator: &Locator<'_>) -> Result<Told, String> {
    let mut reader = Reader::new(locator);
    let mut line = Vec::new();
    loop {
        line.clear();
        let bytes = io::Read::take(&mut text, LINE_BYTES_MAX).read_until(b'\n', &mut line);
        match bytes.map_err(|e| e.to_string())? {
            0 => break,
            _ => reader.line(String::from_utf8_lossy(&line).trim_end()),
        }
    }
    reader.end_sample();
    if reader.told.events.iter().all(|e| e.samples == 0) {
        return Err("neither perf's file nor the text of perf script".to_owned());
    }
    let Reader { mut told, by_name, strange, .. } = reader;
    told.unreadable = strange;
    if by_name > 0 {
        let note = format!(
            "{by_name} samples were placed by the names in the text, which has no mappings: perf script --show-mmap-events prints them"
        );
        told.remarks.push(note);
    }
    Ok(told)
}

struct Reader<'a> {
    locator: &'a Locator<'a>,
    told: Told,
    events: FxHashMap<String, usize>,
    /// The sample whose lines are being read.
    sample: Option<Header>,
    /// Offsets of symbols by image and name; `None`: not here.
    images: FxHashMap<String, Option<FxHashMap<String, u64>>>,
    by_name: u64,
    strange: u64,
}

/// The first line of a sample.
struct Header {
    pid: i32,
    event: usize,
    period: u64,
}

impl<'a> Reader<'a> {
    fn new(locator: &'a Locator<'a>) -> Self {
        Reader {
            locator,
            told: Told::default(),
            events: FxHashMap::default(),
            sample: None,
            images: FxHashMap::default(),
            by_name: 0,
            strange: 0,
        }
    }

    fn line(&mut self, line: &str) {
        if line.is_empty() {
            self.end_sample();
        } else if line.starts_with('#') {
        } else if let Some(at) = line.find("PERF_RECORD_MMAP") {
            if mapping(&mut self.told, &line[at..]).is_none() {
                self.strange += 1;
            }
        } else if line.contains("PERF_RECORD_") {
        } else if line.starts_with(['\t', ' ']) && self.sample.is_some() && !line.contains(": ") {
            self.frame(line);
        } else {
            self.end_sample();
            match self.header(line) {
                Some(rest) if rest.is_empty() => {}
                Some(rest) => self.frame(&rest),
                None => self.strange += 1,
            }
        }
    }

    /// `comm  pid[/tid] [cpu] time: [period] event: [what comes on the same line]`
    fn header(&mut self, line: &str) -> Option<String> {
        let (before, after) = line.split_once(": ").or_else(|| Some((line.strip_suffix(':')?, "")))?;
        let mut words = before.split_whitespace().rev();
        words.next()?.parse::<f64>().ok()?;
        let mut id = words.next()?;
        if id.starts_with('[') {
            id = words.next()?;
        }
        let pid: i32 = id.split('/').next()?.parse().ok()?;
        let comm = before[..before.rfind(id)?].trim();
        let after = after.trim_start();
        let (period, after) = match after.split_once(char::is_whitespace) {
            Some((number, rest)) if number.bytes().all(|b| b.is_ascii_digit()) => {
                (number.parse().ok()?, rest.trim_start())
            }
            _ => (1, after),
        };
        let (name, rest) = after.split_once(": ").or_else(|| Some((after.strip_suffix(':')?, "")))?;
        let event = self.event(name.trim())?;
        self.told.spaces.comm(pid, comm, false);
        self.sample = Some(Header { pid, event, period });
        Some(rest.trim().to_owned())
    }

    fn event(&mut self, name: &str) -> Option<usize> {
        if let Some(&event) = self.events.get(name) {
            return Some(event);
        }
        let event = self.told.events.len();
        if event == EVENTS_MAX || name.is_empty() || name.contains(char::is_whitespace) {
            return None;
        }
        self.events.insert(name.to_owned(), event);
        self.told.attributes.push((name.to_owned(), None));
        self.told.events.push(EventTally::default());
        Some(event)
    }

    /// `address symbol+0xoffset (image)`: the innermost of a sample counts, the others are its callers. A call that was
    /// inlined there comes before it, by its name alone.
    fn frame(&mut self, line: &str) {
        if line.ends_with(" (inlined)") {
            return;
        }
        let mut words = line.trim().splitn(2, char::is_whitespace);
        let address = words.next().and_then(|a| u64::from_str_radix(a.trim_start_matches("0x"), 16).ok());
        let Some(address) = address else {
            self.strange += 1;
            return;
        };
        let Some(Header { pid, event, period }) = self.sample.take() else { return };
        let (symbol, image) = named(words.next().unwrap_or_default());
        let mode = if address >> 63 == 1 { CpuMode::Kernel } else { CpuMode::User };
        let mapped = mode == CpuMode::Kernel || self.told.spaces.find(pid, address).is_some();
        let period = period.max(1);
        match if mapped { None } else { self.by_name(symbol, image) } {
            None => {
                let sample = Sample { pid, ip: Some(address), period, ..Sample::default() };
                self.told.sample(event, mode, &sample);
            }
            Some(place) => {
                self.by_name += 1;
                let execution = self.told.spaces.execution(pid);
                self.told.count(event, execution, Some(place), address, period);
            }
        }
    }

    /// A sample whose header came without a place.
    fn end_sample(&mut self) {
        if let Some(Header { pid, event, period }) = self.sample.take() {
            let execution = self.told.spaces.execution(pid);
            self.told.count(event, execution, None, 0, period.max(1));
        }
    }

    fn by_name(&mut self, symbol: Option<(&str, u64)>, path: &str) -> Option<(u32, u64)> {
        let (name, within) = symbol?;
        let file = Named { path: path.as_bytes().to_vec(), build_id: None };
        let find = || self.locator.open(&file).map(|image| symbols(&image));
        let symbols = self.images.entry(path.to_owned()).or_insert_with(find).as_ref()?;
        let offset = symbols.get(name)?.checked_add(within)?;
        Some((self.told.intern(Target::File(file)), offset))
    }
}

/// `symbol+0xoffset (image)`
fn named(text: &str) -> (Option<(&str, u64)>, &str) {
    let Some((symbol, image)) = text.trim().rsplit_once(" (") else { return (None, "") };
    let offset =
        |(name, offset): (&'_ str, &str)| u64::from_str_radix(offset, 16).ok().map(|o| (name.len(), o));
    let found = symbol.rsplit_once("+0x").and_then(offset);
    (found.map(|(length, offset)| (&symbol[..length], offset)), image.trim_end_matches(')'))
}

/// Offsets in the file of an image's procedures by both spellings of their names; those of names that several have are left out.
fn symbols(image: &Image) -> FxHashMap<String, u64> {
    let mut found: FxHashMap<String, Option<u64>> = FxHashMap::default();
    for procedure in image.procedures() {
        let Some(offset) = image.offset_of(procedure.address) else { continue };
        let mut names = vec![procedure.name.to_string(), procedure.demangled().to_owned()];
        names.extend(procedure.aliases.iter().map(|a| a.to_string()));
        names.sort_unstable();
        names.dedup();
        for name in names {
            found.entry(name).and_modify(|known| *known = None).or_insert(Some(offset.0));
        }
    }
    found.into_iter().filter_map(|(name, offset)| Some((name, offset?))).collect()
}

/// `PERF_RECORD_MMAP2 pid/tid: [0xstart(0xlength) @ 0xoffset major:minor inode generation]: r-xp path`
fn mapping(told: &mut Told, text: &str) -> Option<()> {
    let hex = |text: &str| u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok();
    let (record, rest) = text.split_once(": [")?;
    let pid: i32 = record.split_whitespace().nth(1)?.split('/').next()?.parse().ok()?;
    let (place, rest) = rest.split_once("]: ")?;
    let (start, rest_of_place) = place.split_once('(')?;
    let (length, rest_of_place) = rest_of_place.split_once(") @ ")?;
    let offset = rest_of_place.split_whitespace().next()?;
    let (protection, path) = rest.split_once(' ')?;
    if protection.contains('x') {
        let place = (hex(start)?, hex(length)?, hex(offset)?);
        told.map(pid, pid == -1, place, path.trim().as_bytes(), None);
    }
    Some(())
}
