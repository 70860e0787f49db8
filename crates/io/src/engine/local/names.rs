//! Names of the files of a plan, which may come from untrusted input.

use super::super::staging;
use crate::source::check_relative;
use std::path::{Path, PathBuf};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::PlannedFile;

/// Longest relative path in bytes: the path limit of common systems.
const MAX_PATH_LEN: usize = 4096;

/// Returns the name of `file` as a normalized path relative to the target folder.
pub(super) fn relative(file: &PlannedFile) -> Result<PathBuf> {
    let name = Path::new(&file.name);
    check_relative(name)?;
    if file.name.len() > MAX_PATH_LEN {
        return Err(Error::limit("name-too-long", "the name of an output file is too long")
            .expected(format_args!("at most {MAX_PATH_LEN} bytes"))
            .found(file.name.len()));
    }
    let tidy: PathBuf = name.components().collect();
    if tidy.iter().any(staging::is_reserved) {
        return Err(Error::mismatch(
            "reserved-name",
            "the name of an output file is reserved for staged files",
        )
        .found(&file.name)
        .hint("rename the tensor that the file is named after"));
    }
    Ok(tidy)
}

/// Returns the names of all `files`, sorted.
///
/// # Errors
/// As [`relative`]; [`weighbridge_core::Kind::Mismatch`], `name-collision`, where two files have the same name, or
/// one is a parent folder of another.
pub(super) fn all(files: &[PlannedFile]) -> Result<Vec<PathBuf>> {
    let mut names = files.iter().map(relative).collect::<Result<Vec<_>>>()?;
    // Paths are compared part by part, so all paths below a name directly follow it.
    names.sort();
    for pair in names.windows(2) {
        if pair[1].starts_with(&pair[0]) {
            let same = pair[0] == pair[1];
            let message = if same {
                "two files have the same name"
            } else {
                "a file has the name of a folder of another file"
            };
            return Err(Error::mismatch("name-collision", message)
                .found(format_args!("{} and {}", pair[0].display(), pair[1].display()))
                .hint("rename one of them"));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_core::plan::FileBuilder;

    fn code(names: &[&str]) -> &'static str {
        let files: Vec<_> = names.iter().map(|name| FileBuilder::new(*name).finish()).collect();
        all(&files).map_or_else(|e| e.code().as_str(), |_| "fine")
    }

    #[test]
    fn accepts_distinct_relative_names() {
        assert_eq!(code(&["model.pdmodel", "a/b", "a/c", "a.b", "a-b/c", "A/b", ".hidden"]), "fine");
        assert_eq!(code(&[]), "fine");
    }

    #[test]
    fn rejects_unsafe_and_colliding_names() {
        for bad in ["", "..", "../x", "a/../../x", "/etc/passwd", "a\0b", "./a"] {
            assert_eq!(code(&["ok", bad]), "unsafe-name", "{bad}");
        }
        assert_eq!(code(&["x", "a", "x"]), "name-collision");
        assert_eq!(code(&["a/b", "a//b"]), "name-collision");
        assert_eq!(code(&["a", "a.b", "a/b"]), "name-collision");
        assert_eq!(code(&["a/b/c/d", "x", "a/b"]), "name-collision");
        assert_eq!(code(&[&"a/".repeat(3000)]), "name-too-long");
        assert_eq!(code(&["a/.x.weighbridge-0-0.part"]), "reserved-name");
        assert_eq!(code(&[".x.weighbridge-0-0.old/a"]), "reserved-name");
    }
}
