//! Classes of x86-64 instructions, by capstone's mnemonics.

use dwell_image::{Flow, Instruction, MemoryOperand, Operand};

use super::OpcodeClass::{self, *};

/// The number of the first vector register.
const FIRST_VECTOR: u8 = 32;

pub fn classify(i: &Instruction) -> OpcodeClass {
    match i.flow {
        Flow::Branch { .. } => return Branch,
        Flow::Jump { .. } | Flow::IndirectJump => return Jump,
        Flow::Call { .. } => return Call,
        Flow::Return => return Return,
        Flow::Stop => return System,
        Flow::Next => {}
    }
    if is_locked(i) {
        return Atomic;
    }
    let m = &*i.mnemonic;
    match scalar(i, m) {
        Some(class) => class,
        None if m.starts_with('f') => x87(i, m),
        None => vector(i, m.strip_prefix('v').unwrap_or(m)),
    }
}

fn is_locked(i: &Instruction) -> bool {
    i.text.starts_with("lock ") || (&*i.mnemonic == "xchg" && i.memory().next().is_some())
}

fn scalar(i: &Instruction, m: &str) -> Option<OpcodeClass> {
    Some(match m {
        "nop" | "endbr64" | "endbr32" | "pause" | "ud2" | "wait" | "vzeroupper" => Nop,
        "mov" | "movabs" | "movzx" | "movsx" | "movsxd" | "movbe" => move_class(i),
        "push" | "pushfq" | "stmxcsr" | "vstmxcsr" | "fnstcw" => Store,
        "pop" | "leave" | "xlatb" | "ldmxcsr" | "vldmxcsr" | "fldcw" => Load,
        "lea" | "add" | "sub" | "and" | "or" | "xor" | "not" | "neg" | "inc" | "dec" | "cmp" | "test"
        | "adc" | "sbb" | "cdq" | "cqo" | "cdqe" | "cwde" | "cwd" | "cbw" | "bswap" | "andn" | "blsr"
        | "blsi" | "blsmsk" | "xadd" | "xchg" | "cmpxchg" | "clc" | "stc" | "cmc" | "lahf" | "sahf"
        | "adcx" | "adox" | "cld" | "std" => Alu,
        "shl" | "shr" | "sar" | "sal" | "rol" | "ror" | "rcl" | "rcr" | "shld" | "shrd" | "sarx" | "shlx"
        | "shrx" | "rorx" | "bt" | "bts" | "btr" | "btc" | "bsf" | "bsr" | "tzcnt" | "lzcnt" | "popcnt"
        | "bextr" | "bzhi" | "pdep" | "pext" => Shift,
        "imul" | "mul" | "mulx" | "crc32" => Multiply,
        "div" | "idiv" => Divide,
        "mfence" | "lfence" | "sfence" | "cpuid" | "serialize" => Barrier,
        "syscall" | "sysenter" | "sysret" | "sysretq" | "int" | "int3" | "hlt" | "rdtsc" | "rdtscp"
        | "rdpmc" | "wrmsr" | "rdmsr" | "in" | "out" | "invlpg" | "xgetbv" | "xsave" | "xrstor"
        | "swapgs" | "iretq" | "cli" | "sti" | "popfq" | "insb" | "insw" | "insd" | "outsb" | "outsw"
        | "outsd" | "xtest" | "xabort" | "xend" | "rdpkru" | "wrpkru" | "rdrand" | "rdseed" | "rdpid"
        | "fldenv" | "fnstenv" | "fnclex" | "fnsave" | "frstor" | "fxsave" | "fxrstor" | "emms" => System,
        "stosb" | "stosw" | "stosq" | "lodsb" | "lodsw" | "lodsd" | "lodsq" | "scasb" | "scasw" | "scasd"
        | "scasq" | "cmpsb" | "cmpsw" | "cmpsq" | "movsb" | "movsw" | "movsq" | "stosd" => String,
        "movsd" | "cmpsd" if i.text.contains("di]") => String,
        _ if m.starts_with("prefetch") || m.starts_with("clflush") || m == "clwb" => Prefetch,
        _ if m.starts_with("cmov") || m.starts_with("set") => Alu,
        _ => return None,
    })
}

fn move_class(i: &Instruction) -> OpcodeClass {
    match (i.load().is_some(), i.store().is_some()) {
        (_, true) => Store,
        (true, _) => Load,
        _ if &*i.mnemonic == "movsx" || &*i.mnemonic == "movsxd" => Alu,
        _ => Move,
    }
}

fn x87(i: &Instruction, m: &str) -> OpcodeClass {
    match m {
        "fdiv" | "fdivp" | "fdivr" | "fdivrp" | "fidiv" => FpDivide,
        "fsqrt" => FpSqrt,
        "fmul" | "fmulp" | "fimul" => FpMultiply,
        "fld" | "fild" if i.load().is_some() => Load,
        "fst" | "fstp" | "fistp" | "fisttp" if i.store().is_some() => Store,
        "fnstsw" => Transfer,
        "fxch" | "fld" | "fst" | "fstp" | "fld1" | "fldz" => Move,
        _ => FpAdd,
    }
}

/// Classifies SSE and AVX instructions, without the leading `v`.
fn vector(i: &Instruction, m: &str) -> OpcodeClass {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| m.starts_with(p));
    let is_float = ["ss", "sd", "ps", "pd", "sh", "ph"].iter().any(|s| m.ends_with(s));
    match m {
        _ if starts(&["mov", "lddqu", "broadcast", "pbroadcast", "kmov"]) => vector_move(i, m),
        _ if starts(&["cvt"]) => Transfer,
        "pextrb" | "pextrw" | "pextrd" | "pextrq" | "pinsrb" | "pinsrw" | "pinsrd" | "pinsrq"
        | "pmovmskb" | "extractps" => Transfer,
        _ if starts(&["div"]) && is_float => FpDivide,
        _ if starts(&["sqrt"]) => FpSqrt,
        _ if starts(&["mul", "fmadd", "fmsub", "fnmadd", "fnmsub", "dp"]) && is_float => FpMultiply,
        _ if starts(&["add", "sub", "min", "max", "cmp", "ucomis", "comis", "hadd", "hsub", "round"])
            && is_float =>
        {
            FpAdd
        }
        _ if starts(&["pmul", "pmadd", "aes", "pclmul", "psadbw", "sha", "gf2p8"]) => VectorMultiply,
        "zeroall" => Vector,
        _ if touches_vectors(i) || i.memory().next().is_some() => Vector,
        _ => Unknown,
    }
}

fn vector_move(i: &Instruction, m: &str) -> OpcodeClass {
    match (i.load().is_some(), i.store().is_some()) {
        (_, true) => Store,
        (true, _) => Load,
        _ if m.starts_with("movmsk") || !only_vectors(i) => Transfer,
        _ if ["movap", "movup", "movdqa", "movdqu"].iter().any(|p| m.starts_with(p)) => Move,
        _ => Vector,
    }
}

fn registers(i: &Instruction) -> impl Iterator<Item = u8> {
    i.operands.iter().filter_map(|o| match o {
        Operand::Register { register, .. } => Some(register.0),
        _ => None,
    })
}

fn only_vectors(i: &Instruction) -> bool {
    registers(i).all(|r| r >= FIRST_VECTOR)
}

fn touches_vectors(i: &Instruction) -> bool {
    registers(i).any(|r| r >= FIRST_VECTOR)
}

/// Whether two instructions are macro-fused: `cmp`, `test` and simple arithmetic with a conditional branch that uses its
/// flags. An instruction with both a constant and a pc-relative operand does not fuse. On AMD before Zen 3 only `cmp` and
/// `test` did, but counting one instruction too few in a block costs little.
pub fn fuse(first: &Instruction, second: &Instruction) -> bool {
    if !matches!(second.flow, Flow::Branch { .. }) || matches!(&*second.mnemonic, "jrcxz" | "jecxz" | "loop")
    {
        return false;
    }
    if first.end() != second.address || first.store().is_some() {
        return false;
    }
    let has_constant = first.operands.iter().any(|o| matches!(o, Operand::Immediate(_)));
    let is_pc_relative = first.memory().any(|m: &MemoryOperand| m.address.is_some());
    let fusible = match &*first.mnemonic {
        "cmp" | "test" => true,
        "add" | "sub" | "and" | "inc" | "dec" => first.load().is_none(),
        _ => false,
    };
    fusible && !(has_constant && is_pc_relative)
}
