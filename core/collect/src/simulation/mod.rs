//! Deterministic simulation: CPUs, rings, processes and losses are simulated and interleaved by a seed; the merger and the
//! collector are the real ones. For every seed, samples in = samples stored + samples lost. If no record was lost or late,
//! each sample is stored under the image, offset, application and execution in which it was taken.
//!
//! `DWELL_SIMULATION_SEED=N cargo test -p dwell-collect simulation` replays one seed; `DWELL_SIMULATION_SEEDS=N` runs
//! the first N seeds.

mod random;
mod world;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use dwell_attribution::{
    FileVersion, Identity, ImageFiles, InstanceLimits, Interval, KernelPlace, MappedRange, Target,
};
use dwell_profile::{Event, ImageId, ImageSymbol, Pid, VirtualAddress};
use random::Random;
use world::{Habits, KERNEL, KERNEL_BYTES, Truth, World};

use crate::{
    collector::{Batch, Collector},
    host::{Host, ProcessSnapshot},
    source::{merge::Merger, owned_record::OwnedRecord},
};

/// Time in ns for which a session waits for records that are not visible yet.
const WINDOW_NS: u64 = 5_000_000;

/// The machine as the collector queries it: always in its present state, whatever the time of the record that caused the
/// query.
struct SimulatedHost(Rc<RefCell<World>>);

impl ImageFiles for SimulatedHost {
    fn identify(&mut self, target: &Target, _place: MappedRange) -> Identity {
        let Target::File { path, .. } = target else { panic!("{target:?} is no file") };
        Identity {
            id: ImageId::named(&path.display().to_string()),
            path: None,
            deleted: false,
            size_bytes: None,
            mtime_ns: None,
            code: Default::default(),
        }
    }

    fn vdso_id(&mut self) -> ImageId {
        ImageId::named("vdso")
    }
}

impl Host for SimulatedHost {
    fn process(&mut self, pid: Pid) -> Option<ProcessSnapshot> {
        self.0.borrow().snapshot(pid)
    }

    fn is_alive(&self, pid: Pid) -> bool {
        self.0.borrow().processes.contains_key(&pid)
    }

    fn version(
        &mut self,
        _target: &Target,
        _place: MappedRange,
        _mapped_ns: Option<u64>,
    ) -> Option<FileVersion> {
        None
    }

    fn has_in_memory(&mut self, _: Pid, _: VirtualAddress, _: &ImageId, _: u64) -> Option<bool> {
        None
    }

    fn code(&mut self, _image: &ImageId, _offset: u64, _bytes: &mut [u8]) -> usize {
        0
    }

    fn kernel_place(&mut self, address: VirtualAddress, _interval: Interval) -> Option<KernelPlace> {
        let offset = address.0.checked_sub(KERNEL).filter(|offset| *offset < KERNEL_BYTES)?;
        Some(KernelPlace { module: None, offset })
    }

    fn kernel_symbols(&mut self, _image: &ImageId, _offsets: &[u64]) -> Vec<ImageSymbol> {
        Vec::new()
    }
}

/// Counts of one execution, or of samples without an execution: `image+offset` → samples.
type Places = BTreeMap<String, u64>;
/// The executions of each application, each as its counts. The numbers of instances are not compared, but no two executions
/// may share a number, and none may have two.
type ByApp = BTreeMap<String, Vec<Places>>;

/// A run of the simulation: the machine, and the loop of the collector.
struct Run {
    world: Rc<RefCell<World>>,
    random: Random,
    collector: Collector<SimulatedHost>,
    merger: Merger<OwnedRecord>,
    /// The stored counts: (epoch, app, instance) → places.
    stored: BTreeMap<(u32, String, u32), Places>,
    epoch: u32,
    /// The end of each epoch so far: earlier samples belong to it, later ones to the next epoch.
    epoch_ends: Vec<u64>,
    tallies: (u64, u64),
    /// Time at which /proc was last read after a loss.
    refreshed_at: u64,
}

impl Run {
    fn new(habits: Habits, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let world = Rc::new(RefCell::new(World::new(habits, &mut random)));
        let collector = Collector::new(
            SimulatedHost(world.clone()),
            vec![Event::CPU_CLOCK],
            InstanceLimits::in_a_run(Vec::new()),
        );
        Run {
            world,
            random,
            collector,
            merger: Merger::default(),
            stored: BTreeMap::new(),
            epoch: 0,
            epoch_ends: Vec::new(),
            tallies: (0, 0),
            refreshed_at: 0,
        }
    }

    fn start(&mut self) {
        self.world.borrow_mut().turn_on();
        let pids: Vec<Pid> = self.world.borrow().processes.keys().copied().collect();
        self.collector.discover(pids);
    }

    fn round(&mut self) {
        for _ in 0..self.random.below(40) {
            self.world.borrow_mut().step(&mut self.random);
        }
        let merger = &mut self.merger;
        let complete = self.world.borrow_mut().drain(&mut self.random, |time, item| merger.push(time, item));
        let horizon = complete.saturating_sub(WINDOW_NS);
        self.apply_until(horizon);
        if self.random.once_in(3) && self.collector.take_gaps() {
            let (pids, now) = {
                let world = self.world.borrow();
                (world.processes.keys().copied().collect::<Vec<Pid>>(), world.now)
            };
            self.collector.refresh(pids, now);
            self.refreshed_at = now;
        }
        if self.random.once_in(6) {
            self.flush();
        }
        if self.random.once_in(40) {
            self.flush();
            self.begin_epoch(horizon);
        }
    }

    fn apply_until(&mut self, horizon: u64) {
        let collector = &mut self.collector;
        self.merger.take_until(horizon, |timed| collector.apply(timed.time_ns, timed.item));
    }

    fn flush(&mut self) {
        let Batch { rows, .. } = self.collector.take();
        let now = self.world.borrow().now;
        self.collector.reap(now);
        for (key, count) in rows.counts() {
            let places = self.stored.entry((self.epoch, key.app.to_string(), key.instance)).or_default();
            *places.entry(format!("{}+{:x}", key.image, key.offset.0)).or_default() += count;
        }
    }

    fn begin_epoch(&mut self, horizon: u64) {
        self.add_tallies();
        self.collector.begin_epoch();
        // The merger's horizon never goes back.
        self.epoch_ends.push(horizon.max(self.epoch_ends.last().copied().unwrap_or(0)));
        self.epoch += 1;
    }

    fn add_tallies(&mut self) {
        let tally = self.collector.counts.tallies()[0];
        self.tallies.0 += tally.samples;
        self.tallies.1 += tally.lost;
    }

    fn finish(&mut self) {
        let merger = &mut self.merger;
        self.world.borrow_mut().settle(|time, item| merger.push(time, item));
        self.apply_until(u64::MAX);
        self.flush();
        self.add_tallies();
    }

    /// Checks that samples in = samples stored + samples lost, whatever happened.
    fn check_sums(&self) {
        let world = self.world.borrow();
        let stored: u64 = self.stored.values().flat_map(BTreeMap::values).sum();
        assert_eq!(stored, self.tallies.0, "every counted sample is stored");
        assert_eq!(self.tallies.1, world.samples_missing + world.side_missing, "losses");
        assert_eq!(world.samples.len() as u64, stored + world.samples_missing, "samples in");
    }

    /// Returns the stored counts of an epoch.
    fn stored_in(&self, epoch: u32) -> ByApp {
        let mut by_app = ByApp::new();
        for ((_, app, _), places) in self.stored.iter().filter(|((e, ..), _)| *e == epoch) {
            by_app.entry(app.clone()).or_default().push(places.clone());
        }
        by_app.values_mut().for_each(|executions| executions.sort());
        by_app
    }

    /// Returns the true counts of an epoch.
    fn happened_in(&self, epoch: u32) -> ByApp {
        let start = epoch.checked_sub(1).map_or(0, |before| self.epoch_ends[before as usize]);
        let end = self.epoch_ends.get(epoch as usize).copied().unwrap_or(u64::MAX);
        let mut by_execution: BTreeMap<(String, u32), Places> = BTreeMap::new();
        let world = self.world.borrow();
        for (_, Truth { place, app, execution }) in
            world.samples.iter().filter(|(time, _)| (start..end).contains(time))
        {
            let places = by_execution.entry((app.clone(), *execution)).or_default();
            *places.entry(place.clone()).or_default() += 1;
        }
        let mut by_app = ByApp::new();
        by_execution.into_iter().for_each(|((app, _), places)| by_app.entry(app).or_default().push(places));
        by_app.values_mut().for_each(|executions| executions.sort());
        by_app
    }

    /// Checks that every sample is stored where it was taken.
    fn check_places(&self) {
        (0..=self.epoch).for_each(|epoch| self.check_epoch(epoch));
    }

    fn check_epoch(&self, epoch: u32) {
        let (stored, happened) = (self.stored_in(epoch), self.happened_in(epoch));
        assert!(stored == happened, "epoch {epoch}:\n{}", difference(&stored, &happened));
    }

    /// Checks the same as [`Run::check_epoch`], but adds up the executions of an application: a process whose fork was lost
    /// counts as another execution.
    fn check_apps(&self, epoch: u32) {
        let together = |mut by_app: ByApp| {
            for executions in by_app.values_mut() {
                let mut all = Places::new();
                let places = executions.drain(..).flatten();
                places.for_each(|(place, count)| *all.entry(place).or_default() += count);
                executions.push(all);
            }
            by_app
        };
        let (stored, happened) = (together(self.stored_in(epoch)), together(self.happened_in(epoch)));
        assert!(stored == happened, "epoch {epoch}:\n{}", difference(&stored, &happened));
    }

    /// Checks that processes are forgotten after they have ended. After losses, this holds once /proc has been read again.
    fn check_memory(&mut self) {
        let now = self.world.borrow().now;
        if self.world.borrow().side_missing > 0 || self.merger.late > 0 {
            let pids: Vec<Pid> = self.world.borrow().processes.keys().copied().collect();
            self.collector.refresh(pids, now);
        }
        self.collector.reap(now + 10_000_000_000);
        let (tracked, live) = (self.collector.tracked().0, self.world.borrow().processes.len());
        assert!(tracked <= live, "{tracked} processes are remembered, {live} live");
    }
}

/// Describes the executions that are on one side only.
fn difference(stored: &ByApp, happened: &ByApp) -> String {
    let apps: BTreeSet<&String> = stored.keys().chain(happened.keys()).collect();
    let only = |of: &ByApp, other: &ByApp, app: &String| {
        let missing = |places: &&Places| other.get(app).is_none_or(|all| !all.contains(places));
        of.get(app).into_iter().flatten().filter(missing).cloned().collect::<Vec<_>>()
    };
    let describe = |app: &&String| {
        let (more, less) = (only(stored, happened, app), only(happened, stored, app));
        let differs = !more.is_empty() || !less.is_empty();
        differs.then(|| format!("{app}:\n  stored   {more:?}\n  happened {less:?}\n"))
    };
    apps.iter().filter_map(describe).collect()
}

impl Run {
    /// Makes the rings large enough from now on, and reads /proc after the last loss.
    fn recover(&mut self) {
        self.world.borrow_mut().make_room();
        let merger = &mut self.merger;
        let pids: Vec<Pid> = {
            let mut world = self.world.borrow_mut();
            world.show_all(|time, item| merger.push(time, item));
            world.now += 1;
            world.processes.keys().copied().collect()
        };
        let now = self.world.borrow().now;
        self.apply_until(now);
        // No record is on its way, so no older record is compared with the present state of /proc.
        self.collector.take_gaps();
        self.collector.refresh(pids, now);
        self.flush();
        self.epoch_ends.push(now);
        self.epoch += 1;
    }
}

fn simulate(seed: u64, habits: Habits, rounds: u32) -> Run {
    println!("seed {seed}: {habits:?}; alone: DWELL_SIMULATION_SEED={seed}");
    let mut run = Run::new(habits, seed);
    run.start();
    (0..rounds).for_each(|_| run.round());
    run.finish();
    run
}

/// Returns the seeds to run: the one that the environment names, or the first `count` ones.
fn seeds(count: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    match number("DWELL_SIMULATION_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("DWELL_SIMULATION_SEEDS").unwrap_or(count)).collect(),
    }
}

#[test]
fn without_losses_each_sample_is_stored_where_it_was_taken() {
    for seed in seeds(300) {
        let cpus = 1 + seed % 6;
        let mut run = simulate(seed, Habits { cpus, ring: 100_000, pauses: false }, 60);
        assert_eq!(run.merger.late, 0);
        run.check_sums();
        run.check_places();
        run.check_memory();
    }
}

#[test]
fn with_small_rings_every_sample_is_stored_or_counted_as_lost() {
    for seed in seeds(200) {
        let mut run =
            simulate(seed, Habits { cpus: 1 + seed % 4, ring: 4 + seed as usize % 30, pauses: false }, 60);
        run.check_sums();
        run.check_memory();
    }
}

#[test]
fn with_late_records_every_sample_is_stored() {
    for seed in seeds(100) {
        let mut run =
            simulate(seed, Habits { cpus: 2 + seed % 3, ring: 50 + seed as usize % 100, pauses: true }, 60);
        run.check_sums();
        run.check_memory();
    }
}

/// Reading /proc makes up for lost mappings, executions and exits.
#[test]
fn after_a_loss_and_a_refresh_each_sample_is_stored_where_it_was_taken() {
    for seed in seeds(200) {
        let habits = Habits { cpus: 1 + seed % 4, ring: 3 + seed as usize % 9, pauses: false };
        println!("seed {seed}: {habits:?}; alone: DWELL_SIMULATION_SEED={seed}");
        let mut run = Run::new(habits, seed);
        run.start();
        (0..20).for_each(|_| run.round());
        run.recover();
        let clean = run.epoch;
        (0..20).for_each(|_| run.round());
        run.finish();
        run.check_sums();
        (clean..=run.epoch).for_each(|epoch| run.check_apps(epoch));
    }
}
