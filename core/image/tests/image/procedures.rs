//! Procedures of every kind of file.

use std::fmt::Write;

use dwell_image::{Arch, Image, ImageAddress, ImageOffset, Instruction, ProcedureOffsets};
use expect_test::{Expect, expect};

use crate::fixtures;

fn check(fixture: &str, expected: Expect) {
    let image = fixtures::image(fixture);
    let mut text = String::new();
    for p in image.procedures().iter() {
        write!(text, "{} +{} {}", p.address, p.size_bytes, p.demangled()).unwrap();
        p.aliases().iter().for_each(|a| write!(text, " = {a}").unwrap());
        text.push('\n');
    }
    expected.assert_eq(&text);
}

#[test]
fn executable() {
    check(
        "c-dwarf5.elf",
        expect![[r#"
        1000 +23 _init
        1020 +16 0x1020
        1030 +16 rand@plt
        1040 +8 __cxa_finalize@plt
        1050 +8 choose.cold
        1060 +140 main
        10f0 +34 _start
        1120 +48 deregister_tm_clones
        1150 +64 register_tm_clones
        1190 +64 __do_global_dtors_aux
        11d0 +16 frame_dummy
        11e0 +79 sum_squares.constprop.0
        1230 +142 choose = choose_alias
        12c0 +9 _fini
    "#]],
    );
}

#[test]
fn position_dependent() {
    check(
        "c-dwarf4.elf",
        expect![[r#"
        401000 +23 _init
        401020 +16 0x401020
        401030 +16 rand@plt
        401040 +8 choose.cold
        401050 +140 main
        4010e0 +34 _start
        401110 +1 _dl_relocate_static_pie
        401120 +48 deregister_tm_clones
        401150 +64 register_tm_clones
        401190 +48 __do_global_dtors_aux
        4011c0 +16 frame_dummy
        4011d0 +79 sum_squares.constprop.0
        401220 +142 choose = choose_alias
        4012b0 +9 _fini
    "#]],
    );
}

#[test]
fn shared_library() {
    check(
        "c-shared.so",
        expect![[r#"
        1000 +23 _init
        1020 +16 0x1020
        1030 +16 choose@plt
        1040 +16 rand@plt
        1050 +8 __cxa_finalize@plt
        1060 +8 choose.cold
        1070 +140 main
        1100 +48 deregister_tm_clones
        1130 +64 register_tm_clones
        1170 +64 __do_global_dtors_aux
        11b0 +16 frame_dummy
        11c0 +79 sum_squares.constprop.0
        1210 +142 choose = choose_alias
        12a0 +9 _fini
    "#]],
    );
}

#[test]
fn static_pie() {
    check(
        "c-static-pie.elf",
        expect![[r#"
        1000 +62 fold
        1040 +73 scale
        1090 +35 count
        10c0 +90 _start
    "#]],
    );
}

#[test]
fn stripped_by_unwind_entries() {
    check(
        "c-stripped.elf",
        expect![[r#"
        1020 +16 0x1020
        1030 +16 rand@plt
        1040 +8 __cxa_finalize@plt
        1050 +8 0x1050
        1060 +140 0x1060
        10f0 +34 0x10f0
        11e0 +79 0x11e0
        1230 +142 0x1230
    "#]],
    );
}

#[test]
fn cpp() {
    check(
        "cpp-tree.so",
        expect![[r#"
        1000 +16 0x1000
        1010 +16 _ZN5trees4findIlEEPKNS_4NodeIT_EES5_RKS2_@plt
        1020 +63 lookup
        1060 +51 trees::find<long>(trees::Node<long> const*, long const&)
    "#]],
    );
}

#[test]
fn rust() {
    check(
        "rust-words.so",
        expect![[r#"
        1330 +151 words::words::Counter::add
        13d0 +39 count_words
    "#]],
    );
}

#[test]
fn relocatable_module() {
    check(
        "c-module.o",
        expect![[r#"
        0 +62 fold
        40 +73 scale
        90 +35 count
        c0 +90 _start
    "#]],
    );
}

#[test]
fn aarch64() {
    check(
        "aarch64-shared.so",
        expect![[r#"
        4f0 +24 _init
        530 +16 __cxa_finalize@plt
        540 +16 choose@plt
        550 +16 rand@plt
        560 +16 __gmon_start__@plt
        570 +100 main
        5d4 +20 call_weak_fn
        5f0 +48 deregister_tm_clones
        620 +60 register_tm_clones
        660 +72 __do_global_dtors_aux
        6b0 +4 frame_dummy
        6c0 +80 sum_squares.constprop.0
        710 +152 choose = choose_alias
        7a8 +20 _fini
    "#]],
    );
}

#[test]
fn riscv64() {
    check(
        "riscv64-shared.so",
        expect![[r#"
        490 +16 rand@plt
        4a0 +16 choose@plt
        4b0 +50 main
        4e2 +34 deregister_tm_clones
        504 +44 register_tm_clones
        530 +58 __do_global_dtors_aux
        56a +2 frame_dummy
        56c +58 sum_squares.constprop.0
        5a6 +86 choose = choose_alias
    "#]],
    );
}

#[test]
fn offsets_and_addresses_lead_to_each_other() {
    for name in fixtures::binaries().iter().filter(|n| !n.ends_with(".debug")) {
        let image = fixtures::image(name);
        for procedure in image.procedures().iter() {
            let offset = image.offset_of(procedure.address).expect("code is in the file");
            assert_eq!(image.address_of(offset), Some(procedure.address), "{name}");
            let mut byte = [0];
            assert!(image.read(procedure.address, &mut byte));
            if !name.ends_with(".o") {
                assert_eq!(fixtures::bytes(name)[offset.0 as usize], byte[0], "{name}");
            }
            let last = procedure.address.offset(procedure.size_bytes - 1);
            assert_eq!(image.procedure_at(last).map(|p| p.address), Some(procedure.address), "{name}");
        }
        assert_eq!(image.address_of(ImageOffset(u64::MAX)), None);
        assert_eq!(image.offset_of(ImageAddress(u64::MAX)), None);
        assert!(!image.read(ImageAddress(u64::MAX), &mut [0; 4]));
    }
}

#[test]
fn offsets_lead_to_the_instructions_that_begin_there() {
    for name in fixtures::binaries().iter().filter(|n| !n.ends_with(".debug")) {
        let image = fixtures::image(name);
        for procedure in image.procedures().iter() {
            let instructions = image.instructions(procedure.address, procedure.size_bytes);
            let offsets = ProcedureOffsets::new(&image, &instructions);
            if instructions.len() < 2 {
                assert_eq!(offsets.index_of(*offsets.range().start()), None, "{name}");
                continue;
            }
            let offset = |i: &Instruction| image.offset_of(i.address).expect("code is in the file");
            let ends = [&instructions[0], &instructions[instructions.len() - 1]].map(offset);
            assert_eq!(offsets.range(), ends[0]..=ends[1], "{name}");
            for (at, instruction) in instructions.iter().enumerate() {
                let start = offset(instruction);
                assert_eq!(offsets.index_of(start), Some(at), "{name}");
                let inside = (instruction.length > 1).then(|| offsets.index_of(ImageOffset(start.0 + 1)));
                assert_eq!(inside.flatten(), None, "{name}");
            }
            let before = ImageOffset(ends[0].0.wrapping_sub(1));
            assert_eq!([before, ImageOffset(u64::MAX)].map(|o| offsets.index_of(o)), [None, None], "{name}");
        }
    }
}

#[test]
fn headers_tell_architecture_and_build_id() {
    let arch = |name| fixtures::image(name).arch();
    assert_eq!(arch("c-dwarf5.elf"), Arch::X86_64);
    assert_eq!(arch("aarch64-bare.elf"), Arch::Aarch64);
    assert_eq!(arch("riscv64-bare.elf"), Arch::Riscv64);
    let id = |name: &str| dwell_image::build_id_of_file(fixtures::folder().join(name));
    assert_eq!(id("c-dwarf5.elf").map(|i| i.bytes().len()), Some(20));
    assert_eq!(id("c-dwarf5.elf"), id("c-stripped.elf"));
    assert_eq!(id("c-linked.elf"), None);
    assert_eq!(id("build.sh"), None);
}

#[test]
fn files_that_are_not_images_are_reported() {
    let error = |bytes: &[u8]| Image::parse(bytes).map(|_| ()).unwrap_err().to_string();
    let mut elf32 = fixtures::bytes("c-dwarf5.elf");
    elf32[4] = 1;
    let mut sparc = fixtures::bytes("c-dwarf5.elf");
    sparc[18] = 43;
    let found = [
        error(b""),
        error(b"#!/bin/sh\n"),
        error(&elf32),
        error(&sparc),
        error(&fixtures::bytes("c-dwarf5.elf")[..40]),
        error(&fixtures::bytes("c-dwarf5.elf")[..64]),
    ];
    expect![[r#"
        not an ELF file: shorter than an ELF header
        not an ELF file: wrong magic number
        damaged ELF file: neither program headers nor section headers can be read
        unsupported ELF file: machine number 43
        not an ELF file: cut off in its header
        damaged ELF file: neither program headers nor section headers can be read"#]]
    .assert_eq(&found.join("\n"));
    let missing = Image::open("/no/such/file").map(|_| ()).unwrap_err().to_string();
    assert_eq!(missing, "cannot read /no/such/file: No such file or directory (os error 2)");
    assert!(Image::open("/").is_err());
}
