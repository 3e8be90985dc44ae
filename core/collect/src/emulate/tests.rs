//! Tests the emulator with programs of a few instructions, in a memory of one page of code and one of data.

use super::*;
use crate::emulate::memory::PAGE_BYTES;

/// A memory with code at 0x1000 and a stack page at 0x2000.
struct Small(Vec<u8>);

impl Fetch for Small {
    fn fetch(&mut self, address: u64, bytes: &mut [u8]) -> usize {
        let is_readable = |at: u64| matches!(at / PAGE_BYTES as u64, 1 | 2);
        let readable = (address..).zip(bytes).take_while(|(at, _)| is_readable(*at));
        let byte = |at: u64| self.0.get((at - 0x1000) as usize).copied().unwrap_or(0);
        readable.map(|(at, to)| *to = byte(at)).count()
    }
}

fn thread(code: &[u8]) -> Thread<Small> {
    let mut registers = Box::new(Registers::new());
    registers.general[RSP] = 0x2800;
    Thread { registers, pc: 0x1000, fs: 0, gs: 0, memory: Memory::new(Small(code.to_vec())) }
}

/// Returns an emulator that does not handle the exceptions of the test process.
fn emulator() -> Emulator {
    Emulator::with(Processor::new().unwrap())
}

fn run(thread: &mut Thread<Small>, steps_max: usize) -> (Vec<u64>, End) {
    let mut pcs = Vec::new();
    let end = emulator().run(thread, steps_max, |pc| pcs.push(pc - 0x1000), || false);
    (pcs, end)
}

#[test]
fn a_loop_a_call_and_a_system_call() {
    // 0: mov ecx, 3; 5: call 0x10; a: dec ecx; c: jnz 5; e: syscall; 10: push rbp; 11: pop rbp; 12: ret
    let code = [0xb9, 3, 0, 0, 0, 0xe8, 6, 0, 0, 0, 0xff, 0xc9, 0x75, 0xf7, 0x0f, 0x05, 0x55, 0x5d, 0xc3];
    let mut thread = thread(&code);
    let (pcs, end) = run(&mut thread, 1000);
    let round = [5, 0x10, 0x11, 0x12, 0xa, 0xc];
    let expected: Vec<u64> = [0].into_iter().chain(round.repeat(3)).chain([0xe]).collect();
    assert_eq!((pcs, end), (expected, End::SystemCall));
    assert_eq!(thread.registers.general[RSP], 0x2800);
}

#[test]
fn writes_stay_in_the_copy_and_are_read_back() {
    // 0: mov [0x2010], rax; 8: mov rbx, [0x2010]; 10: cmp [0x5000], al
    let code = [
        0x48, 0x89, 0x04, 0x25, 0x10, 0x20, 0, 0, 0x48, 0x8b, 0x1c, 0x25, 0x10, 0x20, 0, 0, 0x38, 0x04, 0x25,
        0, 0x50, 0, 0,
    ];
    let mut thread = thread(&code);
    thread.registers.general[0] = 77;
    assert_eq!(run(&mut thread, 9), (vec![0, 8, 0x10], End::Unreadable));
    assert_eq!(thread.registers.general[3], 77);
}

#[test]
fn string_repetitions_are_one_step() {
    // 0: rep stosb; 2: repne scasb; 4: std; 5: movsq; 7: ud2
    let code = [0xf3, 0xaa, 0xf2, 0xae, 0xfd, 0x48, 0xa5, 0x0f, 0x0b];
    let mut thread = thread(&code);
    let general = &mut thread.registers.general;
    (general[0], general[RCX], general[RDI], general[RSI]) = (5, 40, 0x2ff0 - 0x100, 0x2800);
    let (pcs, end) = run(&mut thread, 1);
    assert_eq!((pcs, end), (vec![0, 2], End::Complete));
    assert_eq!(thread.registers.general[RDI], 0x2ff0 - 0x100 + 40);
    thread.registers.general[RCX] = 100;
    thread.registers.general[RDI] = 0x2ff0 - 0x110;
    let (pcs, end) = run(&mut thread, 9);
    assert_eq!((pcs, end), (vec![2, 4, 5, 7], End::Unknown));
    let general = thread.registers.general;
    assert_eq!((general[RCX], general[RDI], general[RSI]), (83, 0x2ff0 - 0xff - 8, 0x2800 - 8));
}

#[test]
fn code_that_changes_itself_is_decoded_again() {
    // 0: mov al, 1; 2: mov byte [0x1001], 7; a: jmp 0
    let code = [0xb0, 1, 0xc6, 0x04, 0x25, 1, 0x10, 0, 0, 7, 0xeb, 0xf4];
    let mut thread = thread(&code);
    assert_eq!(run(&mut thread, 4), (vec![0, 2, 0xa, 0, 2], End::Complete));
    assert_eq!(thread.registers.general[0], 7);
}

#[test]
fn addresses_use_base_index_scale_and_displacement() {
    // 0: mov rax, [rbx+rcx*4-8]; 5: mov rdx, [rip+0xff4]; c: mov esi, [ebx+ecx*4-8]
    let code =
        [0x48, 0x8b, 0x44, 0x8b, 0xf8, 0x48, 0x8b, 0x15, 0xf4, 0x0f, 0, 0, 0x67, 0x8b, 0x74, 0x8b, 0xf8];
    let mut thread = thread(&code);
    (thread.registers.general[3], thread.registers.general[RCX]) = (0x2000, 6);
    thread.memory.write(0x2010, &5_u64.to_le_bytes()).unwrap();
    thread.memory.write(0x2000, &9_u64.to_le_bytes()).unwrap();
    assert_eq!(run(&mut thread, 3).1, End::Complete);
    let general = thread.registers.general;
    assert_eq!((general[0], general[2], general[RSI]), (5, 9, 5));
}

#[test]
fn changed_code_is_prepared_again() {
    let mut emulator = emulator();
    for (code, expected) in [([0xb0, 1], 1), ([0xb0, 2], 2)] {
        let mut thread = thread(&code); // mov al, …
        emulator.run(&mut thread, 1, |_| {}, || false);
        assert_eq!(thread.registers.general[0], expected);
    }
}

/// A memory of 32 MiB that is one walk through scattered words, with the code of the walk at 0x1000.
struct Chase;

impl Fetch for Chase {
    fn fetch(&mut self, address: u64, bytes: &mut [u8]) -> usize {
        const CODE: [u8; 5] = [0x48, 0x8b, 0x00, 0xeb, 0xfb]; // 0: mov rax, [rax]; 3: jmp 0
        if address == 0x1000 {
            bytes[..CODE.len()].copy_from_slice(&CODE);
        } else {
            for (at, word) in (address..).step_by(8).zip(bytes.as_chunks_mut::<8>().0) {
                // A generator of random numbers goes through all cache lines (Knuth, TAOCP 2, 3.2.1.2).
                let next = ((at >> 6) * 1_664_525 + 1_013_904_223) % (1 << 19);
                *word = (0x1000_0000 + (next << 6)).to_le_bytes();
            }
        }
        bytes.len()
    }
}

#[test]
fn a_walk_through_scattered_memory_makes_all_steps() {
    let mut thread = Thread {
        registers: Box::new(Registers::new()),
        pc: 0x1000,
        fs: 0,
        gs: 0,
        memory: Memory::new(Chase),
    };
    thread.registers.general[0] = 0x1000_0000;
    assert_eq!(emulator().run(&mut thread, 1 << 14, |_| {}, || false), End::Complete);
}
