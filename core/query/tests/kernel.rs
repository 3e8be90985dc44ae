//! The kernel's procedures by instruction: its text is found by build id, and nothing of another build is shown.

use std::{fs, path::PathBuf, process::Command};

use dwell_image::Image;
use dwell_profile::{
    Counts, Database, Epoch, EpochId, Event, ImageId, ImageKind, ImageOffset, ImageRecord, ImageSymbol,
    SampleKey,
};
use dwell_query::{Cancel, ImportRequest, Options, Query, QueryError, import_counts};
use jiff::Timestamp;

const SOURCE: &str = "\
__attribute__((noinline)) unsigned long fill(unsigned long *to, unsigned long count)
{
	for (unsigned long at = 0; at < count; at++)
		to[at] = at * 3;
	return count;
}
unsigned long twice(unsigned long *to, unsigned long count)
{
	return fill(to, count) + fill(to, count);
}
";
/// Link address of the x86-64 kernel.
const TEXT: u64 = 0xffff_ffff_8100_0000;
/// Samples of the loop's store, which lies so far from its function's start.
const SAMPLES: u64 = 1000;

struct Scene {
    dir: tempfile::TempDir,
    vmlinux: PathBuf,
}

impl Scene {
    /// A kernel of two functions, whose file is in a folder of debug information laid out like Debian's packages.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (source, folder) = (dir.path().join("fill.c"), dir.path().join("debug/boot"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(&source, SOURCE).unwrap();
        let vmlinux = folder.join("vmlinux-6.1.0");
        let built = Command::new("gcc")
            .args([
                "-O1",
                "-g",
                "-nostdlib",
                "-static",
                "-no-pie",
                "-fno-pic",
                "-Wl,--build-id",
                "-Wl,-e,twice",
            ])
            .args([format!("-Wl,-Ttext={TEXT:#x}"), format!("-Wl,--defsym=_text={TEXT:#x}")])
            .args(cfg!(target_arch = "x86_64").then_some("-mcmodel=kernel"))
            .arg(&source)
            .arg("-o")
            .arg(&vmlinux)
            .status();
        assert!(built.unwrap().success());
        Scene { dir, vmlinux }
    }

    /// An epoch with samples of the loop in the kernel, by a recording that says so of its builds.
    fn record(&self, name: &str, kernel_builds: Vec<String>) {
        let image = Image::open(&self.vmlinux).unwrap();
        let fill = image.procedures().iter().find(|p| p.name() == "fill").unwrap();
        let instructions = image.instructions(fill.address, fill.size_bytes);
        let store = instructions.iter().find(|i| i.text.contains("], ")).unwrap();
        let offset = ImageOffset(store.address.0 - TEXT);
        let key = SampleKey {
            image: ImageId::kernel(),
            event: Event::CPU_CLOCK,
            offset,
            app: "dd".into(),
            instance: 0,
            dimensions: None,
        };
        let symbol = ImageSymbol {
            offset: ImageOffset(fill.address.0 - TEXT),
            size_bytes: fill.size_bytes,
            name: "fill".into(),
        };
        let record = ImageRecord {
            kernel_builds,
            symbols: vec![symbol],
            ..ImageRecord::new(ImageId::kernel(), ImageKind::Kernel, "[kernel.kallsyms]")
        };
        let (database, start) = (self.database(), Timestamp::now());
        let imported = self.imported(&database);
        let epoch = Epoch { id: EpochId::new(start), name: Some(name.to_owned()), start, ..imported };
        let mut writer = database.writer().unwrap().begin(epoch).unwrap();
        writer.append(&Counts::from_iter([(key, SAMPLES)]), &[record]).unwrap();
        writer.finish(start).unwrap();
    }

    /// What an epoch has beside its samples, of one that is made of a table.
    fn imported(&self, database: &Database) -> Epoch {
        let counts = self.dir.path().join("counts.tsv");
        fs::write(&counts, format!("vmlinux-6.1.0\t{TEXT:x}\t1\n")).unwrap();
        let request = ImportRequest {
            counts,
            images: vec![self.vmlinux.clone()],
            machine: "generic-x86-64".to_owned(),
            event: "cpu-clock".to_owned(),
            period: 1_000_000,
            unit: dwell_profile::Unit::Nanoseconds,
            clock_hz: Some(2e9),
            name: None,
        };
        let id = import_counts(database, &request, Timestamp::now()).unwrap();
        database.read(&id).unwrap().epoch
    }

    fn database(&self) -> Database {
        Database::open(self.dir.path().join("db")).unwrap()
    }

    fn build(&self) -> String {
        Image::open(&self.vmlinux).unwrap().build_id().unwrap().to_string()
    }

    fn listing(&self, epoch: &str) -> Result<dwell_query::answer::Listing, QueryError> {
        let mut options = Options::for_database(self.dir.path().join("db"));
        options.debug_dirs.push(self.dir.path().join("debug"));
        Query::open(options).unwrap().listing(&[epoch.to_owned()], "fill", &Cancel::new())
    }
}

#[test]
fn a_procedure_of_the_kernel_is_listed_by_instruction() {
    let scene = Scene::new();
    scene.record("known", vec![scene.build()]);
    let listing = scene.listing("known").unwrap();
    let sampled: Vec<_> = listing.instructions.iter().filter(|i| !i.samples.is_empty()).collect();
    assert_eq!(sampled.len(), 1, "{listing:#?}");
    assert_eq!(sampled[0].samples["cpu-clock"], SAMPLES);
    assert_eq!(sampled[0].line, Some(4), "lines are those of its debug information");
    assert!(sampled[0].address > TEXT);
}

#[test]
fn text_of_another_kernel_is_not_shown() {
    let scene = Scene::new();
    let of = |name: &str, builds: Vec<String>| {
        scene.record(name, builds);
        scene.listing(name).unwrap_err().to_string()
    };
    assert!(of("other", vec!["00".repeat(20)]).contains("no vmlinux of build 0000"));
    assert!(of("old", Vec::new()).contains("does not say which build"));
    assert!(of("both", vec!["00".repeat(20), scene.build()]).contains("several builds"));
    // A record without a kernel build may be from another kernel.
    let record = |builds: &[String]| ImageRecord {
        kernel_builds: builds.to_vec(),
        ..ImageRecord::new(ImageId::kernel(), ImageKind::Kernel, "[kernel.kallsyms]")
    };
    let mut merged = record(&[]);
    merged.absorb(record(&[scene.build()]));
    merged.absorb(record(&[scene.build()]));
    assert_eq!(merged.kernel_builds, [String::new(), scene.build()]);
    assert!(of("unknown", merged.kernel_builds).contains("several builds"));
}
