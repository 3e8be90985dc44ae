//! A copy is executed in memory of this process.

use std::ptr;

use super::*;
use crate::patch::{from_image::IndirectJumps, function_code::Part, plan::region};

const BYTES: usize = 1 << 16;
const COPY_AT: usize = 0x4000;

/// Maps fresh memory.
fn map(bytes: usize, protection: i32, flags: i32) -> *mut u8 {
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let at = unsafe {
        libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags, -1, 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

fn put(at: *mut u8, bytes: &[u8]) {
    // SAFETY: callers stay within their mappings.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) }
}

#[test]
fn a_counter_between_flags_and_their_reader_keeps_them() {
    let function = [
        0x31, 0xc0, // xor eax, eax
        0x39, 0xf7, // loop: cmp edi, esi
        0x48, 0x8d, 0x40, 0x01, // lea rax, [rax + 1]
        0x48, 0x8d, 0x7f, 0x01, // lea rdi, [rdi + 1]
        0x7c, 0xf4, // jl loop
        0xc3, // ret
    ];
    let memory = map(BYTES, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC, 0);
    put(memory, &function);
    let counter = map(4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_32BIT);
    let part = Part { address: memory as u64, bytes: function.to_vec(), length: function.len() };
    let code = FunctionCode::decode(vec![part], IndirectJumps::default()).unwrap();
    let place = CounterPlace {
        region: region(&code, &code.parts[0], 2..4, false).unwrap(),
        before: 0,
        keeps_flags: true,
    };
    let copy_at = memory as u64 + COPY_AT as u64;
    let copy = assemble(&code, &[(&place, counter as usize as u32)], copy_at).unwrap();
    assert!(copy.code.len() < bytes_max(&code, 1));
    // SAFETY: the copy is such a function, which reads and writes no memory but the counter.
    let call = |rounds: i32| unsafe {
        let copied: extern "C" fn(i32, i32) -> u64 = std::mem::transmute(memory.add(COPY_AT));
        let result = copied(0, rounds);
        (result, counter.cast::<u64>().read())
    };
    // SAFETY: within the mapping.
    put(unsafe { memory.add(COPY_AT) }, &copy.code);
    assert_eq!(call(10), (11, 0), "switched off, it leads back at once");
    let [Gate { enter, leave }] = &copy.gates[..] else { panic!() };
    put(leave.address as *mut u8, &leave.from);
    assert_eq!(call(10), (11, 11));
    assert_eq!(call(-1), (1, 12));
    // Each instruction of the function is where its span says.
    for Span { start, end, .. } in &copy.spans {
        assert!(start < end && (copy_at..copy_at + copy.code.len() as u64).contains(&start.0));
    }
    let moved: Vec<u64> = copy.spans.iter().filter_map(|span| Some(span.stands_for?.0)).collect();
    assert_eq!(moved, code.parts[0].instructions.iter().map(|i| i.ip()).collect::<Vec<_>>());
    assert_eq!(
        enter.copies.iter().map(|(original, _)| *original - memory as u64).collect::<Vec<_>>(),
        [4, 8]
    );
}

#[test]
fn calls_are_executed_in_the_function_itself() {
    // call +0x100; test eax, eax; ret
    let function = [0xe8, 0, 1, 0, 0, 0x85, 0xc0, 0xc3];
    let part = Part { address: 0x1000, bytes: function.to_vec(), length: function.len() };
    let code = FunctionCode::decode(vec![part], IndirectJumps::default()).unwrap();
    let copy = assemble(&code, &[], 0x2000).unwrap();
    let first = Decoder::with_ip(64, &copy.code, 0x2000, DecoderOptions::NONE).decode();
    assert_eq!((first.is_jmp_short_or_near(), first.near_branch_target()), (true, 0x1000));
}
