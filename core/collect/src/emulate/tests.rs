//! Tests the emulator with programs of a few instructions, in a memory of one page of code and one of data.

use super::*;
use crate::emulate::memory::{PAGE_BYTES, Page};
use moments::Moment;

/// A memory with code at 0x1000 and a stack of two pages at 0x2000.
struct Small(Vec<u8>);

impl Fetch for Small {
    fn fetch(&mut self, address: u64, pages: &mut [Page]) -> usize {
        let is_readable = |at: u64| matches!(at / PAGE_BYTES as u64, 1..=3);
        let bytes = pages.iter_mut().flat_map(|page| &mut page.0);
        let readable = (address..).zip(bytes).take_while(|(at, _)| is_readable(*at));
        let byte = |at: u64| self.0.get((at - 0x1000) as usize).copied().unwrap_or(0);
        readable.map(|(at, to)| *to = byte(at)).count()
    }
}

fn thread(code: &[u8]) -> Thread<Small> {
    let mut registers = Box::new(Registers::new());
    registers.general[RSP] = 0x2800;
    Thread {
        registers,
        pc: 0x1000,
        fs: 0,
        gs: 0,
        memory: Memory::new(Small(code.to_vec())),
        calls: Calls::default(),
        repetitions_max: strings::REPETITIONS_MAX,
    }
}

/// Returns compiled blocks and an interpreter, which handle the exceptions of the test process.
fn emulator() -> (Blocks, Interpreter) {
    let processor = Processor::new().unwrap();
    processor.take_exceptions();
    (Blocks::new().unwrap(), Interpreter::new(processor))
}

/// Runs a thread from its beginning.
fn run_anew<F: Fetch>(
    blocks: &mut Blocks,
    interpreter: &mut Interpreter,
    thread: &mut Thread<F>,
    steps_max: usize,
) -> (End, u64) {
    blocks.begin(thread, interpreter, Stay::Whole);
    blocks.run(thread, interpreter, (steps_max, 0), None, || false)
}

fn run_blocks<F: Fetch>(thread: &mut Thread<F>, steps_max: usize) -> (Vec<u64>, End) {
    let (mut blocks, mut interpreter) = emulator();
    let mut pcs = Vec::new();
    let mut note = |passed: &[u64]| pcs.extend_from_slice(passed);
    blocks.begin(thread, &mut interpreter, Stay::Whole);
    let (end, last) = blocks.run(thread, &mut interpreter, (steps_max, 0), Some(&mut note), || false);
    pcs.push(last);
    (pcs, end)
}

/// Emulates in both ways. Returns the addresses from the beginning of the code.
fn run(thread: &mut Thread<Small>, steps_max: usize) -> (Vec<u64>, End) {
    let mut bytes = vec![0; 3 * PAGE_BYTES];
    thread.memory.read(0x1000, &mut bytes).unwrap();
    let (registers, memory) = (thread.registers.clone(), Memory::new(Small(bytes)));
    let mut other = Thread { registers, memory, calls: Calls::default(), ..*thread };
    let (_, mut interpreter) = emulator();
    let mut pcs = Vec::new();
    let end = interpreter.run(thread, steps_max, |pc| pcs.push(pc), || false);
    pcs.push(thread.pc);
    let (compiled, end_of_other) = run_blocks(&mut other, steps_max);
    if end == End::SystemCall {
        assert_eq!(thread.registers.general, other.registers.general);
    }
    // Blocks are executed whole, and the last one may be known by its beginning only.
    let known = pcs.len().min(compiled.len());
    assert!(compiled[..known - 1] == pcs[..known - 1], "{compiled:x?} {pcs:x?}");
    if end != End::Complete {
        assert_eq!(end, end_of_other);
    }
    (pcs.iter().map(|pc| pc - 0x1000).collect(), end)
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
fn bits_of_a_string_are_tested_and_changed() {
    // 0: lock bts [rbx], rbp; 5: sbb al, al; 7: btr word [rbx], cx; b: sbb ah, ah; d: bt [rbx], edx; 10: sbb dl, dl; 12: syscall
    let code = [
        0xf0, 0x48, 0x0f, 0xab, 0x2b, 0x18, 0xc0, 0x66, 0x0f, 0xb3, 0x0b, 0x18, 0xe4, 0x0f, 0xa3, 0x13, 0x18,
        0xd2, 0x0f, 0x05,
    ];
    let mut thread = thread(&code);
    thread.memory.write(0x2100, &u64::MAX.to_le_bytes()).unwrap();
    let general = &mut thread.registers.general;
    (general[0], general[3], general[RBP]) = (0, 0x2108, 70);
    // The word before, and the word after.
    (general[1], general[2]) = (0xf_fff0, 64 + 6);
    assert_eq!(run(&mut thread, 99).1, End::SystemCall);
    assert_eq!(thread.memory.read_word(0x2110), Ok(1 << 6));
    assert_eq!(thread.memory.read_word(0x2100), Ok(0xfffe_ffff_ffff_ffff));
    // They were clear, set, and set.
    assert_eq!((thread.registers.general[0], thread.registers.general[2] as u8), (0xff00, 0xff));
}

/// Our own memory is at an address that a program may have, too.
#[test]
fn emulated_code_cannot_reach_our_memory() {
    let own = Box::new(7_u64);
    let code = [0x48, 0x89, 0x18, 0x0f, 0x05]; // mov [rax], rbx; syscall
    let mut thread = thread(&code);
    thread.registers.general[0] = (&raw const *own).addr() as u64;
    let (mut blocks, mut interpreter) = emulator();
    assert_eq!(run_anew(&mut blocks, &mut interpreter, &mut thread, 9), (End::Unreadable, 0x1000));
    assert_eq!(*own, 7);
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
    let (_, mut interpreter) = emulator();
    for (code, expected) in [([0xb0, 1], 1), ([0xb0, 2], 2)] {
        let mut thread = thread(&code); // mov al, …
        interpreter.run(&mut thread, 1, |_| {}, || false);
        assert_eq!(thread.registers.general[0], expected);
    }
}

/// A memory of 32 MiB that is one walk through scattered words, with the code of the walk at 0x1000.
struct Chase;

impl Fetch for Chase {
    fn fetch(&mut self, address: u64, pages: &mut [Page]) -> usize {
        const CODE: [u8; 5] = [0x48, 0x8b, 0x00, 0xeb, 0xfb]; // 0: mov rax, [rax]; 3: jmp 0
        if address == 0x1000 {
            pages[0].0[..CODE.len()].copy_from_slice(&CODE);
        } else {
            let words = pages.iter_mut().flat_map(|page| page.0.as_chunks_mut::<8>().0);
            for (at, word) in (address..).step_by(8).zip(words) {
                // A generator of random numbers goes through all cache lines (Knuth, TAOCP 2, 3.2.1.2).
                let next = ((at >> 6) * 1_664_525 + 1_013_904_223) % (1 << 19);
                *word = (0x1000_0000 + (next << 6)).to_le_bytes();
            }
        }
        size_of_val(pages)
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
        calls: Calls::default(),
        repetitions_max: 1 << 20,
    };
    thread.registers.general[0] = 0x1000_0000;
    let (_, mut interpreter) = emulator();
    assert_eq!(interpreter.run(&mut thread, 1 << 14, |_| {}, || false), End::Complete);
    (thread.pc, thread.registers.general[0]) = (0x1000, 0x1000_0000);
    thread.memory.restart(Chase);
    assert_eq!(run_blocks(&mut thread, 1 << 14).1, End::Complete);
}

#[test]
fn a_long_loop_is_counted_to_its_end() {
    let code = [0xb9, 0x40, 0x42, 0x0f, 0, 0xff, 0xc9, 0x75, 0xfc, 0x0f, 0x05]; // mov ecx, 1000000; dec ecx; jnz -4; syscall
    let mut thread = thread(&code);
    let (mut blocks, mut interpreter) = emulator();
    let (end, last) = run_anew(&mut blocks, &mut interpreter, &mut thread, usize::MAX);
    assert_eq!((end, last, blocks.made()), (End::SystemCall, 0x1009, 2_000_001));
    assert_eq!(blocks.path_to(last).numbers(), [(0x1007, 0x1005, 999_999), (0x1007, 0x1009, 1)]);
}

/// Thousands of indirect jumps fill their list again and again.
#[test]
fn all_indirect_jumps_are_counted() {
    // 0: mov ecx, 100000; 5: call rax; 7: dec ecx; 9: jnz 5; b: syscall; d: ret
    let code = [0xb9, 0xa0, 0x86, 1, 0, 0xff, 0xd0, 0xff, 0xc9, 0x75, 0xfa, 0x0f, 0x05, 0xc3];
    let mut thread = thread(&code);
    thread.registers.general[0] = 0x100d;
    let (mut blocks, mut interpreter) = emulator();
    let (end, last) = run_anew(&mut blocks, &mut interpreter, &mut thread, usize::MAX);
    assert_eq!((end, last, blocks.made()), (End::SystemCall, 0x100b, 400_001));
    let expected =
        [(0x1005, 0x100d, 100_000), (0x1009, 0x1005, 99_999), (0x1009, 0x100b, 1), (0x100d, 0x1007, 100_000)];
    assert_eq!(blocks.path_to(last).numbers(), expected);
}

/// Code raises an exception when there is little room in the list of indirect jumps, which is not taken for a full list.
#[test]
fn an_exception_is_told_from_a_full_list() {
    // 0: mov ecx, N; 5: call rax; 7: dec ecx; 9: jnz 5; b: div edx; d: ret
    for loops in 2040_u32..2056 {
        let count = loops.to_le_bytes();
        let code = [0xb9, count[0], count[1], 0, 0, 0xff, 0xd0, 0xff, 0xc9, 0x75, 0xfa, 0xf7, 0xf2, 0xc3];
        let mut thread = thread(&code);
        thread.registers.general[0] = 0x100d;
        let (mut blocks, mut interpreter) = emulator();
        let ended = run_anew(&mut blocks, &mut interpreter, &mut thread, usize::MAX);
        assert_eq!(ended, (End::Fault, 0x100b), "{loops}");
    }
}

#[test]
fn compiled_code_that_changed_is_compiled_again() {
    let (mut blocks, mut interpreter) = emulator();
    for (value, expected) in [(1, 1), (1, 1), (2, 2)] {
        let mut thread = thread(&[0xb0, value, 0x0f, 0x05]); // mov al, …; syscall
        run_anew(&mut blocks, &mut interpreter, &mut thread, 9);
        assert_eq!(thread.registers.general[0], expected);
    }
}

#[test]
fn the_stack_is_memory_as_any_other() {
    // 0: push 7; 2: lea rax, [rip + 8]; 9: call rax; b: pop rcx; c: leave; d: syscall;
    // 11: push rbp; 12: push [rsp]; 15: pop rbx; 16: pop rbp; 17: ret
    let code = [
        0x6a, 7, 0x48, 0x8d, 0x05, 8, 0, 0, 0, 0xff, 0xd0, 0x59, 0xc9, 0x0f, 0x05, 0x90, 0x90, 0x55, 0xff,
        0x34, 0x24, 0x5b, 0x5d, 0xc3,
    ];
    for top in [0x2800, 0x3004] {
        // The second one puts a word on two pages.
        let mut thread = thread(&code);
        (thread.registers.general[RSP], thread.registers.general[RBP]) = (top, 0x2900);
        thread.memory.write(0x2900, &0x5555_u64.to_le_bytes()).unwrap();
        let (pcs, end) = run(&mut thread, 100);
        assert_eq!(pcs, [0, 2, 9, 0x11, 0x12, 0x15, 0x16, 0x17, 0xb, 0xc, 0xd]);
        let general = thread.registers.general;
        assert_eq!((end, general[RCX], general[3]), (End::SystemCall, 7, 0x2900));
        assert_eq!((general[RSP], general[RBP]), (0x2908, 0x5555));
    }
}

/// Empty entries of the tables stand for no address, also after they were used.
#[test]
fn jumps_and_accesses_to_address_zero_are_refused() {
    let (mut blocks, mut interpreter) = emulator();
    // 0: jmp rax. The code that it jumps to first has the entry of address 0.
    let jump = [0xff, 0xe0];
    let read = [0x48, 0x8b, 0x00, 0x0f, 0x05]; // mov rax, [rax]; syscall
    for (code, rax, expected) in [
        (&jump[..], 0, End::Unknown),
        (&read, 0, End::Unreadable),
        (&read, 0x0fff, End::Unreadable),
        (&read, 0xffff_ffff_ffff_f000, End::Unreadable),
        (&jump, u64::MAX, End::Unknown),
    ] {
        let mut thread = thread(code);
        thread.registers.general[0] = rax;
        assert_eq!(run_anew(&mut blocks, &mut interpreter, &mut thread, 9).0, expected, "{rax:x}");
    }
}

/// The last entry of the table stands for no page, whatever it stood for before.
#[test]
fn accesses_just_below_the_end_of_memory_are_refused() {
    struct Last;
    impl Fetch for Last {
        fn fetch(&mut self, address: u64, pages: &mut [Page]) -> usize {
            const CODE: [u8; 8] = [0x0f, 0x10, 0x00, 0x0f, 0x11, 0x03, 0x0f, 0x05];
            pages[0].0[..CODE.len()].copy_from_slice(&CODE); // movups xmm0, [rax]; movups [rbx], xmm0; syscall
            if matches!(address, 0x1000 | 0xffff000) { PAGE_BYTES } else { 0 }
        }
    }
    let end = |(blocks, interpreter): &mut (Blocks, Interpreter), rax: u64, rbx: u64, pc: u64| {
        let registers = Box::new(Registers::new());
        let mut thread = Thread {
            registers,
            pc,
            fs: 0,
            gs: 0,
            memory: Memory::new(Last),
            calls: Calls::default(),
            repetitions_max: 1 << 20,
        };
        (thread.registers.general[0], thread.registers.general[3]) = (rax, rbx);
        run_anew(blocks, interpreter, &mut thread, 9).0
    };
    for below in (1..16_u64).map(u64::wrapping_neg) {
        let mut with = emulator();
        // The page at 0xffff000 has the last entry: it is read and written, then forgotten, then only read because it holds code.
        assert_eq!(end(&mut with, 0xffff100, 0xffff200, 0x1000), End::SystemCall);
        assert_eq!(end(&mut with, below, 0xffff100, 0x1000), End::Unreadable);
        assert_eq!(end(&mut with, 0xffff100, below, 0x1000), End::Unreadable);
        assert_eq!(end(&mut with, 0xffff100, below, 0xffff000), End::Unreadable);
    }
}

/// Numbers that are random, but the same each time (Marsaglia 2003, xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Returns a random instruction whose result does not depend on time or chance.
fn random_instruction(numbers: &mut Numbers) -> Vec<u8> {
    use Mnemonic::*;
    const STARTS: [&[u8]; 16] = [
        &[],
        &[],
        &[0x48],
        &[0x4c],
        &[0x41],
        &[0x66],
        &[0xf0],
        &[0x64],
        &[0x0f],
        &[0x48, 0x0f],
        &[0x66, 0x0f],
        &[0xf2, 0x0f],
        &[0xf3, 0x0f],
        &[0xc5],
        &[0xc4, 0xe2],
        &[0x62],
    ];
    loop {
        let mut code = STARTS[numbers.below(16) as usize].to_vec();
        while code.len() < INSTRUCTION_BYTES_MAX {
            // Small displacements and immediates.
            let byte = if code.len() > 6 { 0 } else { numbers.next() as u8 };
            code.push(byte);
        }
        let instruction = iced_x86::Decoder::new(64, &code, iced_x86::DecoderOptions::NONE).decode();
        let depends =
            matches!(instruction.mnemonic(), Rdtsc | Rdtscp | Rdrand | Rdseed | Cpuid | Xgetbv | Rcl | Rcr)
                || instruction.rflags_undefined() & iced_x86::RflagsBits::OF != 0;
        let is_plain = instruction.flow_control() == iced_x86::FlowControl::Next;
        if is_plain && !depends && !instruction.is_invalid() && instruction.segment_prefix() != Register::GS {
            code.truncate(instruction.len());
            return code;
        }
    }
}

fn has_partial_access(code: &[u8]) -> bool {
    let decoder = iced_x86::Decoder::new(64, code, iced_x86::DecoderOptions::NONE);
    let mut factory = iced_x86::InstructionInfoFactory::new();
    let mut access = |code| instruction::access(&code, &mut factory).ok().flatten();
    decoder.into_iter().any(|code| access(code).is_some_and(|access| access.is_partial))
}

#[test]
fn compiled_code_does_what_interpreted_code_does() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut both = 0;
    let (mut blocks, mut interpreter) = emulator();
    for _ in 0..20_000 {
        let mut code: Vec<u8> = (0..6).flat_map(|_| random_instruction(&mut numbers)).collect();
        code.extend([0x0f, 0x05]); // syscall
        let end = code.len() as u64 + 0x1000 - 2;
        code.resize(0x1000, 0);
        code.extend((0..0x1000 / 8).flat_map(|_| (numbers.next() >> numbers.below(64)).to_le_bytes()));
        let made = |numbers: &mut Numbers| {
            let mut thread = thread(&code);
            thread.fs = 0x10;
            for general in &mut thread.registers.general {
                *general = 0x2000 + 8 * numbers.below(0x1f0);
            }
            for vector in thread.registers.vectors.as_flattened_mut() {
                *vector = numbers.next() as u8;
            }
            thread.registers.masks.fill(numbers.next());
            thread.registers.flags = numbers.next() & 0x8d5;
            thread
        };
        let seed = numbers.next();
        let [mut one, mut other] = [(); 2].map(|()| made(&mut Numbers(seed)));

        let end_of_one = interpreter.run(&mut one, 100, |_| {}, || false);
        let end_of_other = run_anew(&mut blocks, &mut interpreter, &mut other, 100).0;
        let text = format!("{:x?}", &code[..(end - 0x1000) as usize]);
        // After an exception it is not known how far it came; interpreted operands are always aligned, so they raise fewer
        // of them. A write near code is the end of compiled code.
        if [end_of_one, end_of_other].contains(&End::Fault) || other.memory.code_writes() > 0 {
            continue;
        }
        // An interpreted masked load reads zeros where the processor raises an exception.
        if end_of_other == End::Unreadable && has_partial_access(&code[..(end - 0x1000) as usize]) {
            continue;
        }
        assert_eq!(end_of_one, end_of_other, "{text}");
        if end_of_one != End::SystemCall && end_of_one != End::Unknown {
            continue; // Repetitions of a string instruction may have been made before.
        }
        both += u32::from(end_of_one == End::SystemCall);
        let (a, b) = (&one.registers, &other.registers);
        let flags = 0xcd5; // Without those that are always set.
        assert_eq!((a.general, a.flags & flags), (b.general, b.flags & flags), "{text}");
        assert_eq!(a.masks, b.masks, "{text}");
        let differs = (0..32).find(|n| a.vectors[*n] != b.vectors[*n]);
        assert_eq!(
            differs,
            None,
            "{text} {:x?} {:x?}",
            differs.map(|n| a.vectors[n]),
            differs.map(|n| b.vectors[n])
        );
        let a = a.clone();
        let [one, other] = [&mut one, &mut other].map(|thread| thread.memory.page(0x2000).unwrap().clone());
        let differs = (0..PAGE_BYTES).find(|at| one.0[*at] != other.0[*at]);
        assert_eq!(differs.map(|at| (at, one.0[at], other.0[at])), None, "{text} {:x?}", a.general);
    }
    assert!(both > 1000, "{both} came to the end");
}

/// Returns where a thread is, with its registers, before each step.
fn states(code: &[u8]) -> Vec<(u64, [u64; 16])> {
    let (mut thread, (_, mut interpreter)) = (thread(code), emulator());
    let mut states = vec![(thread.pc, thread.registers.general)];
    while interpreter.run(&mut thread, 1, |_| {}, || false) == End::Complete {
        states.push((thread.pc, thread.registers.general));
    }
    states
}

/// mov ecx, 1000; 5: add edx, ecx; inc rax; call 16; dec ecx; jnz 5; syscall; 16: push rcx; ret 8, which are again and again
/// executed.
const CALLS: [u8; 28] = [
    0xb9, 0xe8, 3, 0, 0, 0x01, 0xca, 0x48, 0xff, 0xc0, 0xe8, 0x07, 0, 0, 0, 0xff, 0xc9, 0x75, 0xf2, 0x0f,
    0x05, 0x90, 0x51, 0x48, 0x83, 0xc4, 0x08, 0xc3,
];

#[test]
fn moments_of_a_thread_are_found_where_they_were() {
    let states = states(&CALLS);
    let (mut blocks, mut interpreter) = emulator();
    let plain = |blocks: &mut Blocks, interpreter: &mut Interpreter| {
        let ended = run_anew(blocks, interpreter, &mut thread(&CALLS), usize::MAX);
        assert_eq!((ended.0, blocks.made()), (End::SystemCall, states.len() - 1));
    };
    // Blocks are known before they are cut, or not.
    for begin in 1000..1020 {
        let steps: Vec<usize> = (0..4).map(|n| begin + 1003 * n).collect();
        let moment = |step: &usize| Moment {
            pc: states[*step].0,
            general: states[*step].1,
            cpu_ns: *step as u64,
            faults: 0,
            calls: 0,
        };
        let all: Vec<Moment> = steps.iter().map(moment).collect();
        let mut thread = thread(&CALLS);
        let mut moments = Moments::new(&all, 0, 0);
        blocks.begin(&mut thread, &mut interpreter, Stay::Short);
        let end = blocks.find(&mut thread, &mut interpreter, usize::MAX, &mut moments, || false);
        let timed = moments.timed(blocks.made()).unwrap();
        // Three are enough, but a fourth may be met before that is known.
        let made = timed.cpu_ns as usize;
        assert!(end == End::Complete && [2006, 3009].contains(&made), "{end:?} {made} {begin}");
        assert_eq!(timed.path.steps, timed.cpu_ns);
        let pcs: Vec<u64> = states[begin..=begin + made].iter().map(|state| state.0).collect();
        // Blocks that were cut add transfers to the next instruction.
        let is_jump = |t: &(u64, u64, u64)| !(t.0 + 1..=t.0 + 5).contains(&t.1) || t.0 == 0x1011;
        let jumps = |path: &Path| path.numbers().into_iter().filter(is_jump).collect::<Vec<_>>();
        assert_eq!(jumps(&timed.path), jumps(&Path::through(&pcs)), "{begin}");
        assert_eq!((timed.path.first.0, timed.path.last.0), (pcs[0], pcs[made]));
        plain(&mut blocks, &mut interpreter);
    }
}

#[test]
fn a_thread_that_went_elsewhere_is_not_found() {
    let code = [0xb9, 0x40, 0x42, 0x0f, 0, 0xff, 0xc9, 0x75, 0xfc, 0x0f, 0x05]; // mov ecx, 1000000; dec ecx; jnz -4; syscall
    let moment = |cpu_ns| Moment { pc: 0x1005, general: [7; 16], cpu_ns, faults: 0, calls: 0 };
    let all = [moment(100), moment(200), moment(300)];
    let mut thread = thread(&code);
    let (mut blocks, mut interpreter) = emulator();
    let mut moments = Moments::new(&all, 0, 0);
    blocks.begin(&mut thread, &mut interpreter, Stay::Short);
    let end = blocks.find(&mut thread, &mut interpreter, usize::MAX, &mut moments, || false);
    // It is given up early: no processor makes so many steps in that time.
    assert!(end == End::Complete && blocks.made() < 10_000, "{}", blocks.made());
    assert_eq!(moments.timed(blocks.made()), None);
}

#[test]
fn known_system_calls_are_made() {
    use calls::Call;
    // 0: syscall; 2: mov rbx, [rsi]; 5: mov rcx, [0x3000]; 13: syscall
    let code = [0x0f, 5, 0x48, 0x8b, 0x1e, 0x48, 0x8b, 0x0c, 0x25, 0, 0x30, 0, 0, 0x0f, 5];
    let ends = |number: u64, change: fn(&mut Call)| {
        let mut thread = thread(&code);
        thread.registers.general[RSI] = 0x2ffd;
        let mut general = thread.registers.general;
        (general[0], general[RCX], general[11]) = (6, 0x1002, 0x246);
        let mut call = Call { number, general, written: Some((0x2ffd, vec![1, 2, 3, 4, 5, 6])) };
        change(&mut call);
        thread.calls = Calls::new(vec![call], Some(0x2100));
        let (pcs, end) = run_blocks(&mut thread, 100);
        let general = thread.registers.general;
        (pcs.last().copied(), end, general[0], general[3], general[RCX], thread.calls.made())
    };
    let read = ends(0, |_| {});
    // Its bytes lie on two pages.
    assert_eq!(read, (Some(0x100d), End::SystemCall, 6, 0x0605_0403_0201, 0x06_0504, 1));
    let differs = |change| ends(0, change).1;
    assert_eq!(differs(|call| call.general[3] = 9), End::Differs);
    assert_eq!(differs(|call| call.number = 1), End::Differs);
    assert_eq!(differs(|call| call.general[RCX] = 0x1004), End::Differs);
    assert_eq!(differs(|call| call.written = None), End::SystemCall);
}

#[test]
fn the_heap_grows_by_zeros() {
    use calls::Call;
    // 0: mov qword [0x3008], 7; c: syscall; e: mov rbx, [0x3008]; 16: syscall
    let code = [
        0x48, 0xc7, 0x04, 0x25, 8, 0x30, 0, 0, 7, 0, 0, 0, 0x0f, 5, 0x48, 0x8b, 0x1c, 0x25, 8, 0x30, 0, 0,
        0x0f, 5,
    ];
    let mut thread = thread(&code);
    thread.registers.general[0] = libc::SYS_brk as u64;
    let mut general = thread.registers.general;
    (general[0], general[RCX]) = (0x4000, 0x100e);
    let call = Call { number: libc::SYS_brk as u64, general, written: None };
    thread.calls = Calls::new(vec![call], Some(0x2f00));
    let (pcs, end) = run_blocks(&mut thread, 100);
    assert_eq!((pcs.last(), end, thread.registers.general[3]), (Some(&0x1016), End::SystemCall, 0));
}
