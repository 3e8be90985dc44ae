//! The collector's part in data: what the loads and stores refer to that samples fall on (DCPI §9 asks for it).
//!
//! Enters: samples in user mode, with their registers where they have any. Leaves: counts of the derived events [`Event::DATA`]
//! and [`Event::DATA_PAGE`], each sample in one: at an image's data, or under a name for what else it is (`data:heap`, …) or why
//! it is not known (`data:none:…`). Never here: what memory holds; work where data is not asked for.
//!
//! A process's mappings are read when a sample of it refers to memory that is not known, and again after a while: no record
//! tells of munmap, nor of most memory that is no code. A mapping that was replaced meanwhile may be taken for its successor.
//!
//! [`Event::DATA`]: dwell_profile::Event::DATA
//! [`Event::DATA_PAGE`]: dwell_profile::Event::DATA_PAGE

use dwell_attribution::{ExecutionId, ImageIndex};
use dwell_profile::{DerivedEvent, ImageId, ImageKind, Pid};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Collector, Spot, code::read_code};
use crate::{
    branch::Registers,
    host::{Host, Region},
    operand::Operand,
    records::Sample,
    x86::INSTRUCTION_BYTES_MAX,
};

/// Operands that are remembered; beyond, they are decoded anew.
const OPERANDS_MAX: usize = 1 << 16;
/// Processes whose mappings are remembered; beyond, they are read anew.
const PROCESSES_MAX: usize = 1 << 10;
/// Mappings are read again after so long, …
const AGE_MAX_NS: u64 = 1_000_000_000;
/// … and where an address is in none of them after so long.
const AGE_OF_MISS_MIN_NS: u64 = 20_000_000;
/// Addresses in images that are kept apart to the byte; others by page.
const ADDRESSES_MAX: usize = 1 << 14;
/// Names of mappings that are told apart, of files and of others.
const NAMES_MAX: usize = 1 << 10;
const PAGE_BYTES: u64 = 4096;
/// The hardware's number of the stack pointer.
const RSP: u8 = 4;

/// The state of looking at data.
#[derive(Debug, Default)]
pub(super) struct Data {
    wanted: bool,
    operands: FxHashMap<(ImageIndex, u64), Operand>,
    processes: FxHashMap<Pid, Memory>,
    addresses: FxHashSet<(ImageIndex, u64)>,
    names: FxHashMap<String, ImageIndex>,
}

/// A process's memory, as it was at some time.
#[derive(Debug, Default)]
struct Memory {
    looked_ns: u64,
    /// The areas are ascending and disjoint.
    areas: Vec<Area>,
}

#[derive(Debug)]
struct Area {
    start: u64,
    end: u64,
    what: What,
    /// A stack, if the stack pointer is in it.
    may_be_stack: bool,
}

/// An area holds this.
#[derive(Clone, Copy, Debug)]
enum What {
    /// Data of an image whose first byte lies at `base`.
    Image { image: ImageIndex, base: u64 },
    /// Anything else, by its name.
    Named(ImageIndex),
}

impl Data {
    /// The pid is another process, or none, from now on.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    /// As if as many addresses had been met as are kept apart.
    #[cfg(test)]
    pub(super) fn fill_addresses(&mut self) {
        self.addresses.extend((0..ADDRESSES_MAX as u64).map(|at| (ImageIndex(u32::MAX), at)));
    }
}

impl<H: Host> Collector<H> {
    /// From now on counts what data samples refer to.
    pub fn keep_data(&mut self) {
        self.data.wanted = true;
    }

    /// Counts what the instruction at a sample in user mode refers to.
    pub(super) fn note_data(&mut self, sample: &Sample, spot: Option<Spot>, execution: ExecutionId) {
        if !self.data.wanted {
            return;
        }
        let execution_counted = self.apps.counted_as(execution);
        let (image, offset, event) = match (&sample.registers, spot) {
            (None, _) => self.no_data("no registers"),
            (Some(_), Some(Spot::Code(..)) | None) => self.no_data("code in no file"),
            (Some(registers), Some(Spot::Image(image, offset))) => match self.operand((image, offset)) {
                Operand::At(operand) => {
                    let address = operand.effective_address(sample.pc, |number| registers.general(number));
                    self.datum(sample.pid, execution, address, registers)
                }
                Operand::ThreadLocal => self.data_named("thread-local", "[thread-local]"),
                Operand::None => self.no_data("no memory operand"),
                Operand::Gs => self.no_data("relative to gs"),
                Operand::Vector => self.no_data("gather or scatter"),
                Operand::Undecoded => self.no_data("code not at hand or not decoded"),
            },
        };
        self.add(offset, image, execution_counted, event.into(), 1);
    }

    fn operand(&mut self, place: (ImageIndex, u64)) -> Operand {
        if let Some(known) = self.data.operands.get(&place) {
            return *known;
        }
        if self.data.operands.len() >= OPERANDS_MAX {
            self.data.operands.clear();
        }
        let mut code = [0; INSTRUCTION_BYTES_MAX];
        let length = read_code(&self.images, &mut self.host, place.0, place.1, &mut code);
        let is_known = cfg!(target_arch = "x86_64");
        let operand = if is_known { Operand::decode(&code[..length]) } else { Operand::Undecoded };
        self.data.operands.insert(place, operand);
        operand
    }

    /// What lies at an address: an image and a distance in it, and whether to the byte or the page.
    fn datum(
        &mut self,
        pid: Pid,
        execution: ExecutionId,
        address: u64,
        registers: &Registers,
    ) -> (ImageIndex, u64, DerivedEvent) {
        let now_ns = self.sampled.until_ns;
        let age_ns = self.data.processes.get(&pid).map(|memory| now_ns.saturating_sub(memory.looked_ns));
        let is_missing = || self.area(pid, address).is_none();
        let look = match age_ns {
            None => true,
            Some(age_ns) => age_ns > AGE_MAX_NS || age_ns > AGE_OF_MISS_MIN_NS && is_missing(),
        };
        if look {
            self.look_at_memory(pid, execution, now_ns);
        }
        let Some(area) = self.area(pid, address) else {
            let nothing = self.data.processes.get(&pid).is_none_or(|memory| memory.areas.is_empty());
            return self.no_data(if nothing { "process was gone" } else { "address in no mapping" });
        };
        let (start, end, what) = (area.start, area.end, area.what);
        if area.may_be_stack && (start..end).contains(&registers.general(RSP)) {
            return self.data_named("stack", "[stack]");
        }
        match what {
            What::Named(image) => (image, 0, DerivedEvent::Data),
            What::Image { image, base } => {
                let distance = address.wrapping_sub(base);
                let addresses = &mut self.data.addresses;
                if addresses.len() < ADDRESSES_MAX || addresses.contains(&(image, distance)) {
                    addresses.insert((image, distance));
                    return (image, distance, DerivedEvent::Data);
                }
                (image, distance & !(PAGE_BYTES - 1), DerivedEvent::DataPage)
            }
        }
    }

    fn area(&self, pid: Pid, address: u64) -> Option<&Area> {
        let areas = &self.data.processes.get(&pid)?.areas;
        let at = areas.partition_point(|area| area.end <= address);
        areas.get(at).filter(|area| area.start <= address)
    }

    fn look_at_memory(&mut self, pid: Pid, execution: ExecutionId, now_ns: u64) {
        if self.data.processes.len() >= PROCESSES_MAX {
            self.data.processes.clear();
        }
        let regions = self.host.memory(pid);
        let mut areas: Vec<Area> = Vec::with_capacity(regions.len());
        let mut bases: FxHashMap<&str, u64> = FxHashMap::default();
        for (at, region) in regions.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| &regions[before]).filter(|b| b.end == region.start);
            let is_guarded = before.is_some_and(|before| before.is_guard);
            if region.file_offset == 0 && region.is_file() {
                bases.insert(&region.name, region.start);
            }
            let what = if region.is_file() {
                let base = bases.get(region.name.as_str()).copied();
                let base = base.unwrap_or_else(|| region.start.wrapping_sub(region.file_offset));
                match self.image_of_file(&regions, region, pid, execution) {
                    Some(image) => What::Image { image, base },
                    None => What::Named(self.data_of_file(&region.name)),
                }
            } else if region.name.is_empty() {
                // What follows an image's last bytes at once is its .bss, as far as the image has one: who reads it tells.
                match (before.map(Region::is_file), areas.last()) {
                    (Some(true), Some(Area { what: what @ What::Image { .. }, .. })) => *what,
                    _ => What::Named(self.data_named("anonymous", "[anonymous]").0),
                }
            } else if region.name == "[heap]" {
                What::Named(self.data_named("heap", "[heap]").0)
            } else if region.name == "[stack]" {
                What::Named(self.data_named("stack", "[stack]").0)
            } else {
                What::Named(self.data_in(&region.name))
            };
            let may_be_stack = region.name.is_empty() && is_guarded && matches!(what, What::Named(_));
            areas.push(Area { start: region.start, end: region.end, what, may_be_stack });
        }
        self.data.processes.insert(pid, Memory { looked_ns: now_ns, areas });
    }

    /// The image that a file is, where the process executes code of it.
    fn image_of_file(
        &mut self,
        regions: &[Region],
        region: &Region,
        pid: Pid,
        execution: ExecutionId,
    ) -> Option<ImageIndex> {
        let code = regions.iter().find(|r| r.is_executable && r.name == region.name)?;
        match self.mapped_place(pid, code.start, execution)? {
            Spot::Image(image, _) => Some(image),
            Spot::Code(..) => None,
        }
    }

    fn no_data(&mut self, cause: &str) -> (ImageIndex, u64, DerivedEvent) {
        self.data_named(&format!("none:{cause}"), &format!("[{cause}]"))
    }

    fn data_named(&mut self, what: &str, shown: &str) -> (ImageIndex, u64, DerivedEvent) {
        (
            self.images.named(ImageId::named(&format!("data:{what}")), ImageKind::Unknown, shown),
            0,
            DerivedEvent::Data,
        )
    }

    fn data_of_file(&mut self, path: &str) -> ImageIndex {
        self.data_by_name(format!("file:{path}"), path)
    }

    /// Memory that the kernel or the process gave a name: `[vvar]`, `[anon:glibc: malloc]`.
    fn data_in(&mut self, name: &str) -> ImageIndex {
        self.data_by_name(format!("mapping:{name}"), name)
    }

    fn data_by_name(&mut self, id: String, shown: &str) -> ImageIndex {
        if let Some(known) = self.data.names.get(&id) {
            return *known;
        }
        if self.data.names.len() >= NAMES_MAX {
            return self.data_named("others", "[other mappings]").0;
        }
        let image = self.images.named(ImageId::named(&format!("data:{id}")), ImageKind::Unknown, shown);
        self.data.names.insert(id, image);
        image
    }
}
