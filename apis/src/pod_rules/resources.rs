//! Rules for the resources of containers: names, amounts, and how requests and limits fit together.
//!
//! Resources with a domain are *extended*, such as GPUs: whole numbers, and requests that equal the limits.

use serde_json::Value;
use settings::Quantity;

use super::Judge::Other;
use super::{Faults, Place, Rule, rule};
use crate::names::is_label_key;
use crate::nearest::nearest;

/// Resources without a domain that a container can have, besides huge pages.
const PLAIN: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];
/// Start of the names of huge pages; the size of a page follows.
const HUGE_PAGES: &str = "hugepages-";
/// Resources that GPUs have, for a name that was meant to be one.
const NVIDIA: &str = "nvidia.com/gpu";
const AMD: &str = "amd.com/gpu";

/// Amounts of containers.
const AMOUNTS: &[&str] = &["spec.container[].resources.limits{}", "spec.container[].resources.requests{}"];
/// Amounts of containers, and of the pod as a whole.
const ALL_AMOUNTS: &[&str] = &[
    "spec.container[].resources.limits{}",
    "spec.container[].resources.requests{}",
    "spec.overhead{}",
    "spec.resources.limits{}",
    "spec.resources.requests{}",
];
/// Requests of containers, and of the pod as a whole.
const REQUESTS: &[&str] = &["spec.container[].resources.requests{}", "spec.resources.requests{}"];

/// The rules.
pub(super) const RULES: &[Rule] = &[
    rule("resource-name", AMOUNTS, Other(name)),
    rule("resource-without-domain", AMOUNTS, Other(without_domain)),
    rule("resource-of-quota", AMOUNTS, Other(of_quota)),
    rule("gpu-misspelt", AMOUNTS, Other(misspelt_gpu)),
    rule("quantity", ALL_AMOUNTS, Other(syntax)),
    rule("quantity-negative", ALL_AMOUNTS, Other(negative)),
    rule("whole-number", AMOUNTS, Other(fraction)),
    rule("request-above-limit", REQUESTS, Other(above_limit)),
    rule("request-other-than-limit", REQUESTS, Other(other_than_limit)),
    rule("request-without-limit", REQUESTS, Other(without_limit)),
    rule("huge-page-size", AMOUNTS, Other(page_size)),
    rule("huge-pages-alone", &["spec.container[].resources"], Other(huge_pages_alone)),
    rule("resource-claim", &["spec.container[].resources.claims[].name"], Other(claim)),
];

/// Returns true for a resource of Kubernetes itself.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns true for a resource that nodes do not share beyond what they have: what is requested is what is had.
fn is_exact(name: &str) -> bool {
    !is_native(name) || name.starts_with(HUGE_PAGES)
}

fn name(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if !is_label_key(place.key()) {
        faults.name(place, "the name of a resource must be letters, digits and inner -_. after a domain and / or not");
    }
}

fn without_domain(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let name = place.key();
    if name.contains('/') || PLAIN.contains(&name) || name.starts_with(HUGE_PAGES) {
        return;
    }
    let suggestion = gpu_of(name).or_else(|| nearest(name, PLAIN.into_iter())).map(str::to_owned);
    let problem =
        format!("no resource of Kubernetes; those are {} and hugepages-SIZE, others have a domain", PLAIN.join(", "));
    faults.name_with(place, problem, suggestion);
}

/// `requests.` before a name is how quotas write it.
fn of_quota(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let name = place.key();
    if let Some(own) = name.strip_prefix("requests.").filter(|_| !is_native(name)) {
        faults.name_with(place, "`requests.` before a resource is for quotas", Some(own.to_owned()));
    }
}

/// A server accepts any name with a domain, and no node has this one.
fn misspelt_gpu(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let name = place.key();
    if let Some(gpu) = gpu_of(name).filter(|gpu| *gpu != name && name.contains('/')) {
        faults.misspelt(place, "no node has this resource, so its pods stay pending", gpu);
    }
}

/// Returns the resource that a spelling of a GPU means: signs, case, the order of maker and GPU, and a plural do not matter.
fn gpu_of(name: &str) -> Option<&'static str> {
    let letters: String = name.chars().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_lowercase()).collect();
    let letters = letters.strip_suffix('s').unwrap_or(&letters);
    match letters {
        "gpu" | "nvidiagpu" | "nvidiacomgpu" | "gpunvidia" | "gpunvidiacom" => Some(NVIDIA),
        "amdgpu" | "amdcomgpu" | "gpuamd" | "gpuamdcom" => Some(AMD),
        _ => None,
    }
}

/// Returns the text of an amount, as a server reads it: without the spaces around it.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

pub(super) fn syntax(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if text_of(place.value).is_some_and(|text| !Quantity::is_valid(&text)) {
        let problem = "must be a quantity: a number, then m, k, M, G, T, P, E or Ki, Mi, Gi, Ti, Pi, Ei or nothing";
        faults.error(place, problem);
    }
}

pub(super) fn negative(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if Quantity::read(place.value).is_some_and(|amount| amount < Quantity::whole(0)) {
        faults.error(place, "must not be negative");
    }
}

fn fraction(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let amount = Quantity::read(place.value).filter(|_| !is_native(place.key()));
    if amount.is_some_and(|amount| amount.milli().checked_rem(1000) != Some(0)) {
        faults.error(place, "must be a whole number, as for every resource with a domain");
    }
}

/// Returns the limit that belongs to a request.
fn limit<'a>(place: &Place<'a, '_>) -> Option<&'a Value> {
    place.beside_around("limits").get(place.key()).filter(|limit| !limit.is_null())
}

fn above_limit(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let Some(limit) = limit(place).filter(|_| !is_exact(place.key())) else { return };
    if Quantity::read(place.value).zip(Quantity::read(limit)).is_some_and(|(request, limit)| request > limit) {
        faults.error(place, format!("must be at most its limit, which is {}", text_of(limit).unwrap_or_default()));
    }
}

fn other_than_limit(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let Some(limit) = limit(place).filter(|_| is_exact(place.key())) else { return };
    if Quantity::read(place.value).zip(Quantity::read(limit)).is_some_and(|(request, limit)| request != limit) {
        let limit = text_of(limit).unwrap_or_default();
        faults.error(place, format!("must equal its limit, which is {limit}: nodes do not share this resource"));
    }
}

fn without_limit(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    if is_exact(place.key()) && limit(place).is_none() {
        faults.error(place, "needs a limit of the same amount; with the limit alone, the request follows from it");
    }
}

fn page_size(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let Some(size) = place.key().strip_prefix(HUGE_PAGES) else { return };
    let whole = Quantity::parse(size).filter(|size| *size > Quantity::whole(0)).and_then(whole_units);
    let Some(size) = whole else {
        return faults.name(place, "needs the size of a page after `hugepages-`, for example hugepages-2Mi");
    };
    if Quantity::read(place.value).is_some_and(|amount| amount.ceil().checked_rem(size) != Some(0)) {
        faults.error(place, "must be a multiple of the size of a page");
    }
}

fn whole_units(amount: Quantity) -> Option<i128> {
    (amount.milli().checked_rem(1000) == Some(0)).then(|| amount.ceil())
}

fn huge_pages_alone(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let has = |is_meant: fn(&str) -> bool| {
        ["limits", "requests"].iter().any(|kind| {
            let amounts = place.value.get(*kind).and_then(Value::as_object);
            amounts.is_some_and(|amounts| amounts.keys().any(|name| is_meant(name)))
        })
    };
    if has(|name| name.starts_with(HUGE_PAGES)) && !has(|name| name == "cpu" || name == "memory") {
        faults.error(place, "huge pages need cpu or memory beside them");
    }
}

fn claim(place: &Place<'_, '_>, faults: &mut Faults<'_>) {
    let claims = place.spec().get("resourceClaims").and_then(Value::as_array).into_iter().flatten();
    if place.is_empty() {
        faults.error(place, "must name a member of resourceClaims");
    } else if place.text().is_some() && !claims.into_iter().any(|claim| claim.get("name") == Some(place.value)) {
        faults.error(place, "is the name of none of the pod's resourceClaims");
    }
}
