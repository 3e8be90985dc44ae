//! A simulated machine: processes fork, execute, map and end; pids are reused at once; each CPU writes records into its own
//! ring. The machine remembers where each sample was taken.
//!
//! Enters: the random numbers of a seed. Leaves: records as a source hands them out, and the true place of each sample. Never
//! here: code of the collector.

use std::collections::{BTreeMap, VecDeque};

use dwell_attribution::{OwnedTag, Target};
use dwell_profile::{CpuId, EventIndex, Pid, Tid, VirtualAddress};

use super::random::Random;
use crate::{
    host::ProcessSnapshot,
    loss::LossCause,
    source::{
        owned_record::{OwnedRecord, SideBandRecord},
        records::{Mode, Sample},
    },
};

pub const PAGE: u64 = 0x1000;
/// Number of pages of user space in which processes map files.
const PAGES: u64 = 24;
pub const KERNEL: u64 = 0xffff_ffff_8100_0000;
pub const KERNEL_BYTES: u64 = 0x1000;
/// Number of pids. It is small, so that pids are reused soon.
const PIDS: u64 = 24;
pub const INIT: u32 = 1;
const KTHREADD: u32 = 2;

/// The properties of a simulated machine.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Number of CPUs.
    pub cpus: u64,
    /// Number of records that a ring holds.
    pub ring: usize,
    /// Whether a CPU may pause between stamping a record and making it visible, for longer than the merger waits.
    pub pauses: bool,
}

/// The number of an execution of a program, counted over the whole run.
pub type Execution = u32;

/// The content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Page {
    File { path: String, offset: u64 },
    Anonymous,
}

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Name of its executable, or of the kernel thread.
    pub app: String,
    /// Number of its execution; 0 for kernel threads.
    pub execution: Execution,
    pub kernel_thread: bool,
    pages: BTreeMap<u64, Page>,
    /// Number of threads beside the first one.
    threads: u64,
    /// Whether the first thread has ended while others continue.
    headless: bool,
}

/// The true origin of a sample.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Truth {
    /// The place, as `image+offset`.
    pub place: String,
    pub app: String,
    pub execution: Execution,
}

/// The ring of a CPU, and records that are stamped but not visible yet.
#[derive(Default)]
struct Cpu {
    ring: VecDeque<(u64, OwnedRecord)>,
    /// Number of records that found no room since the last one that did.
    missing: u64,
    paused_until: u64,
    stamped: VecDeque<(u64, OwnedRecord)>,
}

/// The simulated machine.
pub struct World {
    pub now: u64,
    pub processes: BTreeMap<Pid, Process>,
    /// Every sample that was taken while sampling was on: its time and its true origin.
    pub samples: Vec<(u64, Truth)>,
    /// Number of samples that found no room in their ring.
    pub samples_missing: u64,
    /// Number of side-band records that found no room.
    pub side_missing: u64,
    /// Time at which a record was last lost.
    pub missing_at: u64,
    on: bool,
    habits: Habits,
    cpus: Vec<Cpu>,
    executions: Execution,
}

impl World {
    /// Creates a machine with an init process and a few others.
    pub fn new(habits: Habits, random: &mut Random) -> Self {
        let mut world = World {
            now: 1_000_000,
            processes: BTreeMap::new(),
            samples: Vec::new(),
            samples_missing: 0,
            side_missing: 0,
            missing_at: 0,
            on: false,
            habits,
            cpus: (0..habits.cpus).map(|_| Cpu::default()).collect(),
            executions: 1,
        };
        let pages = BTreeMap::from([(1, Page::File { path: "/bin/init".to_owned(), offset: 0 })]);
        let process = |app: &str, execution, kernel_thread, pages| Process {
            app: app.to_owned(),
            execution,
            kernel_thread,
            pages,
            threads: 0,
            headless: false,
        };
        world.processes.insert(Pid(INIT), process("init", 1, false, pages));
        world.processes.insert(Pid(KTHREADD), process("kthreadd", 0, true, BTreeMap::new()));
        (0..40).for_each(|_| world.step(random));
        world
    }

    /// Starts sampling. Each running process gets an execution of its own, because a collector cannot know any more which of
    /// them share one.
    pub fn turn_on(&mut self) {
        self.on = true;
        for process in self.processes.values_mut().filter(|p| !p.kernel_thread) {
            self.executions += 1;
            process.execution = self.executions;
        }
    }

    /// Makes one random event happen.
    pub fn step(&mut self, random: &mut Random) {
        self.now += 1 + random.below(2_000_000) * random.below(2);
        let cpu = random.below(self.habits.cpus) as usize;
        if self.habits.pauses && random.once_in(100) {
            self.cpus[cpu].paused_until = self.now + random.below(50_000_000);
        }
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        let pid = random.pick(&pids);
        match random.below(32) {
            0 | 1 => self.fork(cpu, pid, random),
            2 | 3 => self.exec(cpu, pid, random),
            4 => self.map(cpu, pid, random),
            5 => self.thread(cpu, pid),
            6 | 7 => self.exit(cpu, pid, random),
            8 => self.write(
                cpu,
                OwnedRecord::SideBand(Box::new(SideBandRecord::Throttle { event: Some(EventIndex(0)) })),
            ),
            _ => self.sample(cpu, pid, random),
        }
        self.show();
    }

    fn fork(&mut self, cpu: usize, parent_pid: Pid, random: &mut Random) {
        let pid = 3 + random.below(PIDS) as u32;
        if self.processes.contains_key(&Pid(pid)) || self.processes[&parent_pid].headless {
            return;
        }
        let parent = &self.processes[&parent_pid];
        let mut child = Process { threads: 0, ..parent.clone() };
        let renamed =
            parent.kernel_thread.then(|| random.pick(&["kworker/0:1", "kworker/u4:2", "ksoftirqd/1"]));
        self.side(cpu, SideBandRecord::Fork { pid: Pid(pid), parent_pid });
        if let Some(comm) = renamed {
            child.app = comm.split('/').next().unwrap_or(comm).to_owned();
            self.side(cpu, SideBandRecord::Comm { pid: Pid(pid), tid: Tid(pid), comm: comm.to_owned() });
        }
        self.processes.insert(Pid(pid), child);
    }

    fn exec(&mut self, cpu: usize, pid: Pid, random: &mut Random) {
        let process = &self.processes[&pid];
        if process.kernel_thread || process.headless || pid == Pid(INIT) {
            return;
        }
        self.executions += 1;
        let (app, first) = (format!("prog{}", random.below(5)), 1 + random.below(6));
        let path = format!("/usr/bin/{app}");
        let mut process = Process {
            app: app.clone(),
            execution: self.executions,
            kernel_thread: false,
            pages: BTreeMap::new(),
            threads: 0,
            headless: false,
        };
        self.side(cpu, SideBandRecord::Exec { pid, comm: "comm".to_owned() });
        let maps = [(path, first, 4), ("/lib/ld.so".to_owned(), first + 6, 2)];
        for (path, first, count) in maps {
            process.put(first, count, 0, Some(&path));
            self.side(cpu, map_record(pid, first, count, 0, Some(&path)));
        }
        self.processes.insert(Pid(pid.0), process);
    }

    fn map(&mut self, cpu: usize, pid: Pid, random: &mut Random) {
        if self.processes[&pid].kernel_thread {
            return;
        }
        let (first, count, offset) = (1 + random.below(PAGES - 6), 1 + random.below(6), random.below(4));
        let path = (!random.once_in(4)).then(|| format!("/lib/lib{}.so", random.below(6)));
        let process = self.processes.get_mut(&pid).expect("it lives");
        process.put(first, count, offset, path.as_deref());
        self.side(cpu, map_record(pid, first, count, offset, path.as_deref()));
    }

    fn thread(&mut self, _cpu: usize, pid: Pid) {
        let process = self.processes.get_mut(&pid).expect("it lives");
        process.threads += u64::from(!process.kernel_thread); // The collector ignores the record of a new thread.
    }

    fn exit(&mut self, cpu: usize, pid: Pid, random: &mut Random) {
        if pid == Pid(INIT) || pid == Pid(KTHREADD) {
            return;
        }
        let process = self.processes.get_mut(&pid).expect("it lives");
        let continues = self.on && process.threads > 0 && !process.headless && random.once_in(2);
        let is_reported = !process.headless;
        if continues {
            process.headless = true;
        } else {
            self.processes.remove(&pid);
        }
        if is_reported {
            self.side(cpu, SideBandRecord::Exit { pid });
        }
    }

    fn sample(&mut self, cpu: usize, pid: Pid, random: &mut Random) {
        if !self.on {
            return;
        }
        let process = &self.processes[&pid];
        let within = random.below(3);
        let (mode, pid, pc, place) = match random.below(12) {
            0 | 1 => (Mode::Kernel, pid, KERNEL + within, format!("kernel+{within:x}")),
            2 => (Mode::Kernel, pid, KERNEL + KERNEL_BYTES + within, unknown(KERNEL + KERNEL_BYTES + within)),
            3 => (Mode::Kernel, Pid::IDLE, KERNEL + within, format!("kernel+{within:x}")),
            4 if random.once_in(4) => {
                (Mode::Kernel, Pid::ENDED, KERNEL + within, format!("kernel+{within:x}"))
            }
            _ if process.kernel_thread => (Mode::Kernel, pid, KERNEL + within, format!("kernel+{within:x}")),
            _ => {
                let pc = (1 + random.below(PAGES)) * PAGE + within;
                (Mode::User, pid, pc, process.place(pc))
            }
        };
        let (app, execution) = match pid {
            Pid::IDLE => ("[idle]".to_owned(), 0),
            Pid::ENDED => ("unknown".to_owned(), 0),
            _ => (process.app.clone(), process.execution),
        };
        let tid = if pid == Pid::IDLE || pid == Pid::ENDED {
            pid.first_thread()
        } else {
            Tid(pid.0 + 1000 * random.below(process.threads + 1) as u32)
        };
        let time = self.now;
        self.samples.push((time, Truth { place, app, execution }));
        self.write(
            cpu,
            OwnedRecord::Sample(
                EventIndex(0),
                Sample {
                    mode,
                    pc: VirtualAddress(pc),
                    pid,
                    tid,
                    cpu: Some(CpuId(cpu as u32)),
                    registers: None,
                },
            ),
        );
    }

    fn side(&mut self, cpu: usize, side: SideBandRecord) {
        self.write(cpu, OwnedRecord::SideBand(Box::new(side)));
        self.now += 1;
    }

    fn write(&mut self, cpu: usize, item: OwnedRecord) {
        if self.on {
            self.cpus[cpu].stamped.push_back((self.now, item));
            self.show();
        }
    }

    /// Moves the stamped records of CPUs that are not paused into their rings, or counts them as lost.
    fn show(&mut self) {
        for cpu in self.cpus.iter_mut().filter(|cpu| cpu.paused_until <= self.now) {
            while let Some((time, item)) = cpu.stamped.pop_front() {
                // Like the kernel, report losses right before the next record that finds room.
                let room = self.habits.ring - cpu.ring.len();
                if room > usize::from(cpu.missing > 0) {
                    if cpu.missing > 0 {
                        let lost = lost(std::mem::take(&mut cpu.missing));
                        cpu.ring.push_back((time, lost));
                    }
                    cpu.ring.push_back((time, item));
                    continue;
                }
                cpu.missing += 1;
                self.missing_at = self.now;
                match item {
                    OwnedRecord::Sample(..) => self.samples_missing += 1,
                    _ => self.side_missing += 1,
                }
            }
        }
    }

    /// Empties the rings, as a source does. A CPU may write further records while others are read. Returns the time up to
    /// which all records are complete.
    pub fn drain(&mut self, random: &mut Random, mut each: impl FnMut(u64, OwnedRecord)) -> u64 {
        let complete = self.now;
        for cpu in 0..self.cpus.len() {
            self.cpus[cpu].ring.drain(..).for_each(|(time, item)| each(time, item));
            if random.once_in(4) {
                self.step(random);
            }
        }
        complete
    }

    /// Ends sampling and makes all stamped records and losses visible.
    pub fn settle(&mut self, mut each: impl FnMut(u64, OwnedRecord)) {
        self.on = false;
        self.show_all(&mut each);
    }

    /// Makes all stamped records visible and reports all losses.
    pub fn show_all(&mut self, mut each: impl FnMut(u64, OwnedRecord)) {
        self.cpus.iter_mut().for_each(|cpu| cpu.paused_until = 0);
        for _ in 0..2 {
            self.show();
            self.cpus.iter_mut().flat_map(|cpu| cpu.ring.drain(..)).for_each(|(time, item)| each(time, item));
        }
        for cpu in &mut self.cpus {
            each(self.now, lost(std::mem::take(&mut cpu.missing)));
        }
    }

    /// Makes the rings so large that nothing is lost from now on. Ends the processes whose first thread has ended, because
    /// /proc does not show their mappings.
    pub fn make_room(&mut self) {
        self.habits.ring = 100_000;
        self.processes.retain(|_, process| !process.headless);
    }

    /// Returns the present state of a process as /proc shows it.
    pub fn snapshot(&self, pid: Pid) -> Option<ProcessSnapshot> {
        let process = self.processes.get(&pid)?;
        let mapping = |(page, what): (&u64, &Page)| {
            let (offset, target) = match what {
                Page::File { path, offset } => (*offset, file(path, false)),
                Page::Anonymous => (0, Target::Anonymous),
            };
            (VirtualAddress(page * PAGE), VirtualAddress((page + 1) * PAGE), offset, target)
        };
        // /proc shows no mappings of a process whose first thread has ended.
        let pages = process.pages.iter().filter(|_| !process.headless);
        Some(ProcessSnapshot {
            name: process.app.clone(),
            kernel_thread: process.kernel_thread,
            program: None,
            mappings: pages.map(mapping).collect(),
        })
    }
}

impl Process {
    fn put(&mut self, first: u64, count: u64, offset: u64, path: Option<&str>) {
        for at in 0..count {
            let page = match path {
                Some(path) => Page::File { path: path.to_owned(), offset: (offset + at) * PAGE },
                None => Page::Anonymous,
            };
            self.pages.insert(first + at, page);
        }
    }

    fn place(&self, pc: u64) -> String {
        match self.pages.get(&(pc / PAGE)) {
            Some(Page::File { path, offset }) => format!("{path}+{:x}", offset + pc % PAGE),
            Some(Page::Anonymous) => format!("jit:{}+{pc:x}", self.app),
            None => unknown(pc),
        }
    }
}

fn lost(records: u64) -> OwnedRecord {
    OwnedRecord::SideBand(Box::new(SideBandRecord::Lost {
        event: Some(EventIndex(0)),
        records,
        cause: LossCause::RingFull,
    }))
}

fn unknown(pc: u64) -> String {
    format!("unknown+{pc:x}")
}

fn map_record(pid: Pid, first: u64, count: u64, offset: u64, path: Option<&str>) -> SideBandRecord {
    let target = path.map_or(Target::Anonymous, |path| file(path, true));
    let start = VirtualAddress(first * PAGE);
    SideBandRecord::Map { pid, start, length: count * PAGE, file_offset: offset * PAGE, target }
}

/// Returns the target for a file. Events identify it by its build ID and /proc by its inode, so one image has two targets.
fn file(path: &str, by_event: bool) -> Target {
    let tag = match dwell_profile::BuildId::new(&[path.len() as u8; 20]).filter(|_| by_event) {
        Some(id) => OwnedTag::BuildId(id),
        None => OwnedTag::Inode { device: 1, inode: 1, version: None },
    };
    Target::File { path: path.into(), deleted: false, tag }
}
