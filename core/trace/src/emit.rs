//! The code of a superblock in the cache: copies of the program's instructions, and between them what records.
//!
//! Enters: a path and its plan, and the address where the code will be. Leaves: bytes, and what the tracer must know of them. No
//! inserted instruction changes the flags, the stack below the stack pointer, or a register that the program sees. r15 holds the place in
//! the stream; the program's r15 is in the thread's own memory, as are a few more words, all relative to gs.

use iced_x86::{
    Encoder, Instruction, InstructionInfoFactory, MemoryOperand, Mnemonic, OpAccess, OpKind, Register,
};

use crate::{
    layout,
    superblock::{
        path::{Next, Path},
        plan::{Action, Plan, Reference, Repeat, Target},
        registers::{General, RegisterSet},
    },
};

/// The code of a superblock.
#[derive(Debug, Default)]
pub struct Emitted {
    pub bytes: Vec<u8>,
    /// For each instruction of the path, the offset of its code. There, all registers but r15 are the program's.
    pub boundaries: Vec<u32>,
    /// For each instruction, what its code keeps elsewhere.
    pub spills: Vec<Spill>,
    /// Offsets behind each `int3`, with what it means.
    pub traps: Vec<(u32, Trap)>,
    /// If the path ends with a system call: the offsets of the end of the run, of `syscall`, and of what is behind it.
    pub system_call: Option<[u32; 3]>,
}

/// Registers that are in the thread's memory while the code of an instruction runs, beside r15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spill {
    None,
    One(General),
    /// rax and rcx.
    Pair,
}

/// Why the code stops for the tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// The exit is taken for the first time. Its jump is at this offset, which is a multiple of 8, and a pointer may be 8 bytes behind.
    Link { exit: u8, jump: u32 },
    /// The instruction there is executed alone.
    Alone,
    /// The target in rax is not in the table. The code goes on at this offset when it is.
    Miss { retry: u32 },
    /// A system call that the tracer must see. It is made by going on at this offset.
    SystemCall { go_on: u32 },
}

/// Returns the code of a superblock for the address `at`, which must be a multiple of 16. The error is the number of an instruction that
/// cannot be copied, and why.
pub fn emit(path: &Path, plan: &Plan, at: u64) -> Result<Emitted, (usize, String)> {
    let mut emitter = Emitter {
        at,
        out: Emitted::default(),
        offset: 1,
        cold: Vec::new(),
        lookups: Vec::new(),
        constants: Vec::new(),
        factory: InstructionInfoFactory::new(),
    };
    for (number, action) in plan.actions.iter().enumerate() {
        match *action {
            Action::Instruction(of_path) => {
                let checks = checks(&plan.actions[number + 1..]);
                let at = usize::from(of_path);
                emitter.instruction(path, plan, at, &checks).map_err(|why| (at, why))?;
            }
            Action::Record(register, stored) => {
                emitter.record(register);
                emitter.offset += u32::from(stored.bytes);
            }
            Action::String(string) => {
                if matches!(string.repeat, Repeat::While(_)) {
                    emitter.store_in_stream(General::RCX, emitter.offset);
                    emitter.push(&[0x41, 0x0f, 0x94, 0x87]); // setz
                    emitter.push(&(emitter.offset + 8).to_le_bytes());
                    emitter.offset += 9;
                }
            }
            _ => {}
        }
    }
    let ends = path.steps.last().is_some_and(|step| matches!(step.next, Next::Indirect | Next::SystemCall));
    if !ends {
        emitter.end(plan, (plan.exits.len() - 1) as u8);
    }
    emitter.finish(plan);
    Ok(emitter.out)
}

/// Returns the references of an instruction whose addresses are recorded, given the actions behind it.
fn checks(actions: &[Action]) -> Vec<Reference> {
    let own = actions.iter().take_while(|action| !matches!(action, Action::Instruction(_)));
    let own: Vec<&Action> = own.collect();
    let pairs = own.windows(2).filter_map(|pair| match pair {
        [Action::Reference(reference), Action::Check] => Some(*reference),
        _ => None,
    });
    pairs.collect()
}

struct Emitter {
    at: u64,
    out: Emitted,
    /// Place of the next value in the stream, from the beginning of the run.
    offset: u32,
    /// Branches to ways out: the place of the 32-bit distance, and the exit.
    cold: Vec<(usize, u8)>,
    /// Jumps to lookups of returns: the same.
    lookups: Vec<(usize, u8)>,
    /// Places of distances to constants.
    constants: Vec<(usize, u64)>,
    factory: InstructionInfoFactory,
}

impl Emitter {
    fn here(&self) -> u32 {
        self.out.bytes.len() as u32
    }

    fn push(&mut self, bytes: &[u8]) {
        self.out.bytes.extend_from_slice(bytes);
    }

    /// Emits an instruction with a place in the thread's memory and a register.
    fn slot(&mut self, opcode: u8, register: General, slot: u32) {
        self.push(&[0x65, 0x48 | (register.0 >> 3) << 2, opcode, 0x04 | (register.0 & 7) << 3, 0x25]);
        self.push(&slot.to_le_bytes());
    }

    fn save(&mut self, register: General, slot: u32) {
        self.slot(0x89, register, slot);
    }

    fn restore(&mut self, register: General, slot: u32) {
        self.slot(0x8b, register, slot);
    }

    fn store_in_stream(&mut self, register: General, offset: u32) {
        self.push(&[0x49 | (register.0 >> 3) << 2, 0x89, 0x87 | (register.0 & 7) << 3]);
        self.push(&offset.to_le_bytes());
    }

    /// Stores the program's value of a register.
    fn record(&mut self, register: General) {
        if register != General::R15 {
            return self.store_in_stream(register, self.offset);
        }
        self.save(General::RAX, layout::SPILL);
        self.restore(General::RAX, layout::R15);
        self.store_in_stream(General::RAX, self.offset);
        self.restore(General::RAX, layout::SPILL);
    }

    fn encode(&mut self, instruction: &Instruction) -> Result<(), String> {
        let mut encoder = Encoder::new(64);
        let place = self.at + self.out.bytes.len() as u64;
        encoder.encode(instruction, place).map_err(|error| format!("{instruction:?}: {error}"))?;
        let bytes = encoder.take_buffer();
        self.push(&bytes);
        Ok(())
    }

    /// Begins a branch to a way out; the distance follows later.
    fn branch(&mut self, opcode: &[u8], exit: u8) {
        self.push(opcode);
        self.cold.push((self.out.bytes.len(), exit));
        self.push(&[0; 4]);
    }

    fn constant(&mut self, opcode: &[u8], value: u64) {
        self.push(opcode);
        self.constants.push((self.out.bytes.len(), value));
        self.push(&[0; 4]);
    }

    fn instruction(
        &mut self,
        path: &Path,
        plan: &Plan,
        at: usize,
        checks: &[Reference],
    ) -> Result<(), String> {
        let step = &path.steps[at];
        self.out.boundaries.push(self.here());
        for reference in checks {
            self.check(reference)?;
        }
        let exit = plan.exit_at[at];
        let spill = match (step.next, exit) {
            (Next::Behind, _) => self.copy(&step.instruction, step.bytes())?,
            (Next::Branch { follows_target, .. }, Some(exit)) => {
                self.conditional(step.bytes(), follows_target, exit);
                Spill::None
            }
            (Next::Call, _) => {
                self.constant(&[0xff, 0x35], step.instruction.next_ip()); // push
                Spill::None
            }
            (Next::ReturnTo(back), Some(exit)) => {
                self.save(General::RAX, layout::RAX);
                self.save(General::RCX, layout::RCX);
                self.push(&[0x58]); // pop rax
                self.constant(&[0x48, 0x8b, 0x0d], back.wrapping_neg()); // mov rcx, [rip + …]
                self.push(&[0x48, 0x8d, 0x0c, 0x01, 0xe3, 0x05, 0xe9]); // lea rcx, [rcx + rax]; jrcxz; jmp
                self.lookups.push((self.out.bytes.len(), exit));
                self.push(&[0; 4]);
                self.restore(General::RCX, layout::RCX);
                self.restore(General::RAX, layout::RAX);
                Spill::Pair
            }
            (Next::Indirect, Some(exit)) => {
                self.indirect(&step.instruction)?;
                self.lookup(plan, exit);
                Spill::Pair
            }
            (Next::SystemCall, Some(exit)) => {
                self.system_call(plan, exit, step.instruction.next_ip());
                Spill::None
            }
            _ => Spill::None,
        };
        self.out.spills.push(spill);
        Ok(())
    }

    fn conditional(&mut self, bytes: &[u8], follows_target: bool, exit: u8) {
        let code = bytes
            .iter()
            .position(|byte| !matches!(byte, 0x2e | 0x3e | 0x66 | 0x67 | 0xf2 | 0xf3 | 0x40..=0x4f));
        let at = code.unwrap_or(0);
        let condition = match bytes[at] {
            0x0f => bytes[at + 1] & 15,
            short @ 0x70..=0x7f => short & 15,
            // loop and jrcxz have short forms only.
            other => {
                let wide = bytes[..at].contains(&0x67).then_some(0x67);
                wide.iter().for_each(|prefix| self.push(&[*prefix]));
                match follows_target {
                    true => self.push(&[other, 5]),
                    false => self.push(&[other, 2, 0xeb, 5]),
                }
                return self.branch(&[0xe9], exit);
            }
        };
        self.branch(&[0x0f, 0x80 | (condition ^ u8::from(follows_target))], exit);
    }

    /// Emits a copy of an instruction that does not jump.
    fn copy(&mut self, instruction: &Instruction, bytes: &[u8]) -> Result<Spill, String> {
        let used: Vec<(General, OpAccess)> = self.used(instruction);
        if !used.iter().any(|(register, _)| *register == General::R15) {
            if instruction.is_ip_rel_memory_operand() {
                self.encode(instruction)?;
            } else {
                self.push(bytes);
            }
            return Ok(Spill::None);
        }
        let slot = layout::R15.to_le_bytes();
        match (instruction.mnemonic(), instruction.op0_kind()) {
            (Mnemonic::Push, OpKind::Register) if instruction.op0_register() == Register::R15 => {
                self.push(&[0x65, 0xff, 0x34, 0x25]);
                self.push(&slot);
                return Ok(Spill::None);
            }
            (Mnemonic::Pop, OpKind::Register) if instruction.op0_register() == Register::R15 => {
                self.push(&[0x65, 0x8f, 0x04, 0x25]);
                self.push(&slot);
                return Ok(Spill::None);
            }
            _ => {}
        }
        let taken: RegisterSet = used.iter().map(|(register, _)| *register).collect();
        let free = RegisterSet::ALL
            .without(taken)
            .without(RegisterSet::one(General::RSP))
            .without(RegisterSet::one(General::R15));
        let other = free.iter().next().ok_or("it uses every register")?;
        self.save(other, layout::SPILL);
        self.restore(other, layout::R15);
        self.encode(&substituted(instruction, other))?;
        let is_read = |access: &OpAccess| matches!(access, OpAccess::Read | OpAccess::CondRead);
        if used.iter().any(|(register, access)| *register == General::R15 && !is_read(access)) {
            self.save(other, layout::R15);
        }
        self.restore(other, layout::SPILL);
        Ok(Spill::One(other))
    }

    fn used(&mut self, instruction: &Instruction) -> Vec<(General, OpAccess)> {
        let info = self.factory.info(instruction);
        let all = info.used_registers().iter();
        all.filter_map(|used| Some((General::of(used.register())?, used.access()))).collect()
    }

    /// Records an address.
    fn check(&mut self, reference: &Reference) -> Result<(), String> {
        let taken: RegisterSet = reference.base.into_iter().chain(reference.index).collect();
        let mut free = RegisterSet::ALL
            .without(taken)
            .without(RegisterSet::one(General::RSP))
            .iter()
            .filter(|r| *r != General::R15);
        let scratch = free.next().ok_or("no register is free")?;
        self.save(scratch, layout::SPILL);
        if taken.contains(General::R15) {
            self.restore(scratch, layout::R15);
        }
        let part = |register: Option<General>| match register {
            None => Register::None,
            Some(General::R15) => scratch.full(),
            Some(register) => register.full(),
        };
        let operand = MemoryOperand::new(
            part(reference.base),
            part(reference.index),
            u32::from(reference.scale.max(1)),
            reference.displacement,
            8,
            false,
            Register::None,
        );
        let lea = Instruction::with2(iced_x86::Code::Lea_r64_m, scratch.full(), operand);
        self.encode(&lea.map_err(|error| error.to_string())?)?;
        self.store_in_stream(scratch, self.offset);
        self.restore(scratch, layout::SPILL);
        self.offset += 8;
        Ok(())
    }

    /// Puts the target of a jump, call or return into rax; rax and rcx are saved.
    fn indirect(&mut self, instruction: &Instruction) -> Result<(), String> {
        self.save(General::RAX, layout::RAX);
        self.save(General::RCX, layout::RCX);
        if instruction.mnemonic() == Mnemonic::Ret {
            self.push(&[0x58]);
            if instruction.op_count() > 0 {
                self.push(&[0x48, 0x8d, 0xa4, 0x24]); // lea rsp, [rsp + …]
                self.push(&u32::from(instruction.immediate16()).to_le_bytes());
            }
            return Ok(());
        }
        if instruction.op0_kind() == OpKind::Register {
            match General::of(instruction.op0_register()) {
                Some(General::R15) => self.restore(General::RAX, layout::R15),
                Some(register) => self.push(&[0x48 | register.0 >> 3, 0x8b, 0xc0 | register.0 & 7]),
                None => return Err("its target is in no general register".to_owned()),
            }
        } else {
            let mut load = Instruction::with2(
                iced_x86::Code::Mov_r64_rm64,
                Register::RAX,
                MemoryOperand::with_base(Register::RAX),
            )
            .map_err(|error| error.to_string())?;
            load.set_memory_base(instruction.memory_base());
            load.set_memory_index(instruction.memory_index());
            load.set_memory_index_scale(instruction.memory_index_scale());
            load.set_memory_displ_size(instruction.memory_displ_size());
            load.set_memory_displacement64(instruction.memory_displacement64());
            load.set_segment_prefix(instruction.segment_prefix());
            let parts = [instruction.memory_base(), instruction.memory_index()];
            if parts.contains(&Register::R15) {
                let other = if parts.contains(&Register::RCX) { General::RAX } else { General::RCX };
                self.restore(other, layout::R15);
                load = substituted(&load, other);
                load.set_op0_register(Register::RAX);
            }
            self.encode(&load)?;
        }
        if instruction.is_call_near_indirect() {
            self.constant(&[0xff, 0x35], instruction.next_ip());
        }
        Ok(())
    }

    /// Looks up the target in rax and goes there.
    fn lookup(&mut self, plan: &Plan, exit: u8) {
        let Target::Indirect = plan.exits[usize::from(exit)].target else { return };
        let (known, bytes) =
            (u64::from(plan.exits[usize::from(exit)].known.0), plan.exits[usize::from(exit)].bytes);
        self.push(&[0x48, 0xb9]); // mov rcx, …
        self.push(&(known << 48).to_le_bytes());
        self.push(&[0x48, 0x8d, 0x04, 0x08]); // lea rax, [rax + rcx]
        let retry = self.here();
        self.place_in_table(known);
        self.push(&[0x65, 0x48, 0x8b, 0x0c, 0xcd]); // mov rcx, gs:[rcx*8 + …]
        self.push(&layout::KEYS.to_le_bytes());
        self.push(&[0x48, 0x8d, 0x0c, 0x01, 0xe3, 0x01, 0xcc]); // lea rcx, [rcx + rax]; jrcxz; int3
        self.out.traps.push((self.here(), Trap::Miss { retry }));
        self.place_in_table(known);
        self.push(&[0x65, 0x8b, 0x04, 0x8d]); // mov eax, gs:[rcx*4 + …]
        self.push(&layout::NUMBERS.to_le_bytes());
        self.push(&[0x41, 0x89, 0x87]); // mov [r15 + …], eax
        self.push(&bytes.to_le_bytes());
        self.end_run(exit, bytes + 4);
        self.push(&[0x65, 0x48, 0x8b, 0x0c, 0xcd]);
        self.push(&layout::CODES.to_le_bytes());
        self.save(General::RCX, layout::JUMP);
        self.restore(General::RCX, layout::RCX);
        self.restore(General::RAX, layout::RAX);
        self.push(&[0x65, 0xff, 0x24, 0x25]); // jmp gs:[…]
        self.push(&layout::JUMP.to_le_bytes());
    }

    fn place_in_table(&mut self, known: u64) {
        self.push(&[0x8d, 0x88]); // lea ecx, [rax + …]
        self.push(&layout::mixed(known).to_le_bytes());
        self.push(&[0x0f, 0xb7, 0xc9]); // movzx ecx, cx
    }

    /// Writes the number of the exit to the beginning of the run and moves on in the stream.
    fn end_run(&mut self, exit: u8, bytes: u32) {
        self.push(&[0x41, 0xc6, 0x07, exit]);
        self.push(&[0x4d, 0x8d, 0xbf]);
        self.push(&bytes.to_le_bytes());
    }

    fn system_call(&mut self, plan: &Plan, exit: u8, behind: u64) {
        self.end_run(exit, plan.exits[usize::from(exit)].bytes);
        let ended = self.here();
        self.push(&[0x0f, 0xb7, 0xc8, 0x65, 0x0f, 0xb6, 0x89]); // movzx ecx, ax; movzx ecx, byte gs:[rcx + …]
        self.push(&layout::SYSTEM_CALLS.to_le_bytes());
        self.push(&[0xe3, 0x01, 0xcc]); // jrcxz; int3
        let go_on = self.here();
        self.out.traps.push((go_on, Trap::SystemCall { go_on }));
        self.push(&[0x0f, 0x05]);
        let done = self.here();
        self.out.system_call = Some([ended, go_on, done]);
        self.push(&[0x48, 0xb9]); // mov rcx, …, as the processor leaves it
        self.push(&behind.to_le_bytes());
        self.link(exit);
    }

    /// Ends a path that goes on elsewhere.
    fn end(&mut self, plan: &Plan, exit: u8) {
        self.end_run(exit, plan.exits[usize::from(exit)].bytes);
        match plan.exits[usize::from(exit)].target {
            Target::Direct(_) => self.link(exit),
            _ => {
                self.push(&[0xcc]);
                self.out.traps.push((self.here(), Trap::Alone));
            }
        }
    }

    /// Emits a jump that leads to the tracer until it is linked.
    fn link(&mut self, exit: u8) {
        self.align(8);
        let jump = self.here();
        self.push(&[0xe9]);
        self.push(&11_u32.to_le_bytes());
        self.push(&[0; 11]);
        self.push(&[0xcc]);
        self.out.traps.push((self.here(), Trap::Link { exit, jump }));
    }

    fn align(&mut self, to: usize) {
        while !self.out.bytes.len().is_multiple_of(to) {
            self.push(&[0x90]);
        }
    }

    fn reach(&mut self, place: usize) {
        let distance = (self.out.bytes.len() - place - 4) as u32;
        self.out.bytes[place..place + 4].copy_from_slice(&distance.to_le_bytes());
    }

    fn finish(&mut self, plan: &Plan) {
        for (place, exit) in std::mem::take(&mut self.cold) {
            self.reach(place);
            self.end(plan, exit);
        }
        for (place, exit) in std::mem::take(&mut self.lookups) {
            self.reach(place);
            self.lookup(plan, exit);
        }
        self.align(8);
        for (place, value) in std::mem::take(&mut self.constants) {
            self.reach(place);
            self.push(&value.to_le_bytes());
        }
        self.align(16);
    }
}

/// Returns the instruction with another register in place of r15.
fn substituted(instruction: &Instruction, other: General) -> Instruction {
    let swap = |register: Register| match General::of(register) {
        Some(General::R15) => other.sized(register),
        _ => register,
    };
    let mut copy = *instruction;
    for operand in 0..copy.op_count() {
        if copy.op_kind(operand) == OpKind::Register {
            copy.set_op_register(operand, swap(copy.op_register(operand)));
        }
    }
    copy.set_memory_base(swap(copy.memory_base()));
    copy.set_memory_index(swap(copy.memory_index()));
    copy
}
