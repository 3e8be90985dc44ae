//! The kernel's address space as a profile's records report it.
//!
//! Enters: the kernel's own mappings. Leaves: the image of an address. Never here: symbols.

/// The kernel and its modules, as far as they are known.
#[derive(Debug, Default)]
pub struct KernelSpace {
    /// Address of `_text`, and the first address after the kernel.
    text: Option<(u64, u64)>,
    /// The modules: first address, first address after the module, and name.
    modules: Vec<(u64, u64, String)>,
}

/// A place in the kernel: the index of a module, or `None` for the kernel itself, and the offset in it.
pub type KernelPlace = (Option<usize>, u64);

impl KernelSpace {
    /// Adds a mapping of the kernel: `[kernel.kallsyms]_text`, `[module]`, `/lib/modules/…/module.ko.xz`.
    pub fn map(&mut self, path: &str, start: u64, length: u64, page_offset: u64) {
        let end = start.saturating_add(length);
        if path.starts_with("[kernel.kallsyms]")
            || path.starts_with("/proc/kcore")
            || path.ends_with("vmlinux")
        {
            // perf writes the address of the reference symbol, `_text` or `_stext`, as the offset.
            let text = if (start..end).contains(&page_offset) { page_offset } else { start };
            self.text.get_or_insert((text, end));
            return;
        }
        let name = module_name(path);
        if !name.is_empty() && !self.modules.iter().any(|m| m.0 == start) {
            self.modules.push((start, end, name));
        }
    }

    /// Returns the place of an address; `None` if no mapping contains it.
    pub fn place(&self, address: u64) -> Option<KernelPlace> {
        let module = self.modules.iter().position(|m| (m.0..m.1).contains(&address));
        if let Some(module) = module {
            return Some((Some(module), address - self.modules[module].0));
        }
        let (text, end) = self.text?;
        (text..end).contains(&address).then(|| (None, address - text))
    }

    /// Returns the address of `_text`, if it is known.
    pub fn text(&self) -> Option<u64> {
        self.text.map(|(text, _)| text)
    }

    /// Returns the name of a module.
    pub fn module(&self, index: usize) -> &str {
        &self.modules[index].2
    }
}

/// Returns the name of a module from its path or from `[module]`.
pub fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).trim_matches(['[', ']']).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_in_the_kernel_or_a_module() {
        let mut kernel = KernelSpace::default();
        kernel.map("[kernel.kallsyms]_text", 0xffff_8000, 0x1000, 0xffff_8000);
        kernel.map("/lib/modules/6.1/kernel/snd-seq.ko.xz", 0xffff_a000, 0x100, 0);
        assert_eq!(kernel.place(0xffff_8010), Some((None, 0x10)));
        assert_eq!(kernel.place(0xffff_a004), Some((Some(0), 4)));
        assert_eq!((kernel.module(0), kernel.place(0x10)), ("snd_seq", None));
    }
}
