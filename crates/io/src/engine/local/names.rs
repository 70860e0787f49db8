//! The names of a plan's files, which may come from a stranger's file.

use super::super::staging;
use crate::source::check_relative;
use std::path::{Path, PathBuf};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::PlannedFile;

/// The longest name in bytes, all parts together: what systems take as one path.
const LONGEST: usize = 4096;

/// The name of `file` as a path within the target folder, without odd separators.
pub(super) fn relative(file: &PlannedFile) -> Result<PathBuf> {
    let name = Path::new(&file.name);
    check_relative(name)?;
    if file.name.len() > LONGEST {
        return Err(Error::limit("name-too-long", "the name of a file to write is too long")
            .expected(format_args!("at most {LONGEST} bytes"))
            .found(file.name.len()));
    }
    let tidy: PathBuf = name.components().collect();
    if tidy.iter().any(staging::is_reserved) {
        return Err(Error::mismatch("reserved-name", "such names are kept for files that are being written")
            .found(&file.name)
            .hint("rename the tensor that gives the file its name"));
    }
    Ok(tidy)
}

/// The names of all `files`, sorted.
///
/// # Errors
/// As [`relative`]; [`weighbridge_core::Kind::Mismatch`], `name-collision`, where two files have one name, or
/// one is a folder of another.
pub(super) fn all(files: &[PlannedFile]) -> Result<Vec<PathBuf>> {
    let mut names = files.iter().map(relative).collect::<Result<Vec<_>>>()?;
    // Paths are compared part by part, so whatever lies below a name follows it at once.
    names.sort();
    for pair in names.windows(2) {
        if pair[1].starts_with(&pair[0]) {
            let same = pair[0] == pair[1];
            let what =
                if same { "two files have the same name" } else { "a file is a folder of another file" };
            return Err(Error::mismatch("name-collision", what)
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
    fn names_that_do_no_harm() {
        assert_eq!(code(&["model.pdmodel", "a/b", "a/c", "a.b", "a-b/c", "A/b", ".hidden"]), "fine");
        assert_eq!(code(&[]), "fine");
    }

    #[test]
    fn names_that_lead_out_or_collide() {
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
