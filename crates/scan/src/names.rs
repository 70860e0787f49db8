//! Names that point outside a folder, or are displayed differently from their bytes.

use super::{Scan, found};
use weighbridge_core::text::escape;

/// Longest displayed name, in characters.
const MAX_NAME_CHARS: usize = 200;

/// True for a path that escapes the folder it is joined to: absolute on any system, with a drive letter, or
/// with more `..` than folders before them. A backslash counts as a slash.
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

/// True for a drive letter of Windows: a letter and a colon.
fn has_drive(path: &str) -> bool {
    path.as_bytes().get(1) == Some(&b':') && path.as_bytes()[0].is_ascii_alphabetic()
}

/// True for a tensor name that escapes a folder when used as a file name. A leading slash alone does not count:
/// graph frameworks write such names.
pub(super) fn path_like(name: &str) -> bool {
    name.split(['/', '\\']).any(|part| part == "..") && leads_out(name)
}

/// Judges the name of an archive member; `at` is its offset.
pub(crate) fn judge_member(name: &str, at: u64, scan: &mut Scan) {
    let shown: String = escape(name).chars().take(MAX_NAME_CHARS).collect();
    if leads_out(name) || has_drive(name) || name.contains('\\') || name.split('/').any(|part| part == "..") {
        let text = format!("unpacking `{shown}` would write outside the folder on some or all systems");
        scan.list(found("unsafe-member-name", text).at(at));
    }
    if escape(name) != name {
        let text = format!("the member name `{shown}` contains invisible or text-direction characters");
        scan.list(found("odd-member-name", text).at(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_the_folder_are_detected() {
        for bad in ["/x", "\\x", "..", "../x", "a/../../x", "c:\\x", "C:/x", "a\\..\\..\\x", "~/x"] {
            assert!(leads_out(bad), "{bad}");
        }
        for good in ["", "a", "a/b", "a/../b", "..a", "a..", "权重/b", "a:b", ".hidden"] {
            assert!(!leads_out(good), "{good}");
        }
        assert!(path_like("../x") && !path_like("/Conv_0/w") && !path_like("a/../b"));
    }

    #[test]
    fn unsafe_member_names_are_reported() {
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
