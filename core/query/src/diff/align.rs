//! Instructions of two builds of one procedure, laid beside each other.
//!
//! Enters: two lists of instructions. Leaves: pairs. Addresses say nothing across a rebuild, so instructions are compared
//! by their text without them (patience diff: B. Cohen; as `git diff --patience`); where neither side has that text, by
//! their mnemonics, since a rebuild renames registers. Complexity: O((n + m) d), d instructions being unlike.

use dwell_image::{Flow, Instruction};
use similar::{Algorithm, DiffOp, capture_diff_slices};

/// An instruction of A (its index), of B, or of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Index in A.
    pub a: Option<usize>,
    /// Index in B.
    pub b: Option<usize>,
    /// Whether their texts agree but for addresses.
    pub same: bool,
}

/// Every instruction of both sides once, in both sides' order.
pub fn align(a: &[Instruction], b: &[Instruction]) -> Vec<Pair> {
    let [texts_a, texts_b] = [a, b].map(|side| side.iter().map(text).collect::<Vec<_>>());
    let mut pairs = Vec::with_capacity(a.len().max(b.len()));
    for op in capture_diff_slices(Algorithm::Patience, &texts_a, &texts_b) {
        match op {
            DiffOp::Equal { old_index, new_index, len } => {
                pairs.extend((0..len).map(|i| both(old_index + i, new_index + i, true)));
            }
            DiffOp::Replace { old_index, old_len, new_index, new_len } => {
                let (from_a, from_b) = (&a[old_index..][..old_len], &b[new_index..][..new_len]);
                pairs.extend(by_mnemonic(from_a, from_b).into_iter().map(|p| Pair {
                    a: p.a.map(|i| old_index + i),
                    b: p.b.map(|i| new_index + i),
                    same: false,
                }));
            }
            DiffOp::Delete { old_index, old_len, .. } => {
                pairs.extend((0..old_len).map(|i| removed(old_index + i)))
            }
            DiffOp::Insert { new_index, new_len, .. } => {
                pairs.extend((0..new_len).map(|i| added(new_index + i)))
            }
        }
    }
    debug_assert_eq!(verify(&pairs, a.len(), b.len()), Ok(()));
    pairs
}

fn by_mnemonic(a: &[Instruction], b: &[Instruction]) -> Vec<Pair> {
    let [of_a, of_b] = [a, b].map(|side| side.iter().map(|i| &*i.mnemonic).collect::<Vec<_>>());
    let mut pairs = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, &of_a, &of_b) {
        match op {
            DiffOp::Equal { old_index, new_index, len } => {
                pairs.extend((0..len).map(|i| both(old_index + i, new_index + i, false)));
            }
            _ => {
                pairs.extend(op.old_range().map(removed));
                pairs.extend(op.new_range().map(added));
            }
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

/// Mnemonic and operands without what a rebuild moves: targets of control flow and absolute addresses.
fn text(instruction: &Instruction) -> String {
    match instruction.flow {
        Flow::Branch { .. } | Flow::Jump { .. } | Flow::Call { target: Some(_) } => {
            instruction.mnemonic.to_string()
        }
        _ if instruction.memory().any(|m| m.address.is_some()) => without_numbers(&instruction.text),
        _ => instruction.text.to_string(),
    }
}

/// Every hexadecimal literal blotted out.
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

/// Checks that each side's instructions are all there once, in order.
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
        // add rax, rbx; mov rcx, [rip+0x10]; dec rdi; jne −12; ret, against the same with a nop, another register and
        // another distance.
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
