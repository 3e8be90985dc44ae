//! How often each instruction was executed, by the binary that it is in.
//!
//! Enters: a trace, and the binaries on this machine. Leaves: counts by the binary's own addresses, as its symbols have them.

use std::{collections::BTreeMap, io, path::Path};

use dwell_image::Image;
use dwell_profile::{ImageOffset, VirtualAddress};
use rustc_hash::FxHashMap;

use crate::{Item, Mapping, Totals, Trace};

/// The counts of a binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageCounts {
    /// Its build id in hexadecimal; its path if it has none or is not here.
    pub image: String,
    /// Its path, or a name such as `[vdso]`.
    pub path: String,
    /// Whether addresses are the binary's own. Otherwise the binary is not here, and they are offsets in its file.
    pub is_here: bool,
    /// Executions by address, ascending.
    pub counts: BTreeMap<u64, u64>,
}

/// What was counted of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The binaries, by path.
    pub images: Vec<ImageCounts>,
    /// Executions of code that is in no file, such as code of just-in-time compilers.
    pub elsewhere: u64,
    /// What was read.
    pub totals: Totals,
    /// What was left out, and why.
    pub warnings: Vec<String>,
}

impl Trace {
    /// Counts all instructions of all threads.
    pub fn counts(&self) -> io::Result<Counts> {
        let mut counted = Counts { warnings: self.warnings.clone(), ..Counts::default() };
        let mut by_offset: BTreeMap<&str, FxHashMap<u64, u64>> = BTreeMap::new();
        for number in 0..self.manifest.threads.len() as u32 {
            let mut stream = self.stream(number)?;
            let mut by_pc: FxHashMap<VirtualAddress, u64> = FxHashMap::default();
            let done = stream.each(&mut |item| {
                if let Item::Instruction { pc, .. } = item {
                    *by_pc.entry(pc).or_default() += 1;
                }
            });
            counted.warnings.extend(stream.warnings.iter().cloned());
            counted.warnings.extend(done.err().map(|broken| format!("thread {number}: {broken}")));
            counted.totals.add(stream.totals);
            let mappings: Vec<&Mapping> =
                self.mappings(self.manifest.threads[number as usize].space).collect();
            for (pc, executions) in by_pc {
                match mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&pc)) {
                    Some(mapping) => {
                        let offset = pc.bytes_since(mapping.start) + mapping.offset;
                        *by_offset.entry(&mapping.path).or_default().entry(offset).or_default() += executions;
                    }
                    None => counted.elsewhere += executions,
                }
            }
        }
        counted.images = by_offset.into_iter().map(|(path, offsets)| named(path, &offsets)).collect();
        Ok(counted)
    }
}

/// Converts offsets in a file to the binary's own addresses.
fn named(path: &str, offsets: &FxHashMap<u64, u64>) -> ImageCounts {
    let image = Image::open(Path::new(path)).ok();
    let address = |offset: u64| {
        let found = image.as_ref().and_then(|image| image.address_of(ImageOffset(offset)));
        found.map_or(offset, |address| address.0)
    };
    let mut counts = BTreeMap::new();
    for (offset, executions) in offsets {
        *counts.entry(address(*offset)).or_default() += executions;
    }
    let build_id = image.as_ref().and_then(|image| image.build_id()).map(ToString::to_string);
    let is_here = image.is_some();
    ImageCounts { image: build_id.unwrap_or_else(|| path.to_owned()), path: path.to_owned(), is_here, counts }
}
