//! What to collect, as the caller asks for it.

use std::{ffi::OsString, time::Duration};

use dwell_profile::{DimensionSet, Epoch, EpochId, Event, Pid, Scope, name_to_text};

/// Whose code is sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every CPU, whatever it runs.
    System,
    /// These processes, their threads, and their descendants, born or to be born.
    Processes(Vec<Pid>),
    /// A command and its descendants, from its exec on.
    Command(Vec<OsString>),
}

impl Target {
    /// As the epoch records it.
    pub fn scope(&self) -> Scope {
        match self {
            Target::System => Scope::System,
            Target::Processes(pids) => Scope::Processes(pids.clone()),
            Target::Command(words) => {
                Scope::Command(words.iter().map(|w| name_to_text(w).into_owned()).collect())
            }
        }
    }
}

/// How often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// About this many samples per second of a busy CPU. For `cycles` and `instructions` it becomes a period through
    /// the measured clock, for rarer events through a typical distance between them.
    Frequency(u32),
    /// One sample per this many occurrences (of `cpu-clock`: nanoseconds).
    Period(u64),
    /// What a machine can bear for good: with a timer 1000 Hz, for hardware events DCPI's 62,000 cycles (§4.1.1: 60 to
    /// 64 thousand), but no more than so many samples per second of a busy CPU.
    Continuous {
        /// That many.
        hz_max: u32,
    },
}

/// Which backend is to sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// The best that works here.
    #[default]
    Auto,
    /// The kernel module, or nothing.
    Kmod,
    /// BPF, or nothing.
    Bpf,
    /// Ring buffers, or nothing.
    Perf,
}

/// Default rate: below 1% of overhead with a timer (a bare interrupt costs 2.5 µs on a 2-core VM).
pub const DEFAULT_RATE: Rate = Rate::Frequency(1000);

/// Stacks of branches per second of a busy CPU. In a minute they have some 450,000 branches, as many as 560 path bursts, which make
/// frequencies good (docs/measured.md). What one costs was never measured, for want of hardware: the kernel reads some hundred
/// registers of the processor for it; if that and the interrupt take 20 µs, 250 are 0.5%. The collector takes 1 to 4 µs for each (`cargo test --workspace --test recorded_stacks -- --nocapture`, at opt-level 1).
pub const DEFAULT_BRANCH_STACKS_HZ: u32 = 250;

/// Percent of the target's CPU time that counting executions by words in memory may cost.
pub const ODOMETERS_PERCENT: f64 = 0.5;

/// How `record` collects.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Whose code.
    pub target: Target,
    /// Who samples.
    pub backend: BackendChoice,
    /// Which events; none: `cycles` and, more seldom, `instructions` where the machine counts them, else `cpu-clock`.
    pub events: Vec<Event>,
    /// How often.
    pub rate: Rate,
    /// The epoch's name.
    pub name: Option<String>,
    /// Stop after that time, a command included; `None`: when the command or the processes end, or on
    /// [`crate::Stop`].
    pub duration: Option<Duration>,
    /// Store what was counted at least so often; a collector that is killed loses no more than that.
    pub flush_every: Duration,
    /// Tell branch directions from sampled registers.
    pub branches: bool,
    /// Applications of which each process is an instance of its own.
    pub by_process: Vec<String>,
    /// What is kept of each sample beside its place.
    pub dimensions: DimensionSet,
    /// Count what data sampled instructions refer to.
    pub data: bool,
    /// Percent of the target's CPU time that stopping and following its threads may cost, for path bursts; 0: none.
    pub paths_percent: f64,
    /// Percent of the target's CPU time that counting executions by hardware breakpoints may cost, for counted windows; 0:
    /// none.
    pub windows_percent: f64,
    /// Percent of the target's CPU time that counting executions by words in memory may cost; 0: none are read.
    pub odometers_percent: f64,
    /// Windows only stand in for bursts: they are counted where threads cannot be followed, and no thread is single-stepped.
    pub windows_stand_in: bool,
    /// Stacks of branches (LBR, BRBE) per second of a busy CPU, where hardware events are sampled through rings and the
    /// processor keeps them; 0: none.
    pub branch_stacks_hz: u32,
}

impl RecordOptions {
    /// The defaults for a target.
    pub fn new(target: Target) -> Self {
        RecordOptions {
            target,
            backend: BackendChoice::Auto,
            events: Vec::new(),
            rate: DEFAULT_RATE,
            name: None,
            duration: None,
            flush_every: Duration::from_secs(10),
            branches: true,
            by_process: Vec::new(),
            dimensions: DimensionSet::NONE,
            data: false,
            paths_percent: 0.0,
            windows_percent: 0.0,
            odometers_percent: 0.0,
            windows_stand_in: false,
            branch_stacks_hz: DEFAULT_BRANCH_STACKS_HZ,
        }
    }
}

/// How `daemon` collects: the whole machine, for good.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// Who samples.
    pub backend: BackendChoice,
    /// Which events; none: `cycles` and, more seldom, `instructions` where the machine counts them, else `cpu-clock`.
    pub events: Vec<Event>,
    /// How often; `None`: [`Rate::Continuous`], as far as the budget allows.
    pub rate: Option<Rate>,
    /// The first epoch's name.
    pub name: Option<String>,
    /// Store what was counted at least so often.
    pub flush_every: Duration,
    /// Tell branch directions from sampled registers.
    pub branches: bool,
    /// Applications of which each process is an instance of its own.
    pub by_process: Vec<String>,
    /// What is kept of each sample beside its place.
    pub dimensions: DimensionSet,
    /// Percent of each CPU that sampling may cost; beyond, the rate is lowered. 0: whatever it costs.
    pub budget_percent: f64,
    /// What the cost is measured over before it is judged.
    pub budget_window: Duration,
    /// A new epoch begins so often; `None`: only when asked for.
    pub rotate_every: Option<Duration>,
    /// A new epoch begins when an image whose path contains one of these was built anew.
    pub rotate_on_rebuild: Vec<String>,
    /// Epochs that ended longer ago are removed, unless they were named; `None`: none for its age.
    pub keep_age: Option<Duration>,
    /// The oldest epochs are removed when all take more, in bytes, unless they were named; `None`: any size.
    pub keep_bytes: Option<u64>,
    /// Sampled images are copied aside, so that profiles outlive rebuilds, up to so many bytes; `None`: those alone that no
    /// path leads to.
    pub keep_images_bytes: Option<u64>,
    /// Entries in memory that make us store before it is time.
    pub entries_max: usize,
    /// Entries that are kept while the database refuses them.
    pub unstored_max: usize,
}

impl Default for DaemonOptions {
    fn default() -> Self {
        DaemonOptions {
            backend: BackendChoice::Auto,
            events: Vec::new(),
            rate: None,
            name: None,
            flush_every: Duration::from_secs(300), // As DCPI's daemon; the longer, the more the kernel aggregates.
            branches: true,
            by_process: Vec::new(),
            dimensions: DimensionSet::NONE,
            budget_percent: 1.0,
            budget_window: Duration::from_secs(10),
            rotate_every: Some(Duration::from_secs(86_400)),
            rotate_on_rebuild: Vec::new(),
            keep_age: Some(Duration::from_secs(30 * 86_400)),
            keep_bytes: Some(1 << 30),
            keep_images_bytes: None,
            entries_max: 1 << 17, // 2 MB.
            unstored_max: 1 << 17,
        }
    }
}

/// What a collector tells while it runs.
#[derive(Clone, Debug)]
pub enum Progress {
    /// Sampling goes on; the epoch tells events, periods and notes.
    Started(Box<Epoch>),
    /// About once a second.
    Running {
        /// Since the start.
        elapsed: Duration,
        /// Samples counted so far.
        samples: u64,
        /// Samples lost so far.
        lost: u64,
    },
    /// An epoch ended by itself, and the next one began. One that someone asked to end is his to care for.
    Ended(EpochId),
    /// What was counted is on disk.
    Flushed {
        /// Samples stored in the epoch so far.
        samples: u64,
    },
    /// Something the user should know now; it is no failure yet.
    Warning(String),
}

/// What `record` did.
#[derive(Debug)]
pub struct Recorded {
    /// The epoch, as stored.
    pub epoch: Epoch,
    /// The command's status, if there was a command and it ended.
    pub exit: Option<std::process::ExitStatus>,
    /// Whether [`crate::Stop`] ended it.
    pub interrupted: bool,
}
