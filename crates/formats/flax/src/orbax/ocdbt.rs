//! Key-value store of TensorStore in few files: OCDBT.
//!
//! ```text
//! manifest.ocdbt   magic 0cdb3a2a   length u64   version 0   compression   body   CRC-32C
//!                  body: uuid, configuration, table of files, versions with the roots of their trees
//! d/...            values, and nodes of trees at any offset:
//!                  magic 0cdb20de   length u64   version 0   compression   body   CRC-32C
//!                  body: height, table of files, entries in columns
//! ```
//!
//! Numbers are variable-length, keys share prefixes with the key before them. The last version of the manifest counts. The value of a
//! key is inside its leaf, or a range of a file. Paths of files are relative to the folder of the manifest.

use super::fields::Fields;
use super::stored::Stored;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::escape_text;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{FolderRef, SourceRef, check_range, check_shard, read_vec, to_usize};

/// Name of the manifest.
pub(super) const MANIFEST: &str = "manifest.ocdbt";
/// First bytes of a manifest.
pub(super) const MANIFEST_MAGIC: [u8; 4] = [0x0c, 0xdb, 0x3a, 0x2a];
/// First bytes that all nodes share.
pub(super) const BEGINNING: [u8; 2] = [0x0c, 0xdb];
/// First bytes of a node.
const NODE_MAGIC: [u8; 4] = [0x0c, 0xdb, 0x20, 0xde];
/// First bytes of a node of the tree of versions, which refers to versions before those in the manifest.
const VERSION_MAGIC: [u8; 4] = [0x0c, 0xdb, 0x12, 0x34];
/// Bytes of magic, length and checksum.
const MIN_LEN: u64 = 4 + 8 + 4;
/// Maximum bytes of a key and of the path of a file, as in TensorStore.
const MAX_KEY: u64 = 65_535;
/// Bytes decompressed at a time.
const STEP: u64 = 64 << 10;
/// Memory of an entry besides its key, in bytes.
const ENTRY: u64 = 128;

/// Keys with their values.
pub(super) type Entries = BTreeMap<Vec<u8>, Stored>;

/// Store of a folder.
pub(super) struct Ocdbt {
    pub(super) entries: Entries,
    /// Files with nodes and values, and the manifest.
    pub(super) files: Vec<SourceRef>,
}

/// Reference to a node.
struct NodeRef {
    file: String,
    /// Length of the part of `file` that the paths in the node are relative to.
    base: usize,
    offset: u64,
    len: u64,
    height: u8,
    prefix: Vec<u8>,
}

struct Walker<'a> {
    folder: &'a FolderRef,
    around: &'a Path,
    budget: &'a Budget,
    files: HashMap<String, SourceRef>,
    entries: Entries,
}

/// Reads all keys of the store in the folder `around`.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] or [`weighbridge_core::Kind::Unsupported`], with file and offset.
pub(super) fn read(
    folder: &FolderRef,
    around: &Path,
    manifest: SourceRef,
    limits: &Limits,
    budget: &Budget,
) -> Result<Ocdbt> {
    let named = |error: Error| error.in_file(manifest.label());
    let most = limits.header_bytes;
    Limits::check_part("bytes of a manifest", "header_bytes", manifest.len(), most, 1).map_err(named)?;
    let bytes = read_vec(&*manifest, 0, manifest.len())?;
    let root = root(&bytes, budget).map_err(named)?;
    let mut walker = Walker { folder, around, budget, files: HashMap::new(), entries: Entries::new() };
    let mut open: Vec<NodeRef> = root.into_iter().collect();
    while let Some(node) = open.pop() {
        let source = walker.file(&node.file)?;
        let at = |error: Error| error.in_file(source.label()).at(node.offset);
        walker.node(&source, &node, &mut open).map_err(at)?;
    }
    let mut files: Vec<SourceRef> = walker.files.into_values().collect();
    files.sort_by(|a, b| a.label().cmp(b.label()));
    files.push(manifest);
    Ok(Ocdbt { entries: walker.entries, files })
}

/// Returns the decompressed body of a manifest or a node.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `bad-magic`, `truncated`, `checksum`, `bad-compression`.
fn body(bytes: &[u8], magic: [u8; 4], budget: &Budget) -> Result<Vec<u8>> {
    let len = bytes.len() as u64;
    if len < MIN_LEN {
        let error = Error::corrupt("truncated", "OCDBT: the file ends within a header");
        return Err(error.expected(format_args!("at least {MIN_LEN} bytes")).found(len));
    }
    let mut fields = Fields::new(bytes);
    let found = fields.take(4)?;
    if found != magic {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        return Err(Error::corrupt("bad-magic", "OCDBT: wrong first bytes")
            .expected(hex(&magic))
            .found(hex(found)));
    }
    let stated = u64::from_le_bytes(fields.take(8)?.try_into().unwrap_or_default());
    if stated != len {
        return Err(Error::corrupt(
            "length-mismatch",
            "OCDBT: the stated length differs from the stored one",
        )
        .expected(format_args!("{stated} bytes"))
        .found(format_args!("{len} bytes"))
        .hint("the file is truncated or damaged"));
    }
    let (content, sum) = bytes.split_at(bytes.len() - 4);
    let (sum, found) = (u32::from_le_bytes(sum.try_into().unwrap_or_default()), crc32c::crc32c(content));
    if sum != found {
        return Err(Error::corrupt("crc-mismatch", "OCDBT: wrong CRC-32C checksum")
            .expected(format_args!("{sum:08x}"))
            .found(format_args!("{found:08x}")));
    }
    let mut fields = Fields::new(&content[12..]);
    let version = fields.varint()?;
    if version != 0 {
        return Err(Error::unsupported("wrong-version", "OCDBT: unknown version").expected(0).found(version));
    }
    let compression = fields.varint()?;
    let rest = fields.rest();
    match compression {
        0 => {
            budget.take_work(rest.len() as u64)?;
            Ok(rest.to_vec())
        }
        1 => unpack(rest, budget),
        other => Err(Error::unsupported("bad-compression", "OCDBT: unknown compression")
            .expected("0 (none) or 1 (zstd)")
            .found(other)),
    }
}

fn unpack(packed: &[u8], budget: &Budget) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| Error::corrupt("bad-compression", format!("OCDBT: zstd: {e}"));
    let mut decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(failed)?;
    let mut out = Vec::new();
    loop {
        budget.take_work(STEP)?;
        if decoder.by_ref().take(STEP).read_to_end(&mut out).map_err(failed)? == 0 {
            return Ok(out);
        }
    }
}

/// Returns the root of the last version in a manifest; `None` for an empty store.
fn root(bytes: &[u8], budget: &Budget) -> Result<Option<NodeRef>> {
    let body = body(bytes, MANIFEST_MAGIC, budget)?;
    let mut fields = Fields::new(&body);
    fields.take(16)?; // uuid
    let kind = fields.varint()?;
    if kind != 0 {
        return Err(Error::unsupported("ocdbt-manifest", "OCDBT: numbered manifests are not supported")
            .expected("kind 0 (single)")
            .found(kind));
    }
    fields.varint()?; // maximum bytes of a value in a leaf
    fields.varint()?; // maximum bytes of a node
    fields.byte()?; // arity of the tree of versions
    if fields.varint()? == 1 {
        fields.take(4)?; // level of zstd
    }
    let paths = paths(&mut fields, "", budget)?;
    let count = fields.count()?;
    fields.column(count)?; // generations, in rising order
    let heights = fields.take(count as u64)?;
    let (files, offsets, lens) = (fields.column(count)?, fields.column(count)?, fields.column(count)?);
    let (Some(&height), Some(&file), Some(&offset), Some(&len)) =
        (heights.last(), files.last(), offsets.last(), lens.last())
    else {
        return Err(Error::corrupt("ocdbt-manifest", "OCDBT: the manifest has no version"));
    };
    if (offset, len) == (u64::MAX, u64::MAX) {
        return Ok(None);
    }
    let (file, base) = path(&paths, file)?;
    Ok(Some(NodeRef { file, base, offset, len, height, prefix: Vec::new() }))
}

/// Reads a table of files: paths, with the length of the part that applies to the nodes in them.
fn paths(fields: &mut Fields<'_>, base: &str, budget: &Budget) -> Result<Vec<(String, usize)>> {
    let count = fields.count()?;
    let shared = fields.column(count.saturating_sub(1))?;
    let suffixes = fields.column(count)?;
    let bases = fields.column(count)?;
    let fault = |text: &'static str| Error::corrupt("ocdbt-node", text);
    let mut paths: Vec<(String, usize)> = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    for (number, (&suffix, own)) in suffixes.iter().zip(bases).enumerate() {
        let keep = number.checked_sub(1).and_then(|before| shared.get(before)).copied().unwrap_or(0);
        let own = to_usize(own)?;
        if keep > last.len() as u64
            || (base.len() as u64).saturating_add(keep).saturating_add(suffix) > MAX_KEY
        {
            return Err(fault("OCDBT: the path of a file is malformed"));
        }
        last.truncate(to_usize(keep)?);
        last.extend_from_slice(fields.take(suffix)?);
        budget.take_work((base.len() + last.len()) as u64 + ENTRY)?;
        let relative =
            std::str::from_utf8(&last).map_err(|_| fault("OCDBT: the path of a file is not UTF-8"))?;
        if !relative.is_char_boundary(own) {
            return Err(fault("OCDBT: the path of a file is malformed"));
        }
        paths.push((format!("{base}{relative}"), base.len() + own));
    }
    Ok(paths)
}

fn path(paths: &[(String, usize)], number: u64) -> Result<(String, usize)> {
    let path = usize::try_from(number).ok().and_then(|number| paths.get(number));
    path.cloned().ok_or_else(|| {
        Error::corrupt("ocdbt-node", "OCDBT: the number of a file is not in the table")
            .expected(format_args!("less than {}", paths.len()))
            .found(number)
    })
}

impl Walker<'_> {
    /// Opens a file of the store.
    fn file(&mut self, name: &str) -> Result<SourceRef> {
        if let Some(source) = self.files.get(name) {
            return Ok(source.clone());
        }
        check_shard(self.folder, self.around, name)?;
        let Some(source) = self.folder.open(&self.around.join(name))? else {
            return Err(Error::corrupt("file-missing", "a file of the store is missing")
                .in_file(self.folder.label())
                .found(escape_text(name))
                .hint("copy the whole folder of the checkpoint"));
        };
        self.budget.take_memory(ENTRY + name.len() as u64)?;
        self.files.insert(name.to_owned(), source.clone());
        Ok(source)
    }

    /// Reads a node: adds its entries, or pushes its children.
    fn node(&mut self, source: &SourceRef, node: &NodeRef, open: &mut Vec<NodeRef>) -> Result<()> {
        check_range(&**source, node.offset, node.len)?;
        self.budget.take_work(node.len)?;
        let body = body(&read_vec(&**source, node.offset, node.len)?, NODE_MAGIC, self.budget)?;
        let mut fields = Fields::new(&body);
        let height = fields.byte()?;
        if height != node.height {
            return Err(Error::corrupt("ocdbt-node", "OCDBT: wrong height of a node")
                .expected(node.height)
                .found(height));
        }
        let base = node.file.get(..node.base).unwrap_or_default();
        let paths = paths(&mut fields, base, self.budget)?;
        let count = fields.count()?;
        let (keys, common) = keys(&mut fields, count, height > 0, self.budget)?;
        match height {
            0 => self.leaf(source, node, &mut fields, &paths, keys),
            _ => self.interior(node, &mut fields, &paths, (keys, common), open),
        }
    }

    fn leaf(
        &mut self,
        source: &SourceRef,
        node: &NodeRef,
        fields: &mut Fields<'_>,
        paths: &[(String, usize)],
        keys: Vec<Vec<u8>>,
    ) -> Result<()> {
        let lens = fields.column(keys.len())?;
        let kinds = fields.take(keys.len() as u64)?;
        if let Some(kind) = kinds.iter().find(|&&kind| kind > 1) {
            return Err(Error::corrupt("ocdbt-node", "OCDBT: unknown kind of value")
                .expected("0 or 1")
                .found(kind));
        }
        let outside = kinds.iter().filter(|&&kind| kind == 1).count();
        let (files, offsets) = (fields.column(outside)?, fields.column(outside)?);
        let mut places = files.into_iter().zip(offsets);
        for ((key, len), &kind) in keys.into_iter().zip(lens).zip(kinds) {
            let stored = match (kind, places.by_ref()) {
                (1, places) => {
                    let Some((file, offset)) = places.next() else { continue };
                    let (file, _) = path(paths, file)?;
                    Stored::Range { source: self.file(&file)?, offset, len }
                }
                _ => {
                    let bytes = fields.take(len)?;
                    self.budget.take_memory(len)?;
                    Stored::Inline { bytes: Arc::from(bytes), file: source.clone() }
                }
            };
            let key = [node.prefix.as_slice(), &key].concat();
            self.budget.take_memory(ENTRY + key.len() as u64)?;
            if self.entries.contains_key(&key) {
                let key = escape_text(&String::from_utf8_lossy(&key));
                return Err(Error::corrupt("duplicate-key", "OCDBT: duplicate key").found(key));
            }
            self.entries.insert(key, stored);
        }
        Ok(())
    }

    fn interior(
        &mut self,
        node: &NodeRef,
        fields: &mut Fields<'_>,
        paths: &[(String, usize)],
        (keys, common): (Vec<Vec<u8>>, Vec<u64>),
        open: &mut Vec<NodeRef>,
    ) -> Result<()> {
        let count = keys.len();
        let (files, offsets, lens) = (fields.column(count)?, fields.column(count)?, fields.column(count)?);
        for ((((key, common), file), offset), len) in
            keys.iter().zip(common).zip(files).zip(offsets).zip(lens)
        {
            let Some(shared) = key.get(..to_usize(common)?) else {
                return Err(Error::corrupt("ocdbt-node", "OCDBT: a prefix is longer than its key"));
            };
            let (file, base) = path(paths, file)?;
            let prefix = [node.prefix.as_slice(), shared].concat();
            self.budget.take_work(ENTRY + (file.len() + prefix.len()) as u64)?;
            open.push(NodeRef { file, base, offset, len, height: node.height - 1, prefix });
        }
        Ok(())
    }
}

/// Reads the keys of a node, and for an interior node the lengths of the prefixes that all keys below share.
fn keys(
    fields: &mut Fields<'_>,
    count: usize,
    is_interior: bool,
    budget: &Budget,
) -> Result<(Vec<Vec<u8>>, Vec<u64>)> {
    let shared = fields.column(count.saturating_sub(1))?;
    let suffixes = fields.column(count)?;
    let common = if is_interior { fields.column(count)? } else { Vec::new() };
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for (number, &suffix) in suffixes.iter().enumerate() {
        let keep = number.checked_sub(1).and_then(|before| shared.get(before)).copied().unwrap_or(0);
        let last = keys.last().map_or(&[][..], Vec::as_slice);
        let kept = last.get(..to_usize(keep)?).filter(|_| keep.saturating_add(suffix) <= MAX_KEY);
        let Some(kept) = kept else {
            return Err(Error::corrupt("ocdbt-node", "OCDBT: a key is malformed"));
        };
        budget.take_work(keep + suffix + ENTRY)?;
        keys.push([kept, fields.take(suffix)?].concat());
    }
    Ok((keys, common))
}

/// Returns the length of the node at an offset of a data file: its first bytes and its checksum must be correct.
///
/// # Errors
/// Errors of the source.
pub(super) fn node_at(source: &SourceRef, offset: u64, limits: &Limits) -> Result<Option<u64>> {
    if source.len().saturating_sub(offset) < MIN_LEN {
        return Ok(None);
    }
    let mut head = [0; 12];
    source.read_at(offset, &mut head)?;
    let is_node = head.starts_with(&NODE_MAGIC) || head.starts_with(&VERSION_MAGIC);
    let len = u64::from_le_bytes(head[4..].try_into().unwrap_or_default());
    if !is_node || len < MIN_LEN || len > limits.header_bytes || len > source.len() - offset {
        return Ok(None);
    }
    let bytes = read_vec(&**source, offset, len)?;
    let sum = bytes
        .split_last_chunk::<4>()
        .map(|(content, sum)| (crc32c::crc32c(content), u32::from_le_bytes(*sum)));
    Ok(sum.filter(|(found, stated)| found == stated).map(|_| len))
}

/// Returns the path of the manifest in the folder `around`.
pub(super) fn manifest_in(around: &Path) -> PathBuf {
    around.join(MANIFEST)
}
