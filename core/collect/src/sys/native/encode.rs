//! Generates code that executes an instruction on registers in memory.
//!
//! Enters: a decoded instruction. Leaves: the bytes of a function `(registers, operand)`, or nothing if the instruction must
//! not be executed outside its program. The code loads what the instruction names, executes the instruction with its memory
//! operand replaced, and stores what it named. Registers that it does not name hold the two pointers.

use std::mem::offset_of;

use iced_x86::{
    Code, Encoder, FlowControl, Instruction, InstructionInfoFactory, MemoryOperand, Mnemonic, OpKind,
    Register,
};

use super::Registers;

const GENERAL: i64 = offset_of!(Registers, general) as i64;
const FLAGS: i64 = offset_of!(Registers, flags) as i64;
const MXCSR: i64 = offset_of!(Registers, mxcsr) as i64;
const OWN_MXCSR: i64 = offset_of!(Registers, own_mxcsr) as i64;
const MASKS: i64 = offset_of!(Registers, masks) as i64;
const VECTORS: i64 = offset_of!(Registers, vectors) as i64;
const X87: i64 = offset_of!(Registers, x87) as i64;

/// Candidates for the pointers. Those that can be used together with `ah` to `dh` come first.
const SCRATCH: [Register; 14] = [
    Register::RSI,
    Register::RDI,
    Register::RCX,
    Register::RDX,
    Register::RBX,
    Register::RAX,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R14,
    Register::R15,
    Register::RBP,
    Register::R12,
];

/// The widest vector registers that can be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// 16 bytes.
    Sse,
    /// 32 bytes.
    Avx,
    /// 64 bytes, twice as many, and masks.
    Avx512,
}

impl Vectors {
    pub fn of_this_machine() -> Vectors {
        match () {
            () if is_x86_feature_detected!("avx512bw") => Vectors::Avx512,
            () if is_x86_feature_detected!("avx") => Vectors::Avx,
            () => Vectors::Sse,
        }
    }

    /// Returns the number of registers.
    pub fn count(self) -> usize {
        if self == Vectors::Avx512 { 32 } else { 16 }
    }

    /// Returns the load, the store, and the register of this number.
    pub fn moves(self, number: usize) -> (Code, Code, Register) {
        let number = number as u32;
        match self {
            Vectors::Sse => (Code::Movups_xmm_xmmm128, Code::Movups_xmmm128_xmm, Register::XMM0 + number),
            Vectors::Avx => {
                (Code::VEX_Vmovups_ymm_ymmm256, Code::VEX_Vmovups_ymmm256_ymm, Register::YMM0 + number)
            }
            Vectors::Avx512 => (
                Code::EVEX_Vmovups_zmm_k1z_zmmm512,
                Code::EVEX_Vmovups_zmmm512_k1z_zmm,
                Register::ZMM0 + number,
            ),
        }
    }
}

/// Returns whether another process may execute the instruction: it must not wait, see who executes it, or change more than
/// registers and one operand.
fn is_allowed(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let is_plain = instruction.flow_control() == FlowControl::Next
        && !instruction.is_privileged()
        && !instruction.is_stack_instruction()
        && !instruction.is_string_instruction()
        && !instruction.is_save_restore_instruction()
        && !instruction.is_vsib();
    let refused = [
        Rdfsbase,
        Rdgsbase,
        Wrfsbase,
        Wrgsbase,
        Wrpkru,
        Rdpkru,
        Rdpmc,
        Rdpru,
        Monitorx,
        Mwaitx,
        Umonitor,
        Umwait,
        Tpause,
        Movdir64b,
        Enqcmd,
        Clzero,
        Maskmovq,
        Maskmovdqu,
        Vmaskmovdqu,
        Xlatb,
        In,
        Out,
        Int3,
        Rdpid,
        Cldemote,
        Vmcall,
        Vmmcall,
        Vmfunc,
        Getsec,
        Skinit,
        Senduipi,
        Stui,
        Clui,
        Testui,
        Ptwrite,
        Incsspd,
        Incsspq,
        Rdsspd,
        Lds,
        Les,
        Lfs,
        Lgs,
        Lss,
        Enclu,
        Monitor,
        Mwait,
        Rdsspq,
    ];
    is_plain && !refused.contains(&instruction.mnemonic()) && has_known_operands(instruction)
}

/// Returns whether the operands are registers, immediates, and at most one place in memory whose address depends on
/// registers only.
fn has_known_operands(instruction: &Instruction) -> bool {
    let kinds = || (0..instruction.op_count()).map(|i| instruction.op_kind(i));
    let is_immediate =
        |k: OpKind| (OpKind::Immediate8 as u8..=OpKind::Immediate32to64 as u8).contains(&(k as u8));
    let is_known = |k| matches!(k, OpKind::Register | OpKind::Memory) || is_immediate(k);
    let is_segment = |i| {
        instruction.op_kind(i) == OpKind::Register && {
            let register = instruction.op_register(i);
            register.is_segment_register() || register.is_cr() || register.is_dr() || register.is_tmm()
        }
    };
    let is_bit_string = instruction.op0_kind() == OpKind::Memory
        && instruction.op1_kind() == OpKind::Register
        && matches!(instruction.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc);
    let is_absolute = matches!(
        instruction.code(),
        Code::Mov_AL_moffs8
            | Code::Mov_AX_moffs16
            | Code::Mov_EAX_moffs32
            | Code::Mov_RAX_moffs64
            | Code::Mov_moffs8_AL
            | Code::Mov_moffs16_AX
            | Code::Mov_moffs32_EAX
            | Code::Mov_moffs64_RAX
    );
    kinds().all(is_known)
        && !(0..instruction.op_count()).any(is_segment)
        && kinds().filter(|k| *k == OpKind::Memory).count() <= 1
        && instruction.memory_size().size() <= 64
        && !is_bit_string
        && !is_absolute
}

/// The registers that an instruction names.
#[derive(Default)]
struct Named {
    general: [bool; 16],
    vectors: [bool; 32],
    masks: [bool; 8],
    x87: bool,
}

impl Named {
    fn new(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Named {
        let mut named = Named::default();
        for used in factory.info(instruction).used_registers() {
            let register = used.register().full_register();
            match register {
                r if r.is_gpr64() => named.general[r.number()] = true,
                r if r.is_vector_register() => named.vectors[r.number()] = true,
                r if r.is_k() => named.masks[r.number()] = true,
                r if r.is_st() || r.is_mm() => named.x87 = true,
                _ => {}
            }
        }
        // Loading registers that only an address names is unnecessary but harmless. The stack pointer must not be loaded.
        named.general[Register::RSP.number()] = false;
        let x87 = instruction.mnemonic();
        named.x87 |= instruction.fpu_stack_increment_info().writes_top() || is_x87_control(x87);
        named
    }
}

impl Named {
    /// Returns whether it names registers that this machine does not have.
    fn is_beyond(&self, vectors: Vectors) -> bool {
        vectors != Vectors::Avx512 && (self.masks.contains(&true) || self.vectors[16..].contains(&true))
    }
}

fn is_x87_control(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        Fldcw | Fnstcw | Fstcw | Fnstsw | Fstsw | Fnclex | Fclex | Fninit | Finit | Emms | Wait | Fnop
    )
}

/// Returns the general registers that the instruction names, by number and without the stack pointer, if it can be executed between
/// others of its program: on the registers of the processor, of which the x87 ones are not loaded.
pub fn beside_others(
    instruction: &Instruction,
    vectors: Vectors,
    factory: &mut InstructionInfoFactory,
) -> Option<[bool; 16]> {
    use Mnemonic::{Cpuid, Rdrand, Rdseed, Sgdt, Sidt, Sldt, Smsw, Str};
    // A hypervisor or the kernel may execute these, which takes microseconds. Thousands of them shall not run between two looks at
    // the clock.
    if matches!(instruction.mnemonic(), Cpuid | Rdrand | Rdseed | Sgdt | Sidt | Sldt | Smsw | Str) {
        return None;
    }
    let named = Named::new(instruction, factory);
    (is_allowed(instruction) && !named.x87 && !named.is_beyond(vectors)).then_some(named.general)
}

/// Generates the code. Returns `None` if the instruction is refused or its replacement cannot be encoded.
pub fn code(instruction: &Instruction, vectors: Vectors) -> Option<Vec<u8>> {
    if !is_allowed(instruction) {
        return None;
    }
    let named = Named::new(instruction, &mut InstructionInfoFactory::new());
    if named.is_beyond(vectors) {
        return None;
    }
    let mut free = SCRATCH.into_iter().filter(|r| !named.general[r.number()]);
    let (operand, stack, registers) = (free.next()?, free.next()?, free.next()?);
    let twin = redirected(instruction, operand, stack);
    let mut code = Assembler { encoder: Encoder::new(64), registers, is_sound: true };
    code.pointers(operand);
    let is_flagged = instruction.rflags_read() | instruction.rflags_modified() != 0;
    let is_vector = named.vectors.contains(&true)
        || matches!(instruction.mnemonic(), Mnemonic::Ldmxcsr | Mnemonic::Stmxcsr);
    code.load(&named, vectors, is_vector, is_flagged);
    code.memory(Code::Mov_r64_rm64, stack, GENERAL + 8 * Register::RSP.number() as i64);
    code.add(&twin);
    code.store(&named, vectors, is_vector);
    if uses_stack(instruction) {
        code.memory(Code::Mov_rm64_r64, stack, GENERAL + 8 * Register::RSP.number() as i64);
    }
    if is_flagged {
        code.one(Code::Pushfq);
        code.at(Code::Pop_rm64, FLAGS);
    }
    if is_vector && vectors != Vectors::Sse {
        code.one(Code::VEX_Vzeroupper);
    }
    code.one(Code::Retnq);
    code.is_sound.then(|| code.encoder.take_buffer())
}

fn uses_stack(instruction: &Instruction) -> bool {
    let names = |i| instruction.op_kind(i) == OpKind::Register && is_stack(instruction.op_register(i));
    (0..instruction.op_count()).any(names)
}

fn is_stack(register: Register) -> bool {
    register.is_gpr() && register.full_register() == Register::RSP
}

/// Returns the instruction with its memory operand at a pointer.
pub fn at_pointer(instruction: &Instruction, pointer: Register) -> Instruction {
    let mut twin = *instruction;
    twin.set_segment_prefix(Register::None);
    twin.set_memory_base(pointer);
    twin.set_memory_index(Register::None);
    twin.set_memory_index_scale(1);
    twin.set_memory_displacement64(0);
    twin.set_memory_displ_size(0);
    twin
}

/// Returns the instruction with its memory operand in the window: at its address without the upper half, from segment gs on.
/// Only for operands whose segment begins at 0.
pub fn in_window(instruction: &Instruction) -> Instruction {
    let mut twin = *instruction;
    let narrow = |register: Register| match register {
        Register::None | Register::RIP | Register::EIP => Register::None,
        register => Register::EAX + register.number() as u32,
    };
    let is_relative = instruction.is_ip_rel_memory_operand();
    let displacement = match is_relative {
        true => instruction.ip_rel_memory_address(),
        false => instruction.memory_displacement64(),
    };
    twin.set_segment_prefix(Register::GS);
    twin.set_memory_base(narrow(instruction.memory_base()));
    twin.set_memory_index(narrow(instruction.memory_index()));
    twin.set_memory_displacement64(u64::from(displacement as u32));
    if is_relative || instruction.memory_displ_size() == 8 {
        twin.set_memory_displ_size(4);
    }
    twin
}

/// Returns the instruction with other places: memory at `operand`, the stack pointer in `stack`.
fn redirected(instruction: &Instruction, operand: Register, stack: Register) -> Instruction {
    let mut twin = *instruction;
    for i in 0..twin.op_count() {
        match twin.op_kind(i) {
            OpKind::Memory => twin = at_pointer(&twin, operand),
            OpKind::Register if is_stack(twin.op_register(i)) => {
                let number = stack.number() as u32;
                let same_size = match twin.op_register(i).size() {
                    8 => Register::RAX + number,
                    4 => Register::EAX + number,
                    2 => Register::AX + number,
                    // Without `ah` to `dh`: spl follows them in the list.
                    _ if number < 4 => Register::AL + number,
                    _ => Register::SPL + (number - 4),
                };
                twin.set_op_register(i, same_size);
            }
            _ => {}
        }
    }
    twin
}

struct Assembler {
    encoder: Encoder,
    /// The register that points to the registers.
    registers: Register,
    is_sound: bool,
}

impl Assembler {
    fn add(&mut self, instruction: &Instruction) {
        self.is_sound &= self.encoder.encode(instruction, 0).is_ok();
    }

    fn built(&mut self, instruction: Result<Instruction, iced_x86::IcedError>) {
        match instruction {
            Ok(instruction) => self.add(&instruction),
            Err(_) => self.is_sound = false,
        }
    }

    fn one(&mut self, code: Code) {
        self.add(&Instruction::with(code));
    }

    fn place(&self, displacement: i64) -> MemoryOperand {
        MemoryOperand::with_base_displ_size(self.registers, displacement, 8)
    }

    /// Appends an instruction whose only operand is in memory.
    fn at(&mut self, code: Code, displacement: i64) {
        let place = self.place(displacement);
        self.built(Instruction::with1(code, place));
    }

    /// Appends an instruction between a register and memory, in the order that its code defines.
    fn memory(&mut self, code: Code, register: Register, displacement: i64) {
        let place = self.place(displacement);
        self.built(match is_register_first(code) {
            true => Instruction::with2(code, register, place),
            false => Instruction::with2(code, place, register),
        });
    }

    /// Moves the pointers from rdi and rsi to the expected registers.
    fn pointers(&mut self, operand: Register) {
        self.built(Instruction::with1(Code::Push_r64, Register::RSI));
        let registers = self.registers;
        self.built(Instruction::with2(Code::Mov_r64_rm64, registers, Register::RDI));
        self.built(Instruction::with1(Code::Pop_r64, operand));
    }

    fn load(&mut self, named: &Named, vectors: Vectors, is_vector: bool, is_flagged: bool) {
        if named.x87 {
            self.at(Code::Fxrstor64_m512byte, X87);
        }
        if is_vector {
            self.at(Code::Ldmxcsr_m32, MXCSR);
        }
        for number in numbers(&named.vectors) {
            let (load, _, register) = vectors.moves(number);
            self.memory(load, register, VECTORS + 64 * number as i64);
        }
        for number in numbers(&named.masks) {
            self.memory(Code::VEX_Kmovq_kr_km64, Register::K0 + number as u32, MASKS + 8 * number as i64);
        }
        if is_flagged {
            self.at(Code::Push_rm64, FLAGS);
            self.one(Code::Popfq);
        }
        for number in numbers(&named.general) {
            self.memory(Code::Mov_r64_rm64, Register::RAX + number as u32, GENERAL + 8 * number as i64);
        }
    }

    /// Appends the stores. None of them changes a flag.
    fn store(&mut self, named: &Named, vectors: Vectors, is_vector: bool) {
        for number in numbers(&named.general) {
            self.memory(Code::Mov_rm64_r64, Register::RAX + number as u32, GENERAL + 8 * number as i64);
        }
        for number in numbers(&named.vectors) {
            let (_, store, register) = vectors.moves(number);
            self.memory(store, register, VECTORS + 64 * number as i64);
        }
        for number in numbers(&named.masks) {
            self.memory(Code::VEX_Kmovq_m64_kr, Register::K0 + number as u32, MASKS + 8 * number as i64);
        }
        if is_vector {
            self.at(Code::Stmxcsr_m32, MXCSR);
            self.at(Code::Ldmxcsr_m32, OWN_MXCSR);
        }
        if named.x87 {
            self.at(Code::Fxsave64_m512byte, X87);
            self.one(Code::Fninit);
        }
    }
}

fn is_register_first(code: Code) -> bool {
    matches!(
        code,
        Code::Mov_r64_rm64
            | Code::Movups_xmm_xmmm128
            | Code::VEX_Vmovups_ymm_ymmm256
            | Code::EVEX_Vmovups_zmm_k1z_zmmm512
            | Code::VEX_Kmovq_kr_km64
    )
}

fn numbers(named: &[bool]) -> impl Iterator<Item = usize> {
    named.iter().enumerate().filter(|(_, named)| **named).map(|(number, _)| number)
}
