//! Reads the text of `perf script` line by line.
//!
//! Enters: text with any list of fields. Leaves: what a perf.data file would have reported, as far as the text contains
//! it, and the names that perf gave to places. Never here: a guess. The text has no mappings unless
//! `--show-mmap-events` printed them. Without mappings, a place is found by its name if its image is on this machine;
//! otherwise only the name is kept.

mod lines;

use std::{
    io::{self, BufRead},
    os::unix::ffi::OsStrExt,
};

use dwell_image::Image;
use dwell_profile::{ImageId, ImageKind, NamedFrame, Pid, VirtualAddress, bytes_to_text, text_to_path};
use dwell_unwind::FRAMES_MAX;
use lines::{Call, Head, source_line};
use rustc_hash::FxHashMap;

use super::{
    call_stacks::Place,
    imported::{EventTally, ImportedProfile, Target, pid_of},
    locate::{Locator, Named},
    names::{FunctionText, Names},
};

/// Limit of a line in bytes; perf does not print longer ones.
const LINE_BYTES_MAX: u64 = 1 << 20;
const EVENTS_MAX: usize = 255;
/// Processes that the text does not number get numbers below this one, in descending order.
const NUMBERLESS_PIDS_BELOW: u32 = u32::MAX - 1;

/// Returns whether such a text may begin with these bytes: all of them are printable characters.
pub fn is_text(start: &[u8]) -> bool {
    let printable = |b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..);
    !start.is_empty() && start.iter().all(printable)
}

/// Reads the whole text; returns an error if it contains no line of perf.
pub fn read(mut text: impl BufRead, locator: &Locator<'_>) -> Result<ImportedProfile, String> {
    let mut reader = Reader::new(locator);
    let mut line = Vec::new();
    loop {
        line.clear();
        let bytes = io::Read::take(&mut text, LINE_BYTES_MAX).read_until(b'\n', &mut line);
        match bytes.map_err(|e| e.to_string())? {
            0 => break,
            _ => reader.line(bytes_to_text(&line).trim_end()),
        }
    }
    reader.end_sample();
    if reader.imported.events.iter().all(|e| e.samples == 0) {
        return Err("neither a perf.data file nor the text of perf script".to_owned());
    }
    let Reader { mut imported, by_name, strange, lost, .. } = reader;
    imported.end_named_stacks();
    imported.tallies.unreadable = strange;
    imported.events[0].lost = lost;
    if by_name > 0 {
        let note = format!(
            "{by_name} samples were placed by the names in the text, which has no mappings: print them with perf script --show-mmap-events"
        );
        imported.remarks.push(note);
    }
    Ok(imported)
}

struct Reader<'a> {
    locator: &'a Locator<'a>,
    imported: ImportedProfile,
    events: FxHashMap<String, usize>,
    /// Numbers for processes that the text does not number, by the names of their threads.
    pids: FxHashMap<String, Pid>,
    /// The sample whose lines are being read.
    sample: Option<Open>,
    /// Offset and size of symbols by image and name; `None` if the image is not on this machine.
    images: FxHashMap<String, Option<Symbols>>,
    by_name: u64,
    strange: u64,
    /// The frames of one stack, innermost first.
    frames: Vec<Place>,
    /// Number of samples that the kernel had no room for.
    lost: u64,
}

/// Offset and size of symbols, by name.
type Symbols = FxHashMap<String, (u64, u64)>;

/// A sample whose lines have not all been read.
struct Open {
    pid: Pid,
    comm: String,
    event: String,
    period: u64,
    is_certain: bool,
    /// The calls that were inlined into the next one; the text prints them before it.
    inlined: Vec<NamedFrame>,
    /// The calls, innermost first, at most one more than a stack may have frames.
    calls: Vec<OpenCall>,
}

/// A call of a sample.
struct OpenCall {
    address: u64,
    /// The calls that were inlined into this one, innermost first.
    inlined: Vec<NamedFrame>,
    symbol: Option<NamedFrame>,
    name: String,
    within: Option<u64>,
    image: String,
}

impl<'a> Reader<'a> {
    fn new(locator: &'a Locator<'a>) -> Self {
        Reader {
            locator,
            imported: ImportedProfile::default(),
            events: FxHashMap::default(),
            pids: FxHashMap::default(),
            sample: None,
            images: FxHashMap::default(),
            by_name: 0,
            strange: 0,
            frames: Vec::new(),
            lost: 0,
        }
    }

    fn line(&mut self, line: &str) {
        if line.is_empty() {
            self.end_sample();
        } else if let Some(text) = line.strip_prefix('#') {
            description(&mut self.imported, text);
        } else if let Some(at) = line.find("PERF_RECORD_") {
            self.end_sample();
            self.record(&line[..at], &line[at..]);
        } else if self.sample.is_some() && line.starts_with('\t') {
            self.call(line);
        } else {
            self.other(line);
        }
    }

    /// Reads a record, printed as `comm pid time: PERF_RECORD_…`.
    fn record(&mut self, head: &str, text: &str) {
        if let Some(Head { comm, pid: Some(pid), .. }) =
            Head::read(head).filter(|_| !text.contains(" exec: "))
        {
            self.imported.spaces.comm(pid, comm);
        }
        // The text has the form `PERF_RECORD_COMM exec: name:1/1`.
        let exec = text.strip_prefix("PERF_RECORD_COMM exec: ").and_then(|rest| rest.rsplit_once(':'));
        if let Some((name, ids)) = exec
            && let Some(pid) = ids.split('/').next().and_then(|pid| pid.parse().ok())
        {
            self.imported.spaces.exec(pid, name);
        }
        // The text has the form `PERF_RECORD_FORK(child:thread):(parent:thread)`.
        if let Some(ids) = text.strip_prefix("PERF_RECORD_FORK(") {
            let mut pids = ids.split("):(").filter_map(|ids| ids.split(':').next()?.parse().ok());
            if let (Some(child), Some(parent)) = (pids.next(), pids.next()) {
                self.imported.spaces.fork(child, parent);
            }
        }
        if text.starts_with("PERF_RECORD_MMAP") && mapping(&mut self.imported, text).is_none() {
            self.strange += 1;
        }
        let lost = text
            .strip_prefix("PERF_RECORD_LOST")
            .and_then(|t| t.split_once("lost ")?.1.split_whitespace().next());
        if let Some(lost) = lost.and_then(|n| n.parse::<u64>().ok()) {
            self.lost = self.lost.saturating_add(lost);
        }
    }

    /// Reads a line that begins a sample or belongs to the previous one.
    fn other(&mut self, line: &str) {
        let head = Head::read(line);
        let begins = match (&head, &self.sample) {
            (None, _) => false,
            (Some(head), _) if head.is_certain => true,
            // A head without a time is accepted if a call follows on the line, or if the line is not indented, as it is
            // when calls follow below.
            (Some(head), Some(_)) => !line.starts_with("  ") || Call::read(head.rest, true).is_some(),
            (Some(_), None) => true,
        };
        match head.filter(|_| begins) {
            Some(head) => {
                self.end_sample();
                self.begin(head);
            }
            None => match &mut self.sample {
                Some(open) if line.starts_with([' ', '\t']) => {
                    open.source_line(line, &mut self.imported.names)
                }
                _ => self.strange += 1,
            },
        }
    }

    fn begin(&mut self, head: Head<'_>) {
        // Dwell's own export has no processes: it prints a 0, which is the idle task's.
        let is_process = |pid: &Pid| *pid != Pid::IDLE || head.comm.starts_with("swapper");
        let pid = head.pid.filter(is_process).unwrap_or_else(|| {
            let next = Pid(NUMBERLESS_PIDS_BELOW - self.pids.len() as u32);
            *self.pids.entry(head.comm.to_owned()).or_insert(next)
        });
        self.sample = Some(Open {
            pid,
            comm: head.comm.to_owned(),
            event: head.event.unwrap_or_default().to_owned(),
            period: head.period.unwrap_or(1).max(1),
            is_certain: head.is_certain,
            inlined: Vec::new(),
            calls: Vec::new(),
        });
        if let (Some(call), Some(open)) = (Call::read(head.rest, true), &mut self.sample) {
            open.take(&call, &mut self.imported.names);
        } else if head.event.is_some_and(|event| !event.contains(':')) {
            // Other tools print narrow columns. This form is not tried where the text of a tracepoint may be.
            let call = Call::read(head.rest, false).filter(|call| call.address > 0 && !call.image.is_empty());
            if let (Some(call), Some(open)) = (call, &mut self.sample) {
                open.take(&call, &mut self.imported.names);
            }
        }
    }

    /// Reads a line below the first one of a sample.
    fn call(&mut self, line: &str) {
        let Some(open) = &mut self.sample else { return };
        match Call::read(line, false) {
            Some(call) => open.take(&call, &mut self.imported.names),
            // What follows the innermost call may be anything that the user asked perf to print.
            None => self.strange += u64::from(open.calls.is_empty()),
        }
    }

    fn event(&mut self, name: &str) -> Option<usize> {
        if let Some(&event) = self.events.get(name) {
            return Some(event);
        }
        let event = self.imported.events.len();
        if event == EVENTS_MAX {
            return None;
        }
        self.events.insert(name.to_owned(), event);
        self.imported.attributes.push((name.to_owned(), None));
        self.imported.events.push(EventTally::default());
        Some(event)
    }

    /// Counts the sample that was read.
    fn end_sample(&mut self) {
        let Some(open) = self.sample.take() else { return };
        let is_sample = open.is_certain || !open.calls.is_empty();
        let Some(event) = Some(&open.event).filter(|_| is_sample).and_then(|event| self.event(event)) else {
            self.strange += 1;
            return;
        };
        self.imported.spaces.comm(open.pid, &open.comm);
        let (pid, period) = (open.pid, open.period);
        let mut calls = open.calls.into_iter();
        let (address, place) = match calls.next() {
            Some(leaf) => (leaf.address, self.place(pid, leaf, false)),
            None => (0, None),
        };
        let execution = self.imported.spaces.execution(pid);
        let place = self.imported.count(event, execution, place, address, period);
        self.frames.clear();
        self.frames.push(place);
        for caller in calls {
            let address = caller.address;
            let place = self.place(pid, caller, true);
            let place = place.unwrap_or_else(|| self.imported.unknown_place(address));
            self.frames.push(place);
        }
        self.imported.add_named_stack(event, execution, &self.frames, (period, 1));
    }

    /// Returns the place of a call and stores its names. The address of a caller is its return address; its place is the byte
    /// before.
    fn place(&mut self, pid: Pid, call: OpenCall, is_caller: bool) -> Option<Place> {
        let OpenCall { address, inlined: mut frames, symbol, name, within, image } = call;
        let is_named = symbol.is_some();
        match symbol {
            Some(symbol) => frames.push(symbol),
            None => frames.clear(),
        }
        let found = if address >> 63 == 1 || image.starts_with("[kernel.") {
            Some(self.kernel_place(address, &image))
        } else if let Some(place) = self.imported.user_place(pid, VirtualAddress(address)) {
            Some(place)
        } else if is_generated(&image) {
            Some((self.imported.intern(Target::Jit { process: pid, owner: pid }), address))
        } else {
            let found = self.find_by_name(&name, within, &image);
            self.by_name += u64::from(found.is_some() && !is_caller);
            found
        };
        if let Some((target, offset)) = found {
            let start = within.and_then(|within| offset.checked_sub(within));
            let offset = offset.wrapping_sub(u64::from(is_caller));
            self.imported.names.add(target, offset, start.filter(|start| *start <= offset), frames);
            return Some((target, offset));
        }
        match (is_named, image.is_empty()) {
            (false, true) => None,
            (true, true) => Some(self.imported.numbered(NO_IMAGE, frames, within.unwrap_or(0))),
            (true, false) => {
                Some(self.imported.numbered(&path_bytes(plain(&image)), frames, within.unwrap_or(0)))
            }
            // The image is known, but not the place in it.
            (false, false) => Some(self.imported.numbered(&path_bytes(plain(&image)), frames, address)),
        }
    }

    /// Returns a place in the kernel; offsets are addresses if no mapping reports where the kernel's code begins.
    fn kernel_place(&mut self, address: u64, image: &str) -> Place {
        if let Some(place) = self.imported.kernel_place(VirtualAddress(address)) {
            return place;
        }
        let target = match image {
            "" => Target::Kernel,
            image if image.starts_with("[kernel.") || image.ends_with("vmlinux") => Target::Kernel,
            "[vsyscall]" => Target::Recorded(ImageId::named("vsyscall"), ImageKind::Vdso, image.into()),
            image => Target::module(&dwell_attribution::module_name(image)),
        };
        (self.imported.intern(target), address)
    }

    fn find_by_name(&mut self, name: &str, within: Option<u64>, image: &str) -> Option<Place> {
        let within = within.filter(|_| !name.is_empty())?;
        let file = Named { path: path_bytes(plain(image)), build_id: None };
        let find = || self.locator.open(&file).map(|image| symbols(&image));
        let symbols = self.images.entry(image.to_owned()).or_insert_with(find).as_ref()?;
        let (start, size_bytes) = *symbols.get(name)?;
        let offset = start.checked_add(within).filter(|_| within < size_bytes)?;
        Some((self.imported.intern(Target::File(file)), offset))
    }
}

impl Open {
    /// Takes a call, or one that was inlined into the next one.
    fn take(&mut self, call: &Call<'_>, names: &mut Names) {
        let frame =
            call.symbol.map(|function| names.frame(FunctionText { function, ..FunctionText::default() }));
        if self.calls.len() > FRAMES_MAX {
            return;
        }
        if call.is_inlined {
            self.inlined.extend(frame.filter(|_| self.inlined.len() < FRAMES_MAX));
            return;
        }
        self.calls.push(OpenCall {
            address: call.address,
            inlined: std::mem::take(&mut self.inlined),
            symbol: frame,
            name: call.symbol.unwrap_or_default().to_owned(),
            within: call.within,
            image: call.image.to_owned(),
        });
    }

    /// Takes the source line of the call above.
    fn source_line(&mut self, line: &str, names: &mut Names) {
        let Some((file, line)) = source_line(line) else { return };
        let call = match self.inlined.last_mut() {
            Some(inlined) => Some(inlined),
            None => self.calls.last_mut().and_then(|call| call.symbol.as_mut()),
        };
        if let Some(frame) = call {
            *frame = NamedFrame {
                linkage: frame.linkage.take(),
                ..names.frame(FunctionText {
                    function: &frame.function.clone(),
                    file,
                    line: line.into(),
                    ..FunctionText::default()
                })
            };
        }
    }
}

/// The path of an image for calls whose image the text does not name.
const NO_IMAGE: &[u8] = b"[no image named]";

/// Removes what perf appends to the path of a deleted file.
fn plain(image: &str) -> &str {
    image.strip_suffix(" (deleted)").unwrap_or(image)
}

/// Returns whether perf's name of an image means generated code: the file with its names, or its mapping.
fn is_generated(image: &str) -> bool {
    let is_map = image.strip_prefix("/tmp/perf-").is_some_and(|rest| rest.ends_with(".map"));
    is_map
        || ["//anon", "[anon", "[JIT]", "[heap]", "/memfd:", "/dev/zero"]
            .iter()
            .any(|start| image.starts_with(start))
}

/// Returns the file offsets and sizes of an image's procedures, by both spellings of their names; names of several
/// procedures are left out.
fn symbols(image: &Image) -> Symbols {
    let mut found: FxHashMap<String, Option<(u64, u64)>> = FxHashMap::default();
    for procedure in image.procedures().iter() {
        let Some(offset) = image.offset_of(procedure.address) else { continue };
        let mut names = vec![procedure.name().into_owned(), procedure.demangled()];
        names.extend(procedure.aliases().into_iter().map(|alias| alias.into_owned()));
        names.sort_unstable();
        names.dedup();
        for name in names {
            let place = Some((offset.0, procedure.size_bytes));
            found.entry(name).and_modify(|known| *known = None).or_insert(place);
        }
    }
    found.into_iter().filter_map(|(name, place)| Some((name, place?))).collect()
}

/// Reads a line of `--header`, such as `# hostname : vm`.
fn description(imported: &mut ImportedProfile, text: &str) {
    let Some((key, value)) = text.split_once(" : ") else { return };
    let value = value.trim().to_owned();
    let part = |at: usize| value.split(',').nth(at).map(str::to_owned);
    match key.trim() {
        "hostname" => imported.origin.host = Some(value),
        "os release" => imported.origin.release = Some(value),
        "arch" => imported.origin.arch = Some(value),
        "nrcpus online" => imported.origin.cpus = value.parse().unwrap_or(0),
        "cmdline" => imported.origin.command = vec![value],
        // The value is vendor, family, model and stepping: `AuthenticAMD,26,2,1`.
        "cpudesc" => imported.origin.cpu = vec![value],
        "cpuid" if imported.origin.cpu.len() == 1 => imported.origin.cpu.extend((0..4).map_while(part)),
        _ => {}
    }
}

/// Reads a mapping: `PERF_RECORD_MMAP2 pid/tid: [0xstart(0xlength) @ 0xoffset major:minor inode generation]: r-xp
/// path`.
fn mapping(imported: &mut ImportedProfile, text: &str) -> Option<()> {
    let hex = |text: &str| u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok();
    let (record, rest) = text.split_once(": [")?;
    let pid = pid_of(record.split_whitespace().nth(1)?.split('/').next()?.parse().ok()?);
    let (place, rest) = rest.split_once("]: ")?;
    let (start, rest_of_place) = place.split_once('(')?;
    let (length, rest_of_place) = rest_of_place.split_once(") @ ")?;
    let offset = rest_of_place.split_whitespace().next()?;
    let (protection, path) = rest.split_once(' ')?;
    if protection.contains('x') {
        let place = (VirtualAddress(hex(start)?), hex(length)?, hex(offset)?);
        imported.map(pid, pid == Pid::ENDED, place, &path_bytes(path.trim()), None);
    }
    Some(())
}

/// Returns the bytes of a path in a line that was read by [`bytes_to_text`].
fn path_bytes(text: &str) -> Vec<u8> {
    text_to_path(text).as_os_str().as_bytes().to_vec()
}
