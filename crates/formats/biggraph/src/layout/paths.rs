//! Paths of a configuration.

use std::path::PathBuf;
use weighbridge_core::error::{Error, Result};

/// Plain path of a configuration path: without a leading `file://`.
///
/// # Errors
/// [`weighbridge_core::Kind::Unsupported`], `url`, for another scheme, by the rules of upstream's URL parser:
/// also `s3:foo` and a drive letter.
pub(crate) fn plain_path(path: &str) -> Result<&str> {
    if let Some(rest) = path.strip_prefix("file://") {
        return Ok(rest);
    }
    match scheme(path) {
        // `file:x` is a path of exactly that name in upstream.
        Some(scheme) if !scheme.eq_ignore_ascii_case("file") => {
            Err(Error::unsupported("url", "the path in the configuration is a URL, not a file system path")
                .expected("a path, or file:// and a path")
                .found(path))
        }
        _ => Ok(path),
    }
}

/// Scheme found by Python's `urlparse`. Skips leading blanks and control characters.
fn scheme(path: &str) -> Option<&str> {
    let path = path.trim_start_matches(|c: char| c <= ' ');
    let (scheme, _) = path.split_once(':')?;
    let letters = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.\t\n\r".contains(&b));
    (letters && scheme.starts_with(|c: char| c.is_ascii_alphabetic())).then_some(scheme)
}

/// Path from a checkpoint folder to its entity folder, if the two paths of the
/// configuration determine it: both relative or both absolute. Computed from the texts alone, without file access. So a
/// tree that was moved as a whole still finds its entities.
///
/// `None` if only one path is relative, if either is a URL, and if the result would
/// lead through a folder whose name the paths do not contain.
pub(crate) fn relative_entity_folder(checkpoint_path: &str, entity_path: &str) -> Option<PathBuf> {
    let (from_root, from) = parts(plain_path(checkpoint_path).ok()?);
    let (to_root, to) = parts(plain_path(entity_path).ok()?);
    if from_root != to_root {
        return None;
    }
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let (up, down) = (from.get(common..)?, to.get(common..)?);
    if up.contains(&"..") {
        return None;
    }
    let path: PathBuf = up.iter().map(|_| "..").chain(down.iter().copied()).collect();
    Some(if path.as_os_str().is_empty() { PathBuf::from(".") } else { path })
}

/// True for an absolute path; and its parts, with `.` and `x/..` removed.
fn parts(path: &str) -> (bool, Vec<&str>) {
    let absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|&last| last != "..") => {
                parts.pop();
            }
            // The parent of the root is the root.
            ".." if absolute => {}
            part => parts.push(part),
        }
    }
    (absolute, parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn accepts_plain_paths_and_file_urls() {
        for (given, plain) in [
            ("data/x", "data/x"),
            ("", ""),
            ("file:///a/b", "/a/b"),
            ("file://a", "a"),
            ("file:a", "file:a"),
            ("FILE:a", "FILE:a"),
            ("./s3:foo", "./s3:foo"),
            ("1:a", "1:a"),
            ("a b:c", "a b:c"),
            (":a", ":a"),
        ] {
            assert_eq!(plain_path(given).unwrap(), plain);
        }
        for bad in ["s3:foo", "s3://x/y", "C:\\data", "hdfs://h/x", " s3:foo", "a+b-c.d:"] {
            assert_eq!(plain_path(bad).unwrap_err().code().as_str(), "url", "{bad}");
        }
    }

    #[test]
    fn computes_the_path_from_checkpoint_to_entities() {
        let way = |from: &str, to: &str| relative_entity_folder(from, to);
        let is = |way: &str| Some(Path::new(way).to_owned());
        assert_eq!(way("ckpt_std_zip", "std/entities"), is("../std/entities"));
        assert_eq!(way("model/x", "data"), is("../../data"));
        assert_eq!(way("data/model", "data/entities"), is("../entities"));
        assert_eq!(way("data/model/", "./data/./model"), is("."));
        assert_eq!(way("data", "data/entities"), is("entities"));
        assert_eq!(way("a/../b", "b/e"), is("e"));
        assert_eq!(way("file:///x/model", "/x/y/../entities"), is("../entities"));
        assert_eq!(way("/../a", "/b"), is("../b"));
        assert_eq!(way("model", "../entities"), is("../../entities"));
        assert_eq!(way("../model", "../entities"), is("../entities"));
        // The paths do not contain the name of the working folder of the run.
        assert_eq!(way("../model", "entities"), None);
        assert_eq!(way("/x/model", "entities"), None);
        assert_eq!(way("model", "s3://entities"), None);
    }
}
