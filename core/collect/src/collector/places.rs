//! Mappings: what was mapped, and which place in an image an address stands for.
//!
//! Enters: mappings as the kernel reports them, and addresses. Leaves: images and offsets. Never here: which process a
//! mapping belongs to.

use dwell_attribution::{
    AddressSpace, Anonymous, CodeId, ExecutionId, ImageIndex, Interval, MappedRange, Mapping, Target,
};
use dwell_profile::{ImageId, ImageKind, Pid, VirtualAddress};

use super::{attribution::Attribution, spot::Spot, unknown::Cause};
use crate::host::{Host, procfs::MapsLine};

/// Number of remembered answers about anonymous code. Beyond it they are forgotten and the memory is read again.
const COPIED_MAX: usize = 1 << 12;

impl<H: Host> Attribution<H> {
    /// Returns the mapping for a line of /proc/PID/maps or an event. `space` holds the mappings below it; `time_ns` is the
    /// time of the event, or `None` if the mapping was made some time ago.
    pub(super) fn mapping(
        &mut self,
        pid: Pid,
        (start, end, file_offset, target): MapsLine,
        space: &AddressSpace,
        time_ns: Option<u64>,
    ) -> Mapping {
        // The first mapping after an exec is the program.
        let awaits_program = self.processes.get(pid).is_some_and(|p| p.awaits_program);
        let mut target = target.mapped_as(awaits_program && time_ns.is_some());
        if target.needs_version() {
            let version = self.host.version(&target, MappedRange { pid, start, end }, time_ns);
            target.set_version(version);
        }
        if target != Target::Anonymous {
            let target = self.images.intern(target);
            return Mapping { start, end, file_offset, target, anonymous: None };
        }
        let over = space.find(start).and_then(|under| match under.over() {
            Some((target, offset)) => Some((target, offset.wrapping_add(start.bytes_since(under.start)))),
            None => self.images.is_file(under.target).then(|| (under.target, under.offset_of(start))),
        });
        // Anonymous memory has no offsets; with the address as offset, memory that is mapped again gives the same places.
        let target = self.images.intern(target);
        let anonymous = Some(Box::new(Anonymous { over, since_ns: time_ns }));
        Mapping { start, end, file_offset: start.as_offset(), target, anonymous }
    }

    /// Returns the place of an address in the kernel for a sample that was taken in an interval.
    pub(super) fn kernel_place(&mut self, pc: VirtualAddress, interval: Interval) -> Result<Spot, Cause> {
        let place = self.host.kernel_place(pc, interval).ok_or(Cause::Kernel)?;
        let image = match place.module {
            None => *self.kernel.get_or_insert_with(|| {
                let kernel = self.images.named(ImageId::kernel(), ImageKind::Kernel, "[kernel.kallsyms]");
                self.images.set_kernel_build(kernel, self.host.kernel_build());
                kernel
            }),
            Some(name) => {
                let id = ImageId::named(&format!("module:{name}"));
                let module = self.images.named(id, ImageKind::Module, &format!("[{name}]"));
                self.images.add_module_build(module, self.host.module_build(&name));
                module
            }
        };
        Ok(Spot::Image(image, place.offset))
    }

    /// Returns the place of an address in a process, or `None` if no mapping contains it.
    pub(super) fn mapped_place(
        &mut self,
        pid: Pid,
        pc: VirtualAddress,
        execution: ExecutionId,
    ) -> Option<Spot> {
        self.recall(pid);
        let process = self.processes.get(pid)?;
        let (code, mapping) = (process.code, process.space.find(pc)?.clone());
        Some(self.place_in(&mapping, pid, code, pc, execution))
    }

    /// Returns the place of an observation that is not a sample and therefore cannot wait for names.
    pub(super) fn settled_place(
        &mut self,
        pid: Pid,
        pc: VirtualAddress,
        execution: ExecutionId,
    ) -> Option<(ImageIndex, u64)> {
        Some(match self.mapped_place(pid, pc, execution)? {
            Spot::Image(image, offset) => (image, offset),
            Spot::Code(_, address) => self.jit_place(address, execution),
        })
    }

    /// Returns the place of an address in a mapping.
    pub(super) fn place_in(
        &mut self,
        mapping: &Mapping,
        pid: Pid,
        code: CodeId,
        pc: VirtualAddress,
        execution: ExecutionId,
    ) -> Spot {
        if let Some(image) = self.images.look(mapping.target, mapping.place(pid), &mut self.host) {
            return Spot::Image(image, mapping.offset_of(pc));
        }
        self.copied_text(mapping, pid, pc, execution).map_or(Spot::Code(code, pc), Spot::from)
    }

    /// Returns the place in a file if anonymous memory is a copy of the file's text in huge pages, and `None` if it is JIT
    /// code. The contents of the memory decide. If the process is gone, memory over the text of its own program is assumed
    /// to be a copy, because programs do not unmap their own text.
    fn copied_text(
        &mut self,
        mapping: &Mapping,
        pid: Pid,
        pc: VirtualAddress,
        execution: ExecutionId,
    ) -> Option<(ImageIndex, u64)> {
        let (target, offset) = mapping.over()?;
        let place = mapping.place(pid);
        let image = self.images.look(target, place, &mut self.host)?;
        let file_offset = offset.wrapping_add(pc.bytes_since(mapping.start));
        if !self.images.code_of(target).has(file_offset) {
            return None;
        }
        if self.copied.len() >= COPIED_MAX {
            self.copied.clear();
        }
        let key = (execution, mapping.start);
        let copied = match self.copied.get(&key) {
            Some(copied) => *copied,
            None => {
                let seen = self.host.has_in_memory(pid, pc, &self.images.record(image).id, file_offset);
                let own = self.processes.ever(pid).any(|p| p.program == Some(target));
                let copied = seen.unwrap_or(own);
                self.copied.insert(key, copied);
                copied
            }
        };
        copied.then_some((image, file_offset))
    }
}
