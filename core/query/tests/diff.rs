//! Two profiles compared, end to end: a program is compiled, changed and compiled again, with counts made up here.

use std::{fs, path::PathBuf, process::Command};

use dwell_image::Image;
use dwell_profile::{Database, Unit};
use dwell_query::{
    Cancel, DiffRequest, ImportRequest, Normalize, Options, Query, QueryError, answer::Diff, import_counts,
};
use jiff::Timestamp;

const BEFORE: &str = "\
#include <stdint.h>
__attribute__((noinline)) uint64_t walk(const uint64_t *p, uint64_t n) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < n; i++)
    sum ^= p[i];
  return sum;
}
__attribute__((noinline)) uint64_t steady(uint64_t n) {
  return n * n + 3;
}
int main(int argc, char **argv) {
  (void)argv;
  uint64_t a[4] = {1, 2, 3, 4};
  return (int)(walk(a, argc + 1) + steady(argc));
}
";

/// The same program with a loop that has an additional multiplication and begins two lines later.
fn after() -> String {
    BEFORE
        .replace("#include", "/* changed */\n\n#include")
        .replace("sum ^= p[i];", "sum = (sum ^ p[i]) * 31;")
}

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Scene { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds the program in a folder of its own: the old one must be there to be compared with.
    fn build(&self, folder: &str, text: &str) {
        self.build_from("walk.c", folder, text);
    }

    /// The same program, built from a source in another folder.
    fn build_from(&self, source: &str, folder: &str, text: &str) {
        fs::create_dir_all(self.path(folder)).unwrap();
        fs::write(self.path(source), text).unwrap();
        let arguments = ["-O1", "-g", "-gdwarf-5", "-no-pie", "-Wl,--build-id"];
        let mut gcc = Command::new("gcc");
        gcc.args(arguments).arg(self.path(source)).arg("-o").arg(self.path(folder).join("walk"));
        assert!(gcc.status().unwrap().success());
    }

    /// An epoch with so many samples on each instruction of `walk` and of `steady`.
    fn import(&self, folder: &str, name: &str, machine: &str, samples: [u64; 2]) {
        let program = self.path(folder).join("walk");
        let image = Image::open(&program).unwrap();
        let mut table = String::new();
        for (procedure, samples) in ["walk", "steady"].iter().zip(samples) {
            let p = image.procedures().iter().find(|p| p.name() == *procedure).unwrap();
            for i in image.instructions(p.address, p.size_bytes) {
                table += &format!("walk\t{:x}\t{samples}\n", i.address.0);
            }
        }
        fs::write(self.path("counts.tsv"), table).unwrap();
        let request = ImportRequest {
            counts: self.path("counts.tsv"),
            images: vec![program],
            machine: machine.to_owned(),
            event: "cpu-clock".to_owned(),
            period: 1_000_000,
            unit: Unit::Nanoseconds,
            clock_hz: Some(2e9),
            name: Some(name.to_owned()),
        };
        let database = Database::open(self.path("db")).unwrap();
        let id = import_counts(&database, &request, Timestamp::now()).unwrap();
        self.query().keep_sources(&id).unwrap();
    }

    fn query(&self) -> Query {
        Query::open(Options::for_database(self.path("db"))).unwrap()
    }

    fn diff(&self, request: DiffRequest) -> Result<Diff, QueryError> {
        self.query().diff(&request, &Cancel::new())
    }
}

fn of(a: &str, b: &str) -> DiffRequest {
    let list = |text: &str| text.split(',').map(str::to_owned).collect();
    DiffRequest { a: list(a), b: list(b), ..DiffRequest::default() }
}

fn names(diff: &Diff) -> Vec<&str> {
    diff.procedures.iter().map(|p| p.procedure.as_str()).collect()
}

#[test]
fn a_change_is_found_across_a_rebuild_and_noise_is_not() {
    let scene = Scene::new();
    scene.build("old", BEFORE);
    scene.import("old", "before", "generic-x86-64", [1000, 50]);
    scene.build("new", &after());
    scene.import("new", "after", "generic-x86-64", [1500, 52]);
    let diff = scene.diff(of("before", "after")).unwrap();
    assert_eq!(names(&diff), ["walk"], "{diff:#?}");
    assert_eq!(diff.insignificant_procedures, 1);
    let walk = &diff.procedures[0];
    assert!(walk.change.significant && walk.change.change > 0.0 && walk.change.ratio > Some(1.4), "{walk:?}");
    // Samples of time alone do not show how often the procedure ran.
    let factors = walk.factors;
    assert!(
        factors.count_ratio.is_none() && factors.cost_ratio.is_none() && !factors.tells_apart,
        "{walk:#?}"
    );
    // Line 6 became line 8; line 5 was edited into line 7.
    let places: Vec<_> = diff.lines.iter().map(|l| (l.line_a, l.line_b)).collect();
    assert!(places.contains(&(Some(4), Some(6))) || places.contains(&(Some(6), Some(8))), "{places:?}");
    assert!(places.contains(&(None, Some(7))), "an edited line stands alone: {places:?}");
    assert!(diff.notes.iter().any(|n| n.contains("one run on each side")), "{:?}", diff.notes);

    // The program of A was replaced at its path, and a note reports this.
    fs::remove_dir_all(scene.path("old")).unwrap();
    let gone = scene.diff(of("before", "after")).unwrap();
    assert!(gone.notes.iter().any(|n| n.contains("old/walk") && n.starts_with("A: ")), "{:?}", gone.notes);
}

#[test]
fn in_order_a_change_is_count_times_cost() {
    let scene = Scene::new();
    scene.build("old", BEFORE);
    scene.import("old", "before", "alpha-21164", [1000, 50]);
    scene.import("old", "after", "alpha-21164", [1500, 52]);
    let diff = scene.diff(of("before", "after")).unwrap();
    let walk = &diff.procedures[0];
    // On both sides, samples are executions times cycles.
    let (factors, ratio) = (walk.factors, walk.change.ratio.unwrap());
    let product = factors.count_ratio.unwrap() * factors.cost_ratio.unwrap();
    assert!((product / ratio - 1.0).abs() < 0.02, "{product} is not {ratio}: {walk:#?}");
    assert!(factors.tells_apart, "it ran more often: {walk:#?}");
}

#[test]
fn insignificant_changes_are_shown_on_request() {
    let scene = Scene::new();
    scene.build("old", BEFORE);
    scene.import("old", "before", "generic-x86-64", [1000, 50]);
    scene.import("old", "after", "generic-x86-64", [1500, 52]);
    let all = scene.diff(DiffRequest { all: true, ..of("before", "after") }).unwrap();
    assert_eq!(names(&all), ["walk", "steady"]);
}

#[test]
fn instructions_stand_beside_each_other() {
    let scene = Scene::new();
    scene.build("old", BEFORE);
    scene.import("old", "before", "generic-x86-64", [1000, 50]);
    scene.build("new", &after());
    scene.import("new", "after", "generic-x86-64", [1500, 52]);
    let diff = scene.diff(DiffRequest { procedure: Some("walk".into()), ..of("before", "after") }).unwrap();
    assert_eq!(names(&diff), ["walk"]);
    let kinds = |kind: &str| diff.instructions.iter().filter(|i| i.kind == kind).count();
    assert!(kinds("same") > 3 && kinds("added") + kinds("edited") > 0, "{:#?}", diff.instructions);
    let sums = diff
        .instructions
        .iter()
        .fold((0.0, 0.0), |(a, b), i| (a + i.change.samples_a, b + i.change.samples_b));
    let walk = &diff.procedures[0].change;
    assert!(
        (sums.0 - walk.samples_a).abs() < 1.0 && (sums.1 - walk.samples_b).abs() < 1.0,
        "{sums:?} {walk:?}"
    );
    let missing = scene.diff(DiffRequest { procedure: Some("nothing".into()), ..of("before", "after") });
    assert!(matches!(missing, Err(QueryError::NoProcedure { .. })), "{missing:?}");
}

#[test]
fn runs_that_vary_by_themselves_prove_nothing() {
    let scene = Scene::new();
    scene.build("old", BEFORE);
    for (name, samples) in [("a1", 900), ("a2", 1400), ("a3", 1000), ("b1", 1500), ("b2", 1000), ("b3", 1300)]
    {
        scene.import("old", name, "generic-x86-64", [samples, 50]);
    }
    assert_eq!(names(&scene.diff(of("a1", "b1")).unwrap()), ["walk"], "one run on each side knows no better");
    let diff = scene.diff(of("a1,a2,a3", "b1,b2,b3")).unwrap();
    assert!(diff.procedures.is_empty() && !diff.total.significant, "{diff:#?}");
}

#[test]
fn normalization_and_unlike_machines() {
    let scene = Scene::new();
    scene.build("old", BEFORE);
    scene.import("old", "once", "generic-x86-64", [1000, 50]);
    scene.import("old", "twice", "amd-zen4", [2000, 100]);
    let ratio = |normalize: Normalize| {
        let diff = scene.diff(DiffRequest { normalize, all: true, ..of("once", "twice") }).unwrap();
        (diff.exposure, diff.total.ratio.unwrap(), diff)
    };
    assert_eq!(ratio(Normalize::Run).1, 2.0);
    assert_eq!((ratio(Normalize::Samples).0, ratio(Normalize::Samples).1), (2.0, 1.0));
    let (exposure, total, diff) = ratio(Normalize::Procedure("steady".into()));
    assert_eq!((exposure, total), (2.0, 1.0));
    assert!(diff.procedures.iter().all(|p| !p.change.significant), "{diff:#?}");
    assert!(
        diff.notes.iter().any(|n| n.starts_with("different machines: A on generic-x86-64")),
        "{:?}",
        diff.notes
    );
    let nobody =
        scene.diff(DiffRequest { normalize: Normalize::Procedure("main".into()), ..of("once", "twice") });
    assert!(matches!(nobody, Err(QueryError::NothingToCompare { .. })), "{nobody:?}");
    scene.import("old", "empty", "amd-zen4", [0, 0]);
    for sides in [of("once", "empty"), of("empty", "once")] {
        let nothing = scene.diff(sides);
        assert!(matches!(nothing, Err(QueryError::NothingToCompare { .. })), "{nothing:?}");
    }
}

#[test]
fn lines_are_found_again_in_a_program_that_was_built_in_another_folder() {
    let scene = Scene::new();
    scene.build_from("old/walk.c", "old", BEFORE);
    scene.import("old", "before", "generic-x86-64", [1000, 50]);
    scene.build_from("new/walk.c", "new", &after());
    scene.import("new", "after", "generic-x86-64", [1500, 52]);
    let diff = scene.diff(of("before", "after")).unwrap();
    let places: Vec<_> = diff.lines.iter().map(|l| (l.line_a, l.line_b)).collect();
    assert!(places.contains(&(Some(4), Some(6))) || places.contains(&(Some(6), Some(8))), "{places:?}");
    assert!(diff.lines.iter().all(|l| l.line_b.is_none() || l.file.ends_with("new/walk.c")), "{diff:#?}");
}

#[test]
fn a_files_lines_are_those_of_the_text_as_it_is_now() {
    let scene = Scene::new();
    scene.build("old", BEFORE);
    scene.import("old", "before", "generic-x86-64", [1000, 50]);
    scene.build("new", &after());
    scene.import("new", "after", "generic-x86-64", [1500, 52]);
    let changes =
        scene.query().file_changes(&of("before", "after"), &scene.path("walk.c"), &Cancel::new()).unwrap();
    let walk = changes.procedures.iter().find(|p| p.procedure == "walk").unwrap();
    assert!(walk.line == 4 && walk.change.significant, "{walk:?}");
    let steady = changes.procedures.iter().find(|p| p.procedure == "steady").unwrap();
    assert!(!steady.change.significant, "{steady:?}");
    // The loop is on line 6 now; before, it was on line 4.
    let line = |n: u32| changes.lines.iter().find(|l| l.line == n).unwrap();
    assert!(line(6).change.samples_a > 0.0 && line(6).change.samples_b > 0.0, "{:#?}", changes.lines);
    // The body was edited, so no line of the old text corresponds to this line.
    assert_eq!(line(7).change.samples_a, 0.0, "{:#?}", changes.lines);

    let nothing = scene.query().file_changes(&of("before", "absent"), &scene.path("walk.c"), &Cancel::new());
    assert!(matches!(nothing, Err(QueryError::Profile(_))), "{nothing:?}");
}

#[test]
fn lines_are_compared_by_instruction_wherever_their_sources_are() {
    let scene = Scene::new();
    let inlined = "static inline __attribute__((always_inline)) uint64_t steady(uint64_t n)";
    let text = BEFORE
        .replace("__attribute__((noinline)) uint64_t steady(uint64_t n)", inlined)
        .replace("__attribute__((noinline)) uint64_t walk", &format!("{inlined}; uint64_t walk"))
        .replace("return sum;", "return sum + steady(n);");
    // The import looks up a procedure with this name.
    let text = text + "uint64_t (*kept)(uint64_t) = steady;\n";
    scene.build("old", &text);
    scene.import("old", "only", "generic-x86-64", [1000, 0]);
    let query = scene.query();
    let epochs = ["only".to_owned()];
    let detail = |query: &Query, path: &std::path::Path, line: u32| {
        query.line_detail(&epochs, path, line, &Cancel::new()).unwrap()
    };
    let body = detail(&query, &scene.path("walk.c"), 5);
    let [place] = &body.places[..] else { panic!("{body:#?}") };
    assert!(place.procedure == "walk:walk" && place.callers.is_empty(), "{place:#?}");
    assert!(place.instructions.iter().any(|i| i.text.contains("xor") && i.head_samples > 0.0), "{place:#?}");
    let inlined = detail(&query, &scene.path("walk.c"), 9);
    let callers: Vec<_> =
        inlined.places.iter().flat_map(|p| &p.callers).map(|c| (c.function.as_deref(), c.line)).collect();
    assert!(callers.contains(&(Some("walk"), Some(6))), "{inlined:#?}");
    assert!(detail(&query, &scene.path("walk.c"), 1).places.is_empty());
    assert!(detail(&query, std::path::Path::new("/no/such/file.c"), 5).places.is_empty());

    // The program was built in this folder and edited in the other one.
    let here = scene.path("here");
    fs::create_dir_all(&here).unwrap();
    fs::rename(scene.path("walk.c"), here.join("moved.c")).unwrap();
    fs::rename(here.join("moved.c"), here.join("walk.c")).unwrap();
    let mut options = Options::for_database(scene.path("db"));
    options.source_map = vec![(scene.folder.path().to_owned(), here.clone())];
    let mapped = Query::open(options).unwrap();
    assert_eq!(detail(&mapped, &here.join("walk.c"), 5), body_at(&body, &here));
}

/// The same comparison with a file in another folder.
fn body_at(
    detail: &dwell_query::answer::LineDetail,
    folder: &std::path::Path,
) -> dwell_query::answer::LineDetail {
    let mut moved = detail.clone();
    let stalls = moved.places.iter_mut().flat_map(|p| &mut p.instructions).flat_map(|i| &mut i.stalls);
    stalls.filter(|s| s.file.is_some()).for_each(|s| {
        s.file = Some(folder.join("walk.c").display().to_string());
    });
    moved
}

#[test]
fn epochs_are_renamed_and_removed_by_selectors() {
    let scene = Scene::new();
    scene.build("old", BEFORE);
    for name in ["one", "two", "three"] {
        scene.import("old", name, "generic-x86-64", [10, 1]);
    }
    let query = scene.query();
    let names = || query.epochs().unwrap().epochs.into_iter().map(|e| e.name.unwrap()).collect::<Vec<_>>();
    query.rename_epoch("two", "second").unwrap();
    assert_eq!(names().len(), 3);
    assert!(names().contains(&"second".to_owned()) && !names().contains(&"two".to_owned()));
    // All epochs are looked up before the first one is removed.
    let asked = ["one".to_owned(), "second".to_owned(), "one".to_owned()];
    assert_eq!(query.remove_epochs(&asked).unwrap().len(), 2);
    assert_eq!(names(), ["three"]);
    for absent in ["one", "..", "", "latest~9"] {
        assert!(query.remove_epochs(&[absent.to_owned()]).is_err(), "{absent}");
    }
    assert!(query.rename_epoch("absent", "x").is_err());
    assert_eq!(names(), ["three"]);
}
