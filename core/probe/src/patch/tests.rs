//! Functions are patched in memory of this process and then executed, with counters in place of the payload.

use std::collections::BTreeSet;

use super::{
    from_image::IndirectJumps,
    function_code::{FunctionCode, Part},
    plan::{JUMP_BYTES, Obstacle, Refusal, plan},
    trampoline::{Payload, assemble, jump},
};

/// Executable memory with a function at its beginning, its trampolines at [`TRAMPOLINES_AT`], and a payload that counts calls and
/// destroys every register that functions may change.
struct Memory {
    bytes: *mut u8,
}

const BYTES: usize = 1 << 16;
const TRAMPOLINES_AT: usize = 0x4000;
const ENTER_AT: usize = 0x2000;
const LEAVE_AT: usize = 0x2100;
const GATE_AT: usize = 0x3000;
const HELPER_AT: usize = 0x1000;

impl Memory {
    fn new(function: &[u8]) -> Self {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let bytes = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, -1, 0)
        };
        assert_ne!(bytes, libc::MAP_FAILED);
        let memory = Memory { bytes: bytes.cast() };
        memory.put(0, function);
        // lea eax, [rdi + 100]; ret
        memory.put(HELPER_AT, &[0x8d, 0x47, 100, 0xc3]);
        for (at, counter) in [(ENTER_AT, 0u8), (LEAVE_AT, 8)] {
            memory.put(at, &[0x48, 0x83, 0x47, counter, 1]); // add qword [rdi + counter], 1
            // Destroys rax, rcx, rdx, rsi, rdi, r8 to r11, and the flags.
            let destroy = [
                0x31, 0xc0, 0x31, 0xc9, 0x31, 0xd2, 0x31, 0xf6, 0x31, 0xff, 0x45, 0x31, 0xc0, 0x45, 0x31,
                0xc9, 0x45, 0x31, 0xd2, 0x45, 0x31, 0xdb, 0xc3,
            ];
            memory.put(at + 5, &destroy);
        }
        memory
    }

    fn address(&self) -> u64 {
        self.bytes as u64
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= BYTES);
        // SAFETY: within the mapping, which nobody else knows.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.bytes.add(at), bytes.len()) }
    }

    fn counts(&self) -> [u64; 2] {
        // SAFETY: within the mapping, aligned.
        unsafe { *self.bytes.add(GATE_AT).cast::<[u64; 2]>() }
    }

    /// Patches the function and returns how many places there were.
    fn patch(&self, function: &[u8], length: usize, with_exits: bool) -> Result<usize, Refusal> {
        let part = Part { address: self.address(), bytes: function.to_vec(), length };
        let code = FunctionCode::decode(vec![part], IndirectJumps::default())?;
        let regions = plan(&code, with_exits)?;
        let at = |offset: usize| self.address() + offset as u64;
        let payload = Payload { gate: at(GATE_AT), enter: at(ENTER_AT), leave: at(LEAVE_AT) };
        let mut next = TRAMPOLINES_AT;
        for region in &regions {
            let trampoline = assemble(region, 7, payload, at(next)).unwrap();
            self.put(next, &trampoline.code);
            let from = (region.address - self.address()) as usize;
            assert_eq!(region.original, function[from..from + JUMP_BYTES]);
            self.put(from, &jump(region.address, at(next)).unwrap());
            next += trampoline.code.len().next_multiple_of(16);
        }
        Ok(regions.len())
    }

    fn call(&self, argument: u64) -> u64 {
        // SAFETY: the tests put a function there that takes and returns one number.
        unsafe { std::mem::transmute::<*mut u8, extern "C" fn(u64) -> u64>(self.bytes)(argument) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and no reference is left.
        unsafe { libc::munmap(self.bytes.cast(), BYTES) };
    }
}

/// Patches a function of `length` bytes, followed by padding, and compares its results before and after.
#[track_caller]
fn check(function: &[u8], length: usize, arguments: &[u64], places: usize) {
    let memory = Memory::new(function);
    let before: Vec<u64> = arguments.iter().map(|argument| memory.call(*argument)).collect();
    assert_eq!(memory.patch(function, length, true), Ok(places));
    let after: Vec<u64> = arguments.iter().map(|argument| memory.call(*argument)).collect();
    assert_eq!(after, before);
    assert_eq!(memory.counts(), [arguments.len() as u64; 2]);
}

#[track_caller]
fn refused(function: &[u8], length: usize) -> Refusal {
    Memory::new(function).patch(function, length, true).unwrap_err()
}

#[test]
fn a_function_with_a_frame_pointer_is_patched() {
    // push rbp; mov rbp, rsp; lea rax, [rdi + rdi*2]; add rax, 5; pop rbp; ret; padding
    let code =
        [0x55, 0x48, 0x89, 0xe5, 0x48, 0x8d, 0x04, 0x7f, 0x48, 0x83, 0xc0, 5, 0x5d, 0xc3, 0x90, 0x90, 0x90];
    check(&code, 14, &[0, 1, 77], 2);
}

#[test]
fn entry_and_exit_of_a_short_function_share_a_place() {
    // lea eax, [rdi + 1]; ret; padding
    check(&[0x8d, 0x47, 1, 0xc3, 0xcc, 0xcc], 4, &[1, 2], 1);
    // endbr64; xor eax, eax; ret; padding
    check(&[0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xc0, 0xc3, 0x66, 0x90, 0x90], 7, &[1, 2], 1);
}

#[test]
fn a_call_among_the_first_instructions_returns_to_the_original_code() {
    // push rbx; call HELPER; lea eax, [rax + rax]; pop rbx; ret
    let mut code = vec![0x53, 0xe8];
    code.extend((HELPER_AT as i32 - 6).to_le_bytes());
    code.extend([0x8d, 0x04, 0x00, 0x5b, 0xc3, 0xcc]);
    check(&code, 11, &[3, 4], 2);
    // mov eax, [rip + …]-like indirect call by register: push rbx; lea rax, [rip + HELPER]; call rax; nop; pop rbx; ret
    let mut code = vec![0x53, 0x48, 0x8d, 0x05];
    code.extend((HELPER_AT as i32 - 8).to_le_bytes());
    code.extend([0xff, 0xd0, 0x90, 0x90, 0x90, 0x5b, 0xc3]);
    check(&code, 15, &[3, 4], 2);
}

#[test]
fn tail_calls_are_exits() {
    // test edi, edi; je HELPER; add edi, 1; jmp HELPER
    let mut code = vec![0x85, 0xff, 0x0f, 0x84];
    code.extend((HELPER_AT as i32 - 8).to_le_bytes());
    code.extend([0x83, 0xc7, 1, 0xe9]);
    code.extend((HELPER_AT as i32 - 16).to_le_bytes());
    check(&code, 16, &[0, 1, 2], 2);
}

#[test]
fn each_return_is_patched_and_branches_still_lead_where_they_did() {
    // cmp edi, 3; jb L; mov eax, 9; ret; L: mov eax, 4; nop; ret; padding
    let code = [
        0x83, 0xff, 3, 0x72, 6, 0xb8, 9, 0, 0, 0, 0xc3, 0xb8, 4, 0, 0, 0, 0x90, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc,
    ];
    check(&code, 18, &[0, 5, 2], 3);
}

#[test]
fn an_exit_with_too_few_bytes_is_refused() {
    // push rbp; mov rbp, rsp; nop*2; cmp edi, 3; jb L; pop rbp; L: ret, and the end of the function without padding
    let code =
        [0x55, 0x48, 0x89, 0xe5, 0x90, 0x90, 0x83, 0xff, 3, 0x72, 1, 0x5d, 0xc3, 0x55, 0x55, 0x55, 0x55];
    let memory = Memory::new(&code);
    let exit = memory.address() + 12;
    assert_eq!(
        memory.patch(&code, 13, true),
        Err(Refusal::Exit { address: exit, reason: Obstacle::Target(exit) })
    );
    // Without its exits it can be patched.
    assert_eq!(memory.patch(&code, 13, false), Ok(1));
}

#[test]
fn what_cannot_be_sure_is_refused() {
    // ret, and nothing behind it
    assert!(matches!(refused(&[0xc3, 0x55], 1), Refusal::Entry { reason: Obstacle::Short }));
    // A loop to the entry: add eax, 1; cmp eax, edi; jne entry; ret
    let looping = [0x83, 0xc0, 1, 0x39, 0xf8, 0x75, 0xf9, 0xc3];
    assert!(matches!(refused(&looping, 8), Refusal::EntryInLoop { .. }));
    // A jump into the first bytes: push rbx; L: push rbx; pop rbx; nop*3; cmp edi, 9; jb L; pop rbx; ret
    let into = [0x53, 0x53, 0x5b, 0x90, 0x90, 0x90, 0x83, 0xff, 9, 0x72, 0xf6, 0x5b, 0xc3, 0xcc, 0xcc, 0xcc];
    assert!(matches!(refused(&into, 13), Refusal::Entry { reason: Obstacle::Target(_) }));
    // syscall within the first bytes: mov al, 39; syscall; ret; padding
    let call = [0xb0, 39, 0x0f, 0x05, 0x90, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc];
    assert!(matches!(refused(&call, 6), Refusal::Entry { reason: Obstacle::Unmovable(_) }));
    // Bytes that are no instructions, and a jump that may lead anywhere: jmp rax
    assert!(matches!(refused(&[0x06, 0x06, 0x06, 0x06, 0x06, 0xc3], 6), Refusal::Undecodable { .. }));
    assert!(matches!(refused(&[0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xe0], 7), Refusal::UnknownJump { .. }));
}

#[test]
fn an_indirect_tail_call_is_an_exit() {
    // lea rax, [rip + HELPER]; nop; jmp rax; padding
    let mut code = vec![0x48, 0x8d, 0x05];
    code.extend((HELPER_AT as i32 - 7).to_le_bytes());
    code.extend([0x90, 0xff, 0xe0, 0xcc, 0xcc, 0xcc]);
    let memory = Memory::new(&code);
    let tail_calls = BTreeSet::from([memory.address() + 8]);
    let part = Part { address: memory.address(), bytes: code, length: 10 };
    let jumps = IndirectJumps { tail_calls, ..IndirectJumps::default() };
    let code = FunctionCode::decode(vec![part], jumps).unwrap();
    assert_eq!(plan(&code, true).unwrap().len(), 2);
}

#[test]
fn a_jump_too_far_is_refused() {
    assert_eq!(jump(0x1000, 0x1005), Some([0xe9, 0, 0, 0, 0]));
    assert_eq!(jump(0x1000, 0x1000), Some([0xe9, 0xfb, 0xff, 0xff, 0xff]));
    assert_eq!(jump(0, 0x8000_0005), None);
    assert_eq!(jump(0x7fff_0000_0000, 0x1000), None);
}
