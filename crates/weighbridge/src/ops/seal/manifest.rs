//! Manifest: its data, and its bytes.
//!
//! A manifest is an in-toto Statement v1 about one subject, as signers of models make it. Its predicate lists files and their
//! hashes. Weighbridge's own data are in the predicate, under a separate key that those signers ignore.

use super::digest::{Algorithm, Algorithms, Digest, Digests, text};
use super::subject::Scope;
use crate::checkpoint::{Name, TensorEntry, TensorPath};
use crate::error::Result;
use crate::plan::{Encode, Output};
use crate::tensor::Shape;
use serde_json::{Map, Value as Json, json};
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::sync::Arc;

/// Key of Weighbridge's own data.
pub(super) const OWN_KEY: &str = "weighbridge";
/// Version of these data.
pub(super) const VERSION: u64 = 1;

/// Listed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Its name relative to the folder, with `/` between parts; `.` for a file that is sealed alone.
    pub name: String,
    /// Its hash.
    pub digest: Digest,
}

/// Additional record of a file in Weighbridge's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRecord {
    /// Its name, as that of the resource.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its hashes.
    pub digests: Digests,
}

/// Listed tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorRecord {
    /// Its path.
    pub path: TensorPath,
    /// The word of its role.
    pub role: Cow<'static, str>,
    /// The optimizer's name for it, for optimizer state.
    pub slot: Option<Name>,
    /// The name of its type.
    pub dtype: Cow<'static, str>,
    /// Its logical shape.
    pub shape: Shape,
    /// The names of the files with its bytes; empty where unknown.
    pub files: Arc<[String]>,
    /// The hashes of its elements, as in [`crate::ops::hash`]; empty where there is none.
    pub digests: Digests,
    /// The hashes of its row names, if it has any. Hashed for each name in order: its length in bytes, as eight bytes little-endian,
    /// and the name in UTF-8.
    pub row_names: Option<Box<Digests>>,
}

impl TensorRecord {
    /// Makes the record of an entry, without hashes.
    pub fn of(entry: &TensorEntry, files: Arc<[String]>) -> Self {
        Self {
            path: entry.path.clone(),
            role: entry.role.as_str().into(),
            slot: entry.role.slot().cloned(),
            dtype: entry.dtype().name().into(),
            shape: entry.shape.clone(),
            files,
            digests: Digests::default(),
            row_names: None,
        }
    }

    /// Returns the displayed name: parts joined by dots, and `/slot`. Not escaped.
    pub fn text(&self) -> String {
        match &self.slot {
            Some(slot) => format!("{}/{}", self.path.to_text(), slot.to_text()),
            None => self.path.to_text(),
        }
    }

    fn to_json(&self) -> Json {
        let mut json = Map::new();
        json.insert("name".into(), json!(self.text()));
        json.insert("path".into(), self.path.to_json());
        json.insert("role".into(), json!(self.role));
        if let Some(slot) = &self.slot {
            json.insert("slot".into(), slot.to_json());
        }
        json.insert("dtype".into(), json!(self.dtype));
        json.insert("shape".into(), json!(self.shape.dims()));
        json.insert("files".into(), json!(&*self.files));
        digests(&mut json, &self.digests);
        if let Some(names) = &self.row_names {
            let mut own = Map::new();
            digests(&mut own, names);
            json.insert("row_names".into(), Json::Object(own));
        }
        Json::Object(json)
    }
}

/// Weighbridge's own data in a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// The extent of the seal.
    pub scope: Scope,
    /// The id of the format; `None` where only files were sealed.
    pub format: Option<String>,
    /// The kind within the format.
    pub kind: Option<String>,
    /// The options of opening, such as `names=structured`.
    pub options: Vec<String>,
    /// The files, as the resources.
    pub files: Vec<FileRecord>,
    /// The tensors, in the order of path and slot.
    pub tensors: Vec<TensorRecord>,
}

/// List of files and tensors with their hashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The name of the sealed file or folder: its last part only.
    pub name: String,
    /// The hash algorithm of the resources.
    pub hash_type: Algorithm,
    /// True where targets of symbolic links were sealed.
    pub allow_symlinks: bool,
    /// Excluded names, relative to the folder.
    pub ignore_paths: Vec<String>,
    /// The files.
    pub resources: Vec<Resource>,
    /// Weighbridge's own data; `None` in a manifest of another program.
    pub own: Option<Own>,
}

/// Returns the SHA-256 over the concatenated hashes of all resources.
pub(crate) fn subject_digest(resources: &[Resource]) -> Digest {
    let mut hasher = Sha256::new();
    resources.iter().for_each(|resource| hasher.update(resource.digest));
    hasher.finalize().into()
}

fn digests(json: &mut Map<String, Json>, digests: &Digests) {
    for algorithm in Algorithm::ALL {
        if let Some(digest) = digests.get(algorithm) {
            json.insert(algorithm.as_str().into(), json!(text(digest)));
        }
    }
}

impl Manifest {
    /// Type of the statement.
    pub const STATEMENT_TYPE: &'static str = "https://in-toto.io/Statement/v1";
    /// Type of the predicate.
    pub const PREDICATE_TYPE: &'static str = "https://model_signing/signature/v1.0";

    /// Returns the resources of files with these hashes.
    pub(super) fn resources_of(files: &[FileRecord], wanted: Algorithms) -> Vec<Resource> {
        let resource = |file: &FileRecord| {
            let digest = *file.digests.get(wanted.main())?;
            Some(Resource { name: file.name.clone(), digest })
        };
        files.iter().filter_map(resource).collect()
    }

    /// Returns the SHA-256 over the hashes of all files, the subject of the statement, in hexadecimal.
    pub fn subject_text(&self) -> String {
        text(&subject_digest(&self.resources))
    }

    /// Returns the bytes of the file: JSON in UTF-8, one line per file and tensor.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let written: Result<()> = self.write(&mut |line| {
            bytes.extend_from_slice(line);
            Ok(())
        });
        debug_assert!(written.is_ok(), "memory takes every line");
        bytes
    }

    /// Passes the bytes of the file to `write`, line by line.
    ///
    /// # Errors
    /// Errors of `write`.
    pub fn write<E>(
        &self,
        write: &mut dyn FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut out = Lines(write);
        out.push(0, "{")?;
        out.push(1, &format!("\"_type\": {},", json!(Manifest::STATEMENT_TYPE)))?;
        let digest = json!({ "sha256": self.subject_text() });
        let subject = json!([{ "name": self.name, "digest": digest }]);
        out.push(1, &format!("\"subject\": {subject},"))?;
        out.push(1, &format!("\"predicateType\": {},", json!(Manifest::PREDICATE_TYPE)))?;
        out.push(1, "\"predicate\": {")?;
        let serialization = json!({
            "method": "files",
            "hash_type": self.hash_type.as_str(),
            "allow_symlinks": self.allow_symlinks,
            "ignore_paths": self.ignore_paths,
        });
        out.push(2, &format!("\"serialization\": {serialization},"))?;
        let resource = |resource: &Resource| {
            json!({
                "name": resource.name,
                "algorithm": self.hash_type.as_str(),
                "digest": text(&resource.digest),
            })
        };
        out.list(2, "resources", self.resources.iter().map(resource), self.own.is_some())?;
        if let Some(own) = &self.own {
            out.push(2, &format!("\"{OWN_KEY}\": {{"))?;
            let facts = [
                ("version", json!(VERSION)),
                ("scope", json!(own.scope.as_str())),
                ("format", json!(own.format)),
                ("kind", json!(own.kind)),
                ("options", json!(own.options)),
            ];
            for (key, value) in facts {
                out.push(3, &format!("\"{key}\": {value},"))?;
            }
            let file = |file: &FileRecord| {
                let mut json = Map::new();
                json.insert("name".into(), json!(file.name));
                json.insert("bytes".into(), json!(file.bytes));
                digests(&mut json, &file.digests);
                Json::Object(json)
            };
            out.list(3, "files", own.files.iter().map(file), true)?;
            out.list(3, "tensors", own.tensors.iter().map(TensorRecord::to_json), false)?;
            out.push(2, "}")?;
        }
        out.push(1, "}")?;
        out.push(0, "}")
    }
}

impl Encode for Manifest {
    fn describe(&self) -> String {
        "the manifest".to_owned()
    }

    fn estimate(&self) -> u64 {
        let tensors = self.own.as_ref().map_or(0, |own| own.tensors.len());
        (self.resources.len() + tensors) as u64 * LINE_LEN
    }

    fn tensors(&self) -> Vec<&TensorEntry> {
        Vec::new()
    }

    fn encode(&self, out: &mut dyn Output) -> Result<()> {
        self.write(&mut |line| out.write(line))
    }
}

/// Approximate length of a line in bytes.
const LINE_LEN: u64 = 300;

/// Writer of indented lines.
struct Lines<'a, E>(&'a mut dyn FnMut(&[u8]) -> std::result::Result<(), E>);

impl<E> Lines<'_, E> {
    fn push(&mut self, depth: usize, line: &str) -> std::result::Result<(), E> {
        (self.0)(format!("{}{line}\n", "  ".repeat(depth)).as_bytes())
    }

    fn list(
        &mut self,
        depth: usize,
        key: &str,
        items: impl ExactSizeIterator<Item = Json>,
        more: bool,
    ) -> std::result::Result<(), E> {
        let end = if more { "]," } else { "]" };
        let last = items.len();
        if last == 0 {
            return self.push(depth, &format!("\"{key}\": [{end}"));
        }
        self.push(depth, &format!("\"{key}\": ["))?;
        for (number, item) in items.enumerate() {
            let comma = if number + 1 < last { "," } else { "" };
            self.push(depth + 1, &format!("{item}{comma}"))?;
        }
        self.push(depth, end)
    }
}
