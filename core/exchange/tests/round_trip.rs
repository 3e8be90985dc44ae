//! Tests that an exported profile can be imported, with the same samples in the same procedures. Also tests pprof profiles
//! whose writers left offsets out.

use std::{collections::BTreeMap, fs, path::PathBuf};

use dwell_exchange::{Format, ImportFile, Imported, export, import_perf_data};
use dwell_image::Image;
use dwell_profile::Database;
use dwell_query::{
    Cancel, Options, Query, TopRequest,
    answer::{InstructionPlace, PlaceEvent, PlaceFrame, Places, ProcedurePlaces},
};
use jiff::Timestamp;

mod support;
use support::compile;

const SOURCE: &str = "\
#include <stdint.h>
static inline __attribute__((always_inline)) uint64_t mix(uint64_t x) { return x * 31 + 7; }
__attribute__((noinline)) uint64_t spin(uint64_t n) {
  uint64_t x = 1;
  for (uint64_t i = 0; i < n; i++)
    x = mix(x) + i;
  return x;
}
__attribute__((noinline)) uint64_t other(uint64_t n) {
  return n / 3;
}
int main(int argc, char **argv) {
  (void)argv;
  return (int)(spin(argc) + other(argc));
}
";

struct Scene {
    folder: tempfile::TempDir,
    image: Image,
}

impl Scene {
    /// Builds the program. With lld, a file's offsets differ from its addresses; with GNU ld they are usually equal.
    fn new(linking: &[&str]) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let program = compile(folder.path(), SOURCE, linking);
        Scene { image: Image::open(&program).unwrap(), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns samples on every instruction of `spin`, and twice as many on those of `other`. `moved` maps an address of the
    /// image to the sampled one.
    fn places(&self, moved: impl Fn(u64) -> u64, over: impl Fn(u64) -> u64) -> Places {
        let procedure = |name: &str, each: u64| {
            let p = self.image.procedures().iter().find(|p| p.name() == name).unwrap();
            let place = |i: &dwell_image::Instruction| InstructionPlace {
                address: moved(i.address.0),
                samples: vec![each],
                head_samples: each as f64,
                executions: None,
                frames: self.image.frames(i.address).into_iter().map(frame).collect(),
            };
            ProcedurePlaces {
                procedure: name.into(),
                demangled: name.into(),
                image: self.path("spin").display().to_string(),
                build_id: self.image.build_id().unwrap().to_string(),
                address: moved(p.address.0),
                image_base: 0,
                address_over_offset: over(p.address.0),
                file: None,
                line: None,
                instructions: self.image.instructions(p.address, p.size_bytes).iter().map(place).collect(),
            }
        };
        Places {
            epochs: vec!["e".into()],
            events: vec![PlaceEvent { name: "cpu-clock".into(), period: 1_000_000, unit: "ns".into() }],
            period_cycles: None,
            start_ns: 0,
            duration_ns: 0,
            procedures: vec![procedure("spin", 10), procedure("other", 20)],
            notes: Vec::new(),
        }
    }

    fn own_places(&self) -> Places {
        self.places(|address| address, |address| self.over(address))
    }

    fn over(&self, address: u64) -> u64 {
        address - self.image.offset_of(dwell_image::ImageAddress(address)).unwrap().0
    }

    /// Imports a profile. Returns its samples by procedure.
    fn imported(&self, bytes: &[u8]) -> (BTreeMap<String, u64>, Imported) {
        fs::write(self.path("profile"), bytes).unwrap();
        let database = Database::open(self.path("db")).unwrap();
        let request = ImportFile { path: self.path("profile"), ..ImportFile::default() };
        let imported = import_perf_data(&database, &request, Timestamp::now()).unwrap();
        let query = Query::open(Options::for_database(self.path("db"))).unwrap();
        let top = query.top(&TopRequest::default(), &Cancel::new()).unwrap();
        let rows = top.rows.into_iter().map(|r| (r.procedure.unwrap(), r.samples.values().sum()));
        (rows.collect(), imported)
    }
}

fn frame(frame: dwell_image::Frame) -> PlaceFrame {
    PlaceFrame { function: frame.function, file: frame.file.map(|f| f.to_string()), line: frame.line }
}

/// Maps an address of the image to the address at which it was sampled.
type Moved = Box<dyn Fn(u64) -> u64>;

/// Returns the exported samples by procedure.
fn exported(places: &Places) -> BTreeMap<String, u64> {
    let sum = |p: &ProcedurePlaces| (p.procedure.clone(), p.instructions.iter().map(|i| i.samples[0]).sum());
    places.procedures.iter().map(sum).collect()
}

#[test]
fn exports_can_be_imported() {
    for linking in [&["-pie"][..], &["-no-pie"], &["-Wl,-z,noseparate-code"]] {
        let scene = Scene::new(linking);
        let places = scene.own_places();
        let inlined = places.procedures[0].instructions.iter().any(|i| i.frames.len() > 1);
        assert!(inlined, "the test has an inlined call");
        for format in [Format::Pprof, Format::PerfScript, Format::Otlp] {
            let (found, imported) = scene.imported(&export(&places, None, format));
            assert_eq!(found, exported(&places), "{format:?} {linking:?}: {:?}", imported.notes);
        }
    }
}

#[test]
fn missing_offsets_of_mappings_are_inferred_from_samples() {
    let scene = Scene::new(&["-pie"]);
    let spin = scene.image.procedures().iter().find(|p| p.name() == "spin").unwrap().address.0;
    let first = scene.image.procedures().iter().map(|p| p.address.0).min().unwrap() & !0xfff;
    let page = |address: u64| address & !0xfff;
    assert!(first > 0 && page(spin) == first, "code lies in one page that is not the file's first");
    let base = 0x5555_5555_0000;
    let wanted = exported(&scene.own_places());
    let ways: [(&str, Moved); 2] = [
        ("the image's own addresses", Box::new(|a| a)),
        ("its code alone is mapped", Box::new(move |a| base + a - first)),
    ];
    for (way, moved) in ways {
        // Exported mappings begin at the page of the first sample. If the code is moved by that distance, they have no
        // offset.
        let places = scene.places(&moved, |address| page(moved(address)));
        let (found, imported) = scene.imported(&export(&places, None, Format::Pprof));
        assert_eq!(found, wanted, "{way}: {:?}", imported.notes);
        assert!(
            imported.notes.iter().any(|n| n.contains("lacks the offset of its mapping")),
            "{:?}",
            imported.notes
        );
    }
}
