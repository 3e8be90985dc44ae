//! Aligns the instructions of two builds of one procedure.
//!
//! Input: two lists of instructions. Output: pairs. Addresses mean nothing across a rebuild, so instructions are compared by
//! their text without addresses ([`crate::differences`]). Where the texts differ on both sides, they are compared by their
//! mnemonics, since a rebuild may use other registers.

use dwell_image::{Flow, Instruction};

use crate::differences::{Stretch, stretches};

/// An instruction of A, of B, or a pair of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Index of the instruction in A.
    pub a: Option<usize>,
    /// Index of the instruction in B.
    pub b: Option<usize>,
    /// Whether the texts are equal, ignoring addresses.
    pub same: bool,
}

/// Aligns two lists of instructions. Each instruction appears once, in the order of its side.
pub fn align(a: &[Instruction], b: &[Instruction]) -> Vec<Pair> {
    let [texts_a, texts_b] = [a, b].map(|side| side.iter().map(text).collect::<Vec<_>>());
    let mut pairs = Vec::with_capacity(a.len().max(b.len()));
    for stretch in stretches(texts_a.iter(), texts_b.iter()) {
        match stretch {
            Stretch::Same { a, b } => pairs.extend(a.zip(b).map(|(a, b)| both(a, b, true))),
            Stretch::Differs { a: of_a, b: of_b } => {
                let unlike = by_mnemonic(&a[of_a.clone()], &b[of_b.clone()]);
                pairs.extend(unlike.into_iter().map(|p| Pair {
                    a: p.a.map(|i| of_a.start + i),
                    b: p.b.map(|i| of_b.start + i),
                    same: false,
                }));
            }
        }
    }
    debug_assert_eq!(verify(&pairs, a.len(), b.len()), Ok(()));
    pairs
}

fn by_mnemonic(a: &[Instruction], b: &[Instruction]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for stretch in stretches(a.iter().map(|i| &*i.mnemonic), b.iter().map(|i| &*i.mnemonic)) {
        match stretch {
            Stretch::Same { a, b } => pairs.extend(a.zip(b).map(|(a, b)| both(a, b, false))),
            Stretch::Differs { a, b } => pairs.extend(a.map(removed).chain(b.map(added))),
        }
    }
    pairs
}

fn both(a: usize, b: usize, same: bool) -> Pair {
    Pair { a: Some(a), b: Some(b), same }
}

fn removed(a: usize) -> Pair {
    Pair { a: Some(a), b: None, same: false }
}

fn added(b: usize) -> Pair {
    Pair { a: None, b: Some(b), same: false }
}

/// Returns mnemonic and operands without what a rebuild changes: targets of control flow and absolute addresses.
fn text(instruction: &Instruction) -> String {
    match instruction.flow {
        Flow::Branch { .. } | Flow::Jump { .. } | Flow::Call { target: Some(_) } => {
            instruction.mnemonic.to_string()
        }
        _ if instruction.memory().any(|m| m.address.is_some()) => without_numbers(&instruction.text),
        _ => instruction.text.to_string(),
    }
}

/// Replaces every hexadecimal number by the same placeholder.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("0x") {
        out.push_str(&rest[..at]);
        out.push('@');
        let digits = rest[at + 2..].find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len() - at - 2);
        rest = &rest[at + 2 + digits..];
    }
    out + rest
}

/// Checks that the pairs contain all instructions of each side once, in order.
fn verify(pairs: &[Pair], a: usize, b: usize) -> Result<(), String> {
    let is_whole = |indices: Vec<usize>, len| indices.into_iter().eq(0..len);
    let of_a = pairs.iter().filter_map(|p| p.a).collect();
    let of_b = pairs.iter().filter_map(|p| p.b).collect();
    match is_whole(of_a, a) && is_whole(of_b, b) {
        true => Ok(()),
        false => Err(format!("{a} and {b} instructions are not what is paired: {pairs:?}")),
    }
}

#[cfg(test)]
mod tests {
    use dwell_image::{Arch, ImageAddress, instructions};
    use expect_test::{Expect, expect};

    use super::align;

    fn check(a: &[u8], b: &[u8], expected: Expect) {
        let [a, b] = [(a, 0x1000), (b, 0x5000)]
            .map(|(bytes, start)| instructions(Arch::X86_64, bytes, ImageAddress(start)));
        let text = |side: &[dwell_image::Instruction], i: Option<usize>| {
            i.map_or(String::new(), |i| side[i].text.to_string())
        };
        let lines = align(&a, &b)
            .into_iter()
            .map(|p| format!("{} {} | {}", if p.same { '=' } else { '!' }, text(&a, p.a), text(&b, p.b)));
        expected.assert_eq(&lines.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn a_rebuild_moves_renames_and_inserts() {
        // The code is `add rax, rbx; mov rcx, [rip+0x10]; dec rdi; jne −12; ret`. The other version has an additional
        // nop, another register and another distance.
        check(
            &[0x48, 1, 0xd8, 0x48, 0x8b, 0x0d, 16, 0, 0, 0, 0x48, 0xff, 0xcf, 0x75, 0xf1, 0xc3],
            &[0x48, 1, 0xd8, 0x90, 0x48, 0x8b, 0x0d, 32, 0, 0, 0, 0x48, 0xff, 0xce, 0x75, 0xf0, 0xc3],
            expect![[r#"
                = add rax, rbx | add rax, rbx
                !  | nop
                = mov rcx, qword ptr [rip + 0x10] | mov rcx, qword ptr [rip + 0x20]
                ! dec rdi | dec rsi
                = jne 0x1000 | jne 0x5000
                = ret | ret"#]],
        );
    }
}
