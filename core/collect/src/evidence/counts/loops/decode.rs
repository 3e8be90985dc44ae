//! One instruction of x86-64 code: where control goes, what it writes, and whether it adds a constant to a register.
//!
//! Enters: bytes at an offset. Leaves: an [`Instruction`]. Never here: other instructions.

use iced_x86::{
    Code, Decoder, DecoderError, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpKind,
    Register as IcedRegister,
};

use super::{Add, Flow, Instruction, Register, RegisterSet, Step};
use crate::x86::{immediate, register_number, registers_written};

/// The state of decoding, reused from one instruction to the next.
pub struct InstructionDecoder(InstructionInfoFactory);

impl Default for InstructionDecoder {
    fn default() -> Self {
        InstructionDecoder(InstructionInfoFactory::new())
    }
}

impl InstructionDecoder {
    /// Decodes the instruction at an offset. Returns `None` for invalid bytes and on other architectures than x86-64.
    pub fn decode(&mut self, bytes: &[u8], at: u64) -> Option<Instruction> {
        if cfg!(target_arch = "x86_64") { decode(&mut self.0, bytes, at) } else { None }
    }
}

fn decode(factory: &mut InstructionInfoFactory, bytes: &[u8], at: u64) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    let decoded = decoder.decode();
    if decoder.last_error() != DecoderError::None || decoded.code() == Code::INVALID {
        return None;
    }
    let flow = match decoded.flow_control() {
        FlowControl::Next => Flow::Next,
        FlowControl::ConditionalBranch => Flow::Branch(decoded.near_branch_target()),
        FlowControl::UnconditionalBranch => Flow::Jump(decoded.near_branch_target()),
        FlowControl::Call | FlowControl::IndirectCall if decoded.mnemonic() != Mnemonic::Vmcall => Flow::Call,
        _ => Flow::End,
    };
    let written = registers_written(factory, &decoded);
    let mut writes: RegisterSet = written.filter_map(|number| Register::of_number(number.into())).collect();
    let mut add = addition(&decoded).filter(|add| writes.contains(add.register));
    if is_call(flow, decoded.mnemonic()) {
        // A call pushes and its return pops.
        let stack = [Register::RSP].into_iter().collect();
        writes = writes.without(stack).union(RegisterSet::clobbered_by_calls());
        add = None;
    }
    Some(Instruction { next: decoded.next_ip(), length: decoded.len() as u64, flow, writes, add })
}

/// Whether an instruction may change what a called function may; a system call may, too.
fn is_call(flow: Flow, mnemonic: Mnemonic) -> bool {
    flow == Flow::Call || matches!(mnemonic, Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int)
}

fn general(register: IcedRegister) -> Option<Register> {
    Register::of_number(register_number(register)?.into())
}

/// Returns the addition that an instruction is: `add`, `sub`, `inc`, `dec` or `lea` of a register of 32 or 64 bits with itself and
/// a constant or another register.
fn addition(decoded: &iced_x86::Instruction) -> Option<Add> {
    if decoded.op_count() == 0 || decoded.op0_kind() != OpKind::Register {
        return None;
    }
    let to = decoded.op0_register();
    let width_bits = match to {
        _ if to.is_gpr64() => 64,
        _ if to.is_gpr32() => 32,
        _ => return None,
    };
    let register = general(to)?;
    // A step of 32 bits that comes from a register is its low half, which nothing here reads.
    let other = |other: IcedRegister| (other.is_gpr64() && other != to).then(|| general(other)).flatten();
    let step = match decoded.mnemonic() {
        Mnemonic::Inc => Step::Constant(1),
        Mnemonic::Dec => Step::Constant(-1),
        mnemonic @ (Mnemonic::Add | Mnemonic::Sub) => match decoded.op1_kind() {
            OpKind::Register => {
                let other = other(decoded.op1_register())?;
                if mnemonic == Mnemonic::Add { Step::Register(other) } else { Step::Negated(other) }
            }
            OpKind::Memory => return None,
            _ => {
                let constant = immediate(decoded)?;
                Step::Constant(if mnemonic == Mnemonic::Add { constant } else { constant.checked_neg()? })
            }
        },
        Mnemonic::Lea => {
            let (base, index) = (decoded.memory_base(), decoded.memory_index());
            let displacement = decoded.memory_displacement64() as i64;
            let is_self = |found: IcedRegister| found.is_gpr64() && general(found) == Some(register);
            match (base, index) {
                (base, IcedRegister::None) if is_self(base) => Step::Constant(displacement),
                (base, index) if displacement == 0 && decoded.memory_index_scale() == 1 => {
                    let added = if is_self(base) { index } else { base };
                    if !is_self(base) && !is_self(index) || added == IcedRegister::None {
                        return None;
                    }
                    Step::Register(other(added)?)
                }
                _ => return None,
            }
        }
        _ => return None,
    };
    (step != Step::Constant(0)).then_some(Add { register, step, width_bits })
}
