//! Turns the difference of two facts about a pod into actions of a scenario.
//!
//! Owns the choice of the verb: the plain ones where they lead to the same fact, a patch of the pod's status where none does.

use model::{ContainerEnd, ContainerFact, ContainerState, PodFact, PodPhase, Timestamp};
use serde_json::{Value, json};

/// Waiting reasons that every pod goes through.
const USUAL_WAITS: [&str; 3] = ["", "ContainerCreating", "PodInitializing"];
/// Reason of a pod that its node threw out.
const EVICTED: &str = "Evicted";

/// Actions and remarks that a change of a pod becomes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PodSteps {
    /// Actions, in order.
    pub(super) actions: Vec<Value>,
    /// Changes that no action makes.
    pub(super) remarks: Vec<String>,
}

/// Returns the change from one fact about a pod to the next; `before` is absent for one that was just created. `name` is its name in
/// scenarios.
pub(super) fn change(before: Option<&PodFact>, fact: &PodFact, name: &str, at: Timestamp) -> PodSteps {
    let mut change = PodSteps::default();
    let (before, fact) = (before.map(by_all_containers), by_all_containers(fact));
    let (before, fact) = (before.as_ref(), &fact);
    let was = before.map_or(PodPhase::Pending, |before| before.phase);
    if before.is_none_or(|before| before.node.is_none())
        && let Some(node) = &fact.node
    {
        change.actions.push(json!({"schedule": {"pod": name, "node": &**node}}));
    }
    let state_changed = before.is_none_or(|before| state(before) != state(fact));
    if state_changed {
        if is_plain(before, fact) {
            match fact.phase {
                PodPhase::Pending => change.actions.extend(waits(before, fact, name, at)),
                _ if was == fact.phase && ended(before, fact).is_empty() => {}
                PodPhase::Running => {
                    if was != PodPhase::Running {
                        change.actions.push(json!({"run": name}));
                    }
                    change.actions.extend(ended(before, fact).into_iter().map(|end| exit(name, end, true)));
                }
                _ if fact.reason.as_deref() == Some(EVICTED) => change.actions.push(json!({"evict": name})),
                _ => change.actions.extend(ends(before, fact, name)),
            }
        } else {
            change.actions.push(json!({"patch": {"pod": name, "status": status(fact)}}));
        }
    }
    if let Some(before) = before {
        for (member, differs) in [
            ("slot", before.slot != fact.slot),
            ("shape", before.shape != fact.shape),
            ("incarnation", before.incarnation != fact.incarnation),
        ] {
            if differs {
                change.remarks.push(format!("pod {name}: its labels or annotations ({member}) were changed"));
            }
        }
        let others = |fact: &PodFact| fact.protected.clone().unwrap_or_default();
        if before.protected.is_some() && fact.protected.is_some() && others(before) != others(fact) {
            change.remarks.push(format!("pod {name}: its finalizers were changed"));
        }
    }
    let lost_peer = |container: &&ContainerFact| {
        matches!(&container.state, ContainerState::Terminated(ContainerEnd { lost_peer: true, message: None, .. }))
    };
    if let Some(container) = fact.containers.iter().find(lost_peer).filter(|_| state_changed) {
        change
            .remarks
            .push(format!("pod {name}: container {} lost a peer; its message is not recorded", container.name));
    }
    change
}

/// Returns the part of a fact that nodes write.
fn state(fact: &PodFact) -> impl PartialEq {
    let all = fact.init.iter().chain(&fact.containers);
    let containers: Vec<String> = all.map(|container| shown_container(container, 0).to_string()).collect();
    let waits_for_node = fact.message.clone();
    (fact.phase, containers, fact.reason.clone(), waits_for_node, fact.conditions.clone(), fact.restarts)
}

/// Returns whether plain verbs lead to this fact.
fn is_plain(before: Option<&PodFact>, fact: &PodFact) -> bool {
    let restarts = before.map_or(0, |before| before.restarts);
    let conditions = before.map_or(&[][..], |before| &before.conditions);
    let evicted = fact.phase == PodPhase::Failed && fact.reason.as_deref() == Some(EVICTED);
    if evicted {
        return fact.containers.iter().all(|container| !matches!(container.state, ContainerState::Terminated(_)));
    }
    if !fact.init.is_empty()
        || fact.restarts != restarts
        || fact.conditions != conditions
        || fact.reason.is_some()
        || fact.message.is_some()
    {
        return false;
    }
    let usual_end =
        |code: i32, reason: &str| reason.is_empty() || reason == if code == 0 { "Completed" } else { "Error" };
    let fits = |container: &ContainerFact| match (&container.state, fact.phase) {
        (ContainerState::Waiting { message, .. }, PodPhase::Pending) => message.is_none(),
        (ContainerState::Running, PodPhase::Running) => true,
        (
            ContainerState::Terminated(ContainerEnd { code, reason, .. }),
            PodPhase::Running | PodPhase::Succeeded | PodPhase::Failed,
        ) => usual_end(*code, reason),
        _ => false,
    };
    let alike = |one: &ContainerFact, other: &ContainerFact| wait_of(one) == wait_of(other);
    let waits_alike = fact.phase != PodPhase::Pending
        || fact.containers.windows(2).all(|pair| match pair {
            [one, other] => alike(one, other),
            _ => true,
        });
    let ends = match fact.phase {
        PodPhase::Succeeded | PodPhase::Failed => !ended(before, fact).is_empty() && phase_of_ends(fact) == fact.phase,
        PodPhase::Pending => before.is_none_or(|before| before.phase == PodPhase::Pending),
        PodPhase::Running => before.is_none_or(|before| matches!(before.phase, PodPhase::Pending | PodPhase::Running)),
        PodPhase::Unknown => false,
    };
    fact.containers.iter().all(fits) && waits_alike && ends
}

/// Returns a pod with the phase that Kubernetes gives it: one of which a container runs is running.
fn by_all_containers(fact: &PodFact) -> PodFact {
    let phase = if fact.lingers { PodPhase::Running } else { fact.phase };
    PodFact { phase, ..fact.clone() }
}

/// Returns the phase of a pod whose containers have all ended as these have.
fn phase_of_ends(fact: &PodFact) -> PodPhase {
    let failed = |container: &ContainerFact| {
        !matches!(container.state, ContainerState::Terminated(ContainerEnd { code: 0, .. }))
    };
    if fact.containers.iter().any(failed) { PodPhase::Failed } else { PodPhase::Succeeded }
}

fn wait_of(container: &ContainerFact) -> Option<&str> {
    match &container.state {
        ContainerState::Waiting { reason, .. } => Some(reason),
        ContainerState::Running | ContainerState::Terminated(_) => None,
    }
}

/// Returns a step for containers that cannot be started, where the reason is new.
fn waits(before: Option<&PodFact>, fact: &PodFact, name: &str, at: Timestamp) -> Option<Value> {
    let reason = |fact: &PodFact| fact.containers.iter().find_map(wait_of).map(str::to_owned);
    let now = reason(fact).filter(|reason| !USUAL_WAITS.contains(&reason.as_str()))?;
    if before.and_then(reason).as_deref() == Some(&now) {
        return None;
    }
    let since = settings::duration::text(fact.started.map_or(0, |started| at.since_ms(started)));
    Some(json!({"wait": {"pod": name, "reason": now, "since": since}}))
}

/// Returns the containers that ended since the fact before.
fn ended<'a>(before: Option<&PodFact>, fact: &'a PodFact) -> Vec<&'a ContainerFact> {
    let had_ended = |name: &str| {
        let container = before.and_then(|before| before.containers.iter().find(|container| &*container.name == name));
        container.is_some_and(|container| matches!(container.state, ContainerState::Terminated(_)))
    };
    let is_end = |container: &&ContainerFact| matches!(container.state, ContainerState::Terminated(_));
    fact.containers.iter().filter(is_end).filter(|container| !had_ended(&container.name)).collect()
}

/// Returns the steps that end a pod: one for all of its containers where they ended alike.
fn ends(before: Option<&PodFact>, fact: &PodFact, name: &str) -> Vec<Value> {
    let ended = ended(before, fact);
    let code_and_message = |container: &ContainerFact| match &container.state {
        ContainerState::Terminated(end) => Some((end.code, end.message.clone())),
        ContainerState::Waiting { .. } | ContainerState::Running => None,
    };
    let alike = ended.len() == fact.containers.len()
        && ended.windows(2).all(|pair| matches!(pair, [a, b] if code_and_message(a) == code_and_message(b)));
    match ended.first().filter(|_| alike) {
        Some(first) => vec![exit(name, first, false)],
        None => ended.into_iter().map(|container| exit(name, container, true)).collect(),
    }
}

fn exit(pod: &str, container: &ContainerFact, named: bool) -> Value {
    let mut exit = json!({"pod": pod});
    if let ContainerState::Terminated(ContainerEnd { code, message, .. }) = &container.state {
        exit["code"] = (*code).into();
        if named {
            exit["container"] = (&*container.name).into();
        }
        if let Some(message) = message {
            exit["message"] = (&**message).into();
        }
    }
    json!({"exit": exit})
}

/// Returns a container's state as nodes write it, but for times.
fn shown(state: &ContainerState) -> Value {
    match state {
        ContainerState::Waiting { reason, message } => {
            json!({"waiting": {"reason": &**reason, "message": message.as_deref()}})
        }
        ContainerState::Running => json!({"running": {}}),
        ContainerState::Terminated(end) => shown_end(end),
    }
}

fn shown_end(ContainerEnd { code, reason, message, .. }: &ContainerEnd) -> Value {
    json!({"terminated": {"exitCode": code, "reason": &**reason, "message": message.as_deref()}})
}

/// Returns the status of a container as nodes write it.
fn shown_container(container: &ContainerFact, restarts: u32) -> Value {
    let running = matches!(container.state, ContainerState::Running);
    let mut status = json!({"name": &*container.name, "state": shown(&container.state), "ready": running,
        "restartCount": restarts});
    if let Some(last) = &container.last {
        status["lastState"] = shown_end(last);
    }
    status
}

/// Returns the status that a fact was read from, as far as it holds it.
fn status(fact: &PodFact) -> Value {
    // Facts hold the sum of the restarts.
    let mut restarts = fact.restarts;
    let containers: Vec<Value> =
        fact.containers.iter().map(|container| shown_container(container, std::mem::take(&mut restarts))).collect();
    let init: Vec<Value> = fact.init.iter().map(|container| shown_container(container, 0)).collect();
    let mut conditions: Vec<Value> =
        fact.conditions.iter().map(|kind| json!({"type": &**kind, "status": "True"})).collect();
    let mut message = fact.message.as_deref();
    if fact.node.is_none() {
        conditions.extend(message.take().map(
            |message| json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}),
        ));
    } else {
        conditions.push(json!({"type": "PodScheduled", "status": "True"}));
    }
    let mut status = json!({"phase": fact.phase.name(), "reason": fact.reason.as_deref(), "message": message,
        "conditions": conditions, "containerStatuses": containers});
    if !init.is_empty() {
        status["initContainerStatuses"] = init.into();
    }
    status
}

#[cfg(test)]
mod tests {
    use model::Uid;

    use super::*;

    fn fact(phase: PodPhase, states: &[(&str, ContainerState)]) -> PodFact {
        let container = |(name, state): &(&str, ContainerState)| ContainerFact {
            name: (*name).into(),
            main: true,
            state: state.clone(),
            last: None,
        };
        PodFact {
            phase,
            node: Some("n1".into()),
            containers: states.iter().map(container).collect(),
            ..PodFact::accepted(Uid::from("u"), "p".into(), None, model::ResourceVersion(1))
        }
    }

    fn ended(code: i32, reason: &str) -> ContainerState {
        ContainerState::Terminated(ContainerEnd { code, reason: reason.into(), ..ContainerEnd::default() })
    }

    fn actions(before: Option<&PodFact>, fact: &PodFact) -> Vec<Value> {
        let change = change(before, fact, "p", Timestamp(90_000));
        assert_eq!(change.remarks, Vec::<String>::new());
        change.actions
    }

    #[test]
    fn plain_changes_are_plain_verbs() {
        let running = fact(PodPhase::Running, &[("a", ContainerState::Running), ("b", ContainerState::Running)]);
        assert_eq!(actions(None, &running), [json!({"schedule": {"pod": "p", "node": "n1"}}), json!({"run": "p"})]);
        assert_eq!(actions(Some(&running), &running), Vec::<Value>::new());
        let one = fact(PodPhase::Running, &[("a", ended(3, "Error")), ("b", ContainerState::Running)]);
        assert_eq!(actions(Some(&running), &one), [json!({"exit": {"pod": "p", "code": 3, "container": "a"}})]);
        let both = fact(PodPhase::Failed, &[("a", ended(3, "Error")), ("b", ended(0, "Completed"))]);
        assert_eq!(actions(Some(&one), &both), [json!({"exit": {"pod": "p", "code": 0, "container": "b"}})]);
        let all = fact(PodPhase::Failed, &[("a", ended(3, "Error")), ("b", ended(3, ""))]);
        assert_eq!(actions(Some(&running), &all), [json!({"exit": {"pod": "p", "code": 3}})]);
        let wait = ContainerState::Waiting { reason: "ErrImagePull".into(), message: None };
        let mut waiting = fact(PodPhase::Pending, &[("a", wait)]);
        waiting.started = Some(Timestamp(30_000));
        assert_eq!(
            actions(Some(&fact(PodPhase::Pending, &[])), &waiting),
            [json!({"wait": {"pod": "p", "reason": "ErrImagePull", "since": "1m"}})]
        );
        let mut evicted = fact(PodPhase::Failed, &[]);
        evicted.reason = Some("Evicted".into());
        evicted.message = Some("low on memory".into());
        assert_eq!(actions(Some(&running), &evicted), [json!({"evict": "p"})]);
    }

    #[test]
    fn what_no_verb_does_is_a_patch_of_the_status() {
        let running = fact(PodPhase::Running, &[("a", ContainerState::Running)]);
        let killed = fact(PodPhase::Failed, &[("a", ended(137, "OOMKilled"))]);
        let patch = actions(Some(&running), &killed);
        assert_eq!(patch[0]["patch"]["status"]["containerStatuses"][0]["state"]["terminated"]["reason"], "OOMKilled");
        let mut again = running.clone();
        again.restarts = 2;
        let patch = actions(Some(&running), &again);
        assert_eq!(patch[0]["patch"]["status"]["containerStatuses"][0]["restartCount"], 2);
        let lost = fact(PodPhase::Unknown, &[("a", ContainerState::Running)]);
        assert_eq!(actions(Some(&running), &lost)[0]["patch"]["status"]["phase"], "Unknown");
    }

    #[test]
    fn changes_that_users_made_of_a_pod_itself_are_remarks() {
        let running = fact(PodPhase::Running, &[("a", ContainerState::Running)]);
        let mut other = running.clone();
        other.shape = Some("2:2".into());
        let change = change(Some(&running), &other, "p", Timestamp(0));
        assert_eq!(change.remarks, ["pod p: its labels or annotations (shape) were changed"]);
        assert_eq!(change.actions, Vec::<Value>::new());
    }
}
