//! Records in, counts out: the state machine in the middle of collection.
//!
//! Enters: samples and side-band records in order of time. Leaves: counts by (image, event, offset, application
//! instance). Samples in = samples counted + losses by cause; a sample that nothing explains is counted under
//! `unknown`. Never here: rings, files, clocks (see [`Host`]).
//!
//! Samples are resolved as they come, not first gathered by (process, pc) as DCPI's driver does: on a build, 95% of
//! such pairs are new (recipes/collector), and a binary search of a process's few dozen mappings costs no more than the
//! look-up that would save it.

mod stepping;

use std::collections::hash_map::Entry;

use dwell_profile::{
    Counts, Event, ImageId, ImageKind, ImageOffset, ImageRecord, ImageSymbol, PathBurst, SampleKey,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    apps::{AppInstance, Apps, ExecutionId},
    branch::{AHEAD_BYTES, Ahead, Recipe, Registers},
    host::Host,
    images::{ImageIndex, Images, Target},
    items::{Item, Side},
    mappings::Mapping,
    processes::{Process, Processes},
    records::{Mode, Sample},
    source::LossCause,
};

use stepping::{Stepping, SteppingTally};

/// An event's tallies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Samples counted.
    pub samples: u64,
    /// Samples missing.
    pub lost: u64,
    /// Times it was throttled.
    pub throttled: u64,
    /// Of the samples, those under `unknown`.
    pub unknown: u64,
}

/// What was counted since the last [`Collector::take`].
#[derive(Debug, Default)]
pub struct Batch {
    /// The counts.
    pub counts: Counts,
    /// The images that occur in them and in the bursts.
    pub images: Vec<ImageRecord>,
    /// The path bursts.
    pub paths: Vec<PathBurst>,
}

/// The events derived from registers follow the sampled ones.
const TAKEN: u8 = u8::MAX - 3;
const NOT_TAKEN: u8 = u8::MAX - 2;
const AHEAD_TAKEN: u8 = u8::MAX - 1;
const AHEAD_NOT_TAKEN: u8 = u8::MAX;
const PID_IDLE: u32 = 0;
/// The kernel's pid for a task that is past its end.
const PID_GONE: u32 = u32::MAX;
/// More addresses of JIT code than that wait for their names in no epoch.
const JIT_ADDRESSES_MAX: usize = 1 << 16;
/// The names of symbols are cut after that; a segment's texts may be no longer.
const SYMBOL_NAME_BYTES_MAX: usize = 4 << 10;
/// Symbols of an image, and the bytes of all their names; a segment's image records must stay readable.
const SYMBOLS_MAX: usize = 1 << 16;
const SYMBOL_NAMES_BYTES_MAX: usize = 16 << 20;
/// Remembered recipes; beyond that they are decoded anew.
const RECIPES_MAX: usize = 1 << 17;
/// Targets that are kept before those out of use are looked for.
const TARGETS_MAX: usize = 1 << 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    offset: u64,
    image: ImageIndex,
    execution: ExecutionId,
    event: u8,
}

/// What is known of the code at a sampled place.
#[derive(Clone, Debug)]
enum Code {
    /// One sample was there. Most places never see a second one, so it has not been looked at. The direction that this
    /// sample would have told is given up, whichever it was, so nothing is biased.
    Unread,
    /// It decides nothing.
    Undecided,
    /// It is the branch, or the comparison before it.
    At(Recipe),
    /// It decides the first branch after it.
    Before(Ahead),
}

impl Code {
    fn read(code: &[u8]) -> Self {
        match Recipe::decode(code) {
            Some(recipe) => Code::At(recipe),
            None => Ahead::decode(code).map_or(Code::Undecided, Code::Before),
        }
    }

    /// How far off the event is, and which: what a sample there with these registers tells.
    fn observe(&self, registers: &Registers) -> Option<(u64, u8)> {
        match self {
            Code::Unread | Code::Undecided => None,
            Code::At(recipe) => {
                let event = if recipe.taken(registers) { TAKEN } else { NOT_TAKEN };
                Some((u64::from(recipe.branch_distance), event))
            }
            Code::Before(ahead) => {
                Some((0, if ahead.taken(registers) { AHEAD_TAKEN } else { AHEAD_NOT_TAKEN }))
            }
        }
    }
}

/// The state between records and counts.
pub struct Collector<H> {
    host: H,
    events: Vec<Event>,
    processes: Processes,
    apps: Apps,
    images: Images,
    recipes: FxHashMap<(ImageIndex, u64), Code>,
    counts: FxHashMap<Key, u64>,
    tallies: Vec<Tally>,
    jit_addresses: FxHashMap<u32, (ImageIndex, FxHashSet<u64>)>,
    idle: ExecutionId,
    nobody: ExecutionId,
    gaps: bool,
    stepping: Stepping,
    latest: Option<(u32, u32)>,
}

impl<H: Host> Collector<H> {
    /// A collector of samples of these events.
    pub fn new(host: H, events: Vec<Event>) -> Self {
        let mut apps = Apps::default();
        let (idle, nobody) = (apps.uncounted("[idle]"), apps.uncounted("unknown"));
        Collector {
            host,
            tallies: vec![Tally::default(); events.len()],
            events,
            processes: Processes::default(),
            apps,
            images: Images::default(),
            recipes: FxHashMap::default(),
            counts: FxHashMap::default(),
            jit_addresses: FxHashMap::default(),
            idle,
            nobody,
            gaps: false,
            stepping: Stepping::default(),
            latest: None,
        }
    }

    /// Takes in processes that run already. To be called after the events were enabled, so that no mapping falls
    /// between; records from before are applied on top, which changes nothing that lasts.
    pub fn discover(&mut self, pids: impl IntoIterator<Item = u32>) {
        for pid in pids {
            self.discover_one(pid);
        }
    }

    fn discover_one(&mut self, pid: u32) -> bool {
        let Some(snapshot) = self.host.process(pid) else { return false };
        let execution = if snapshot.kernel_thread {
            self.apps.uncounted(kernel_thread_name(&snapshot.name))
        } else {
            let execution = self.apps.begin(&snapshot.name);
            self.apps.name(execution, &snapshot.name);
            execution
        };
        let mut process = Process::new(execution, snapshot.kernel_thread);
        for (start, end, file_offset, target) in snapshot.mappings {
            let target = self.images.intern(target);
            process.space.map(Mapping { start, end, file_offset, target });
        }
        self.processes.discover(pid, process);
        true
    }

    /// Applies a record; they must come in order of time.
    pub fn apply(&mut self, time_ns: u64, item: Item) {
        match item {
            Item::Sample(_, sample) if self.is_stepped(sample.tid, time_ns) => {
                self.stepping.tally.samples += 1
            }
            Item::Sample(event, sample) => self.sample(event, &sample),
            Item::Side(side) => self.side(time_ns, *side),
            Item::Burst(burst) => self.burst(&burst),
        }
    }

    /// The thread of the latest sample in user mode since the last call: process, thread.
    pub fn take_latest(&mut self) -> Option<(u32, u32)> {
        self.latest.take()
    }

    fn side(&mut self, time_ns: u64, side: Side) {
        match side {
            Side::Map { pid, start, length, file_offset, target } => {
                self.map(pid, start, length, file_offset, target)
            }
            Side::Exec { pid, comm } => {
                let execution = self.apps.begin(&comm);
                self.processes.exec(pid, execution);
            }
            Side::Comm { pid, tid, comm } => {
                if pid == tid && self.processes.get(pid).is_some_and(|p| p.kernel_thread) {
                    let execution = self.apps.uncounted(kernel_thread_name(&comm));
                    self.processes.rename(pid, execution);
                }
            }
            Side::Fork { pid, parent_pid } => {
                if !self.processes.fork(pid, parent_pid) {
                    self.discover_one(pid);
                }
            }
            Side::Exit { pid } => {
                self.name_jit_code(pid);
                self.processes.exit(pid, time_ns);
            }
            Side::Lost { event, records, cause } => {
                self.gaps |= cause == LossCause::RingFull;
                self.tally(event, |t| t.lost += records);
            }
            Side::Throttle { event } => self.tally(event, |t| t.throttled += 1),
        }
    }

    fn tally(&mut self, event: u8, change: impl FnOnce(&mut Tally)) {
        if let Some(tally) = self.tallies.get_mut(usize::from(event)) {
            change(tally);
        }
    }

    fn map(&mut self, pid: u32, start: u64, length: u64, file_offset: u64, target: Target) {
        if self.processes.get(pid).is_none() {
            self.discover_one(pid);
        }
        let Some(process) = self.processes.get(pid) else { return };
        // The kernel maps a program's own file first, then its interpreter.
        if let Some(program) = target.program().filter(|_| !self.apps.is_named(process.execution)) {
            self.apps.name(process.execution, &program);
        }
        let target = self.images.intern(target);
        self.processes.map(pid, Mapping { start, end: start.saturating_add(length), file_offset, target });
    }

    fn sample(&mut self, event: u8, sample: &Sample) {
        let execution = self.execution_of(sample.pid);
        let place = match sample.mode {
            Mode::User => self.user_place(sample, execution),
            Mode::Kernel => self.kernel_place(sample.pc),
            other => other_place(&mut self.images, other, sample.pc),
        };
        let unknown = place.is_none();
        let (image, offset) = place.unwrap_or_else(|| {
            (self.images.named(ImageId::unknown(), ImageKind::Unknown, "[unknown]"), sample.pc)
        });
        self.tally(event, |t| {
            t.samples += 1;
            t.unknown += u64::from(unknown);
        });
        *self.counts.entry(Key { offset, image, execution, event }).or_default() += 1;
        // Samples of other events stand where those happen, which says nothing of how often a branch goes which way.
        let counts_code =
            self.events.get(usize::from(event)).is_some_and(|e| e.is_time() || *e == Event::INSTRUCTIONS);
        if let (Some(registers), Mode::User, false, true) =
            (&sample.registers, sample.mode, unknown, counts_code)
        {
            self.observe_branch(image, offset, execution, registers);
        }
    }

    fn execution_of(&mut self, pid: u32) -> ExecutionId {
        match pid {
            PID_IDLE => return self.idle,
            PID_GONE => return self.nobody,
            _ => {}
        }
        if self.processes.get(pid).is_none() && !self.discover_one(pid) {
            // Remember that nobody is there, or each of its samples would look again.
            self.processes.discover(pid, Process::new(self.nobody, false));
            self.processes.exit(pid, 0);
        }
        self.processes.get(pid).map_or(self.nobody, |p| p.execution)
    }

    fn user_place(&mut self, sample: &Sample, execution: ExecutionId) -> Option<(ImageIndex, u64)> {
        self.latest = Some((sample.pid, sample.tid));
        let place = self.mapped_place(sample.pid, sample.pc, execution)?;
        if self.images.record(place.0).kind == ImageKind::Jit {
            let (_, waiting) =
                self.jit_addresses.entry(sample.pid).or_insert_with(|| (place.0, FxHashSet::default()));
            if waiting.len() < JIT_ADDRESSES_MAX {
                waiting.insert(sample.pc);
            }
        }
        Some(place)
    }

    fn mapped_place(&mut self, pid: u32, pc: u64, execution: ExecutionId) -> Option<(ImageIndex, u64)> {
        let mapping = self.processes.get(pid)?.space.find(pc)?;
        match self.images.under(mapping, pid, &mut self.host) {
            Some(image) => Some((image, mapping.offset_of(pc))),
            None => Some((self.images.jit(&self.apps.resolve(execution).app), pc)),
        }
    }

    fn kernel_place(&mut self, pc: u64) -> Option<(ImageIndex, u64)> {
        let place = self.host.kernel_place(pc)?;
        let image = match place.module {
            None => self.images.named(ImageId::kernel(), ImageKind::Kernel, "[kernel.kallsyms]"),
            Some(name) => {
                let id = ImageId::named(&format!("module:{name}"));
                self.images.named(id, ImageKind::Module, &format!("[{name}]"))
            }
        };
        Some((image, place.offset))
    }

    fn observe_branch(
        &mut self,
        image: ImageIndex,
        offset: u64,
        execution: ExecutionId,
        registers: &Registers,
    ) {
        if self.recipes.len() >= RECIPES_MAX {
            self.recipes.clear();
        }
        let code = match self.recipes.entry((image, offset)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert(Code::Unread);
                return;
            }
        };
        if matches!(code, Code::Unread) {
            let mut bytes = [0; AHEAD_BYTES];
            let length = read_code(&self.images, &mut self.host, image, offset, &mut bytes);
            *code = Code::read(&bytes[..length]);
        }
        if let Some((distance, event)) = code.observe(registers) {
            *self.counts.entry(Key { offset: offset + distance, image, execution, event }).or_default() += 1;
        }
    }

    /// Hands out what was counted since the last time.
    pub fn take(&mut self) -> Batch {
        let pids: Vec<u32> = self.jit_addresses.keys().copied().collect();
        pids.into_iter().for_each(|pid| self.name_jit_code(pid));
        let mut batch = Batch::default();
        batch.counts.reserve(self.counts.len());
        let mut counts = std::mem::take(&mut self.counts);
        let mut offsets: FxHashMap<ImageIndex, Vec<u64>> = FxHashMap::default();
        let mut names: FxHashMap<ExecutionId, AppInstance> = FxHashMap::default();
        for (key, count) in counts.drain() {
            offsets.entry(key.image).or_default().push(key.offset);
            let name = names.entry(key.execution).or_insert_with(|| self.apps.resolve(key.execution)).clone();
            let sample_key = SampleKey {
                image: self.images.record(key.image).id.clone(),
                event: self.event(key.event),
                offset: ImageOffset(key.offset),
                app: name.app,
                instance: name.instance,
            };
            *batch.counts.entry(sample_key).or_default() += count;
        }
        self.counts = counts; // Its memory serves the next batch.
        batch.paths = std::mem::take(&mut self.stepping.bursts);
        for image in self.stepping.images.drain() {
            offsets.entry(image).or_default();
        }
        batch.images =
            offsets.into_iter().map(|(image, offsets)| self.record_with_symbols(image, offsets)).collect();
        batch
    }

    fn event(&self, index: u8) -> Event {
        match index {
            TAKEN => Event::BRANCH_TAKEN,
            NOT_TAKEN => Event::BRANCH_NOT_TAKEN,
            AHEAD_TAKEN => Event::AHEAD_TAKEN,
            AHEAD_NOT_TAKEN => Event::AHEAD_NOT_TAKEN,
            sampled => self.events[usize::from(sampled)].clone(),
        }
    }

    fn record_with_symbols(&mut self, image: ImageIndex, mut offsets: Vec<u64>) -> ImageRecord {
        let record = self.images.record(image);
        if matches!(record.kind, ImageKind::Kernel | ImageKind::Module) {
            offsets.sort_unstable();
            offsets.dedup();
            let found = self.host.kernel_symbols(&record.id, &offsets);
            self.add_symbols(image, found);
        }
        self.images.record(image).clone()
    }

    /// Looks the waiting addresses of a process's anonymous code up in its perf map.
    fn name_jit_code(&mut self, pid: u32) {
        let Some((image, addresses)) = self.jit_addresses.remove(&pid) else { return };
        let addresses: Vec<u64> = addresses.into_iter().collect();
        let found = self.host.jit_symbols(pid, &addresses);
        self.add_symbols(image, found);
    }

    /// Of records for one image the database believes the newest, so each holds the epoch's symbols so far: those that
    /// a segment has room for, the first to be sampled before others.
    fn add_symbols(&mut self, image: ImageIndex, mut found: Vec<ImageSymbol>) {
        for symbol in &mut found {
            cut(&mut symbol.name, SYMBOL_NAME_BYTES_MAX);
        }
        let symbols = self.images.symbols_mut(image);
        found.retain(|symbol| symbols.binary_search(symbol).is_err());
        found.sort();
        found.dedup();
        found.truncate(SYMBOLS_MAX.saturating_sub(symbols.len()));
        let known_bytes = symbols.iter().map(|s| s.name.len()).sum();
        let mut room_bytes = SYMBOL_NAMES_BYTES_MAX.saturating_sub(known_bytes);
        found.retain(|symbol| {
            let left = room_bytes.checked_sub(symbol.name.len());
            room_bytes = left.unwrap_or(room_bytes);
            left.is_some()
        });
        symbols.extend(found);
        symbols.sort();
    }

    /// Forgets the dead and what only they referred to. To be called when nothing is counted, i.e. after
    /// [`Collector::take`].
    pub fn reap(&mut self, now_ns: u64) {
        assert!(self.counts.is_empty(), "counts refer to executions and images");
        let host = &self.host;
        self.processes.reap(now_ns, &|pid| host.is_alive(pid));
        let mut live: FxHashSet<ExecutionId> = self.processes.iter().map(|(_, p)| p.execution).collect();
        live.extend([self.idle, self.nobody]);
        self.apps.retain(&|id| live.contains(&id));
        if self.images.targets() > TARGETS_MAX {
            self.sweep_images();
        }
    }

    fn sweep_images(&mut self) {
        let used = self.processes.iter().flat_map(|(_, p)| p.space.iter().map(|m| m.target)).collect();
        let moved = self.images.sweep(&used);
        self.processes.retarget(&|target| moved.get(&target).copied());
        self.recipes.clear();
        self.stepping.kinds.clear();
        self.jit_addresses.clear();
    }

    /// Begins a new epoch: tallies from zero, instances from 1.
    pub fn begin_epoch(&mut self) {
        self.tallies.fill(Tally::default());
        self.stepping.tally = SteppingTally::default();
        self.stepping.number = 0;
        self.images.forget_symbols();
        self.apps.renumber();
    }

    /// Whether records were lost since the last call, so that mappings may be missing and /proc should be read again.
    pub fn take_gaps(&mut self) -> bool {
        std::mem::take(&mut self.gaps)
    }

    /// Reads the mappings of the processes that there are again, after a loss; the others have ended.
    pub fn refresh(&mut self, pids: impl IntoIterator<Item = u32>, now_ns: u64) {
        let pids: FxHashSet<u32> = pids.into_iter().collect();
        self.processes.exit_all_but(&pids, now_ns);
        for pid in pids {
            let Some(snapshot) = self.host.process(pid) else { continue };
            if self.processes.get(pid).is_none() {
                self.discover_one(pid);
                continue;
            }
            for (start, end, file_offset, target) in snapshot.mappings {
                let target = self.images.intern(target);
                self.processes.map(pid, Mapping { start, end, file_offset, target });
            }
        }
    }

    /// Tallies by event, in the order given to [`Collector::new`].
    pub fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    /// Distinct entries in memory.
    pub fn entries(&self) -> usize {
        self.counts.len()
    }

    /// Processes and images tracked.
    pub fn tracked(&self) -> (usize, usize) {
        (self.processes.len(), self.images.len())
    }
}

/// Code bytes at a place in a file; how many could be read.
fn read_code(
    images: &Images,
    host: &mut impl Host,
    image: ImageIndex,
    offset: u64,
    code: &mut [u8],
) -> usize {
    let record = images.record(image);
    if record.kind == ImageKind::File { host.code(&record.id, offset, code).min(code.len()) } else { 0 }
}

/// Per-CPU threads and workers differ behind the slash only: `kworker/3:1-events`, `ksoftirqd/0`.
fn kernel_thread_name(comm: &str) -> &str {
    comm.split('/').next().unwrap_or(comm)
}

fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
}

fn other_place(images: &mut Images, mode: Mode, pc: u64) -> Option<(ImageIndex, u64)> {
    let name = match mode {
        Mode::Hypervisor => "hypervisor",
        Mode::GuestKernel => "guest-kernel",
        Mode::GuestUser => "guest-user",
        Mode::User | Mode::Kernel | Mode::Unknown => return None,
    };
    Some((images.named(ImageId::named(name), ImageKind::Unknown, &format!("[{name}]")), pc))
}

#[cfg(test)]
mod tests;
