//! Where a program's `file_path` leads: below one folder, or nowhere.

use std::path::{Component, Path, PathBuf};
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::check_no_links;

/// The file of that `file_path`, relative to `folder`.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `unsafe-name`, where it is empty, names a folder, or could lead out, be it
/// by a symbolic link. [`weighbridge_core::Kind::Io`] where a part of the path cannot be looked at.
pub(super) fn below(folder: &Path, file_path: &str) -> Result<PathBuf> {
    let path = Path::new(file_path);
    let inside = if path.has_root() || path.is_absolute() {
        // As they are written: another name of the folder, by a link outside of it, is not looked for.
        let absolute = std::path::absolute(folder).ok();
        let below = absolute.iter().map(PathBuf::as_path).chain([folder]);
        below.filter(|root| root.has_root()).find_map(|root| path.strip_prefix(root).ok())
    } else {
        Some(path)
    };
    let bad = |what: &str| {
        Error::corrupt("unsafe-name", what)
            .expected(format_args!("a file below {}", folder.display()))
            .found(format_args!("{file_path:?}"))
    };
    let Some(inside) = inside else {
        return Err(bad("the program names a file outside of its folder")
            .hint("choose a folder that holds the file, if you trust the program"));
    };
    let mut name = PathBuf::new();
    for part in inside.components() {
        match part {
            Component::Normal(part) => name.push(part),
            Component::CurDir => {}
            _ => {
                return Err(bad("the program names a file by a path that could lead anywhere")
                    .hint("paths with .. are not followed"));
            }
        }
    }
    if name.as_os_str().is_empty() || file_path.contains('\0') || file_path.ends_with(std::path::is_separator)
    {
        return Err(bad("the program names no file"));
    }
    check_no_links(folder, &name)?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_folder() {
        let folder = Path::new("/models/net");
        for (path, name) in [
            ("w", "w"),
            ("./a//./b", "a/b"),
            ("/models/net/a/b", "a/b"),
            ("/models/./net/c", "c"),
            ("权重", "权重"),
            ("..a/...", "..a/..."),
            (" ", " "),
        ] {
            assert_eq!(below(folder, path).unwrap(), Path::new(name), "{path}");
        }
        for path in [
            "",
            ".",
            "./",
            "..",
            "../w",
            "a/../b",
            "a/..",
            "/etc/passwd",
            "/models",
            "/models/net",
            "/models/net/",
            "/models/network/w",
            "/models/net/../w",
            "/models/net/a/../../w",
            "//",
            "a\0b",
            "a/",
        ] {
            let error = below(folder, path).unwrap_err();
            assert_eq!(error.code().as_str(), "unsafe-name", "{path}");
        }
    }

    #[test]
    fn a_relative_folder_is_known_by_its_full_name() {
        let full = std::path::absolute("some/where").unwrap().join("w");
        assert_eq!(below(Path::new("some/where"), full.to_str().unwrap()).unwrap(), Path::new("w"));
        let other = std::path::absolute("some/other").unwrap().join("w");
        assert_eq!(
            below(Path::new("some/where"), other.to_str().unwrap()).unwrap_err().code().as_str(),
            "unsafe-name"
        );
        assert_eq!(below(Path::new(""), "/etc/passwd").unwrap_err().code().as_str(), "unsafe-name");
        assert_eq!(below(Path::new("."), "/etc/passwd").unwrap_err().code().as_str(), "unsafe-name");
    }
}
