//! The place where a program is held: where its libraries are loaded and nothing of it has run.
//!
//! Enters: a process that is stopped at its exec. Leaves: an `int3` at that place, and then one of two things: the program held there,
//! in a loop of one jump, which needs no tracer; or the program as it was. Never here: who traces it.
//!
//! Loaders call an empty function for debuggers, `_dl_debug_state`, when all libraries are mapped (`struct r_debug` in
//! elf/link.h of glibc). Programs without a loader are held at their entry.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt};

use dwell_profile::Pid;

use super::{
    patcher::Change,
    procfs::{Mapping, mappings},
    tracee::Tracee,
};
use crate::{patch::plan::JUMP_BYTES, process_images::open_image};

const INT3: u8 = 0xcc;
/// A jump to itself.
const LOOP: [u8; 2] = [0xeb, 0xfe];
const HOOK: &str = "_dl_debug_state";
/// Of the auxiliary vector (include/uapi/linux/auxvec.h): where the loader is, and the program's entry.
const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;

/// Where loaders that were seen have their function for debuggers, from their beginning; `None`: they have none. The key is the file
/// with its path.
pub type Loaders = BTreeMap<(String, String), Option<u64>>;

/// Opens a process's memory.
pub fn open_memory(pid: Pid) -> io::Result<File> {
    File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))
}

/// The place where a program is held, with an `int3`.
pub struct Hook {
    memory: File,
    address: u64,
    original: [u8; JUMP_BYTES],
    /// Whether everything is loaded when it is reached next.
    pub is_final: bool,
    /// Number of executable mappings before libraries are loaded.
    mapped: usize,
}

impl Hook {
    /// Writes the `int3` into a process that is stopped at its exec.
    pub fn set(pid: Pid, loaders: &mut Loaders) -> io::Result<Self> {
        let memory = open_memory(pid)?;
        let auxiliary = std::fs::read(format!("/proc/{pid}/auxv"))?;
        let words: Vec<u64> =
            auxiliary.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let value =
            |kind| words.as_chunks::<2>().0.iter().find(|[key, _]| *key == kind).map(|[_, value]| *value);
        let all = mappings(pid)?;
        let loader = value(AT_BASE).and_then(|base| all.iter().find(|mapping| mapping.start.0 == base));
        let loader_hook = loader.and_then(|loader| Some((find_hook(pid, loader, &all, loaders)?, loader)));
        let (address, is_final) = match loader_hook {
            Some((address, loader)) => (address, loader.path.contains("musl")),
            None => (value(AT_ENTRY).ok_or_else(|| io::Error::other("it has no entry"))?, true),
        };
        let mut original = [0; JUMP_BYTES];
        memory.read_exact_at(&mut original, address)?;
        memory.write_all_at(&[INT3], address)?;
        Ok(Hook { memory, address, original, is_final, mapped: executables(&all) })
    }

    /// Returns whether the thread, which has a SIGTRAP, stopped here.
    pub fn is_reached(&self, tracee: Tracee) -> io::Result<bool> {
        Ok(tracee.registers()?.rip.wrapping_sub(1) == self.address)
    }

    /// Returns whether all libraries are loaded.
    pub fn is_loaded(&self, pid: Pid) -> io::Result<bool> {
        Ok(self.is_final || executables(&mappings(pid)?) > self.mapped)
    }

    /// Returns from the function, which is empty.
    pub fn skip(&self, tracee: Tracee) -> io::Result<()> {
        let mut registers = tracee.registers()?;
        let mut caller = [0; 8];
        self.memory.read_exact_at(&mut caller, registers.rsp)?;
        registers.rip = u64::from_ne_bytes(caller);
        registers.rsp += 8;
        tracee.set_registers(&registers)
    }

    /// Puts the program's own code back; the stopped process, which has reached the place, is as if it had never been there.
    pub fn undo(&self, tracee: Tracee) -> io::Result<()> {
        self.memory.write_all_at(&self.original, self.address)?;
        let mut registers = tracee.registers()?;
        registers.rip = self.address;
        tracee.set_registers(&registers)
    }

    /// Holds the stopped process and releases it from its tracer.
    pub fn hold(&self, tracee: Tracee) -> io::Result<Change> {
        let mut to = self.original;
        to[..LOOP.len()].copy_from_slice(&LOOP);
        self.memory.write_all_at(&to, self.address)?;
        let mut registers = tracee.registers()?;
        registers.rip = self.address;
        tracee.set_registers(&registers)?;
        tracee.detach()?;
        let Hook { address, original: from, .. } = *self;
        Ok(Change { address, from, to, own: from, copies: Vec::new() })
    }
}

/// Returns the address of the loader's function for debuggers.
fn find_hook(pid: Pid, loader: &Mapping, all: &[Mapping], loaders: &mut Loaders) -> Option<u64> {
    let file = loader.file.clone()?;
    let find = || {
        let code = all.iter().find(|mapping| mapping.is_executable && mapping.file == loader.file)?;
        let image = open_image(pid, code)?;
        let mut procedures = image.image.procedures().iter();
        let hook = procedures.find(|procedure| {
            procedure.name() == HOOK || procedure.aliases().iter().any(|alias| alias == HOOK)
        });
        Some(image.in_process(hook?.address).bytes_since(loader.start))
    };
    let offset = *loaders.entry((file, loader.path.clone())).or_insert_with(find);
    Some(loader.start.offset(offset?).0)
}

/// Returns the number of executable mappings of files.
pub fn executables(mappings: &[Mapping]) -> usize {
    mappings.iter().filter(|mapping| mapping.is_executable && mapping.file.is_some()).count()
}
