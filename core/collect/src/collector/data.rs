//! Data that threads waited for: which memory the sampled loads and stores refer to (DCPI §9 wishes for it).
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

use dwell_attribution::{ExecutionId, ImageIndex, Images};
use dwell_profile::{DerivedEvent, ImageId, ImageKind, Pid, VirtualAddress};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    attribution::{Attribution, SampleContext},
    branch_directions::read_code,
    spot::Spot,
};
use crate::{
    evidence::{operand::Operand, waiting},
    host::{Host, Region},
    registers::Registers,
    source::records::Sample,
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
pub(super) struct DataReferences {
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
    start: VirtualAddress,
    end: VirtualAddress,
    what: What,
    /// Whether it is a stack if the stack pointer points into it.
    may_be_stack: bool,
}

/// Contents of an area.
#[derive(Clone, Copy, Debug)]
enum What {
    /// Data of an image whose first byte is at address `base`.
    Image { image: ImageIndex, base: VirtualAddress },
    /// Any other memory, under its name.
    Named(ImageIndex),
}

impl DataReferences {
    /// Forgets the mappings of a pid that has become another process, or none.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    /// Fills the set of addresses that are counted exactly.
    #[cfg(test)]
    pub(super) fn fill_addresses(&mut self) {
        self.addresses.extend((0..ADDRESSES_MAX as u64).map(|at| (ImageIndex(u32::MAX), at)));
    }

    /// Returns the image and offset to count the memory at that an instruction refers to, at a sample in user mode, and the
    /// event that says whether the offset is exact or a page.
    pub(super) fn observe<H: Host>(
        &mut self,
        attribution: &mut Attribution<H>,
        context: &SampleContext,
        sample: &Sample,
        spot: Option<Spot>,
    ) -> (ImageIndex, u64, DerivedEvent) {
        let images = &mut attribution.images;
        let (Some(registers), Some(spot)) = (&sample.registers, spot) else {
            return no_data(
                images,
                if sample.registers.is_none() { "no registers" } else { "code in no file" },
            );
        };
        let Spot::Image(image, offset) = spot else { return no_data(images, "code in no file") };
        match self.operand(attribution, (image, offset)) {
            Operand::At(operand) => {
                let address = operand.effective_address(sample.pc.0, |number| registers.general(number));
                self.datum(attribution, context, sample.pid, VirtualAddress(address), registers)
            }
            Operand::ThreadLocal => data_named(&mut attribution.images, "thread-local", "[thread-local]"),
            Operand::None => no_data(&mut attribution.images, "no memory operand"),
            Operand::Gs => no_data(&mut attribution.images, "relative to gs"),
            Operand::Vector => no_data(&mut attribution.images, "gather or scatter"),
            Operand::Stack => data_named(&mut attribution.images, "stack", "[stack]"),
            Operand::Overwritten => no_data(&mut attribution.images, "address overwritten"),
            Operand::Several => no_data(&mut attribution.images, "one of several instructions"),
            Operand::Undecoded => no_data(&mut attribution.images, "code not at hand or not decoded"),
        }
    }

    fn operand<H: Host>(&mut self, attribution: &mut Attribution<H>, place: (ImageIndex, u64)) -> Operand {
        if let Some(known) = self.operands.get(&place) {
            return *known;
        }
        if self.operands.len() >= OPERANDS_MAX {
            self.operands.clear();
        }
        let (images, host) = (&attribution.images, &mut attribution.host);
        let mut read = |offset: u64, code: &mut [u8]| read_code(images, host, place.0, offset, code);
        let operand = if cfg!(target_arch = "x86_64") {
            waiting::operand(place.1, &mut read)
        } else {
            Operand::Undecoded
        };
        self.operands.insert(place, operand);
        operand
    }

    /// Returns the image and offset for a data address, and the event that says whether the offset is exact or a page.
    fn datum<H: Host>(
        &mut self,
        attribution: &mut Attribution<H>,
        context: &SampleContext,
        pid: Pid,
        address: VirtualAddress,
        registers: &Registers,
    ) -> (ImageIndex, u64, DerivedEvent) {
        let now_ns = context.interval.until_ns;
        let age_ns = self.processes.get(&pid).map(|memory| now_ns.saturating_sub(memory.looked_ns));
        let is_missing = || self.area(pid, address).is_none();
        let look = match age_ns {
            None => true,
            Some(age_ns) => age_ns > AGE_MAX_NS || age_ns > AGE_OF_MISS_MIN_NS && is_missing(),
        };
        if look {
            self.look_at_memory(attribution, context, pid);
        }
        let Some(area) = self.area(pid, address) else {
            let nothing = self.processes.get(&pid).is_none_or(|memory| memory.areas.is_empty());
            let cause = if nothing { "process was gone" } else { "address in no mapping" };
            return no_data(&mut attribution.images, cause);
        };
        let (start, end, what) = (area.start, area.end, area.what);
        let stack_pointer = VirtualAddress(registers.general(RSP));
        if area.may_be_stack && (start..end).contains(&stack_pointer) {
            return data_named(&mut attribution.images, "stack", "[stack]");
        }
        match what {
            What::Named(image) => (image, 0, DerivedEvent::Data),
            What::Image { image, base } => {
                let distance = address.bytes_since(base);
                let addresses = &mut self.addresses;
                if addresses.len() < ADDRESSES_MAX || addresses.contains(&(image, distance)) {
                    addresses.insert((image, distance));
                    return (image, distance, DerivedEvent::Data);
                }
                (image, distance & !(PAGE_BYTES - 1), DerivedEvent::DataPage)
            }
        }
    }

    fn area(&self, pid: Pid, address: VirtualAddress) -> Option<&Area> {
        let areas = &self.processes.get(&pid)?.areas;
        let at = areas.partition_point(|area| area.end <= address);
        areas.get(at).filter(|area| area.start <= address)
    }

    fn look_at_memory<H: Host>(
        &mut self,
        attribution: &mut Attribution<H>,
        context: &SampleContext,
        pid: Pid,
    ) {
        if self.processes.len() >= PROCESSES_MAX {
            self.processes.clear();
        }
        let regions = attribution.host.memory(pid);
        let mut areas: Vec<Area> = Vec::with_capacity(regions.len());
        let mut bases: FxHashMap<&str, VirtualAddress> = FxHashMap::default();
        for (at, region) in regions.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| &regions[before]).filter(|b| b.end == region.start);
            let is_guarded = before.is_some_and(|before| before.is_guard);
            if region.file_offset == 0 && region.is_file() {
                bases.insert(&region.name, region.start);
            }
            let what = if region.is_file() {
                let base = bases.get(region.name.as_str()).copied();
                let base = base.unwrap_or_else(|| region.start.back(region.file_offset));
                match image_of_file(attribution, &regions, region, pid, context.execution) {
                    Some(image) => What::Image { image, base },
                    None => What::Named(self.data_by_name(
                        &mut attribution.images,
                        format!("file:{}", region.name),
                        &region.name,
                    )),
                }
            } else if region.name.is_empty() {
                // Memory directly behind an image's last bytes is its .bss, if the image has one; the reader of the counts
                // decides that.
                match (before.map(Region::is_file), areas.last()) {
                    (Some(true), Some(Area { what: what @ What::Image { .. }, .. })) => *what,
                    _ => What::Named(data_named(&mut attribution.images, "anonymous", "[anonymous]").0),
                }
            } else if region.name == "[heap]" {
                What::Named(data_named(&mut attribution.images, "heap", "[heap]").0)
            } else if region.name == "[stack]" {
                What::Named(data_named(&mut attribution.images, "stack", "[stack]").0)
            } else {
                // The kernel or the process named it: `[vvar]`, `[anon:glibc: malloc]`.
                let id = format!("mapping:{}", region.name);
                What::Named(self.data_by_name(&mut attribution.images, id, &region.name))
            };
            let may_be_stack = region.name.is_empty() && is_guarded && matches!(what, What::Named(_));
            areas.push(Area { start: region.start, end: region.end, what, may_be_stack });
        }
        self.processes.insert(pid, Memory { looked_ns: context.interval.until_ns, areas });
    }

    fn data_by_name(&mut self, images: &mut Images, id: String, shown: &str) -> ImageIndex {
        if let Some(known) = self.names.get(&id) {
            return *known;
        }
        if self.names.len() >= NAMES_MAX {
            return data_named(images, "others", "[other mappings]").0;
        }
        let image = images.named(ImageId::named(&format!("data:{id}")), ImageKind::Unknown, shown);
        self.names.insert(id, image);
        image
    }
}

/// Returns the image of a mapped file, if the process maps code of the file.
fn image_of_file<H: Host>(
    attribution: &mut Attribution<H>,
    regions: &[Region],
    region: &Region,
    pid: Pid,
    execution: ExecutionId,
) -> Option<ImageIndex> {
    let code = regions.iter().find(|r| r.is_executable && r.name == region.name)?;
    match attribution.mapped_place(pid, code.start, execution)? {
        Spot::Image(image, _) => Some(image),
        Spot::Code(..) => None,
    }
}

fn no_data(images: &mut Images, cause: &str) -> (ImageIndex, u64, DerivedEvent) {
    data_named(images, &format!("none:{cause}"), &format!("[{cause}]"))
}

fn data_named(images: &mut Images, what: &str, shown: &str) -> (ImageIndex, u64, DerivedEvent) {
    let id = ImageId::named(&format!("data:{what}"));
    (images.named(id, ImageKind::Unknown, shown), 0, DerivedEvent::Data)
}
