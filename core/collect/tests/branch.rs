//! Tests branch directions from registers against arithmetic and against the disassembler.

use dwell_collect::branch::{CODE_BYTES, x86::NextBranch};
use dwell_image::{Flow, Image, Instruction, Operand};

const RAX: usize = 0;
const RCX: usize = 2;
const FLAGS: usize = 9;
const R8: usize = 10;
const R15: usize = 17;

/// Returns the registers of a sample on x86-64, in the kernel's order.
fn registers(values: &[(usize, u64)]) -> [u64; 18] {
    let mut all = [0x5555_5555_5555_5555; 18];
    values.iter().for_each(|(at, value)| all[*at] = *value);
    all
}

/// Returns the branch at the start of the code, or the one fused with a comparison there.
fn at_branch(code: &[u8]) -> Option<NextBranch> {
    NextBranch::decode(code).filter(NextBranch::is_at_branch)
}

/// Returns whether a condition holds after `cmp left, right`, by the comparison that the condition is meant for.
fn by_arithmetic(condition: u8, left: i32, right: i32) -> bool {
    let difference = left.wrapping_sub(right);
    let holds = match condition >> 1 {
        0 => left.checked_sub(right).is_none(),
        1 => (left as u32) < right as u32,
        2 => left == right,
        3 => left as u32 <= right as u32,
        4 => difference < 0,
        5 => (difference as u8).count_ones().is_multiple_of(2),
        6 => left < right,
        _ => left <= right,
    };
    holds != (condition & 1 == 1)
}

#[test]
fn all_sixteen_conditions_agree_with_arithmetic() {
    let values = [0, 1, 2, 3, -1, -2, 7, 127, 128, 255, i32::MAX, i32::MIN, i32::MIN + 1, 0x1234_5678];
    let pairs = || values.iter().flat_map(|l| values.map(|r| (*l, r)));
    for (condition, (left, right)) in (0..16).flat_map(|c| pairs().map(move |p| (c, p))) {
        let code = [0x39, 0xc8, 0x70 | condition, 5, 0x90]; // cmp eax, ecx; jcc
        let branch = at_branch(&code).unwrap();
        assert_eq!(branch.distance(), 2);
        // The upper halves of the registers must not matter.
        let sample = registers(&[(RAX, left as u32 as u64 | 7 << 32), (RCX, right as u32 as u64 | 9 << 32)]);
        let expected = by_arithmetic(condition, left, right);
        assert_eq!(branch.taken(&sample), expected, "condition {condition:x} after cmp {left}, {right}");
    }
}

#[test]
fn flags_of_a_sample_on_the_branch_decide_it() {
    const CARRY: u64 = 1;
    const PARITY: u64 = 1 << 2;
    const ZERO: u64 = 1 << 6;
    const SIGN: u64 = 1 << 7;
    const OVERFLOW: u64 = 1 << 11;
    let taken = |condition: u8, flags: u64| {
        let long = [0x0f, 0x80 | condition, 1, 2, 3, 4];
        let (short, sample) = (at_branch(&[0x70 | condition, 5]).unwrap(), registers(&[(FLAGS, flags | 2)]));
        assert_eq!(short.taken(&sample), at_branch(&long).unwrap().taken(&sample));
        short.taken(&sample)
    };
    for (condition, flags) in
        [(0, OVERFLOW), (2, CARRY), (4, ZERO), (6, CARRY), (6, ZERO), (8, SIGN), (10, PARITY)]
    {
        assert!(taken(condition, flags) && !taken(condition + 1, flags));
        assert!(!taken(condition, 0) && taken(condition + 1, 0));
    }
    assert!(taken(12, SIGN) && taken(12, OVERFLOW) && !taken(12, SIGN | OVERFLOW));
    assert!(taken(14, ZERO) && taken(14, SIGN) && !taken(14, SIGN | OVERFLOW) && taken(15, 0));
}

#[test]
fn forms_and_widths() {
    let taken = |code: &[u8], values: &[(usize, u64)]| at_branch(code).map(|b| b.taken(&registers(values)));
    assert_eq!(taken(&[0x84, 0xc0, 0x74, 5], &[(RAX, 0xff00)]), Some(true), "test al, al; je");
    assert_eq!(taken(&[0x84, 0xe4, 0x74, 5], &[(RAX, 0xff00)]), Some(false), "test ah, ah; je");
    assert_eq!(taken(&[0x40, 0x84, 0xe4, 0x74, 5], &[(7, 0xff00)]), Some(true), "test spl, spl; je");
    assert_eq!(taken(&[0x48, 0x83, 0xf9, 0xff, 0x74, 5], &[(RCX, u64::MAX)]), Some(true), "cmp rcx, -1; je");
    assert_eq!(taken(&[0x66, 0x3d, 0, 0x80, 0x72, 5], &[(RAX, 0x17fff)]), Some(true), "cmp ax, 0x8000; jb");
    assert_eq!(taken(&[0x4d, 0x39, 0xf8, 0x77, 5], &[(R8, 8), (R15, 7)]), Some(true), "cmp r8, r15; ja");
    assert_eq!(taken(&[0x4c, 0x3b, 0xc1, 0x77, 5], &[(R8, 8), (RCX, 9)]), Some(false), "cmp r8, rcx; ja");
    assert_eq!(taken(&[0xf6, 0xc1, 8, 0x0f, 0x85, 0, 0, 0, 0], &[(RCX, 8)]), Some(true), "test cl, 8; jne");
    assert_eq!(
        taken(&[0xa9, 0, 0, 0, 0x80, 0x78, 5], &[(RAX, 1 << 31)]),
        Some(true),
        "test eax, 1 << 31; js"
    );
    assert_eq!(taken(&[0x39, 0x08, 0x74, 5], &[]), None, "cmp [rax], ecx: memory is not in the sample");
    assert_eq!(taken(&[0x39, 0xc8, 0x90, 0x74, 5], &[]), None, "no branch follows at once");
    assert_eq!(taken(&[0x83, 0xc0, 1, 0x74, 5], &[]), None, "add is no comparison");
    assert_eq!(taken(&[0x39], &[]), None, "cut off");
}

#[test]
fn straight_line_code_is_interpreted() {
    let ahead =
        |code: &[u8], values: &[(usize, u64)]| NextBranch::decode(code).map(|b| b.taken(&registers(values)));
    // Each code begins with an instruction before the comparison.
    let check = |code: &[u8], values: &[(usize, u64)], taken: bool, text: &str| {
        assert_eq!(ahead(code, values), Some(taken), "{text}");
    };
    check(&[0x83, 0xc0, 1, 0x74, 5], &[(RAX, u64::from(u32::MAX))], true, "add eax, 1; je");
    check(&[0x48, 0x83, 0xc0, 1, 0x74, 5], &[(RAX, u64::from(u32::MAX))], false, "add rax, 1; je");
    check(&[0x48, 0x83, 0xe9, 5, 0x72, 5], &[(RCX, 4)], true, "sub rcx, 5; jb");
    check(
        &[0x89, 0xc8, 0x83, 0xf8, 9, 0x7f, 5],
        &[(RCX, 7 << 32 | 10)],
        true,
        "mov eax, ecx; cmp eax, 9; jg",
    );
    check(&[0x0f, 0xb6, 0xc1, 0x83, 0xf8, 0x7f, 0x77, 5], &[(RCX, 0x180)], true, "movzx eax, cl; cmp; ja");
    check(&[0x0f, 0xbe, 0xc1, 0x85, 0xc0, 0x78, 5], &[(RCX, 0x180)], true, "movsx eax, cl; test; js");
    check(
        &[0x48, 0x8d, 0x44, 0x88, 4, 0x48, 0x3d, 24, 0, 0, 0, 0x74, 5],
        &[(RAX, 4), (RCX, 4)],
        true,
        "lea rax, [rax + rcx * 4 + 4]; cmp rax, 24; je",
    );
    check(&[0xc1, 0xe8, 4, 0x75, 5], &[(RAX, 0xf)], false, "shr eax, 4; jne");
    check(&[0xd1, 0xe8, 0x72, 5], &[(RAX, 3)], true, "shr eax, 1; jb");
    check(&[0xc1, 0xf8, 31, 0x75, 5], &[(RAX, 1 << 31)], true, "sar eax, 31; jne");
    check(&[0x48, 0xc1, 0xe0, 60, 0x72, 5], &[(RAX, 0x10)], true, "shl rax, 60; jb");
    check(&[0x31, 0xc0, 0x39, 0xc8, 0x74, 5], &[(RCX, 0)], true, "xor eax, eax; cmp eax, ecx; je");
    check(&[0x48, 0xff, 0xc1, 0x48, 0x39, 0xc1, 0x75, 5], &[(RCX, 6), (RAX, 7)], false, "inc rcx; cmp; jne");
    check(&[0x48, 0xf7, 0xd8, 0x78, 5], &[(RAX, 1)], true, "neg rax; js");
    check(&[0xf7, 0xd0, 0x85, 0xc0, 0x74, 5], &[(RAX, 0xffff_ffff)], true, "not eax; test; je");
    check(
        &[0x39, 0xc8, 0x0f, 0x44, 0xc1, 0x85, 0xc0, 0x74, 5],
        &[(RAX, 0), (RCX, 0)],
        true,
        "cmp; cmove; test",
    );
    check(
        &[0x39, 0xc8, 0x0f, 0x9c, 0xc0, 0x84, 0xc0, 0x75, 5],
        &[(RAX, 1), (RCX, 2)],
        true,
        "cmp; setl; test",
    );
    check(&[0x89, 0x03, 0x85, 0xc0, 0x74, 5], &[(RAX, 0)], true, "mov [rbx], eax; test eax, eax; je");
    check(&[0x8b, 0x13, 0x85, 0xc0, 0x74, 5], &[(RAX, 0)], true, "mov edx, [rbx]; test eax, eax; je");
    check(&[0xeb, 1, 0xcc, 0x85, 0xc0, 0x74, 5], &[(RAX, 0)], true, "jmp over; test; je");
    check(&[0xf3, 0x0f, 0x10, 0x03, 0x85, 0xc0, 0x74, 5], &[(RAX, 0)], true, "movss xmm0, [rbx]; test; je");
    check(&[0x90, 0x78, 5], &[(FLAGS, 1 << 7)], true, "nop; js: the sample's own flags");
}

#[test]
fn values_missing_in_the_sample_decide_no_branch() {
    let decided = |code: &[u8]| NextBranch::decode(code).is_some();
    assert!(!decided(&[0x8b, 0x03, 0x85, 0xc0, 0x74, 5]), "mov eax, [rbx]; test eax, eax; je");
    assert!(!decided(&[0x39, 0x08, 0x74, 5]), "cmp [rax], ecx; je");
    assert!(!decided(&[0x90, 0xe8, 0, 0, 0, 0, 0x74, 5]), "nop; call; je");
    assert!(!decided(&[0x0f, 0xaf, 0xc1, 0x74, 5]), "imul eax, ecx; je");
    assert!(!decided(&[0x66, 0x0f, 0x2e, 0xc1, 0x77, 5]), "ucomisd xmm0, xmm1; ja");
    assert!(!decided(&[0x8a, 0x03, 0x3c, 5, 0x74, 5]), "mov al, [rbx]; cmp al, 5; je");
    assert!(
        decided(&[0x8b, 0x03, 0x31, 0xc0, 0x85, 0xc0, 0x74, 5]),
        "mov eax, [rbx]; xor eax, eax; test; je"
    );
}

/// Decoding a prefix of random bytes may fail, but never panics.
#[test]
fn any_bytes_are_decoded_without_a_panic() {
    let mut state = 0x1997_5eed_u64;
    for _ in 0..200_000 {
        let mut code = [0; CODE_BYTES];
        for byte in &mut code {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (state >> 56) as u8;
        }
        let length = (state >> 32) as usize % (CODE_BYTES + 1);
        let _ = NextBranch::decode(&code[..length]).map(|b| b.taken(&registers(&[])));
    }
}

/// Over all code of this program, the decoder finds a decidable branch exactly where the disassembler does.
#[test]
fn branches_agree_with_the_disassembler() {
    if std::env::consts::ARCH != "x86_64" {
        println!("SKIPPED branches_agree_with_the_disassembler: this code is not x86-64");
        return;
    }
    let image = Image::open(std::env::current_exe().unwrap()).unwrap();
    let (mut checked, mut decided) = (0, 0);
    for procedure in image.procedures().iter().take(4000) {
        let code = image.instructions(procedure.address, procedure.size_bytes);
        for (at, instruction) in code.iter().enumerate() {
            let mut bytes = [0; 16]; // This is the longest comparison and a long branch.
            if !image.read(instruction.address, &mut bytes) {
                continue;
            }
            let expected = expected_distance(instruction, code.get(at + 1));
            let found = at_branch(&bytes).map(|b| b.distance());
            assert_eq!(found, expected, "{} {}", instruction.text, instruction.address);
            (checked, decided) = (checked + 1, decided + u32::from(found.is_some()));
        }
    }
    println!("{decided} of {checked} instructions decide a branch");
    assert!(checked > 10_000 && decided > 1_000, "{decided} of {checked}");
}

fn expected_distance(instruction: &Instruction, next: Option<&Instruction>) -> Option<u8> {
    let conditional = |i: &Instruction| {
        let other = i.mnemonic.contains("cxz") || i.mnemonic.starts_with("loop") || &*i.mnemonic == "xbegin";
        matches!(i.flow, Flow::Branch { .. }) && !other
    };
    if conditional(instruction) {
        return Some(0);
    }
    let compares = matches!(&*instruction.mnemonic, "cmp" | "test");
    let in_sample = |o: &Operand| matches!(o, Operand::Register { .. } | Operand::Immediate(_));
    let decides = compares && instruction.operands.iter().all(in_sample) && next.is_some_and(conditional);
    decides.then_some(instruction.length)
}

/// If a sample before a branch decides it, the disassembler must also reach a conditional branch by straight-line code and
/// direct jumps. So the decoder's instruction lengths agree with those of the disassembler.
#[test]
fn branches_are_at_the_addresses_of_the_disassembler() {
    if std::env::consts::ARCH != "x86_64" {
        println!("SKIPPED branches_are_at_the_addresses_of_the_disassembler: this code is not x86-64");
        return;
    }
    let image = Image::open(std::env::current_exe().unwrap()).unwrap();
    let (mut checked, mut decided) = (0, 0);
    for procedure in image.procedures().iter().take(1500) {
        let code = image.instructions(procedure.address, procedure.size_bytes);
        // Where code ends in a jump to another procedure, this listing says nothing of what follows.
        let leaves = |i: &Instruction| matches!(i.flow, Flow::Jump { target } if !procedure.contains(target));
        'instructions: for (at, instruction) in code.iter().enumerate() {
            let mut bytes = [0; CODE_BYTES];
            if !image.read(instruction.address, &mut bytes) {
                continue;
            }
            checked += 1;
            let Some(distance) = NextBranch::decode(&bytes).map(|b| b.distance()) else { continue };
            decided += 1;
            let branch = instruction.address.offset(distance as u64);
            let mut i = at;
            while code[i].address != branch {
                if leaves(&code[i]) {
                    continue 'instructions;
                }
                i = match code[i].flow {
                    Flow::Next => i + 1,
                    Flow::Jump { target } => {
                        code.binary_search_by_key(&target, |c| c.address).unwrap_or(usize::MAX)
                    }
                    _ => usize::MAX,
                };
                assert!(
                    i < code.len(),
                    "{} at {}: nothing at {branch}",
                    instruction.text,
                    instruction.address
                );
            }
            assert!(
                matches!(code[i].flow, Flow::Branch { .. }),
                "{} at {}",
                instruction.text,
                instruction.address
            );
        }
    }
    println!("{decided} of {checked} instructions decide a branch ahead");
    assert!(checked > 10_000 && decided * 8 > checked, "{decided} of {checked}");
}
