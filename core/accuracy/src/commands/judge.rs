//! `judge`: captures → tables, JSON, pictures.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
};

use anyhow::{Context, ensure};

use crate::{
    capture::{self, Capture, Role},
    program::Program,
    random::Random,
    random_programs::{self, Recipe},
    report,
    verdict::{self, Verdict},
};

/// Arguments of `judge`: the captures and how they are judged.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A capture, or a folder with captures up to two levels below.
    pub captures_root: PathBuf,
    /// Only this set: the folder that contains the capture, random-inorder or random-outoforder. May be repeated.
    #[arg(long)]
    pub set: Vec<String>,
    /// Only captures with this role.
    #[arg(long, value_enum, default_value_t = RoleChoice::Judge)]
    pub role: RoleChoice,
    /// Only the program with this name. May be repeated.
    #[arg(long)]
    pub program: Vec<String>,
    /// Folder of the report: tables, JSON and pictures.
    #[arg(long, default_value = "target/accuracy/report", value_name = "DIR")]
    pub out: PathBuf,
    /// Skip the tests with fewer samples and wrong latencies: several times faster.
    #[arg(long)]
    pub without_sensitivity: bool,
    /// Use at most this number of path bursts of each capture, drawn at random.
    #[arg(long, value_name = "NUMBER")]
    pub bursts: Option<usize>,
    /// Use at most this number of counted windows of each capture, drawn at random.
    #[arg(long, value_name = "NUMBER")]
    pub windows: Option<usize>,
    /// Seed of the random draws.
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub draw: u64,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Role of the captures to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RoleChoice {
    /// Captures that figures come from.
    Judge,
    /// Captures that settings are chosen on.
    Tune,
    /// Micro-kernels, each of which stalls for one known reason.
    Kernel,
    /// Judges all captures.
    All,
}

impl RoleChoice {
    fn includes(self, role: Role) -> bool {
        match self {
            RoleChoice::Judge => role == Role::Judge,
            RoleChoice::Tune => role == Role::Tune,
            RoleChoice::Kernel => role == Role::Kernel,
            RoleChoice::All => true,
        }
    }
}

/// Judges the captures and writes the report.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let root = &arguments.captures_root;
    let folders = capture::find(root).with_context(|| root.display().to_string())?;
    let captures = folders.into_iter().map(Source::Capture);
    let sources: Vec<Source> =
        captures.chain(random_programs::recipes().into_iter().map(Source::Random)).collect();
    let verdicts = in_parallel(&sources, |source| one(arguments, source))?;
    let verdicts: Vec<Verdict> = verdicts.into_iter().flatten().collect();
    ensure!(!verdicts.is_empty(), "{}: none of the requested captures is there", root.display());
    let (text, json) = (report::text::render(&verdicts), report::json(&verdicts)?);
    write_report(&arguments.out, &verdicts, &text, &json)?;
    print!("{}", if arguments.json { &json } else { &text });
    Ok(())
}

fn write_report(folder: &Path, verdicts: &[Verdict], text: &str, json: &str) -> anyhow::Result<()> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())
    };
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    write("report.txt", text)?;
    write("report.json", json)?;
    for set in report::text::sets(verdicts) {
        let members: Vec<&Verdict> = verdicts.iter().filter(|v| v.set == set).collect();
        for (name, picture) in report::pictures::all(&set, &members) {
            write(&format!("{set}-{name}.svg"), &picture)?;
        }
    }
    Ok(())
}

/// The source of a program.
enum Source {
    Capture(PathBuf),
    Random(Recipe),
}

fn one(arguments: &Arguments, source: &Source) -> anyhow::Result<Option<Verdict>> {
    let (set, name, role) = match source {
        Source::Capture(folder) => {
            let (set, meta) = capture::identify(folder)?;
            (set, meta.name, meta.role)
        }
        Source::Random(recipe) => (recipe.set.to_owned(), recipe.name(), Role::Judge),
    };
    let is_wanted = (arguments.set.is_empty() || arguments.set.contains(&set))
        && (arguments.program.is_empty() || arguments.program.contains(&name))
        && arguments.role.includes(role);
    if !is_wanted {
        return Ok(None);
    }
    let program = match source {
        Source::Capture(folder) => Program::load(&thinned(arguments, Capture::read(folder)?))?,
        Source::Random(recipe) => recipe.program().context("a machine model that is built in")?,
    };
    Ok(Some(verdict::judge(&set, &name, &program, !arguments.without_sensitivity)))
}

/// Returns the capture with the requested number of bursts and windows.
fn thinned(arguments: &Arguments, mut capture: Capture) -> Capture {
    let mut random = Random::new(arguments.draw);
    random.keep(&mut capture.bursts, arguments.bursts.unwrap_or(usize::MAX));
    random.keep(&mut capture.windows, arguments.windows.unwrap_or(usize::MAX));
    capture
}

/// Applies `f` to every item on as many threads as there are processors. The results are in the items' order.
pub(super) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    f: impl Fn(&T) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let results = Mutex::new(Vec::new()); // The lock guards only the results.
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    let result = f(item);
                    results.lock().expect("no thread panics while pushing").push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no thread panics while pushing");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
