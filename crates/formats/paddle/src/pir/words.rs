//! Abbreviations in PIR files.

use std::borrow::Cow;

/// Dialects by their short names.
const DIALECTS: &[(&str, &str)] =
    &[("0", "builtin"), ("1", "pd_op"), ("2", "cf"), ("3", "custom_op"), ("4", "pd_dist")];

/// Short name of the operator that declares a parameter; it has a special form.
pub(super) const SHORT_PARAMETER: &str = "p";

/// Full name of that operator.
pub(super) const PARAMETER: &str = "builtin.parameter";

/// Operator that writes a parameter.
pub(super) const SET_PARAMETER: &str = "builtin.set_parameter";

/// Operator for an input of the program, or state of an optimizer.
pub(super) const DATA: &str = "pd_op.data";

/// Operator for an input of a program that was translated from protobuf.
pub(super) const FEED: &str = "pd_op.feed";

/// Operator for an output of the program.
pub(super) const FETCH: &str = "pd_op.fetch";

/// Operator for an output of a program traced from dynamic code.
pub(super) const SHADOW_OUTPUT: &str = "builtin.shadow_output";

/// Name of an absent type or attribute.
pub(super) const NULL: &str = "NULL";

/// Expands a name such as `1.conv2d`; full names are unchanged.
pub(super) fn full(word: &str) -> Cow<'_, str> {
    if word == SHORT_PARAMETER {
        return Cow::Borrowed(PARAMETER);
    }
    let Some((dialect, rest)) = word.split_once('.') else { return Cow::Borrowed(word) };
    match DIALECTS.iter().find(|(short, _)| *short == dialect) {
        Some((_, long)) => Cow::Owned(format!("{long}.{rest}")),
        None => Cow::Borrowed(word),
    }
}

/// True if the name has a dialect of Paddle.
pub(super) fn known_dialect(word: &str) -> bool {
    let dialect = word.split_once('.').map(|(dialect, _)| dialect);
    word == SHORT_PARAMETER
        || DIALECTS.iter().any(|&(short, long)| dialect == Some(short) || dialect == Some(long))
}

/// Shortens the name of a type or attribute for display: without the two dialects that all programs use, else in
/// full.
pub(super) fn bare(word: &str) -> Cow<'_, str> {
    match word.split_once('.') {
        Some(("0" | "1" | "builtin" | "pd_op", rest)) => Cow::Borrowed(rest),
        _ => full(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_abbreviations() {
        assert_eq!(full("1.conv2d"), "pd_op.conv2d");
        assert_eq!(full("2.yield"), "cf.yield");
        assert_eq!(full("p"), "builtin.parameter");
        assert_eq!(full("builtin.combine"), "builtin.combine");
        assert_eq!(full("77.x"), "77.x");
        assert!(known_dialect("4.reshard") && known_dialect("custom_op.mine"));
        assert!(!known_dialect("77.x") && !known_dialect("conv2d"));
        assert_eq!(bare("1.a_intarray"), "a_intarray");
        assert_eq!(bare("4.a_mesh"), "pd_dist.a_mesh");
        assert_eq!(bare("NULL"), "NULL");
    }
}
