//! Stubs of the procedure linkage table. A stub is named `<procedure>@plt` after the slot of the global offset table that it
//! jumps through. Stubs are recognized by their instructions, not by position, so that the layout of every linker is
//! supported.

use rustc_hash::FxHashMap;

use crate::Arch;
use crate::elf::Section;
use crate::elf_file::ElfFile;
use crate::symbols::{le32, le64};

const RELOCATION_BYTES: usize = 24;
const STUB_BYTES: u64 = 16;

/// Code that jumps through a slot of the global offset table.
pub(crate) struct Stub {
    pub(crate) address: u64,
    /// Size in bytes; 0 if unknown.
    pub(crate) size_bytes: u64,
    slot: u64,
}

/// Returns the stubs of a file.
pub(crate) fn stubs(file: &ElfFile) -> Vec<Stub> {
    let tables = file.elf.sections.iter().filter(|s| s.executable && s.name.starts_with(".plt"));
    tables.flat_map(|table| jumps(file.elf.arch, table, &file.section(table))).collect()
}

/// Returns the names of stubs by address, from the relocations that fill in their slots. `symbol_at` returns the name of the
/// symbol at an address.
pub(crate) fn names(
    file: &ElfFile,
    stubs: &[Stub],
    symbol_at: &dyn Fn(u64) -> Option<String>,
) -> FxHashMap<u64, Box<str>> {
    let mut slots: FxHashMap<u64, Option<String>> = stubs.iter().map(|stub| (stub.slot, None)).collect();
    if stubs.is_empty() {
        return FxHashMap::default();
    }
    for section in file.elf.sections.iter().filter(|s| matches!(&*s.name, ".rela.plt" | ".rela.dyn")) {
        for relocation in file.section(section).chunks_exact(RELOCATION_BYTES) {
            let name = le64(relocation, 0).and_then(|slot| slots.get_mut(&slot));
            let Some(name) = name.filter(|name| name.is_none()) else { continue };
            *name = match le32(relocation, 12) {
                // The relocation of an indirect function (`IRELATIVE`) contains the address of its resolver instead of a
                // symbol.
                None | Some(0) => le64(relocation, 16).and_then(symbol_at),
                Some(symbol) => {
                    let table = file.elf.sections.get(section.link);
                    table.and_then(|table| file.symbol_name(table, symbol)).map(|name| name.into_owned())
                }
            };
        }
    }
    let name = |stub: &Stub| {
        let name = slots.get(&stub.slot)?.as_ref()?;
        Some((stub.address, format!("{name}@plt").into()))
    };
    stubs.iter().filter_map(name).collect()
}

fn jumps(arch: Arch, table: &Section, code: &[u8]) -> Vec<Stub> {
    let find = |step: usize, size_bytes: u64, slot: fn(&[u8], u64) -> Option<u64>| {
        let starts = (0..code.len()).step_by(step);
        let at = |start: usize| {
            let address = table.address.wrapping_add(start as u64);
            Some(Stub { address, size_bytes, slot: slot(&code[start..], address)? })
        };
        starts.filter_map(at).collect()
    };
    let entry_size = if table.entry_size == 8 { 8 } else { STUB_BYTES };
    match arch {
        Arch::X86_64 => find(8, entry_size, slot_x86),
        // Its stubs jump through slots by an absolute address or through a register.
        Arch::X86 => Vec::new(),
        Arch::Aarch64 => find(4, 0, slot_aarch64),
        Arch::Riscv64 => find(4, 0, slot_riscv),
    }
}

/// Recognizes `[endbr64;] [bnd] jmp [rip + displacement]`. Returns the address of the slot.
fn slot_x86(code: &[u8], address: u64) -> Option<u64> {
    let endbr = if code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) { 4 } else { 0 };
    let prefix = endbr + usize::from(code.get(endbr) == Some(&0xf2));
    if code.get(prefix..prefix + 2)? != [0xff, 0x25] {
        return None;
    }
    let displacement = le32(code, prefix + 2)? as i32;
    Some(address.wrapping_add(prefix as u64 + 6).wrapping_add_signed(displacement.into()))
}

/// Recognizes `adrp x16, page; ldr x17, [x16, offset]`. Returns the address of the slot.
fn slot_aarch64(code: &[u8], address: u64) -> Option<u64> {
    let (adrp, load) = (le32(code, 0)?, le32(code, 4)?);
    if adrp & 0x9f00_001f != 0x9000_0010 || load & 0xffc0_03ff != 0xf940_0211 {
        return None;
    }
    let pages = (adrp >> 5 & 0x7_ffff) << 2 | adrp >> 29 & 3;
    let pages = i64::from((pages << 11) as i32 >> 11);
    let offset = u64::from(load >> 10 & 0xfff) * 8;
    Some((address & !0xfff).wrapping_add_signed(pages << 12).wrapping_add(offset))
}

/// Recognizes `auipc t3, upper; ld t3, lower(t3)`. Returns the address of the slot.
fn slot_riscv(code: &[u8], address: u64) -> Option<u64> {
    let (auipc, load) = (le32(code, 0)?, le32(code, 4)?);
    if auipc & 0xfff != 0xe17 || load & 0xf_ffff != 0xe_3e03 {
        return None;
    }
    let upper = i64::from((auipc & 0xffff_f000) as i32);
    let lower = i64::from(load as i32 >> 20);
    Some(address.wrapping_add_signed(upper).wrapping_add_signed(lower))
}
