//! What honest writers of models import, and what is known to be dangerous.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::libraries;

/// What is thought of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportVerdict {
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
        modules: &["numpy.core.multiarray", "numpy._core.multiarray", "numpy.core._internal"],
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

/// Packages of which every name is dangerous, by what they do; separated by spaces.
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
        "runs code, or reaches anything",
    ),
    (
        "shutil tempfile glob fileinput tarfile zipfile gzip bz2 lzma zlib dbm mmap fcntl posixpath ntpath \
         mailbox netrc configparser ConfigParser filecmp stat fsspec h5py tables joblib",
        "reads or writes files",
    ),
    (
        "socket _socket ssl urllib urllib2 urlparse requests httplib httpx aiohttp webbrowser ftplib smtplib smtpd telnetlib \
         poplib imaplib nntplib socketserver SocketServer select selectors boto3 botocore huggingface_hub",
        "opens connections",
    ),
];

/// The packages of [`DANGEROUS`], and what each does: pickles with 500,000 calls look them up as often.
static PACKAGES: LazyLock<BTreeMap<&str, &str>> = LazyLock::new(|| {
    let mut packages = BTreeMap::new();
    for (names, text) in DANGEROUS {
        for name in names.split_whitespace() {
            packages.entry(name).or_insert(*text);
        }
    }
    packages
});

/// Modules within harmless packages of which every name is dangerous.
const DANGEROUS_MODULES: &[(&str, &str)] = &[
    ("test.support", "runs commands"),
    ("http.client", "opens connections"),
    ("http.server", "opens connections"),
    ("http.cookiejar", "opens connections"),
    ("numpy.f2py", "runs code"),
    ("numpy.distutils", "runs commands"),
    ("numpy.testing", "runs code"),
    ("numpy.ctypeslib", "loads libraries"),
    ("numpy.lib.npyio", "reads or writes files"),
    ("numpy.lib._npyio_impl", "reads or writes files"),
    ("numpy.lib.format", "reads or writes files"),
    ("pandas.io", "reads or writes files"),
    ("pandas.core.computation", "evaluates text"),
    ("pandas.eval", "evaluates text"),
    ("scipy.io", "reads or writes files"),
    ("scipy.weave", "runs code"),
    ("torch.hub", "runs code from elsewhere"),
    ("torch.jit", "loads code"),
    ("torch.package", "loads code"),
    ("torch.ops", "calls native code"),
    ("torch._ops", "calls native code"),
    ("torch.classes", "calls native code"),
    ("torch.fx", "makes code"),
    ("torch._dynamo", "makes code"),
    ("torch._inductor", "makes code"),
    ("torch.compiler", "makes code"),
    ("torch.distributed.rpc", "opens connections"),
    ("torch.distributed.elastic", "runs commands"),
    ("torch.multiprocessing", "runs code"),
    ("torch.utils.cpp_extension", "runs commands"),
    ("torch.utils.collect_env", "runs commands"),
    ("torch.utils.bottleneck", "runs code"),
    ("torch.utils._config_module", "loads another pickle"),
    ("torch.utils.model_zoo", "opens connections"),
    ("torch.utils.model_dump", "reads or writes files"),
    ("torch.testing", "runs code"),
    ("torch.onnx", "reads or writes files"),
    ("paddle.hub", "runs code from elsewhere"),
    ("paddle.utils.cpp_extension", "runs commands"),
    ("paddle.utils.download", "opens connections"),
    ("sklearn.datasets", "reads files or opens connections"),
    ("tensorflow.keras.utils", "reads files or opens connections"),
    ("keras.utils", "reads files or opens connections"),
    ("statsmodels.datasets", "opens connections"),
    ("statsmodels.iolib.smpickle", "loads another pickle"),
    ("patsy", "evaluates text"),
];

/// Names that run, load or reach something in whatever module they are, by their last part.
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

/// True for `numpy.memmap`, under its names of all times: a class of arrays of which a pickle has the elements. To call it
/// opens a file; numpy rebuilds one without doing so.
pub(super) fn is_mapped_array(module: &str, name: &str) -> bool {
    name == "memmap" && matches!(module, "numpy" | "numpy.core.memmap" | "numpy._core.memmap")
}

/// What is known of a name that is on the list of known imports.
fn harmless(module: &str, name: &str) -> Option<&'static str> {
    let group =
        || ALLOWED.iter().find(|group| group.modules.contains(&module) && group.names.contains(&name));
    libraries::known(module, name).map(libraries::Known::text).or_else(|| group().map(|group| group.text))
}

/// What is thought of importing `name` from `module`.
///
/// The names of both Pythons are known. A dotted name reaches into what it imports, so it is
/// unknown at best.
pub fn allowed(module: &str, name: &str) -> ImportVerdict {
    if matches!(module, "builtins" | "__builtin__") && name == "eval" {
        return ImportVerdict::Pattern(
            "harmless only as Paddle writes a tensor with LoD: eval(\"data\", {\"data\": array})",
        );
    }
    if is_mapped_array(module, name) {
        return ImportVerdict::Pattern(
            "harmless only as the class of an array that numpy rebuilds; called, it opens a file",
        );
    }
    match (module, name) {
        ("builtins" | "__builtin__", "getattr") => {
            return ImportVerdict::Pattern(
                "harmless only as Python writes time zones, and scipy an interpolation",
            );
        }
        ("builtins" | "__builtin__", "type") => {
            return ImportVerdict::Pattern("harmless only of a constant: type(None)");
        }
        ("functools", "partial") => {
            return ImportVerdict::Pattern("harmless only of a function that is listed itself");
        }
        ("torch.storage", "_load_from_bytes") => {
            return ImportVerdict::Pattern(
                "harmless only of a storage as PyTorch saves one; the pickles in it are judged",
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
    // A dotted name reaches into what it imports: methods of harmless classes need not be harmless.
    let reaches = name.split_once('.').is_some_and(|(first, _)| harmless(module, first).is_some());
    if reaches
        || name
            .split('.')
            .any(|part| DANGEROUS_ANYWHERE.contains(&part) || name.contains('.') && part.starts_with("__"))
    {
        return ImportVerdict::Dangerous("runs, loads or reaches something, by its name");
    }
    ImportVerdict::Unknown
}
