//! A traced thread: its registers as the program sees them, and its stream.

use std::{cell::RefCell, fs::File, io, os::unix::fs::FileExt, path::Path, rc::Rc};

use dwell_probe::process::tracee::{Registers, Tracee};
use dwell_profile::{Pid, Tid};

use super::space::{Place, Space};
use crate::{
    emit::Spill,
    layout,
    store::{ChunkWriter, Event, EventKind, Packer, file_name},
    superblock::{
        plan::CUT,
        registers::{General, RegisterSet},
    },
};

pub struct Thread {
    pub tracee: Tracee,
    pub process: Pid,
    pub space: Rc<RefCell<Space>>,
    /// The memory of its process.
    memory: File,
    /// The base of its gs segment: its own memory ([`layout`]).
    pub own: u64,
    stream: ChunkWriter,
    events: ChunkWriter,
}

impl Thread {
    pub fn create(
        tid: Tid,
        process: Pid,
        space: Rc<RefCell<Space>>,
        own: u64,
        (packer, folder, number): (&Packer, &Path, u32),
    ) -> io::Result<Thread> {
        let create = |kind| packer.create(&folder.join(file_name(kind, number)));
        Ok(Thread {
            tracee: Tracee { tid },
            process,
            space,
            memory: open_memory(tid)?,
            own,
            stream: create("stream")?,
            events: create("events")?,
        })
    }

    /// Returns the address of the first byte of the stream in memory.
    pub fn stream_at(&self) -> u64 {
        self.own + u64::from(layout::STREAM)
    }

    /// Returns whether an address is in the guard behind the stream.
    pub fn is_guard(&self, address: u64) -> bool {
        let guard = self.stream_at() + u64::from(layout::STREAM_BYTES);
        (guard..guard + u64::from(layout::GUARD_BYTES)).contains(&address)
    }

    fn is_stream(&self, address: u64) -> bool {
        (self.stream_at()..=self.stream_at() + u64::from(layout::STREAM_BYTES)).contains(&address)
    }

    fn read_slot(&self, slot: u32) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, self.own + u64::from(slot))?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Returns the program's r15, while the code of the cache runs.
    pub fn program_r15(&self) -> io::Result<u64> {
        self.read_slot(layout::R15)
    }

    fn write_slot(&self, slot: u32, value: u64) -> io::Result<()> {
        self.memory.write_all_at(&value.to_le_bytes(), self.own + u64::from(slot))
    }

    /// Adds an event at this place of the stream.
    pub fn event(&mut self, registers: &Registers, kind: EventKind) {
        let waiting = match self.is_stream(registers.r15) {
            true => registers.r15 - self.stream_at(),
            false => 0,
        };
        let event = Event { position: self.stream.bytes + waiting, kind };
        let mut bytes = Vec::new();
        event.write(&mut bytes);
        self.events.add(&bytes);
    }

    /// Moves the bytes of the stream to its file; a run that has begun stays, at the beginning. Returns the new place in the stream.
    pub fn drain(&mut self, place: u64) -> io::Result<u64> {
        if !self.is_stream(place) {
            return Ok(place);
        }
        let mut bytes = vec![0; (place - self.stream_at()) as usize];
        self.memory.read_exact_at(&mut bytes, self.stream_at())?;
        self.stream.add(&bytes);
        let mut begun = vec![0; (self.stream_at() + u64::from(layout::STREAM_BYTES) - place) as usize];
        begun.truncate(1 << 12);
        self.memory.read_exact_at(&mut begun, place)?;
        self.memory.write_all_at(&begun, self.stream_at())?;
        Ok(self.stream_at())
    }

    /// Returns the size of the files of the stream before packing, in bytes.
    pub fn bytes(&self) -> u64 {
        self.stream.bytes + self.events.bytes
    }

    /// Writes to disk what is in memory of the tracer. The file of code must be written before.
    pub fn flush(&mut self) -> io::Result<()> {
        self.events.flush()?;
        self.stream.flush()
    }

    /// Lets the thread, whose registers are the program's, go on in the cache.
    pub fn enter(&mut self, program: &Registers, stream_place: u64) -> io::Result<()> {
        let number = self.space.borrow_mut().superblock(program.rip, RegisterSet::ALL)?;
        let mut registers = *program;
        registers.r15 = stream_place;
        let resume =
            EventKind::Resume { superblock: number, fs_base: program.fs_base, registers: general(program) };
        self.event(&registers, resume);
        self.write_slot(layout::R15, program.r15)?;
        registers.rip = self.space.borrow().translated(number).at;
        registers.gs_base = self.own;
        registers.orig_rax = u64::MAX;
        self.tracee.set_registers(&registers)
    }

    /// Returns the registers as the program has them, if it is at a place where they are known, and the place in the stream behind the run.
    /// A run that has begun is cut. `fails`: whether the instruction there has failed, so that it counts as not executed.
    pub fn leave(&mut self, registers: &Registers, fails: bool) -> io::Result<Option<(Registers, u64)>> {
        let place = self.space.borrow().place(registers.rip);
        let (superblock, instruction, spill) = match place {
            Place::Between => return Ok(None),
            Place::Within { .. } if !fails => return Ok(None),
            Place::Before { superblock, instruction } => (superblock, instruction, Spill::None),
            Place::Within { superblock, instruction, spill } => (superblock, instruction, spill),
            Place::BehindCall { superblock } => {
                let behind = self.space.borrow().translated(superblock).path.end;
                let mut program = *registers;
                (program.rip, program.rcx) = (behind, behind);
                program.r15 = self.read_slot(layout::R15)?;
                program.gs_base = 0;
                return Ok(Some((program, registers.r15)));
            }
            Place::BeforeCall { superblock } => {
                let translated = self.space.borrow().translated(superblock);
                let mut before = *registers;
                let ended = translated.plan.exits.last().map_or(0, |exit| exit.bytes);
                before.r15 -= u64::from(ended);
                return self.cut(&before, superblock, translated.path.steps.len() - 1, Spill::None).map(Some);
            }
        };
        self.cut(registers, superblock, instruction, spill).map(Some)
    }

    fn cut(
        &mut self,
        registers: &Registers,
        superblock: u32,
        instruction: usize,
        spill: Spill,
    ) -> io::Result<(Registers, u64)> {
        let translated = self.space.borrow().translated(superblock);
        let mut program = *registers;
        let has_begun = registers.rip != translated.at;
        let mut place = registers.r15;
        if has_begun {
            self.memory.write_all_at(&[CUT], place)?;
            place += u64::from(translated.plan.bytes_at[instruction]);
            let behind = Registers { r15: place, ..*registers };
            self.event(&behind, EventKind::Cut { instructions: instruction as u16 });
        }
        program.rip = translated.path.steps.get(instruction).map_or(translated.path.end, |step| step.pc());
        program.r15 = self.read_slot(layout::R15)?;
        program.gs_base = 0;
        match spill {
            Spill::None => {}
            Spill::One(register) => *register_mut(&mut program, register) = self.read_slot(layout::SPILL)?,
            Spill::Pair => {
                program.rax = self.read_slot(layout::RAX)?;
                program.rcx = self.read_slot(layout::RCX)?;
            }
        }
        Ok((program, place))
    }

    /// Fills the table of targets with the one that a lookup missed.
    pub fn know_target(&self, key: u64) -> io::Result<()> {
        let (pc, known) = (key & 0xffff_ffff_ffff, RegisterSet((key >> 48) as u16));
        let number = self.space.borrow_mut().superblock(pc, known)?;
        let code = self.space.borrow().translated(number).at;
        let at = layout::place_in_table(key);
        self.memory.write_all_at(&code.to_le_bytes(), self.own + u64::from(layout::CODES) + 8 * at)?;
        self.memory.write_all_at(&number.to_le_bytes(), self.own + u64::from(layout::NUMBERS) + 4 * at)?;
        let key = key.wrapping_neg();
        self.memory.write_all_at(&key.to_le_bytes(), self.own + u64::from(layout::KEYS) + 8 * at)
    }
}

/// Opens the memory of a process.
pub fn open_memory(tid: Tid) -> io::Result<File> {
    File::options().read(true).write(true).open(format!("/proc/{tid}/mem"))
}

fn general(r: &Registers) -> [u64; 16] {
    [
        r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13,
        r.r14, r.r15,
    ]
}

fn register_mut(r: &mut Registers, register: General) -> &mut u64 {
    match register.0 {
        0 => &mut r.rax,
        1 => &mut r.rcx,
        2 => &mut r.rdx,
        3 => &mut r.rbx,
        4 => &mut r.rsp,
        5 => &mut r.rbp,
        6 => &mut r.rsi,
        7 => &mut r.rdi,
        8 => &mut r.r8,
        9 => &mut r.r9,
        10 => &mut r.r10,
        11 => &mut r.r11,
        12 => &mut r.r12,
        13 => &mut r.r13,
        14 => &mut r.r14,
        _ => &mut r.r15,
    }
}
