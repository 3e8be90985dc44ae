//! The address space of a process: where the cache of its code is, and which superblocks are in it.

use std::{cell::RefCell, collections::BTreeMap, fs::File, io, os::unix::fs::FileExt, rc::Rc};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    emit::{Emitted, Spill, Trap, emit},
    store::{ChunkWriter, CodeRecord, Mapping},
    superblock::{
        path::{INSTRUCTION_BYTES_MAX, INSTRUCTIONS_MAX, Path as CodePath, follow},
        plan::{Detail, EXITS_MAX, Plan, Target},
        registers::{General, RegisterSet},
    },
};

/// Size of a cache in bytes.
pub const CACHE_BYTES: u64 = 64 << 20;
/// How far code may be from the cache of its copies, so that both reach the same data by 32-bit distances.
const NEAR: u64 = 1 << 30;
/// Largest number of superblocks that begin at one address and differ by the known registers.
const VERSIONS_MAX: usize = 8;

/// A superblock in the cache.
pub struct Translated {
    pub path: CodePath,
    pub plan: Plan,
    pub at: u64,
    pub emitted: Emitted,
}

/// A part of memory for code.
#[derive(Clone)]
pub struct Cache {
    start: u64,
    next: u64,
}

/// Why the code stopped, and where.
#[derive(Clone, Copy)]
pub struct Stop {
    pub superblock: u32,
    pub trap: Trap,
}

/// The file of code of all spaces, and the number of the next superblock and space.
pub struct CodeLog {
    pub file: ChunkWriter,
    superblocks: u32,
    spaces: u32,
}

impl CodeLog {
    pub fn new(file: ChunkWriter) -> CodeLog {
        CodeLog { file, superblocks: 0, spaces: 0 }
    }

    fn add(&mut self, record: &CodeRecord) {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        self.file.add(&bytes);
    }
}

pub struct Space {
    pub number: u32,
    /// The memory of a process with this space.
    pub memory: File,
    detail: Detail,
    caches: Vec<Cache>,
    superblocks: FxHashMap<u32, Rc<Translated>>,
    links: FxHashMap<(u32, u8), u32>,
    /// Pages whose code was looked at.
    pages: FxHashSet<u64>,
    by_key: FxHashMap<(u64, RegisterSet), u32>,
    versions: FxHashMap<u64, Vec<RegisterSet>>,
    /// By the address behind the `int3`.
    stops: FxHashMap<u64, Stop>,
    by_address: BTreeMap<u64, u32>,
    log: Rc<RefCell<CodeLog>>,
}

impl Space {
    pub fn new(memory: File, detail: Detail, log: Rc<RefCell<CodeLog>>) -> Space {
        log.borrow_mut().spaces += 1;
        let number = log.borrow().spaces - 1;
        Space {
            number,
            memory,
            detail,
            caches: Vec::new(),
            superblocks: FxHashMap::default(),
            links: FxHashMap::default(),
            pages: FxHashSet::default(),
            by_key: FxHashMap::default(),
            versions: FxHashMap::default(),
            stops: FxHashMap::default(),
            by_address: BTreeMap::new(),
            log,
        }
    }

    /// Returns the space of a process that was forked: a copy, with copies of the caches at the same addresses.
    pub fn fork(&self, memory: File) -> Space {
        let new = Space::new(memory, self.detail, self.log.clone());
        self.log.borrow_mut().add(&CodeRecord::Fork { space: new.number, of: self.number });
        Space {
            caches: self.caches.clone(),
            superblocks: self.superblocks.clone(),
            links: self.links.clone(),
            pages: self.pages.clone(),
            by_key: self.by_key.clone(),
            versions: self.versions.clone(),
            stops: self.stops.clone(),
            by_address: self.by_address.clone(),
            ..new
        }
    }

    /// Records that a file is mapped as code.
    pub fn map_code(&self, mapping: Mapping) {
        self.log.borrow_mut().add(&CodeRecord::Mapped { space: self.number, mapping });
    }

    /// Returns a superblock of the cache.
    pub fn translated(&self, number: u32) -> Rc<Translated> {
        self.superblocks[&number].clone()
    }

    /// Remembers that the page of an address was looked at. Returns whether that is the first time.
    pub fn look_at_page(&mut self, pc: u64) -> bool {
        self.pages.insert(pc >> 12)
    }

    /// Returns whether there is a cache that code at `pc` can use.
    pub fn has_cache_for(&self, pc: u64) -> bool {
        self.cache_for(pc).is_some()
    }

    fn cache_for(&self, pc: u64) -> Option<usize> {
        let has_room = |cache: &Cache| cache.next + (1 << 16) < cache.start + CACHE_BYTES;
        self.caches.iter().position(|cache| cache.start.abs_diff(pc) < NEAR && has_room(cache))
    }

    /// Takes a new part of memory as a cache.
    pub fn add_cache(&mut self, start: u64) {
        // The first bytes are an instruction that makes a system call for the tracer.
        self.caches.push(Cache { start, next: start + 16 });
    }

    /// Returns the superblock at `pc` for these known registers, or for fewer of them, and makes it if there is none.
    pub fn superblock(&mut self, pc: u64, known: RegisterSet) -> io::Result<u32> {
        let stack = RegisterSet::one(General::RSP);
        let known = if self.detail == Detail::Control { stack } else { known.union(stack) };
        if let Some(number) = self.by_key.get(&(pc, known)) {
            return Ok(*number);
        }
        let versions = self.versions.entry(pc).or_default();
        let known = match versions.len() >= VERSIONS_MAX {
            false => known,
            true => {
                let fitting = versions.iter().filter(|other| other.is_subset_of(known));
                fitting.max_by_key(|other| other.len()).copied().unwrap_or(stack)
            }
        };
        match self.by_key.get(&(pc, known)) {
            Some(number) => Ok(*number),
            None => self.translate(pc, known),
        }
    }

    fn translate(&mut self, pc: u64, known: RegisterSet) -> io::Result<u32> {
        let cache =
            self.cache_for(pc).ok_or_else(|| io::Error::other(format!("no cache is near {pc:#x}")))?;
        let at = self.caches[cache].next;
        let memory = &self.memory;
        let code = |pc: u64| {
            let mut bytes = vec![0; INSTRUCTION_BYTES_MAX];
            let read = memory.read_at(&mut bytes, pc).unwrap_or(0);
            bytes.truncate(read);
            bytes
        };
        let mut limit = INSTRUCTIONS_MAX;
        let (path, plan, emitted) = loop {
            let path = follow(pc, limit, code);
            let plan = Plan::new(&path, known, self.detail);
            if plan.exits.len() > EXITS_MAX {
                limit = path.steps.len() / 2;
                continue;
            }
            match emit(&path, &plan, at) {
                Ok(emitted) => break (path, plan, emitted),
                // The instruction that cannot be copied is executed alone.
                Err((instruction, _)) => limit = instruction,
            }
        };
        self.memory.write_all_at(&emitted.bytes, at)?;
        self.caches[cache].next += emitted.bytes.len() as u64;
        let mut log = self.log.borrow_mut();
        let number = log.superblocks;
        log.superblocks += 1;
        self.by_key.insert((pc, known), number);
        self.versions.entry(pc).or_default().push(known);
        self.by_address.insert(at, number);
        for (offset, trap) in &emitted.traps {
            self.stops.insert(at + u64::from(*offset), Stop { superblock: number, trap: *trap });
        }
        log.add(&CodeRecord::Superblock {
            number,
            pc,
            known: known.0,
            instructions: path.steps.len() as u16,
            code: runs(&path),
        });
        self.superblocks.insert(number, Rc::new(Translated { path, plan, at, emitted }));
        Ok(number)
    }

    /// Leads an exit to its target. Returns the target.
    pub fn link(&mut self, from: u32, exit: u8, jump: u32) -> io::Result<u32> {
        if let Some(known) = self.links.get(&(from, exit)) {
            return Ok(*known);
        }
        let source = self.translated(from);
        let known = source.plan.exits[usize::from(exit)].known;
        let Target::Direct(pc) = source.plan.exits[usize::from(exit)].target else {
            return Err(io::Error::other("an exit without a target is linked"));
        };
        let to = self.superblock(pc, known)?;
        let place = source.at + u64::from(jump);
        let target = self.translated(to).at;
        let distance = target.wrapping_sub(place + 5) as i64;
        let mut code = [0x90; 8];
        if let Ok(distance) = i32::try_from(distance) {
            code[0] = 0xe9;
            code[1..5].copy_from_slice(&distance.to_le_bytes());
        } else {
            self.memory.write_all_at(&target.to_le_bytes(), place + 8)?;
            code[..6].copy_from_slice(&[0xff, 0x25, 2, 0, 0, 0]);
        }
        self.memory.write_all_at(&code, place)?;
        self.links.insert((from, exit), to);
        self.log.borrow_mut().add(&CodeRecord::Link { space: self.number, from, exit, to });
        Ok(to)
    }

    /// Returns why the code stopped before this address.
    pub fn stop_before(&self, pc: u64) -> Option<Stop> {
        self.stops.get(&pc).copied()
    }

    /// Returns the superblock whose code contains an address.
    pub fn at_address(&self, pc: u64) -> Option<u32> {
        let (start, number) = self.by_address.range(..=pc).next_back()?;
        let length = self.superblocks[number].emitted.bytes.len() as u64;
        (pc - start < length).then_some(*number)
    }

    /// Returns the address of an instruction that makes system calls for the tracer.
    pub fn system_call_at(&self) -> Option<u64> {
        self.caches.first().map(|cache| cache.start)
    }
}

/// Where a thread is in the code of a superblock.
pub enum Place {
    /// Before the first instruction, or before the one with this number of a run that has begun.
    Before { superblock: u32, instruction: usize },
    /// Within the code of an instruction that may fail, with registers in the thread's memory.
    Within { superblock: u32, instruction: usize, spill: Spill },
    /// The run has ended and its system call is about to be made: the run's last exit was recorded.
    BeforeCall { superblock: u32 },
    /// The system call has been made.
    BehindCall { superblock: u32 },
    /// Elsewhere: it goes on to one of the others by itself.
    Between,
}

impl Space {
    /// Returns where an address is.
    pub fn place(&self, pc: u64) -> Place {
        let Some(number) = self.at_address(pc) else { return Place::Between };
        let superblock = &self.superblocks[&number];
        let offset = (pc - superblock.at) as u32;
        if offset == 0 {
            return Place::Before { superblock: number, instruction: 0 };
        }
        if let Some([ended, call, done]) = superblock.emitted.system_call {
            match offset {
                _ if offset == done => return Place::BehindCall { superblock: number },
                _ if (ended..=call).contains(&offset) => return Place::BeforeCall { superblock: number },
                _ => {}
            }
        }
        let boundaries = &superblock.emitted.boundaries;
        match boundaries.binary_search(&offset) {
            Ok(instruction) => Place::Before { superblock: number, instruction },
            Err(0) => Place::Between,
            Err(behind) => {
                let spill = superblock.emitted.spills[behind - 1];
                Place::Within { superblock: number, instruction: behind - 1, spill }
            }
        }
    }
}

/// Returns the code of a path, one run of bytes for each jump.
fn runs(path: &CodePath) -> Vec<(u64, Vec<u8>)> {
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    for step in &path.steps {
        let known = |(start, bytes): &(u64, Vec<u8>)| {
            step.pc() >= *start && step.pc() + step.bytes().len() as u64 <= start + bytes.len() as u64
        };
        if runs.iter().any(known) {
            continue;
        }
        match runs.last_mut().filter(|(start, bytes)| start + bytes.len() as u64 == step.pc()) {
            Some((_, bytes)) => bytes.extend_from_slice(step.bytes()),
            None => runs.push((step.pc(), step.bytes().to_vec())),
        }
    }
    runs
}
