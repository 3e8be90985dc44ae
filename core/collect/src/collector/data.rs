//! The collector's handling of data: which memory the sampled loads and stores refer to (DCPI §9 wishes for it).
//!
//! Enters: samples in user mode, with registers if they have any. Leaves: counts of the derived events [`Event::DATA`] and
//! [`Event::DATA_PAGE`]. Each sample counts once: at an image's data, or under a name for another kind of memory
//! (`data:heap`, …) or for the reason why it is not known (`data:none:…`). Never here: the contents of memory; any work if
//! data was not requested.
//!
//! The mappings of a process are read when one of its samples refers to unknown memory, and again after a while: the kernel
//! reports neither munmap nor most mappings without code. So a mapping that was replaced meanwhile may be mistaken for its
//! successor.
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

/// Number of remembered operands. Beyond it they are forgotten and decoded again.
const OPERANDS_MAX: usize = 1 << 16;
/// Number of processes whose mappings are remembered. Beyond it they are forgotten and read again.
const PROCESSES_MAX: usize = 1 << 10;
/// Age in ns after which mappings are read again.
const AGE_MAX_NS: u64 = 1_000_000_000;
/// Age in ns after which mappings are read again if an address is in none of them.
const AGE_OF_MISS_MIN_NS: u64 = 20_000_000;
/// Number of addresses in images that are counted exactly; further addresses are counted by page.
const ADDRESSES_MAX: usize = 1 << 14;
/// Number of distinct names of files and other mappings that are counted separately.
const NAMES_MAX: usize = 1 << 10;
const PAGE_BYTES: u64 = 4096;
/// Number of the stack pointer in the instruction encoding.
const RSP: u8 = 4;

/// State for counting what samples refer to.
#[derive(Debug, Default)]
pub(super) struct Data {
    wanted: bool,
    operands: FxHashMap<(ImageIndex, u64), Operand>,
    processes: FxHashMap<Pid, Memory>,
    addresses: FxHashSet<(ImageIndex, u64)>,
    names: FxHashMap<String, ImageIndex>,
}

/// The mappings of a process at one time.
#[derive(Debug, Default)]
struct Memory {
    looked_ns: u64,
    /// Areas in ascending order; they are disjoint.
    areas: Vec<Area>,
}

#[derive(Debug)]
struct Area {
    start: u64,
    end: u64,
    what: What,
    /// Whether it is a stack if the stack pointer points into it.
    may_be_stack: bool,
}

/// Contents of an area.
#[derive(Clone, Copy, Debug)]
enum What {
    /// Data of an image whose first byte is at address `base`.
    Image { image: ImageIndex, base: u64 },
    /// Any other memory, under its name.
    Named(ImageIndex),
}

impl Data {
    /// Forgets the mappings of a pid that has become another process, or none.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    /// Fills the set of addresses that are counted exactly.
    #[cfg(test)]
    pub(super) fn fill_addresses(&mut self) {
        self.addresses.extend((0..ADDRESSES_MAX as u64).map(|at| (ImageIndex(u32::MAX), at)));
    }
}

impl<H: Host> Collector<H> {
    /// Starts to count what samples refer to.
    pub fn keep_data(&mut self) {
        self.data.wanted = true;
    }

    /// Counts the memory to which the instruction at a sample in user mode refers.
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

    /// Returns the image and offset for a data address, and the event that says whether the offset is exact or a page.
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
                // Memory directly behind an image's last bytes is its .bss, if the image has one; the reader of the counts
                // decides that.
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

    /// Returns the image of a mapped file, if the process maps code of the file.
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

    /// Returns the image for memory that the kernel or the process named: `[vvar]`, `[anon:glibc: malloc]`.
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
