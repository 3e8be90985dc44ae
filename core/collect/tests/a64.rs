//! Tests AArch64 branch directions from registers against QEMU: random straight-line code runs there, and every branch that
//! the interpreter decides must have gone that way.

use std::{
    fmt::Write,
    fs,
    process::{Command, Stdio},
};

use dwell_collect::branch::a64::NextBranch;

const SNIPPETS: usize = 4000;
const REGISTERS: usize = 8;

/// A seeded generator of random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % u64::from(bound)) as u32
    }

    fn bits(&mut self, count: u32) -> u32 {
        self.below(1 << count)
    }

    /// Returns one of the registers in use, or occasionally the zero register.
    fn register(&mut self) -> u32 {
        if self.below(8) == 0 { 31 } else { self.below(REGISTERS as u32) }
    }

    fn value(&mut self) -> u64 {
        match self.below(3) {
            0 => u64::from(self.below(4)),
            1 => u64::from(self.below(4)).wrapping_neg(),
            _ => u64::from(self.bits(31)) << 33 ^ u64::from(self.bits(31)) << 13 ^ u64::from(self.bits(13)),
        }
    }
}

struct Snippet {
    registers: [u64; REGISTERS],
    words: Vec<u32>,
}

fn snippet(random: &mut Random) -> Snippet {
    let registers = std::array::from_fn(|_| random.value());
    let mut words: Vec<u32> = (0..1 + random.below(5)).map(|_| instruction(random)).collect();
    words.push(match random.below(4) {
        0 => random.bits(2) << 24 & 0x0100_0000 | random.bits(1) << 31 | 0x3400_0060 | random.below(8),
        1 => {
            let place = random.bits(1) << 31 | random.bits(5) << 19;
            random.bits(1) << 24 | place | 0x3600_0060 | random.below(8)
        }
        _ => 0x5400_0060 | random.below(14),
    });
    Snippet { registers, words }
}

/// Returns an instruction that affects registers and flags only.
fn instruction(random: &mut Random) -> u32 {
    let wide = random.bits(1);
    let (sf, rd, rn, rm) = (wide << 31, random.register(), random.register() << 5, random.register() << 16);
    let general = |r: u32| if r == 31 { 3 } else { r };
    let bits = if wide == 1 { 64 } else { 32 };
    let (op, s, amount) = (random.bits(1) << 30, random.bits(1) << 29, random.below(bits) << 10);
    match random.below(13) {
        // The stack pointer must not change, so 31 is replaced where it would mean the stack pointer.
        0 => sf | op | s | 0x1100_0000 | random.bits(13) << 10 | general(rn >> 5) << 5 | general(rd),
        1 => {
            let ones = random.below(bits - 1) << 10;
            let size = if wide == 1 { 1 << 22 } else { 0 };
            sf | random.bits(2) << 29
                | 0x1200_0000
                | size
                | random.below(bits) << 16
                | ones
                | rn
                | general(rd)
        }
        2 => {
            let opc = [0, 2, 3][random.below(3) as usize] << 29;
            sf | opc | 0x1280_0000 | random.below(bits / 16) << 21 | random.bits(16) << 5 | rd
        }
        3 => {
            let opc = random.below(3) << 29;
            sf | opc | 0x1300_0000 | wide << 22 | random.below(bits) << 16 | amount | rn | rd
        }
        4 | 5 => sf | random.bits(2) << 29 | 0x0a00_0000 | random.bits(3) << 21 | rm | amount | rn | rd,
        6 | 7 => sf | op | s | 0x0b00_0000 | random.below(3) << 22 | rm | amount | rn | rd,
        8 => {
            let shape = random.bits(3) << 13 | random.below(5) << 10;
            sf | op | s | 0x0b20_0000 | rm | shape | general(rn >> 5) << 5 | general(rd)
        }
        9 => sf | op | 0x1a80_0000 | rm | random.below(14) << 12 | random.bits(1) << 10 | rn | rd,
        10 | 11 => {
            let form = random.bits(1) << 11;
            sf | op | 0x3a40_0000 | rm | random.below(14) << 12 | form | rn | random.bits(4)
        }
        _ => {
            // madd, udiv, clz, adcs and extr are not modelled; the registers that they write are unknown from then on.
            let extract = sf | wide << 22 | 0x1380_0000 | rm | amount | rn | rd;
            let others = [
                0x1b00_0000 | rm | rn | rd,
                0x1ac0_0800 | rm | rn | rd,
                0x5ac0_1000 | rn | rd,
                0x3a00_0000 | rm | rn | rd,
            ];
            let other = random.below(5) as usize;
            others.get(other).map_or(extract, |word| sf | word)
        }
    }
}

/// Returns a program that runs each snippet and writes a byte of 1 for each branch that was taken.
fn program(snippets: &[Snippet]) -> String {
    let mut text = String::from(".global _start\n_start:\nldr x20, =values\nldr x21, =taken\n");
    for snippet in snippets {
        (0..REGISTERS / 2).for_each(|k| writeln!(text, "ldp x{}, x{}, [x20], 16", 2 * k, 2 * k + 1).unwrap());
        snippet.words.iter().for_each(|word| writeln!(text, ".inst {word:#x}").unwrap());
        text.push_str("mov w9, 0\nb . + 8\nmov w9, 1\nstrb w9, [x21], 1\n");
    }
    write!(text, "mov x0, 1\nldr x1, =taken\nldr x2, ={SNIPPETS}\nmov x8, 64\nsvc 0\nmov x0, 0\nmov x8, 93\nsvc 0\n.ltorg\n").unwrap();
    text.push_str(".data\n.balign 16\nvalues:\n");
    let values = snippets.iter().flat_map(|s| s.registers);
    values.for_each(|value| writeln!(text, ".quad {value:#x}").unwrap());
    write!(text, ".bss\ntaken: .skip {SNIPPETS}\n").unwrap();
    text
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

#[test]
fn predicted_branch_directions_are_right() {
    const GCC: &str = "aarch64-linux-gnu-gcc";
    const QEMU: &str = "qemu-aarch64";
    if let Some(missing) = [GCC, QEMU].iter().find(|p| !is_there(p)) {
        eprintln!("SKIPPED predicted_branch_directions_are_right: no {missing} here");
        return;
    }
    let mut random = Random(0x0dd_ba11);
    let snippets: Vec<Snippet> = (0..SNIPPETS).map(|_| snippet(&mut random)).collect();
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("code.S"), folder.path().join("code"));
    fs::write(&source, program(&snippets)).unwrap();
    let built = Command::new(GCC).args(["-nostdlib", "-static", "-o"]).args([&binary, &source]).status();
    assert!(built.unwrap().success());
    let ran = Command::new(QEMU).arg(&binary).output().unwrap();
    assert!(ran.status.success() && ran.stdout.len() == SNIPPETS, "{ran:?}");
    let mut decided = 0;
    for (snippet, &taken) in snippets.iter().zip(&ran.stdout) {
        let code: Vec<u8> = snippet.words.iter().flat_map(|w| w.to_le_bytes()).collect();
        if let Some(branch) = NextBranch::decode(&code) {
            decided += 1;
            assert_eq!(usize::from(branch.distance()), code.len() - 4);
            let words = &snippet.words;
            assert_eq!(branch.taken(&snippet.registers), taken == 1, "{words:x?} {:x?}", snippet.registers);
        }
    }
    assert!(decided > SNIPPETS / 3, "only {decided} of {SNIPPETS} are decided");
}

#[test]
fn any_bytes_are_decoded_without_a_panic() {
    let mut random = Random(77);
    for _ in 0..100_000 {
        let code: Vec<u8> = (0..random.below(100)).map(|_| random.bits(8) as u8).collect();
        let _ = NextBranch::decode(&code).map(|branch| branch.taken(&[random.value(); 7]));
    }
}

/// A sample contains neither flags nor loaded values.
#[test]
fn values_missing_in_the_sample_are_unknown() {
    let decides = |words: &[u32]| {
        let code: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        NextBranch::decode(&code).is_some()
    };
    let (beq, cmp, load, post) = (0x5400_0060, 0xeb01_001f, 0xf940_0040, 0xf840_8440);
    assert!(!decides(&[beq]));
    assert!(decides(&[cmp, beq]));
    assert!(!decides(&[load, cmp, beq]), "ldr x0, [x2]");
    assert!(decides(&[load, 0xeb03_003f, beq]), "cmp x1, x3");
    assert!(
        !decides(&[post, 0xeb02_003f, beq]),
        "the base register after the access: its value is known, but not modelled"
    );
    assert!(!decides(&[0xd400_0001, cmp, beq]), "svc");
}
