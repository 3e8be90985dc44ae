//! The options of a collection, as the caller sets them.

use std::{ffi::OsString, time::Duration};

use dwell_profile::{DimensionSet, Epoch, EpochId, Event, Pid, Scope, name_to_text};

use crate::{
    evidence::code_counters::{CodeCounter, CountWhen},
    source::{BackendChoice, Rate},
};

/// The processes whose code is sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every CPU, with everything that it runs.
    System,
    /// These processes with their threads and all descendants, present and future.
    Processes(Vec<Pid>),
    /// A command and its descendants, from its exec on.
    Command(Vec<OsString>),
}

impl Target {
    /// Returns the scope as the epoch records it.
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

/// Default rate. With a timer it costs below 1% (an interrupt alone takes 2.5 µs on a 2-core VM).
pub const DEFAULT_RATE_HZ: u32 = 1000;

/// Number of samples with a call stack per second and thread of a command or process. They come on top of
/// [`DEFAULT_RATE_HZ`], so that a thread that was just created is not sampled later than without them.
pub const DEFAULT_STACKS_HZ: u32 = 500;
/// Number of samples with a call stack per second and CPU of a machine, as Parca's agent takes.
pub const DEFAULT_STACKS_HZ_OF_MACHINES: u32 = 19;

/// Branch stacks per second of a busy CPU. In a minute they contain some 450,000 branches, as many as 560 path bursts, which
/// suffice for good frequencies (docs/measured.md). The cost of one was never measured, for lack of hardware: the kernel
/// reads about a hundred registers of the processor for it. If that and the interrupt take 20 µs, 250 stacks cost 0.5%. The
/// collector takes 1 to 4 µs for each (`cargo test --workspace --test recorded_stacks -- --nocapture`, at opt-level 1).
pub const DEFAULT_BRANCH_STACKS_HZ: u32 = 250;

/// Percent of the CPU time of a command that path bursts, words in memory and the registers of loops may cost together by default.
pub const COUNTING_PERCENT: f64 = 1.0;
/// Percent of the target's CPU time that counting executions by words in memory may cost; the registers of loops may cost 0.6 times
/// as much.
pub const ODOMETERS_PERCENT: f64 = 0.18;
/// The same in the daemon: with the registers of loops 0.1 % in all, 1 ms of each second that a processor is busy.
pub const DAEMON_ODOMETERS_PERCENT: f64 = 0.06;

/// The options of `record`.
pub struct RecordOptions {
    /// The processes to sample.
    pub target: Target,
    /// The backend that is to sample.
    pub backend: BackendChoice,
    /// The events to sample. If empty: `cycles` and, less often, `instructions` where the machine counts them, otherwise
    /// `cpu-clock`.
    pub events: Vec<Event>,
    /// The sampling rate.
    pub rate: Rate,
    /// The name of the epoch.
    pub name: Option<String>,
    /// Stop after this time, even if the command still runs. `None`: stop when the command or the processes end, or on
    /// [`crate::Stop`].
    pub duration: Option<Duration>,
    /// Longest time between two stores of the counts. A collector that is killed loses no more than that.
    pub flush_every: Duration,
    /// Find branch directions from sampled registers.
    pub branches: bool,
    /// Applications whose processes are recorded as separate instances.
    pub by_process: Vec<String>,
    /// The dimensions that are kept of each sample beside its place.
    pub dimensions: DimensionSet,
    /// Count which data the sampled instructions refer to.
    pub data: bool,
    /// Percent of the target's CPU time that stopping and emulating its threads may cost, for path bursts; 0: no bursts.
    pub bursts_percent: f64,
    /// Percent of the target's CPU time that path bursts and odometers may cost together: bursts take what odometers leave. If it
    /// is infinite, each has its own limit only.
    pub counting_percent: f64,
    /// Percent of the target's CPU time that counting executions by hardware breakpoints may cost; 0: none are set.
    pub breakpoints_percent: f64,
    /// Percent of the target's CPU time that counting executions by words in memory may cost; 0: none are read.
    pub odometers_percent: f64,
    /// Use breakpoints only as a replacement for bursts: they count where threads cannot be emulated, and no thread is
    /// single-stepped.
    pub breakpoints_stand_in: bool,
    /// Branch stacks (LBR, BRBE) per second of a busy CPU, where hardware events are sampled through rings and the processor
    /// supports them; 0: none.
    pub branch_stacks_hz: u32,
    /// Number of samples per second of a thread, or of a CPU if the whole machine is sampled, that carry a call stack; 0: none.
    pub stacks_hz: u32,
    /// Counts executions in the code of the target, if it is to be changed for that.
    pub code_counter: Option<(Box<dyn CodeCounter>, CountWhen)>,
}

impl RecordOptions {
    /// Returns the default options for a target.
    pub fn new(target: Target) -> Self {
        RecordOptions {
            target,
            backend: BackendChoice::Auto,
            events: Vec::new(),
            rate: Rate::Frequency(DEFAULT_RATE_HZ),
            name: None,
            duration: None,
            flush_every: Duration::from_secs(10),
            branches: true,
            by_process: Vec::new(),
            dimensions: DimensionSet::NONE,
            data: false,
            bursts_percent: 0.0,
            counting_percent: f64::INFINITY,
            breakpoints_percent: 0.0,
            odometers_percent: 0.0,
            breakpoints_stand_in: false,
            branch_stacks_hz: DEFAULT_BRANCH_STACKS_HZ,
            stacks_hz: 0,
            code_counter: None,
        }
    }
}

/// The options of `daemon`, which collects the whole machine permanently.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// The backend that is to sample.
    pub backend: BackendChoice,
    /// The events to sample. If empty: `cycles` and, less often, `instructions` where the machine counts them, otherwise
    /// `cpu-clock`.
    pub events: Vec<Event>,
    /// The sampling rate. `None`: [`Rate::Continuous`], as far as the budget permits.
    pub rate: Option<Rate>,
    /// The name of the first epoch.
    pub name: Option<String>,
    /// Longest time between two stores of the counts.
    pub flush_every: Duration,
    /// Find branch directions from sampled registers.
    pub branches: bool,
    /// Applications whose processes are recorded as separate instances.
    pub by_process: Vec<String>,
    /// The applications whose samples are kept; empty: all. The others are sampled too, and their samples counted.
    pub apps: Vec<String>,
    /// The dimensions that are kept of each sample beside its place.
    pub dimensions: DimensionSet,
    /// Percent of the CPU time that counting executions by words in memory may cost, and 0.6 times that by registers of
    /// loops; 0: neither.
    pub odometers_percent: f64,
    /// Percent of the CPU time for which path bursts may stop threads; emulation while threads run may take as much again. 0: no
    /// bursts.
    pub bursts_percent: f64,
    /// Number of samples per second of a CPU that carry a call stack; 0: none.
    pub stacks_hz: u32,
    /// Percent of each CPU that sampling may cost. If it costs more, the rate is lowered. 0: no limit.
    pub budget_percent: f64,
    /// Length of the window over which the cost is measured before it is judged.
    pub budget_window: Duration,
    /// Interval after which a new epoch begins. `None`: only on request.
    pub rotate_every: Option<Duration>,
    /// A new epoch begins when an image was rebuilt whose path contains one of these strings.
    pub rotate_on_rebuild: Vec<String>,
    /// Age after its end at which an epoch is removed, unless it has a name. `None`: no limit.
    pub keep_age: Option<Duration>,
    /// Size in bytes of all epochs above which the oldest epochs are removed, unless they have names. `None`: no limit.
    pub keep_bytes: Option<u64>,
    /// Sampled images are copied into the database, up to this many bytes, so that profiles outlive rebuilds. `None`: only
    /// images that no path leads to are copied.
    pub keep_images_bytes: Option<u64>,
    /// Number of entries in memory that triggers storing before it is due.
    pub entries_max: usize,
    /// Number of entries that are kept while the database refuses them.
    pub unstored_max: usize,
}

impl Default for DaemonOptions {
    fn default() -> Self {
        DaemonOptions {
            backend: BackendChoice::Auto,
            events: Vec::new(),
            rate: None,
            name: None,
            flush_every: Duration::from_secs(300), // As in DCPI's daemon. The longer, the more the kernel aggregates.
            branches: true,
            by_process: Vec::new(),
            apps: Vec::new(),
            dimensions: DimensionSet::NONE,
            odometers_percent: 0.0,
            bursts_percent: 0.0,
            stacks_hz: DEFAULT_STACKS_HZ_OF_MACHINES,
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

/// A report of a collector about its progress.
#[derive(Clone, Debug)]
pub enum Progress {
    /// Sampling has started. The epoch contains events, periods and notes.
    Started(Box<Epoch>),
    /// Sent about once a second.
    Running {
        /// Time since the start.
        elapsed: Duration,
        /// Samples counted so far.
        samples: u64,
        /// Samples lost so far.
        lost: u64,
    },
    /// The daemon ended an epoch by itself, and the next one began. Epochs that end on request are not reported.
    Ended(EpochId),
    /// The counts were written to disk.
    Flushed {
        /// Samples stored in the epoch so far.
        samples: u64,
    },
    /// A problem that the user should know now. It is not a failure yet.
    Warning(String),
}

/// The result of `record`.
#[derive(Debug)]
pub struct Recorded {
    /// The epoch as stored.
    pub epoch: Epoch,
    /// The command's exit status, if there was a command and it ended.
    pub exit: Option<std::process::ExitStatus>,
    /// Whether [`crate::Stop`] ended the collection.
    pub interrupted: bool,
}
