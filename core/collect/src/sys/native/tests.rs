//! Tests single instructions: what they leave in registers and memory.

use iced_x86::{Decoder, DecoderOptions};

use super::*;

fn decoded(code: &[u8]) -> iced_x86::Instruction {
    Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode()
}

/// Executes one instruction.
fn executed(code: &[u8], registers: &mut Registers, operand: &mut Operand) -> Result<(), Fault> {
    let mut processor = Processor::new().unwrap();
    let entry = processor.prepare(&decoded(code)).unwrap().expect("it can be executed");
    processor.execute(entry, registers, operand)
}

fn zero() -> (Box<Registers>, Operand) {
    (Box::new(Registers::new()), Operand([0; 64]))
}

#[test]
fn results_and_flags_equal_those_of_the_processor() {
    let (mut registers, mut operand) = zero();
    registers.general[0] = u64::MAX;
    registers.general[3] = 1;
    executed(&[0x48, 0x01, 0xd8], &mut registers, &mut operand).unwrap(); // add rax, rbx
    assert_eq!((registers.general[0], registers.flags & 0x41), (0, 0x41), "zero and carry");
    executed(&[0x48, 0x83, 0xd0, 0x05], &mut registers, &mut operand).unwrap(); // adc rax, 5
    assert_eq!(registers.general[0], 6);
}

#[test]
fn every_memory_access_goes_to_the_operand() {
    let (mut registers, mut operand) = zero();
    operand.0[..8].copy_from_slice(&40_u64.to_le_bytes());
    registers.general[1] = 2;
    // add [rsp + 8*rax + 0x1000], rcx; mov ah, fs:[rdi]; movdqu xmm9, [rip + 5]
    executed(&[0x48, 0x01, 0x8c, 0xc4, 0, 0x10, 0, 0], &mut registers, &mut operand).unwrap();
    assert_eq!(operand.0[..8], 42_u64.to_le_bytes());
    executed(&[0x64, 0x8a, 0x27], &mut registers, &mut operand).unwrap();
    assert_eq!(registers.general[0], 42 << 8);
    executed(&[0xf3, 0x44, 0x0f, 0x6f, 0x0d, 5, 0, 0, 0], &mut registers, &mut operand).unwrap();
    assert_eq!(registers.vectors[9][0], 42);
}

#[test]
fn the_stack_pointer_is_an_ordinary_operand() {
    let (mut registers, mut operand) = zero();
    registers.general[4] = 0x7fff_0000;
    executed(&[0x48, 0x83, 0xec, 0x28], &mut registers, &mut operand).unwrap(); // sub rsp, 40
    executed(&[0x48, 0x89, 0xe5], &mut registers, &mut operand).unwrap(); // mov rbp, rsp
    assert_eq!([registers.general[4], registers.general[5]], [0x7ffe_ffd8; 2]);
    executed(&[0x40, 0x80, 0xc4, 0x01], &mut registers, &mut operand).unwrap(); // add spl, 1
    assert_eq!(registers.general[4], 0x7ffe_ffd9);
}

#[test]
fn vectors_keep_their_upper_parts() {
    let (mut registers, mut operand) = zero();
    registers.vectors[1] = [7; 64];
    registers.vectors[2] = [1; 64];
    executed(&[0x66, 0x0f, 0xfc, 0xca], &mut registers, &mut operand).unwrap(); // paddb xmm1, xmm2
    let wide = if is_x86_feature_detected!("avx512bw") { 64 } else { 16 };
    let last = if wide > 16 { 7 } else { 8 };
    assert_eq!((&registers.vectors[1][..16], registers.vectors[1][wide - 1]), (&[8; 16][..], last));
    executed(&[0x66, 0x0f, 0xd7, 0xc1], &mut registers, &mut operand).unwrap(); // pmovmskb eax, xmm1
    assert_eq!(registers.general[0], 0);
}

#[test]
fn x87_has_a_stack_of_its_own() {
    let (mut registers, mut operand) = zero();
    executed(&[0xd9, 0xe8], &mut registers, &mut operand).unwrap(); // fld1
    executed(&[0xd8, 0xc0], &mut registers, &mut operand).unwrap(); // fadd st, st(0)
    executed(&[0xdd, 0x1e], &mut registers, &mut operand).unwrap(); // fstp qword [rsi]
    assert_eq!(f64::from_le_bytes(operand.0[..8].try_into().unwrap()), 2.0);
}

#[test]
fn instructions_that_must_not_run_elsewhere_are_refused() {
    let mut processor = Processor::new().unwrap();
    let refused: [&[u8]; 10] = [
        &[0x0f, 0x05],                   // syscall
        &[0xcc],                         // int3
        &[0xf4],                         // hlt
        &[0x50],                         // push rax
        &[0xf3, 0xa4],                   // rep movsb
        &[0xf3, 0x48, 0x0f, 0xae, 0xd0], // wrfsbase rax
        &[0x0f, 0xae, 0x27],             // xsave [rdi]
        &[0x8e, 0xd8],                   // mov ds, eax
        &[0x48, 0x0f, 0xab, 0x07],       // bts [rdi], rax
        &[0xeb, 0x00],                   // jmp
    ];
    for code in refused {
        assert_eq!(processor.prepare(&decoded(code)), Ok(None), "{code:x?}");
    }
}
