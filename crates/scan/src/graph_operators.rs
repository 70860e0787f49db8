//! Operators of TensorFlow with effects outside of a graph. Models of TensorFlow Lite may have them, too.

/// Operators that call a function of Python. The function is in the program that made the graph, not in the file.
const PYTHON: [&str; 4] = ["EagerPyFunc", "PyFunc", "PyFuncStateless", "NumpyFunction"];
/// Operators that read files or folders, beside those of checkpoints.
const READS: [&str; 26] = [
    "CSVDataset",
    "CSVDatasetV2",
    "FixedLengthRecordDataset",
    "FixedLengthRecordDatasetV2",
    "FixedLengthRecordReader",
    "FixedLengthRecordReaderV2",
    "GenerateVocabRemapping",
    "ImmutableConst",
    "InitializeTableFromTextFile",
    "InitializeTableFromTextFileV2",
    "LMDBDataset",
    "LMDBReader",
    "LoadAndRemapMatrix",
    "LoadDataset",
    "MatchingFiles",
    "MatchingFilesDataset",
    "ReadFile",
    "SqlDataset",
    "TFRecordDataset",
    "TFRecordDatasetV2",
    "TFRecordReader",
    "TFRecordReaderV2",
    "TextLineDataset",
    "TextLineReader",
    "TextLineReaderV2",
    "WholeFileReaderV2",
];
/// Operators that write files, beside those of checkpoints.
const WRITES: [&str; 9] = [
    "CreateSummaryFileWriter",
    "DatasetToTFRecord",
    "DumpTensor",
    "PrintV2",
    "SaveDataset",
    "SaveDatasetV2",
    "SnapshotDataset",
    "SnapshotDatasetV2",
    "WriteFile",
];
/// Operators that open network connections.
const NETWORK: [&str; 6] = [
    "DataServiceDataset",
    "DataServiceDatasetV2",
    "DataServiceDatasetV3",
    "DataServiceDatasetV4",
    "RpcClient",
    "RpcServer",
];

/// Returns the code of the finding for an operator that calls Python, opens connections, or reads or writes files.
pub fn graph_operator(kind: &str) -> Option<&'static str> {
    let plain = kind.strip_prefix("Experimental").unwrap_or(kind);
    Some(match plain {
        _ if PYTHON.contains(&plain) => "runs-python",
        _ if NETWORK.contains(&plain) => "network",
        _ if WRITES.contains(&plain) => "writes-files",
        _ if READS.contains(&plain) => "reads-files",
        _ => return None,
    })
}

/// Returns the effect of an operator with a code of [`graph_operator`], for the text of the finding.
pub fn graph_effect(code: &str) -> Option<&'static str> {
    Some(match code {
        "runs-python" => "calls a Python function of the program that runs the graph",
        "network" => "opens network connections when the graph is run",
        "writes-files" => "writes files when the graph is run",
        "reads-files" => "reads files when the graph is run",
        _ => return None,
    })
}
