//! The process that samples belong to, from the attributes of their resource.
//!
//! Enters: attributes of a resource and of a sample. Leaves: who they are about, and the keys that an import does not use.
//! Never here: places.
//!
//! Source: semantic conventions of OpenTelemetry 1.37, registries `process`, `container`, `host`, `service`, `thread`. The eBPF
//! profiler writes a resource for each process; older versions of it wrote the process into attributes of samples.

use std::collections::BTreeSet;

/// What is known about a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProcessName {
    host: String,
    container: String,
    pid: i64,
    executable: String,
    path: String,
    service: String,
    thread: String,
}

/// A value of an attribute, as far as it means something here.
#[derive(Clone, Debug)]
pub enum AttributeValue {
    Text(String),
    Number(i64),
    Other,
}

impl ProcessName {
    /// Notes an attribute. One that is about something else goes to `unread`.
    pub fn set(&mut self, key: &str, value: &AttributeValue, unread: &mut BTreeSet<String>) {
        let field = match key {
            "process.pid" => {
                match value {
                    AttributeValue::Number(pid) => self.pid = *pid,
                    _ => _ = unread.insert(key.to_owned()),
                }
                return;
            }
            "host.name" => &mut self.host,
            // It keeps processes apart, and is in no recording.
            "container.id" => {
                unread.insert(key.to_owned());
                &mut self.container
            }
            "process.executable.name" => &mut self.executable,
            "process.executable.path" => &mut self.path,
            "service.name" => &mut self.service,
            "thread.name" => &mut self.thread,
            _ => {
                unread.insert(key.to_owned());
                return;
            }
        };
        match value {
            AttributeValue::Text(text) => text.clone_into(field),
            _ => _ = unread.insert(key.to_owned()),
        }
    }

    /// Returns the name of the program; `None` if nothing names it. Threads of the kernel have no executable, so that
    /// the name of the thread is the best that there is.
    pub fn program(&self) -> Option<&str> {
        let file = self.path.rsplit('/').next().unwrap_or_default();
        [&*self.executable, file, &*self.service, &*self.thread].into_iter().find(|name| !name.is_empty())
    }

    /// Forgets the thread unless it is all that names the process, so that threads of a process are together.
    pub fn without_thread(mut self, unread: &mut BTreeSet<String>) -> ProcessName {
        let is_named = !(self.executable.is_empty() && self.path.is_empty() && self.service.is_empty());
        if is_named && !self.thread.is_empty() {
            self.thread.clear();
            unread.insert("thread.name".to_owned());
        }
        self
    }

    /// Returns the path of the program's file; empty if it is not known.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the name of the machine; empty if it is not known.
    pub fn host(&self) -> &str {
        &self.host
    }
}
