//! What an engine has in hand: a process with probes, and one that is followed or held.
//!
//! Enters: requests. Leaves: answers, and the process as they want it. Never here: the channel.

use std::os::fd::AsRawFd;

use dwell_profile::{Pid, VirtualAddress};

use super::{Answer, Program, Request};
use crate::{
    Probes,
    counters::attached::{Added, Executions},
    process::{
        launch::{Followed, Launch, let_go},
        patcher::Change,
        procfs,
    },
    process_images::{MappedImage, new_images, process_images},
    shared_memory::Metrics,
};

/// A process that this one probes.
struct Attached {
    pid: Pid,
    images: Vec<MappedImage>,
    probes: Probes,
}

impl Attached {
    fn refresh(&mut self) -> Result<(), String> {
        let new = new_images(self.pid, &self.images).map_err(|error| error.to_string())?;
        let tables: Vec<_> = new.iter().map(MappedImage::table).collect();
        self.probes.add_images(&tables).map_err(|error| error.to_string())?;
        self.images.extend(new);
        Ok(())
    }

    fn count(&mut self, samples: &[(VirtualAddress, u64)]) -> Result<Added, String> {
        let is_known =
            |address: VirtualAddress| self.images.iter().any(|image| image.mapping.contains(address));
        if samples.iter().any(|(address, _)| !is_known(*address)) {
            let new = new_images(self.pid, &self.images).map_err(|error| error.to_string())?;
            self.images.extend(new);
        }
        self.probes.add_counters(&self.images, samples).map_err(|error| error.to_string())
    }

    fn executions(&mut self) -> Result<Option<Executions>, String> {
        let were_shared = self.probes.separate_threads().map_err(|error| error.to_string())?;
        let executions =
            self.probes.executions().map_err(|error| format!("cannot read the counters: {error}"))?;
        Ok((!were_shared).then_some(executions))
    }

    fn remove(&mut self) -> Result<u64, String> {
        self.probes.remove().map_err(|error| error.to_string())?;
        Ok(self.probes.stopped_max().as_nanos() as u64)
    }
}

/// What the engine has in hand.
#[derive(Default)]
pub struct State {
    attached: Option<Attached>,
    /// What the engine has in hand that this one was forked from.
    original: Option<Attached>,
    /// The process that is followed.
    launch: Option<(Pid, Launch)>,
    /// The process that is held, and how.
    held: Option<(Pid, Change)>,
}

impl State {
    /// Does what a request wants.
    pub fn answer(&mut self, request: Request) -> Result<Answer, String> {
        match (request, &mut self.attached) {
            (Request::Follow { pid }, _) => self.follow(pid),
            (Request::Program, _) => self.program(),
            (Request::Leave, _) => self.leave(),
            (Request::LetGo, _) => self.let_go(),
            (Request::Attach { pid, with_paths }, None) => self.attach(pid, with_paths),
            (Request::Adopt { pid, descriptor }, None) => self.adopt(pid, descriptor),
            (Request::Copied, Some(attached)) => {
                attached.probes.copied().map(Answer::Copied).map_err(|error| error.to_string())
            }
            (Request::Fork, _) => Err("a fork is no matter of its state".to_owned()),
            (Request::Attach { .. } | Request::Adopt { .. }, Some(_)) => {
                Err("a process is attached already".to_owned())
            }
            (Request::Add { addresses, metrics }, Some(attached)) => {
                let functions = attached.add(&addresses, metrics)?;
                let stopped_ns = attached.probes.stopped_max().as_nanos() as u64;
                Ok(Answer::Added { functions, stopped_ns })
            }
            (Request::Refresh, Some(attached)) => attached.refresh().map(|()| Answer::Refreshed),
            (Request::Count { samples }, Some(attached)) => {
                let added = attached.count(&samples)?;
                let stopped_ns = attached.probes.stopped_max().as_nanos() as u64;
                Ok(Answer::Counting { added, stopped_ns })
            }
            (Request::Rest, Some(attached)) => {
                let added = attached.probes.rest_counters().map_err(|error| error.to_string())?;
                let stopped_ns = attached.probes.stopped_max().as_nanos() as u64;
                Ok(Answer::Counting { added, stopped_ns })
            }
            (Request::Executions, Some(attached)) => attached.executions().map(Answer::Executions),
            (Request::Remove, Some(attached)) => {
                let stopped_ns = attached.remove()?;
                self.attached = None;
                Ok(Answer::Removed { stopped_ns })
            }
            (_, None) => Err("no process is attached".to_owned()),
        }
    }

    fn attach(&mut self, pid: Pid, with_paths: bool) -> Result<Answer, String> {
        let images = process_images(pid).map_err(|error| error.to_string())?;
        let with_tables = images.iter().filter(|_| with_paths);
        let tables: Vec<_> = with_tables.map(MappedImage::table).collect();
        let probes = Probes::attach(pid, &tables).map_err(|error| error.to_string())?;
        Ok(self.have(Attached { pid, images, probes }))
    }

    fn have(&mut self, attached: Attached) -> Answer {
        let descriptor = attached.probes.file().as_raw_fd();
        let stopped_ns = attached.probes.stopped_max().as_nanos() as u64;
        self.attached = Some(attached);
        Answer::Attached { descriptor, stopped_ns }
    }

    /// Leaves the process to the engine that this one was forked from.
    pub fn become_copy(&mut self) {
        *self = State { original: self.attached.take(), ..State::default() };
    }

    /// Lets the processes that are followed or held go.
    pub fn let_all_go(&mut self) {
        if self.launch.is_some() {
            let _ = self.leave();
        }
        let _ = self.let_go();
    }

    /// Tries to remove all probes, and returns whether there are none.
    pub fn remove(&mut self) -> bool {
        self.attached.as_mut().is_none_or(|attached| attached.remove().is_ok())
    }

    fn adopt(&mut self, pid: Pid, descriptor: i32) -> Result<Answer, String> {
        let Attached { images, probes, .. } = self.original.take().ok_or("this engine has no original")?;
        let tables: Vec<_> = images.iter().map(MappedImage::table).collect();
        let probes = probes.adopt(pid, descriptor, &tables).map_err(|error| error.to_string())?;
        Ok(self.have(Attached { pid, images, probes }))
    }

    fn follow(&mut self, pid: Pid) -> Result<Answer, String> {
        let hold = self.held.as_ref().map(|(_, hold)| hold.clone());
        let launch = Launch::follow(pid, hold);
        let launch = launch.map_err(|error| format!("cannot follow process {pid}: {error}"))?;
        (self.launch, self.held) = (Some((pid, launch)), None);
        Ok(Answer::Following)
    }

    fn program(&mut self) -> Result<Answer, String> {
        match &self.launch {
            Some((_, launch)) if !launch.is_over() => Ok(Answer::Program(Program::Runs)),
            _ => self.leave(),
        }
    }

    fn leave(&mut self) -> Result<Answer, String> {
        let (pid, launch) = self.launch.take().ok_or("no process is followed")?;
        let followed = launch.end();
        match followed.map_err(|error| format!("cannot follow process {pid} to its program: {error}"))? {
            Followed::Held(hold) => {
                self.held = Some((pid, hold));
                Ok(Answer::Program(Program::Held))
            }
            Followed::Ended => Ok(Answer::Program(Program::Ended)),
            Followed::Left => Ok(Answer::Program(Program::Runs)),
        }
    }

    fn let_go(&mut self) -> Result<Answer, String> {
        let Some((pid, hold)) = self.held.take() else { return Ok(Answer::Running) };
        match let_go(pid, &hold) {
            Err(error) if !procfs::is_over(pid) => Err(format!("cannot let process {pid} run: {error}")),
            _ => Ok(Answer::Running),
        }
    }
}

impl Attached {
    fn add(
        &mut self,
        addresses: &[VirtualAddress],
        metrics: Metrics,
    ) -> Result<Vec<Result<u32, String>>, String> {
        let mut codes = Vec::with_capacity(addresses.len());
        for address in addresses {
            let image = self.images.iter().find(|image| image.mapping.contains(*address));
            let procedure = image.and_then(|image| image.procedure_at(*address));
            codes.push(match (image, procedure) {
                (Some(image), Some(procedure)) => {
                    let code = image.codes(&[procedure]).pop().expect("one code for one procedure");
                    code.map_err(|refusal| refusal.to_string())
                }
                _ => Err(format!("there is no function at 0x{address}")),
            });
        }
        let good: Vec<_> = codes.iter().flatten().map(|code| (code, metrics)).collect();
        let mut added = self.probes.add(&good).map_err(|error| error.to_string())?.into_iter();
        Ok(codes
            .iter()
            .map(|code| match code {
                Ok(_) => added.next().expect("a result for each code").map_err(|refusal| refusal.to_string()),
                Err(message) => Err(message.clone()),
            })
            .collect())
    }
}
