//! Diagnosis of files that no format recognizes: their likely file type, for the hint of the error.
//!
//! Detection uses magic bytes, then the structure of the first bytes, then the file name. A wrong guess costs a misleading
//! hint only, so ambiguous beginnings are decided by frequency.

use weighbridge_core::error::{Error, Kind};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::{Job, Opt, Phrase};
use weighbridge_io::source::SourceRef;
use weighbridge_zip as zip;

/// Hint for a web page.
const WEB_PAGE: &str = "looks like a web page, not a model; the download probably returned an error page";

/// Magic bytes at the start of a file, with the hint for each file type.
const MAGIC: &[(&[u8], &str)] = &[
    (b"version https://git-lfs", "looks like a Git LFS pointer; run `git lfs pull` to fetch the file"),
    (ZIP, "looks like a zip archive, but not one of PyTorch, numpy or Keras"),
    (b"PK\x05\x06", "looks like an empty zip archive"),
    (b"\x1f\x8b", "looks like a file compressed with gzip; unpack it first"),
    (b"\xfd7zXZ", "looks like a file compressed with xz; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "looks like a file compressed with zstd; unpack it first"),
    (b"BZh", "looks like a file compressed with bzip2; unpack it first"),
    (b"GGUF", DAMAGED_GGUF),
    (b"{L\0\0\0\0", "looks like a UBJSON file, as XGBoost saves, which Weighbridge does not read"),
    (
        b"MATLAB 5.0 MAT-file",
        "looks like a MAT file of MATLAB; load it with scipy.io.loadmat and save the arrays as .npz",
    ),
    (b"SQLite format 3\0", "looks like an SQLite database, not a model"),
    (b"7z\xbc\xaf\x27\x1c", "looks like a 7z archive; unpack it first"),
    (b"Rar!\x1a\x07", "looks like a RAR archive; unpack it first"),
    (b"\x89PNG\r\n\x1a\n", "looks like a PNG image, not a model"),
    (b"%PDF-", "looks like a PDF document, not a model"),
    (b"\x12\x01\0\0\0\0\0\0", DAMAGED_MXNET),
    (b"<!DOCTYPE", WEB_PAGE),
    (b"<html", WEB_PAGE),
    (b"#!", "looks like a script, not a model"),
    (b"\x7fELF", "looks like a program (ELF), not a model"),
    (b"\xcf\xfa\xed\xfe", "looks like a program (Mach-O), not a model"),
];

/// Magic bytes of a zip archive with members.
const ZIP: &[u8] = b"PK\x03\x04";

/// Beginnings of pickles, by protocol.
const PICKLES: [&[u8]; 4] = [b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"];

/// Module of the array descriptions in a file of joblib.
const JOBLIB_MODULE: &[u8] = b"joblib.numpy_pickle";

/// Minimum bytes for the detection of random data.
const MIN_RANDOM_LEN: usize = 256;

/// Hint for parameters of MXNet that its format does not recognize.
const DAMAGED_MXNET: &str = "looks like an MXNet .params file, but is not a valid one; the file may be damaged, or this build does not include MXNet";
/// Hint for a model of ONNX that its format does not recognize.
const DAMAGED_ONNX: &str = "looks like an ONNX model, but is not a valid one; the file may be damaged, or this build does not include ONNX";

/// Hint for a GGUF model that its format does not recognize.
const DAMAGED_GGUF: &str = "looks like a GGUF model, but is not a valid one; the file may be damaged, or this build does not include GGUF";
/// Hint for a network of OpenVINO that its format does not recognize.
const DAMAGED_OPENVINO: &str = "looks like an OpenVINO model (XML), but is not a valid one; the file may be damaged, or this build does not include OpenVINO";
/// Hint for a model of Core ML that its format does not recognize.
const DAMAGED_CORE_ML: &str = "looks like a Core ML model, but is not a valid one; the file may be damaged, or this build does not include Core ML";
/// Hint for a network of ncnn that its format does not recognize.
const DAMAGED_NCNN: &str = "looks like a network of ncnn, but is not a valid one; the file may be damaged, or this build does not include ncnn";
/// Hint for weights of Darknet that its format does not recognize.
const DAMAGED_DARKNET: &str = "looks like Darknet weights, but is not a valid file; the file may be damaged, or this build does not include Darknet";
/// Hint for a model of TensorFlow Lite that its format does not recognize.
const DAMAGED_TFLITE: &str = "looks like a TFLite model, but is not a valid one; the file may be damaged, or this build does not include TFLite";
/// Hint for a file of TensorFlow that its format does not recognize.
const DAMAGED_TENSORFLOW: &str = "looks like a file of TensorFlow, but is not a valid one; the file may be damaged, or this build does not include TensorFlow";
/// Hint for a data file of TensorFlow.
const DATA_OF_TENSORFLOW: &str =
    "looks like the data of a TensorFlow checkpoint; open the .index file beside it, or the folder";

/// Plausible IR versions of ONNX: 3 is the first release of 2017.
const ONNX_VERSIONS: std::ops::RangeInclusive<u8> = 3..=32;

/// Hint for a model file of another library.
fn not_read(file_type: &str) -> Phrase {
    format!("looks like {file_type}, which Weighbridge does not read").into()
}

/// Returns true if all byte values are about equally frequent, as in encrypted or compressed data. The chi-squared statistic of
/// random bytes is about 255 with a standard deviation of 23. For text, code, numbers and base64 it is more than twice as large
/// from [`MIN_RANDOM_LEN`] bytes on, and grows with their number.
fn looks_random(bytes: &[u8]) -> bool {
    if bytes.len() < MIN_RANDOM_LEN {
        return false;
    }
    let mut counts = [0u64; 256];
    for &byte in bytes {
        counts[usize::from(byte)] += 1;
    }
    let len = bytes.len() as u64;
    let squares: u64 = counts.iter().map(|count| count * count).sum();
    (squares * 256 / len).saturating_sub(len) < 400 + len / 2
}

/// Returns the error for a file whose name states its type `what`, but whose bytes look random; `None` for other bytes.
pub fn encrypted(head: &[u8], source: &SourceRef, what: &str) -> Option<Error> {
    looks_random(head).then(|| {
        Error::unsupported("encrypted", format!("the file is not a {what}; its bytes look random"))
            .in_file(source.label())
            .at(0)
            .hint(
                "decrypt the file first if it is encrypted; Paddle's AES encryption leaves no marker, and compressed \
                 data looks the same",
            )
    })
}

/// Returns true if the beginning is that of another file type, so that the file extension must be wrong.
pub fn is_known(head: &[u8]) -> bool {
    MAGIC.iter().any(|(magic, _)| head.starts_with(magic)) || is_pickle(head) || head.starts_with(b"{")
}

/// Returns the error for an empty file, if its format has no empty files.
fn empty(source: &SourceRef) -> Error {
    Error::corrupt("empty-file", "the file is empty")
        .in_file(source.label())
        .hint("writing it may have failed; get another copy")
}

/// Replaces an error about the content of an empty file, so that all formats return the same one.
pub(crate) fn or_empty(error: Error, source: &SourceRef) -> Error {
    let about_bytes = matches!(error.kind(), Kind::Corrupt | Kind::Unsupported);
    if about_bytes && source.is_empty() { empty(source).at(0) } else { error }
}

/// Returns the error for a file that no format recognizes. Its hint names the likely file type.
pub fn explain(head: &[u8], source: &SourceRef) -> Error {
    if head.is_empty() {
        return empty(source);
    }
    let is_zip = head.starts_with(ZIP);
    if is_zip
        && let Err(error) = zip::read_directory(source, &Limits::default())
        && error.kind() == Kind::Unsupported
    {
        return error;
    }
    if is_zip && !zip::has_member(source, &Limits::default(), |_| true) {
        return Error::corrupt("truncated", "the zip archive is truncated: its directory is missing")
            .in_file(source.label())
            .hint("the copy or download may be incomplete; get the file again");
    }
    let shown = &head[..head.len().min(16)];
    Error::unsupported("unknown-format", "unrecognized format")
        .in_file(source.label())
        .at(0)
        .found(shown.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" "))
        .hint(hint(head, &FileName::of(source.label())))
}

/// Name of a file and its extension, in lower case.
struct FileName {
    name: String,
    extension: String,
}

impl FileName {
    fn of(label: &str) -> Self {
        let name = label.rsplit(['/', '\\']).next().unwrap_or_default().to_ascii_lowercase();
        let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_owned());
        Self { extension: extension.unwrap_or_default(), name }
    }

    fn has(&self, extension: &str) -> bool {
        self.extension == extension
    }
}

/// Returns the hint for an unrecognized file: its likely type, and the next step.
fn hint(head: &[u8], file: &FileName) -> Phrase {
    if head.starts_with(ZIP) && file.has("keras") {
        return "looks like a .keras archive without model.weights.h5, which Weighbridge does not read"
            .into();
    }
    if let Some((_, hint)) = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
        return (*hint).into();
    }
    by_structure(head, file)
        .or_else(|| by_name(head, file))
        .or_else(|| text(head, file))
        .unwrap_or_else(|| data(head))
}

/// Returns the hint for a binary file with a known structure.
fn by_structure(head: &[u8], file: &FileName) -> Option<Phrase> {
    if is_pickle(head) {
        return Some(pickle(head, file));
    }
    // A number follows the magic, so a table that begins with these letters is not meant.
    if (head.starts_with(b"lmgg") || head.starts_with(b"tjgg"))
        && head.get(4..8).is_some_and(|next| next.contains(&0))
    {
        return Some(not_read("a GGML file"));
    }
    if head.get(4..8) == Some(b"TFL3") {
        return Some(DAMAGED_TFLITE.into());
    }
    // The number that begins the text and the binary form of a network, and the text of a network of pnnx.
    let line = head.strip_prefix(b"7767517").unwrap_or_default();
    let is_text = line.starts_with(b"\n") || line.starts_with(b"\r\n");
    if is_text && is_pnnx(head) {
        return Some(
            "looks like a network of pnnx, which Weighbridge does not read; open the .ncnn.param file that pnnx writes with it"
                .into(),
        );
    }
    if is_text || head.starts_with(&7_767_517u32.to_le_bytes()) {
        return Some(DAMAGED_NCNN.into());
    }
    if head.get(257..262) == Some(b"ustar") {
        return Some("looks like a tar archive; unpack it first".into());
    }
    if head.starts_with(b"MZ") && head.contains(&0) {
        return Some("looks like a program (PE), not a model".into());
    }
    protobuf(head, file)
}

/// Returns true for the beginning of a network of pnnx, in a text that begins as a network of ncnn. The type of its first layer is in
/// a namespace, such as `pnnx.Input`, `nn.Conv2d` or `aten::mul`. ncnn has no namespaces.
pub fn is_pnnx(head: &[u8]) -> bool {
    let text = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let kind =
        text.split_whitespace().nth(3).filter(|kind| kind.starts_with(|c: char| c.is_ascii_alphabetic()));
    kind.is_some_and(|kind| kind.contains(['.', ':']))
}

/// Returns true for the beginning of a pickle of protocol 2 to 5.
fn is_pickle(head: &[u8]) -> bool {
    PICKLES.iter().any(|magic| head.starts_with(magic))
}

/// Returns the hint for a pickle.
fn pickle(head: &[u8], file: &FileName) -> Phrase {
    if file.has("joblib") || head.windows(JOBLIB_MODULE.len()).any(|window| window == JOBLIB_MODULE) {
        return joblib();
    }
    phrase![
        "looks like a Python pickle, but not one of PyTorch or Paddle; ",
        Job::Scan.call(),
        " shows what loading it would run"
    ]
}

fn joblib() -> Phrase {
    "looks like a file of joblib; load it with joblib and save the arrays as .npz".into()
}

/// Returns the hint for a model that is a protobuf message: ONNX, Core ML, or TensorFlow.
fn protobuf(head: &[u8], file: &FileName) -> Option<Phrase> {
    if is_onnx(head) {
        return Some(DAMAGED_ONNX.into());
    }
    // Field 1 is a version, field 2 a message that begins with its own field 1.
    if let [0x08, version @ 1..=32, 0x12, rest @ ..] = head
        && let Some((_, [0x0a, ..])) = varint(rest)
    {
        let of_core_ml = *version > 1 || file.has("mlmodel");
        return Some(if of_core_ml { DAMAGED_CORE_ML } else { DAMAGED_TENSORFLOW }.into());
    }
    is_graph_def(head).then(|| DAMAGED_TENSORFLOW.into())
}

/// Returns true for the beginning of an ONNX model. Field 1 is the IR version. It is followed by the name or the version of the
/// producer, by the graph, or by the operator sets.
fn is_onnx(head: &[u8]) -> bool {
    let [0x08, version, tag, rest @ ..] = head else { return false };
    ONNX_VERSIONS.contains(version)
        && match tag {
            // Producer name and version, domain: short texts. Core ML has a message as field 2.
            0x12 | 0x1a | 0x22 => is_short_text(rest),
            // Graph and operator sets: messages.
            0x3a | 0x42 => {
                varint(rest).is_some_and(|(len, message)| len == 0 || message.first() == Some(&0x0a))
            }
            _ => false,
        }
}

/// Returns true for the beginning of a TensorFlow graph: a node with its name and the name of its operator.
fn is_graph_def(head: &[u8]) -> bool {
    let Some(rest) = head.strip_prefix(&[0x0a]) else { return false };
    let Some((_, [0x0a, rest @ ..])) = varint(rest) else { return false };
    let Some((len, name)) = varint(rest).filter(|_| is_short_text(rest)) else { return false };
    let node = usize::try_from(len).ok().and_then(|len| name.get(len..));
    matches!(node, Some([0x12, operator @ ..]) if is_short_text(operator))
}

/// Returns true if a length-delimited field is a short text of printable ASCII characters.
fn is_short_text(field: &[u8]) -> bool {
    const MAX_LEN: u64 = 200;
    varint(field).is_some_and(|(len, rest)| {
        let text = usize::try_from(len.min(MAX_LEN + 1)).ok().and_then(|len| rest.get(..len));
        (1..=MAX_LEN).contains(&len)
            && text.is_some_and(|text| text.iter().all(|&b| (0x20..0x7f).contains(&b)))
    })
}

/// Reads a varint of protobuf; returns its value and the bytes after it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (place, &byte) in bytes.iter().enumerate().take(9) {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some((value, bytes.get(place + 1..)?));
        }
    }
    None
}

/// Returns the hint for a binary file whose name states its type.
fn by_name(head: &[u8], file: &FileName) -> Option<Phrase> {
    if as_text(head).is_some() {
        return None;
    }
    let is_shard = |suffix: &str| {
        suffix.split_once("-of-").is_some_and(|(number, count)| {
            [number, count].iter().all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        })
    };
    Some(match file.extension.as_str() {
        "onnx" => DAMAGED_ONNX.into(),
        "tflite" => DAMAGED_TFLITE.into(),
        "gguf" => DAMAGED_GGUF.into(),
        "mlmodel" => DAMAGED_CORE_ML.into(),
        "weights" => DAMAGED_DARKNET.into(),
        "joblib" => joblib(),
        "pb" | "index" => DAMAGED_TENSORFLOW.into(),
        extension if extension.strip_prefix("data-").is_some_and(is_shard) => DATA_OF_TENSORFLOW.into(),
        _ => return None,
    })
}

/// Returns the beginning of a file as text, if it is UTF-8 without control characters. The last character may be incomplete.
fn as_text(head: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(head.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    let printable = text.chars().all(|c| !c.is_control() || matches!(c, '\t' | '\r' | '\n' | '\u{c}'));
    (printable && !text.is_empty()).then_some(text)
}

/// Returns the hint for a text file.
fn text(head: &[u8], file: &FileName) -> Option<Phrase> {
    let text = as_text(head)?.trim_start_matches('\u{feff}').trim_start();
    let begins = |start: &str| text.get(..start.len()).is_some_and(|own| own.eq_ignore_ascii_case(start));
    if begins("<!doctype") || begins("<html") {
        return Some(WEB_PAGE.into());
    }
    if begins("<?xml") || begins("<net ") {
        // The root element of OpenVINO.
        let of_openvino = text.contains("<net ");
        return Some(match of_openvino {
            true => DAMAGED_OPENVINO.into(),
            false => "looks like XML text, not a model; the download may have returned an error".into(),
        });
    }
    if text.starts_with("model_checkpoint_path:") {
        return Some(DAMAGED_TENSORFLOW.into());
    }
    if is_json(text) {
        return Some(json(file));
    }
    if matches!(file.extension.as_str(), "py" | "sh" | "bat" | "ps1") {
        return Some("looks like a script, not a model".into());
    }
    let format = match file.extension.as_str() {
        "tsv" => Opt::From.with("tsv"),
        "vec" | "w2v" => Opt::From.with("word2vec"),
        _ => Opt::From.any("FORMAT"),
    };
    Some(phrase!["looks like text; if it is a table, name its format with ", format])
}

/// Returns true for text that begins as a JSON object or array.
fn is_json(text: &str) -> bool {
    let first = |text: &str| text.trim_start().chars().next();
    match text.strip_prefix('{') {
        Some(rest) => matches!(first(rest), Some('"' | '}')),
        // The tables of TOML begin with two brackets and a name.
        None => {
            let inner = text.trim_start_matches(|c: char| c == '[' || c.is_ascii_whitespace()).chars().next();
            text.starts_with('[')
                && inner.is_none_or(|c| matches!(c, '"' | '{' | ']' | '-') || c.is_ascii_digit())
        }
    }
}

/// Returns the hint for JSON text, by the name of the file.
fn json(file: &FileName) -> Phrase {
    match file.name.as_str() {
        "config.json" | "generation_config.json" | "adapter_config.json" | "preprocessor_config.json" => {
            "looks like the configuration of a model (JSON text); give the path of the weights or of their folder".into()
        }
        "tokenizer.json" | "tokenizer_config.json" | "special_tokens_map.json" | "vocab.json" | "added_tokens.json" => {
            "looks like a tokenizer (JSON text), not a model".into()
        }
        "package.json" | "package-lock.json" | "metadata.json" => {
            "looks like package metadata (JSON text), not a model".into()
        }
        _ => "looks like JSON text, not a model".into(),
    }
}

/// Returns the hint for binary data of an unknown type.
fn data(head: &[u8]) -> Phrase {
    if looks_random(head) {
        return "looks like random bytes; decrypt the file first if it is encrypted (Paddle's AES encryption leaves no \
                marker), or unpack it if it is compressed"
            .into();
    }
    if head.iter().all(|&b| b == 0) {
        return "the file begins with zeros only; it may be damaged or incomplete".into();
    }
    phrase!["no supported format matches; ", Opt::From.any("FORMAT"), " shows why a reader rejects the file"]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_io::source::MemorySource;

    fn hint(bytes: Vec<u8>) -> String {
        hint_of("m", &bytes)
    }

    fn hint_of(name: &str, bytes: &[u8]) -> String {
        let source: SourceRef = Arc::new(MemorySource::new(name, bytes.to_vec()));
        explain(bytes, &source).hint_text().unwrap().to_owned()
    }

    #[track_caller]
    fn assert_type(name: &str, bytes: &[u8], file_type: &str) {
        assert_eq!(
            hint_of(name, bytes),
            format!("looks like {file_type}, which Weighbridge does not read"),
            "{name}"
        );
    }

    /// Bytes of a small generator with random upper bits.
    fn random(count: usize) -> Vec<u8> {
        let mut state = 1u64;
        let step = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        };
        (0..count).map(step).collect()
    }

    #[test]
    fn the_error_names_the_fault_and_shows_the_first_bytes() {
        let source: SourceRef = Arc::new(MemorySource::new("m.gguf", b"GGUF\x03\0\0\0".to_vec()));
        let error = explain(b"GGUF\x03\0\0\0", &source);
        assert_eq!((error.code().as_str(), error.message()), ("unknown-format", "unrecognized format"));
        assert_eq!((error.file(), error.found_text()), (Some("m.gguf"), Some("47 47 55 46 03 00 00 00")));
    }

    #[test]
    fn detects_random_bytes() {
        for count in [256, 300, 1000, 4096] {
            assert!(hint(random(count)).contains("AES"), "{count}");
        }
        assert!(!hint(random(255)).contains("AES"), "too few bytes");
    }

    #[test]
    fn other_bytes_do_not_look_random() {
        let text = include_bytes!("unknown.rs");
        let base64 = random(4096).iter().map(|b| b'0' + (b & 63)).collect::<Vec<_>>();
        let floats = (0u16..1024).flat_map(|i| (f32::from(i).sin() * 0.1).to_le_bytes()).collect::<Vec<_>>();
        for bytes in [&text[..], &base64, &floats] {
            for count in [256, 300, 1000, 4096] {
                assert!(!hint(bytes[..count.min(bytes.len())].to_vec()).contains("AES"), "{count}");
            }
        }
    }

    #[test]
    fn detects_ggml_and_tflite_by_magic_bytes() {
        assert_eq!(hint_of("m", b"GGUF\x03\0\0\0"), DAMAGED_GGUF);
        assert_eq!(hint_of("m.gguf", b"\x01\x02\x03\x04"), DAMAGED_GGUF);
        assert_type("m", b"lmgg\0\0\0\0", "a GGML file");
        assert_type("m", b"{L\0\0\0\0\0\0\0\x02L", "a UBJSON file, as XGBoost saves");
        assert_eq!(hint_of("m", b"\x1c\0\0\0TFL3\x14\0\x20\0"), DAMAGED_TFLITE);
        assert_eq!(hint_of("m", b"\x12\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), DAMAGED_MXNET);
    }

    #[test]
    fn detects_onnx_by_its_first_fields() {
        let assert_onnx = |name: &str, bytes: &[u8]| assert_eq!(hint_of(name, bytes), DAMAGED_ONNX, "{name}");
        assert_onnx("m", b"\x08\x07\x12\x07pytorch\x1a\x051.9.0\x3a\xff\x01");
        assert_onnx("m", b"\x08\x0a\x3a\x80\x04\x0a\x10\x0a\x01x");
        assert_onnx("m", b"\x08\x06\x1a\x031.0\x3a\x20");
        assert_onnx("m.onnx", b"\x01\x02\x03\x04");
        assert!(!hint(b"\x08\x07\x12\x07\x01\x02\x03\x04\x05\x06\x07".to_vec()).contains("ONNX"));
        assert!(!hint(b"\x08\x00\x12\x07pytorch".to_vec()).contains("ONNX"));
    }

    #[test]
    fn detects_tensorflow_and_core_ml() {
        let damaged =
            |name: &str, bytes: &[u8]| assert_eq!(hint_of(name, bytes), DAMAGED_TENSORFLOW, "{name}");
        damaged("saved_model.pb", b"\x08\x01\x12\xa0\x8d\x06\x0a\x10\x0a\x08");
        damaged("saved_model.pb", b"\x01\x02\x03");
        damaged("m", b"\x0a\x1d\x0a\x05input\x12\x0bPlaceholder*\x0b");
        damaged("x/model.ckpt.index", b"\0\0\x02\x01");
        damaged("checkpoint", b"model_checkpoint_path: \"m\"\n");
        assert_eq!(hint_of("model.ckpt.data-00000-of-00001", b"\0\x01\x02"), DATA_OF_TENSORFLOW);
        let core_ml = |name: &str, bytes: &[u8]| assert_eq!(hint_of(name, bytes), DAMAGED_CORE_ML, "{name}");
        core_ml("m", b"\x08\x04\x12\x20\x0a\x10\x0a\x05image");
        core_ml("m.mlmodel", b"\x08\x01\x12\x20\x0a\x10\x0a\x05image");
        core_ml("m.mlmodel", b"\x01\x02\x03");
        assert!(!hint_of("model.data-x-of-y", b"\0\x01\x02").contains("TensorFlow"));
    }

    #[test]
    fn detects_ncnn() {
        assert_eq!(hint_of("m.param", b"7767517\n75 83\nInput data 0 1 data\n"), DAMAGED_NCNN);
        assert_eq!(hint_of("m.param.bin", b"\xdd\x85\x76\0\x4b\0\0\0"), DAMAGED_NCNN);
        let pnnx = b"7767517\n9 8\npnnx.Input  pnnx_input_0  0 1 0 #0=(1,4)f32\n";
        assert!(hint_of("m.pnnx.param", pnnx).starts_with("looks like a network of pnnx, which"));
        for first in ["nn.Conv2d", "F.relu", "aten::mul"] {
            let pnnx = format!("7767517\n2 2\n{first}  c  0 1 0 #0=(1,4)f32\nOther  d  0 1 d\n");
            assert!(hint_of("m.param", pnnx.as_bytes()).starts_with("looks like a network of pnnx, which"));
        }
        // pnnx leaves layers that ncnn does not have in the network of ncnn.
        let left = b"7767517\n2 2\nInput in0 0 1 in0\npnnx.Expression e 1 1 in0 out0\n";
        assert_eq!(hint_of("m.param", left), DAMAGED_NCNN);
    }

    #[test]
    fn detects_openvino_and_darknet() {
        let xml = "<?xml version=\"1.0\"?>\n<net name=\"m\" version=\"11\">";
        assert_eq!(hint_of("m.xml", xml.as_bytes()), DAMAGED_OPENVINO);
        assert_eq!(hint_of("yolov3.weights", b"\0\0\0\0\x02\0\0\0\0\0\0\0"), DAMAGED_DARKNET);
    }

    #[test]
    fn distinguishes_joblib_from_other_pickles() {
        let joblib = "looks like a file of joblib; load it with joblib and save the arrays as .npz";
        assert_eq!(hint(b"\x80\x04\x95\xa0\0\0\0\0\0\0\0\x8c\x13joblib.numpy_pickle\x94".to_vec()), joblib);
        assert_eq!(hint(b"\x80\x03cjoblib.numpy_pickle\nNumpyArrayWrapper\n".to_vec()), joblib);
        assert_eq!(hint_of("m.joblib", b"x\x9c\xed\xc1"), joblib);
        assert_eq!(hint_of("m.joblib", b"\x80\x04N."), joblib);
        for protocol in 2..=5 {
            let hint = hint(vec![0x80, protocol, b'N', b'.']);
            assert!(
                hint.starts_with("looks like a Python pickle, but not one of PyTorch or Paddle"),
                "{hint}"
            );
        }
    }

    #[test]
    fn detects_compressed_files_and_archives() {
        for (magic, name) in [
            (&b"\x1f\x8b\x08"[..], "gzip"),
            (b"\xfd7zXZ\0", "xz"),
            (b"\x28\xb5\x2f\xfd", "zstd"),
            (b"BZh9", "bzip2"),
        ] {
            assert_eq!(
                hint(magic.to_vec()),
                format!("looks like a file compressed with {name}; unpack it first")
            );
        }
        assert_eq!(hint(b"7z\xbc\xaf\x27\x1c\0\x04".to_vec()), "looks like a 7z archive; unpack it first");
        assert_eq!(hint(b"Rar!\x1a\x07\x01\0".to_vec()), "looks like a RAR archive; unpack it first");
        let mut tar = vec![0; 512];
        tar[..5].copy_from_slice(b"a.txt");
        tar[257..262].copy_from_slice(b"ustar");
        assert_eq!(hint(tar), "looks like a tar archive; unpack it first");
        assert_eq!(hint(b"PK\x05\x06".to_vec()), "looks like an empty zip archive");
        let zip = |name: &str| super::hint(b"PK\x03\x04", &FileName::of(name));
        assert_eq!(zip("m.zip"), "looks like a zip archive, but not one of PyTorch, numpy or Keras");
        assert!(zip("dir/M.KERAS").starts_with("looks like a .keras archive without model.weights.h5"));
        let source: SourceRef = Arc::new(MemorySource::new("m.zip", b"PK\x03\x04".to_vec()));
        assert_eq!(explain(b"PK\x03\x04", &source).code().as_str(), "truncated");
    }

    #[test]
    fn detects_pointers_pages_scripts_and_programs() {
        assert!(
            hint(b"version https://git-lfs.github.com/spec/v1\n".to_vec()).contains("run `git lfs pull`")
        );
        for page in ["<!DOCTYPE html>", "<html lang=\"en\">", "\n <!doctype html>", "<HTML>"] {
            assert_eq!(hint(page.into()), WEB_PAGE);
        }
        assert_eq!(hint(b"#!/bin/sh\n".to_vec()), "looks like a script, not a model");
        assert_eq!(hint_of("train.py", b"import torch\n"), "looks like a script, not a model");
        assert_eq!(hint(b"\x7fELF\x02\x01\x01\0".to_vec()), "looks like a program (ELF), not a model");
        assert_eq!(hint(b"MZ\x90\0\x03\0\0\0".to_vec()), "looks like a program (PE), not a model");
        assert_eq!(hint(b"\xcf\xfa\xed\xfe\x07".to_vec()), "looks like a program (Mach-O), not a model");
    }

    #[test]
    fn detects_json_xml_and_other_text() {
        assert_eq!(hint(b"{\"a\": 1}".to_vec()), "looks like JSON text, not a model");
        assert_eq!(hint(b" [\n  {\"a\": 1}]".to_vec()), "looks like JSON text, not a model");
        assert!(
            hint_of("x/config.json", b"{\"a\": 1}").starts_with("looks like the configuration of a model")
        );
        assert_eq!(
            hint_of("tokenizer.json", b"{\"a\": 1}"),
            "looks like a tokenizer (JSON text), not a model"
        );
        assert_eq!(hint_of("package.json", b"{}"), "looks like package metadata (JSON text), not a model");
        assert!(
            hint(b"<?xml version=\"1.0\"?><a/>".to_vec()).starts_with("looks like XML text, not a model; ")
        );
        for text in ["{a brace", "[in brackets]", "some words"] {
            assert!(hint(text.into()).starts_with("looks like text; if it is a table"), "{text}");
        }
    }

    #[test]
    fn other_data_has_a_hint_too() {
        assert!(hint(vec![0; 64]).starts_with("the file begins with zeros only"));
        assert!(hint(b"\x01\x02\x03".to_vec()).contains("`from FORMAT`"));
    }

    #[test]
    fn rejects_empty_files() {
        let source: SourceRef = Arc::new(MemorySource::new("m", Vec::new()));
        assert_eq!(explain(b"", &source).code().as_str(), "empty-file");
    }
}
