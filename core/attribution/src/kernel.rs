//! The kernel's own address space: its text, modules and symbols.
//!
//! Enters: the text of /proc/kallsyms and the modules, or the kernel's mappings as a profile reports them. Leaves: the
//! module that contains an address, and the symbol of an address. Never here: I/O.

use std::io::BufRead;

use dwell_profile::{ImageOffset, ImageSymbol, VirtualAddress};

use crate::{Interval, Modules};

/// The addresses of the kernel and its modules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelLayout {
    /// Address of `_text`, or of `_stext` if `_text` is not listed; `None` if it is not known, because the kernel hides its
    /// addresses from us or a profile does not report it.
    pub text: Option<VirtualAddress>,
    /// Address of `_end`, or of `_etext` if `_end` is not listed.
    pub end: VirtualAddress,
    /// The loaded and recently unloaded modules.
    pub modules: Modules,
    /// Code that the kernel generated at run time, under the name of its generator: `bpf`, `__builtin__ftrace`, …
    made: Vec<Made>,
}

/// A place in the kernel or in one of its modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelPlace {
    /// Name of the module, or `None` for the kernel's own text.
    pub module: Option<String>,
    /// Offset in the module or in the kernel's text.
    pub offset: u64,
}

/// Largest size in bytes that is assumed for a piece of generated code, since its symbols carry no size.
const MADE_BYTES_MAX: u64 = 1 << 12;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Made {
    start: VirtualAddress,
    end: VirtualAddress,
    name: String,
}

impl KernelLayout {
    /// Notes a symbol if it marks where the kernel begins or ends.
    fn note(&mut self, symbol: &Symbol<'_>) {
        match symbol.name {
            _ if symbol.is_hidden() => {}
            "_text" => self.text = Some(symbol.address),
            // On AArch64 a header precedes `_stext`. Kernels without CONFIG_KALLSYMS_ALL do not list `_text`, which marks
            // it.
            "_stext" if self.text.is_none() => self.text = Some(symbol.address),
            "_etext" if self.end == VirtualAddress(0) => self.end = symbol.address,
            "_end" => self.end = symbol.address,
            _ => {}
        }
    }

    /// Adds a mapping of the kernel as perf records it: `[kernel.kallsyms]_text`, `[module]`, `/lib/modules/…/module.ko.xz`.
    /// The first mapping of the kernel itself, and the first one at a module's address, counts.
    pub fn map(&mut self, path: &str, start: VirtualAddress, length: u64, page_offset: u64) {
        let end = start.saturating_offset(length);
        let starts = ["[kernel.kallsyms]", "/proc/kcore"];
        if starts.iter().any(|known| path.starts_with(known)) || path.ends_with("vmlinux") {
            if self.text.is_none() {
                // perf writes the address of the reference symbol, `_text` or `_stext`, as the offset.
                let reference = VirtualAddress(page_offset);
                self.text = Some(if (start..end).contains(&reference) { reference } else { start });
                self.end = end;
            }
            return;
        }
        let name = module_name(path);
        if !name.is_empty() {
            self.modules.add(name, start, end);
            if self.is_own_text(start) {
                self.end = start; // The end of the kernel's mapping was not known.
            }
        }
    }

    /// Adds the symbols of generated code, each with the generator's name from /proc/kallsyms. Each piece extends to the
    /// next symbol.
    fn set_made(&mut self, mut symbols: Vec<(VirtualAddress, String)>) {
        symbols.sort();
        let next = symbols.iter().skip(1).map(|s| s.0);
        let ends: Vec<VirtualAddress> = next.chain([VirtualAddress(u64::MAX)]).collect();
        let made = symbols.into_iter().zip(ends);
        let made = made.map(|((start, name), end)| Made {
            start,
            end: end.min(start.saturating_offset(MADE_BYTES_MAX)),
            name,
        });
        self.made = made.collect();
    }

    /// Returns the place of an address during an interval. Returns `None` if the address was in no known image: the kernel
    /// may have generated code there, a module may have been loaded later, or two modules may have been there one after the
    /// other.
    pub fn place(&self, address: VirtualAddress, interval: Interval) -> Option<KernelPlace> {
        if let Some(text) = self.text.filter(|_| self.is_own_text(address)) {
            return Some(KernelPlace { module: None, offset: address.bytes_since(text) });
        }
        if let Some((name, offset)) = self.modules.find(address, interval) {
            return Some(KernelPlace { module: Some(name.to_owned()), offset });
        }
        // Pieces of generated code are scattered, so their offsets are addresses.
        let made = under(&self.made, address)?;
        Some(KernelPlace { module: Some(made.name.clone()), offset: address.as_offset() })
    }

    /// Returns whether an address is in the kernel's own text, which never moves.
    pub fn is_own_text(&self, address: VirtualAddress) -> bool {
        self.text.is_some_and(|text| (text..self.end.max(text)).contains(&address))
    }

    /// Returns the first address of the kernel (`None`) or of a module by name.
    pub fn base(&self, module: Option<&str>) -> Option<VirtualAddress> {
        match module {
            None => self.text,
            Some(name) => {
                let module = self.modules.start(name);
                module.or(self.made.iter().any(|m| m.name == name).then_some(VirtualAddress(0)))
            }
        }
    }
}

/// Returns the name of a module from its path or from `[module]`.
pub fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).trim_matches(['[', ']']).replace('-', "_")
}

fn under(made: &[Made], address: VirtualAddress) -> Option<&Made> {
    let at = made.partition_point(|m| m.end <= address);
    made.get(at).filter(|m| m.start <= address)
}

/// A line of /proc/kallsyms: `address type name [module]`.
struct Symbol<'a> {
    address: VirtualAddress,
    kind: u8,
    name: &'a str,
    module: Option<&'a str>,
}

impl<'a> Symbol<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let address = VirtualAddress(u64::from_str_radix(words.next()?, 16).ok()?);
        let (kind, name) = (*words.next()?.as_bytes().first()?, words.next()?);
        let module = words.next().and_then(|m| m.strip_prefix('[')?.strip_suffix(']'));
        Some(Symbol { address, kind, name, module })
    }

    /// Returns whether the kernel hides its addresses from us.
    fn is_hidden(&self) -> bool {
        self.address == VirtualAddress(0)
    }
}

/// Reads layout and symbols from the lines of /proc/kallsyms, and adds the modules. Both come from one reading because the
/// kernel takes 40 ms to write the lines.
pub fn read_kernel(kallsyms: impl BufRead, modules: Modules) -> (KernelLayout, KernelSymbols) {
    let (mut layout, mut symbols) = (KernelLayout::default(), KernelSymbols::default());
    let (mut kallsyms, mut line, mut made) = (kallsyms, Vec::new(), Vec::new());
    while kallsyms.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        if let Some(symbol) = std::str::from_utf8(&line).ok().and_then(Symbol::parse) {
            layout.note(&symbol);
            symbols.note(&symbol);
            let of = symbol.module.filter(|m| !symbol.is_hidden() && modules.start(m).is_none());
            made.extend(of.map(|module| (symbol.address, module.to_owned())));
        }
        line.clear();
    }
    layout.modules = modules;
    layout.set_made(made);
    symbols.sort();
    (layout, symbols)
}

/// Limit for the names in bytes, against broken input; the names of a real kernel take a few MiB.
const NAMES_BYTES_MAX: usize = 256 << 20;

/// The kernel's code symbols, sorted by address; about 5 MB for 100,000 symbols.
#[derive(Debug, Default)]
pub struct KernelSymbols {
    /// Address of each symbol, and the position of its name in `names`.
    starts: Vec<(VirtualAddress, u32)>,
    names: String,
}

impl KernelSymbols {
    fn note(&mut self, symbol: &Symbol<'_>) {
        let has_room = self.names.len() + symbol.name.len() < NAMES_BYTES_MAX;
        if matches!(symbol.kind, b't' | b'T' | b'w' | b'W') && !symbol.is_hidden() && has_room {
            self.starts.push((symbol.address, self.names.len() as u32));
            self.names.push_str(symbol.name);
            self.names.push('\n');
        }
    }

    /// Returns the addresses in ascending order, each with the position of its name in [`KernelSymbols::names`].
    pub fn starts(&self) -> &[(VirtualAddress, u32)] {
        &self.starts
    }

    /// Returns the names, each terminated by a newline.
    pub fn names(&self) -> &str {
        &self.names
    }

    /// Sorts by address. If an address has several names, the first one is kept.
    fn sort(&mut self) {
        self.starts.sort_by_key(|(address, _)| *address);
        self.starts.dedup_by_key(|(address, _)| *address);
    }

    /// Returns the symbol that contains an address, relative to the image that starts at `base`.
    pub fn find(&self, address: VirtualAddress, base: VirtualAddress) -> Option<ImageSymbol> {
        let after = self.starts.partition_point(|(start, _)| *start <= address);
        let (start, name) = *self.starts.get(after.checked_sub(1)?)?;
        let end = self.starts.get(after).map_or(start, |(next, _)| *next);
        let name = self.names.get(name as usize..)?.lines().next()?.to_owned();
        let offset = ImageOffset(start.checked_bytes_since(base)?);
        Some(ImageSymbol { offset, size_bytes: end.bytes_since(start), name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "\
ffffffff81000000 T _text
ffffffff81000000 T _stext
ffffffff81000100 t do_work
ffffffff81000180 T schedule
ffffffff81000200 D jiffies
ffffffff81001000 T _etext
garbage
ffffffffc0000010 t ext4_read\t[ext4]
ffffffffc0000050 t ext4_write\t[ext4]
ffffffffc0100040 t bpf_prog_6deef7357e7b4530_sd\t[bpf]
ffffffffc0100000 t bpf_trampoline_7\t[bpf]
";
    const MODULES: &str = "ext4 4096 1 - Live 0xffffffffc0000000\nhidden 10 0 - Live 0x0000000000000000\n";
    const NOW: Interval = Interval { since_ns: 1, until_ns: 1 };

    #[test]
    fn addresses_find_their_image_and_symbol() {
        let mut modules = Modules::default();
        assert!(modules.look(MODULES, NOW));
        let (layout, symbols) = read_kernel(KALLSYMS.as_bytes(), modules);
        let tell = |address: u64| {
            let place = layout.place(VirtualAddress(address), NOW)?;
            let base = layout.base(place.module.as_deref())?;
            let symbol = symbols.find(VirtualAddress(address), base)?;
            Some(format!("{:?}+{:x} {}+{:x}", place.module, place.offset, symbol.name, symbol.offset.0))
        };
        assert_eq!(tell(0xffffffff81000104).as_deref(), Some("None+104 do_work+100"));
        assert_eq!(tell(0xffffffff81000008).as_deref(), Some("None+8 _text+0"));
        assert_eq!(tell(0xffffffffc0000055).as_deref(), Some("Some(\"ext4\")+55 ext4_write+50"));
        assert_eq!(tell(0xffffffffc0009000), None);
        let made = "Some(\"bpf\")+ffffffffc0100044 bpf_prog_6deef7357e7b4530_sd+ffffffffc0100040";
        assert_eq!(tell(0xffffffffc0100044).as_deref(), Some(made));
        assert_eq!(tell(0xffffffffc0102000), None, "far behind the last");
    }

    #[test]
    fn the_kernel_begins_at_its_first_listed_symbol() {
        let text = |kallsyms: &str| read_kernel(kallsyms.as_bytes(), Modules::default()).0.text.unwrap().0;
        let (stext, etext) = ("ffffb3deeca10000 T _stext\n", "ffffb3deed5e0000 D _etext\n");
        assert_eq!(text(&format!("{stext}{etext}")), 0xffff_b3de_eca1_0000);
        let head = "ffffb3deeca00000 T _text\n";
        assert_eq!(text(&format!("{head}{stext}{etext}")), 0xffff_b3de_eca0_0000);
        assert_eq!(text(&format!("{stext}{head}{etext}")), 0xffff_b3de_eca0_0000);
    }

    #[test]
    fn hidden_addresses_are_not_known() {
        let (layout, _) = read_kernel(&b"0000000000000000 T _text\n"[..], Modules::default());
        assert_eq!((layout.text, layout.place(VirtualAddress(0xffffffff81000104), NOW)), (None, None));
    }

    #[test]
    fn mappings_of_a_profile_place_addresses_in_the_kernel_or_a_module() {
        let mut kernel = KernelLayout::default();
        kernel.map("[kernel.kallsyms]_text", VirtualAddress(0xffff_8000), 0x1000, 0xffff_8000);
        kernel.map("/lib/modules/6.1/kernel/snd-seq.ko.xz", VirtualAddress(0xffff_a000), 0x100, 0);
        let place =
            |address| kernel.place(VirtualAddress(address), NOW).map(|place| (place.module, place.offset));
        assert_eq!(place(0xffff_8010), Some((None, 0x10)));
        assert_eq!(place(0xffff_a004), Some((Some("snd_seq".to_owned()), 4)));
        assert_eq!(place(0x10), None);
        let mut kernel = KernelLayout::default();
        kernel.map("[kernel.kallsyms]_text", VirtualAddress(0x8000), u64::MAX, 0x8000);
        kernel.map("[kvm]", VirtualAddress(0xa000), 0x100, 0);
        let place =
            |address| kernel.place(VirtualAddress(address), NOW).map(|place| (place.module, place.offset));
        assert_eq!(place(0xa004), Some((Some("kvm".to_owned()), 4)), "the kernel's end was too high");
        assert_eq!((place(0x9000), place(0xb000)), (Some((None, 0x1000)), None));
    }
}
