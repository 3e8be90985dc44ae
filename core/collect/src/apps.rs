//! Applications and their executions (SLEEPY's instances).
//!
//! Enters: executions as processes begin them, names as they become known. Leaves: application and instance for each.
//! Never here: pids; they are reused, executions are not.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// One execution of a program, or one kernel thread; forked children share their parent's until they exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExecutionId(pub u32);

/// Who ran, as the database names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppInstance {
    /// The application.
    pub app: Arc<str>,
    /// Its how-many-th execution in the epoch, from 1; 0 for kernel threads and the unknown.
    pub instance: u32,
}

/// The executions that live processes or uncounted samples refer to.
#[derive(Debug, Default)]
pub struct Apps {
    executions: FxHashMap<ExecutionId, Execution>,
    next: u32,
    instances: FxHashMap<Arc<str>, u32>,
    together: FxHashMap<Arc<str>, ExecutionId>,
}

#[derive(Debug)]
struct Execution {
    /// What it is called until its executable is known.
    comm: Arc<str>,
    named: Option<AppInstance>,
    counted: bool,
}

impl Apps {
    /// A program's execution that has just begun; its executable becomes known with its first mapping.
    pub fn begin(&mut self, comm: &str) -> ExecutionId {
        self.insert(Execution { comm: comm.into(), named: None, counted: true })
    }

    /// A kernel thread, the idle task, the unknown: without instances.
    pub fn uncounted(&mut self, name: &str) -> ExecutionId {
        let app: Arc<str> = name.into();
        let named = Some(AppInstance { app: app.clone(), instance: 0 });
        self.insert(Execution { comm: app, named, counted: false })
    }

    /// Stands for all executions of an application, where they are not kept apart: instance 0.
    pub fn together(&mut self, app: &str) -> ExecutionId {
        if let Some(id) = self.together.get(app) {
            return *id;
        }
        let id = self.uncounted(app);
        self.together.insert(app.into(), id);
        id
    }

    fn insert(&mut self, execution: Execution) -> ExecutionId {
        let id = ExecutionId(self.next);
        self.next += 1;
        self.executions.insert(id, execution);
        id
    }

    /// Names an execution after its executable, once; later names are ignored.
    pub fn name(&mut self, id: ExecutionId, executable: &str) {
        let Some(execution) = self.executions.get_mut(&id).filter(|e| e.named.is_none()) else { return };
        execution.named = Some(number(&mut self.instances, executable));
    }

    /// Application and instance; an execution whose executable is not known takes its comm for good.
    pub fn resolve(&mut self, id: ExecutionId) -> AppInstance {
        let Some(execution) = self.executions.get_mut(&id) else {
            return AppInstance { app: "unknown".into(), instance: 0 };
        };
        let comm = execution.comm.clone();
        execution.named.get_or_insert_with(|| number(&mut self.instances, &comm)).clone()
    }

    /// Forgets executions that nobody refers to any more.
    pub fn retain(&mut self, live: &dyn Fn(ExecutionId) -> bool) {
        self.together.clear();
        self.executions.retain(|id, _| live(*id));
    }

    /// Begins a new epoch: instances count from 1 again, executions that go on first, in their order.
    pub fn renumber(&mut self) {
        self.instances.clear();
        let mut ids: Vec<ExecutionId> = self.executions.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(execution) = self.executions.get_mut(&id).filter(|e| e.counted) else { continue };
            execution.named = execution.named.as_ref().map(|n| number(&mut self.instances, &n.app));
        }
    }
}

fn number(instances: &mut FxHashMap<Arc<str>, u32>, app: &str) -> AppInstance {
    if let Some((name, last)) = instances.get_key_value(app).map(|(n, l)| (n.clone(), *l)) {
        instances.insert(name.clone(), last + 1);
        return AppInstance { app: name, instance: last + 1 };
    }
    let name: Arc<str> = app.into();
    instances.insert(name.clone(), 1);
    AppInstance { app: name, instance: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(apps: &mut Apps, id: ExecutionId) -> String {
        let AppInstance { app, instance } = apps.resolve(id);
        format!("{app}#{instance}")
    }

    #[test]
    fn executions_are_numbered_by_application_and_epoch() {
        let mut apps = Apps::default();
        let (first, script, second) = (apps.begin("cc1"), apps.begin("configure"), apps.begin("cc1"));
        let kernel = apps.uncounted("kworker");
        apps.name(first, "cc1");
        apps.name(second, "cc1");
        apps.name(second, "late");
        assert_eq!(told(&mut apps, first), "cc1#1");
        assert_eq!(told(&mut apps, second), "cc1#2");
        assert_eq!(told(&mut apps, script), "configure#1", "its comm, as no executable came");
        assert_eq!(told(&mut apps, kernel), "kworker#0");
        apps.retain(&|id| id != first);
        apps.renumber();
        assert_eq!(told(&mut apps, second), "cc1#1");
        assert_eq!(told(&mut apps, kernel), "kworker#0");
        assert_eq!(told(&mut apps, first), "unknown#0");
    }
}
