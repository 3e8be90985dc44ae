//! Applications and their executions (instances in SLEEPY).
//!
//! Enters: executions as processes begin them, and names as they become known. Leaves: the application and instance of each
//! execution. Never here: pids, which are reused while executions are not.
//!
//! A build executes its compiler thousands of times, with one or two samples each. If all these executions were kept apart,
//! 95% of all rows would count a single sample. [`InstanceLimits`] limits how many are kept apart; the others are counted together as
//! instance 0.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// One execution of a program, or one kernel thread. Forked children share the execution of their parent until they exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExecutionId(pub u32);

/// Application and instance of an execution, as the database stores them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppInstance {
    /// Name of the application.
    pub app: Arc<str>,
    /// Number of this execution of the application in the epoch, from 1. It is 0 for kernel threads, for the unknown, and
    /// for executions that are not kept apart.
    pub instance: u32,
}

/// Limits on the executions that are kept apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceLimits {
    /// Most executions of each application that are kept apart in an epoch; the first ones are.
    pub of_app_max: u32,
    /// Most executions of all applications that are kept apart in an epoch.
    pub in_all_max: u32,
    /// Applications whose processes are all kept apart (DCPI §4.3), regardless of `of_app_max` but within `in_all_max`.
    pub by_process: Vec<String>,
}

impl InstanceLimits {
    /// Returns the limits for one run of `record`, which keeps all executions of an application apart, up to `in_all_max`.
    pub const fn in_a_run(by_process: Vec<String>) -> Self {
        InstanceLimits { of_app_max: u32::MAX, in_all_max: 1 << 16, by_process }
    }

    /// Returns the limits for continuous recording by the daemon.
    pub const fn for_good(by_process: Vec<String>) -> Self {
        InstanceLimits { of_app_max: 16, in_all_max: 1 << 12, by_process }
    }

    /// Returns whether each process of an application is an instance of its own.
    pub fn is_by_process(&self, app: &str) -> bool {
        self.by_process.iter().any(|chosen| chosen == app)
    }
}

/// Most applications that are distinguished in an epoch; later ones are counted as [`OTHERS`].
const APPS_MAX: usize = 1 << 12;
/// Name under which applications beyond the limit are counted.
const OTHERS: &str = "[others]";
/// Most bytes of a thread name; the kernel cuts longer ones.
const COMM_BYTES_MAX: usize = 15;

/// The executions to which live processes or stored counts refer.
#[derive(Debug)]
pub struct Applications {
    executions: FxHashMap<ExecutionId, Execution>,
    next: u32,
    numbers: Numbers,
    together: FxHashMap<Arc<str>, ExecutionId>,
}

#[derive(Debug)]
struct Execution {
    /// The thread name, which names the execution until its executable is known.
    comm: Arc<str>,
    named: Option<AppInstance>,
    counted: bool,
    /// The execution that represents all executions of the application, if this one is not kept apart and has counts.
    together: Option<ExecutionId>,
}

/// The instance numbers assigned in the epoch.
#[derive(Debug)]
struct Numbers {
    apart: InstanceLimits,
    by_app: FxHashMap<Arc<str>, u32>,
    kept_apart: u32,
    /// The applications that are kept; empty: all.
    kept: Vec<String>,
}

impl Applications {
    /// Returns an empty registry with these limits on executions that are kept apart.
    pub fn new(apart: InstanceLimits) -> Self {
        let numbers = Numbers { apart, by_app: FxHashMap::default(), kept_apart: 0, kept: Vec::new() };
        let (executions, together) = Default::default();
        Applications { executions, next: 0, numbers, together }
    }

    /// Returns the limits on executions that are kept apart.
    pub fn apart(&self) -> &InstanceLimits {
        &self.numbers.apart
    }

    /// Selects the applications whose executions are kept. Without any, all are.
    pub fn keep_only(&mut self, apps: Vec<String>) {
        self.numbers.kept = apps;
    }

    /// Returns the applications whose executions are kept; empty: all.
    pub fn kept(&self) -> &[String] {
        &self.numbers.kept
    }

    /// Returns whether an execution is of an application that is kept. Until its executable is known, its thread name
    /// decides, which is the beginning of that name.
    pub fn is_kept(&self, id: ExecutionId) -> bool {
        let kept = self.kept();
        if kept.is_empty() {
            return true;
        }
        let Some(Execution { comm, named, .. }) = self.executions.get(&id) else { return false };
        match named {
            Some(AppInstance { app, .. }) => self.numbers.is_kept(app),
            None if comm.len() < COMM_BYTES_MAX => self.numbers.is_kept(comm),
            None => kept.iter().any(|app| app.starts_with(&**comm)),
        }
    }

    /// Begins an execution for a forked child if the application's processes are kept apart; returns `None` otherwise.
    pub fn begin_child(&mut self, parent: ExecutionId) -> Option<ExecutionId> {
        let app = self.executions.get(&parent)?.named.as_ref()?.app.clone();
        self.numbers.apart.is_by_process(&app).then(|| {
            let child = self.begin(&app);
            self.name(child, &app);
            child
        })
    }

    /// Begins an execution of a program. Its executable becomes known with its first mapping.
    pub fn begin(&mut self, comm: &str) -> ExecutionId {
        self.insert(Execution { comm: comm.into(), named: None, counted: true, together: None })
    }

    /// Begins an execution without an instance number: a kernel thread, the idle task, or the unknown.
    pub fn uncounted(&mut self, name: &str) -> ExecutionId {
        let app: Arc<str> = name.into();
        let named = Some(AppInstance { app: app.clone(), instance: 0 });
        self.insert(Execution { comm: app, named, counted: false, together: None })
    }

    /// Returns the execution (instance 0) that represents all executions of an application that are not kept apart.
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

    /// Names an execution after its executable. Only the first call has an effect.
    pub fn name(&mut self, id: ExecutionId, executable: &str) {
        let Some(execution) = self.executions.get_mut(&id).filter(|e| e.named.is_none()) else { return };
        execution.named = Some(self.numbers.next(executable));
    }

    /// Returns application and instance. If the executable is still unknown, the execution keeps its thread name for good.
    pub fn resolve(&mut self, id: ExecutionId) -> AppInstance {
        let Some(execution) = self.executions.get_mut(&id) else {
            return AppInstance { app: "unknown".into(), instance: 0 };
        };
        let comm = execution.comm.clone();
        execution.named.get_or_insert_with(|| self.numbers.next(&comm)).clone()
    }

    /// Returns the execution under which samples are counted: this one, or the one that represents the whole application.
    pub fn counted_as(&mut self, id: ExecutionId) -> ExecutionId {
        let Some(execution) = self.executions.get(&id).filter(|e| e.counted) else { return id };
        match (&execution.named, execution.together) {
            (_, Some(together)) => together,
            (Some(AppInstance { app, instance: 0 }), None) => {
                let together = self.together(&app.clone());
                self.executions.entry(id).and_modify(|e| e.together = Some(together));
                together
            }
            _ => id,
        }
    }

    /// Returns the number of executions in memory.
    pub fn count(&self) -> usize {
        self.executions.len()
    }

    /// Forgets executions that are no longer referred to.
    pub fn retain(&mut self, live: &dyn Fn(ExecutionId) -> bool) {
        self.together.clear();
        self.executions.retain(|id, _| live(*id));
        self.executions.values_mut().for_each(|execution| execution.together = None);
    }

    /// Begins a new epoch. Instances count from 1 again, and executions that continue are numbered first, in their order.
    pub fn renumber(&mut self) {
        self.numbers.by_app.clear();
        self.numbers.kept_apart = 0;
        let mut ids: Vec<ExecutionId> = self.executions.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(execution) = self.executions.get_mut(&id).filter(|e| e.counted) else { continue };
            execution.named = execution.named.as_ref().map(|n| self.numbers.next(&n.app));
            execution.together = None; // In the new epoch it may be kept apart.
        }
    }
}

impl Numbers {
    fn is_kept(&self, app: &str) -> bool {
        self.kept.iter().any(|kept| kept == app)
    }

    /// Assigns the number of an application's next execution; it is 0 beyond the limits.
    fn next(&mut self, app: &str) -> AppInstance {
        let known = self.by_app.get_key_value(app).map(|(name, last)| (name.clone(), *last));
        let (name, last) = match known {
            Some(known) => known,
            None if self.by_app.len() < APPS_MAX || self.is_kept(app) => (app.into(), 0),
            None => return AppInstance { app: OTHERS.into(), instance: 0 },
        };
        let number = last.saturating_add(1);
        self.by_app.insert(name.clone(), number);
        let apart = number <= self.apart.of_app_max || self.apart.is_by_process(app);
        let apart = apart && self.kept_apart < self.apart.in_all_max;
        // Executions that are not kept do not use up the limit.
        let apart = apart && (self.kept.is_empty() || self.is_kept(app));
        self.kept_apart += u32::from(apart);
        AppInstance { app: name, instance: if apart { number } else { 0 } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(apps: &mut Applications, id: ExecutionId) -> String {
        let AppInstance { app, instance } = apps.resolve(id);
        format!("{app}#{instance}")
    }

    #[test]
    fn executions_are_numbered_by_application_and_epoch() {
        let mut apps = Applications::new(InstanceLimits::in_a_run(Vec::new()));
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

    #[test]
    fn executions_beyond_the_limits_are_counted_together() {
        let apart = InstanceLimits { of_app_max: 2, in_all_max: 5, by_process: vec!["db".to_owned()] };
        let mut apps = Applications::new(apart);
        let mut told_next = |app: &str| {
            let id = apps.begin("comm");
            apps.name(id, app);
            told(&mut apps, id)
        };
        let names: Vec<String> = ["cc1", "cc1", "cc1", "db", "db", "db", "db"].map(&mut told_next).into();
        assert_eq!(names, ["cc1#1", "cc1#2", "cc1#0", "db#1", "db#2", "db#3", "db#0"]);
        (0..APPS_MAX).for_each(|at| drop(told_next(&format!("a{at}"))));
        assert_eq!(told_next("one more"), "[others]#0");
        apps.renumber();
        assert_eq!(told(&mut apps, ExecutionId(2)), "cc1#0", "the third of those that go on");
    }

    #[test]
    fn only_chosen_applications_are_kept() {
        let mut apps = Applications::new(InstanceLimits::for_good(Vec::new()));
        let (db, other, kernel) = (apps.begin("db"), apps.begin("sh"), apps.uncounted("kworker"));
        let long = apps.begin("a-name-of-sixte");
        let kept = |apps: &Applications| [db, other, kernel, long].map(|id| apps.is_kept(id));
        assert_eq!(kept(&apps), [true; 4]);
        apps.keep_only(vec!["db".to_owned(), "a-name-of-sixteen".to_owned()]);
        assert_eq!(kept(&apps), [true, false, false, true], "by their thread names");
        apps.name(other, "db");
        apps.name(db, "db-helper");
        assert_eq!(kept(&apps), [false, true, false, true], "by their executables");
        (0..APPS_MAX).for_each(|at| {
            let id = apps.begin("comm");
            apps.name(id, &format!("a{at}"));
        });
        apps.name(long, "a-name-of-sixteen");
        assert_eq!(told(&mut apps, long), "a-name-of-sixteen#1", "never one of [others]");
        apps.keep_only(Vec::new());
        assert_eq!(kept(&apps), [true; 4]);
    }

    #[test]
    fn children_are_instances_where_processes_are_kept_apart() {
        let mut apps = Applications::new(InstanceLimits::for_good(vec!["db".to_owned()]));
        let (db, cc) = (apps.begin("db"), apps.begin("cc1"));
        apps.name(db, "db");
        apps.name(cc, "cc1");
        let child = apps.begin_child(db).unwrap();
        assert_eq!(told(&mut apps, child), "db#2");
        assert_eq!(apps.begin_child(cc), None);
    }
}
