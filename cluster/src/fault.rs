//! API calls that are made to fail.
//!
//! Owns the rules and how often each still applies. What a failed list does to a watch is `watch`'s.
//! Tests: `tests/cluster/watch.rs`.

use std::collections::BTreeMap;

use apis::{ApiCall, ApiError, Verb};
use model::Text;
use schemars::JsonSchema;
use serde::Deserialize;

/// Kind of API call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FailVerb {
    /// Creating.
    Create,
    /// Deleting.
    Delete,
    /// Patching the object or writing its status.
    Patch,
    /// Reading.
    Get,
    /// Listing for a watch.
    List,
}

impl FailVerb {
    /// Returns the verb of a call.
    pub const fn of(verb: Verb) -> Self {
        match verb {
            Verb::Create => Self::Create,
            Verb::Delete => Self::Delete,
            Verb::Patch | Verb::PatchStatus | Verb::ApplyStatus => Self::Patch,
            Verb::Get | Verb::Log => Self::Get,
            Verb::List => Self::List,
        }
    }
}

/// A rule that makes the next calls of a kind fail. The oldest rule that fits a call is used up first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailRule {
    /// Kind of call.
    pub verb: FailVerb,
    /// Kind of object, for example `Pod`; `None` is every kind but Kubernetes Events.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub kind: Option<Text>,
    /// Number of calls that fail; of lists, for each source of the kind.
    #[serde(default = "once")]
    pub times: u32,
    /// HTTP status code of the answer; 0 is a lost connection.
    #[serde(default = "internal_error")]
    pub code: u16,
    /// True if the call takes effect and only its answer is lost.
    #[serde(default)]
    pub applied: bool,
}

const fn once() -> u32 {
    1
}

const fn internal_error() -> u16 {
    500
}

impl FailRule {
    /// Returns whether it makes such a call fail.
    pub fn fits(&self, verb: FailVerb, kind: &str) -> bool {
        self.times > 0 && self.verb == verb && self.kind.as_deref().map_or(kind != "Event", |named| named == kind)
    }

    /// The answer it makes a call get.
    pub fn error(&self) -> ApiError {
        let reason = match self.code {
            0 => "ConnectionLost",
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 if self.verb == FailVerb::Create => "AlreadyExists",
            409 => "Conflict",
            410 => "Expired",
            422 => "Invalid",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        };
        let message = match self.code {
            0 => "the connection was lost before an answer came",
            403 => "the server does not allow this",
            429 => "too many requests, please try again later",
            503 => "the server is currently unable to handle the request",
            504 => "the request did not complete within its time limit",
            _ => "an error on the server prevented the request from succeeding",
        };
        ApiError { code: self.code, reason: Text::from(reason), message: message.to_owned() }
    }
}

/// The rules in force, oldest first.
#[derive(Debug, Clone, Default)]
pub struct FailRules {
    rules: Vec<Active>,
}

/// A rule in force.
#[derive(Debug, Clone)]
struct Active {
    rule: FailRule,
    /// Failures used up, by the source that was listed; calls of other verbs have the source without a name.
    used: BTreeMap<Text, u32>,
}

impl FailRules {
    /// Adds a rule; one without calls left has no effect.
    pub fn add(&mut self, rule: FailRule) {
        if rule.times > 0 {
            self.rules.push(Active { rule, used: BTreeMap::new() });
        }
    }

    /// Drops every rule.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// Uses up one failure for a call. Returns the answer, and true if the call takes effect all the same.
    pub fn inject(&mut self, call: &ApiCall) -> Option<(ApiError, bool)> {
        self.inject_verb(FailVerb::of(call.verb), &call.resource.kind, "")
    }

    /// Uses up one failure for a list of a kind. Each source of the kind fails as often as the rule says.
    pub(crate) fn inject_list(&mut self, kind: &str, source: Option<&Text>) -> bool {
        self.inject_verb(FailVerb::List, kind, source.map_or("", |name| name)).is_some()
    }

    fn inject_verb(&mut self, verb: FailVerb, kind: &str, source: &str) -> Option<(ApiError, bool)> {
        let left = |active: &Active| active.used.get(source).is_none_or(|used| *used < active.rule.times);
        let active = self.rules.iter_mut().find(|active| active.rule.fits(verb, kind) && left(active))?;
        let used = active.used.entry(Text::from(source)).or_default();
        *used = used.saturating_add(1);
        Some((active.rule.error(), active.rule.applied))
    }
}
