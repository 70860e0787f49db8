//! Keras 3 archives (`.keras`): a zip of
//!
//! ```text
//! metadata.json         {"keras_version": "3.15.1", "date_saved": ...}
//! config.json           the layers
//! model.weights.h5      the weights, as in a separate HDF5 file
//! assets/...            files of layers, such as vocabularies
//! ```
//!
//! Stored weights are byte ranges of the archive, with one checksum that is compared when tensors are verified or copied. Deflated
//! weights are inflated in memory. The JSON members are metadata under their names; other members are companions. An archive is written with both as they
//! were.

use super::keras::CONFIG;
use super::{ARCHIVE, Input, keras, read, write};
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::{Checkpoint, Damage, Metadata, Note, Value, escape_text};
use weighbridge_core::checksum::{Check, ChecksumKind};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::{Opt, limit};
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_format::{OpenOptions, PlanOptions};
use weighbridge_io::source::{MemorySource, SourceRef, read_vec};
use weighbridge_zip::{self as zip, Member, Method, Unpacked, ZipBuilder};

/// Member with the weights.
const WEIGHTS: &str = "model.weights.h5";
/// Members that are metadata, in the order of Keras.
const TEXTS: [&str; 2] = ["metadata.json", CONFIG];
/// Copies of a JSON member in memory while it is read, as text and as parsed values.
const COPIES: u64 = 8;
/// Maximum length of deflated weights, as a multiple of the archive.
const MAX_WEIGHTS_RATIO: u64 = 16;
/// Maximum number of skipped members that are named; more are counted.
const MAX_NAMED: usize = 100;

/// True for an archive with Keras weights that is not npz or PyTorch.
pub(super) fn recognises(head: &[u8], source: &SourceRef) -> bool {
    let has = |wanted: &dyn Fn(&str) -> bool| zip::has_member(source, &Limits::default(), wanted);
    let is_array = || zip::first_member(source, 0).is_some_and(|(name, _)| name.ends_with(".npy"));
    head.starts_with(b"PK\x03\x04")
        && has(&|name| name == WEIGHTS)
        && !is_array()
        && !has(&|name| name == "data.pkl" || name.ends_with("/data.pkl"))
}

/// Reads the index of the archive `source`.
///
/// # Errors
/// As [`zip::read_with_rest`], and as for a file of weights; [`weighbridge_core::Kind::Limit`] for deflated weights above the
/// limit.
pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let (members, rest) = zip::read_with_rest(source, &options.limits)?;
    let member = weights_of(&members)?;
    let weights = weights(source, member, &options.limits)?;
    let check = check_of(source, member);
    let verify = || check.as_ref().map_or(Ok(()), |check| check.verify());
    let damaged = if options.lenient { verify().err() } else { None };
    let (mut texts, mut unread, mut others) = (Metadata::default(), Vec::new(), Vec::new());
    let budget = options.limits.budget_for(source.len());
    for member in members.iter().filter(|member| member.name != WEIGHTS && !member.name.ends_with('/')) {
        match other(source, member, &options.limits, &budget) {
            Some(Other::Text(text)) => texts.set(&member.name, Value::Text(text)),
            Some(Other::File(file)) => others.push((member.name.clone(), file)),
            None => unread.push(escape_text(&member.name)),
        }
    }
    // An error in weights with the wrong checksum is only a consequence.
    let mut checkpoint = read::open_with(Input::Alone(&weights), options, texts)
        .map_err(|error| if options.lenient { error } else { verify().err().unwrap_or(error) })?;
    checkpoint.kind = ARCHIVE;
    checkpoint.companions = others;
    if let Some(check) = &check {
        // Without a tensor that has it, the checksum would never be compared.
        if checkpoint.tensors.iter().all(|tensor| tensor.bytes() == 0) && !options.lenient {
            verify()?;
        }
        for extent in checkpoint.tensors.iter_mut().flat_map(|tensor| &mut tensor.extents) {
            // Offsets are those of the archive.
            if Arc::ptr_eq(&extent.source, &weights) {
                (extent.source, extent.offset) = (source.clone(), extent.offset + member.data_offset);
            }
            if !options.lenient {
                extent.check = Some(check.clone());
            }
        }
    }
    if let Some(error) = damaged {
        if !options.salvage {
            let text = format!("{}; any tensor may be damaged", error.message());
            checkpoint.notes.push(Note::omission(error.code(), text));
        } else if checkpoint.damage.is_none() {
            // The weights name all their tensors.
            let all = checkpoint.tensors.len() as u64;
            checkpoint.damage_mut(&error).expected = Some(all);
        }
    }
    let more = unread.len().saturating_sub(MAX_NAMED);
    for name in unread.into_iter().take(MAX_NAMED) {
        let text = format!("{name}: archive member skipped");
        checkpoint.notes.push(Note::omission("unread-member", text));
    }
    if more > 0 {
        checkpoint
            .notes
            .push(Note::omission("unread-member", format!("{more} more archive members skipped")));
    }
    if let Some(rest) = rest {
        rest.settle(options.lenient, source.label(), &mut checkpoint.notes)?;
    }
    checkpoint.files.push(source.clone());
    Ok(checkpoint)
}

fn weights_of(members: &[Member]) -> Result<&Member> {
    members.iter().find(|member| member.name == WEIGHTS).ok_or_else(|| {
        Error::corrupt("no-weights", "the zip archive is not one of Keras: it has no weights")
            .expected(format_args!("a member {WEIGHTS}"))
    })
}

/// Returns the weights as a source.
fn weights(source: &SourceRef, member: &Member, limits: &Limits) -> Result<SourceRef> {
    let bytes = member.open(source)?;
    if member.method == Method::Stored {
        return Ok(bytes);
    }
    // Later limits use the inflated length, so it is bounded by the length of the archive here.
    let most = limits.chunk_bytes.min(source.len().saturating_mul(MAX_WEIGHTS_RATIO));
    Limits::check("bytes of deflated weights", "chunk_bytes", member.len, most).map_err(|e| {
        e.hint(phrase![
            "unzip the archive and open model.weights.h5, or raise the limit ",
            limit("chunk_bytes")
        ])
    })?;
    let inflated = read_vec(&*bytes, 0, member.len)?;
    let bytes = Arc::new(MemorySource::new(source.label(), inflated));
    Ok(Arc::new(Unpacked { bytes, archive: source.clone(), member: member.clone() }))
}

/// Another member than the weights.
enum Other {
    /// Metadata.
    Text(String),
    /// Data of a layer, such as a vocabulary.
    File(SourceRef),
}

/// Returns another member; `None` for a damaged one, and for metadata that exceeds the memory budget.
fn other(source: &SourceRef, member: &Member, limits: &Limits, budget: &Budget) -> Option<Other> {
    let file = member.open(source).ok()?;
    if !TEXTS.contains(&member.name.as_str()) {
        check_of(source, member).map_or(Ok(()), |check| check.verify()).ok()?;
        return Some(Other::File(file));
    }
    if member.len > limits.header_bytes {
        return None;
    }
    budget.take_memory(member.len.saturating_mul(COPIES)).ok()?;
    let bytes = read_vec(&*file, 0, member.len).ok()?;
    let text = (crc32fast::hash(&bytes) == member.crc32).then(|| String::from_utf8(bytes).ok()).flatten();
    text.map(Other::Text)
}

/// Plans the archive of `checkpoint`, with its metadata members and the data of layers as in the opened one.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `config-missing` where the checkpoint has no layers; as for a file of weights.
pub(super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    let mut weights = checkpoint.clone();
    let mut archive = ZipBuilder::new(FileBuilder::new(""));
    for name in TEXTS {
        let Some(Value::Text(text)) = weights.metadata.remove(name) else {
            let text = format!("a Keras archive needs a member {name}, which the source does not have");
            return Err(Error::mismatch("config-missing", text).hint(phrase![
                "take it from an archive that Keras wrote of this model: ",
                Opt::Like.any("MODEL.keras")
            ]));
        };
        archive.member(name, text.len() as u64, |file| {
            file.owned(text);
            Ok(())
        })?;
    }
    let others = match (checkpoint.format, checkpoint.kind) {
        ("hdf5", ARCHIVE) => std::mem::take(&mut weights.companions),
        _ => Vec::new(),
    };
    let (file, losses) = write::file(&weights, options, keras::config_of(&checkpoint.metadata).as_ref())?;
    archive.member(WEIGHTS, file.len, |archive| {
        archive.embed(file);
        Ok(())
    })?;
    for (name, source) in &others {
        archive.member(name, source.len(), |archive| {
            archive.embed(FileBuilder::copy_of(name, source));
            Ok(())
        })?;
    }
    Ok(WritePlan { format: "hdf5", kind: ARCHIVE, files: vec![archive.finish()], losses })
}

/// Returns the checksum of a stored member. A deflated one is checked during inflation.
fn check_of(source: &SourceRef, member: &Member) -> Option<Arc<Check>> {
    let new = || Check::new(source, member.data_offset, member.len, ChecksumKind::Crc32, member.crc32);
    (member.method == Method::Stored).then(new)
}

/// Returns the error of weights that do not match their checksum.
///
/// # Errors
/// As [`open`].
pub(super) fn damage(source: &SourceRef, limits: &Limits) -> Result<Option<Error>> {
    let (members, _) = zip::read_with_rest(source, limits)?;
    let Some(check) = check_of(source, weights_of(&members)?) else { return Ok(None) };
    match check.verify() {
        Err(error) if Damage::is(&error) => Ok(Some(error)),
        other => other.map(|()| None),
    }
}

/// Returns the ranges of the archive that are not elements.
///
/// # Errors
/// As [`open`].
pub(super) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let (mut outline, members) = zip::outline(source, limits)?;
    for member in &members {
        let (at, len) = (member.data_offset, member.compressed_len);
        match member.name.as_str() {
            WEIGHTS if member.method == Method::Stored => {
                let inner = weighbridge_hdf5::outline(&member.open(source)?, limits)?;
                let parts = inner.parts.into_iter();
                outline.parts.extend(parts.map(|mut part| {
                    part.offset = part.offset.saturating_add(at);
                    part
                }));
                outline.elements |= inner.elements;
                outline.gaps = Gaps::Free;
                outline.findings.extend(inner.findings);
            }
            WEIGHTS => outline.elements(at, len, "deflated weights"),
            name if TEXTS.contains(&name) => outline.header(at, len, "metadata"),
            _ => outline.header(at, len, "data of layers"),
        }
    }
    Ok(outline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::detect;
    use crate::opening::open_source;
    use std::sync::LazyLock;
    use weighbridge::formats::safetensors::Safetensors;
    use weighbridge::ops::scan::scan_source;
    use weighbridge::ops::verify::verify_checkpoint;
    use weighbridge_core::checkpoint::Role;
    use weighbridge_core::tensor::Order;
    use weighbridge_format::WriteFormat;
    use weighbridge_io::testing::materialise;

    static MODEL: LazyLock<Vec<u8>> = LazyLock::new(|| weighbridge_testkit::golden("hdf5/keras/model.keras"));
    static DEFLATED: LazyLock<Vec<u8>> =
        LazyLock::new(|| weighbridge_testkit::golden("hdf5/keras/deflated.keras"));
    static PADDED: LazyLock<Vec<u8>> =
        LazyLock::new(|| weighbridge_testkit::golden("hdf5/keras/padded.keras"));
    fn source(bytes: &[u8]) -> SourceRef {
        Arc::new(MemorySource::new("m.keras", bytes.to_vec()))
    }

    fn open(bytes: &[u8]) -> Result<Checkpoint> {
        open_source(source(bytes), &OpenOptions::default())
    }

    #[test]
    fn archives_read_as_h5py_reads_them() {
        let truth: serde_json::Value =
        // Shape, dtype and bytes of each dataset, by h5py.
            serde_json::from_slice(&weighbridge_testkit::golden("hdf5/keras/model.json")).unwrap();
        for bytes in [&MODEL[..], &DEFLATED[..]] {
            assert_eq!(detect(&source(bytes)).unwrap().info().id, "hdf5");
            let checkpoint = open(bytes).unwrap();
            assert_eq!((checkpoint.kind, &checkpoint.notes[..]), ("keras", &[][..]));
            assert_eq!(checkpoint.tensors.len(), truth.as_object().unwrap().len());
            for tensor in &checkpoint.tensors {
                let theirs = &truth[tensor.text().replace('.', "/")];
                let bytes = tensor.read_tensor(Order::Row).unwrap();
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(serde_json::Value::from(hex), theirs[2], "{}", tensor.name());
            }
            for name in TEXTS {
                assert!(
                    matches!(checkpoint.metadata.get(name), Some(Value::Text(text)) if text.starts_with('{'))
                );
            }
            let report = verify_checkpoint(&checkpoint, &Default::default()).unwrap();
            assert_eq!(report.verdict.as_str(), "sound", "{:?}", report.findings);
            Safetensors.plan(&checkpoint, &PlanOptions::default()).unwrap();
        }
    }

    #[test]
    fn roles_follow_from_the_groups_and_the_configuration() {
        let checkpoint = open(&MODEL[..]).unwrap();
        let of = |role: &dyn Fn(&Role) -> bool| -> Vec<String> {
            let found = checkpoint.tensors.iter().filter(|tensor| role(&tensor.role));
            found.map(|tensor| tensor.text()).collect()
        };
        assert_eq!(of(&Role::is_state).len(), 14);
        let bn = "layers.batch_normalization.vars";
        assert_eq!(of(&|role| *role == Role::Buffer), [format!("{bn}.2"), format!("{bn}.3")]);
        // Different layers with the same name are ambiguous.
        let config = serde_json::json!([
            {"class_name": "BatchNormalization", "config": {"name": "bn", "scale": false}},
            {"class_name": "BatchNormalization", "config": {"name": "a"}},
            {"class_name": "Dense", "config": {"name": "a"}},
        ]);
        let other = open(&MODEL[..]).unwrap();
        let paths: Vec<Vec<&str>> = other.tensors.iter().map(read::parts).collect();
        let implied = keras::implied(&paths, &other.tensors, &other.metadata, Some(&config));
        let buffers = other.tensors.iter().zip(implied).filter(|(_, implied)| implied.role == Role::Buffer);
        let buffers = buffers.map(|(tensor, _)| tensor);
        assert_eq!(
            buffers.map(|tensor| tensor.text()).collect::<Vec<_>>(),
            [format!("{bn}.1"), format!("{bn}.2")]
        );
    }

    #[test]
    fn rejects_weights_that_do_not_match_the_checksum() {
        let mut bytes = MODEL.to_vec();
        let weight = [0x01, 0xd0, 0xa3, 0xbe];
        let at = bytes.windows(4).position(|window| window == weight).unwrap();
        bytes[at] ^= 1;
        let opened = open(&bytes).unwrap();
        for tensor in &opened.tensors {
            assert_eq!(tensor.verify_tensor().unwrap_err().code().as_str(), "crc-mismatch");
        }
        let report = verify_checkpoint(&opened, &Default::default()).unwrap();
        let found: Vec<_> = report.findings.iter().map(|finding| finding.text.to_string()).collect();
        assert!(found.len() == 1 && found[0].ends_with("; 22 tensors have these bytes"), "{found:?}");
        let salvage = OpenOptions { salvage: true, ..OpenOptions::default() };
        let saved = open_source(source(&bytes), &salvage).unwrap();
        let damage = saved.damage.unwrap();
        assert_eq!((saved.tensors.len(), damage.unverified), (opened.tensors.len(), opened.tensors.len()));
        let lenient = OpenOptions { lenient: true, ..OpenOptions::default() };
        let opened = open_source(source(&bytes), &lenient).unwrap();
        assert!(opened.notes.iter().any(|note| note.code == "crc-mismatch" && note.omission));
    }

    #[test]
    fn the_checksum_of_weights_without_tensors_is_compared_on_opening() {
        let mut weights = FileBuilder::new("");
        weights.owned(weighbridge_testkit::golden("hdf5/small/attributes_default.h5"));
        let weights = weights.finish();
        let mut archive = ZipBuilder::new(FileBuilder::new(""));
        archive
            .member(WEIGHTS, weights.len, |file| {
                file.embed(weights);
                Ok(())
            })
            .unwrap();
        let plan =
            WritePlan { format: "hdf5", kind: ARCHIVE, files: vec![archive.finish()], losses: Vec::new() };
        let mut bytes = materialise(&plan).remove(0);
        assert!(open(&bytes).unwrap().tensors.is_empty());
        let place = weights_of(&zip::read_directory(&source(&bytes), &Limits::default()).unwrap())
            .unwrap()
            .data_offset;
        bytes[usize::try_from(place).unwrap() + 40] ^= 1;
        assert_eq!(open(&bytes).unwrap_err().code().as_str(), "crc-mismatch");
    }

    #[test]
    fn a_damaged_text_member_is_skipped() {
        let mut bytes = MODEL.to_vec();
        let at = bytes.windows(8).position(|window| window == b"\"module\"").unwrap();
        bytes[at + 2] ^= 1;
        let opened = open(&bytes).unwrap();
        assert!(opened.notes.iter().any(|note| note.code == "unread-member"), "{:?}", opened.notes);
        assert!(opened.metadata.get(CONFIG).is_none());
    }

    #[test]
    fn a_user_block_with_a_zip_signature_is_not_an_archive() {
        let weights = open(&MODEL[..]).unwrap();
        let file = weights_of(&zip::read_directory(&source(&MODEL[..]), &Limits::default()).unwrap())
            .unwrap()
            .open(&source(&MODEL[..]))
            .unwrap();
        let mut bytes = b"PK\x03\x04 notes".to_vec();
        bytes.resize(512, 0);
        bytes.extend(read_vec(&*file, 0, file.len()).unwrap());
        let opened = open(&bytes).unwrap();
        assert_eq!((opened.format, opened.kind == ARCHIVE), ("hdf5", false));
        assert_eq!(opened.tensors.len(), weights.tensors.len());
    }

    #[test]
    fn archives_are_scanned_as_any_archive() {
        let options = OpenOptions::default();
        let file = scan_source(&source(&MODEL[..]), &options).unwrap();
        let codes: Vec<_> = file.scan.findings.iter().map(|finding| finding.code.as_str()).collect();
        assert_eq!((codes, file.format), (vec![], Some("zip")));
    }

    #[test]
    fn deflated_weights_have_a_limit() {
        let limits = Limits { chunk_bytes: 1000, ..Limits::default() };
        let small = OpenOptions { limits, ..OpenOptions::default() };
        let error = open_source(source(&DEFLATED[..]), &small).unwrap_err();
        assert_eq!(error.kind(), weighbridge_core::Kind::Limit);
        // A megabyte of zeros in four kilobytes.
        assert_eq!(open(&PADDED[..]).unwrap_err().kind(), weighbridge_core::Kind::Limit);
    }

    #[test]
    fn damaged_archives_never_panic() {
        for end in (0..MODEL.len()).step_by(97) {
            let _ = open(&MODEL[..end]);
        }
        for at in (0..DEFLATED.len()).step_by(13) {
            let mut changed = DEFLATED.to_vec();
            changed[at] ^= 0x55;
            let _ = open(&changed);
        }
    }
}
