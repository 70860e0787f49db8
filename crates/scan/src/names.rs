//! Names that lead elsewhere, or that people see otherwise than machines.

use super::{Scan, found};
use weighbridge_core::text::escape;

/// The longest name that is shown, in characters.
const SHOWN: usize = 200;

/// True for a path that a program which joins it to a folder would take out of that folder: absolute on any
/// system, with a drive letter, or with more `..` than folders before them. A backslash counts as a slash.
pub fn leads_out(path: &str) -> bool {
    let drive = has_drive(path) && path[2..].starts_with(['/', '\\']);
    if drive || path.starts_with(['/', '\\']) || path.starts_with("~/") {
        return true;
    }
    let mut depth = 0i64;
    for part in path.split(['/', '\\']) {
        match part {
            ".." => depth -= 1,
            "" | "." => {}
            _ => depth += 1,
        }
        if depth < 0 {
            return true;
        }
    }
    false
}

/// True for a letter and a colon, which is a drive on Windows.
fn has_drive(path: &str) -> bool {
    path.as_bytes().get(1) == Some(&b':') && path.as_bytes()[0].is_ascii_alphabetic()
}

/// True for the name of a tensor that would lead out of a folder as the name of a file. A name that only
/// begins with a slash does so in frameworks of graphs, and counts only with more behind it.
pub(super) fn path_like(name: &str) -> bool {
    name.split(['/', '\\']).any(|part| part == "..") && leads_out(name)
}

/// Judges the name of a member of an archive; `at` is where it stands.
pub(crate) fn judge_member(name: &str, at: u64, scan: &mut Scan) {
    let shown: String = escape(name).chars().take(SHOWN).collect();
    if leads_out(name) || has_drive(name) || name.contains('\\') || name.split('/').any(|part| part == "..") {
        let text = format!("{shown} would lead out of the folder, or does on some systems");
        scan.list(found("unsafe-member-name", text).at(at));
    }
    if escape(name) != name {
        let text = format!("{shown} has characters that people do not see, or that turn text around");
        scan.list(found("odd-member-name", text).at(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_out() {
        for bad in ["/x", "\\x", "..", "../x", "a/../../x", "c:\\x", "C:/x", "a\\..\\..\\x", "~/x"] {
            assert!(leads_out(bad), "{bad}");
        }
        for good in ["", "a", "a/b", "a/../b", "..a", "a..", "权重/b", "a:b", ".hidden"] {
            assert!(!leads_out(good), "{good}");
        }
        assert!(path_like("../x") && !path_like("/Conv_0/w") && !path_like("a/../b"));
    }

    #[test]
    fn names_of_members() {
        let codes = |name| {
            let mut scan = Scan::default();
            judge_member(name, 0, &mut scan);
            scan.findings.iter().map(|f| f.code.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(codes("../x"), ["unsafe-member-name"]);
        assert_eq!(codes("a\\b"), ["unsafe-member-name"]);
        assert_eq!(codes("C:x"), ["unsafe-member-name"]);
        assert_eq!(codes("a\u{202e}b"), ["odd-member-name"]);
        assert_eq!(codes("/a\0b"), ["unsafe-member-name", "odd-member-name"]);
        assert!(codes("archive/data/0").is_empty() && codes("é.npy").is_empty());
    }
}
