//! Executions by path bursts whose time is known, end to end: on a program compiled here, with counts made up here.

use std::{fs, path::PathBuf, process::Command, rc::Rc};

use dwell_image::{Flow, Image, Instruction};
use dwell_profile::{
    CodePlace, ControlTransfer, Counts, Database, Epoch, EpochId, Event, EventRecord, ExecutionEvidence,
    ImageId, ImageKind, ImageOffset, ImageRecord, SampleKey, Unit,
};
use dwell_query::{
    Cancel, ImportRequest, Options, Query,
    answer::{Listing, ScaleKind},
    import_counts,
};
use jiff::Timestamp;

const SOURCE: &str = "\
__attribute__((noinline)) unsigned long walk(const unsigned long *p, unsigned long n) {
  unsigned long sum = 0;
  for (unsigned long i = 0; i < n; i++)
    sum = sum * 31 ^ p[i];
  return sum;
}
int main(int argc, char **argv) {
  (void)argv;
  unsigned long a[4] = {1, 2, 3, 4};
  return (int)walk(a, argc + 1);
}
";
/// Samples of each instruction of the loop.
const SAMPLES: u64 = 1000;
/// Iterations of the loop in each burst.
const ITERATIONS: u64 = 100_000;

/// A recording: its sampling period and clock, and the cycles that an iteration takes in its bursts.
#[derive(Clone, Copy)]
struct Recording<'a> {
    period: u64,
    unit: Unit,
    clock_hz: f64,
    cycles: &'a [f64],
}

/// A recording of which the clock is 2 GHz and a sample is 1 ms.
const PLAIN: Recording =
    Recording { period: 1_000_000, unit: Unit::Nanoseconds, clock_hz: 2e9, cycles: &[10.0; 12] };

struct Scene {
    dir: Rc<tempfile::TempDir>,
    program: PathBuf,
}

impl Scene {
    fn new() -> Self {
        Scene::compiled(Rc::new(tempfile::tempdir().unwrap()), "walk", "-O1")
    }

    /// Returns another program with recordings in the same database.
    fn beside(&self, name: &str) -> Self {
        Scene::compiled(self.dir.clone(), name, "-O2")
    }

    fn compiled(dir: Rc<tempfile::TempDir>, name: &str, level: &str) -> Self {
        let (source, program) = (dir.path().join("walk.c"), dir.path().join(name));
        fs::write(&source, SOURCE).unwrap();
        let arguments = [level, "-g", "-no-pie", "-Wl,--build-id"];
        let status = Command::new("gcc").args(arguments).arg(&source).arg("-o").arg(&program).status();
        assert!(status.unwrap().success());
        Scene { dir, program }
    }

    fn app(&self) -> String {
        self.program.file_name().unwrap().to_str().unwrap().to_owned()
    }

    fn database(&self) -> Database {
        Database::open(self.dir.path().join("db")).unwrap()
    }

    /// Returns the instructions of `walk`, with the index of the first one of its loop and of the branch back to it.
    fn walk(&self, image: &Image) -> (Vec<Instruction>, usize, usize) {
        let walk = image.procedures().iter().find(|p| p.name() == "walk").unwrap();
        let instructions = image.instructions(walk.address, walk.size_bytes);
        let back = |i: &Instruction| matches!(i.flow, Flow::Branch { target } if target < i.address);
        let branch = instructions.iter().position(back).unwrap();
        let Flow::Branch { target } = instructions[branch].flow else { unreachable!() };
        let first = instructions.iter().position(|i| i.address == target).unwrap();
        (instructions, first, branch)
    }

    /// Stores an epoch in which the loop has all samples. `others` are transfers that each burst has besides.
    fn record(&self, name: &str, recording: Recording, others: &[ControlTransfer]) {
        let image = Image::open(&self.program).unwrap();
        let (instructions, first, branch) = self.walk(&image);
        let offset = |at: usize| image.offset_of(instructions[at].address).unwrap();
        let database = self.database();
        let imported = self.imported(&database, recording);
        let (event, mut events) = (Event::CPU_CLOCK, imported.epoch.events);
        let samples = SAMPLES * (branch - first + 1) as u64;
        let record = EventRecord { samples, ..events.remove(&event).unwrap() };
        events.insert(event.clone(), record);
        let (record, id) = (imported.image, imported.id);
        let key = |at| SampleKey {
            image: id.clone(),
            event: event.clone(),
            offset: offset(at),
            app: self.app().into(),
            instance: 0,
            dimensions: None,
        };
        let counts: Counts = (first..=branch).map(|at| (key(at), SAMPLES)).collect();
        let place = |at| CodePlace { image: id.clone(), offset: offset(at) };
        let burst = |cycles: &f64| {
            let back = ControlTransfer { from: place(branch), to: place(first), count: ITERATIONS };
            let mut transfers: Vec<ControlTransfer> = others.iter().cloned().chain([back]).collect();
            transfers.sort();
            let cpu_ns = (cycles * ITERATIONS as f64 / recording.clock_hz * 1e9) as u64;
            let (first, last) = (place(first), place(branch));
            ExecutionEvidence::PathBurst { first, last, transfers, cpu_ns: Some(cpu_ns) }
        };
        let evidence: Vec<ExecutionEvidence> = recording.cycles.iter().map(burst).collect();
        let start = Timestamp::now();
        let epoch =
            Epoch { id: EpochId::new(start), name: Some(name.to_owned()), start, events, ..imported.epoch };
        let mut writer = database.writer().unwrap().begin(epoch).unwrap();
        writer.append(&counts, &[record]).unwrap();
        writer.append_evidence(&evidence).unwrap();
        writer.finish(start).unwrap();
    }

    /// What an epoch has beside its samples, of one that is made of a table.
    fn imported(&self, database: &Database, recording: Recording) -> Imported {
        let image = Image::open(&self.program).unwrap();
        let (instructions, first, _) = self.walk(&image);
        let counts = self.dir.path().join("counts.tsv");
        fs::write(&counts, format!("{}\t{:x}\t1\n", self.app(), instructions[first].address.0)).unwrap();
        let request = ImportRequest {
            counts,
            images: vec![self.program.clone()],
            machine: "generic-x86-64".to_owned(),
            event: "cpu-clock".to_owned(),
            period: recording.period,
            unit: recording.unit,
            clock_hz: Some(recording.clock_hz),
            name: None,
        };
        let id = import_counts(database, &request, Timestamp::now()).unwrap();
        let profile = database.read(&id).unwrap();
        let image = profile.images.iter().find(|i| i.kind == ImageKind::File).unwrap().clone();
        Imported { epoch: profile.epoch, id: image.id.clone(), image }
    }

    fn listing(&self, epochs: &[&str]) -> Listing {
        let epochs: Vec<String> = epochs.iter().map(|name| (*name).to_owned()).collect();
        let query = Query::open(Options::for_database(self.dir.path().join("db"))).unwrap();
        query.listing(&epochs, &format!("{}:walk", self.app()), &Cancel::new()).unwrap()
    }
}

struct Imported {
    epoch: Epoch,
    id: ImageId,
    image: ImageRecord,
}

/// Returns the cycles for an iteration of the loop, and the number of iterations with its interval, if these are known.
fn of_loop(listing: &Listing) -> Option<(f64, f64, f64, f64)> {
    let most = |n: &&dwell_query::answer::ListingBlock| n.executions.unwrap_or(0.0) as u64;
    let block = listing.blocks.iter().max_by_key(most)?;
    let instructions = listing.instructions.iter().filter(|i| !i.samples.is_empty()).count();
    let cycles = block.cpi? * instructions as f64;
    Some((cycles, block.executions?, block.executions_min?, block.executions_max?))
}

#[test]
fn timed_bursts_give_executions_and_cycles_per_instruction() {
    let scene = Scene::new();
    scene.record("timed", PLAIN, &[]);
    let listing = scene.listing(&["timed"]);
    assert_eq!(listing.scale.kind, ScaleKind::Absolute, "{:?}", listing.notes);
    assert_eq!(listing.scale.evidence[0], "12 bursts whose time is known");
    let (cycles, executions, min, max) = of_loop(&listing).unwrap();
    assert!((cycles / 10.0 - 1.0).abs() < 0.05, "{cycles}");
    let instructions = listing.instructions.iter().filter(|i| !i.samples.is_empty()).count();
    // One sample is 1 ms, or 2 million cycles at 2 GHz.
    let truth = (SAMPLES as usize * instructions) as f64 * 2e6 / 10.0;
    assert!((executions / truth - 1.0).abs() < 0.05, "{executions} for {truth}");
    assert!(min < truth && truth < max && max / min < 1.7, "{min} {max}");
}

#[test]
fn recordings_with_other_periods_and_clocks_are_merged() {
    let scene = Scene::new();
    scene.record("one", PLAIN, &[]);
    scene.record("other", Recording { period: 500_000, clock_hz: 3e9, ..PLAIN }, &[]);
    let (cycles, executions, ..) = of_loop(&scene.listing(&["one", "other"])).unwrap();
    assert!((cycles / 10.0 - 1.0).abs() < 0.05, "{cycles}");
    let alone: f64 = ["one", "other"].iter().map(|e| of_loop(&scene.listing(&[e])).unwrap().1).sum();
    assert!((executions / alone - 1.0).abs() < 0.05, "{executions} for {alone}");
    // Most samples of this pair are in a recording without timed bursts.
    scene.record("untimed", Recording { cycles: &[], ..PLAIN }, &[]);
    scene.record("few", Recording { cycles: &[10.0; 2], ..PLAIN }, &[]);
    let half = scene.listing(&["one", "untimed"]);
    assert_ne!(half.scale.kind, ScaleKind::Absolute, "{:?}", half.scale);
    assert_ne!(scene.listing(&["few"]).scale.kind, ScaleKind::Absolute);
}

/// Programs run the same libraries in other ways, so each has its own bursts.
#[test]
fn the_bursts_of_several_programs_say_nothing_of_each_other() {
    let scene = Scene::new();
    let other = scene.beside("march");
    scene.record("one", PLAIN, &[]);
    other.record("two", Recording { cycles: &[40.0; 12], ..PLAIN }, &[]);
    for (scene, epoch, cycles) in [(&scene, "one", 10.0), (&other, "two", 40.0)] {
        let both = scene.listing(&["one", "two"]);
        assert_eq!(both.scale.kind, ScaleKind::Absolute, "{:?}", both.scale);
        let (of_both, of_one) = (of_loop(&both).unwrap(), of_loop(&scene.listing(&[epoch])).unwrap());
        assert!((of_both.0 / cycles - 1.0).abs() < 0.05, "{of_both:?}");
        assert!((of_both.1 / of_one.1 - 1.0).abs() < 0.02, "{of_both:?} {of_one:?}");
    }
    // Not even one that has too few of them.
    let third = scene.beside("stroll");
    third.record("three", Recording { cycles: &[10.0; 2], ..PLAIN }, &[]);
    assert_ne!(third.listing(&["one", "two", "three"]).scale.kind, ScaleKind::Absolute);
}

#[test]
fn bursts_through_code_that_cannot_be_read_have_no_known_time() {
    let scene = Scene::new();
    let nowhere = CodePlace { image: ImageId::named("jit:walk"), offset: ImageOffset(0) };
    let to_jit = ControlTransfer { from: nowhere.clone(), to: nowhere, count: 1 };
    scene.record("jit", PLAIN, &[to_jit]);
    assert_ne!(scene.listing(&["jit"]).scale.kind, ScaleKind::Absolute);
}
