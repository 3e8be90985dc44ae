//! Explains why the kernel refused to let us sample, and what would help. It never suggests what is already the case.
//!
//! Enters: the error, and our rights. Leaves: one line. Never here: a guess where a fact can be read; advice that is already
//! followed, or that cannot help (such as advising root to become root).
//!
//! The kernel's own checks (kernel/events/core.c, `perf_event_open`) refuse with EACCES. EPERM comes from checks before them
//! (a seccomp filter, as in containers) or after them (a security module, lockdown).

use std::{fs, io, os::unix::fs::MetadataExt};

use dwell_profile::Pid;
use rustix::io::Errno;

/// The target of sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The whole machine.
    Machine,
    /// A command that we start.
    Command,
    /// A running process.
    Process(Pid),
}

const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// The facts that the kernel decides by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Our effective user id.
    pub user: u32,
    /// Effective capabilities, a bit for each, as in /proc/self/status.
    pub capabilities: u64,
    /// Whether a seccomp filter is installed for us.
    pub is_filtered: bool,
    /// Whether programs that we execute cannot gain rights.
    pub no_new_privileges: bool,
    /// Whether our capabilities are valid in a user namespace only.
    pub in_user_namespace: bool,
    /// kernel.perf_event_paranoid.
    pub paranoid: Option<i32>,
    /// The kernel's lockdown mode, where there is one.
    pub lockdown: Option<String>,
    /// The user of the process that is to be sampled.
    pub target_user: Option<u32>,
}

impl Rights {
    /// Reads the current rights.
    pub fn now(wanted: Wanted) -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let lockdown = read("/sys/kernel/security/lockdown");
        Rights {
            paranoid: read("/proc/sys/kernel/perf_event_paranoid").and_then(|text| text.parse().ok()),
            in_user_namespace: read("/proc/self/uid_map").is_some_and(|map| !is_initial(&map)),
            lockdown: lockdown.as_deref().and_then(chosen_lockdown),
            target_user: match wanted {
                Wanted::Process(pid) => fs::metadata(format!("/proc/{pid}")).ok().map(|m| m.uid()),
                _ => None,
            },
            ..Rights::in_status(&status)
        }
    }

    /// Parses the rights in /proc/self/status.
    fn in_status(status: &str) -> Self {
        let field =
            |name: &str| status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        let capabilities = field("CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let user = field("Uid").and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok());
        Rights {
            user: user.unwrap_or(0),
            capabilities: capabilities.unwrap_or(0),
            is_filtered: field("Seccomp") == Some("2"),
            no_new_privileges: field("NoNewPrivs") == Some("1"),
            in_user_namespace: false,
            paranoid: None,
            lockdown: None,
            target_user: None,
        }
    }

    fn has(&self, capability: u32) -> bool {
        !self.in_user_namespace && self.capabilities >> capability & 1 == 1
    }

    fn may_sample_all(&self) -> bool {
        self.has(CAP_PERFMON) || self.has(CAP_SYS_ADMIN)
    }

    /// Describes how to get a capability.
    fn how_to_get(&self, capability: &str) -> String {
        let name = capability.trim_start_matches("CAP_");
        if self.in_user_namespace {
            format!("start dwell outside of its user namespace, with {capability}")
        } else if self.user == 0 {
            format!("give dwell {capability} (a container: `--cap-add {name}`)")
        } else if self.no_new_privileges {
            format!(
                "start dwell as root or with {capability} (no_new_privs is set for it, so sudo and file capabilities have no effect)"
            )
        } else {
            format!("run as root or give dwell {capability}")
        }
    }

    /// Returns the capabilities that sampling by BPF needs and that we lack.
    pub fn lacking_for_bpf(&self) -> Vec<&'static str> {
        let needed = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")];
        let lacks = |(capability, _): &(u32, &str)| !self.has(*capability) && !self.has(CAP_SYS_ADMIN);
        needed.into_iter().filter(lacks).map(|(_, name)| name).collect()
    }
}

const FILTERED: &str = "a seccomp filter, as containers use it, forbids perf_event_open";
const ALLOW_CALL: &str = "allow that call: in a container `--cap-add PERFMON`, or `--security-opt seccomp=PROFILE` with a profile \
                          that allows it; in a systemd unit `SystemCallFilter=perf_event_open`";

/// Explains why the kernel refused an event, and what to do, in one line.
pub fn explain(error: &io::Error, wanted: Wanted, rights: &Rights) -> String {
    let mut reasons: Vec<String> = Vec::new();
    let mut remedies: Vec<String> = Vec::new();
    let is_early = matches!(Errno::from_io_error(error), Some(Errno::PERM | Errno::NOSYS));
    if is_early && rights.is_filtered {
        reasons.push(FILTERED.to_owned());
        remedies.push(ALLOW_CALL.to_owned());
    }
    let paranoid_max = if wanted == Wanted::Machine { 0 } else { 2 };
    if let Some(paranoid) = rights.paranoid.filter(|value| *value > paranoid_max && !rights.may_sample_all())
    {
        reasons.push(format!("perf_event_paranoid is {paranoid} and {}", lacks(rights, "CAP_PERFMON")));
        let how = rights.how_to_get("CAP_PERFMON");
        remedies.push(format!("{how}, or `sysctl kernel.perf_event_paranoid={paranoid_max}`"));
    }
    if let (Wanted::Process(pid), Some(owner)) = (wanted, rights.target_user)
        && owner != rights.user
        && !rights.may_sample_all()
        && !rights.has(CAP_SYS_PTRACE)
    {
        let lacks = lacks(rights, "CAP_PERFMON and CAP_SYS_PTRACE");
        reasons.push(format!("process {pid} belongs to user {owner}, and {lacks}"));
        let as_owner = if owner == 0 { String::new() } else { format!("run as user {owner}, or ") };
        remedies.push(format!("{as_owner}{}", rights.how_to_get("CAP_PERFMON")));
    }
    if reasons.is_empty() {
        let (reason, remedy) = behind_the_checks(error, wanted, rights);
        reasons.push(reason);
        remedies.push(remedy);
    }
    remedies.dedup();
    format!("{}; {}", reasons.join("; "), remedies.join("; "))
}

fn lacks(rights: &Rights, capability: &str) -> String {
    if rights.in_user_namespace {
        format!("dwell is in a user namespace, whose capabilities do not count ({capability})")
    } else {
        format!("dwell lacks {capability}")
    }
}

/// Explains a refusal that our rights cannot explain: returns the reason and what to do.
fn behind_the_checks(error: &io::Error, wanted: Wanted, rights: &Rights) -> (String, String) {
    if rights.is_filtered {
        return (FILTERED.to_owned(), ALLOW_CALL.to_owned()); // A filter may return any error.
    }
    if Errno::from_io_error(error) == Some(Errno::NOSYS) {
        let reason = "this kernel has no perf events".to_owned();
        return (reason, "use a kernel that was built with CONFIG_PERF_EVENTS".to_owned());
    }
    if let Some(lockdown) = &rights.lockdown {
        let remedy = "start the kernel without lockdown=confidentiality".to_owned();
        return (format!("{error}: the kernel is locked down ({lockdown})"), remedy);
    }
    if let (Wanted::Process(pid), false) = (wanted, rights.may_sample_all()) {
        let reason =
            format!("{error}: process {pid} has gained rights, or forbids others to look at its memory");
        return (reason, rights.how_to_get("CAP_PERFMON"));
    }
    let reason = format!(
        "{error}, although dwell has sufficient rights: a security module (SELinux, AppArmor) may forbid it"
    );
    (reason, "look at the log of the kernel and the audit log".to_owned())
}

/// Returns whether a uid_map is that of the initial namespace.
fn is_initial(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Returns the chosen mode in a text such as `none [integrity] confidentiality`, if it restricts us.
fn chosen_lockdown(text: &str) -> Option<String> {
    let chosen = text.split('[').nth(1)?.split(']').next()?;
    (chosen == "confidentiality").then(|| chosen.to_owned())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const ROOT: u64 = (1 << 41) - 1;
    /// The capabilities that container runtimes grant by default.
    const CONTAINER: u64 = 0xa804_25fb;

    fn rights(user: u32, capabilities: u64, paranoid: i32) -> Rights {
        let status =
            format!("Uid:\t{user}\t{user}\t{user}\t{user}\nCapEff:\t{capabilities:016x}\nSeccomp:\t0\n");
        Rights { paranoid: Some(paranoid), ..Rights::in_status(&status) }
    }

    fn check(errno: Errno, wanted: Wanted, rights: Rights, expected: Expect) {
        expected.assert_eq(&explain(&errno.into(), wanted, &rights));
    }

    #[test]
    fn a_seccomp_filter_is_named_and_advice_is_not_yet_followed() {
        let filtered = |rights| Rights { is_filtered: true, ..rights };
        check(
            Errno::PERM,
            Wanted::Command,
            filtered(rights(0, ROOT, 2)),
            expect![
                "a seccomp filter, as containers use it, forbids perf_event_open; allow that call: in a container `--cap-add PERFMON`, or `--security-opt seccomp=PROFILE` with a profile that allows it; in a systemd unit `SystemCallFilter=perf_event_open`"
            ],
        );
        check(
            Errno::PERM,
            Wanted::Machine,
            filtered(rights(0, CONTAINER, 2)),
            expect![
                "a seccomp filter, as containers use it, forbids perf_event_open; perf_event_paranoid is 2 and dwell lacks CAP_PERFMON; allow that call: in a container `--cap-add PERFMON`, or `--security-opt seccomp=PROFILE` with a profile that allows it; in a systemd unit `SystemCallFilter=perf_event_open`; give dwell CAP_PERFMON (a container: `--cap-add PERFMON`), or `sysctl kernel.perf_event_paranoid=0`"
            ],
        );
    }

    #[test]
    fn a_paranoid_kernel_is_named_where_its_value_is_too_high() {
        check(
            Errno::ACCESS,
            Wanted::Machine,
            rights(1000, 0, 2),
            expect![
                "perf_event_paranoid is 2 and dwell lacks CAP_PERFMON; run as root or give dwell CAP_PERFMON, or `sysctl kernel.perf_event_paranoid=0`"
            ],
        );
        check(
            Errno::ACCESS,
            Wanted::Command,
            Rights { no_new_privileges: true, ..rights(1000, 0, 4) },
            expect![
                "perf_event_paranoid is 4 and dwell lacks CAP_PERFMON; start dwell as root or with CAP_PERFMON (no_new_privs is set for it, so sudo and file capabilities have no effect), or `sysctl kernel.perf_event_paranoid=2`"
            ],
        );
        check(
            Errno::ACCESS,
            Wanted::Machine,
            Rights { in_user_namespace: true, ..rights(0, ROOT, 2) },
            expect![
                "perf_event_paranoid is 2 and dwell is in a user namespace, whose capabilities do not count (CAP_PERFMON); start dwell outside of its user namespace, with CAP_PERFMON, or `sysctl kernel.perf_event_paranoid=0`"
            ],
        );
    }

    #[test]
    fn another_users_process_needs_capabilities_at_any_paranoid_level() {
        let of = |owner, rights| Rights { target_user: Some(owner), ..rights };
        check(
            Errno::ACCESS,
            Wanted::Process(Pid(1)),
            of(0, rights(65534, 0, 2)),
            expect![
                "process 1 belongs to user 0, and dwell lacks CAP_PERFMON and CAP_SYS_PTRACE; run as root or give dwell CAP_PERFMON"
            ],
        );
        check(
            Errno::ACCESS,
            Wanted::Process(Pid(7)),
            of(33, rights(1000, 0, -1)),
            expect![
                "process 7 belongs to user 33, and dwell lacks CAP_PERFMON and CAP_SYS_PTRACE; run as user 33, or run as root or give dwell CAP_PERFMON"
            ],
        );
        check(
            Errno::ACCESS,
            Wanted::Process(Pid(7)),
            of(1000, rights(1000, 0, 1)),
            expect![
                "Permission denied (os error 13): process 7 has gained rights, or forbids others to look at its memory; run as root or give dwell CAP_PERFMON"
            ],
        );
    }

    #[test]
    fn refusals_despite_sufficient_rights_have_other_causes() {
        check(
            Errno::PERM,
            Wanted::Machine,
            Rights { lockdown: chosen_lockdown("none integrity [confidentiality]"), ..rights(0, ROOT, 4) },
            expect![
                "Operation not permitted (os error 1): the kernel is locked down (confidentiality); start the kernel without lockdown=confidentiality"
            ],
        );
        check(
            Errno::PERM,
            Wanted::Machine,
            rights(0, ROOT, 4),
            expect![
                "Operation not permitted (os error 1), although dwell has sufficient rights: a security module (SELinux, AppArmor) may forbid it; look at the log of the kernel and the audit log"
            ],
        );
    }

    #[test]
    fn rights_are_read() {
        let rights = Rights::now(Wanted::Process(Pid(std::process::id())));
        assert_eq!(rights.target_user, Some(rights.user));
        assert!(is_initial("         0          0 4294967295") && !is_initial("0 1000 1"));
        assert_eq!(chosen_lockdown("[none] integrity confidentiality"), None);
        assert_eq!(
            Rights::in_status("Seccomp:\t2\nNoNewPrivs:\t1\n").lacking_for_bpf(),
            ["CAP_BPF", "CAP_PERFMON"]
        );
    }
}
