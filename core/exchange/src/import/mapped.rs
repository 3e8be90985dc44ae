//! Finds the image that a mapping of a profile belongs to, and where its addresses are in it: for pprof and OTLP, whose
//! mappings have the same fields.
//!
//! Enters: the path, the id and the addresses of a mapping, as the profile spells them. Leaves: a target, and the difference
//! between addresses and offsets. Never here: samples, bytes of a format.

use std::ops::Range;

use dwell_image::Image;
use dwell_profile::{BuildId, ImageId, ImageKind, ImageOffset};

use super::{
    imported::Target,
    locate::{Locator, Named},
};

/// The path of an image for locations without a mapping.
pub const NO_MAPPING: &[u8] = b"[no mapping]";
/// Number of images that are opened because their mapping has no offset.
pub const IMAGES_MAX: usize = 64;

/// The image of a mapping, and the difference between its addresses and the offsets in the image.
pub struct Mapped {
    /// The mapped addresses.
    pub addresses: Range<u64>,
    /// The image.
    pub of: Target,
    /// Addresses minus offsets, modulo 2^64.
    pub over: u64,
}

impl Mapped {
    /// Returns the mapping of a file, of the kernel or of what Dwell's exports name by an id; `None` for other memory.
    /// A limit of 0 means that there is no limit.
    pub fn new(path: &[u8], id: &str, (start, limit): (u64, u64), file_offset: u64) -> Option<Mapped> {
        let text = String::from_utf8_lossy(path);
        let end = if limit == 0 { u64::MAX } else { limit };
        let (of, over) = match special(&text, id, start) {
            // The kernel has no file offsets: its field contains an address. If the kernel's own addresses are missing,
            // offsets are addresses.
            Some(of) => (of, if is_high(start) { start } else { 0 }),
            None if text.starts_with('/') && !NAMELESS.iter().any(|n| text.starts_with(n)) => {
                let named = Named { path: path.to_vec(), build_id: BuildId::from_hex(id).ok() };
                (Target::File(named), start.wrapping_sub(file_offset))
            }
            None => return None,
        };
        Some(Mapped { addresses: start..end, of, over })
    }

    /// Corrects a mapping without a file offset, if the image is on this machine and another offset places more of these
    /// addresses in procedures. Returns a remark if it did.
    pub fn infer_offset(
        &mut self,
        locator: &Locator<'_>,
        addresses: impl Iterator<Item = u64>,
    ) -> Option<String> {
        let Target::File(file) = &self.of else { return None };
        let some: Vec<u64> = addresses.filter(|a| self.addresses.contains(a)).take(LOCATIONS_MAX).collect();
        let over = likely_over(&locator.open(file)?, self, &some)?;
        let path = String::from_utf8_lossy(&file.path);
        let remark = format!(
            "{path}: the profile lacks the offset of its mapping: one that places the samples in functions was assumed"
        );
        self.over = over;
        Some(remark)
    }
}

/// Path prefixes of mappings of memory, whose code was generated.
const NAMELESS: [&str; 5] = ["//anon", "/memfd:", "/dev/zero", "/anon_hugepage", "/SYSV"];

fn is_high(address: u64) -> bool {
    address >> 63 == 1
}

/// Returns the target of a mapping that is not a file. It is recognized by the name that perf and its converters use,
/// or by the id that Dwell's own export wrote.
fn special(path: &str, id: &str, start: u64) -> Option<Target> {
    let recorded = |id: String, kind| Some(Target::Recorded(ImageId::named(&id), kind, path.into()));
    if id.starts_with("jit:") {
        return recorded(id.to_owned(), ImageKind::Jit);
    }
    if id.starts_with("named:") {
        return None;
    }
    if id == "kernel" || path.starts_with("[kernel") || path.starts_with("/proc/kcore") && is_high(start) {
        return Some(Target::Kernel);
    }
    if id.starts_with("vdso") || path.starts_with("[vdso") || path.starts_with("linux-vdso") {
        let of_build = BuildId::from_hex(id).ok().map(|id| format!("vdso:{id}"));
        let own = Some(id).filter(|id| id.starts_with("vdso")).map(str::to_owned);
        return recorded(of_build.or(own).unwrap_or_else(|| "vdso".to_owned()), ImageKind::Vdso);
    }
    let is_module = id.starts_with("module:") || is_high(start) && path != "[vsyscall]" && !path.is_empty();
    is_module.then(|| Target::module(&dwell_attribution::module_name(path)))
}

/// Number of locations that are tried on each such image.
const LOCATIONS_MAX: usize = 1000;

/// Returns the most likely difference between addresses and offsets for a mapping without an offset; `None` if the
/// mapping is right as it is.
///
/// Such a mapping may really map the start of the file, but many writers leave offsets out. There are three other
/// possibilities: the addresses are the image's own; the whole image is mapped from the first address on; only its code
/// is mapped there. The possibility is chosen by which most locations are in procedures.
fn likely_over(image: &Image, mapped: &Mapped, locations: &[u64]) -> Option<u64> {
    let start = mapped.addresses.start;
    let first = image.procedures().iter().map(|p| p.address).min()?;
    let code_over = first.0.wrapping_sub(image.offset_of(first)?.0);
    let base = image.address_of(ImageOffset(0)).map_or(0, |a| a.0);
    let page = |address: u64| address & !0xfff;
    let in_procedures = |over: &u64| {
        let is_in = |address: &&u64| {
            let offset = ImageOffset(address.wrapping_sub(*over));
            let Some(address) = image.address_of(offset) else { return false };
            image.procedure_at(address).is_some_and(|p| address.0 - p.address.0 < p.size_bytes.max(1))
        };
        locations.iter().filter(is_in).count()
    };
    let whole = start.wrapping_sub(base).wrapping_add(code_over);
    let code_alone = start.wrapping_sub(page(first.0.wrapping_sub(code_over)));
    let others = [code_over, whole, code_alone];
    let said = in_procedures(&mapped.over);
    let best = others.into_iter().map(|over| (in_procedures(&over), over)).max_by_key(|(n, _)| *n)?;
    (best.0 > said).then_some(best.1)
}
