//! Names and label values that Kubernetes accepts: pure predicates, and the message about a text that one rejects. Tests at the end of
//! this file.

use std::net::{IpAddr, Ipv4Addr};

/// Longest DNS label, and longest label value.
pub const LABEL_MAX: usize = 63;

/// Longest DNS subdomain, and longest name of a pod.
pub const SUBDOMAIN_MAX: usize = 253;

/// Longest name of a port.
const PORT_NAME_MAX: usize = 15;

/// Message about a text that [`is_dns_label`] rejects.
pub const NOT_DNS_LABEL: &str = "must be lower-case letters, digits and inner hyphens, at most 63";
/// Message about a text that [`is_dns_subdomain`] rejects.
pub const NOT_DNS_SUBDOMAIN: &str = "must be lower-case letters, digits, inner hyphens and dots, at most 253";
/// Message about a text that [`is_label_key`] rejects.
pub const NOT_LABEL_KEY: &str = "a name must be letters, digits and inner -_. up to 63, after a domain and / or not";
/// Message about a text that [`is_label_value`] rejects.
pub const NOT_LABEL_VALUE: &str = "must be letters, digits and inner -_. up to 63";
/// Message about a text that [`is_port_name`] rejects.
pub const NOT_PORT_NAME: &str =
    "must be lower-case letters, digits and single inner hyphens, at most 15, with one letter at least";

/// Returns true if `text` is a DNS label (RFC 1123): lower-case letters, digits and inner hyphens, at most 63.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= LABEL_MAX && is_dns_word(text)
}

/// Returns true if `text` is a DNS label that starts with a letter (RFC 1035), as names of services must.
pub fn is_service_name(text: &str) -> bool {
    is_dns_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())
}

/// Returns true if `text` is a DNS subdomain: labels of any length joined by dots, at most 253 characters together.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_MAX && text.split('.').all(is_dns_word)
}

/// Returns true if `text` can be the value of a label: empty, or letters, digits and inner `-_.`, at most 63.
pub fn is_label_value(text: &str) -> bool {
    text.len() <= LABEL_MAX
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && text.bytes().next().is_none_or(|b| b.is_ascii_alphanumeric())
        && text.bytes().last().is_none_or(|b| b.is_ascii_alphanumeric())
}

/// Returns true if `text` can be a label key: a name of at most 63 characters, optionally after a DNS subdomain and a slash.
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && !name.is_empty() && is_label_value(name),
        None => !text.is_empty() && is_label_value(text),
    }
}

/// Returns true if `text` can be the name of a port: lower-case letters, digits and single inner hyphens, at most 15, one letter at least.
pub fn is_port_name(text: &str) -> bool {
    text.len() <= PORT_NAME_MAX
        && is_dns_word(text)
        && !text.contains("--")
        && text.bytes().any(|b| b.is_ascii_lowercase())
}

/// Returns true if `text` can be the name of a variable: printable ASCII without an equals sign.
pub fn is_variable_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=')
}

/// Returns true if `text` can be a key of a `ConfigMap` or `Secret`: letters, digits and `-_.`, at most 253, without `..` at its start.
pub fn is_config_key(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= SUBDOMAIN_MAX
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && text != "."
        && !text.starts_with("..")
}

/// Returns true if `text` can be the name of an HTTP header.
pub fn is_header_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Returns true if `text` is an address of IP. Older API servers take numbers with leading zeros.
pub fn is_ip(text: &str) -> bool {
    let without_zeros = |number: &str| {
        let short = number.trim_start_matches('0');
        if short.is_empty() && !number.is_empty() { "0".to_owned() } else { short.to_owned() }
    };
    let is_sloppy = || text.split('.').map(without_zeros).collect::<Vec<_>>().join(".").parse::<Ipv4Addr>().is_ok();
    text.parse::<IpAddr>().is_ok() || is_sloppy()
}

/// Returns true if `text` is base64 with padding; white space between does not matter.
pub fn is_base64(text: &str) -> bool {
    let bytes: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let padding = bytes.iter().rev().take_while(|b| **b == b'=').count();
    let digits = bytes.iter().take(bytes.len().saturating_sub(padding));
    bytes.len().is_multiple_of(4)
        && padding <= 2
        && digits.into_iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

fn is_dns_word(text: &str) -> bool {
    let is_edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && is_edge(text.bytes().next())
        && is_edge(text.bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_and_label_keys_are_reported() {
        for (text, want) in [("", true), ("aGk=", true), ("aGVs\nbG8h", true), ("aGk", false), ("hi!=", false)] {
            assert_eq!(is_base64(text), want, "{text}");
        }
        for (text, want) in
            [("a", true), ("x.y/a_b", true), ("", false), ("/a", false), ("x/", false), ("a b", false), ("X/a", false)]
        {
            assert_eq!(is_label_key(text), want, "{text}");
        }
    }

    #[test]
    fn ports_variables_keys_and_addresses_are_reported() {
        let check = |judge: fn(&str) -> bool, right: &[&str], wrong: &[&str]| {
            assert!(right.iter().all(|text| judge(text)), "{right:?}");
            assert!(!wrong.iter().any(|text| judge(text)), "{wrong:?}");
        };
        check(is_port_name, &["http", "a-1", "123456789012-a5"], &["", "1", "a--b", "-a", "A", "a234567890123456"]);
        check(is_variable_name, &["A", "my.env-name", "1 A"], &["", "A=", "\u{e4}", "a\n"]);
        check(is_config_key, &["key.name", "_", "a..b", ".a"], &["", ".", "..", "..a", "a/b", "a b"]);
        check(is_header_name, &["X-Header-Name"], &["", "a b", "X:"]);
        check(
            is_ip,
            &["10.9.8.7", "010.9.08.7", "0.0.0.00", "2001:db8::1"],
            &["", "10.9.8", "x", "256.1.1.1", "1..2.3"],
        );
    }

    #[test]
    fn names_are_judged_as_kubernetes_does() {
        let long = "a".repeat(64);
        // (text, DNS label, service name, DNS subdomain, label value)
        for (text, label, service, subdomain, value) in [
            ("j-trainer-0", true, true, true, true),
            ("0-trainer-0", true, false, true, true),
            ("a.b-0", false, false, true, true),
            ("a..b", false, false, false, true),
            ("A", false, false, false, true),
            ("a_b", false, false, false, true),
            ("-a", false, false, false, false),
            ("a-", false, false, false, false),
            ("a/b", false, false, false, false),
            ("", false, false, false, true),
            ("é", false, false, false, false),
            (&*long, false, false, true, false),
            (&*"a".repeat(254), false, false, false, false),
        ] {
            assert_eq!(is_dns_label(text), label, "label {text}");
            assert_eq!(is_service_name(text), service, "service {text}");
            assert_eq!(is_dns_subdomain(text), subdomain, "subdomain {text}");
            assert_eq!(is_label_value(text), value, "label value {text}");
        }
    }
}
