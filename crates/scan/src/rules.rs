//! Every rule of `scan`: its code, its severity, its description, and a crafted file that triggers it.
//!
//! The list is closed. Codes of the format readers become `unreadable` or `left-out` here, with the
//! reader's code in the text.

use weighbridge_core::finding::{Finding, Severity};

/// Subject of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Pickles: programs that Python runs while loading them.
    Pickle,
    /// Archives: zip and tar.
    Archive,
    /// Names and paths that point outside a folder.
    Path,
    /// HDF5 and Keras.
    Hdf5,
    /// Programs and configurations.
    Program,
    /// Mismatch between a file's name, its format and its content.
    Content,
    /// Parts that were not scanned.
    Coverage,
}

impl Topic {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pickle => "pickle",
            Self::Archive => "archive",
            Self::Path => "path",
            Self::Hdf5 => "hdf5",
            Self::Program => "program",
            Self::Content => "content",
            Self::Coverage => "coverage",
        }
    }
}

/// Consequence of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// Code runs, or may run, when the file is loaded or used.
    Code,
    /// Files are read or written, or network connections are opened.
    Files,
    /// Source code, class names or paths of the author are disclosed.
    Privacy,
    /// Programs disagree on the format or the content of the file.
    Deception,
    /// Loading takes an unbounded amount of memory or time.
    Resources,
    /// A part was not scanned.
    Unread,
    /// No consequence: information only.
    Remark,
}

impl Category {
    /// All categories.
    pub const ALL: [Self; 7] = [
        Self::Code,
        Self::Files,
        Self::Privacy,
        Self::Deception,
        Self::Resources,
        Self::Unread,
        Self::Remark,
    ];

    /// The word in JSON and in `--deny`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Files => "files",
            Self::Privacy => "privacy",
            Self::Deception => "deception",
            Self::Resources => "resources",
            Self::Unread => "unread",
            Self::Remark => "remark",
        }
    }

    /// Category with this word.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == name)
    }

    /// Category of the findings with this code.
    pub fn of(code: &str) -> Self {
        match code {
            "source-code" | "class-names" | "absolute-path" => Self::Privacy,
            "writes-files"
            | "reads-files"
            | "network"
            | "name-leads-out"
            | "path-like-name"
            | "link-leads-out"
            | "hdf5-external-link"
            | "hdf5-external-storage"
            | "hdf5-virtual"
            | "unsafe-member-name"
            | "member-link" => Self::Files,
            "memo-far" | "large-keys" | "parts-multiply" | "zip-bomb" => Self::Resources,
            "dangerous-import"
            | "unknown-import"
            | "computed-call"
            | "unusual-call"
            | "unfollowed-import"
            | "extension"
            | "another-pickle"
            | "nested-pickle"
            | "hdf5-user-link"
            | "hdf5-plugin-filter"
            | "keras-lambda"
            | "keras-foreign-module"
            | "keras-loads"
            | "runs-python"
            | "torchscript-code"
            | "custom-operators"
            | "remote-code"
            | "names-callable"
            | "arrow-pickled-type"
            | "program-file" => Self::Code,
            code => match Rule::of(code).map(|rule| rule.severity) {
                Some(Severity::Error | Severity::Warning) => Self::Deception,
                Some(Severity::Note) => Self::Remark,
                Some(Severity::Unchecked) | None => Self::Unread,
            },
        }
    }
}

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// Stable identifier: the code of its findings and its id in SARIF.
    pub code: &'static str,
    /// Subject of the rule.
    pub topic: Topic,
    /// Severity of its findings.
    pub severity: Severity,
    /// Description in one or two sentences.
    pub what: &'static str,
    /// Crafted file in `testdata/scan/bad` that triggers the rule.
    pub proof: &'static str,
}

impl Rule {
    /// All rules, topic by topic.
    pub const ALL: &'static [Rule] = RULES;

    /// Consequence of its findings.
    pub fn category(&self) -> Category {
        Category::of(self.code)
    }

    /// Rule with this code.
    pub fn of(code: &str) -> Option<&'static Rule> {
        RULES.iter().find(|rule| rule.code == code)
    }
}

/// A finding of the rule `code`, with the severity of the rule. A code without a rule is unchecked, so that a
/// mistake in this library never makes a file clean.
pub fn found(code: &'static str, text: impl Into<weighbridge_core::phrase::Phrase>) -> Finding {
    let severity = Rule::of(code).map_or(Severity::Unchecked, |rule| rule.severity);
    Finding::new(severity, code, text)
}

const fn error(code: &'static str, topic: Topic, proof: &'static str, what: &'static str) -> Rule {
    Rule { code, topic, severity: Severity::Error, what, proof }
}

const fn unchecked(code: &'static str, topic: Topic, proof: &'static str, what: &'static str) -> Rule {
    Rule { code, topic, severity: Severity::Unchecked, what, proof }
}

const fn warning(code: &'static str, topic: Topic, proof: &'static str, what: &'static str) -> Rule {
    Rule { code, topic, severity: Severity::Warning, what, proof }
}

const fn note(code: &'static str, topic: Topic, proof: &'static str, what: &'static str) -> Rule {
    Rule { code, topic, severity: Severity::Note, what, proof }
}

/// All rules, topic by topic.
#[rustfmt::skip]
const RULES: &[Rule] = &[
    error("dangerous-import", Topic::Pickle, "import_os.pkl",
        "Loading the pickle in Python would import a name that can run commands, build code, open connections or reach any object."),
    unchecked("unknown-import", Topic::Pickle, "import_unknown.pkl",
        "The pickle imports a name that is not on the allow list and whose effect is unknown. The text names it."),
    error("computed-call", Topic::Pickle, "call_computed.pkl",
        "The pickle calls an object that is computed during loading, so the target of the call is unknown."),
    error("unusual-call", Topic::Pickle, "call_unusual.pkl",
        "The pickle calls an allowed function in a way its own library never does: eval with other text, a codec that runs code, a size that exhausts memory."),
    error("memo-far", Topic::Pickle, "memo_far.pkl",
        "The pickle writes to a memo index far beyond its own length. Python allocates the memo up to that index: ten bytes cost gigabytes of memory."),
    error("large-keys", Topic::Pickle, "large_keys.pkl",
        "Dict keys or set items of the pickle are tuples nested or reused many times. Hashing them takes unbounded time."),
    error("parts-multiply", Topic::Pickle, "parts_multiply.pdparams",
        "A parameter that Paddle joins from slices repeats a slice, or its slices share bytes: a megabyte expands to gigabytes."),
    unchecked("unfollowed-import", Topic::Pickle, "import_behind_break.pkl",
        "After a broken instruction the pickle imports a name that could not be determined."),
    unchecked("extension", Topic::Pickle, "extension.pkl",
        "The pickle uses Python's extension registry, which can refer to any class or function."),
    unchecked("pickle-breaks", Topic::Pickle, "breaks.pkl",
        "The pickle cannot be read to its end. Python runs the instructions before the break; the rest is unknown."),
    unchecked("frames-disagree", Topic::Pickle, "frames.pkl",
        "Frames of the pickle do not end at instruction boundaries: the C and the Python unpickler read it differently."),
    unchecked("trailing-bytes", Topic::Pickle, "trailing.pkl",
        "Bytes that are not a pickle follow the end. They were not scanned."),
    warning("another-pickle", Topic::Pickle, "two.pkl",
        "Another pickle follows the first. Some loaders stop before it, others run it; it was scanned as well."),
    warning("nested-pickle", Topic::Pickle, "nested.pkl",
        "A byte string inside the pickle is a pickle itself. It runs if a program loads it; it was scanned as well."),
    note("lod-eval", Topic::Pickle, "lod.pdparams",
        "builtins.eval is called exactly as Paddle writes a tensor with LoD: eval(\"data\", {\"data\": array}), which only returns the array."),
    note("persistent-id", Topic::Pickle, "persistent.pkl",
        "The pickle refers to objects stored outside it, as PyTorch does for its storages."),
    note("out-of-band", Topic::Pickle, "next_buffer.pkl",
        "The pickle expects buffers that the loader must supply separately."),
    note("odd-pickle", Topic::Pickle, "odd.pkl",
        "The pickle has instructions that current picklers do not write. They have no effect by themselves."),
    note("more-findings", Topic::Pickle, "many.pkl",
        "More findings exist than are listed. This entry has the severity of the worst one that is not listed."),

    error("zip-duplicate-name", Topic::Archive, "duplicate.zip",
        "Two members have the same name: programs differ in which one they extract."),
    error("zip-similar-names", Topic::Archive, "similar.zip",
        "Member names differ only by case, slashes, or trailing dots and spaces: on some systems they are one file."),
    error("zip-headers-differ", Topic::Archive, "headers_differ.zip",
        "The directory and a local header disagree: programs differ in which one they use."),
    error("zip-end-records", Topic::Archive, "two_ends.zip",
        "The end records contradict each other or the directory: a wrong count, a second end record, a different zip64 record."),
    error("zip-prepended", Topic::Archive, "prepended.zip",
        "Bytes precede the archive: another program may read the file as a different format."),
    error("zip-appended", Topic::Archive, "appended.zip",
        "Bytes follow the end of the archive."),
    error("zip-overlap", Topic::Archive, "overlap.zip",
        "Members overlap, as in zip bombs. Archivers never write this."),
    error("zip-hidden-member", Topic::Archive, "hidden.zip",
        "A member is missing from the directory: programs that read the archive from its start still extract it."),
    error("zip-bomb", Topic::Archive, "bomb.zip",
        "Members claim to unpack to far more bytes than the archive can contain. They were not unpacked."),
    error("zip-crc", Topic::Archive, "crc.zip",
        "The CRC-32 of a member's data differs from the recorded one: some programs refuse it, others load it."),
    unchecked("zip-encrypted", Topic::Archive, "encrypted.zip",
        "A member is encrypted and was not scanned."),
    unchecked("zip-damaged", Topic::Archive, "damaged.zip",
        "The directory of the archive is unusable. Members found through local headers were scanned; others may exist."),
    unchecked("zip-gap", Topic::Archive, "gap.zip",
        "Bytes between members belong to no member."),
    error("unsafe-member-name", Topic::Archive, "member_names.zip",
        "A member name escapes the folder it is unpacked into: an absolute path, `..`, a drive letter or backslashes."),
    error("odd-member-name", Topic::Archive, "odd_names.zip",
        "A member name has control characters, NUL or text-direction marks: it is displayed differently from the real name."),
    error("member-link", Topic::Archive, "link.zip",
        "A member is a link or a device: files unpacked after it may be written outside the folder."),
    error("tar-layout", Topic::Archive, "directory_with_data.tar",
        "Programs differ in where the next tar member begins: a directory or link has a length, or a record sets another length."),

    error("name-leads-out", Topic::Path, "traversal.index.json",
        "A file name that the framework opens or writes points outside the folder of the model."),
    warning("path-like-name", Topic::Path, "tensor_names.safetensors",
        "A tensor name points outside the folder if the tensor is exported to a file of that name."),
    warning("link-leads-out", Topic::Path, "folder:link_out",
        "A file of the folder is a link to a file outside it. The target was scanned."),
    note("absolute-path", Topic::Path, "absolute/config.json",
        "A configuration contains absolute paths of its author's machine."),

    error("hdf5-external-link", Topic::Hdf5, "external_link.h5",
        "A link points to another file, which HDF5 opens automatically."),
    error("hdf5-external-storage", Topic::Hdf5, "external_storage.h5",
        "The elements of a dataset are read from other files: any file the reader has access to."),
    error("hdf5-virtual", Topic::Hdf5, "virtual.h5",
        "A virtual dataset takes its elements from datasets in other files."),
    error("hdf5-user-link", Topic::Hdf5, "user_link.h5",
        "A link has a user-defined type: HDF5 runs the code registered for that type."),
    unchecked("hdf5-plugin-filter", Topic::Hdf5, "plugin_filter.h5",
        "A dataset is compressed with a filter for which HDF5 loads a plugin library. Its elements were not scanned."),
    note("hdf5-soft-link", Topic::Hdf5, "soft_link.h5",
        "A soft link points to another path of the same file."),
    error("keras-lambda", Topic::Hdf5, "keras_lambda.h5",
        "The Keras model contains Python code (a Lambda layer) that runs when the model is loaded or called."),
    error("keras-foreign-module", Topic::Hdf5, "keras_module.h5",
        "The Keras model names a class or function outside Keras, which is imported when the model is loaded."),
    error("keras-loads", Topic::Hdf5, "saved_model.json",
        "A layer of the Keras model loads code or files: a torch module, a TensorFlow SavedModel, a vocabulary from a path or URL."),
    unchecked("keras-unread", Topic::Hdf5, "keras_unread.h5",
        "The configuration of a Keras model could not be parsed."),

    warning("source-code", Topic::Program, "source.pdmodel",
        "A program contains paths or lines of its author's source code. `weighbridge program --strip source` removes them."),
    warning("class-names", Topic::Program, "class_names.json",
        "A program contains the names of its author's classes."),
    error("writes-files", Topic::Program, "save.pdmodel",
        "An operator writes a file when the program is run."),
    error("runs-python", Topic::Program, "py_func.pdmodel",
        "An operator calls a Python function when the program is run."),
    error("network", Topic::Program, "network.pdmodel",
        "An operator opens network connections when the program is run."),
    warning("reads-files", Topic::Program, "load.pdmodel",
        "An operator reads a file when the program is run."),
    unchecked("custom-operators", Topic::Program, "custom.onnx",
        "A model has operators outside ONNX and ONNX Runtime, outside MXNet, or outside TensorFlow: the program that runs it has or loads their code."),
    error("torchscript-code", Topic::Program, "script.pt",
        "The archive contains TorchScript: code that can run when the file is loaded."),
    error("remote-code", Topic::Program, "remote_code/config.json",
        "A configuration names Python code shipped with the model or downloaded (auto_map, custom_pipelines, attn_implementation) or a dangerous callable (_target_, class_path, a Python tag in YAML), or its template accesses Python internals."),
    unchecked("names-callable", Topic::Program, "target.json",
        "A configuration names an unknown function or class to import and call (_target_, class_path, a Python tag in YAML)."),
    error("arrow-pickled-type", Topic::Program, "pickled_type.arrow",
        "A column type is stored as a pickle (arrow.py_extension_type), which some Arrow versions load."),

    error("two-formats", Topic::Content, "safetensors_and_zip.safetensors",
        "The file is valid in two formats: a scanner and a loader may see different content."),
    error("extension-differs", Topic::Content, "pickle.safetensors",
        "The extension names a format without code, but the content is a format that can contain code."),
    note("name-of-a-pickle", Topic::Content, "safetensors.pt",
        "The extension names a pickle or torch archive, but the content has another format: programs that go by the extension unpickle it."),
    unchecked("program-file", Topic::Content, "program.bin",
        "The file is a program, a script or a web page by its content or name, not a model."),
    unchecked("unknown-content", Topic::Content, "noise.bin",
        "The format of the content was not recognized."),
    unchecked("opaque-bytes", Topic::Content, "opaque.h5",
        "Untyped bytes: only the program that wrote them can interpret them."),

    unchecked("archive-not-entered", Topic::Coverage, "packed.bin.gz",
        "The file is compressed or packed in a way that `scan` does not unpack."),
    unchecked("unreadable", Topic::Coverage, "cut.safetensors",
        "A part could not be read, so it was not scanned. The text begins with the code of the reader's error."),
    unchecked("left-out", Topic::Coverage, "compound.h5",
        "A part is not supported, so it was not scanned. The text begins with the code of the reader's note."),
    unchecked("nested-too-deep", Topic::Coverage, "deep.zip",
        "Nested archives or pickles exceed the depth or size that `scan` follows."),
    unchecked("too-deep", Topic::Coverage, "folder:too_deep",
        "A folder is nested deeper than `scan` descends."),
    unchecked("link-to-folder", Topic::Coverage, "folder:link_to_folder",
        "A link to a folder was not followed."),
    unchecked("dead-link", Topic::Coverage, "folder:dead_link",
        "The target of a link does not exist or cannot be read."),
    unchecked("not-a-file", Topic::Coverage, "folder:not_a_file",
        "A pipe, socket or device was not scanned."),
    unchecked("no-files", Topic::Coverage, "folder:empty",
        "There is no file to scan."),
];

impl Rule {
    /// JSON object with `code`, `topic`, `category`, `severity`, `text` and `proof`.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "code": self.code,
            "topic": self.topic.as_str(),
            "category": self.category().as_str(),
            "severity": self.severity.as_str(),
            "text": self.what,
            "proof": self.proof,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_proofs_are_unique() {
        let mut codes: Vec<_> = RULES.iter().map(|rule| rule.code).collect();
        let mut proofs: Vec<_> = RULES.iter().map(|rule| rule.proof).collect();
        for list in [&mut codes, &mut proofs] {
            list.sort_unstable();
            assert!(list.windows(2).all(|pair| pair[0] != pair[1]));
        }
        assert!(RULES.iter().all(|rule| rule.what.ends_with('.')));
    }

    #[test]
    fn a_code_without_a_rule_is_never_clean() {
        assert_eq!(found("no-such-rule", "").severity, Severity::Unchecked);
        assert_eq!(found("dangerous-import", "").severity, Severity::Error);
    }
}
