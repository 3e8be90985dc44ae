//! The instructions and references of a thread, from what was recorded.
//!
//! Enters: the files of a trace. Leaves: instructions and references in the order in which they happened, one by one. Cost: a few
//! operations for each instruction. Whatever does not fit together is an error that names the place in the stream.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::{Path, PathBuf},
};

use dwell_profile::VirtualAddress;
use rustc_hash::FxHashMap;

use crate::{
    store::{CodeRecord, Event, EventKind, Manifest, Mapping, file_name, read_chunks, read_manifest},
    superblock::{
        compute::extended,
        path::{INSTRUCTION_BYTES_MAX, Path as CodePath, follow},
        plan::{Access, Action, CUT, Plan, Repeat, StringOperation, Target},
        registers::{General, RegisterSet},
    },
};

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// It executed an instruction.
    Instruction {
        /// Its address in the process.
        pc: VirtualAddress,
        /// Its size in bytes.
        length: u8,
    },
    /// The instruction before referred to memory.
    Reference {
        /// Whether it read or wrote.
        access: Access,
        /// The address in the process.
        address: VirtualAddress,
        /// Number of bytes.
        bytes: u32,
    },
    /// A signal was delivered.
    Signal(u8),
}

/// A superblock, as the reader needs it.
struct Superblock {
    path: CodePath,
    plan: Plan,
}

/// A trace that is open for reading.
pub struct Trace {
    folder: PathBuf,
    /// What the trace says of itself.
    pub manifest: Manifest,
    superblocks: FxHashMap<u32, Superblock>,
    /// For each space, the superblock behind each exit.
    links: FxHashMap<u32, FxHashMap<(u32, u8), u32>>,
    mappings: BTreeMap<u32, BTreeSet<Mapping>>,
    /// What was damaged or cut off, and is left out.
    pub warnings: Vec<String>,
}

impl Trace {
    /// Opens the trace in a folder, and reads the code that was executed. The error names the file and what is wrong with it.
    pub fn open(folder: &Path) -> io::Result<Trace> {
        let manifest = read_manifest(folder)?;
        let path = folder.join(file_name("code", 0));
        let (bytes, damage) = read_chunks(&path).map_err(|error| named(&path, &error))?;
        let detail = manifest.detail;
        let mut read = Trace {
            folder: folder.to_owned(),
            manifest,
            superblocks: FxHashMap::default(),
            links: FxHashMap::default(),
            mappings: BTreeMap::new(),
            warnings: damage.iter().map(|why| cut_off(&path, why)).collect(),
        };
        for record in CodeRecord::read_all(&bytes) {
            match record {
                CodeRecord::Superblock { number, pc, known, instructions, code } => {
                    let at = |pc: u64| {
                        let contains = |run: &&(u64, Vec<u8>)| pc >= run.0 && pc - run.0 < run.1.len() as u64;
                        let Some((start, bytes)) = code.iter().find(contains) else { return Vec::new() };
                        let rest = bytes[(pc - start) as usize..].iter();
                        rest.take(INSTRUCTION_BYTES_MAX).copied().collect()
                    };
                    let path = follow(pc, usize::from(instructions), at);
                    let plan = Plan::new(&path, RegisterSet(known), detail);
                    read.superblocks.insert(number, Superblock { path, plan });
                }
                CodeRecord::Link { space, from, exit, to } => {
                    read.links.entry(space).or_default().insert((from, exit), to);
                }
                CodeRecord::Mapped { space, mapping } => {
                    read.mappings.entry(space).or_default().insert(mapping);
                }
                CodeRecord::Fork { space, of } => {
                    let links = read.links.get(&of).cloned().unwrap_or_default();
                    read.links.insert(space, links);
                }
            }
        }
        Ok(read)
    }

    /// Returns the code of files that a space of addresses had, ascending.
    pub fn mappings(&self, space: u32) -> impl Iterator<Item = &Mapping> {
        self.mappings.get(&space).into_iter().flatten()
    }

    /// Opens the stream of a thread, by its place in the manifest.
    pub fn stream(&self, number: u32) -> io::Result<Stream<'_>> {
        Stream::open(self, number)
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn cut_off(path: &Path, why: &str) -> String {
    format!("{}: damaged or cut off ({why}); what follows is left out", path.display())
}

/// Why a trace cannot be read beyond a place.
#[derive(Debug)]
pub struct Broken {
    /// Number of bytes of the stream before it.
    pub position: u64,
    /// What does not fit together.
    pub why: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {} of the stream: {}", self.position, self.why)
    }
}

/// What was read of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Instructions; a string instruction counts each time that it repeats.
    pub instructions: u64,
    /// References to memory.
    pub references: u64,
    /// Instructions that were executed alone, whose references are not known.
    pub alone: u64,
    /// References that cannot be regenerated: of gathers and the like.
    pub untraced: u64,
    /// Addresses that were recorded to check the regenerated ones, and how many differed.
    pub checked: u64,
    /// How many of the checked addresses were regenerated wrongly.
    pub wrong: u64,
}

impl Totals {
    /// Adds the totals of another stream.
    pub fn add(&mut self, other: Totals) {
        self.instructions += other.instructions;
        self.references += other.references;
        self.alone += other.alone;
        self.untraced += other.untraced;
        self.checked += other.checked;
        self.wrong += other.wrong;
    }
}

/// A stream that is being read.
pub struct Stream<'c> {
    code: &'c Trace,
    links: Option<&'c FxHashMap<(u32, u8), u32>>,
    bytes: Vec<u8>,
    events: Vec<Event>,
    at: usize,
    next_event: usize,
    superblock: Option<u32>,
    registers: [u64; 16],
    fs_base: u64,
    backwards: bool,
    /// What was read so far.
    pub totals: Totals,
    /// What was damaged or cut off, and is left out.
    pub warnings: Vec<String>,
}

impl<'c> Stream<'c> {
    fn open(code: &'c Trace, number: u32) -> io::Result<Stream<'c>> {
        let mut warnings = Vec::new();
        let mut read = |kind| {
            let path = code.folder.join(file_name(kind, number));
            let (bytes, damage) = read_chunks(&path).map_err(|error| named(&path, &error))?;
            warnings.extend(damage.map(|why| cut_off(&path, &why)));
            io::Result::Ok(bytes)
        };
        let (bytes, events) = (read("stream")?, read("events")?);
        let entry = code.manifest.threads.get(number as usize);
        let space = entry.map_or(0, |entry| entry.space);
        Ok(Stream {
            code,
            links: code.links.get(&space),
            bytes,
            events: Event::read_all(&events),
            at: 0,
            next_event: 0,
            superblock: None,
            registers: [0; 16],
            fs_base: 0,
            backwards: false,
            totals: Totals::default(),
            warnings,
        })
    }

    /// Returns the size of the stream before packing.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Passes everything to `sink`.
    pub fn each(&mut self, sink: &mut dyn FnMut(Item)) -> Result<(), Broken> {
        while self.events_here(sink) || self.at < self.bytes.len() {
            if self.at < self.bytes.len() {
                self.run(sink).map_err(|why| Broken { position: self.at as u64, why })?;
            }
        }
        Ok(())
    }

    /// Handles the events at this place. Returns whether there were any.
    fn events_here(&mut self, sink: &mut dyn FnMut(Item)) -> bool {
        let before = self.next_event;
        while let Some(event) =
            self.events.get(self.next_event).filter(|event| event.position <= self.at as u64)
        {
            match event.kind {
                EventKind::Resume { superblock, fs_base, registers } => {
                    (self.superblock, self.fs_base, self.registers) = (Some(superblock), fs_base, registers);
                }
                EventKind::Alone { pc, length } => {
                    self.totals.alone += 1;
                    self.totals.instructions += 1;
                    sink(Item::Instruction { pc: VirtualAddress(pc), length });
                }
                EventKind::Signal { number } => sink(Item::Signal(number)),
                EventKind::Cut { .. } | EventKind::Exit { .. } => {}
            }
            self.next_event += 1;
        }
        self.next_event > before
    }

    fn take(&mut self, bytes: usize) -> Result<u64, String> {
        let mut whole = [0; 8];
        let taken = self.bytes.get(self.at..self.at + bytes).ok_or("it ends within a run")?;
        whole[..bytes].copy_from_slice(taken);
        self.at += bytes;
        Ok(u64::from_le_bytes(whole))
    }

    /// Regenerates one run of a superblock.
    fn run(&mut self, sink: &mut dyn FnMut(Item)) -> Result<(), String> {
        let number = self.superblock.ok_or("no superblock is known to follow")?;
        let code = self.code;
        let superblock =
            code.superblocks.get(&number).ok_or_else(|| format!("superblock {number} is not in the code"))?;
        let exit = self.take(1)? as u8;
        let cut = match self.events.get(self.next_event).map(|event| &event.kind) {
            Some(EventKind::Cut { instructions }) if exit == CUT => Some(*instructions),
            _ if exit == CUT => return Err("a cut run has no event".to_owned()),
            _ => None,
        };
        self.totals.untraced += u64::from(superblock.plan.untraced);
        let mut last = None;
        for action in &superblock.plan.actions {
            match *action {
                Action::Instruction(at) => {
                    if cut == Some(at) {
                        return Ok(());
                    }
                    let instruction = &superblock.path.steps[usize::from(at)].instruction;
                    let pc = VirtualAddress(instruction.ip());
                    let item = Item::Instruction { pc, length: instruction.len() as u8 };
                    last = Some(item);
                    self.totals.instructions += 1;
                    sink(item);
                }
                Action::Record(register, stored) => {
                    let value =
                        extended(self.take(usize::from(stored.bytes))?, stored.bytes, stored.is_signed);
                    self.registers[usize::from(register.0)] =
                        if stored.is_32 { value & 0xffff_ffff } else { value };
                }
                Action::Reference(reference) => {
                    let address = VirtualAddress(reference.address(&self.registers, self.fs_base));
                    self.totals.references += 1;
                    sink(Item::Reference { access: reference.access, address, bytes: reference.bytes });
                    last =
                        Some(Item::Reference { access: reference.access, address, bytes: reference.bytes });
                    if reference.is_fs {
                        last = Some(Item::Reference {
                            access: reference.access,
                            address: address.back(self.fs_base),
                            bytes: 0,
                        });
                    }
                }
                Action::Check => {
                    let recorded = self.take(8)?;
                    self.totals.checked += 1;
                    if let Some(Item::Reference { address, .. }) = last
                        && address != VirtualAddress(recorded)
                    {
                        self.totals.wrong += 1;
                    }
                }
                Action::String(string) => {
                    if let Some(instruction @ Item::Instruction { .. }) = last {
                        self.string(string, instruction, sink)?;
                    }
                }
                Action::Compute(compute) => {
                    self.registers[usize::from(compute.to.0)] = compute.evaluate(&self.registers)
                }
                Action::Direction(backwards) => self.backwards = backwards,
                Action::Leave(leaves) if leaves == exit => {
                    self.superblock = match superblock.plan.exits[usize::from(exit)].target {
                        Target::Indirect => Some(self.take(4)? as u32),
                        _ => self.links.and_then(|links| links.get(&(number, exit)).copied()),
                    };
                    return Ok(());
                }
                Action::Leave(_) => {}
            }
        }
        Err(format!("superblock {number} has no exit {exit}"))
    }

    fn string(
        &mut self,
        string: StringOperation,
        instruction: Item,
        sink: &mut dyn FnMut(Item),
    ) -> Result<(), String> {
        let get = |registers: &[u64; 16], register: General| registers[usize::from(register.0)];
        let before = get(&self.registers, General::RCX);
        let (times, checks_again) = match string.repeat {
            Repeat::Once => (1, false),
            Repeat::Count => (before, true),
            Repeat::While(wanted) => {
                let (after, zero) = (self.take(8)?, self.take(1)? != 0);
                (before.wrapping_sub(after), before == 0 || (after == 0 && zero == wanted))
            }
        };
        let step =
            if self.backwards { u64::from(string.bytes).wrapping_neg() } else { u64::from(string.bytes) };
        for time in 0..times {
            if time > 0 {
                self.totals.instructions += 1;
                sink(instruction);
            }
            let moved = time.wrapping_mul(step);
            let ends = [(string.loads_rsi.then_some(Access::Load), General::RSI), (string.rdi, General::RDI)];
            for (access, register) in ends {
                let Some(access) = access else { continue };
                let address = VirtualAddress(get(&self.registers, register)).offset(moved);
                self.totals.references += 1;
                sink(Item::Reference { access, address, bytes: string.bytes });
            }
        }
        // The processor looks at rcx once more, and finds that nothing is left to do.
        if checks_again && times > 0 {
            self.totals.instructions += 1;
            sink(instruction);
        }
        let all = times.wrapping_mul(step);
        for (is, register) in [(string.loads_rsi, General::RSI), (string.rdi.is_some(), General::RDI)] {
            if is {
                let moved = get(&self.registers, register).wrapping_add(all);
                self.registers[usize::from(register.0)] = moved;
            }
        }
        if string.repeat != Repeat::Once {
            self.registers[usize::from(General::RCX.0)] = before.wrapping_sub(times);
        }
        Ok(())
    }
}
