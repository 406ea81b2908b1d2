//! Security contexts: the user, groups and capabilities a container runs with, and the members that this machine cannot honour.
//!
//! Nothing isolates a container from the machine, so members about the file system, the kernel's filters or its labels are
//! never honoured. Users and groups are, where this process may change them. Changes nothing itself: `shim` does.
//! Tests: `security/tests.rs`, and `tests/local/security.rs` with real processes.

use std::collections::BTreeSet;
use std::fmt;

use rustix::thread::{CapabilitySet, capabilities};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::accounts::Accounts;

/// Members of a `securityContext`, as written.
pub(crate) type Members = serde_json::Map<String, Value>;

/// A container that must not run as root would do so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "securityContext.runAsNonRoot is true, and the container would run as uid 0: add `runAsUser` with a user of this machine, or run \
     trainyard as one"
)]
pub(crate) struct RunsAsRoot;

/// A member of a security context that has no effect on this machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unhonoured {
    /// The container, or `None` for a member of the pod's own security context.
    pub container: Option<String>,
    /// Path below `securityContext`, for example `capabilities.add`.
    pub member: String,
    /// The value as JSON.
    pub value: String,
    /// Why it has no effect.
    pub reason: String,
}

impl fmt::Display for Unhonoured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "securityContext.{} {} of ", self.member, self.value)?;
        match &self.container {
            Some(name) => write!(f, "container {name:?}")?,
            None => f.write_str("the pod")?,
        }
        write!(f, " is not honoured: {}", self.reason)
    }
}

/// Returns the members of a Pod object's security contexts that cannot be honoured by this process on this machine.
///
/// `runAsNonRoot` is not among them: a container that it forbids is refused when it is to be started.
#[must_use]
pub fn unhonoured(pod: &Value) -> Vec<Unhonoured> {
    let (spec, rights) = (&pod["spec"], Rights::of_this_process());
    let empty = Members::new();
    let problems = |container: Option<&str>, object: &Value| {
        rights.problems(container, object["securityContext"].as_object().unwrap_or(&empty))
    };
    let containers = ["initContainers", "containers", "ephemeralContainers"];
    let all = containers.iter().flat_map(|field| spec[*field].as_array().into_iter().flatten());
    let of_containers =
        all.flat_map(|container| problems(Some(container["name"].as_str().unwrap_or_default()), container));
    problems(None, spec).into_iter().chain(of_containers).collect()
}

/// Privileges of this process.
#[derive(Debug, Clone)]
pub(crate) struct Rights {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: BTreeSet<u32>,
    pub(crate) capabilities: CapabilitySet,
}

/// User and groups of a program. Absent members are not changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    /// All supplementary groups.
    pub(crate) groups: Option<BTreeSet<u32>>,
    /// The group that is to own the pod's volumes.
    pub(crate) volume_group: Option<u32>,
    /// `HOME` of the new user.
    pub(crate) home: Option<String>,
    /// File mode creation mask.
    pub(crate) umask: Option<u32>,
    /// True if set-user-id programs give no privileges.
    pub(crate) no_new_privileges: bool,
    /// Capabilities that are taken away for good, as bits.
    pub(crate) dropped_capabilities: u64,
}

impl Rights {
    pub(crate) fn of_this_process() -> Self {
        // A kernel that does not answer grants nothing: members are then reported, not dropped.
        let capabilities = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
        let groups = rustix::process::getgroups().unwrap_or_default();
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().map(rustix::process::Gid::as_raw).collect(),
            capabilities,
        }
    }

    fn may_change_user(&self) -> bool {
        self.capabilities.contains(CapabilitySet::SETUID | CapabilitySet::SETGID)
    }

    fn is_in(&self, group: u32) -> bool {
        group == self.gid || self.groups.contains(&group)
    }

    /// The members of one security context that cannot be honoured: a container's, or the pod's own.
    pub(crate) fn problems(&self, container: Option<&str>, own: &Members) -> Vec<Unhonoured> {
        let mut found = Vec::new();
        let mut report = |member: &str, value: &Value, reason: String| {
            let (container, member) = (container.map(str::to_owned), member.to_owned());
            found.push(Unhonoured { container, member, value: value.to_string(), reason });
        };
        for (member, value) in own.iter().filter(|(_, value)| !value.is_null()) {
            match member.as_str() {
                "runAsUser" => match number(value) {
                    Some(uid) if uid == self.uid || self.may_change_user() => {}
                    Some(_) => report(member, value, format!("it runs as user {}, as trainyard does", self.uid)),
                    None => report(member, value, "it is not a user id".to_owned()),
                },
                "runAsGroup" => match number(value) {
                    Some(gid) if gid == self.gid || self.may_change_user() => {}
                    Some(_) => report(member, value, format!("it runs as group {}, as trainyard does", self.gid)),
                    None => report(member, value, "it is not a group id".to_owned()),
                },
                "fsGroup" => match number(value) {
                    Some(gid) if self.is_in(gid) || self.may_change_user() => {}
                    Some(_) => report(member, value, "trainyard is not in that group".to_owned()),
                    None => report(member, value, "it is not a group id".to_owned()),
                },
                "supplementalGroups" => {
                    let groups = value.as_array().into_iter().flatten();
                    if groups.filter(|group| !number(group).is_some_and(|gid| self.is_in(gid))).count() > 0
                        && !self.may_change_user()
                    {
                        report(member, value, "trainyard is not in all of these groups".to_owned());
                    }
                }
                "privileged" if *value == Value::Bool(true) => {
                    if !self.capabilities.contains(CapabilitySet::SYS_ADMIN) {
                        report(member, value, "trainyard has no privileges of its own".to_owned());
                    }
                }
                "capabilities" => {
                    if let Some(missing) = self.missing_capabilities(value) {
                        report("capabilities.add", &value["add"], format!("trainyard itself has no {missing}"));
                    }
                    let drops = value["drop"].as_array().is_some_and(|names| !names.is_empty());
                    if drops && !self.capabilities.is_empty() && !self.capabilities.contains(CapabilitySet::SETPCAP) {
                        report("capabilities.drop", &value["drop"], "trainyard may not drop them".to_owned());
                    }
                }
                "readOnlyRootFilesystem" if *value == Value::Bool(true) => {
                    report(member, value, "the container sees the machine's own files".to_owned());
                }
                "seccompProfile" | "appArmorProfile" if value["type"] != "Unconfined" => {
                    report(member, value, "profiles are not applied on this machine".to_owned());
                }
                "seLinuxOptions" | "windowsOptions" if value.as_object().is_none_or(|options| !options.is_empty()) => {
                    report(member, value, "such labels and accounts are not set on this machine".to_owned());
                }
                "sysctls" if value.as_array().is_none_or(|settings| !settings.is_empty()) => {
                    report(member, value, "kernel settings of the machine are not changed".to_owned());
                }
                // Honoured: by `identity`, by refusing, or because nothing is to be done.
                "runAsNonRoot"
                | "allowPrivilegeEscalation"
                | "supplementalGroupsPolicy"
                | "fsGroupChangePolicy"
                | "seLinuxChangePolicy"
                | "procMount"
                | "privileged"
                | "readOnlyRootFilesystem"
                | "seccompProfile"
                | "appArmorProfile"
                | "seLinuxOptions"
                | "windowsOptions"
                | "sysctls" => {}
                _ => report(member, value, "it is not known to this build".to_owned()),
            }
        }
        found
    }

    /// The first capability asked for that this process has not got.
    fn missing_capabilities(&self, value: &Value) -> Option<String> {
        let names = value["add"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let missing = |name: &&str| match *name {
            "ALL" => !self.capabilities.contains(CapabilitySet::SYS_ADMIN),
            name => !CapabilitySet::from_name(short(name)).is_some_and(|one| self.capabilities.contains(one)),
        };
        names.into_iter().find(missing).map(|name| format!("CAP_{}", short(name)))
    }

    /// Returns the user a container runs as.
    ///
    /// # Errors
    /// Returns an error if `runAsNonRoot` forbids it.
    pub(crate) fn identity(&self, pod: &Members, own: &Members, accounts: &Accounts) -> Result<Identity, RunsAsRoot> {
        let member = |name: &str| own.get(name).or_else(|| pod.get(name)).filter(|value| !value.is_null());
        let asked = member("runAsUser").and_then(number);
        let changes = self.may_change_user();
        let uid = asked.filter(|uid| changes || *uid == self.uid).unwrap_or(self.uid);
        if uid == 0 && member("runAsNonRoot") == Some(&Value::Bool(true)) {
            return Err(RunsAsRoot);
        }
        let mut identity = Identity {
            no_new_privileges: member("allowPrivilegeEscalation") == Some(&Value::Bool(false)),
            dropped_capabilities: self.dropped(own),
            volume_group: pod.get("fsGroup").and_then(number).filter(|gid| changes || self.is_in(*gid)),
            ..Identity::default()
        };
        if !changes {
            return Ok(identity);
        }
        let account = (uid != self.uid).then(|| accounts.of_user(uid));
        identity.uid = account.as_ref().map(|_| uid);
        identity.gid = member("runAsGroup").and_then(number).or_else(|| account.as_ref().map(|account| account.gid));
        identity.home = account.as_ref().map(|account| account.home.clone());
        let strict = pod.get("supplementalGroupsPolicy").and_then(Value::as_str) == Some("Strict");
        let listed = pod.get("supplementalGroups").and_then(Value::as_array).into_iter().flatten().filter_map(number);
        let more: BTreeSet<u32> = listed.chain(identity.volume_group).collect();
        if account.is_some() || strict || !more.is_empty() || identity.gid.is_some() {
            let mut groups = match account {
                _ if strict => BTreeSet::new(),
                Some(account) => account.groups,
                None => self.groups.clone(),
            };
            groups.extend(more);
            identity.groups = Some(groups);
        }
        Ok(identity)
    }

    /// Capabilities to be taken away, as bits.
    fn dropped(&self, own: &Members) -> u64 {
        let Some(capabilities) = own.get("capabilities") else { return 0 };
        if !self.capabilities.contains(CapabilitySet::SETPCAP) {
            return 0;
        }
        let named = |list: &str| {
            let names = capabilities[list].as_array().into_iter().flatten().filter_map(Value::as_str);
            names.fold(CapabilitySet::empty(), |set, name| match name {
                "ALL" => every_capability(),
                name => set | CapabilitySet::from_name(short(name)).unwrap_or(CapabilitySet::empty()),
            })
        };
        named("drop").difference(named("add")).bits()
    }
}

/// Every capability that has a name.
fn every_capability() -> CapabilitySet {
    CapabilitySet::from_bits_retain(u64::MAX).iter_names().map(|(_, one)| one).collect()
}

/// The single capabilities of a set of bits.
pub(crate) fn each(bits: u64) -> impl Iterator<Item = CapabilitySet> {
    let named = every_capability();
    (0..u64::BITS)
        .map(|n| 1 << n)
        .filter(move |bit| bits & bit != 0)
        .map(CapabilitySet::from_bits_retain)
        .filter(move |one| named.contains(*one))
}

/// Both spellings are in use: `NET_ADMIN`, and `CAP_NET_ADMIN`.
fn short(capability: &str) -> &str {
    capability.strip_prefix("CAP_").unwrap_or(capability)
}

fn number(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

#[cfg(test)]
mod tests;
