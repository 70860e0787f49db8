//! Operators with external effects when the framework runs the program: files, Python, other machines.
//!
//! Operators that exchange tensors within an existing process group (`c_allreduce_sum`, `send_v2`) are not listed:
//! they do not open connections themselves.

use weighbridge_core::finding::{Finding, Severity};
use weighbridge_core::text::escape;
use weighbridge_core::topology::{AttributeValue, Operator, Topology};

/// Maximum number of operators listed for an effect; further ones are counted.
const MAX_SHOWN: usize = 10;
/// Maximum length of a shown path in characters.
const MAX_PATH_LEN: usize = 200;

/// Effect of an operator besides its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    WritesFiles,
    RunsPython,
    Network,
    ReadsFiles,
}

const EFFECTS: [Effect; 4] = [Effect::WritesFiles, Effect::RunsPython, Effect::Network, Effect::ReadsFiles];

const WRITERS: &[&str] = &["save", "save_combine", "recv_save"];

const PYTHON: &[&str] = &["py_func", "py_layer"];

const NETWORK: &[&str] = &[
    "c_comm_init",
    "c_comm_init_all",
    "c_comm_init_hccl",
    "c_comm_init_multitrainer",
    "c_gen_bkcl_id",
    "c_gen_hccl_id",
    "c_gen_nccl_id",
    "c_gen_xccl_id",
    "checkpoint_notify",
    "distributed_lookup_table",
    "distributed_push_sparse",
    "fetch_barrier",
    "fl_listen_and_serv",
    "gen_bkcl_id",
    "gen_hccl_id",
    "gen_nccl_id",
    "heter_listen_and_serv",
    "listen_and_serv",
    "prefetch",
    "pull_box_extended_sparse",
    "pull_box_sparse",
    "pull_gpups_sparse",
    "pull_sparse",
    "pull_sparse_v2",
    "push_box_extended_sparse",
    "push_box_sparse",
    "push_dense",
    "push_gpups_sparse",
    "push_sparse",
    "push_sparse_v2",
    "recv",
    "send",
    "send_and_recv",
    "send_barrier",
    "trainer_barrier",
];

/// Readers, besides those named `create_…_reader`.
const READERS: &[&str] = &["load", "load_combine", "open_files", "read_file", "sparse_tensor_load"];

/// Attributes that name a file, folder or machine.
const PLACES: &[&str] = &[
    "dir",
    "dirname",
    "endpoint",
    "endpoints",
    "epmap",
    "file_list",
    "file_names",
    "file_path",
    "filename",
    "path",
];

/// Returns a finding for every operator with an effect, the worst first. For each effect at most [`MAX_SHOWN`] are
/// listed, with the total number.
pub(super) fn effects(program: &Topology, label: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for effect in EFFECTS {
        let operators = || program.operators().filter(|op| Effect::of(&op.kind) == Some(effect));
        let finding = |text| Finding::new(effect.severity(), effect.code(), text).in_file(label);
        for operator in operators().take(MAX_SHOWN) {
            let text = format!("{} {}{}", escape(&operator.kind), effect.text(), place(operator));
            findings.push(finding(text));
        }
        let count = operators().count();
        if count > MAX_SHOWN {
            findings.push(finding(format!("{count} operators in total; {} not listed", count - MAX_SHOWN)));
        }
    }
    findings
}

impl Effect {
    /// Returns the effect of an operator type, in any dialect, in place or not.
    fn of(kind: &str) -> Option<Self> {
        let name = kind.rsplit_once('.').map_or(kind, |(_, name)| name);
        let name = name.strip_suffix('_').unwrap_or(name);
        let makes_reader = name.starts_with("create_") && name.ends_with("_reader");
        match () {
            () if WRITERS.contains(&name) => Some(Self::WritesFiles),
            () if PYTHON.contains(&name) => Some(Self::RunsPython),
            () if NETWORK.contains(&name) => Some(Self::Network),
            () if makes_reader || READERS.contains(&name) => Some(Self::ReadsFiles),
            () => None,
        }
    }

    fn code(self) -> &'static str {
        match self {
            Self::WritesFiles => "writes-files",
            Self::RunsPython => "runs-python",
            Self::Network => "network",
            Self::ReadsFiles => "reads-files",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::WritesFiles => "writes a file when the program is run",
            Self::RunsPython => "runs a Python function when the program is run",
            Self::Network => "connects to other machines when the program is run",
            Self::ReadsFiles => "reads a file when the program is run",
        }
    }

    fn severity(self) -> Severity {
        match self {
            Self::ReadsFiles => Severity::Warning,
            Self::WritesFiles | Self::RunsPython | Self::Network => Severity::Error,
        }
    }
}

/// Returns the target of the operator, as `: file_path "w"`. Duplicate attributes are all shown, because it is
/// undefined which one is used.
fn place(operator: &Operator) -> String {
    let mut text = String::new();
    for attribute in operator.attributes.iter().filter(|a| PLACES.contains(&a.name.as_str())).take(MAX_SHOWN)
    {
        let Some(place) = words(&attribute.value) else { continue };
        let start = if text.is_empty() { ": " } else { ", " };
        let cut: String = place.chars().take(MAX_PATH_LEN).collect();
        let more = if cut.len() < place.len() { "..." } else { "" };
        text.push_str(&format!("{start}{} \"{}{more}\"", attribute.name, escape(&cut)));
    }
    text
}

fn words(value: &AttributeValue) -> Option<String> {
    match value {
        AttributeValue::Text(text) | AttributeValue::Variable(text) => Some(text.clone()),
        AttributeValue::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        AttributeValue::List(list) => {
            let texts = list.iter().filter_map(|item| match item {
                AttributeValue::Text(text) => Some(text.as_str()),
                _ => None,
            });
            Some(texts.take(MAX_SHOWN).collect::<Vec<_>>().join(" "))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_core::topology::{Attribute, Block};

    fn program(blocks: Vec<Vec<Operator>>) -> Topology {
        let block = |operators| Block { operators, ..Block::default() };
        Topology {
            form: "program-desc",
            writer: None,
            bytes: Arc::new([]),
            blocks: blocks.into_iter().map(block).collect(),
            feeds: Vec::new(),
            fetches: Vec::new(),
            operator_versions: Vec::new(),
        }
    }

    fn op(kind: &str, attributes: &[(&str, AttributeValue)]) -> Operator {
        let attribute = |(name, value): &(&str, AttributeValue)| Attribute {
            name: (*name).to_owned(),
            kind: String::new(),
            value: value.clone(),
        };
        Operator {
            kind: kind.to_owned(),
            attributes: attributes.iter().map(attribute).collect(),
            ..Operator::default()
        }
    }

    fn text(text: &str) -> AttributeValue {
        AttributeValue::Text(text.to_owned())
    }

    #[test]
    fn classifies_operators_by_name() {
        for (kind, effect) in [
            ("save", Some(Effect::WritesFiles)),
            ("pd_op.save_combine", Some(Effect::WritesFiles)),
            ("pd_op.save_combine_", Some(Effect::WritesFiles)),
            ("py_func", Some(Effect::RunsPython)),
            ("pd_op.py_func", Some(Effect::RunsPython)),
            ("listen_and_serv", Some(Effect::Network)),
            ("c_gen_nccl_id", Some(Effect::Network)),
            ("load_combine", Some(Effect::ReadsFiles)),
            ("create_recordio_file_reader", Some(Effect::ReadsFiles)),
            ("conv2d", None),
            ("pd_op.full", None),
            ("builtin.parameter", None),
            ("c_allreduce_sum", None),
            ("saver", None),
            ("", None),
        ] {
            assert_eq!(Effect::of(kind), effect, "{kind}");
        }
    }

    #[test]
    fn lists_the_worst_effect_first_with_its_path() {
        let load = op("load", &[("file_path", text("w"))]);
        let duplicated = op("save", &[("file_path", text("harmless")), ("file_path", text("/etc/\u{1b}x"))]);
        let files = AttributeValue::List(vec![text("a"), text("b")]);
        let found = effects(
            &program(vec![vec![load, op("open_files", &[("file_names", files)])], vec![duplicated]]),
            "m",
        );
        let found_texts: Vec<_> =
            found.iter().map(|f| (f.severity, f.code.as_str(), f.text.as_str())).collect();
        let writes = "save writes a file when the program is run: \
                      file_path \"harmless\", file_path \"/etc/\\u{1b}x\"";
        assert_eq!(
            found_texts,
            [
                (Severity::Error, "writes-files", writes),
                (
                    Severity::Warning,
                    "reads-files",
                    "load reads a file when the program is run: file_path \"w\""
                ),
                (
                    Severity::Warning,
                    "reads-files",
                    "open_files reads a file when the program is run: file_names \"a b\""
                ),
            ]
        );
        assert!(found.iter().all(|f| f.file.as_deref() == Some("m")));
    }

    #[test]
    fn counts_many_operators_and_shortens_long_paths() {
        let long = "p".repeat(1000);
        let many = (0..1000).map(|_| op("save", &[("file_path", text(&long))])).collect();
        let found = effects(&program(vec![many]), "m");
        assert_eq!(found.len(), MAX_SHOWN + 1);
        assert!(found[0].text.len() < 300 && found[0].text.ends_with("p...\""), "{}", found[0].text);
        assert_eq!(found[MAX_SHOWN].text, "1000 operators in total; 990 not listed");
        assert!(effects(&program(vec![vec![op("relu", &[])]]), "m").is_empty());
    }
}
