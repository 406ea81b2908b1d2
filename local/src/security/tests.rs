//! Which members are honoured, by the rights of the process.

use serde_json::json;

use super::*;

fn user() -> Rights {
    Rights { uid: 1000, gid: 100, groups: BTreeSet::from([44]), capabilities: CapabilitySet::empty() }
}

fn root() -> Rights {
    Rights { uid: 0, gid: 0, groups: BTreeSet::from([0]), capabilities: every_capability() }
}

fn members(value: &Value) -> Members {
    value.as_object().unwrap().clone()
}

fn accounts() -> Accounts {
    Accounts::of("ada:x:1000:100:Ada:/home/ada:/bin/sh\n", "video:x:44:ada\n")
}

fn identity(rights: &Rights, pod: &Value, own: &Value) -> Result<Identity, RunsAsRoot> {
    rights.identity(&members(pod), &members(own), &accounts())
}

/// Each case: a member, whether a user can honour it, whether root can.
#[test]
fn every_member_is_honoured_or_reported() {
    let cases = [
        (json!({"runAsUser": 1000}), true, true),
        (json!({"runAsUser": 2000}), false, true),
        (json!({"runAsUser": 0}), false, true),
        (json!({"runAsUser": "x"}), false, false),
        (json!({"runAsGroup": 100}), true, true),
        (json!({"runAsGroup": 7}), false, true),
        (json!({"fsGroup": 44}), true, true),
        (json!({"fsGroup": 7}), false, true),
        (json!({"supplementalGroups": [44, 100]}), true, true),
        (json!({"supplementalGroups": [44, 7]}), false, true),
        (json!({"runAsNonRoot": true, "allowPrivilegeEscalation": false, "procMount": "Default"}), true, true),
        (json!({"privileged": true}), false, true),
        (json!({"privileged": false, "readOnlyRootFilesystem": false, "runAsUser": null}), true, true),
        (json!({"capabilities": {"add": ["IPC_LOCK"]}}), false, true),
        (json!({"capabilities": {"add": ["CAP_NO_SUCH"]}}), false, false),
        (json!({"capabilities": {"drop": ["ALL"]}}), true, true),
        (json!({"readOnlyRootFilesystem": true}), false, false),
        (json!({"seccompProfile": {"type": "Unconfined"}}), true, true),
        (json!({"seccompProfile": {"type": "RuntimeDefault"}}), false, false),
        (json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}}), false, false),
        (json!({"seLinuxOptions": {"level": "s0"}}), false, false),
        (json!({"sysctls": []}), true, true),
        (json!({"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "0"}]}), false, false),
        (json!({"noSuchMember": 1}), false, false),
    ];
    for (context, by_user, by_root) in cases {
        for (rights, honoured) in [(user(), by_user), (root(), by_root)] {
            let found = rights.problems(Some("c"), &members(&context));
            assert_eq!(found.is_empty(), honoured, "{context} by {}: {found:?}", rights.uid);
        }
    }
}

#[test]
fn a_report_names_container_member_and_value() {
    let found = user().problems(Some("c"), &members(&json!({"capabilities": {"add": ["SYS_ADMIN"]}})));
    assert_eq!(
        found[0].to_string(),
        "securityContext.capabilities.add [\"SYS_ADMIN\"] of container \"c\" is not honoured: trainyard itself has no \
         CAP_SYS_ADMIN"
    );
    let pod = json!({"spec": {
        "securityContext": {"sysctls": [{"name": "a"}]},
        "initContainers": [{"name": "i", "securityContext": {"readOnlyRootFilesystem": true}}],
        "containers": [{"name": "c"}, {"name": "d", "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}],
    }});
    let places: Vec<_> = unhonoured(&pod).into_iter().map(|one| (one.container, one.member)).collect();
    let of = |name: &str, member: &str| (Some(name.to_owned()), member.to_owned());
    assert_eq!(places, [(None, "sysctls".to_owned()), of("i", "readOnlyRootFilesystem"), of("d", "seccompProfile")]);
}

#[test]
fn a_container_may_be_forbidden_to_run_as_root() {
    let pod = json!({"runAsNonRoot": true});
    assert!(identity(&root(), &pod, &json!({})).unwrap_err().to_string().contains("runAsNonRoot"));
    assert!(identity(&root(), &pod, &json!({"runAsUser": 0})).is_err());
    assert!(identity(&root(), &json!({"runAsUser": 0}), &json!({"runAsNonRoot": true})).is_err());
    assert_eq!(identity(&root(), &pod, &json!({"runAsUser": 1000})).unwrap().uid, Some(1000));
    assert_eq!(identity(&root(), &pod, &json!({"runAsNonRoot": false})), Ok(Identity::default()));
    assert_eq!(identity(&user(), &pod, &json!({})), Ok(Identity::default()));
    assert_eq!(identity(&user(), &pod, &json!({"runAsUser": 0})), Ok(Identity::default()), "it stays user 1000");
}

#[test]
fn users_and_groups_of_a_container() {
    let ada = identity(&root(), &json!({"runAsUser": 7, "fsGroup": 9}), &json!({"runAsUser": 1000})).unwrap();
    assert_eq!((ada.uid, ada.gid, ada.volume_group), (Some(1000), Some(100), Some(9)));
    assert_eq!(ada.groups, Some(BTreeSet::from([9, 44, 100])));
    assert_eq!(ada.home.as_deref(), Some("/home/ada"));
    let strict = json!({"runAsGroup": 3, "supplementalGroups": [5], "supplementalGroupsPolicy": "Strict"});
    let strict = identity(&root(), &strict, &json!({"runAsUser": 1000})).unwrap();
    assert_eq!((strict.gid, strict.groups), (Some(3), Some(BTreeSet::from([5]))));
    let more = identity(&root(), &json!({"supplementalGroups": [5]}), &json!({})).unwrap();
    assert_eq!((more.uid, more.gid, more.groups), (None, None, Some(BTreeSet::from([0, 5]))));
    assert_eq!(
        identity(&user(), &json!({"runAsUser": 7, "supplementalGroups": [5]}), &json!({})).unwrap().groups,
        None
    );
}

#[test]
fn capabilities_and_privileges_are_taken_away() {
    let own =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["CAP_NET_BIND_SERVICE"]}});
    let less = identity(&root(), &json!({}), &own).unwrap();
    assert!(less.no_new_privileges);
    let dropped: Vec<CapabilitySet> = each(less.dropped_capabilities).collect();
    assert!(dropped.contains(&CapabilitySet::SYS_ADMIN) && !dropped.contains(&CapabilitySet::NET_BIND_SERVICE));
    assert_eq!(dropped.len(), every_capability().iter().count() - 1, "all but the one that is added");
    assert_eq!(identity(&user(), &json!({}), &own).unwrap().dropped_capabilities, 0, "it has none");
}
