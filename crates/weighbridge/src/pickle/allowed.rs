//! What honest writers of models import, and what is known to be dangerous.

/// What is thought of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Harmless, whatever its arguments are; says what it is.
    Allowed(&'static str),
    /// Harmless in one exact pattern only, which must be looked for; says which.
    Pattern(&'static str),
    /// Known to run code or to reach outside; says how.
    Dangerous(&'static str),
    /// Nothing of Python: what holds the pickle defines it; says how.
    Defined(&'static str),
    /// Not known here. Importing it may already run code.
    Unknown,
}

impl Judgement {
    /// `allowed`, `pattern`, `dangerous`, `defined` or `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed(_) => "allowed",
            Self::Pattern(_) => "pattern",
            Self::Dangerous(_) => "dangerous",
            Self::Defined(_) => "defined",
            Self::Unknown => "unknown",
        }
    }

    /// What is known of it; empty for the unknown.
    pub fn text(self) -> &'static str {
        match self {
            Self::Allowed(text) | Self::Pattern(text) | Self::Dangerous(text) | Self::Defined(text) => text,
            Self::Unknown => "",
        }
    }
}

/// Names of one group of modules.
struct Group {
    modules: &'static [&'static str],
    names: &'static [&'static str],
    text: &'static str,
}

/// By producer: numpy, Python itself, Paddle, PyTorch.
const ALLOWED: &[Group] = &[
    Group {
        modules: &["numpy.core.multiarray", "numpy._core.multiarray"],
        names: &["_reconstruct", "scalar"],
        text: "an array or scalar of numpy",
    },
    Group {
        modules: &["numpy.core.numeric", "numpy._core.numeric"],
        names: &["_frombuffer"],
        text: "an array of numpy",
    },
    Group {
        modules: &["numpy"],
        names: &[
            "ndarray",
            "dtype",
            "bool_",
            "int8",
            "int16",
            "int32",
            "int64",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
            "float16",
            "float32",
            "float64",
            "complex64",
            "complex128",
        ],
        text: "a type of numpy",
    },
    Group {
        modules: &["numpy", "numpy.matrixlib.defmatrix", "numpy.rec", "numpy.core.records", "numpy.records"],
        names: &["matrix", "recarray", "record"],
        text: "a kind of array of numpy",
    },
    Group {
        modules: &["ml_dtypes"],
        names: &[
            "bfloat16",
            "float8_e4m3fn",
            "float8_e5m2",
            "float8_e8m0fnu",
            "float8_e4m3fnuz",
            "float8_e5m2fnuz",
        ],
        text: "a type that is added to numpy",
    },
    Group { modules: &["_codecs"], names: &["encode"], text: "bytes, as protocol 2 spells them" },
    Group { modules: &["collections"], names: &["OrderedDict", "Counter", "defaultdict"], text: "a dict" },
    Group { modules: &["collections"], names: &["deque"], text: "a list" },
    // Types whose making and state only keep what they are given. Such as do more are not here.
    Group {
        modules: &["datetime"],
        names: &["date", "datetime", "time", "timedelta", "timezone"],
        text: "a time or date",
    },
    Group {
        modules: &["pathlib", "pathlib._local"],
        names: &["PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath"],
        text: "a path, which is not opened",
    },
    Group { modules: &["argparse"], names: &["Namespace"], text: "options of a command line" },
    Group { modules: &["uuid"], names: &["UUID"], text: "a number" },
    Group {
        modules: &["builtins", "__builtin__"],
        names: &[
            "bytes",
            "bytearray",
            "tuple",
            "list",
            "dict",
            "set",
            "frozenset",
            "int",
            "long",
            "float",
            "bool",
            "str",
            "unicode",
            "complex",
            "slice",
            "range",
            "xrange",
            "object",
            "Ellipsis",
            "NotImplemented",
        ],
        text: "a plain type of Python",
    },
    Group { modules: &["copyreg", "copy_reg"], names: &["_reconstructor"], text: "an object of a class" },
    Group {
        modules: &[
            "paddle.distributed.checkpoint.metadata",
            "paddle.distributed.flex_checkpoint.dcp.metadata",
        ],
        names: &["Metadata", "LocalTensorMetadata", "LocalTensorIndex"],
        text: "the directory of a distributed Paddle checkpoint",
    },
    Group {
        modules: &["torch._utils"],
        names: &[
            "_rebuild_tensor",
            "_rebuild_tensor_v2",
            "_rebuild_tensor_v3",
            "_rebuild_parameter",
            "_rebuild_parameter_with_state",
            "_rebuild_sparse_tensor",
            "_rebuild_qtensor",
            "_rebuild_meta_tensor_no_storage",
            "_rebuild_device_tensor_from_numpy",
            "_rebuild_nested_tensor",
            "_rebuild_device_tensor_from_cpu_tensor",
        ],
        text: "a tensor of PyTorch",
    },
    // They call what the pickle imported to make the tensor: where it is called, that is judged.
    Group {
        modules: &["torch._tensor"],
        names: &["_rebuild_from_type", "_rebuild_from_type_v2"],
        text: "a tensor of PyTorch",
    },
    Group {
        modules: &["torch", "torch.cuda"],
        names: &[
            "FloatStorage",
            "DoubleStorage",
            "HalfStorage",
            "BFloat16Storage",
            "LongStorage",
            "IntStorage",
            "ShortStorage",
            "CharStorage",
            "ByteStorage",
            "BoolStorage",
            "ComplexFloatStorage",
            "ComplexDoubleStorage",
            "QInt8Storage",
            "QUInt8Storage",
            "QInt32Storage",
            "QUInt4x2Storage",
            "QUInt2x4Storage",
        ],
        text: "a storage of PyTorch",
    },
    Group {
        modules: &["torch.storage"],
        names: &["UntypedStorage", "TypedStorage"],
        text: "a storage of PyTorch",
    },
    Group {
        modules: &["torch"],
        names: &[
            "Size",
            "device",
            "Tensor",
            "bool",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
            "int8",
            "int16",
            "int32",
            "int64",
            "float16",
            "bfloat16",
            "float32",
            "float64",
            "half",
            "float",
            "double",
            "short",
            "int",
            "long",
            "complex32",
            "complex64",
            "complex128",
            "float8_e4m3fn",
            "float8_e5m2",
            "float8_e4m3fnuz",
            "float8_e5m2fnuz",
            "float8_e8m0fnu",
            "qint8",
            "quint8",
            "qint32",
            "quint4x2",
            "quint2x4",
            "per_tensor_affine",
            "per_channel_affine",
            "per_tensor_symmetric",
            "per_channel_symmetric",
            "per_channel_affine_float_qparams",
            "strided",
            "sparse_coo",
            "contiguous_format",
            "preserve_format",
        ],
        text: "a type of PyTorch",
    },
    Group {
        modules: &["torch.nn.parameter"],
        names: &["Parameter", "Buffer", "UninitializedParameter"],
        text: "a parameter of PyTorch",
    },
    Group { modules: &["torch.serialization"], names: &["_get_layout"], text: "a layout of PyTorch" },
];

/// Modules of which every name is dangerous; also those below them.
const DANGEROUS: &[(&str, &str)] = &[
    ("os", "runs commands and changes files"),
    ("posix", "runs commands and changes files"),
    ("nt", "runs commands and changes files"),
    ("subprocess", "runs commands"),
    ("commands", "runs commands"),
    ("pty", "runs commands"),
    ("sys", "changes the interpreter"),
    ("importlib", "imports anything"),
    ("runpy", "runs code"),
    ("code", "runs code"),
    ("types", "makes code"),
    ("marshal", "makes code"),
    ("ctypes", "calls native code"),
    ("pickle", "loads another pickle"),
    ("_pickle", "loads another pickle"),
    ("cPickle", "loads another pickle"),
    ("shutil", "changes files"),
    ("socket", "opens connections"),
    ("urllib", "opens connections"),
    ("requests", "opens connections"),
    ("httplib", "opens connections"),
    ("http", "opens connections"),
    ("webbrowser", "opens a browser"),
    ("operator", "reaches any attribute"),
    ("functools", "calls anything"),
    ("timeit", "runs code"),
    ("pdb", "runs code"),
    ("bdb", "runs code"),
];

/// Names of otherwise common modules that are dangerous.
const DANGEROUS_NAMES: &[(&[&str], &[&str], &str)] = &[
    (
        &["builtins", "__builtin__"],
        &[
            "exec",
            "execfile",
            "compile",
            "__import__",
            "open",
            "file",
            "input",
            "getattr",
            "setattr",
            "delattr",
            "globals",
            "locals",
            "vars",
            "apply",
            "map",
            "filter",
            "breakpoint",
        ],
        "runs code, or reaches anything",
    ),
    (&["torch.storage"], &["_load_from_bytes"], "loads another pickle"),
    (&["torch"], &["load"], "loads another pickle"),
    (&["torch.hub"], &["load"], "runs code from elsewhere"),
    (&["numpy.testing._private.utils"], &["runstring"], "runs code"),
];

/// True for `numpy.memmap`, under its names of all times: a class of arrays of which a pickle has the elements. To call it
/// opens a file; numpy rebuilds one without doing so.
pub(super) fn is_mapped_array(module: &str, name: &str) -> bool {
    name == "memmap" && matches!(module, "numpy" | "numpy.core.memmap" | "numpy._core.memmap")
}

/// What is thought of importing `name` from `module`.
///
/// The names of both Pythons are known. A dotted name reaches into what it imports, so it is
/// unknown at best.
pub fn allowed(module: &str, name: &str) -> Judgement {
    if matches!(module, "builtins" | "__builtin__") && name == "eval" {
        return Judgement::Pattern(
            "harmless only as Paddle writes a tensor with LoD: eval(\"data\", {\"data\": array})",
        );
    }
    if is_mapped_array(module, name) {
        return Judgement::Pattern(
            "harmless only as the class of an array that numpy rebuilds; called, it opens a file",
        );
    }
    let inside =
        |outer: &str| module.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    if let Some((_, text)) = DANGEROUS.iter().find(|(outer, _)| inside(outer)) {
        return Judgement::Dangerous(text);
    }
    let first = name.split('.').next().unwrap_or(name);
    if let Some((.., text)) =
        DANGEROUS_NAMES.iter().find(|(modules, names, _)| modules.contains(&module) && names.contains(&first))
    {
        return Judgement::Dangerous(text);
    }
    match ALLOWED.iter().find(|group| group.modules.contains(&module) && group.names.contains(&name)) {
        Some(group) => Judgement::Allowed(group.text),
        None => Judgement::Unknown,
    }
}
