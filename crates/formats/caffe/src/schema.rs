//! Names of the fields of layers, by the numbers of binary files, and names of the blobs of layers.

use Kind::{Bool, Float, Int, Message, Text, Word};

/// Field of a message.
#[derive(Debug)]
pub(crate) struct Field(pub(crate) u32, pub(crate) &'static str, pub(crate) Kind);

/// Type of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Integer.
    Int,
    /// Boolean.
    Bool,
    /// 32-bit float.
    Float,
    /// Text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Message.
    Message(&'static [Field]),
}

static PHASES: [&str; 2] = ["TRAIN", "TEST"];
static ENGINES: [&str; 3] = ["DEFAULT", "CAFFE", "CUDNN"];

static FILLER: [Field; 8] = [
    Field(1, "type", Text),
    Field(2, "value", Float),
    Field(3, "min", Float),
    Field(4, "max", Float),
    Field(5, "mean", Float),
    Field(6, "std", Float),
    Field(7, "sparse", Int),
    Field(8, "variance_norm", Word(&["FAN_IN", "FAN_OUT", "AVERAGE"])),
];
static SHAPE: [Field; 1] = [Field(1, "dim", Int)];
static RULE: [Field; 5] = [
    Field(1, "phase", Word(&PHASES)),
    Field(2, "min_level", Int),
    Field(3, "max_level", Int),
    Field(4, "stage", Text),
    Field(5, "not_stage", Text),
];
static PARAM: [Field; 4] = [
    Field(1, "name", Text),
    Field(2, "share_mode", Word(&["STRICT", "PERMISSIVE"])),
    Field(3, "lr_mult", Float),
    Field(4, "decay_mult", Float),
];
static CONVOLUTION: [Field; 17] = [
    Field(1, "num_output", Int),
    Field(2, "bias_term", Bool),
    Field(3, "pad", Int),
    Field(4, "kernel_size", Int),
    Field(5, "group", Int),
    Field(6, "stride", Int),
    Field(7, "weight_filler", Message(&FILLER)),
    Field(8, "bias_filler", Message(&FILLER)),
    Field(9, "pad_h", Int),
    Field(10, "pad_w", Int),
    Field(11, "kernel_h", Int),
    Field(12, "kernel_w", Int),
    Field(13, "stride_h", Int),
    Field(14, "stride_w", Int),
    Field(15, "engine", Word(&ENGINES)),
    Field(16, "axis", Int),
    Field(18, "dilation", Int),
];
static INNER_PRODUCT: [Field; 6] = [
    Field(1, "num_output", Int),
    Field(2, "bias_term", Bool),
    Field(3, "weight_filler", Message(&FILLER)),
    Field(4, "bias_filler", Message(&FILLER)),
    Field(5, "axis", Int),
    Field(6, "transpose", Bool),
];
static POOLING: [Field; 12] = [
    Field(1, "pool", Word(&["MAX", "AVE", "STOCHASTIC"])),
    Field(2, "kernel_size", Int),
    Field(3, "stride", Int),
    Field(4, "pad", Int),
    Field(5, "kernel_h", Int),
    Field(6, "kernel_w", Int),
    Field(7, "stride_h", Int),
    Field(8, "stride_w", Int),
    Field(9, "pad_h", Int),
    Field(10, "pad_w", Int),
    Field(11, "engine", Word(&ENGINES)),
    Field(12, "global_pooling", Bool),
];
static BATCH_NORM: [Field; 3] =
    [Field(1, "use_global_stats", Bool), Field(2, "moving_average_fraction", Float), Field(3, "eps", Float)];
static SCALE: [Field; 5] = [
    Field(1, "axis", Int),
    Field(2, "num_axes", Int),
    Field(3, "filler", Message(&FILLER)),
    Field(4, "bias_term", Bool),
    Field(5, "bias_filler", Message(&FILLER)),
];
static PYTHON: [Field; 4] = [
    Field(1, "module", Text),
    Field(2, "layer", Text),
    Field(3, "param_str", Text),
    Field(4, "share_in_parallel", Bool),
];
static LRN: [Field; 6] = [
    Field(1, "local_size", Int),
    Field(2, "alpha", Float),
    Field(3, "beta", Float),
    Field(4, "norm_region", Word(&["ACROSS_CHANNELS", "WITHIN_CHANNEL"])),
    Field(5, "k", Float),
    Field(6, "engine", Word(&ENGINES)),
];
static ELTWISE: [Field; 3] = [
    Field(1, "operation", Word(&["PROD", "SUM", "MAX"])),
    Field(2, "coeff", Float),
    Field(3, "stable_prod_grad", Bool),
];
static CONCAT: [Field; 2] = [Field(1, "concat_dim", Int), Field(2, "axis", Int)];
static SLICE: [Field; 3] = [Field(1, "slice_dim", Int), Field(2, "slice_point", Int), Field(3, "axis", Int)];
static INPUT: [Field; 1] = [Field(1, "shape", Message(&SHAPE))];
static DROPOUT: [Field; 1] = [Field(1, "dropout_ratio", Float)];
static PRELU: [Field; 2] = [Field(1, "filler", Message(&FILLER)), Field(2, "channel_shared", Bool)];
static RECURRENT: [Field; 5] = [
    Field(1, "num_output", Int),
    Field(2, "weight_filler", Message(&FILLER)),
    Field(3, "bias_filler", Message(&FILLER)),
    Field(4, "debug_info", Bool),
    Field(5, "expose_hidden", Bool),
];
static EMBED: [Field; 5] = [
    Field(1, "num_output", Int),
    Field(2, "input_dim", Int),
    Field(3, "bias_term", Bool),
    Field(4, "weight_filler", Message(&FILLER)),
    Field(5, "bias_filler", Message(&FILLER)),
];
static BIAS: [Field; 3] =
    [Field(1, "axis", Int), Field(2, "num_axes", Int), Field(3, "filler", Message(&FILLER))];
static RELU: [Field; 2] = [Field(1, "negative_slope", Float), Field(2, "engine", Word(&ENGINES))];
static SOFTMAX: [Field; 2] = [Field(1, "engine", Word(&ENGINES)), Field(2, "axis", Int)];
static RESHAPE: [Field; 3] =
    [Field(1, "shape", Message(&SHAPE)), Field(2, "axis", Int), Field(3, "num_axes", Int)];
static FLATTEN: [Field; 2] = [Field(1, "axis", Int), Field(2, "end_axis", Int)];
static POWER: [Field; 3] = [Field(1, "power", Float), Field(2, "scale", Float), Field(3, "shift", Float)];
static DATA: [Field; 10] = [
    Field(1, "source", Text),
    Field(2, "scale", Float),
    Field(3, "mean_file", Text),
    Field(4, "batch_size", Int),
    Field(5, "crop_size", Int),
    Field(6, "mirror", Bool),
    Field(7, "rand_skip", Int),
    Field(8, "backend", Word(&["LEVELDB", "LMDB"])),
    Field(9, "force_encoded_color", Bool),
    Field(10, "prefetch", Int),
];

/// Fields of `LayerParameter`. Fields outside the list are shown by their number.
pub(crate) static LAYER: [Field; 29] = [
    Field(5, "loss_weight", Float),
    Field(6, "param", Message(&PARAM)),
    Field(8, "include", Message(&RULE)),
    Field(9, "exclude", Message(&RULE)),
    Field(10, "phase", Word(&PHASES)),
    Field(11, "propagate_down", Bool),
    Field(104, "concat_param", Message(&CONCAT)),
    Field(106, "convolution_param", Message(&CONVOLUTION)),
    Field(107, "data_param", Message(&DATA)),
    Field(108, "dropout_param", Message(&DROPOUT)),
    Field(110, "eltwise_param", Message(&ELTWISE)),
    Field(117, "inner_product_param", Message(&INNER_PRODUCT)),
    Field(118, "lrn_param", Message(&LRN)),
    Field(121, "pooling_param", Message(&POOLING)),
    Field(122, "power_param", Message(&POWER)),
    Field(123, "relu_param", Message(&RELU)),
    Field(125, "softmax_param", Message(&SOFTMAX)),
    Field(126, "slice_param", Message(&SLICE)),
    Field(130, "python_param", Message(&PYTHON)),
    Field(131, "prelu_param", Message(&PRELU)),
    Field(133, "reshape_param", Message(&RESHAPE)),
    Field(135, "flatten_param", Message(&FLATTEN)),
    Field(137, "embed_param", Message(&EMBED)),
    Field(139, "batch_norm_param", Message(&BATCH_NORM)),
    Field(141, "bias_param", Message(&BIAS)),
    Field(142, "scale_param", Message(&SCALE)),
    Field(143, "input_param", Message(&INPUT)),
    Field(145, "parameter_param", Message(&INPUT)),
    Field(146, "recurrent_param", Message(&RECURRENT)),
];
/// Fields of `V1LayerParameter`.
pub(crate) static V1_LAYER: [Field; 17] = [
    Field(7, "blobs_lr", Float),
    Field(8, "weight_decay", Float),
    Field(9, "concat_param", Message(&CONCAT)),
    Field(10, "convolution_param", Message(&CONVOLUTION)),
    Field(11, "data_param", Message(&DATA)),
    Field(12, "dropout_param", Message(&DROPOUT)),
    Field(17, "inner_product_param", Message(&INNER_PRODUCT)),
    Field(18, "lrn_param", Message(&LRN)),
    Field(19, "pooling_param", Message(&POOLING)),
    Field(21, "power_param", Message(&POWER)),
    Field(24, "eltwise_param", Message(&ELTWISE)),
    Field(30, "relu_param", Message(&RELU)),
    Field(31, "slice_param", Message(&SLICE)),
    Field(32, "include", Message(&RULE)),
    Field(33, "exclude", Message(&RULE)),
    Field(35, "loss_weight", Float),
    Field(1001, "param", Text),
];
/// Fields of `V0LayerParameter`.
pub(crate) static V0_LAYER: [Field; 18] = [
    Field(3, "num_output", Int),
    Field(4, "biasterm", Bool),
    Field(5, "weight_filler", Message(&FILLER)),
    Field(6, "bias_filler", Message(&FILLER)),
    Field(7, "pad", Int),
    Field(8, "kernelsize", Int),
    Field(9, "group", Int),
    Field(10, "stride", Int),
    Field(11, "pool", Word(&["MAX", "AVE", "STOCHASTIC"])),
    Field(12, "dropout_ratio", Float),
    Field(13, "local_size", Int),
    Field(14, "alpha", Float),
    Field(15, "beta", Float),
    Field(16, "source", Text),
    Field(19, "batchsize", Int),
    Field(22, "k", Float),
    Field(51, "blobs_lr", Float),
    Field(52, "weight_decay", Float),
];

/// Types of layers: their number in `V1LayerParameter`, their word there, and their present name.
static TYPES: [(i64, &str, &str); 40] = [
    (0, "NONE", ""),
    (1, "ACCURACY", "Accuracy"),
    (2, "BNLL", "BNLL"),
    (3, "CONCAT", "Concat"),
    (4, "CONVOLUTION", "Convolution"),
    (5, "DATA", "Data"),
    (6, "DROPOUT", "Dropout"),
    (7, "EUCLIDEAN_LOSS", "EuclideanLoss"),
    (8, "FLATTEN", "Flatten"),
    (9, "HDF5_DATA", "HDF5Data"),
    (10, "HDF5_OUTPUT", "HDF5Output"),
    (11, "IM2COL", "Im2col"),
    (12, "IMAGE_DATA", "ImageData"),
    (13, "INFOGAIN_LOSS", "InfogainLoss"),
    (14, "INNER_PRODUCT", "InnerProduct"),
    (15, "LRN", "LRN"),
    (16, "MULTINOMIAL_LOGISTIC_LOSS", "MultinomialLogisticLoss"),
    (17, "POOLING", "Pooling"),
    (18, "RELU", "ReLU"),
    (19, "SIGMOID", "Sigmoid"),
    (20, "SOFTMAX", "Softmax"),
    (21, "SOFTMAX_LOSS", "SoftmaxWithLoss"),
    (22, "SPLIT", "Split"),
    (23, "TANH", "TanH"),
    (24, "WINDOW_DATA", "WindowData"),
    (25, "ELTWISE", "Eltwise"),
    (26, "POWER", "Power"),
    (27, "SIGMOID_CROSS_ENTROPY_LOSS", "SigmoidCrossEntropyLoss"),
    (28, "HINGE_LOSS", "HingeLoss"),
    (29, "MEMORY_DATA", "MemoryData"),
    (30, "ARGMAX", "ArgMax"),
    (31, "THRESHOLD", "Threshold"),
    (32, "DUMMY_DATA", "DummyData"),
    (33, "SLICE", "Slice"),
    (34, "MVN", "MVN"),
    (35, "ABSVAL", "AbsVal"),
    (36, "SILENCE", "Silence"),
    (37, "CONTRASTIVE_LOSS", "ContrastiveLoss"),
    (38, "EXP", "Exp"),
    (39, "DECONVOLUTION", "Deconvolution"),
];
/// Types of layers in the oldest files, with their present names.
static OLD_TYPES: [(&str, &str); 12] = [
    ("accuracy", "Accuracy"),
    ("concat", "Concat"),
    ("conv", "Convolution"),
    ("data", "Data"),
    ("dropout", "Dropout"),
    ("flatten", "Flatten"),
    ("innerproduct", "InnerProduct"),
    ("lrn", "LRN"),
    ("pool", "Pooling"),
    ("relu", "ReLU"),
    ("softmax", "Softmax"),
    ("softmax_loss", "SoftmaxWithLoss"),
];

/// Returns the present name of a type of `V1LayerParameter`.
pub(crate) fn type_of_number(number: i64) -> Option<&'static str> {
    TYPES.iter().find(|(own, ..)| *own == number).map(|(_, _, name)| *name)
}

/// Returns the present name of the type of a layer in text: that of any version.
pub(crate) fn type_of_word(word: &str) -> &str {
    let upper = TYPES.iter().find(|(_, own, _)| *own == word && *own != "LRN").map(|(_, _, name)| *name);
    upper.or_else(|| OLD_TYPES.iter().find(|(own, _)| *own == word).map(|(_, name)| *name)).unwrap_or(word)
}

/// Returns the meanings of the blobs of a layer type; empty if unknown. `count` is the number of blobs.
pub(crate) fn blobs(kind: &str, count: usize) -> &'static [&'static str] {
    match (kind, count) {
        ("Convolution" | "Deconvolution" | "InnerProduct" | "Embed", _) => &["weight", "bias"],
        ("BatchNorm", _) => &["mean", "variance", "scale_factor"],
        ("Scale", _) => &["scale", "bias"],
        ("Bias", _) => &["bias"],
        ("PReLU", _) => &["slope"],
        ("LSTM", 3) => &["W_xc", "b_c", "W_hc"],
        ("RNN", 5) => &["W_xh", "b_h", "W_hh", "W_ho", "b_o"],
        _ => &[],
    }
}
