//! Converts paths of control groups to the names that people use: containers, pods, services, sessions.

/// Number of digits of a container id that are shown.
const SHORT_ID: usize = 12;

/// Returns the usual name of what runs in a control group: `docker 3f2a…`, `pod 1b4e… cri-containerd 9c0d…`,
/// `nginx.service`, `session 3 of user 1000`. Returns `None` if the path follows no known naming scheme.
pub fn container(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let pod = parts.iter().rev().find_map(|part| pod(part));
    let container = parts.iter().enumerate().rev().find_map(|(at, part)| {
        let parent = at.checked_sub(1).and_then(|at| parts.get(at)).copied().unwrap_or_default();
        container_of(part, parent, pod.is_some())
    });
    match (pod, container) {
        (Some(pod), Some(container)) => Some(format!("pod {pod} {container}")),
        (Some(pod), None) => Some(format!("pod {pod}")),
        (None, Some(container)) => Some(container),
        (None, None) => parts.iter().rev().find_map(|part| unit(part)),
    }
}

/// Parses the name of a pod: `kubepods-burstable-pod1b4e….slice` (systemd driver) or `pod1b4e…` (cgroupfs driver).
fn pod(part: &str) -> Option<String> {
    let part = part.strip_suffix(".slice").unwrap_or(part);
    let id = match part.strip_prefix("kubepods") {
        Some(rest) => rest.rsplit_once("-pod")?.1,
        None => part.strip_prefix("pod")?,
    };
    let id = id.replace('_', "-");
    is_hex(&id.replace('-', "")).then(|| id.chars().take(8).collect())
}

/// Parses the name of a container: `docker-3f2a….scope`, `libpod-….scope`, `cri-containerd-….scope`, `crio-….scope`, or a
/// bare id below `docker`, `libpod`, a pod, …; `lxc.payload.NAME` of LXC and `machine-NAME.scope` of systemd-nspawn.
fn container_of(part: &str, parent: &str, in_pod: bool) -> Option<String> {
    let short = |id: &str| id.chars().take(SHORT_ID).collect::<String>();
    if let Some(name) = part.strip_prefix("lxc.payload.").filter(|n| !n.is_empty()) {
        return Some(format!("lxc {name}"));
    }
    let scope = part.strip_suffix(".scope");
    if let Some(name) = scope.and_then(|s| s.strip_prefix("machine-")) {
        return Some(format!("machine {}", unescaped(name)));
    }
    let (engine, id) = match scope.and_then(|s| s.rsplit_once('-')) {
        Some((engine, id)) => (engine, id),
        None => (if in_pod && parent != "docker" { "container" } else { parent }, part),
    };
    let known = ["docker", "libpod", "podman", "cri-containerd", "crio", "containerd", "container"];
    let engine = known.into_iter().find(|k| *k == engine)?;
    let is_id = id.len() >= 2 * SHORT_ID && is_hex(id);
    is_id.then(|| format!("{} {}", if engine == "libpod" { "podman" } else { engine }, short(id)))
}

/// Parses the name of a systemd unit: a service or a user's session.
fn unit(part: &str) -> Option<String> {
    if let Some(session) = part.strip_prefix("session-").and_then(|s| s.strip_suffix(".scope")) {
        return Some(format!("session {session}"));
    }
    let is_unit = [".service", ".scope"].iter().any(|kind| part.ends_with(kind));
    is_unit.then(|| unescaped(part))
}

/// Undoes systemd's escaping of `-` as `\x2d`.
fn unescaped(name: &str) -> String {
    name.replace("\\x2d", "-")
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_groups_have_the_names_that_people_use() {
        const ID: &str = "3f2a9c0d1e5b3f2a9c0d1e5b3f2a9c0d1e5b3f2a9c0d1e5b3f2a9c0d1e5b3f2a";
        let check = |path: &str, name: Option<&str>| {
            assert_eq!(container(&path.replace("ID", ID)).as_deref(), name, "{path}");
        };
        check("/system.slice/docker-ID.scope", Some("docker 3f2a9c0d1e5b"));
        check("/docker/ID", Some("docker 3f2a9c0d1e5b"));
        check("/docker/ID/init.scope", Some("docker 3f2a9c0d1e5b"));
        check("/machine.slice/libpod-ID.scope/container", Some("podman 3f2a9c0d1e5b"));
        check(
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope",
            Some("podman 3f2a9c0d1e5b"),
        );
        check("/libpod_parent/libpod-ID", None);
        let pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b4e5c66_0a1b.slice";
        check(&format!("{pod}/cri-containerd-ID.scope"), Some("pod 1b4e5c66 cri-containerd 3f2a9c0d1e5b"));
        check(&format!("{pod}/crio-ID.scope"), Some("pod 1b4e5c66 crio 3f2a9c0d1e5b"));
        check("/kubepods/besteffort/pod1b4e5c66-0a1b/ID", Some("pod 1b4e5c66 container 3f2a9c0d1e5b"));
        check("/lxc.payload.web/system.slice/nginx.service", Some("lxc web"));
        check("/machine.slice/machine-web\\x2d1.scope", Some("machine web-1"));
        check("/system.slice/nginx.service", Some("nginx.service"));
        check("/user.slice/user-1000.slice/session-3.scope", Some("session 3"));
        check("/system.slice/systemd\\x2dudevd.service", Some("systemd-udevd.service"));
        check("/", None);
        check("/process_api/744f", None);
    }
}
