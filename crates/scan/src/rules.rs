//! Every rule of `scan`: its code, how much it weighs, what it means, and the files that prove it.
//!
//! The list is closed. What the readers of formats say in codes of their own becomes `unreadable` or
//! `left-out` here, with that code in the text.

use weighbridge_core::finding::{Finding, Severity};

/// What a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Pickles: programs that Python runs while it loads them.
    Pickle,
    /// Archives: zip and tar.
    Archive,
    /// Names and paths that lead elsewhere.
    Path,
    /// HDF5 and Keras.
    Hdf5,
    /// Programs and configurations.
    Program,
    /// What a file is, and what it says that it is.
    Content,
    /// What was not looked at.
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

/// What follows from a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// Code runs, or may run, when the file is loaded or used.
    Code,
    /// Files are read or written, connections are opened.
    Files,
    /// Source code, class names or paths of the author are given away.
    Privacy,
    /// Programs differ in what the file is or holds.
    Deception,
    /// Loading takes any amount of memory or time.
    Resources,
    /// A part was not looked at.
    Unread,
    /// Nothing.
    Remark,
}

impl Category {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Code,
        Self::Files,
        Self::Privacy,
        Self::Deception,
        Self::Resources,
        Self::Unread,
        Self::Remark,
    ];

    /// The word in JSON, and of `--deny`.
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

    /// The category of that word.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == name)
    }

    /// The category of the findings of that code.
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
    /// Stable, for programs: the code of its findings and its id in SARIF.
    pub code: &'static str,
    /// What it is about.
    pub topic: Topic,
    /// How much a finding weighs.
    pub severity: Severity,
    /// What it means, in one or two sentences.
    pub what: &'static str,
    /// The crafted file in `testdata/scan/bad` that gives it.
    pub proof: &'static str,
}

impl Rule {
    /// All rules, topic by topic.
    pub const ALL: &'static [Rule] = RULES;

    /// What follows from a finding.
    pub fn category(&self) -> Category {
        Category::of(self.code)
    }

    /// The rule of that code.
    pub fn of(code: &str) -> Option<&'static Rule> {
        RULES.iter().find(|rule| rule.code == code)
    }
}

/// A finding of the rule `code`, as heavy as the rule says. A code without a rule is unchecked: so a slip
/// in this library never makes a file clean.
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
        "A pickle imports something that runs commands, makes code, opens connections or reaches anything."),
    unchecked("unknown-import", Topic::Pickle, "import_unknown.pkl",
        "A pickle imports something that is not on the allow list, and of which no effect is known. The text has its name."),
    error("computed-call", Topic::Pickle, "call_computed.pkl",
        "A pickle calls something that was computed while loading, so nobody can say what."),
    error("unusual-call", Topic::Pickle, "call_unusual.pkl",
        "A pickle calls something harmless as its own library does not: eval with other text, a codec that runs code, a size that fills the memory."),
    error("memo-far", Topic::Pickle, "memo_far.pkl",
        "A pickle uses its memo at a place beyond all that it could hold. Python makes the memo as long as that: ten bytes take gigabytes."),
    error("large-keys", Topic::Pickle, "large_keys.pkl",
        "Keys of a pickle's dicts and sets are tuples that hold each other, or are used, many times over: to hash them takes any time."),
    error("parts-multiply", Topic::Pickle, "parts_multiply.pdparams",
        "A parameter that Paddle puts together from parts has one of them twice, or parts that share their bytes: a megabyte becomes gigabytes."),
    unchecked("unfollowed-import", Topic::Pickle, "import_behind_break.pkl",
        "Behind a place where the pickle breaks something is imported whose name could not be followed."),
    unchecked("extension", Topic::Pickle, "extension.pkl",
        "A pickle uses the extension registry of Python, which may name any class or function."),
    unchecked("pickle-breaks", Topic::Pickle, "breaks.pkl",
        "A pickle cannot be read to its end. Python runs what stands before the break; the rest is not known."),
    unchecked("frames-disagree", Topic::Pickle, "frames.pkl",
        "The frames of a pickle do not end where they should: the two machines of Python read it differently."),
    unchecked("trailing-bytes", Topic::Pickle, "trailing.pkl",
        "Bytes that are no pickle follow behind the end; nobody knows what they are for."),
    warning("another-pickle", Topic::Pickle, "two.pkl",
        "Another pickle follows behind the first. The framework may stop before it, others do not; it was judged as well."),
    warning("nested-pickle", Topic::Pickle, "nested.pkl",
        "Bytes within a pickle are a whole pickle themselves. It runs where somebody loads it; it was judged as well."),
    note("lod-eval", Topic::Pickle, "lod.pdparams",
        "builtins.eval stands exactly as Paddle writes a tensor with LoD, eval(\"data\", {\"data\": array}), which only gives the array back."),
    note("persistent-id", Topic::Pickle, "persistent.pkl",
        "A pickle refers to something beside it, as PyTorch does for its storages."),
    note("out-of-band", Topic::Pickle, "next_buffer.pkl",
        "A pickle takes buffers that must be handed over beside it."),
    note("odd-pickle", Topic::Pickle, "odd.pkl",
        "A pickle has instructions that no pickler of today writes; by themselves they do nothing."),
    note("more-findings", Topic::Pickle, "many.pkl",
        "There are more findings of a kind than are listed; what was left out weighs what its worst finding does."),

    error("zip-duplicate-name", Topic::Archive, "duplicate.zip",
        "Two members have one name: programs differ in which one they take."),
    error("zip-similar-names", Topic::Archive, "similar.zip",
        "Names of members differ only by case, by slashes or by dots and spaces at the end: on some systems they are one file."),
    error("zip-headers-differ", Topic::Archive, "headers_differ.zip",
        "The directory and a member's own header say different things: programs differ in which one they believe."),
    error("zip-end-records", Topic::Archive, "two_ends.zip",
        "The end records contradict each other or the directory: a wrong count, a second end record, a zip64 record that says otherwise."),
    error("zip-prepended", Topic::Archive, "prepended.zip",
        "Bytes stand before the archive: to another program the file is something else."),
    error("zip-appended", Topic::Archive, "appended.zip",
        "Bytes stand behind the end of the archive."),
    error("zip-overlap", Topic::Archive, "overlap.zip",
        "Members share bytes, as only bombs and tricks do."),
    error("zip-hidden-member", Topic::Archive, "hidden.zip",
        "There is a member that the directory does not name: programs that read on from the start see it."),
    error("zip-bomb", Topic::Archive, "bomb.zip",
        "Members claim to unpack to far more than such an archive can honestly hold. They were not unpacked."),
    error("zip-crc", Topic::Archive, "crc.zip",
        "The data of a member has another checksum than the archive says: some programs refuse it, others load it."),
    unchecked("zip-encrypted", Topic::Archive, "encrypted.zip",
        "A member is encrypted and was not looked at."),
    unchecked("zip-damaged", Topic::Archive, "damaged.zip",
        "The directory of the archive cannot be used. What local headers lead to was looked at, which need not be all."),
    unchecked("zip-gap", Topic::Archive, "gap.zip",
        "Bytes between members belong to none of them."),
    error("unsafe-member-name", Topic::Archive, "member_names.zip",
        "The name of a member leads out of the folder it would be unpacked in: absolute, with .., with a drive letter, with backslashes."),
    error("odd-member-name", Topic::Archive, "odd_names.zip",
        "The name of a member has control characters, NUL, or marks that turn the direction of text: people do not see what it is."),
    error("member-link", Topic::Archive, "link.zip",
        "A member is a link or a device: what is unpacked after it may land elsewhere."),
    error("tar-layout", Topic::Archive, "directory_with_data.tar",
        "Programs differ in where the next member of a tar archive begins: a directory or link with a length, a record that sets another length."),

    error("name-leads-out", Topic::Path, "traversal.index.json",
        "A name by which the framework opens or writes a file leads out of the folder of the model."),
    warning("path-like-name", Topic::Path, "tensor_names.safetensors",
        "The name of a tensor would lead out of the folder, were it written to a file of its own."),
    warning("link-leads-out", Topic::Path, "folder:link_out",
        "A file of the folder is a link to a file outside of it. What it leads to was looked at."),
    note("absolute-path", Topic::Path, "absolute/config.json",
        "A configuration names absolute paths of its author's machine."),

    error("hdf5-external-link", Topic::Hdf5, "external_link.h5",
        "A link leads to another file, which HDF5 opens by itself."),
    error("hdf5-external-storage", Topic::Hdf5, "external_storage.h5",
        "The elements of a dataset are read from other files, any that the reader may open."),
    error("hdf5-virtual", Topic::Hdf5, "virtual.h5",
        "A virtual dataset is made of datasets in other files."),
    error("hdf5-user-link", Topic::Hdf5, "user_link.h5",
        "A link of a kind that its maker defined: code that is registered for it runs."),
    unchecked("hdf5-plugin-filter", Topic::Hdf5, "plugin_filter.h5",
        "A dataset is packed with a filter for which HDF5 loads a plugin library. Its elements were not looked at."),
    note("hdf5-soft-link", Topic::Hdf5, "soft_link.h5",
        "A name leads to another path of the same file."),
    error("keras-lambda", Topic::Hdf5, "keras_lambda.h5",
        "A Keras model holds Python code that runs when the model is loaded or called: a Lambda layer."),
    error("keras-foreign-module", Topic::Hdf5, "keras_module.h5",
        "A Keras model names a class or function of a module that is not of Keras; it is imported when the model is loaded."),
    error("keras-loads", Topic::Hdf5, "saved_model.json",
        "A Keras model holds a layer that loads code or files: a module of torch, a saved model of TensorFlow, words from a path or an address."),
    unchecked("keras-unread", Topic::Hdf5, "keras_unread.h5",
        "The configuration of a Keras model could not be understood."),

    warning("source-code", Topic::Program, "source.pdmodel",
        "A program holds paths or lines of its author's source code. `weighbridge program --strip source` removes them."),
    warning("class-names", Topic::Program, "class_names.json",
        "A program holds the names of its author's classes."),
    error("writes-files", Topic::Program, "save.pdmodel",
        "An operator writes a file when the program is run."),
    error("runs-python", Topic::Program, "py_func.pdmodel",
        "An operator calls a Python function when the program is run."),
    error("network", Topic::Program, "network.pdmodel",
        "An operator talks to other machines when the program is run."),
    warning("reads-files", Topic::Program, "load.pdmodel",
        "An operator reads a file when the program is run."),
    error("torchscript-code", Topic::Program, "script.pt",
        "The archive holds TorchScript: code that runs when the model is used."),
    error("remote-code", Topic::Program, "remote_code/config.json",
        "A configuration names Python code that comes along with the model or is fetched (auto_map, custom_pipelines, attn_implementation), something dangerous to call (_target_, class_path, a tag of Python in YAML), or has a template that reaches into Python."),
    unchecked("names-callable", Topic::Program, "target.json",
        "A configuration names something that is to be imported and called (_target_, class_path, a tag of Python in YAML), of which nothing is known."),
    error("arrow-pickled-type", Topic::Program, "pickled_type.arrow",
        "A column has a type that is described by a pickle (arrow.py_extension_type)."),

    error("two-formats", Topic::Content, "safetensors_and_zip.safetensors",
        "The file is two formats at once: who looks at it and who loads it may see different things."),
    error("extension-differs", Topic::Content, "pickle.safetensors",
        "The name promises a format that holds no code, and the content is one that may."),
    note("name-of-a-pickle", Topic::Content, "safetensors.pt",
        "The name promises a pickle or an archive of torch, and the content is of another format: programs that go by the name unpickle it."),
    unchecked("program-file", Topic::Content, "program.bin",
        "The file is a program, a script or a page by its content or its name, and no model."),
    unchecked("unknown-content", Topic::Content, "noise.bin",
        "The content is of no format that is known here; it may be anything."),
    unchecked("opaque-bytes", Topic::Content, "opaque.h5",
        "Bytes without a type: their meaning is known to their writer only."),

    unchecked("archive-not-entered", Topic::Coverage, "packed.bin.gz",
        "The file is packed in a way that is not looked into."),
    unchecked("unreadable", Topic::Coverage, "cut.safetensors",
        "A part cannot be read, so it could not be looked through. The text begins with the reader's own code."),
    unchecked("left-out", Topic::Coverage, "compound.h5",
        "A part is read by nobody here, so it was not looked through. The text begins with the reader's own code."),
    unchecked("nested-too-deep", Topic::Coverage, "deep.zip",
        "Archives within archives go deeper, or hold more, than is looked through."),
    unchecked("too-deep", Topic::Coverage, "folder:too_deep",
        "A folder lies deeper than folders are looked through."),
    unchecked("link-to-folder", Topic::Coverage, "folder:link_to_folder",
        "A link to a folder was not followed."),
    unchecked("dead-link", Topic::Coverage, "folder:dead_link",
        "A link leads to nothing that can be read."),
    unchecked("not-a-file", Topic::Coverage, "folder:not_a_file",
        "A pipe, a socket or a device was not looked at."),
    unchecked("no-files", Topic::Coverage, "folder:empty",
        "There is no file to look through."),
];

impl Rule {
    /// `code`, `topic`, `category`, `severity`, `text`, `proof`.
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
    fn codes_and_proofs_stand_once() {
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
