//! Parser of manifests, which may come from untrusted sources.

use super::digest::{self, Algorithm, Digest, Digests};
use super::manifest::{FileRecord, Manifest, OWN_KEY, Own, Resource, TensorRecord, VERSION, subject_digest};
use super::subject::{ALONE, Scope};
use crate::checkpoint::{Part, Parts};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::source::{Source, check_plain, read_vec};
use crate::tensor::Shape;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashSet;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Job;

/// The type of the payload of an envelope.
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// Manifest, with its envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The manifest.
    pub manifest: Manifest,
    /// True where it came in a signed envelope. The signature is not verified.
    pub signed: bool,
}

/// Any of the supported JSON files.
#[derive(Deserialize)]
struct Outer<'a> {
    #[serde(rename = "_type")]
    form: Option<String>,
    #[serde(borrow)]
    subject: Option<&'a RawValue>,
    #[serde(rename = "predicateType")]
    predicate_type: Option<String>,
    #[serde(borrow)]
    predicate: Option<&'a RawValue>,
    payload: Option<String>,
    #[serde(rename = "payloadType")]
    payload_type: Option<String>,
    #[serde(rename = "dsseEnvelope", borrow)]
    envelope: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct SubjectForm {
    name: String,
    digest: DigestForm,
}

#[derive(Deserialize)]
struct DigestForm {
    sha256: String,
}

#[derive(Deserialize)]
struct PredicateForm<'a> {
    #[serde(borrow)]
    serialization: &'a RawValue,
    resources: Vec<ResourceForm>,
    #[serde(borrow)]
    weighbridge: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MethodForm {
    method: String,
    hash_type: String,
}

#[derive(Deserialize)]
struct SerializationForm {
    allow_symlinks: bool,
    #[serde(default)]
    ignore_paths: Vec<String>,
}

#[derive(Deserialize)]
struct ResourceForm {
    name: String,
    algorithm: String,
    digest: String,
}

#[derive(Deserialize)]
struct VersionForm {
    version: Whole,
}

#[derive(Deserialize)]
struct OwnForm {
    scope: String,
    format: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    options: Vec<String>,
    files: Vec<FileForm>,
    tensors: Vec<TensorForm>,
}

#[derive(Deserialize)]
struct FileForm {
    name: String,
    bytes: Whole,
    sha256: Option<String>,
    blake3: Option<String>,
}

#[derive(Deserialize)]
struct TensorForm {
    path: Parts,
    role: String,
    slot: Option<Part>,
    dtype: String,
    shape: Vec<Whole>,
    #[serde(default)]
    files: Vec<String>,
    sha256: Option<String>,
    blake3: Option<String>,
    row_names: Option<HashesForm>,
}

#[derive(Deserialize)]
struct HashesForm {
    sha256: Option<String>,
    blake3: Option<String>,
}

/// Whole number. A manifest may have passed through a format that has only floats.
struct Whole(u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        /// Largest value up to which every whole number is a float.
        const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
        let number = serde_json::Number::deserialize(from)?;
        let whole = |x: &f64| (0.0..=MAX_EXACT).contains(x) && x.fract() == 0.0;
        let from_float = || number.as_f64().filter(whole).and_then(|x| format!("{x:.0}").parse().ok());
        let found = number.as_u64().or_else(from_float);
        found.map(Self).ok_or_else(|| serde::de::Error::custom("expected a whole number"))
    }
}

/// Maximum number of excluded paths: they are looked up for each file.
const MAX_IGNORED: u64 = 100_000;

/// Reads the manifest in `source`: a statement, or one in a DSSE envelope or a Sigstore bundle.
///
/// # Errors
/// [`crate::Kind::Usage`], `not-a-manifest`, for another file; [`crate::Kind::Corrupt`] where it contradicts itself or names
/// files outside of its folder; [`crate::Kind::Unsupported`] for an unknown version, method or algorithm;
/// [`crate::Kind::Limit`] where it exceeds the limits.
pub fn read(source: &dyn Source, limits: &Limits) -> Result<Read> {
    let read = || {
        Limits::check_part("bytes in a manifest", "header_bytes", source.len(), limits.header_bytes, 1)?;
        parse(&read_vec(source, 0, source.len())?, limits)
    };
    read().map_err(|e| e.in_file(source.label()))
}

fn parse(bytes: &[u8], limits: &Limits) -> Result<Read> {
    let outer: Outer = serde_json::from_slice(bytes).map_err(|e| not_json("the file", &e))?;
    match (&outer.form, &outer.envelope, &outer.payload) {
        (Some(_), _, _) => Ok(Read { manifest: statement(&outer, limits)?, signed: false }),
        (None, Some(envelope), _) => {
            let inner: Outer =
                serde_json::from_str(envelope.get()).map_err(|e| not_json("its envelope", &e))?;
            enveloped(&inner, limits)
        }
        (None, None, Some(_)) => enveloped(&outer, limits),
        (None, None, None) => Err(not_one("it is neither an in-toto statement nor a signed envelope")),
    }
}

fn enveloped(outer: &Outer, limits: &Limits) -> Result<Read> {
    let (Some(payload), Some(kind)) = (&outer.payload, &outer.payload_type) else {
        return Err(not_one("its envelope has no payload"));
    };
    if kind != PAYLOAD_TYPE {
        return Err(not_one("its envelope has another payload type").expected(PAYLOAD_TYPE).found(kind));
    }
    let bytes = STANDARD.decode(payload).or_else(|_| URL_SAFE.decode(payload));
    let bytes = bytes.map_err(|e| bad("the payload of the envelope is not base64").found(e))?;
    let inner: Outer = serde_json::from_slice(&bytes)
        .map_err(|e| not_one("the payload of its envelope is not a JSON object").found(e))?;
    Ok(Read { manifest: statement(&inner, limits)?, signed: true })
}

fn statement(outer: &Outer, limits: &Limits) -> Result<Manifest> {
    let form = outer.form.as_deref().unwrap_or_default();
    if form != Manifest::STATEMENT_TYPE {
        return Err(not_one("it is not an in-toto statement").expected(Manifest::STATEMENT_TYPE).found(form));
    }
    let predicate_type = outer.predicate_type.as_deref().unwrap_or_default();
    if predicate_type != Manifest::PREDICATE_TYPE {
        return Err(Error::unsupported(
            "unknown-predicate",
            "the predicate type of the statement is not supported",
        )
        .expected(Manifest::PREDICATE_TYPE)
        .found(predicate_type));
    }
    let subjects: Vec<SubjectForm> = form_of(outer.subject)?;
    let [subject] = subjects.as_slice() else {
        return Err(bad("the statement does not have exactly one subject").found(subjects.len()));
    };
    let predicate: PredicateForm = form_of(outer.predicate)?;
    let method: MethodForm = form_of(Some(predicate.serialization))?;
    if method.method != "files" {
        return Err(Error::unsupported("unknown-method", "the serialization method is not supported")
            .expected("files")
            .found(method.method));
    }
    let hash_type = algorithm(&method.hash_type)?;
    let serialization: SerializationForm = form_of(Some(predicate.serialization))?;
    let mut resources = Vec::with_capacity(predicate.resources.len());
    let mut names = HashSet::new();
    let alone = predicate.resources.len() == 1;
    for form in &predicate.resources {
        if !(alone && form.name == ALONE) {
            check_plain(&form.name)?;
        }
        if !names.insert(form.name.as_str()) {
            return Err(bad_code("duplicate-name", "duplicate file name").found(&form.name));
        }
        if algorithm(&form.algorithm)? != hash_type {
            return Err(bad("the hash algorithm of a file differs from that of the manifest")
                .expected(hash_type.as_str())
                .found(&form.algorithm));
        }
        resources.push(Resource { name: form.name.clone(), digest: digest_of(&form.digest)? });
    }
    let ignored = serialization.ignore_paths.len() as u64;
    Limits::check("excluded paths", "none: this limit is fixed", ignored, MAX_IGNORED)?;
    for name in &serialization.ignore_paths {
        check_plain(name)?;
    }
    let found = subject_digest(&resources);
    if digest_of(&subject.digest.sha256)? != found {
        return Err(bad_code("subject-digest", "the subject digest does not match the listed files")
            .expected(&subject.digest.sha256)
            .found(digest::text(&found)));
    }
    let own = predicate.weighbridge.map(|own| self::own(own, &resources, hash_type, limits)).transpose()?;
    Ok(Manifest {
        name: subject.name.clone(),
        hash_type,
        allow_symlinks: serialization.allow_symlinks,
        ignore_paths: serialization.ignore_paths,
        resources,
        own,
    })
}

fn own(raw: &RawValue, resources: &[Resource], hash_type: Algorithm, limits: &Limits) -> Result<Own> {
    let version: VersionForm = form_of(Some(raw))?;
    if version.version.0 != VERSION {
        return Err(Error::unsupported(
            "unknown-version",
            "the version of the tensor records is not supported",
        )
        .expected(format_args!("version {VERSION} of `{OWN_KEY}`"))
        .found(version.version.0));
    }
    let form: OwnForm = form_of(Some(raw))?;
    let scope = Scope::from_name(&form.scope).ok_or_else(|| {
        Error::unsupported("unknown-version", "unknown scope of the seal").found(&form.scope)
    })?;
    if (scope == Scope::File) != matches!(resources, [one] if one.name == ALONE) {
        return Err(contradiction("the scope contradicts the list of files").found(&form.scope));
    }
    let mut files = Vec::with_capacity(form.files.len());
    for file in form.files {
        let digests = digests_of(file.sha256.as_deref(), file.blake3.as_deref())?;
        files.push(FileRecord { name: file.name, bytes: file.bytes.0, digests });
    }
    let alike = |(file, resource): (&FileRecord, &Resource)| {
        file.name == resource.name && file.digests.get(hash_type) == Some(&resource.digest)
    };
    if files.len() != resources.len() || !files.iter().zip(resources).all(alike) {
        return Err(contradiction("the file records contradict the list of files"));
    }
    Limits::check("tensors", "tensors", form.tensors.len() as u64, limits.tensors)?;
    let tensors = form.tensors.into_iter().map(|tensor| self::tensor(tensor, limits));
    let tensors = tensors.collect::<Result<Vec<_>>>()?;
    Ok(Own { scope, format: form.format, kind: form.kind, options: form.options, files, tensors })
}

fn tensor(form: TensorForm, limits: &Limits) -> Result<TensorRecord> {
    let path = form.path.path().ok_or_else(|| bad("the path of a tensor is not an array of names"))?;
    Limits::check("parts in a path", "path_parts", path.parts().len() as u64, limits.path_parts)?;
    Limits::check("bytes in a name", "name_bytes", path.byte_len() as u64, limits.name_bytes)?;
    Limits::check("dimensions", "dimensions", form.shape.len() as u64, limits.dimensions)?;
    let slot = match form.slot {
        Some(slot) => Some(slot.name().ok_or_else(|| bad("a slot is not a name"))?),
        None => None,
    };
    let digests = digests_of(form.sha256.as_deref(), form.blake3.as_deref())?;
    let names = form.row_names.as_ref();
    let names = names.map(|names| digests_of(names.sha256.as_deref(), names.blake3.as_deref()));
    let row_names = names.transpose()?;
    let TensorForm { role, dtype, shape, files, .. } = form;
    let shape = Shape::new(shape.into_iter().map(|extent| extent.0).collect::<Vec<_>>());
    let (role, dtype, row_names) = (role.into(), dtype.into(), row_names.map(Box::new));
    Ok(TensorRecord { path, role, slot, dtype, shape, files: files.into(), digests, row_names })
}

fn form_of<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Result<T> {
    let raw = raw.ok_or_else(|| bad("a field of the manifest is missing"))?;
    serde_json::from_str(raw.get()).map_err(|e| bad("the manifest has an invalid structure").found(e))
}

fn algorithm(name: &str) -> Result<Algorithm> {
    Algorithm::from_name(name).ok_or_else(|| {
        Error::unsupported("unknown-algorithm", "unknown hash algorithm")
            .expected("sha256 or blake3")
            .found(name)
    })
}

fn digest_of(text: &str) -> Result<Digest> {
    digest::parse(text)
        .ok_or_else(|| bad_code("bad-digest", "a hash is not 64 hexadecimal digits").found(text))
}

fn digests_of(sha256: Option<&str>, blake3: Option<&str>) -> Result<Digests> {
    Ok(Digests { sha256: sha256.map(digest_of).transpose()?, blake3: blake3.map(digest_of).transpose()? })
}

fn not_json(what: &str, error: &serde_json::Error) -> Error {
    if error.is_data() {
        return not_one(&format!("{what} is not a manifest object")).found(error);
    }
    not_one(&format!("{what} is not JSON: {error}"))
}

fn not_one(why: &str) -> Error {
    Error::usage("not-a-manifest", format!("not a model manifest: {why}")).hint(phrase![
        "a manifest is a file written by `",
        Job::Seal.call(),
        "`, or signed by a model signing tool"
    ])
}

fn bad(why: &str) -> Error {
    bad_code("bad-manifest", why)
}

fn bad_code(code: &'static str, why: &str) -> Error {
    Error::corrupt(code, why)
}

fn contradiction(why: &str) -> Error {
    bad_code("manifest-contradiction", why)
}
