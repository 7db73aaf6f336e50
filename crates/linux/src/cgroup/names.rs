//! What people call a control group: its unit, its container, its pod.
//!
//! A container's id is in the group's path; systemd's and cgroupfs's drivers spell it differently. Names come from what runtimes
//! and kubelet leave on disk, so that nobody has to be asked.

use crate::roots::Roots;
use isotherm_core::printable::printable;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Links that kubelet keeps: `POD_NAMESPACE_CONTAINER-ID.log`.
const KUBELET: &str = "/var/log/containers";
const DOCKER: &str = "/var/lib/docker/containers";
const PODMAN: &str = "/var/lib/containers/storage/overlay-containers/containers.json";
/// Endings of units that have processes.
const UNITS: [&str; 5] = [".service", ".scope", ".socket", ".mount", ".slice"];

/// What is known of a group's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupNames {
    /// Of systemd: the innermost that the group is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// As its runtime numbers it, in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
    /// Its name, as its runtime or Kubernetes has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// In Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// In Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl GroupNames {
    /// The shortest that tells it from others; `None`: its path says all that is known.
    pub fn label(&self) -> Option<String> {
        match (&self.namespace, &self.pod, &self.container) {
            (Some(namespace), Some(pod), Some(container)) => Some(format!("{namespace}/{pod}/{container}")),
            (_, _, Some(container)) => Some(container.clone()),
            _ => self.container_id.as_ref().map(|id| id[..12].to_owned()).or_else(|| self.unit.clone()),
        }
    }
}

/// Names of the containers of this machine, as of when they were read.
#[derive(Debug, Default)]
pub struct ContainerNames {
    by_id: HashMap<String, GroupNames>,
}

impl ContainerNames {
    /// What can be read is taken; what cannot is left out.
    pub fn read(roots: &Roots) -> Self {
        let mut names = Self::default();
        names.podman(roots);
        names.docker(roots);
        // Last, since it knows most.
        names.kubelet(roots);
        names
    }

    /// What the group at this path is called.
    pub fn of(&self, path: &str) -> GroupNames {
        let Some(id) = path.rsplit('/').find_map(container_id) else {
            let is_unit = |part: &&str| UNITS.iter().any(|ending| part.ends_with(ending));
            let unit = path.rsplit('/').find(is_unit).map(|unit| printable(unit).into_owned());
            return GroupNames { unit, ..GroupNames::default() };
        };
        let known = self.by_id.get(id).cloned().unwrap_or_default();
        GroupNames { container_id: Some(id.to_owned()), ..known }
    }

    fn kubelet(&mut self, roots: &Roots) {
        for link in std::fs::read_dir(roots.path(KUBELET)).into_iter().flatten().flatten() {
            let name = link.file_name();
            let Some((names, id)) = name.to_str().and_then(kubelet_link) else { continue };
            self.by_id.insert(id, names);
        }
    }

    fn docker(&mut self, roots: &Roots) {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Config {
            name: String,
        }
        for folder in std::fs::read_dir(roots.path(DOCKER)).into_iter().flatten().flatten() {
            let id = folder.file_name();
            let Some(id) = id.to_str().and_then(container_id) else { continue };
            let text = std::fs::read(folder.path().join("config.v2.json")).unwrap_or_default();
            if let Ok(config) = serde_json::from_slice::<Config>(&text) {
                self.add(id, config.name.trim_start_matches('/'));
            }
        }
    }

    fn podman(&mut self, roots: &Roots) {
        #[derive(Deserialize)]
        struct Container {
            id: String,
            #[serde(default)]
            names: Vec<String>,
        }
        let text = std::fs::read(roots.path(PODMAN)).unwrap_or_default();
        for container in serde_json::from_slice::<Vec<Container>>(&text).unwrap_or_default() {
            if let (Some(id), Some(name)) = (container_id(&container.id), container.names.first()) {
                self.add(id, name);
            }
        }
    }

    fn add(&mut self, id: &str, name: &str) {
        let container = Some(printable(name).into_owned());
        self.by_id.insert(id.to_owned(), GroupNames { container, ..GroupNames::default() });
    }
}

/// The id in a part of a path: `ID`, `docker-ID.scope`, `cri-containerd-ID.scope`, `libpod-ID.scope`, ...
fn container_id(part: &str) -> Option<&str> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let id = part.rsplit(['-', ':']).next()?;
    (id.len() == 64 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))).then_some(id)
}

/// Names and id in the name of one of kubelet's links.
fn kubelet_link(name: &str) -> Option<(GroupNames, String)> {
    let (rest, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
    let id = container_id(id)?;
    let mut parts = rest.splitn(3, '_').map(|part| printable(part).into_owned());
    let (pod, namespace, container) = (parts.next()?, parts.next()?, parts.next()?);
    let names =
        GroupNames { namespace: Some(namespace), pod: Some(pod), container: Some(container), ..GroupNames::default() };
    Some((names, id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    const C: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn containers_are_found_by_every_drivers_spelling() {
        for path in [
            format!("/docker/{A}"),
            format!("/system.slice/docker-{A}.scope"),
            format!("/kubepods/burstable/pod3c/{A}"),
            format!("/kubepods.slice/kubepods-pod3c.slice/cri-containerd-{A}.scope"),
            format!("/kubepods.slice/kubepods-pod3c.slice/crio-{A}.scope/container"),
            format!("/machine.slice/libpod-{A}.scope"),
            format!("/system.slice/containerd.service/kubepods-pod3c.slice:cri-containerd:{A}"),
        ] {
            let names = ContainerNames::default().of(&path);
            assert_eq!((names.container_id.as_deref(), names.unit), (Some(A), None), "{path}");
        }
        let upper = A.to_uppercase();
        for path in
            [format!("/x/{upper}"), format!("/x/{}", &A[1..]), format!("/x/{A}a"), "/".to_owned(), String::new()]
        {
            assert_eq!(ContainerNames::default().of(&path), GroupNames::default(), "{path}");
        }
    }

    #[test]
    fn units_are_the_innermost() {
        let unit = |path: &str| ContainerNames::default().of(path).unit;
        assert_eq!(unit("/system.slice/nginx.service").as_deref(), Some("nginx.service"));
        assert_eq!(unit("/user.slice/user-0.slice/session-3.scope/x").as_deref(), Some("session-3.scope"));
        assert_eq!(unit("/a.slice/\u{1b}[31m.service").as_deref(), Some("\\u{1b}[31m.service"));
        assert_eq!(unit("/x/y"), None);
    }

    #[test]
    fn names_come_from_what_kubelet_and_runtimes_leave() {
        let podman = format!(r#"[{{"id": "{C}", "names": ["web", "other"]}}, {{"id": "{B}"}}]"#);
        let t = tree(&[
            (&format!("var/log/containers/api-7d_shop_web-app-{A}.log"), ""),
            ("var/log/containers/broken.log", ""),
            (&format!("var/lib/docker/containers/{B}/config.v2.json"), r#"{"Name": "/red\u001bis", "State": {}}"#),
            (&format!("var/lib/docker/containers/{A}/config.v2.json"), "{"),
            ("var/lib/containers/storage/overlay-containers/containers.json", &podman),
        ]);
        let names = ContainerNames::read(&t.roots);
        let label = |id: &str| names.of(&format!("/x/{id}")).label();
        assert_eq!(label(A).as_deref(), Some("shop/api-7d/web-app"));
        assert_eq!(label(B).as_deref(), Some("red\\u{1b}is"));
        assert_eq!(label(C).as_deref(), Some("web"));
        assert_eq!(label(&A.replace('a', "d")).as_deref(), Some("dddddddddddd"));
        assert_eq!(ContainerNames::read(&tree(&[]).roots).of("/a.service").label().as_deref(), Some("a.service"));
    }
}
