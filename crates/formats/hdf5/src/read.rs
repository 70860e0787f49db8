//! Reader: HDF5 file to checkpoint.

use super::names::index_name;
use super::{KIND, NAMES, NULL, keras, layers, types};
use crate::ReadOptions;
use std::collections::HashSet;
use weighbridge_core::checkpoint::{Checkpoint, Lost, Metadata, Name, Note, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase::Opt;
use weighbridge_core::text::{counted, escape};
use weighbridge_core::{ErrorCode, NoteCode, phrase};
use weighbridge_format::{Input, OpenOptions};
use weighbridge_hdf5::{
    self as hdf5, Attributes, Dataset, Item, Kind, Link, LinkTarget, NamedType, SiblingFiles, Types,
};

/// Maximum number of skipped objects that are named; more are counted.
const MAX_NAMED: usize = 100;
/// Maximum length of a path or target in a note, in characters.
const MAX_QUOTED_LEN: usize = 512;

/// Reads the index of the file at `place`.
///
/// # Errors
/// As [`hdf5::read`]. Damaged objects are errors, too, unless reading is lenient: they are then
/// notes, as are unsupported objects. [`weighbridge_core::Kind::Usage`] for a folder.
pub(super) fn open(place: Input<'_>, options: &OpenOptions) -> Result<Checkpoint> {
    open_with(place, options, Metadata::default())
}

/// As [`open`], with metadata from the archive around the file.
///
/// # Errors
/// As [`open`].
pub(super) fn open_with(place: Input<'_>, options: &OpenOptions, around: Metadata) -> Result<Checkpoint> {
    let (source, folder) = match place {
        Input::Alone(source) => (source, None),
        Input::Beside(source, folder, name) => (source, Some((folder.clone(), name.to_owned()))),
        Input::Folder(folder) => {
            return Err(Error::usage(
                "not-a-file",
                "a folder is not an HDF5 model; an HDF5 model is one file",
            )
            .in_file(folder.label()));
        }
    };
    let contents = match options.own::<ReadOptions>().follow_virtual {
        true => {
            let beside = SiblingFiles::new(source.clone(), folder, &options.limits);
            hdf5::read_with_siblings(source, beside, &options.limits)?
        }
        false => hdf5::read(source, &options.limits)?,
    };
    if contents.is_open && !options.lenient && !options.salvage {
        return Err(Error::unsupported("hdf5-open", "HDF5: the file is marked as open for writing")
            .in_file(source.label())
            .hint(phrase![
                "if its writer was killed, clear the mark with `h5clear --status FILE`; ",
                Opt::Lenient,
                " ignores the mark"
            ]));
    }
    let mut reader = Reader {
        checkpoint: Checkpoint::new("hdf5", KIND, source.label()),
        names: Vec::new(),
        groups: Vec::new(),
        unread: Vec::new(),
        more: 0,
        links: Vec::new(),
        more_links: 0,
        named: 0,
        lenient: options.lenient,
        salvage: options.salvage,
    };
    let listed: HashSet<&[String]> = contents.items.iter().map(|item| &*item.path).collect();
    for problem in contents.problems {
        // A problem at a listed path concerns one of its attributes.
        let is_dataset = !problem.path.is_empty() && !listed.contains(&*problem.path);
        match problem.members {
            true => reader.lost_members(&problem.path, problem.error)?,
            false => reader.unread(&problem.path, problem.error, is_dataset)?,
        }
    }
    drop(listed);
    for link in contents.links {
        // A link to a dataset is a tensor of its own.
        if link.leads != LinkTarget::Dataset {
            reader.link(&link);
        }
    }
    if contents.items.iter().any(|item| item.dataset.as_ref().is_some_and(Dataset::is_virtual)) {
        // The file belongs to the checkpoint, though the elements are in other files.
        reader.checkpoint.files.push(source.clone());
    }
    let mut opaque = 0u64;
    for item in contents.items {
        opaque += u64::from(matches!(item.dataset.as_ref().map(|d| &d.kind), Some(Kind::Opaque { .. })));
        reader.item(item)?;
    }
    note_named_types(&contents.named_types, &mut reader.checkpoint);
    if opaque > 0 {
        let text = format!("{opaque} datasets of opaque bytes are read as u8");
        reader.checkpoint.notes.push(Note::new("opaque", text));
    }
    let mut checkpoint = reader.finish(contents.attributes, contents.types, &around);
    checkpoint.mark_ties(&options.limits.budget_for(source.len()))?;
    Ok(checkpoint)
}

/// Adds notes about skipped committed datatypes.
pub(super) fn note_named_types(all: &[NamedType], checkpoint: &mut Checkpoint) {
    for named in all.iter().take(MAX_NAMED) {
        let with = match named.attributes {
            0 => String::new(),
            count => format!(" with {}", counted(count, "attribute", "attributes")),
        };
        let text = format!(
            "{}: named datatype{with} skipped; datasets of this type are read",
            cut(&display_path(&named.path))
        );
        checkpoint.notes.push(Note::omission(NoteCode::NamedType, text));
    }
    let more = all.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        let text = format!("{} skipped", counted(more, "more named datatype", "more named datatypes"));
        checkpoint.notes.push(Note::omission(NoteCode::NamedType, text));
    }
}

struct Reader {
    checkpoint: Checkpoint,
    /// Names of the tensors in the bridge metadata.
    names: Vec<String>,
    /// Attributes of groups, as metadata.
    groups: Vec<(String, Value)>,
    /// Skipped objects: the first [`MAX_NAMED`].
    unread: Vec<String>,
    /// Number of further skipped objects.
    more: usize,
    /// Links that are not tensors: the first [`MAX_NAMED`], and the number of further ones.
    links: Vec<String>,
    more_links: usize,
    /// Number of tensors that are enumerations.
    named: u64,
    lenient: bool,
    salvage: bool,
}

impl Reader {
    fn item(&mut self, item: Item) -> Result<()> {
        let Some(dataset) = item.dataset else {
            if !item.attributes.is_empty() || item.is_empty {
                let mut pairs: Vec<_> =
                    item.attributes.into_iter().map(|(k, v)| (Name::from(k.as_str()), v)).collect();
                let taken = pairs.iter().any(|(key, _)| *key == Name::from(types::KEY));
                pairs.extend(
                    types::to_value(item.types).filter(|_| !taken).map(|v| (Name::from(types::KEY), v)),
                );
                self.groups.push((format!("/{}", item.path.join("/")), Value::Map(pairs)));
            }
            return Ok(());
        };
        let path: Vec<Name> = item.path.iter().map(|part| Name::from(part.as_str())).collect();
        match dataset.entry(TensorPath::new(path)) {
            Ok(entry) => {
                self.names.push(index_name(&item.path));
                let mut attributes: weighbridge_core::checkpoint::Attributes =
                    item.attributes.into_iter().collect();
                if let Some(types) = types::to_value(item.types) {
                    attributes.entry(types::KEY.to_owned()).or_insert(types);
                }
                if let Some(names) = dataset.names() {
                    let names = names.into_iter().map(|(name, value)| (Name::from(name), value));
                    attributes.entry(NAMES.to_owned()).or_insert(Value::Map(names.collect()));
                    self.named += 1;
                }
                if dataset.is_null {
                    attributes.entry(NULL.to_owned()).or_insert(Value::Bool(true));
                }
                self.checkpoint.tensors.push(TensorEntry { attributes, ..entry });
                Ok(())
            }
            Err(error) => self.unread(&item.path, error, true),
        }
    }

    /// Reports lost members of a group. Lost members of the root group are an error unless salvage is requested: a file
    /// read leniently must be the whole model.
    fn lost_members(&mut self, path: &[String], error: Error) -> Result<()> {
        if !self.salvage {
            return match path.is_empty() {
                true => Err(error.on_tensor(display_path(path))),
                false => self.unread(path, error, true),
            };
        }
        // The error has the offset of the unreadable part.
        let lost = Lost::new(format_args!("a part of the group {}", display_path(path)), &error);
        self.checkpoint.damage_mut(&error).lost.push(lost);
        Ok(())
    }

    /// Notes an unreadable dataset, or an unreadable part of a listed object; an error where it must be readable.
    fn unread(&mut self, path: &[String], error: Error, is_dataset: bool) -> Result<()> {
        if !self.lenient && error.kind() != weighbridge_core::Kind::Unsupported {
            return Err(error.on_tensor(display_path(path)));
        }
        if self.salvage && error.kind() != weighbridge_core::Kind::Unsupported {
            if !path.is_empty() {
                let parts: Vec<Name> = path.iter().map(|part| Name::from(part.as_str())).collect();
                self.checkpoint.lose(TensorPath::new(parts), &error);
            }
            return Ok(());
        }
        if is_dataset {
            let parts: Vec<Name> = path.iter().map(|part| Name::from(cut(part).as_str())).collect();
            let found = error.found_text().map(|found| format!(" ({})", cut(found))).unwrap_or_default();
            // The hint names the option that enables reading it.
            let hint = error.hint_phrase().filter(|_| error.code() == ErrorCode::Hdf5Virtual);
            let hint = hint.map(|hint| phrase!["; ", hint]).unwrap_or_default();
            let reason = phrase![error.message(), found, hint];
            let name = TensorPath::new(parts).to_text();
            self.checkpoint.notes.push(Note::skipped_tensor(name, reason));
            return Ok(());
        }
        self.note(|| {
            let found = error.found_text().map(|found| format!(" ({})", cut(found))).unwrap_or_default();
            format!("{}: {}{found}", cut(&display_path(path)), error.message())
        });
        Ok(())
    }

    /// Notes a link that is not a tensor.
    fn link(&mut self, link: &Link) {
        match self.links.len() < MAX_NAMED {
            true => {
                let (path, target) = (cut(&display_path(&link.path)), escape(&cut(&link.target)));
                self.links.push(format!("{path}: link to {target}"));
            }
            false => self.more_links += 1,
        }
    }

    /// Notes a skipped object.
    fn note(&mut self, text: impl FnOnce() -> String) {
        match self.unread.len() < MAX_NAMED {
            true => self.unread.push(text()),
            false => self.more += 1,
        }
    }

    /// Adds metadata, notes and roles after all tensors.
    fn finish(self, attributes: Attributes, types: Types, around: &Metadata) -> Checkpoint {
        let Self { mut checkpoint, mut names, groups, unread, more, links, more_links, named, .. } = self;
        let mut index = None;
        let own = attributes.into_iter().filter_map(|(key, value)| match value {
            Value::Text(text) if key == Metadata::INDEX_KEY => {
                index = Some(text);
                None
            }
            value => Some((key, value)),
        });
        checkpoint.metadata = own.chain(groups).collect::<Metadata>();
        if let Some(types) = types::to_value(types).filter(|_| checkpoint.metadata.get(types::KEY).is_none())
        {
            checkpoint.metadata.set(types::KEY, types);
        }
        for text in unread {
            checkpoint.notes.push(Note::omission("unread-object", text));
        }
        if more > 0 {
            checkpoint.notes.push(Note::omission("unread-object", format!("{more} more objects skipped")));
        }
        // Their targets are listed under their own names, or missing.
        for text in links {
            checkpoint.notes.push(Note::new("link", text));
        }
        if more_links > 0 {
            let text = counted(more_links, "more link", "more links");
            checkpoint.notes.push(Note::new("link", text));
        }
        if named > 0 {
            let tensors = match named {
                1 => "1 tensor is an enumeration".to_owned(),
                named => format!("{named} tensors are enumerations"),
            };
            let text = format!("{tensors}: read as integers, names in the attribute `{NAMES}`");
            checkpoint.notes.push(Note::new("enumeration", text));
        }
        let skipped = checkpoint.notes.iter().filter_map(|note| note.skipped.as_ref());
        let mut paths: Vec<Vec<&str>> = checkpoint.tensors.iter().map(|tensor| parts(tensor)).collect();
        paths.extend(skipped.map(|tensor| tensor.name.split('.').collect()));
        let state = keras::optimizer_state(&paths).into_iter().skip(checkpoint.tensors.len());
        let skipped = checkpoint.notes.iter_mut().filter_map(|note| note.skipped.as_mut());
        skipped.zip(state).for_each(|(tensor, is_state)| tensor.is_state = is_state);
        for (key, value) in around.iter() {
            checkpoint.metadata.set(key, value.clone());
        }
        let config = keras::config_of(around);
        keras::describe(&mut checkpoint.tensors, &mut names, &checkpoint.metadata, config.as_ref());
        if let Some(index) = index {
            checkpoint.restore_bridge_index(&names, &index);
        }
        layers::add_names(&mut checkpoint);
        checkpoint
    }
}

/// Parts of the path of a dataset; all are UTF-8.
pub(super) fn parts(tensor: &TensorEntry) -> Vec<&str> {
    tensor.path.parts().iter().map(|part| part.as_str().unwrap_or_default()).collect()
}

/// Display path.
fn display_path(path: &[String]) -> String {
    escape(&format!("/{}", path.join("/")))
}

/// Truncates a text from the file: link targets may be as long as the file.
fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED_LEN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
