//! Operators of a program, and whether they can be exported to ONNX.

use crate::formats::onnx::Onnx;
use crate::text::escape;
use crate::topology::Topology;
use std::fmt::Write as _;

/// Returns a table of the operator types: count, type, and for Paddle programs whether there is a translation to ONNX. Variants of
/// an operator can still be refused by an export.
pub(super) fn operators(topology: &Topology) -> String {
    let histogram = topology.histogram();
    if topology.form == "onnx" {
        let mut out = format!("{:>8}  operator\n", "count");
        for (kind, count) in &histogram {
            // Writing to a text does not fail.
            let _ = writeln!(out, "{count:>8}  {}", escape(kind));
        }
        return out;
    }
    let mut out = format!("{:>8}  {:<7}  operator\n", "count", "to ONNX");
    let mut covered = 0;
    for (kind, count) in &histogram {
        let has = Onnx::exports(kind);
        covered += usize::from(has);
        let _ = writeln!(out, "{count:>8}  {:<7}  {}", if has { "yes" } else { "no" }, escape(kind));
    }
    let _ = writeln!(out, "{covered} of {} operator types can be exported to ONNX", histogram.len());
    out
}
