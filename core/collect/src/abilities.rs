//! What this machine lets Dwell do. Events are opened for real, and closed again without being started; whether processes may be traced is
//! read off Yama's setting.
//!
//! Enters: nothing. Leaves: a list for people who set Dwell up. Never here: a sample.

use std::{
    fs,
    io::{BufRead, BufReader},
};

use dwell_profile::{DimensionSet, Event, Pid};

use crate::{
    BackendChoice, CollectError, Rate,
    source::{
        Tasks,
        choose::{OpenedSource, SourceRequest, open_source},
    },
};

/// Whether something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It works.
    Works,
    /// It works in part.
    Limited,
    /// It does not work.
    Fails,
}

/// One thing that Dwell does, and whether it can here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ability {
    /// What it is, as it follows "can": `sample your own commands`.
    pub what: &'static str,
    /// Whether it works.
    pub state: State,
    /// What was found, and what would help.
    pub found: String,
}

/// Tries what this process may do on this machine.
pub fn abilities() -> Vec<Ability> {
    let own = open(&Tasks::Running(vec![Pid(std::process::id())]));
    let machine = open(&Tasks::All);
    let mut abilities = vec![commands(&own)];
    if let Ok(own) = &own {
        abilities.extend([kernel(own), counters(own)]);
    }
    abilities.extend([whole_machine(&machine), kernel_names(), tracing()]);
    abilities
}

fn open(tasks: &Tasks) -> Result<OpenedSource, CollectError> {
    let request = SourceRequest {
        backend: BackendChoice::Auto,
        events: &[],
        rate: Rate::Frequency(100),
        registers: false,
        one_by_one: false,
        dimensions: DimensionSet::NONE,
        branch_stacks_hz: 0,
        stacks_hz: 0,
        clock_hz: None,
    };
    open_source(&request, tasks)
}

fn ability(what: &'static str, state: State, found: impl Into<String>) -> Ability {
    Ability { what, state, found: found.into() }
}

fn commands(own: &Result<OpenedSource, CollectError>) -> Ability {
    const WHAT: &str = "sample your own commands";
    match own {
        Ok(_) => ability(WHAT, State::Works, "dwell record -- CMD"),
        Err(error) => ability(WHAT, State::Fails, error.to_string()),
    }
}

fn kernel(own: &OpenedSource) -> Ability {
    const WHAT: &str = "sample the kernel's code in them";
    if own.source.features().user_only {
        let found =
            "the kernel's settings forbid it: `sysctl kernel.perf_event_paranoid=1`, or CAP_PERFMON, or root";
        return ability(WHAT, State::Fails, found);
    }
    ability(WHAT, State::Works, "with each recording")
}

fn counters(own: &OpenedSource) -> Ability {
    const WHAT: &str = "use the processor's counters";
    let counts = |event: Event| own.configs.iter().any(|config| config.event == event);
    match (counts(Event::CYCLES), counts(Event::INSTRUCTIONS)) {
        (true, true) => {
            ability(WHAT, State::Works, "cycles and instructions: executions and CPI are absolute")
        }
        (true, false) => {
            ability(WHAT, State::Limited, "cycles alone; `dwell record --count -- CMD` counts executions")
        }
        _ => ability(
            WHAT,
            State::Limited,
            "there are none, as in most virtual machines: time is sampled by a timer; `dwell record --count -- CMD` counts executions",
        ),
    }
}

fn whole_machine(machine: &Result<OpenedSource, CollectError>) -> Ability {
    const WHAT: &str = "sample the whole machine";
    match machine {
        Ok(opened) => {
            let note = opened.notes.iter().find(|note| note.starts_with("backend "));
            let backend = opened.source.backend();
            ability(WHAT, State::Works, note.cloned().unwrap_or_else(|| format!("backend {backend}")))
        }
        Err(error) => ability(WHAT, State::Fails, error.to_string()),
    }
}

fn kernel_names() -> Ability {
    const WHAT: &str = "name the kernel's functions";
    let mut line = String::new();
    let read = fs::File::open("/proc/kallsyms").and_then(|file| BufReader::new(file).read_line(&mut line));
    let first = read.ok().and_then(|_| line.split_once(' ')).map(|(address, _)| address);
    match first {
        None => ability(WHAT, State::Fails, "/proc/kallsyms cannot be read"),
        Some(address) if address.bytes().all(|b| b == b'0') => {
            let found =
                "/proc/kallsyms hides its addresses: `sysctl kernel.kptr_restrict=0`, or CAP_SYSLOG, or root";
            ability(WHAT, State::Fails, found)
        }
        Some(_) => ability(WHAT, State::Works, "by /proc/kallsyms"),
    }
}

/// Whether threads can be followed for moments, and programs be changed while they run.
fn tracing() -> Ability {
    const WHAT: &str = "follow threads, count executions and calls";
    if cfg!(not(target_arch = "x86_64")) {
        return ability(WHAT, State::Fails, "only on x86-64");
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    match scope.as_deref().map(str::trim) {
        Some("3") => ability(
            WHAT,
            State::Fails,
            "kernel.yama.ptrace_scope is 3: no process may trace another until the next boot",
        ),
        Some("2") if !rustix::process::geteuid().is_root() => ability(
            WHAT,
            State::Fails,
            "kernel.yama.ptrace_scope is 2: `sysctl kernel.yama.ptrace_scope=1`, or root",
        ),
        Some("1") if !rustix::process::geteuid().is_root() => ability(
            WHAT,
            State::Limited,
            "commands that dwell starts; for running processes `sysctl kernel.yama.ptrace_scope=0`, or root",
        ),
        _ => ability(WHAT, State::Works, "commands that dwell starts, and running processes of yours"),
    }
}
