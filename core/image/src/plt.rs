//! Stubs of the procedure linkage table, named `<procedure>@plt` by the slot of the global offset table they jump
//! through. Found by their instructions, not by position, so that every linker's layout is understood.

use rustc_hash::FxHashMap;

use crate::Arch;
use crate::elf::{Elf, Section};
use crate::symbols::{Candidate, le32, le64, name_of};

const RELOCATION_BYTES: usize = 24;
const STUB_BYTES: u64 = 16;

/// (address, size or 0, name) of each stub. `symbols` are sorted by address.
pub(crate) fn stubs(elf: &Elf, bytes: &[u8], symbols: &[Candidate]) -> Vec<(u64, u64, String)> {
    let tables = elf.sections.iter().filter(|s| s.executable && s.name.starts_with(".plt"));
    let tables: Vec<&Section> = tables.collect();
    if tables.is_empty() {
        return Vec::new();
    }
    let slots = slots(elf, bytes, symbols);
    let named = |(address, size, slot)| Some((address, size, format!("{}@plt", slots.get(&slot)?)));
    let jumps = |table: &Section| jumps(elf.arch, table, table.bytes(bytes));
    tables.into_iter().flat_map(jumps).filter_map(named).collect()
}

/// Slot of the global offset table → the symbol it is filled with.
fn slots<'a>(elf: &Elf, bytes: &'a [u8], symbols: &'a [Candidate]) -> FxHashMap<u64, &'a str> {
    let mut slots = FxHashMap::default();
    for section in elf.sections.iter().filter(|s| matches!(&*s.name, ".rela.plt" | ".rela.dyn")) {
        for relocation in section.bytes(bytes).chunks_exact(RELOCATION_BYTES) {
            let slot = le64(relocation, 0);
            let symbol = le32(relocation, 12).unwrap_or(0) as usize;
            let name = match symbol {
                0 => symbol_at(symbols, le64(relocation, 16)),
                _ => elf.sections.get(section.link).and_then(|table| name_of(elf, bytes, table, symbol)),
            };
            if let (Some(slot), Some(name)) = (slot, name) {
                slots.entry(slot).or_insert(name);
            }
        }
    }
    slots
}

/// The symbol of an indirect procedure by its resolver's address (`IRELATIVE` relocations name no symbol).
fn symbol_at(symbols: &[Candidate], address: Option<u64>) -> Option<&str> {
    let index = symbols.partition_point(|c| Some(c.address) < address);
    symbols.get(index).filter(|c| Some(c.address) == address).map(|c| &*c.name)
}

/// (address, size or 0, slot) of each jump through a slot in the table with that code.
pub(crate) fn jumps(arch: Arch, table: &Section, code: &[u8]) -> Vec<(u64, u64, u64)> {
    let find = |step: usize, size: u64, slot: fn(&[u8], u64) -> Option<u64>| {
        let starts = (0..code.len()).step_by(step);
        let at = |start: usize| {
            let address = table.address.wrapping_add(start as u64);
            Some((address, size, slot(&code[start..], address)?))
        };
        starts.filter_map(at).collect()
    };
    let entry_size = if table.entry_size == 8 { 8 } else { STUB_BYTES };
    match arch {
        Arch::X86_64 => find(8, entry_size, slot_x86),
        // Its stubs jump through slots by an absolute address, or by a register.
        Arch::X86 => Vec::new(),
        Arch::Aarch64 => find(4, 0, slot_aarch64),
        Arch::Riscv64 => find(4, 0, slot_riscv),
    }
}

/// `[endbr64;] [bnd] jmp [rip + displacement]`
fn slot_x86(code: &[u8], address: u64) -> Option<u64> {
    let endbr = if code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) { 4 } else { 0 };
    let prefix = endbr + usize::from(code.get(endbr) == Some(&0xf2));
    if code.get(prefix..prefix + 2)? != [0xff, 0x25] {
        return None;
    }
    let displacement = le32(code, prefix + 2)? as i32;
    Some(address.wrapping_add(prefix as u64 + 6).wrapping_add_signed(displacement.into()))
}

/// `adrp x16, page; ldr x17, [x16, offset]`
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

/// `auipc t3, upper; ld t3, lower(t3)`
fn slot_riscv(code: &[u8], address: u64) -> Option<u64> {
    let (auipc, load) = (le32(code, 0)?, le32(code, 4)?);
    if auipc & 0xfff != 0xe17 || load & 0xf_ffff != 0xe_3e03 {
        return None;
    }
    let upper = i64::from((auipc & 0xffff_f000) as i32);
    let lower = i64::from(load as i32 >> 20);
    Some(address.wrapping_add_signed(upper).wrapping_add_signed(lower))
}
