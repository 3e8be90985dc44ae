//! A tiny assembler's front half: text → instructions as the decoder would give them. Four bytes each.
//!
//! Lines are `label:`, `.org ADDRESS`, or an instruction: x86-64 in Intel syntax, AArch64 as usual. It knows what the
//! tests use, and panics at the rest.

use std::collections::BTreeMap;

use dwell_image::{Arch, Flow, ImageAddress, Instruction, MemoryOperand, Operand, Register, RegisterSet};

const FLAGS: Register = Register(126);

/// Assembles `text`, its first instruction at 0x1000.
pub fn assemble(arch: Arch, text: &str) -> Vec<Instruction> {
    let mut labels = BTreeMap::new();
    let mut lines = Vec::new();
    let mut address = 0x1000;
    for line in text.lines().map(|l| l.split("//").next().unwrap_or("").trim()).filter(|l| !l.is_empty()) {
        if let Some(label) = line.strip_suffix(':') {
            labels.insert(label.to_owned(), ImageAddress(address));
        } else if let Some(org) = line.strip_prefix(".org ") {
            address = number(org).expect("an address") as u64;
        } else {
            lines.push((address, line));
            address += 4;
        }
    }
    lines.into_iter().map(|(address, line)| instruction(arch, ImageAddress(address), line, &labels)).collect()
}

/// Assembles code for x86-64.
pub fn x86(text: &str) -> Vec<Instruction> {
    assemble(Arch::X86_64, text)
}

/// Assembles code for AArch64.
pub fn a64(text: &str) -> Vec<Instruction> {
    assemble(Arch::Aarch64, text)
}

fn number(text: &str) -> Option<i64> {
    let text = text.trim().trim_start_matches('#');
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn instruction(
    arch: Arch,
    address: ImageAddress,
    line: &str,
    labels: &BTreeMap<String, ImageAddress>,
) -> Instruction {
    let bare = ["lock ", "rep ", "notrack "].iter().fold(line, |l, p| l.strip_prefix(p).unwrap_or(l));
    let (mnemonic, rest) = bare.split_once(' ').unwrap_or((bare, ""));
    let words = split_operands(rest);
    let target = words
        .last()
        .and_then(|w| labels.get(w.as_str()).copied().or(number(w).map(|n| ImageAddress(n as u64))));
    let flow = flow_of(arch, mnemonic, target);
    let operands: Vec<Operand> = words.iter().filter_map(|w| operand(arch, w, target)).collect();
    let mut instruction = Instruction {
        address,
        length: 4,
        mnemonic: mnemonic.into(),
        text: line.into(),
        reads: RegisterSet::EMPTY,
        writes: RegisterSet::EMPTY,
        operands: operands.into_iter().collect(),
        flow,
    };
    match arch {
        Arch::X86_64 => x86_effects(&mut instruction),
        _ => a64_effects(&mut instruction),
    }
    instruction
}

/// Splits operands at commas outside of brackets.
fn split_operands(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut depth = 0;
    for c in text.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                words.push(String::new());
                continue;
            }
            _ => {}
        }
        words.last_mut().expect("one at least").push(c);
    }
    words.into_iter().map(|w| w.trim().to_owned()).filter(|w| !w.is_empty()).collect()
}

fn flow_of(arch: Arch, mnemonic: &str, target: Option<ImageAddress>) -> Flow {
    match (arch, mnemonic) {
        (Arch::X86_64, "jmp") | (Arch::Aarch64, "b") => {
            target.map_or(Flow::IndirectJump, |target| Flow::Jump { target })
        }
        (Arch::X86_64, "call") | (Arch::Aarch64, "bl") => Flow::Call { target },
        (Arch::Aarch64, "br") => Flow::IndirectJump,
        (_, "ret") => Flow::Return,
        (_, "ud2") => Flow::Stop,
        (Arch::X86_64, m) if m.starts_with('j') => Flow::Branch { target: target.expect("a label") },
        (Arch::Aarch64, m) if m.starts_with("b.") || m.starts_with("cb") => {
            Flow::Branch { target: target.expect("a label") }
        }
        _ => Flow::Next,
    }
}

fn register(arch: Arch, word: &str) -> Option<(Register, u16)> {
    const X86: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
    let numbered = |prefix: &str| word.strip_prefix(prefix).and_then(|n| n.parse::<u8>().ok());
    if arch == Arch::X86_64 {
        if let Some(n) = X86.iter().position(|r| word.strip_prefix(['r', 'e']) == Some(r)) {
            return Some((Register(n as u8), if word.starts_with('r') { 64 } else { 32 }));
        }
        return match () {
            _ if word == "al" => Some((Register(0), 8)),
            _ if word == "rip" => Some((Register(17), 64)),
            _ if numbered("xmm").is_some() => numbered("xmm").map(|n| (Register(32 + n), 128)),
            _ => numbered("r").map(|n| (Register(n), 64)),
        };
    }
    match word {
        "sp" => Some((Register(31), 64)),
        _ => numbered("x")
            .map(|n| (Register(n), 64))
            .or(numbered("w").map(|n| (Register(n), 32)))
            .or(numbered("d").map(|n| (Register(32 + n), 64))),
    }
}

fn operand(arch: Arch, word: &str, target: Option<ImageAddress>) -> Option<Operand> {
    if let Some(inside) = word.strip_prefix('[').map(|w| w.trim_end_matches(['!', ']'])) {
        return Some(Operand::Memory(memory(arch, inside)));
    }
    if let Some((register, width_bits)) = register(arch, word) {
        return Some(Operand::Register { register, width_bits });
    }
    number(word).or(target.map(|t| t.0 as i64)).map(Operand::Immediate)
}

fn memory(arch: Arch, inside: &str) -> MemoryOperand {
    let mut m = MemoryOperand { scale: 1, width_bytes: 8, ..MemoryOperand::default() };
    for part in inside.split(['+', ',']).map(str::trim) {
        let (name, scale) = part.split_once('*').unwrap_or((part, "1"));
        match (register(arch, name.trim()), number(part)) {
            (Some((r, _)), _) if m.base.is_none() && scale == "1" => m.base = Some(r),
            (Some((r, _)), _) => (m.index, m.scale) = (Some(r), scale.parse().expect("a scale")),
            (_, Some(n)) => m.displacement = n,
            _ => panic!("what is {part}?"),
        }
    }
    if m.base == Some(Register(17)) && arch == Arch::X86_64 {
        // The target is written as an absolute address, so that tests need not compute a distance.
        m.address = Some(ImageAddress(m.displacement as u64));
    }
    m
}

fn registers(operands: &[Operand]) -> RegisterSet {
    let of = |o: &Operand| match o {
        Operand::Register { register, .. } => vec![*register],
        Operand::Memory(m) => m.base.into_iter().chain(m.index).collect(),
        Operand::Immediate(_) => vec![],
    };
    operands.iter().flat_map(of).collect()
}

fn touch(i: &mut Instruction, operand: usize, read: bool, written: bool) {
    if let Some(Operand::Memory(m)) = i.operands.get_mut(operand) {
        (m.read, m.written) = (read, written);
    }
}

fn x86_effects(i: &mut Instruction) {
    let all = registers(&i.operands);
    let m = i.mnemonic.to_string();
    let first_is_memory = matches!(i.operands.first(), Some(Operand::Memory(_)));
    let first = match i.operands.first() {
        Some(Operand::Register { register, .. }) => RegisterSet::from_iter([*register]),
        _ => RegisterSet::EMPTY,
    };
    let sources = registers(i.operands.get(1..).unwrap_or(&[]));
    let flags = RegisterSet::from_iter([FLAGS]);
    let set = |names: &[u8]| names.iter().map(|&n| Register(n)).collect::<RegisterSet>();
    let is_plain_move =
        m.starts_with("mov") || ["lea", "cvt", "sqrt", "pshuf"].iter().any(|p| m.starts_with(p));
    match m.as_str() {
        _ if m.starts_with('j') && m != "jmp" => i.reads = flags,
        "jmp" | "call" => {
            i.reads = all;
            touch(i, 0, true, false);
            i.writes = if m == "call" { set(&[0, 1, 2, 6, 7, 8, 9, 10, 11]) } else { RegisterSet::EMPTY };
        }
        "cdqe" => (i.reads, i.writes) = (set(&[0]), set(&[0])),
        "ret" | "ud2" | "nop" | "mfence" | "syscall" | "stosq" | "leave" => {}
        "push" | "pop" => {
            let written = m == "push";
            let slot =
                MemoryOperand { base: Some(Register(4)), written, read: !written, ..Default::default() };
            (i.reads, i.writes) =
                if written { (all.union(set(&[4])), set(&[4])) } else { (set(&[4]), all.union(set(&[4]))) };
            i.operands.push(Operand::Memory(slot));
        }
        "div" | "idiv" => (i.reads, i.writes) = (all.union(set(&[0, 2])), set(&[0, 2]).union(flags)),
        "cmp" | "test" | "ucomisd" => {
            (i.reads, i.writes) = (all, flags);
            touch(i, 0, true, false);
            touch(i, 1, true, false);
        }
        _ if is_plain_move => {
            i.reads = if first_is_memory { all } else { sources };
            i.writes = first;
            touch(i, 0, false, true);
            touch(i, 1, m != "lea", false);
        }
        _ => {
            let zeroes = m == "xor" && i.operands.first() == i.operands.get(1);
            i.reads = if zeroes { RegisterSet::EMPTY } else { all };
            let is_float = first.iter().any(|r| (32..64).contains(&r.0));
            i.writes = if is_float { first } else { first.union(flags) };
            touch(i, 0, true, true);
            touch(i, 1, true, false);
        }
    }
}

fn a64_effects(i: &mut Instruction) {
    let all = registers(&i.operands);
    let m = i.mnemonic.to_string();
    let first = registers(&i.operands[..i.operands.len().min(1)]);
    let sources = registers(i.operands.get(1..).unwrap_or(&[]));
    let flags = RegisterSet::from_iter([FLAGS]);
    match m.as_str() {
        _ if m.starts_with("b.") => i.reads = flags,
        "b" | "bl" | "ret" | "dmb" | "nop" | "svc" => {}
        "br" | "cbz" | "cbnz" => i.reads = all,
        "cmp" => (i.reads, i.writes) = (all, flags),
        _ if m.starts_with("ld") => {
            (i.reads, i.writes) = (sources, first);
            touch(i, 1, true, false);
        }
        _ if m.starts_with("st") => {
            i.reads = all;
            touch(i, 1, false, true);
        }
        _ => (i.reads, i.writes) = (sources, first),
    }
}
