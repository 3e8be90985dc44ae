//! Recognizes a call by the bytes before the address that it returns to.
//!
//! Enters: bytes of x86-64 code that end at an address. Leaves: whether a call may end there. Never here: decoding from a known
//! start; code of another processor.

/// Number of bytes that a call has at most: a prefix, the opcode, ModRM, SIB and four bytes of displacement.
pub const CODE_BEFORE_BYTES: usize = 8;

/// Returns whether the last bytes may be a call of x86-64: `e8` and four bytes, or `ff` with a ModRM byte whose register field
/// is 2 and as many further bytes as it demands.
pub fn ends_with_call(bytes: &[u8]) -> bool {
    let from_end = |back: usize| bytes.len().checked_sub(back).map(|at| bytes[at]);
    let indirect = |length: usize| {
        let (Some(0xff), Some(modrm)) = (from_end(length), from_end(length - 1)) else { return false };
        let (mode, register, base) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
        let sib = usize::from(mode != 3 && base == 4);
        let displacement = match mode {
            0 if base == 5 => 4,
            0 if sib == 1 && from_end(length - 2).is_some_and(|sib| sib & 7 == 5) => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        register == 2 && length == 2 + sib + displacement
    };
    from_end(5) == Some(0xe8) || (2..=7).any(indirect)
}

/// Returns whether the last bytes are the instruction `syscall`.
pub fn ends_with_system_call(bytes: &[u8]) -> bool {
    bytes.ends_with(&[0x0f, 0x05])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_recognized_from_their_end() {
        let calls: [&[u8]; 7] = [
            &[0xe8, 1, 2, 3, 4],
            &[0xff, 0xd0],                         // call rax
            &[0x41, 0xff, 0xd2],                   // call r10
            &[0xff, 0x15, 1, 2, 3, 4],             // call [rip + …]
            &[0xff, 0x50, 0x18],                   // call [rax + 24]
            &[0xff, 0x14, 0xc5, 1, 2, 3, 4],       // call [rax * 8 + …]
            &[0x42, 0xff, 0x94, 0x30, 1, 2, 3, 4], // call [rax + r14 + …]
        ];
        for call in calls {
            let mut code = vec![0x90; 8];
            code.extend(call);
            assert!(ends_with_call(&code[code.len() - 8..]), "{call:x?}");
        }
        for code in
            [&[0x90_u8; 8][..], &[0, 0, 0, 0, 0, 0, 0xff, 0xe0], &[0, 0, 0, 0, 0xff, 0x50, 0x18, 0x90]]
        {
            assert!(!ends_with_call(code), "{code:x?}");
        }
    }
}
