//! Oddities of values: valid in a file, but mostly faults of the model.

mod duplicates;
mod rows;

use crate::checkpoint::{Role, TensorEntry};
use crate::error::Result;
use crate::finding::{Finding, Severity};
use crate::ops::stats::{Number, Stats, StatsOptions, stats};
use weighbridge_core::{ErrorCode, FindingCode};

/// Threshold of huge values: trained parameters are smaller.
const HUGE_VALUE: f64 = 1e10;
/// More than one subnormal value in this many is odd.
const SUBNORMAL_SHARE: u64 = 100;

/// Codes of findings about NaN and infinite values.
pub(super) const NONFINITE: [FindingCode; 2] = [FindingCode::Nan, FindingCode::Infinite];

/// Reads all tensors and returns the warnings `nan`, `infinite`, `huge-values`, `subnormal-values`, `zero-rows`, `nan-rows`,
/// `all-zero` and `constant`, and the remark `equal-tensors`. `all-zero` and `constant` are remarks for tensors that often
/// begin that way: vectors, and tensors that are not parameters.
pub(super) fn values(tensors: &[&TensorEntry], threads: usize) -> Result<Vec<Finding>> {
    let options = StatsOptions { bins: 0, threads };
    let mut findings = Vec::new();
    let mut known = Vec::with_capacity(tensors.len());
    for &tensor in tensors {
        let stats = match stats(tensor, &options) {
            Ok(stats) => Some(stats),
            // Checksum errors were reported before.
            Err(error) if error.code() == ErrorCode::CrcMismatch => None,
            Err(error) => {
                findings.push(super::finding(error.on_tensor(tensor.name()))?);
                None
            }
        };
        if let Some(stats) = &stats {
            findings.extend(odd(tensor, stats));
            if !stats.all_equal {
                findings.extend(rows::rows(tensor, stats)?);
            }
        }
        known.push((tensor, stats));
    }
    findings.extend(duplicates::duplicates(&known, threads)?);
    Ok(findings)
}

fn odd(tensor: &TensorEntry, stats: &Stats) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |severity: Severity, code: &'static str, text: String| {
        findings.push(Finding::new(severity, code, text).on_tensor(tensor.name()));
    };
    let of = format!("of {} values", stats.count);
    if stats.nan > 0 {
        add(Severity::Warning, "nan", format!("{} {of} are not a number", stats.nan));
    }
    let infinite = stats.pos_inf + stats.neg_inf;
    if infinite > 0 {
        add(Severity::Warning, "infinite", format!("{infinite} {of} are infinite"));
    }
    let largest = [stats.min, stats.max].into_iter().flatten().map(|x| x.to_f64().abs()).fold(0.0, f64::max);
    if matches!(stats.max, Some(Number::Float(_))) && largest > HUGE_VALUE {
        add(Severity::Warning, "huge-values", format!("values go up to {largest:e}"));
    }
    if stats.subnormal > stats.count / SUBNORMAL_SHARE {
        let text = format!("{} {of} are subnormal and have reduced precision", stats.subnormal);
        add(Severity::Warning, "subnormal-values", text);
    }
    if stats.all_equal && stats.count > 1 {
        let trained = matches!(tensor.role, Role::Parameter | Role::Embedding);
        let severity = if trained && tensor.shape.rank() > 1 { Severity::Warning } else { Severity::Note };
        if stats.zeros == stats.count {
            add(severity, "all-zero", format!("all {} values are 0", stats.count));
        } else if stats.finite == stats.count {
            add(severity, "constant", format!("all {} values are the same", stats.count));
        }
    }
    findings
}
