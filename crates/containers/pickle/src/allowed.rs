//! Allow list and deny list of the imports in pickles.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::libraries;

/// Verdict on an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportVerdict {
    /// Harmless with any arguments; describes the import.
    Allowed(&'static str),
    /// Harmless in one exact pattern only, described here; the caller checks for that pattern.
    Pattern(&'static str),
    /// Runs code, or reaches files or the network; says how.
    Dangerous(&'static str),
    /// Defined by the archive around the pickle, not by Python; says how.
    Defined(&'static str),
    /// On neither list. The import alone may already run code.
    Unknown,
}

impl ImportVerdict {
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

    /// Description of the import; empty for [`ImportVerdict::Unknown`].
    pub fn text(self) -> &'static str {
        match self {
            Self::Allowed(text) | Self::Pattern(text) | Self::Dangerous(text) | Self::Defined(text) => text,
            Self::Unknown => "",
        }
    }
}

/// Names that a group of modules shares.
struct Group {
    modules: &'static [&'static str],
    names: &'static [&'static str],
    text: &'static str,
}

/// Allowed imports by producer: numpy, Python itself, Paddle, PyTorch.
const ALLOWED: &[Group] = &[
    Group {
        modules: &["numpy.core.multiarray", "numpy._core.multiarray", "numpy.core._internal"],
        names: &["_reconstruct", "scalar"],
        text: "a numpy array or scalar",
    },
    Group {
        modules: &["numpy.core.numeric", "numpy._core.numeric"],
        names: &["_frombuffer"],
        text: "a numpy array",
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
        text: "a numpy type",
    },
    Group {
        modules: &["numpy", "numpy.matrixlib.defmatrix", "numpy.rec", "numpy.core.records", "numpy.records"],
        names: &["matrix", "recarray", "record"],
        text: "a numpy array class",
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
        text: "a dtype that `ml_dtypes` adds to numpy",
    },
    Group { modules: &["_codecs"], names: &["encode"], text: "bytes in the encoding of protocol 2" },
    Group { modules: &["collections"], names: &["OrderedDict", "Counter", "defaultdict"], text: "a dict" },
    Group { modules: &["collections"], names: &["deque"], text: "a list" },
    // Types whose constructor and state only store their arguments. Types that do more are not listed.
    Group {
        modules: &["datetime"],
        names: &["date", "datetime", "time", "timedelta", "timezone"],
        text: "a time or date",
    },
    Group {
        modules: &["pathlib", "pathlib._local"],
        names: &["PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath"],
        text: "a path; loading does not open it",
    },
    Group { modules: &["argparse"], names: &["Namespace"], text: "command-line options" },
    Group { modules: &["uuid"], names: &["UUID"], text: "a UUID" },
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
        text: "a built-in Python type",
    },
    Group { modules: &["copyreg", "copy_reg"], names: &["_reconstructor"], text: "an object of a class" },
    Group {
        modules: &[
            "paddle.distributed.checkpoint.metadata",
            "paddle.distributed.flex_checkpoint.dcp.metadata",
        ],
        names: &["Metadata", "LocalTensorMetadata", "LocalTensorIndex"],
        text: "the metadata of a distributed Paddle checkpoint",
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
        text: "a PyTorch tensor",
    },
    // They call the function that the pickle names for the tensor; that function is judged at the call.
    Group {
        modules: &["torch._tensor"],
        names: &["_rebuild_from_type", "_rebuild_from_type_v2"],
        text: "a PyTorch tensor",
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
        text: "a PyTorch storage",
    },
    Group {
        modules: &["torch.storage"],
        names: &["UntypedStorage", "TypedStorage"],
        text: "a PyTorch storage",
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
        text: "a PyTorch type",
    },
    Group {
        modules: &["torch.nn.parameter"],
        names: &["Parameter", "Buffer", "UninitializedParameter"],
        text: "a PyTorch parameter",
    },
    Group { modules: &["torch.serialization"], names: &["_get_layout"], text: "a PyTorch layout" },
];

/// Packages whose names are all dangerous, separated by spaces, with their effect.
const DANGEROUS: &[(&str, &str)] = &[
    (
        "os posix nt subprocess commands pty popen2 platform _posixsubprocess multiprocessing concurrent asyncio signal _winapi \
         pexpect plumbum paramiko",
        "runs commands",
    ),
    (
        "sys importlib imp runpy code codeop types marshal pickle _pickle cPickle cloudpickle dill jsonpickle shelve copyreg copy_reg \
         builtins __builtin__ operator _operator functools _functools inspect gc weakref atexit timeit pdb bdb \
         cProfile profile trace doctest pydoc unittest pkgutil pkg_resources modulefinder zipimport zipapp compileall \
         py_compile lib2to3 idlelib ensurepip pip setuptools distutils wheel venv site sitecustomize turtle turtledemo \
         antigravity ast dis threading _thread thread sched traceback linecache codecs encodings _codecs \
         ctypes _ctypes cffi _cffi_backend numba cython pyximport IPython ipykernel notebook jupyter_core nbconvert \
         logging optparse cmd rlcompleter readline getpass tkinter Tkinter pytest _pytest nose hypothesis jinja2 mako yaml \
         sqlite3 _sqlite3 sqlalchemy xml xmlrpc html cgi cgitb wsgiref gdb",
        "can run arbitrary code",
    ),
    (
        "shutil tempfile glob fileinput tarfile zipfile gzip bz2 lzma zlib dbm mmap fcntl posixpath ntpath \
         mailbox netrc configparser ConfigParser filecmp stat fsspec h5py tables joblib",
        "reads or writes files",
    ),
    (
        "socket _socket ssl urllib urllib2 urlparse requests httplib httpx aiohttp webbrowser ftplib smtplib smtpd telnetlib \
         poplib imaplib nntplib socketserver SocketServer select selectors boto3 botocore huggingface_hub",
        "opens network connections",
    ),
];

/// The packages of [`DANGEROUS`] with their effects, as a map: a pickle with 500,000 calls causes as many lookups.
static PACKAGES: LazyLock<BTreeMap<&str, &str>> = LazyLock::new(|| {
    let mut packages = BTreeMap::new();
    for (names, text) in DANGEROUS {
        for name in names.split_whitespace() {
            packages.entry(name).or_insert(*text);
        }
    }
    packages
});

/// Modules of harmless packages whose names are all dangerous.
const DANGEROUS_MODULES: &[(&str, &str)] = &[
    ("test.support", "runs commands"),
    ("http.client", "opens network connections"),
    ("http.server", "opens network connections"),
    ("http.cookiejar", "opens network connections"),
    ("numpy.f2py", "runs code"),
    ("numpy.distutils", "runs commands"),
    ("numpy.testing", "runs code"),
    ("numpy.ctypeslib", "loads libraries"),
    ("numpy.lib.npyio", "reads or writes files"),
    ("numpy.lib._npyio_impl", "reads or writes files"),
    ("numpy.lib.format", "reads or writes files"),
    ("pandas.io", "reads or writes files"),
    ("pandas.core.computation", "evaluates text as code"),
    ("pandas.eval", "evaluates text as code"),
    ("scipy.io", "reads or writes files"),
    ("scipy.weave", "runs code"),
    ("torch.hub", "downloads and runs code"),
    ("torch.jit", "loads code"),
    ("torch.package", "loads code"),
    ("torch.ops", "calls native code"),
    ("torch._ops", "calls native code"),
    ("torch.classes", "calls native code"),
    ("torch.fx", "generates code"),
    ("torch._dynamo", "generates code"),
    ("torch._inductor", "generates code"),
    ("torch.compiler", "generates code"),
    ("torch.distributed.rpc", "opens network connections"),
    ("torch.distributed.elastic", "runs commands"),
    ("torch.multiprocessing", "runs code"),
    ("torch.utils.cpp_extension", "runs commands"),
    ("torch.utils.collect_env", "runs commands"),
    ("torch.utils.bottleneck", "runs code"),
    ("torch.utils._config_module", "loads another pickle"),
    ("torch.utils.model_zoo", "opens network connections"),
    ("torch.utils.model_dump", "reads or writes files"),
    ("torch.testing", "runs code"),
    ("torch.onnx", "reads or writes files"),
    ("paddle.hub", "downloads and runs code"),
    ("paddle.utils.cpp_extension", "runs commands"),
    ("paddle.utils.download", "opens network connections"),
    ("sklearn.datasets", "reads files or opens network connections"),
    ("tensorflow.keras.utils", "reads files or opens network connections"),
    ("keras.utils", "reads files or opens network connections"),
    ("statsmodels.datasets", "opens network connections"),
    ("statsmodels.iolib.smpickle", "loads another pickle"),
    ("patsy", "evaluates text as code"),
];

/// Names that are dangerous in every module, by any part of a dotted name.
const DANGEROUS_ANYWHERE: &[&str] = &[
    "eval",
    "exec",
    "execfile",
    "execWrapper",
    "system",
    "popen",
    "Popen",
    "call",
    "check_call",
    "check_output",
    "getoutput",
    "getstatusoutput",
    "spawn",
    "spawnl",
    "spawnv",
    "spawnve",
    "fork",
    "execv",
    "execve",
    "execl",
    "run",
    "run_module",
    "run_path",
    "run_code",
    "runcode",
    "runsource",
    "runstring",
    "compile",
    "FileIO",
    "import_module",
    "__import__",
    "_import_module",
    "open",
    "load",
    "loads",
    "load_module",
    "exec_module",
    "load_library",
    "LoadLibrary",
    "CDLL",
    "unlink",
    "remove",
    "rmtree",
    "getattr",
    "setattr",
    "delattr",
    "__getattribute__",
    "attrgetter",
    "methodcaller",
    "itemgetter",
    "read_pickle",
    "to_pickle",
    "urlopen",
    "urlretrieve",
    "fromfile",
    "tofile",
    "loadtxt",
    "savetxt",
    "genfromtxt",
    "memmap",
    "open_memmap",
    "save",
    "savez",
    "savez_compressed",
    "read_csv",
    "read_hdf",
    "myeval",
];

/// Returns true for `numpy.memmap` under all its historical names. A pickle holds the elements of such an array. A call of the
/// class opens a file; `_reconstruct` of numpy does not.
pub(super) fn is_mapped_array(module: &str, name: &str) -> bool {
    name == "memmap" && matches!(module, "numpy" | "numpy.core.memmap" | "numpy._core.memmap")
}

/// Description of a name on the allow list.
fn harmless(module: &str, name: &str) -> Option<&'static str> {
    let group =
        || ALLOWED.iter().find(|group| group.modules.contains(&module) && group.names.contains(&name));
    libraries::known(module, name).map(libraries::Known::text).or_else(|| group().map(|group| group.text))
}

/// Verdict on importing `name` from `module`.
///
/// The names of Python 2 and Python 3 are listed. A dotted name reaches attributes of the imported object, so its verdict is
/// at best unknown.
pub fn allowed(module: &str, name: &str) -> ImportVerdict {
    if matches!(module, "builtins" | "__builtin__") && name == "eval" {
        return ImportVerdict::Pattern(
            "runs Python code, unless it is eval(\"data\", {\"data\": array}), which Paddle writes for a tensor with LoD",
        );
    }
    if is_mapped_array(module, name) {
        return ImportVerdict::Pattern(
            "harmless only as the class of an array that numpy rebuilds; calling it opens a file",
        );
    }
    match (module, name) {
        ("builtins" | "__builtin__", "getattr") => {
            return ImportVerdict::Pattern(
                "harmless only in the form Python writes for time zones and scipy for interpolations",
            );
        }
        ("builtins" | "__builtin__", "type") => {
            return ImportVerdict::Pattern("harmless only with a constant, as in type(None)");
        }
        ("functools", "partial") => {
            return ImportVerdict::Pattern("harmless only around a function that is on the allow list");
        }
        ("torch.storage", "_load_from_bytes") => {
            return ImportVerdict::Pattern(
                "harmless only with a storage in the form PyTorch saves; its inner pickles are scanned too",
            );
        }
        _ => {}
    }
    if let Some(text) = harmless(module, name) {
        return ImportVerdict::Allowed(text);
    }
    let package = module.split('.').next().unwrap_or(module);
    // Exceptions of Python do nothing by themselves.
    let exception = matches!(module, "builtins" | "__builtin__" | "exceptions")
        && ["Error", "Exception", "Warning"].iter().any(|end| name.ends_with(end));
    if let Some(text) = PACKAGES.get(package)
        && !exception
    {
        return ImportVerdict::Dangerous(text);
    }
    let inside =
        |outer: &str| module.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    if let Some((_, text)) = DANGEROUS_MODULES.iter().find(|(outer, _)| inside(outer)) {
        return ImportVerdict::Dangerous(text);
    }
    // A dotted name reaches attributes of the imported object: methods of harmless classes need not be harmless.
    let reaches = name.split_once('.').is_some_and(|(first, _)| harmless(module, first).is_some());
    if reaches
        || name
            .split('.')
            .any(|part| DANGEROUS_ANYWHERE.contains(&part) || name.contains('.') && part.starts_with("__"))
    {
        return ImportVerdict::Dangerous("its name suggests that it runs code or loads files");
    }
    ImportVerdict::Unknown
}
