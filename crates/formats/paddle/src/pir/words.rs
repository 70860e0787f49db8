//! The short words of PIR files, and what they stand for.

use std::borrow::Cow;

/// Dialects by their short names.
const DIALECTS: &[(&str, &str)] =
    &[("0", "builtin"), ("1", "pd_op"), ("2", "cf"), ("3", "custom_op"), ("4", "pd_dist")];

/// The operator that declares a parameter has a form of its own and a name of one letter.
pub(super) const SHORT_PARAMETER: &str = "p";

/// The full name of that operator.
pub(super) const PARAMETER: &str = "builtin.parameter";

/// Writes a parameter.
pub(super) const SET_PARAMETER: &str = "builtin.set_parameter";

/// An input of the program, or state of an optimizer.
pub(super) const DATA: &str = "pd_op.data";

/// An output of the program.
pub(super) const FETCH: &str = "pd_op.fetch";

/// An output of a program that came from dynamic code.
pub(super) const SHADOW_OUTPUT: &str = "builtin.shadow_output";

/// What stands in place of a type or attribute that there is not.
pub(super) const NULL: &str = "NULL";

/// The full form of a word such as `1.conv2d`; words that are full already stay.
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

/// True where the word has a dialect that Paddle knows.
pub(super) fn known_dialect(word: &str) -> bool {
    let dialect = word.split_once('.').map(|(dialect, _)| dialect);
    word == SHORT_PARAMETER
        || DIALECTS.iter().any(|&(short, long)| dialect == Some(short) || dialect == Some(long))
}

/// The word of a type or attribute for people: without dialect where that is one of the two
/// that all programs use, else in full.
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
    fn short_words_become_full_ones() {
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
