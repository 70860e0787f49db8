//! SARIF 2.1.0 log of a scan, for tools that collect findings.
//!
//! A file is an artifact, and a member of it an artifact within it (`parentIndex`): the offset of a finding is relative to the
//! innermost one, as in the JSON of the command.

use super::{Category, Rule, ScanReport, scan_word};
use crate::error::Error;
use crate::finding::{Finding, Severity, Verdict};
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;

/// The schema of the log.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// Returns the log of one run over all paths.
pub(super) fn log(reports: &[ScanReport], failed: &[(PathBuf, Error)]) -> Json {
    let mut artifacts = Artifacts::default();
    let mut results = Vec::new();
    for file in reports.iter().flat_map(|report| &report.files) {
        let path =
            file.path.as_ref().map_or(file.label.as_bytes(), |path| path.as_os_str().as_encoded_bytes());
        let place = artifacts.index(uri(path, false), None);
        for finding in &file.scan.findings {
            let inner = finding.member.as_deref();
            let place =
                inner.map_or(place, |member| artifacts.index(uri(member.as_bytes(), true), Some(place)));
            results.push(result(finding, &artifacts.list[place]["location"]["uri"], place));
        }
    }
    // An unscanned path is not clean.
    let least = if failed.is_empty() { Verdict::Sound } else { Verdict::CouldNotTell };
    let verdict = reports.iter().map(|report| report.verdict).fold(least, Verdict::max);
    let mut invocation = json!({ "executionSuccessful": failed.is_empty() });
    if !failed.is_empty() {
        invocation["toolExecutionNotifications"] = failed.iter().map(notification).collect();
    }
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "weighbridge",
                "version": env!("CARGO_PKG_VERSION"),
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules(),
            }},
            "invocations": [invocation],
            "artifacts": artifacts.list,
            "results": results,
            "properties": { "verdict": scan_word(verdict) },
        }],
    })
}

/// Returns the notification for a path that could not be scanned.
fn notification((path, error): &(PathBuf, Error)) -> Json {
    let uri = uri(path.as_os_str().as_encoded_bytes(), false);
    json!({
        "level": "error",
        "descriptor": { "id": error.code() },
        "message": { "text": error.to_json()["message"] },
        "locations": [{ "physicalLocation": { "artifactLocation": { "uri": uri } } }],
    })
}

fn rules() -> Json {
    let rule = |rule: &crate::scan::Rule| {
        json!({
            "id": rule.code,
            "shortDescription": { "text": rule.what },
            "defaultConfiguration": { "level": level(rule.severity) },
            "properties": { "topic": rule.topic.as_str(), "category": rule.category().as_str(), "severity": rule.severity.as_str() },
        })
    };
    Rule::ALL.iter().map(rule).collect()
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Unchecked | Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

fn result(finding: &Finding, uri: &Json, place: usize) -> Json {
    let mut physical = Map::new();
    physical.insert("artifactLocation".to_owned(), json!({ "uri": uri, "index": place }));
    if let Some(offset) = finding.offset {
        physical.insert("region".to_owned(), json!({ "byteOffset": offset }));
    }
    let mut location = Map::new();
    location.insert("physicalLocation".to_owned(), physical.into());
    if let Some(tensor) = &finding.tensor {
        location.insert("logicalLocations".to_owned(), json!([{ "fullyQualifiedName": tensor }]));
    }
    let mut result = json!({
        "ruleId": finding.code,
        "level": level(finding.severity),
        "message": { "text": finding.text },
        "locations": [location],
        "properties": {
            "severity": finding.severity.as_str(),
            "category": Category::of(finding.code.as_str()).as_str(),
        },
    });
    if let Some(index) = Rule::ALL.iter().position(|rule| rule.code == finding.code) {
        result["ruleIndex"] = index.into();
    }
    result
}

/// Files, and the members in them.
#[derive(Default)]
struct Artifacts {
    list: Vec<Json>,
    places: HashMap<(String, Option<usize>), usize>,
}

impl Artifacts {
    fn index(&mut self, uri: String, parent: Option<usize>) -> usize {
        let list = &mut self.list;
        *self.places.entry((uri, parent)).or_insert_with_key(|(uri, _)| {
            let mut artifact = json!({ "location": { "uri": uri } });
            match parent {
                Some(parent) => artifact["parentIndex"] = parent.into(),
                None => artifact["roles"] = json!(["analysisTarget"]),
            }
            list.push(artifact);
            list.len() - 1
        })
    }
}

/// Returns a path as a URI reference: reserved characters and bytes that are not UTF-8 become `%XX`. A member has an absolute
/// path from the root of its container.
fn uri(path: &[u8], member: bool) -> String {
    let mut text = String::new();
    if member && !path.starts_with(b"/") {
        text.push('/');
    } else if !member && path.starts_with(b"/") {
        text.push_str("file://");
    }
    for &byte in path {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b'!' | b'@' => {
                text.push(char::from(byte));
            }
            // Writing to a string cannot fail.
            byte => drop(write!(text, "%{byte:02X}")),
        }
    }
    text
}
