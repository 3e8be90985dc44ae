//! The places of locations, and the names that a message gives them.
//!
//! Enters: the dictionary of a message. Leaves: targets and offsets of its locations, texts, attributes. Never here: an index that
//! was not checked; samples.
//!
//! Source: `reporter/internal/pdata/generate.go` and `libpf/trace.go` of the OpenTelemetry eBPF profiler (b442421a, August 2026).
//! There an address is one of the file's headers ("ELF VA space"), that of a caller is inside its call, and mappings report
//! the same addresses with the file offset. Mappings name files without their folder. Code of the kernel has the type `kernel`,
//! a mapping that only names `vmlinux` or a module, and addresses from its start on; frames of interpreters have names alone.

use std::borrow::Cow;

use dwell_profile::{BuildId, ImageId, ImageKind, NamedFrame};
use dwell_query::NO_SYMBOL;
use linux_perf_data::DsoKey;
use rustc_hash::FxHashMap;

use super::{
    message::{AnyValue, Dictionary, Location, Mapping},
    process::AttributeValue,
};
use crate::import::{
    call_stacks::Place,
    imported::{ImportedProfile, Target},
    locate::{Locator, Named},
    mapped::{IMAGES_MAX, Mapped, NO_MAPPING},
    names::{FunctionText, Names},
};

/// The attribute of a mapping with the build ID in the file's note.
const BUILD_ID: &str = "process.executable.build_id.gnu";
/// The attributes that tell files without a note apart: a hash of the file's head, tail and length, and the text that Go writes.
const OTHER_IDS: [&str; 2] = ["process.executable.build_id.htlhash", "process.executable.build_id.go"];
/// The attribute with the type of a frame.
const FRAME_TYPE: &str = "profile.frame.type";
/// The type of a frame of the kernel.
const KERNEL: &str = "kernel";
/// The name that mappings of the kernel's own code have.
const VMLINUX: &[u8] = b"vmlinux";

/// What is learned of images once for all messages.
pub struct KnownImages<'l> {
    locator: &'l Locator<'l>,
    /// Paths of programs by the names of their files, from the attributes of processes.
    pub paths: FxHashMap<Vec<u8>, Vec<u8>>,
    /// Differences between addresses and offsets that were inferred, by image and start of the mapping.
    inferred: FxHashMap<(Target, u64), u64>,
}

impl<'l> KnownImages<'l> {
    /// Returns an empty table.
    pub fn new(locator: &'l Locator<'l>) -> Self {
        KnownImages { locator, paths: FxHashMap::default(), inferred: FxHashMap::default() }
    }
}

/// What identifies the file of a mapping.
struct FileId {
    /// The build ID, or the id that Dwell's exports write; empty if there is none.
    id: String,
    /// Another text that only this file has; empty if there is none.
    other: String,
}

/// The dictionary of a message, and what its locations and mappings turned out to be.
pub struct Tables<'m> {
    dictionary: &'m Dictionary,
    mapped: FxHashMap<i32, Option<Mapped>>,
    found: FxHashMap<i32, (u64, Option<Place>)>,
    /// Addresses of the locations in each mapping without a file offset.
    addresses: FxHashMap<i32, Vec<u64>>,
}

impl<'m> Tables<'m> {
    /// Checks what tells another version of the schema apart, whose fields have other meanings.
    pub fn new(dictionary: &'m Dictionary) -> Result<Tables<'m>, String> {
        let first = dictionary.string_table.first();
        if first.is_some_and(|text| !text.is_empty()) {
            return Err(
                "the first entry of its table of strings is not empty: another version of the schema"
                    .to_owned(),
            );
        }
        if dictionary.stack_table.is_empty() && !dictionary.location_table.is_empty() {
            return Err("it has no table of stacks: written for opentelemetry-proto before 1.8".to_owned());
        }
        let mut addresses: FxHashMap<i32, Vec<u64>> = FxHashMap::default();
        for location in &dictionary.location_table {
            let mapping = usize::try_from(location.mapping_index).ok();
            let mapping = mapping.and_then(|index| dictionary.mapping_table.get(index));
            if location.mapping_index > 0 && mapping.is_some_and(|mapping| mapping.file_offset == 0) {
                addresses.entry(location.mapping_index).or_default().push(location.address);
            }
        }
        Ok(Tables { dictionary, mapped: FxHashMap::default(), found: FxHashMap::default(), addresses })
    }

    /// Returns a text.
    pub fn text(&self, index: i32) -> Result<Cow<'m, str>, String> {
        Ok(String::from_utf8_lossy(self.bytes(index)?))
    }

    fn bytes(&self, index: i32) -> Result<&'m [u8], String> {
        // A message without any text may have no table.
        match index {
            0 => Ok(&[]),
            _ => entry(&self.dictionary.string_table, index, "strings").map(Vec::as_slice),
        }
    }

    /// Returns the locations of a stack, innermost first. Stack 0 has none.
    pub fn stack(&self, index: i32) -> Result<&'m [i32], String> {
        match index {
            0 => Ok(&[]),
            _ => Ok(&entry(&self.dictionary.stack_table, index, "stacks")?.location_indices),
        }
    }

    /// Returns key and value of an attribute.
    pub fn attribute(&self, index: i32) -> Result<(Cow<'m, str>, AttributeValue), String> {
        let attribute = entry(&self.dictionary.attribute_table, index, "attributes")?;
        Ok((self.text(attribute.key_strindex)?, self.value(attribute.value.as_ref())?))
    }

    /// Returns what a value says.
    pub fn value(&self, value: Option<&AnyValue>) -> Result<AttributeValue, String> {
        let Some(value) = value else { return Ok(AttributeValue::Other) };
        let number = value.int_value.map(AttributeValue::Number);
        let text = match &value.string_value[..] {
            [] => self.text(value.string_value_strindex)?,
            text => String::from_utf8_lossy(text),
        };
        let text = (!text.is_empty()).then(|| AttributeValue::Text(text.into_owned()));
        Ok(number.or(text).unwrap_or(AttributeValue::Other))
    }

    /// Returns the text of the first of these attributes that is there.
    fn attribute_text(&self, indices: &[i32], key: &str) -> Result<Option<String>, String> {
        for index in indices {
            if let (name, AttributeValue::Text(text)) = self.attribute(*index)?
                && name == key
            {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// Returns the name of the first mapped file, which by convention is that of the program.
    pub fn first_file(&self) -> Result<Option<Cow<'m, str>>, String> {
        let first = self.dictionary.mapping_table.get(1);
        first.map(|mapping| self.text(mapping.filename_strindex)).transpose()
    }

    /// Returns the address of a location, and its target and offset, and stores its names. There is no place if neither a
    /// mapping nor a name gives one.
    pub fn place(
        &mut self,
        index: i32,
        known: &mut KnownImages<'_>,
        imported: &mut ImportedProfile,
    ) -> Result<(u64, Option<Place>), String> {
        if let Some(found) = self.found.get(&index) {
            return Ok(*found);
        }
        let location = entry(&self.dictionary.location_table, index, "locations")?;
        let place = self.find(location, known, imported)?;
        self.found.insert(index, (location.address, place));
        Ok((location.address, place))
    }

    fn find(
        &mut self,
        location: &Location,
        known: &mut KnownImages<'_>,
        imported: &mut ImportedProfile,
    ) -> Result<Option<Place>, String> {
        let frame_type = self.attribute_text(&location.attribute_indices, FRAME_TYPE)?;
        let frames = self.frames(location, &mut imported.names)?;
        let mut path: &[u8] = &[];
        if location.mapping_index != 0 {
            let mapping = entry(&self.dictionary.mapping_table, location.mapping_index, "mappings")?;
            path = self.bytes(mapping.filename_strindex)?;
            let file = self.file_id(mapping)?;
            // Dwell's exports name what was sampled in no mapping by its id.
            if file.id == "unknown" {
                return Ok(None);
            }
            if frame_type.as_deref() == Some(KERNEL) && !path.is_empty() {
                let target = kernel(path, &file.id, imported);
                let target = imported.intern(target);
                imported.names.add(target, location.address, None, frames);
                return Ok(Some((target, location.address)));
            }
            if !self.mapped.contains_key(&location.mapping_index) {
                let mapped = self.mapped(location.mapping_index, path, &file, known, imported)?;
                self.mapped.insert(location.mapping_index, mapped);
            }
        }
        let mapped = self.mapped.get(&location.mapping_index).and_then(Option::as_ref);
        // A location without an address has 0, which is no code of a file.
        let mapped = mapped.filter(|m| {
            m.addresses.contains(&location.address)
                && (location.address > 0 || !matches!(m.of, Target::File(_)))
        });
        if let Some(mapped) = mapped {
            let target = imported.intern(mapped.of.clone());
            let offset = location.address.wrapping_sub(mapped.over);
            let is_nameless = matches!(&frames[..], [only] if stands_for_no_name(&only.function, path));
            if !is_nameless {
                imported.names.add(target, offset, None, frames);
            }
            return Ok(Some((target, offset)));
        }
        if frames.is_empty() {
            return Ok(None);
        }
        let of_type = frame_type.map(|kind| format!("[{kind}]").into_bytes());
        let image = if path.is_empty() { of_type.as_deref().unwrap_or(NO_MAPPING) } else { path };
        Ok(Some(imported.numbered(image, frames, 0)))
    }

    fn file_id(&self, mapping: &Mapping) -> Result<FileId, String> {
        let text = |key| self.attribute_text(&mapping.attribute_indices, key);
        let [hash, go] = OTHER_IDS.map(text);
        let other = hash?.or(go?).unwrap_or_default();
        Ok(FileId { id: text(BUILD_ID)?.unwrap_or_default(), other })
    }

    fn mapped(
        &self,
        index: i32,
        path: &[u8],
        file: &FileId,
        known: &mut KnownImages<'_>,
        imported: &mut ImportedProfile,
    ) -> Result<Option<Mapped>, String> {
        let mapping = entry(&self.dictionary.mapping_table, index, "mappings")?;
        let range = (mapping.memory_start, mapping.memory_limit);
        let full = known.paths.get(path).map_or(path, Vec::as_slice);
        let mapped = Mapped::new(full, &file.id, range, mapping.file_offset);
        let Some(mut mapped) = mapped.or_else(|| bare(path, file, mapping)) else { return Ok(None) };
        if file.id.is_empty() && !file.other.is_empty() && matches!(mapped.of, Target::File(_)) {
            mapped.of = hashed(&file.other, full);
        }
        let key = (mapped.of.clone(), mapping.memory_start);
        if mapping.file_offset > 0 || !matches!(mapped.of, Target::File(_)) {
            return Ok(Some(mapped));
        }
        if let Some(over) = known.inferred.get(&key) {
            mapped.over = *over;
        } else if known.inferred.len() < IMAGES_MAX {
            let addresses = self.addresses.get(&index).into_iter().flatten().copied();
            imported.remarks.extend(mapped.infer_offset(known.locator, addresses));
            known.inferred.insert(key, mapped.over);
        }
        Ok(Some(mapped))
    }

    /// Returns the calls at a location, innermost first; none if a function has no name.
    fn frames(&self, location: &Location, names: &mut Names) -> Result<Vec<NamedFrame>, String> {
        let mut frames = Vec::new();
        for line in &location.lines {
            let function = entry(&self.dictionary.function_table, line.function_index, "functions")?;
            let (name, linkage) =
                (self.text(function.name_strindex)?, self.text(function.system_name_strindex)?);
            let said = FunctionText {
                function: if name.is_empty() { &linkage } else { &name },
                linkage: &linkage,
                file: &self.text(function.filename_strindex)?,
                line: line.line,
                begin: function.start_line,
            };
            if said.function.is_empty() {
                return Ok(Vec::new());
            }
            frames.push(names.frame(said));
        }
        Ok(frames)
    }
}

/// Returns whether a name is what exports of Dwell have where there is none: `[no symbol]`, or the image in brackets.
fn stands_for_no_name(name: &str, path: &[u8]) -> bool {
    let image = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_bracketed = image.starts_with(b"[") && name.as_bytes() == image;
    name == NO_SYMBOL || is_bracketed || inner.is_some_and(|inner| inner.as_bytes() == image)
}

/// Returns the entry of a table.
fn entry<'m, T>(table: &'m [T], index: i32, what: &str) -> Result<&'m T, String> {
    let found = usize::try_from(index).ok().and_then(|index| table.get(index));
    found.ok_or_else(|| {
        format!("index {index} is outside its table of {what}, which has {} entries", table.len())
    })
}

/// Returns the target of code of the kernel. The build ID of the kernel itself is noted.
fn kernel(path: &[u8], id: &str, imported: &mut ImportedProfile) -> Target {
    if path != VMLINUX && !path.starts_with(b"[kernel") {
        return Target::module(&dwell_attribution::module_name(&String::from_utf8_lossy(path)));
    }
    if let Ok(id) = BuildId::from_hex(id)
        && imported.build_id(&DsoKey::Kernel).is_none()
    {
        imported.build_ids.push((DsoKey::Kernel, id));
    }
    Target::Kernel
}

/// Returns the target of a file that is known by a text which only it has. There is no telling whether a file at that path, in another
/// container perhaps, is the same.
fn hashed(text: &str, path: &[u8]) -> Target {
    let path = String::from_utf8_lossy(path);
    Target::Recorded(ImageId::named(&format!("file:{text}")), ImageKind::File, path.into())
}

/// Returns the mapping of a file whose folder the profile does not name. Without a build ID nothing on this machine is
/// taken for it, since another file may have the same name.
fn bare(path: &[u8], file: &FileId, mapping: &Mapping) -> Option<Mapped> {
    if path.is_empty() || path.contains(&b'/') || path.starts_with(b"[") || file.id.starts_with("named:") {
        return None;
    }
    let of = match BuildId::from_hex(&file.id) {
        Ok(id) => Target::File(Named { path: path.to_vec(), build_id: Some(id) }),
        Err(_) => {
            // An export of Dwell's has the id of an earlier import.
            let own = file.id.strip_prefix("file:").map(Cow::from);
            let other = Some(&*file.other).filter(|other| !other.is_empty()).map(Cow::from);
            hashed(&own.or(other).unwrap_or_else(|| String::from_utf8_lossy(path)), path)
        }
    };
    let end = if mapping.memory_limit == 0 { u64::MAX } else { mapping.memory_limit };
    let over = mapping.memory_start.wrapping_sub(mapping.file_offset);
    Some(Mapped { addresses: mapping.memory_start..end, of, over })
}
