//! Resolution of a program's `file_path` below one folder.

use std::path::{Component, Path, PathBuf};
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::check_no_links;

/// Returns the path of `file_path` relative to `folder`.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `unsafe-name`, if the path is empty, names a folder, or could leave the
/// folder, also by a symbolic link. [`weighbridge_core::Kind::Io`] if a component of the path cannot be inspected.
pub(super) fn below(folder: &Path, file_path: &str) -> Result<PathBuf> {
    let path = Path::new(file_path);
    let inside = if path.has_root() || path.is_absolute() {
        // The paths are compared as written: aliases of the folder by links outside it are not resolved.
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
        return Err(bad("the path is outside the folder")
            .hint("if you trust the program, choose a folder that contains the file"));
    };
    let mut name = PathBuf::new();
    for part in inside.components() {
        match part {
            Component::Normal(part) => name.push(part),
            Component::CurDir => {}
            _ => {
                return Err(bad("the path may leave the folder")
                    .hint("change the path in the program; components .. are not allowed"));
            }
        }
    }
    if name.as_os_str().is_empty() || file_path.contains('\0') || file_path.ends_with(std::path::is_separator)
    {
        return Err(bad("the path does not name a file"));
    }
    check_no_links(folder, &name)?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_paths_outside_the_folder() {
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
    fn resolves_absolute_paths_in_a_relative_folder() {
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
