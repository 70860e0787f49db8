//! Reader: file to checkpoint. Elements of blobs are not read.

use crate::blob::{self, DATA, DIFF, Found};
use crate::network::{self, Network};
use crate::schema;
use crate::walk::{self, Blob, Content, Message};
use crate::wire::{FIXED32, Fields, LEN, MAX_VARINT, VARINT, varint};
use crate::{NETWORK, STATE, WEIGHTS, text};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{
    Checkpoint, Damage, Name, Note, Role, TensorEntry, TensorPath, Value, escape_text,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{Cursor, FolderRef, SourceRef, read_vec};

/// Metadata key of the file with the weights of a training state.
pub(crate) const LEARNED_NET: &str = "learned_net";
/// Attribute with the meaning of a blob in its layer.
const BLOB: &str = "blob";
/// Extension of a file of weights.
const EXTENSION: &str = "caffemodel";
/// Network of a model under its usual name.
const DEPLOY: &str = "deploy.prototxt";
/// Maximum number of fields read to recognize a file.
const MAX_FIELDS: usize = 100;
/// Bytes of a layer that show its name and type.
const BEGINNING: usize = 256;

/// Returns the kind of a file by its content.
pub(crate) fn kind(head: &[u8], source: &SourceRef) -> Option<&'static str> {
    match head.first()? {
        0x08 if is_state(source) => Some(STATE),
        0x0a | 0x12 | 0x1a | 0xa2 if is_network(source) => Some(WEIGHTS),
        _ if is_text(head) => Some(NETWORK),
        _ => None,
    }
}

/// Visits the fields of a file, up to `MAX_FIELDS` and up to its end: number, wire type and first bytes. Returns false at a malformed
/// field, or if `visit` does.
fn fields(source: &SourceRef, mut visit: impl FnMut(u64, u8, &[u8]) -> bool) -> bool {
    let mut cursor = Cursor::new(source.clone(), 0);
    for _ in 0..MAX_FIELDS {
        if cursor.remaining() == 0 {
            break;
        }
        let Ok(bytes) = cursor.peek_up_to(2 * MAX_VARINT + BEGINNING) else { return false };
        let all = bytes.len();
        let Some((tag, rest)) = varint(bytes) else { return false };
        let (number, wire) = (tag >> 3, (tag & 7) as u8);
        let (len, content) = match wire {
            VARINT => match varint(rest) {
                Some((_, rest)) => (0, rest),
                None => return false,
            },
            FIXED32 => (4, rest),
            LEN => match varint(rest) {
                Some(found) => found,
                None => return false,
            },
            _ => return false,
        };
        let within = usize::try_from(len).unwrap_or(usize::MAX).min(content.len());
        if !visit(number, wire, content.get(..within).unwrap_or_default()) {
            return false;
        }
        let used = (all - content.len()) as u64;
        if used.saturating_add(len) > cursor.remaining() {
            // A truncated file.
            break;
        }
        if cursor.skip(used + len, "a field").is_err() {
            return false;
        }
    }
    true
}

/// Returns true for a file whose fields are those of a network, with a layer that has a name and a type.
fn is_network(source: &SourceRef) -> bool {
    let (mut layers, mut names) = (0, 0);
    let visited = fields(source, |number, wire, content| match (number, wire) {
        (1, LEN) => {
            names += 1;
            names == 1 && is_name(content)
        }
        (100, LEN) => {
            layers += 1;
            begins(content, |number, wire| matches!((number, wire), (1..=4, LEN)), 2)
        }
        (2, LEN) => {
            layers += 1;
            let is_first = |number, wire| matches!((number, wire), (1..=4, LEN) | (5, VARINT));
            begins(content, is_first, 1) || content.is_empty()
        }
        (3, LEN) => is_name(content),
        (4, VARINT | LEN) | (5 | 7, VARINT) | (6 | 8, LEN) => true,
        _ => false,
    });
    visited && layers > 0
}

/// Returns true for a message whose first `count` fields are texts or messages that `is_own` accepts. Its end may be missing.
fn begins(content: &[u8], is_own: impl Fn(u64, u8) -> bool, count: usize) -> bool {
    let mut rest = content;
    for _ in 0..count {
        let Some((tag, after)) = varint(rest) else { return false };
        if !is_own(tag >> 3, (tag & 7) as u8) {
            return false;
        }
        let Some((len, after)) = varint(after) else { return false };
        if (tag & 7) as u8 == VARINT {
            rest = after;
            continue;
        }
        match usize::try_from(len).ok().and_then(|len| after.split_at_checked(len)) {
            Some((text, after)) => {
                // An old layer is a message in the first field.
                if !is_name(text) && tag >> 3 != 1 {
                    return false;
                }
                rest = after;
            }
            None => return true,
        }
    }
    true
}

fn is_name(bytes: &[u8]) -> bool {
    // The beginning of a long name may end within a character.
    let text = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    text.len() + 4 > bytes.len() && !text.chars().any(char::is_control)
}

/// Returns true for a file whose fields are those of a training state, with a blob.
fn is_state(source: &SourceRef) -> bool {
    let mut blobs = 0;
    let visited = fields(source, |number, wire, content| match (number, wire) {
        (1 | 4 | 6, VARINT) | (5, FIXED32) => true,
        (2, LEN) => is_name(content),
        (3, LEN) => {
            blobs += 1;
            content.first().is_some_and(|tag| {
                matches!(tag, 0x08 | 0x10 | 0x18 | 0x20 | 0x2a | 0x32 | 0x3a | 0x42 | 0x4a | 0x50)
            })
        }
        _ => false,
    });
    visited && blobs > 0
}

/// Returns true for text with a line that begins a layer.
fn is_text(head: &[u8]) -> bool {
    let text = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    if text.len() + 4 <= head.len() || text.chars().any(|c| c.is_control() && !c.is_whitespace()) {
        return false;
    }
    let begins = |line: &str| {
        let rest = line.trim_start();
        let rest = rest.strip_prefix("layers").or_else(|| rest.strip_prefix("layer"));
        rest.is_some_and(|rest| rest.trim_start().trim_start_matches(':').trim_start().starts_with('{'))
    };
    text.contains("type") && text.lines().any(begins)
}

/// Reads the index of `source`. `around` is its folder with its name in it; `salvaged` is the error of opening a damaged file.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], [`weighbridge_core::Kind::Unsupported`] or [`weighbridge_core::Kind::Limit`], with the offset.
pub(crate) fn open(
    source: &SourceRef,
    around: Option<(&FolderRef, &Path)>,
    options: &OpenOptions,
    salvaged: Option<&Error>,
) -> Result<Checkpoint> {
    let limits = options.limits.with_budget_of(source);
    let budget = limits.budget_of(source);
    let head = read_vec(&**source, 0, source.len().min(4096))?;
    match kind(&head, source).unwrap_or(if head.first() == Some(&0x08) { STATE } else { WEIGHTS }) {
        NETWORK => {
            let mut checkpoint = Checkpoint::new("caffe", NETWORK, source.label());
            let (network, bytes) = network_of(source, &limits, &budget)?;
            set_name(&mut checkpoint, &network);
            checkpoint.topology = Some(Arc::new(network.program(bytes)));
            checkpoint.files.push(source.clone());
            Ok(checkpoint)
        }
        STATE => {
            let content = walk::read(source, Message::State, &limits, salvaged.is_some())?;
            let mut checkpoint = Checkpoint::new("caffe", STATE, source.label());
            state(&mut checkpoint, &content, source, &limits, salvaged)?;
            Ok(checkpoint)
        }
        _ => {
            let content = walk::read(source, Message::Net, &limits, salvaged.is_some())?;
            let mut checkpoint = Checkpoint::new("caffe", WEIGHTS, source.label());
            weights(&mut checkpoint, &content, (source, &limits, &budget), salvaged)?;
            if let Some((folder, name)) = around
                && let Some(beside) = network_beside(folder, name)?
            {
                let (network, bytes) = network_of(&beside, &limits, &budget)?;
                checkpoint.topology = Some(Arc::new(network.program(bytes)));
                checkpoint.files.push(beside);
            }
            Ok(checkpoint)
        }
    }
}

/// Reads a network in text.
fn network_of(source: &SourceRef, limits: &Limits, budget: &Budget) -> Result<(Network, Vec<u8>)> {
    let fail = |error: Error| error.in_file(source.label());
    Limits::check("bytes of the network", "header_bytes", source.len(), limits.header_bytes).map_err(fail)?;
    let bytes = read_vec(&**source, 0, source.len())?;
    let text = std::str::from_utf8(&bytes).map_err(|fault| {
        fail(Error::corrupt("bad-text", "the network is not UTF-8 text").at(fault.valid_up_to() as u64))
    })?;
    let fields = text::parse(text, budget).map_err(fail)?;
    let network = network::of_text(&fields, budget).map_err(fail)?;
    Ok((network, bytes))
}

fn set_name(checkpoint: &mut Checkpoint, network: &Network) {
    if let Some(name) = network.name.as_ref().filter(|name| !name.is_empty()) {
        checkpoint.metadata.set("name", Value::Text(name.clone()));
    }
}

fn weights(
    checkpoint: &mut Checkpoint,
    content: &Content,
    (source, limits, budget): (&SourceRef, &Limits, &Budget),
    salvaged: Option<&Error>,
) -> Result<()> {
    if let Some(error) = salvaged {
        checkpoint.damage_mut(content.fault.as_ref().unwrap_or(error));
    }
    let network = network::of_binary(content, budget)?;
    let mut known: HashSet<String> = HashSet::new();
    let mut duplicates = 1u64;
    for (place, (stored, layer)) in content.layers.iter().zip(&network.layers).enumerate() {
        if stored.blobs.is_empty() {
            continue;
        }
        let mut name = layer.name.clone();
        while !known.insert(name.clone()) {
            duplicates += 1;
            name = format!("{}~{duplicates}", layer.name);
        }
        if name != layer.name {
            let text = format!("duplicate name of a layer; the second layer is named {}", escape_text(&name));
            checkpoint.notes.push(Note::new("name-collision", text));
        }
        let meanings = schema::blobs(&layer.kind, stored.blobs.len());
        let is_last = place + 1 == content.layers.len();
        for (number, blob) in stored.blobs.iter().enumerate() {
            let path = TensorPath::new([Name::from(name.as_str()), Name::from(number.to_string().as_str())]);
            let cut = content
                .fault
                .as_ref()
                .filter(|_| is_last && content.cut_blob && number + 1 == stored.blobs.len());
            // Damage before the blobs of a layer may take its name away.
            let is_unnamed = salvaged.is_some() && (layer.name.is_empty() || layer.kind.is_empty());
            let cut = cut.or(salvaged.filter(|_| is_unnamed));
            let meaning = meanings.get(number).copied();
            let role = match layer.kind.as_str() {
                "BatchNorm" => Role::Buffer,
                "Embed" if number == 0 => Role::Embedding,
                _ => Role::Parameter,
            };
            add(checkpoint, blob, &path, (source, limits), cut, salvaged.is_some(), |entry| {
                entry.role = role.clone();
                if let Some(meaning) = meaning {
                    entry.attributes.insert(BLOB.to_owned(), Value::Text(meaning.to_owned()));
                }
            })?;
        }
    }
    set_name(checkpoint, &network);
    checkpoint.topology = Some(Arc::new(network.program(content.without_blobs())));
    Ok(())
}

fn state(
    checkpoint: &mut Checkpoint,
    content: &Content,
    source: &SourceRef,
    limits: &Limits,
    salvaged: Option<&Error>,
) -> Result<()> {
    if let Some(error) = salvaged {
        checkpoint.damage_mut(content.fault.as_ref().unwrap_or(error));
    }
    for field in Fields::of(&content.fields) {
        let field = field?;
        match (field.number, field.int(), field.text()) {
            (1, Some(iter), _) => checkpoint.metadata.set("iter", Value::I64(iter)),
            (2, _, Some(net)) => checkpoint.metadata.set(LEARNED_NET, Value::Text(net)),
            (4, Some(step), _) => checkpoint.metadata.set("current_step", Value::I64(step)),
            _ => {}
        }
    }
    for (number, blob) in content.blobs.iter().enumerate() {
        let path = TensorPath::new([Name::from("history"), Name::from(number.to_string().as_str())]);
        let cut = content.fault.as_ref().filter(|_| content.cut_blob && number + 1 == content.blobs.len());
        add(checkpoint, blob, &path, (source, limits), cut, salvaged.is_some(), |entry| {
            entry.role = Role::OptimizerPart { of: None };
        })?;
    }
    Ok(())
}

/// Adds the tensors of a blob. `cut` is the fault within an incomplete blob.
fn add(
    checkpoint: &mut Checkpoint,
    blob: &Blob,
    path: &TensorPath,
    (source, limits): (&SourceRef, &Limits),
    cut: Option<&Error>,
    salvage: bool,
    set: impl Fn(&mut TensorEntry),
) -> Result<()> {
    Limits::check("bytes in a name", "name_bytes", path.byte_len() as u64, limits.name_bytes)
        .map_err(|e| e.at(blob.at))?;
    if let Some(fault) = cut {
        checkpoint.lose(path, fault);
        return Ok(());
    }
    let diff = TensorPath::new(path.parts().iter().cloned().chain([Name::from("diff")]).collect::<Vec<_>>());
    for (group, path) in [(DATA, path), (DIFF, &diff)] {
        match blob::tensor(blob, group, path, source, limits) {
            Ok(Found::Tensor(mut entry)) => {
                set(&mut entry);
                if group == DIFF {
                    // Gradients, which a solver adds to a snapshot on request.
                    entry.role = Role::Other;
                }
                checkpoint.tensors.push(*entry);
            }
            Ok(Found::Skipped(reason)) => checkpoint.notes.push(Note::skipped_tensor(path.to_text(), reason)),
            Ok(Found::Nothing) => {}
            Err(error) if salvage && Damage::is(&error) => checkpoint.lose(path, &error),
            Err(error) => return Err(error.on_tensor(path).at(blob.at)),
        }
    }
    Ok(())
}

/// Opens the network beside weights: `NAME.prototxt`, also without the iteration of a snapshot, or `deploy.prototxt`.
fn network_beside(folder: &FolderRef, name: &Path) -> Result<Option<SourceRef>> {
    let Some(stem) = name.file_stem().and_then(|stem| stem.to_str()) else { return Ok(None) };
    let trained = stem.rsplit_once("_iter_").map(|(stem, _)| stem);
    let names = std::iter::once(stem).chain(trained).map(|stem| format!("{stem}.prototxt"));
    for file in names.chain([DEPLOY.to_owned()]) {
        if let Some(source) = folder.open(&name.with_file_name(file))? {
            return Ok(Some(source));
        }
    }
    Ok(None)
}

/// Returns the only file of weights in a folder, if networks are there as well.
pub(crate) fn weights_in(folder: &FolderRef) -> Option<PathBuf> {
    let items = folder.list(1).ok()?;
    let has = |path: &Path, ending: &str| path.extension().is_some_and(|extension| extension == ending);
    let mut weights = items.iter().filter(|item| has(&item.name, EXTENSION));
    let (first, second) = (weights.next()?, weights.next());
    let has_network = items.iter().any(|item| has(&item.name, "prototxt"));
    (second.is_none() && has_network).then(|| first.name.clone())
}

/// Opens the only file of weights in a folder.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], `not-a-file`, if there is none or several.
pub(crate) fn in_folder(folder: &FolderRef) -> Result<(PathBuf, SourceRef)> {
    let found = match weights_in(folder) {
        Some(name) => folder.open(&name)?.map(|source| (name, source)),
        None => None,
    };
    found.ok_or_else(|| {
        Error::usage("not-a-file", "the folder does not have one file of weights with its network")
            .in_file(folder.label())
            .hint("give the path of one model file")
    })
}
