//! Finds procedures by name.
//!
//! Input: a name as a user spells it. Output: the procedure, or the procedures that the name may refer to.

use dwell_image::{ImageAddress, Procedure, without_parameters};
use dwell_profile::{ImageRecord, path_to_text};

use crate::{
    QueryError,
    analyse::{
        procedures::{ProcedureSamples, image_name},
        similar_names,
    },
    load::{images::ImageStore, samples::CountsByEvent, selection::Selection},
};

/// Finds the procedure called `NAME` or `IMAGE:NAME`. NAME is a linkage name, a demangled name with or without its
/// parameters, or a hexadecimal address (`0x…`) in the procedure. IMAGE is a path, a file name or an image id. Procedures
/// with samples take precedence over those without.
pub fn by_name(
    selection: &Selection,
    store: &ImageStore,
    sampled: &[ProcedureSamples],
    name: &str,
) -> Result<ProcedureSamples, QueryError> {
    let readings = readings(name);
    let matches: Vec<&ProcedureSamples> =
        sampled.iter().filter(|p| readings.iter().any(|r| r.fits(selection, p))).collect();
    match matches[..] {
        [one] => Ok(one.clone()),
        [] => by_symbol(selection, store, sampled, &readings).ok_or_else(|| QueryError::NoProcedure {
            name: name.to_owned(),
            epoch: selection.name(),
            similar: similar(selection, store, sampled, &readings),
        }),
        _ => Err(QueryError::Ambiguous {
            name: name.to_owned(),
            candidates: matches.iter().take(10).map(|p| p.id.clone()).collect(),
        }),
    }
}

/// One way to split `[IMAGE:]NAME`. There may be several, since names and paths may contain colons.
struct Reading<'a> {
    image: Option<&'a str>,
    name: &'a str,
    address: Option<u64>,
}

fn readings(text: &str) -> Vec<Reading<'_>> {
    let bytes = text.as_bytes();
    let single_colon =
        |i: &usize| bytes[*i] == b':' && bytes.get(i + 1) != Some(&b':') && (*i == 0 || bytes[i - 1] != b':');
    let splits = (0..bytes.len()).filter(single_colon).map(|i| (Some(&text[..i]), &text[i + 1..]));
    std::iter::once((None, text))
        .chain(splits)
        .map(|(image, name)| {
            let address = name.strip_prefix("0x").and_then(|h| u64::from_str_radix(h, 16).ok());
            Reading { image, name, address }
        })
        .collect()
}

impl Reading<'_> {
    fn fits(&self, selection: &Selection, p: &ProcedureSamples) -> bool {
        self.fits_image(&selection.images[p.image].record)
            && (self.fits_name(&p.name, &p.demangled)
                || p.address.is_some_and(|a| self.fits_address(a, p.size_bytes)))
    }

    fn fits_image(&self, record: &ImageRecord) -> bool {
        let Some(image) = self.image else { return true };
        path_to_text(&record.path) == image || record.id.as_str() == image || image_name(record) == image
    }

    fn fits_name(&self, name: &str, demangled: &str) -> bool {
        // A part or copy of a function that the compiler made is not the function itself: it is only suggested.
        let whole = similar_names::without_clones(demangled).len() == demangled.len();
        self.name == name || self.name == demangled || whole && self.name == without_parameters(demangled)
    }

    /// Returns whether the name is the procedure's name without what compilers and namespaces add to it.
    fn resembles(&self, name: &str, demangled: &str) -> bool {
        let written = similar_names::without_clones(demangled);
        self.name == similar_names::without_clones(name)
            || self.name == written
            || similar_names::ends_in(
                &similar_names::without_arguments(without_parameters(written)),
                self.name,
            )
    }

    fn fits_address(&self, start: ImageAddress, size_bytes: u64) -> bool {
        self.address.is_some_and(|a| a >= start.0 && a - start.0 < size_bytes.max(1))
    }
}

/// Finds the procedure that has a symbol (or an alias) of that name, with its samples if it has any.
fn by_symbol(
    selection: &Selection,
    store: &ImageStore,
    sampled: &[ProcedureSamples],
    readings: &[Reading<'_>],
) -> Option<ProcedureSamples> {
    let mut images = selection.images.iter().enumerate();
    images.find_map(|(index, samples)| {
        let readings: Vec<_> = readings.iter().filter(|r| r.fits_image(&samples.record)).collect();
        let found = store.find(&samples.record);
        let image = found.image.as_deref().ok().filter(|_| !readings.is_empty())?;
        let fits = |p: &Procedure<'_>| {
            let (name, demangled) = (p.name(), p.demangled());
            readings.iter().any(|r| r.fits_name(&name, &demangled) || r.fits_address(p.address, p.size_bytes))
        };
        let fits_alias = |p: &Procedure<'_>| {
            let fits =
                |alias: &str| readings.iter().any(|r| r.fits_name(alias, &dwell_image::demangle(alias)));
            p.aliases().iter().any(|alias| fits(alias))
        };
        let mut procedures = image.procedures().iter();
        let found = procedures.clone().find(fits).or_else(|| procedures.find(fits_alias))?;
        let known = sampled.iter().find(|s| s.image == index && s.address == Some(found.address));
        Some(known.cloned().unwrap_or_else(|| without_samples(index, &found)))
    })
}

/// Largest number of similar names that an error suggests.
const SIMILAR_MAX: usize = 10;

/// Returns the procedures that a name may refer to, those with samples first.
fn similar(
    selection: &Selection,
    store: &ImageStore,
    sampled: &[ProcedureSamples],
    readings: &[Reading<'_>],
) -> Vec<(String, u64)> {
    let fits = |record: &ImageRecord, name: &str, demangled: &str| {
        readings.iter().any(|r| r.fits_image(record) && r.resembles(name, demangled))
    };
    let with_samples = sampled
        .iter()
        .filter(|p| fits(&selection.images[p.image].record, &p.name, &p.demangled))
        .map(|p| (p.id.clone(), p.counts.first().copied().unwrap_or(0)));
    let mut found: Vec<(String, u64)> = with_samples.take(SIMILAR_MAX).collect();
    for samples in &selection.images {
        let image = store.find(&samples.record);
        for p in image.image.iter().flat_map(|image| image.procedures().iter()) {
            if found.len() >= SIMILAR_MAX {
                return found;
            }
            let id = format!("{}:{}", image_name(&samples.record), p.name());
            if fits(&samples.record, &p.name(), &p.demangled()) && found.iter().all(|(known, _)| *known != id)
            {
                found.push((id, 0));
            }
        }
    }
    found
}

fn without_samples(image: usize, p: &Procedure<'_>) -> ProcedureSamples {
    ProcedureSamples {
        id: String::new(),
        image,
        name: p.name().into_owned(),
        demangled: p.demangled(),
        address: Some(p.address),
        size_bytes: p.size_bytes,
        points: Vec::new(),
        counts: CountsByEvent::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demangled_name_loses_its_parameters_only() {
        for (full, short) in [
            ("main", "main"),
            ("ns::f(int, char)", "ns::f"),
            ("A::operator()(int)", "A::operator()"),
            ("(anonymous namespace)::f(void (*)(int))", "(anonymous namespace)::f"),
            ("core::ops::function::FnOnce::call_once", "core::ops::function::FnOnce::call_once"),
            ("f()::{lambda()#1}::operator()", "f()::{lambda()#1}::operator"),
        ] {
            assert_eq!(without_parameters(full), short);
        }
    }

    #[test]
    fn an_image_is_split_off_at_single_colons_only() {
        let read = |text| readings(text).iter().map(|r| (r.image, r.name)).collect::<Vec<_>>();
        assert_eq!(read("a::b"), [(None, "a::b")]);
        assert_eq!(read("lib.so:a::b"), [(None, "lib.so:a::b"), (Some("lib.so"), "a::b")]);
    }
}
