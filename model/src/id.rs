//! Identifiers and time.
//!
//! `*Uid` is minted by Kubernetes, everything else by us. The only types here with a JSON form of their own: logs and mirrors
//! hold it, so it never changes. Tests: at the end of this file.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Shared immutable text: names repeat in every pod of a job, so they are held once.
pub type Text = Arc<str>;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Place of a record in the log: contiguous from 1; 0 means "before the first record".
    Position(u64)
}
number! {
    /// One start or leadership of an operator; strictly growing.
    Term(u64)
}
number! {
    /// Version of an object as the API server counts them; comparable within one kind only.
    ResourceVersion(u64)
}
number! {
    /// Number of pods decided for a slot so far; it orders pods and decisions.
    Incarnation(u32)
}
number! {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    Timestamp(u64)
}

impl Position {
    /// The position after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Incarnation {
    /// The incarnation after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Timestamp {
    /// This instant moved forward by `ms` milliseconds; stops at the end of time instead of wrapping.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this instant; 0 when `earlier` is later.
    #[must_use]
    pub const fn since_ms(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// RFC 3339 text in UTC with whole seconds, as Kubernetes writes `metav1.Time`.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        let (date, ms_of_day) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let (year, month, day) = civil_from_days(date);
        let secs = ms_of_day / 1000;
        format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", secs / 3600, secs / 60 % 60, secs % 60)
    }

    /// Writes RFC 3339 text in UTC with milliseconds, for times whose order matters.
    #[must_use]
    pub fn to_rfc3339_ms(self) -> String {
        let mut text = self.to_rfc3339();
        text.pop();
        text + &format!(".{:03}Z", self.0 % 1000)
    }

    /// Reads RFC 3339 text in UTC (`Z`) or with a numeric offset, with or without a fraction.
    #[must_use]
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let (date, time) = text.split_once(['T', 't', ' '])?;
        let mut parts = date.splitn(3, '-').map(|p| p.parse::<u64>().ok());
        let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) || year < 1970 {
            return None;
        }
        let (clock, offset_min) = split_offset(time)?;
        let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
        let mut parts = clock.splitn(3, ':').map(|p| p.parse::<u64>().ok());
        let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let ms: u64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
        let secs = days_from_civil(year, month, day)
            .checked_mul(86_400)?
            .checked_add(hour.checked_mul(3600)?)?
            .checked_add(minute.checked_mul(60)?)?
            .checked_add(second)?;
        let secs = i64::try_from(secs).ok()?.checked_sub(offset_min.checked_mul(60)?)?;
        u64::try_from(secs).ok()?.checked_mul(1000)?.checked_add(ms).map(Self)
    }
}

fn split_offset(time: &str) -> Option<(&str, i64)> {
    if let Some(clock) = time.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let at = time.rfind(['+', '-'])?;
    let (clock, offset) = time.split_at(at);
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let minutes = hours.parse::<i64>().ok()?.checked_mul(60)?.checked_add(minutes.parse::<i64>().ok()?)?;
    Some((clock, if offset.starts_with('-') { minutes.checked_neg()? } else { minutes }))
}

// Source of both calendar functions: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
#[allow(clippy::arithmetic_side_effects)] // bounded: callers pass years from 1970 and days below 2^40
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let doe = z - era * 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + u64::from(month <= 2), month, day)
}

#[allow(clippy::arithmetic_side_effects)] // bounded: the year has at most as many digits as a date field, saturated below
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let y = year.min(1_000_000) - u64::from(month <= 2);
    let era = y / 400;
    let yoe = y - era * 400;
    let mp = if month > 2 { month - 3 } else { month + 9 };
    let doy = (153 * mp + 2) / 5 + day - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    era * 146_097 + doe - 719_468
}

/// Place of a decision among those of all logs. Ordered by term, then by position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// The term it was recorded in.
    pub term: Term,
    /// The position of its record in that term's log.
    pub position: Position,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.term, self.position)
    }
}

/// The unique id that Kubernetes gave an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uid(pub Text);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self(Text::from(text))
    }
}

/// Identity of a job: its address and its uid. Two jobs that held one name after another are two keys.
///
/// Ordered by namespace, then name, so that logs and snapshots read in the order people list jobs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobKey {
    /// Namespace of the job object.
    pub namespace: Text,
    /// Name of the job object.
    pub name: Text,
    /// Kind of the job object, for example `AITrainingJob`; an address, never a reason to branch in the engine.
    pub kind: Text,
    /// Uid of the job object.
    pub uid: Uid,
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

impl JobKey {
    /// Returns the name as a user writes it.
    pub fn written(&self) -> String {
        name_in(&self.namespace, &self.name)
    }
}

/// Returns the name of an object in a namespace as a user writes it: without the namespace `default`.
pub fn name_in(namespace: &str, name: &str) -> String {
    if namespace == "default" { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// Place of one pod in a job: replica group and index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlotId {
    /// Object-safe (lower-case) name of the replica group.
    pub group: Text,
    /// Index inside the group, from 0.
    pub index: u32,
}

impl SlotId {
    /// Returns the slot a text names, as [`fmt::Display`] writes it.
    pub fn parse(text: &str) -> Option<Self> {
        let (group, index) = text.rsplit_once('-')?;
        Some(Self { group: Text::from(group), index: index.parse().ok()? })
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.group, self.index)
    }
}

/// Kinds of objects the engine keeps complete views of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Job objects of every served API.
    Job,
    /// Pods that carry our labels.
    Pod,
    /// Services that carry our labels.
    Service,
    /// Cluster nodes.
    Node,
    /// Objects of other types that jobs own.
    Owned,
    /// Pods of others, watched while a queue counts their GPUs.
    Foreign,
    /// PriorityClasses.
    Class,
    /// ResourceQuotas, watched where an API has a coordinator.
    Quota,
    /// Namespaces, watched while a queue selects them by labels.
    Namespace,
}

impl Kind {
    /// Every kind that a term waits for, in the order in which recovery lists them.
    pub const ALL: [Self; 7] = [Self::Node, Self::Class, Self::Quota, Self::Job, Self::Owned, Self::Pod, Self::Service];

    /// Every kind that is watched only while a queue reads its objects. No term waits for them.
    pub const ON_DEMAND: [Self; 2] = [Self::Foreign, Self::Namespace];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip_through_rfc3339() {
        for ms in [0, 951_782_400_000, 1_709_164_800_000, 1_767_225_599_000, 4_102_444_800_000] {
            let t = Timestamp(ms);
            assert_eq!(Timestamp::parse_rfc3339(&t.to_rfc3339()), Some(t), "{}", t.to_rfc3339());
        }
        assert_eq!(Timestamp(1_709_164_800_000).to_rfc3339(), "2024-02-29T00:00:00Z");
        assert_eq!(Timestamp::parse_rfc3339("2024-02-29T02:00:00.5+02:00"), Some(Timestamp(1_709_164_800_500)));
    }

    #[test]
    fn unreadable_times_are_refused() {
        for text in ["", "2024", "2024-13-01T00:00:00Z", "2024-01-01T25:00:00Z", "1969-12-31T23:59:59Z", "x-y-zT1:2:3Z"]
        {
            assert_eq!(Timestamp::parse_rfc3339(text), None, "{text}");
        }
    }
}
