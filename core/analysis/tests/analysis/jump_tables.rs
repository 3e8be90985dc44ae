//! Tables of switches.

use dwell_analysis::recover_jump_targets;
use dwell_image::{Arch, Flow, Image, ImageAddress};
use expect_test::{Expect, expect};

use crate::asm::x86;

/// The table lies at 0x5000.
fn check(text: &str, table: &[u8], expected: Expect) {
    let read = |address: ImageAddress, bytes: &mut [u8]| {
        let Some(from) = address.0.checked_sub(0x5000).map(|f| f as usize) else { return false };
        let Some(found) = table.get(from..from + bytes.len()) else { return false };
        bytes.copy_from_slice(found);
        true
    };
    let targets = recover_jump_targets(Arch::X86_64, &x86(text), &read);
    let text: Vec<String> = targets
        .iter()
        .map(|(jump, to)| {
            format!("{jump}: {}", to.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(" "))
        })
        .collect();
    expected.assert_eq(&text.join("\n"));
}

fn relative(targets: &[i64]) -> Vec<u8> {
    targets.iter().flat_map(|t| ((t - 0x5000) as i32).to_le_bytes()).collect()
}

fn absolute(targets: &[u64]) -> Vec<u8> {
    targets.iter().flat_map(|t| t.to_le_bytes()).collect()
}

const GCC: &str = "cmp edi, 3
    ja default
    mov edi, edi
    lea rdx, [rip + 0x5000]
    movsxd rax, [rdx + rdi*4]
    add rax, rdx
    notrack jmp rax
    mov eax, 1
    ret
    mov eax, 2
    ret
    default:
    ret";

#[test]
fn gcc_position_independent() {
    check(GCC, &relative(&[0x101c, 0x1024, 0x101c, 0x102c, 0x7fff]), expect!["6: 101c 1024 102c"]);
}

#[test]
fn an_entry_may_lead_to_a_cold_part() {
    check(GCC, &relative(&[0x101c, 0x1024, 0x9000, 0x102c]), expect!["6: 101c 1024 102c 9000"]);
}

#[test]
fn an_entry_inside_an_instruction_is_no_table() {
    check(GCC, &relative(&[0x101c, 0x1025, 0x101c, 0x102c]), expect![[""]]);
}

#[test]
fn a_short_table_is_no_table() {
    check(GCC, &relative(&[0x101c, 0x1024]), expect![[""]]);
}

/// clang keeps the table's address in a register outside the loop; the sum goes to the base.
#[test]
fn clang_hoists_the_table() {
    check(
        "lea r14, [rip + 0x5000]
         loop:
         movzx eax, [rbx]
         cmp eax, 2
         ja loop
         movsxd rcx, [r14 + rax*4]
         add rcx, r14
         jmp rcx
         inc rbx
         jmp loop
         ret",
        &relative(&[0x1020, 0x1028, 0x1020]),
        expect!["6: 1020 1028"],
    );
}

#[test]
fn absolute_entries_without_a_guard_end_where_they_turn_implausible() {
    check(
        "jmp [rax*8 + 0x5000]
         nop
         ret
         nop
         ret",
        &absolute(&[0x1004, 0x100c, 0x1004, 0x123456, 0x1004]),
        expect!["0: 1004 100c"],
    );
}

#[test]
fn absolute_entries_through_a_register() {
    check(
        "and eax, 1
         lea rdx, [rip + 0x5000]
         mov rax, [rdx + rax*8]
         jmp rax
         nop
         ret",
        &absolute(&[0x1010, 0x1014, 0x1000]),
        expect!["3: 1010 1014"],
    );
}

/// As in glibc's printf, entries are relative to a label instead of the table.
#[test]
fn entries_relative_to_a_label() {
    check(
        "cmp eax, 1
         ja default
         lea rsi, [rip + 0x5000]
         movsxd rax, [rsi + rax*4]
         lea rcx, [rip + 0x1020]
         add rax, rcx
         jmp rax
         nop
         nop
         default:
         ret",
        &[0i32, 4].map(i32::to_le_bytes).concat(),
        expect!["6: 1020 1024"],
    );
}

/// The index came as an argument; that its register holds an address elsewhere says nothing about it.
#[test]
fn an_index_is_no_address() {
    check(
        "cmp edi, 1
         ja default
         lea rsi, [rip + 0x5000]
         movsxd rax, [rsi + rdi*4]
         add rax, rsi
         jmp rax
         mov edi, 0x6000
         ret
         default:
         ret",
        &relative(&[0x1018, 0x101c]),
        expect!["5: 1018 101c"],
    );
}

/// The address is spilled before a loop.
#[test]
fn a_spilled_table() {
    check(
        "lea rax, [rip + 0x5000]
         mov [rsp + 8], rax
         loop:
         cmp edi, 1
         ja default
         mov rdx, [rsp + 8]
         movsxd rax, [rdx + rdi*4]
         add rax, rdx
         jmp rax
         inc rbx
         jmp loop
         default:
         ret",
        &relative(&[0x1020, 0x1028]),
        expect!["7: 1020 1028"],
    );
}

/// gcc -O0 multiplies the index apart and widens the entry apart.
#[test]
fn gcc_unoptimized() {
    check(
        "cmp eax, 1
         ja default
         mov eax, eax
         lea rdx, [rax*4 + 0]
         lea rax, [rip + 0x5000]
         mov eax, [rdx + rax]
         cdqe
         lea rdx, [rip + 0x5000]
         add rax, rdx
         jmp rax
         nop
         ret
         default:
         ret",
        &relative(&[0x1028, 0x102c]),
        expect!["9: 1028 102c"],
    );
}

/// As in glibc's printf, there are two look-ups and one jump, and a place that always jumps to the same label.
#[test]
fn shared_jumps() {
    check(
        "lea rsi, [rip + 0x5000]
         cmp edi, 1
         ja other
         movsxd rax, [rsi + rdi*4]
         add rax, rsi
         jmp shared
         other:
         and ecx, 1
         movsxd rax, [rsi + rcx*4]
         add rax, rsi
         shared:
         jmp rax
         nop
         lea rax, [rip + 0x1034]
         jmp rax
         ret",
        &relative(&[0x1028, 0x102c]),
        expect!["9: 1028 102c\n12: 1034"],
    );
}

/// The targets' number of each indirect jump in `test-fixtures/images/src/switch.c`, by procedure.
fn check_fixture(name: &str, expected: Expect) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../test-fixtures/images/").to_owned() + name;
    let image = Image::open(path).expect("a fixture");
    let mut text = Vec::new();
    for procedure in image.procedures().iter() {
        let code = image.instructions(procedure.address, procedure.size_bytes);
        let targets = recover_jump_targets(image.arch(), &code, &|a, bytes| image.read(a, bytes));
        let jumps = (0..code.len()).filter(|&i| code[i].flow == Flow::IndirectJump);
        let numbers: Vec<String> =
            jumps.map(|i| targets.get(&i).map_or("?".into(), |t| t.len().to_string())).collect();
        if !numbers.is_empty() && !procedure.name().contains("plt") {
            text.push(format!("{} {}", procedure.name(), numbers.join(" ")));
        }
    }
    text.sort();
    expected.assert_eq(&text.join("\n"));
}

#[test]
fn switches_of_x86_64() {
    check_fixture(
        "switch-x86_64-gcc.so",
        expect![[r#"
        0x1000 ?
        dense 8
        labels 4 4 4 4
        loop 8
        masked 8
        shifted 8
        wide 21"#]],
    );
    check_fixture(
        "switch-x86_64-gcc.elf",
        expect![[r#"
        dense 8
        labels 4 4 4 4
        loop 8
        masked 8
        shifted 8
        wide 21"#]],
    );
    check_fixture(
        "switch-x86_64-clang.so",
        expect![[r#"
        dense 8
        labels 4 4 4 4
        loop 8
        masked 8
        shifted 8
        wide 21"#]],
    );
    check_fixture(
        "switch-x86_64-clang.elf",
        expect![[r#"
        dense 8
        labels 4 4 4 4
        loop 8
        masked 8
        shifted 8
        wide 21"#]],
    );
}

#[test]
fn switches_of_aarch64() {
    check_fixture(
        "switch-aarch64-gcc.so",
        expect![[r#"
        labels 4 4 4 4
        wide 21"#]],
    );
    check_fixture(
        "switch-aarch64-gcc.elf",
        expect![[r#"
        labels 4 4 4 4
        wide 21"#]],
    );
    check_fixture(
        "switch-aarch64-clang.so",
        expect![[r#"
        dense 8
        labels 4 4 4 4
        loop 8
        masked 8
        shifted 8
        wide 21"#]],
    );
    check_fixture(
        "switch-aarch64-clang.elf",
        expect![[r#"
        dense 8
        labels 4 4 4 4
        loop 8
        masked 8
        shifted 8
        wide 21"#]],
    );
}

#[test]
fn switches_of_riscv64() {
    check_fixture(
        "switch-riscv64-gcc.so",
        expect![[r#"
        dense 8
        labels 4 4 4 4
        loop 8
        masked 8
        shifted 8
        wide 21"#]],
    );
    check_fixture(
        "switch-riscv64-gcc.elf",
        expect![[r#"
        dense 8
        labels 4 4 4 4
        loop 8
        masked 8
        shifted 8
        wide 21"#]],
    );
    check_fixture(
        "switch-riscv64-clang.so",
        expect![[r#"
        dense 8
        labels 4 4 4 4
        loop 8
        masked 8
        shifted 8
        wide 21"#]],
    );
    check_fixture(
        "switch-riscv64-clang.elf",
        expect![[r#"
        dense 8
        labels 4 4 4 4
        loop 8
        masked 8
        shifted 8
        wide 21"#]],
    );
}
