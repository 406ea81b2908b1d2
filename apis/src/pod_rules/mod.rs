//! Rules for pod templates: the faults that an API server refuses, one rule for each, in one table.
//!
//! Owns the table, and how a rule's finding is worded. The rules stand by subject in the files beside this one; [`place`] walks to
//! what they judge. A rule is an error only where every API server refuses the pod: a word or field of a newer Kubernetes is not
//! refused. It must not know an API, nor read what a template means. Facts: the validation of Kubernetes 1.36, of which the package
//! `conformance` asks a real API server about every rule. Tests: `tests.rs`, with the examples in `fixtures/pod_templates`.

mod containers;
mod environment;
mod metadata;
mod place;
mod pod;
mod ports;
mod probes;
mod resources;
mod scheduling;
mod security;
mod sources;
#[cfg(test)]
mod tests;
mod volumes;

use model::FieldError;
use serde_json::Value;

use crate::fields::{Finding, Findings, Severity, join, shown};
use crate::kubernetes;
use crate::nearest::nearest;
use crate::schema;
pub(crate) use place::Place;
pub(crate) use volumes::MOUNTED;

/// Returns whether an API completes a template so that a rule, by its name, does not hold for a place.
pub(crate) type Completes = fn(&str, &Place<'_, '_>) -> bool;

/// Completes nothing: pods have these parts of a template as they were written.
pub(crate) const AS_WRITTEN: Completes = |_, _| false;

/// One fault that an API server refuses.
#[derive(Debug, Clone, Copy)]
struct Rule {
    /// Its name, in tests and for [`Completes`].
    name: &'static str,
    /// Places that it judges, as [`place::visit`] takes them.
    at: &'static [&'static str],
    judge: Judge,
}

/// Judgement of a place. `Needed` and `Other` judge an absent value too; the rest judge values of their own type alone.
#[derive(Debug, Clone, Copy)]
enum Judge {
    /// It must be there, and not be empty; what is wrong otherwise.
    Needed(&'static str),
    /// A text that is not empty; what it must be.
    Text(fn(&str) -> bool, &'static str),
    /// A whole number, with its limits.
    Number(i64, i64),
    /// One of these words. One that differs by its case alone is an error. Another one is a mistake, as a newer server may know it.
    Word(&'static [&'static str]),
    /// The key of a member; what it must be.
    Key(fn(&str) -> bool, &'static str),
    /// Whatever else is wrong.
    Other(fn(&Place<'_, '_>, &mut Faults<'_>)),
}

/// Makes a rule: a line of the table.
const fn rule(name: &'static str, at: &'static [&'static str], judge: Judge) -> Rule {
    Rule { name, at, judge }
}

/// Returns the table.
fn rules() -> impl Iterator<Item = &'static Rule> {
    let subjects = [
        metadata::RULES,
        containers::RULES,
        environment::RULES,
        resources::RULES,
        volumes::RULES,
        sources::RULES,
        ports::RULES,
        probes::RULES,
        security::RULES,
        pod::RULES,
        scheduling::RULES,
    ];
    subjects.into_iter().flatten()
}

/// Checks a template, which stands at a path.
pub(crate) fn check(template: &Value, path: &str, completes: Completes, findings: &mut Findings) {
    let spec = template.get("spec").unwrap_or(&Value::Null);
    for finding in schema::wrong_types(kubernetes::POD_SPEC, spec, &join(path, "spec")) {
        findings.push(finding);
    }
    let mut faults = Faults { findings, base: path, completes, rule: "" };
    for rule in rules() {
        faults.rule = rule.name;
        for at in rule.at {
            place::visit(template, at, &mut |place| judge(rule.judge, place, &mut faults));
        }
    }
}

/// Checks parts of pods that stand outside of a template. `template` holds them where pods have them; `places` says for the start of
/// each of their paths in it, which begins with a dot, where they were written. Nothing else of it is judged.
pub(crate) fn check_parts(template: &Value, places: &[(&str, &str)], completes: Completes, findings: &mut Findings) {
    let mut found = Findings::default();
    check(template, "", completes, &mut found);
    for mut finding in found.into_list() {
        let written = places.iter().find_map(|(from, to)| {
            let rest = finding.field.path.strip_prefix(from)?;
            (rest.is_empty() || rest.starts_with(['.', '['])).then(|| format!("{to}{rest}"))
        });
        if let Some(path) = written.filter(|path| !findings.has_error_at(path)) {
            finding.field.path = path;
            findings.push(finding);
        }
    }
}

fn judge(judge: Judge, place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    match judge {
        Judge::Needed(problem) => {
            if place.is_empty() {
                faults.error(place, problem);
            }
        }
        Judge::Text(is_right, problem) => {
            if place.text().is_some_and(|text| !is_right(text)) {
                faults.error(place, problem);
            }
        }
        Judge::Number(min, max) => {
            // A number that no i64 holds is above every limit.
            let number = place.value.as_i64().or_else(|| place.value.as_u64().map(|_| i64::MAX));
            match number {
                Some(number) if number < min => faults.error(place, format!("must be at least {min}")),
                Some(number) if number > max => faults.error(place, format!("must be at most {max}")),
                Some(_) | None => {}
            }
        }
        Judge::Word(words) => {
            if let Some(text) = place.text().filter(|text| !words.contains(text)) {
                faults.word(place, text, words);
            }
        }
        Judge::Key(is_right, problem) => {
            if !is_right(place.key()) {
                faults.name(place, problem);
            }
        }
        Judge::Other(check) => check(place, faults),
    }
}

/// Collects what a rule finds.
struct Faults<'f> {
    findings: &'f mut Findings,
    base: &'f str,
    completes: Completes,
    rule: &'static str,
}

impl Faults<'_> {
    /// Adds an error at a place.
    fn error(&mut self, place: &Place<'_, '_>, problem: impl Into<String>) {
        self.add(place, Severity::Error, false, problem.into(), None);
    }

    /// Adds an error at a place, with what was probably meant.
    fn error_with(&mut self, place: &Place<'_, '_>, problem: impl Into<String>, suggestion: Option<String>) {
        self.add(place, Severity::Error, false, problem.into(), suggestion);
    }

    /// Adds an error in the name of a member.
    fn name(&mut self, place: &Place<'_, '_>, problem: impl Into<String>) {
        self.name_with(place, problem, None);
    }

    /// Adds an error in the name of a member, with what was probably meant.
    fn name_with(&mut self, place: &Place<'_, '_>, problem: impl Into<String>, suggestion: Option<String>) {
        self.add(place, Severity::Error, true, problem.into(), suggestion);
    }

    /// Adds something in the name of a member that an API server accepts, and that is of no use.
    fn misspelt(&mut self, place: &Place<'_, '_>, problem: impl Into<String>, suggestion: &str) {
        self.add(place, Severity::Mistake, true, problem.into(), Some(suggestion.to_owned()));
    }

    /// Adds something that an API server accepts and takes for something else.
    fn mistake(&mut self, place: &Place<'_, '_>, problem: impl Into<String>) {
        self.add(place, Severity::Mistake, false, problem.into(), None);
    }

    /// Adds a word that is none of those that are known.
    fn word(&mut self, place: &Place<'_, '_>, text: &str, words: &[&str]) {
        let is_misspelt = words.iter().any(|word| word.eq_ignore_ascii_case(text));
        let severity = if is_misspelt { Severity::Error } else { Severity::Mistake };
        let suggestion = nearest(text, words.iter().copied()).map(str::to_owned);
        self.add(place, severity, false, format!("must be one of {}", words.join(", ")), suggestion);
    }

    /// Adds a finding, unless the API completes the place, or the field has an error already.
    fn add(
        &mut self,
        place: &Place<'_, '_>,
        severity: Severity,
        in_name: bool,
        problem: String,
        suggestion: Option<String>,
    ) {
        if (self.completes)(self.rule, place) {
            return;
        }
        let path = place.path(self.base);
        if !self.findings.has_error_at(&path) {
            let value = shown(Some(place.value).filter(|value| !value.is_null()));
            let field = FieldError { path, value, problem, suggestion };
            self.findings.push(Finding { severity, in_name, field });
        }
    }
}
