//! Schema of `proto/paddle/framework.proto` as a table, for validation before decoding.

/// Message with its fields. Messages are not recursive, so a traversal of the table ends.
pub(super) struct Message {
    /// Name for error messages.
    pub(super) name: &'static str,
    /// Fields by ascending number.
    pub(super) fields: &'static [Field],
}

/// Field of a message.
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) required: bool,
    pub(super) bound: Bound,
}

/// Wire encoding of a field.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Varint.
    Varint,
    /// Four bytes.
    Fixed32,
    /// Eight bytes.
    Fixed64,
    /// Varints, single or packed.
    Varints,
    /// Four-byte values, single or packed.
    Fixed32s,
    /// Eight-byte values, single or packed.
    Fixed64s,
    /// Length-prefixed bytes.
    Bytes,
    /// Length-prefixed message.
    Message(&'static Message),
}

/// Limit that applies to a field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    None,
    /// Length of a name.
    Name,
    /// Number of variables.
    Variable,
    /// Number of dimensions.
    Dimension,
}

const fn field(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, required: false, bound: Bound::None }
}

const fn required(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, required: true, bound: Bound::None }
}

const fn bound(mut field: Field, bound: Bound) -> Field {
    field.bound = bound;
    field
}

use Kind::{Bytes, Fixed32, Fixed32s, Fixed64, Fixed64s, Varint, Varints};

static COMPLEX: Message =
    Message { name: "Complex", fields: &[required(1, "r", Fixed64), required(2, "i", Fixed64)] };

static SCALAR: Message = Message {
    name: "Scalar",
    fields: &[
        required(1, "type", Varint),
        field(2, "b", Varint),
        field(3, "i", Varint),
        field(4, "r", Fixed64),
        field(5, "c", Kind::Message(&COMPLEX)),
    ],
};

static OP_ATTR: Message = Message {
    name: "OpDesc.Attr",
    fields: &[
        required(1, "name", Bytes),
        required(2, "type", Varint),
        field(3, "i", Varint),
        field(4, "f", Fixed32),
        field(5, "s", Bytes),
        field(6, "ints", Varints),
        field(7, "floats", Fixed32s),
        field(8, "strings", Bytes),
        field(10, "b", Varint),
        field(11, "bools", Varints),
        field(12, "block_idx", Varint),
        field(13, "l", Varint),
        field(14, "blocks_idx", Varints),
        field(15, "longs", Varints),
        field(16, "float64s", Fixed64s),
        field(17, "var_name", Bytes),
        field(18, "vars_name", Bytes),
        field(19, "float64", Fixed64),
        field(20, "scalar", Kind::Message(&SCALAR)),
        field(21, "scalars", Kind::Message(&SCALAR)),
    ],
};

static OP_VAR: Message = Message {
    name: "OpDesc.Var",
    fields: &[required(1, "parameter", Bytes), bound(field(2, "arguments", Bytes), Bound::Name)],
};

static OP: Message = Message {
    name: "OpDesc",
    fields: &[
        field(1, "inputs", Kind::Message(&OP_VAR)),
        field(2, "outputs", Kind::Message(&OP_VAR)),
        bound(required(3, "type", Bytes), Bound::Name),
        field(4, "attrs", Kind::Message(&OP_ATTR)),
        field(5, "is_target", Varint),
    ],
};

static TENSOR: Message = Message {
    name: "VarType.TensorDesc",
    fields: &[required(1, "data_type", Varint), bound(field(2, "dims", Varints), Bound::Dimension)],
};

static LOD_TENSOR: Message = Message {
    name: "VarType.LoDTensorDesc",
    fields: &[required(1, "tensor", Kind::Message(&TENSOR)), field(2, "lod_level", Varint)],
};

static READER: Message =
    Message { name: "VarType.ReaderDesc", fields: &[field(1, "lod_tensor", Kind::Message(&LOD_TENSOR))] };

static TUPLE: Message = Message { name: "VarType.Tuple", fields: &[field(1, "element_type", Varints)] };

static VAR_TYPE: Message = Message {
    name: "VarType",
    fields: &[
        required(1, "type", Varint),
        field(2, "selected_rows", Kind::Message(&TENSOR)),
        field(3, "lod_tensor", Kind::Message(&LOD_TENSOR)),
        field(4, "tensor_array", Kind::Message(&LOD_TENSOR)),
        field(5, "reader", Kind::Message(&READER)),
        field(7, "tuple", Kind::Message(&TUPLE)),
        field(8, "string", Kind::Message(&TENSOR)),
        field(9, "strings", Kind::Message(&TENSOR)),
        field(10, "vocab", Kind::Message(&TENSOR)),
        field(11, "sparse_coo", Kind::Message(&TENSOR)),
        field(12, "sparse_csr", Kind::Message(&TENSOR)),
    ],
};

static VAR_ATTR: Message = Message {
    name: "VarDesc.Attr",
    fields: &[
        required(1, "name", Bytes),
        required(2, "type", Varint),
        field(3, "i", Varint),
        field(4, "s", Bytes),
        field(5, "ints", Varints),
    ],
};

static VAR: Message = Message {
    name: "VarDesc",
    fields: &[
        bound(required(1, "name", Bytes), Bound::Name),
        required(2, "type", Kind::Message(&VAR_TYPE)),
        field(3, "persistable", Varint),
        field(4, "need_check_feed", Varint),
        field(5, "is_parameter", Varint),
        field(6, "stop_gradient", Varint),
        field(7, "attrs", Kind::Message(&VAR_ATTR)),
    ],
};

pub(super) static BLOCK: Message = Message {
    name: "BlockDesc",
    fields: &[
        required(1, "idx", Varint),
        required(2, "parent_idx", Varint),
        bound(field(3, "vars", Kind::Message(&VAR)), Bound::Variable),
        field(4, "ops", Kind::Message(&OP)),
        field(5, "forward_block_idx", Varint),
    ],
};

static COMPATIBLE_INFO: Message =
    Message { name: "CompatibleInfo", fields: &[required(1, "version", Bytes), required(2, "type", Varint)] };

static COMPATIBLE_PAIR: Message = Message {
    name: "OpCompatiblePair",
    fields: &[required(1, "op_name", Bytes), required(2, "compatible_info", Kind::Message(&COMPATIBLE_INFO))],
};

static COMPATIBLE_MAP: Message = Message {
    name: "OpCompatibleMap",
    fields: &[field(1, "pair", Kind::Message(&COMPATIBLE_PAIR)), field(2, "default_required_version", Bytes)],
};

static VERSION: Message = Message { name: "Version", fields: &[field(1, "version", Varint)] };

static OP_VERSION: Message = Message { name: "OpVersion", fields: &[required(1, "version", Varint)] };

static VERSION_PAIR: Message = Message {
    name: "OpVersionPair",
    fields: &[required(1, "op_name", Bytes), required(2, "op_version", Kind::Message(&OP_VERSION))],
};

static VERSION_MAP: Message =
    Message { name: "OpVersionMap", fields: &[field(1, "pair", Kind::Message(&VERSION_PAIR))] };

/// Whole file.
pub(super) static PROGRAM: Message = Message {
    name: "ProgramDesc",
    fields: &[
        field(1, "blocks", Kind::Message(&BLOCK)),
        field(3, "op_compatible_map", Kind::Message(&COMPATIBLE_MAP)),
        field(4, "version", Kind::Message(&VERSION)),
        field(5, "op_version_map", Kind::Message(&VERSION_MAP)),
    ],
};
