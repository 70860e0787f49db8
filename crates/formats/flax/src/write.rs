//! Writer: checkpoint to the plan of one file.

use crate::keys::{ARRAYS, LEAVES, key_of, path_of};
use crate::tree::{CHUNK, CHUNKED, COMPLEX, IS_SCALAR, NDARRAY, SCALAR};
use crate::{ARRAY_KIND, SHARDED, TREE, dtypes, roles};
use std::collections::{HashMap, HashSet};
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Loss, Metadata, Name, Role, TensorEntry, TensorPath, Value, escape_text,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_core::tensor::{Endian, Order, Shape};
use weighbridge_format::PlanOptions;
use weighbridge_msgpack::{ARRAY, BIN, MAP, STR, put_ext, put_f32, put_f64, put_int, put_length, put_uint};

/// Maximum bytes of an array in one part, as in Flax; larger ones are split.
const MAX_CHUNK: u64 = 1 << 30;
/// Root of optimizer state from formats that attach it to parameters.
const OPT_STATE: &str = "opt_state";

/// Plans `checkpoint` as one file.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] for what the format cannot hold: `no-such-dtype`, `name-collision`, `too-many`;
/// [`weighbridge_core::Kind::Usage`] for an unknown kind.
pub(crate) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    let was_bare = (checkpoint.format, checkpoint.kind) == ("flax", ARRAY_KIND);
    let is_bare = match options.kind.as_deref() {
        // The extension of files says state_dict, also for a file of one array.
        None | Some(TREE) => was_bare && checkpoint.tensors.len() == 1 && checkpoint.metadata.is_empty(),
        Some(ARRAY_KIND) => true,
        Some(SHARDED) => {
            return Err(Error::usage("unknown-kind", "shards of Flax are read-only")
                .expected(TREE)
                .found(SHARDED));
        }
        Some(kind) => {
            let error = Error::usage("unknown-kind", "unknown kind of Flax file");
            return Err(error.expected(format_args!("{TREE} or {ARRAY_KIND}")).found(kind));
        }
    };
    let mut losses = checkpoint.left_behind();
    let mut file = FileBuilder::new("");
    if is_bare {
        let [tensor] = checkpoint.tensors.as_slice() else {
            return Err(Error::mismatch("not-one-tensor", "a file of this kind stores exactly one array")
                .expected("1")
                .found(checkpoint.tensors.len())
                .hint(phrase!["select one with ", Opt::Select, ", or write a tree of arrays"]));
        };
        put_tensor(&mut file, tensor, false)?;
    } else {
        let paths: Vec<TensorPath> = checkpoint.tensors.iter().map(written_path).collect();
        for (tensor, path) in
            checkpoint.tensors.iter().zip(&paths).filter(|(tensor, path)| tensor.path != **path)
        {
            let detail =
                format!("written as {}; only Weighbridge restores the name", escape_text(&path.to_text()));
            losses.push(Loss::new("renamed", tensor.name(), detail));
        }
        let index = index(checkpoint, &paths, options, &mut losses);
        let index = index.map(Value::Text);
        let tree = Tree::of(checkpoint, &paths, index.as_ref())?;
        tree.put(&mut file, 0, 0)?;
    }
    let kind = if is_bare { ARRAY_KIND } else { TREE };
    Ok(WritePlan { format: "flax", kind, files: vec![file.finish()], losses })
}

/// Returns the path of a tensor in the tree.
fn written_path(tensor: &TensorEntry) -> TensorPath {
    match &tensor.role {
        Role::OptimizerState { slot } => {
            let root = [Name::from(OPT_STATE), slot.clone()];
            root.into_iter().chain(tensor.path.parts().iter().cloned()).collect()
        }
        _ if tensor.path.parts().is_empty() => TensorPath::value(),
        _ => tensor.path.clone(),
    }
}

/// Returns the bridge index, if reading the tree alone would not restore the checkpoint.
fn index(
    checkpoint: &Checkpoint,
    paths: &[TensorPath],
    options: &PlanOptions,
    losses: &mut Vec<Loss>,
) -> Option<String> {
    let leaves: HashSet<&str> = leaves(&checkpoint.metadata).map(|leaf| leaf.key).collect();
    let held = |key: &str, _: &Value| [LEAVES, ARRAYS].contains(&key) || leaves.contains(key);
    let as_read = |(tensor, path): (&TensorEntry, &TensorPath)| {
        let mut attributes = tensor.attributes.clone();
        [IS_SCALAR, CHUNK].iter().for_each(|own| _ = attributes.remove(own));
        let same = attributes.is_empty() && !tensor.guessed && tensor.path == *path;
        (TensorEntry { path: path.clone(), attributes: Attributes::new(), ..tensor.clone() }, same)
    };
    let (bare, same): (Vec<TensorEntry>, Vec<bool>) =
        checkpoint.tensors.iter().zip(paths).map(as_read).unzip();
    let has_roles =
        roles::derived(&bare).iter().zip(&checkpoint.tensors).all(|(role, tensor)| *role == tensor.role);
    let is_origin = checkpoint.origin.as_ref().is_none_or(|origin| origin.format == "flax");
    let has_metadata = checkpoint.metadata.iter().all(|(key, value)| held(key, value));
    if has_roles && is_origin && has_metadata && same.into_iter().all(|same| same) {
        return None;
    }
    let names: Vec<String> = paths.iter().map(key_of).collect();
    options.own_entry(checkpoint.bridge_index_beside(&names, held), &checkpoint.label, losses)
}

/// Value of the metadata that belongs into the tree.
struct Leaf<'a> {
    key: &'a str,
    place: u64,
    value: &'a Value,
    ext: Option<i8>,
}

/// Returns the values that the reader found in a tree, in their order.
fn leaves(metadata: &Metadata) -> impl Iterator<Item = Leaf<'_>> {
    let places = match metadata.get(LEAVES) {
        Some(Value::Map(places)) => places.as_slice(),
        _ => &[],
    };
    places.iter().filter_map(|(key, place)| {
        let key = key.as_str()?;
        let value = metadata.get(key)?;
        let (place, ext) = match place {
            Value::U64(place) => (*place, None),
            Value::List(pair) => match pair.as_slice() {
                [Value::U64(place), Value::I64(ext)] => (*place, i8::try_from(*ext).ok()),
                _ => return None,
            },
            _ => return None,
        };
        Some(Leaf { key, place, value, ext })
    })
}

/// Tree of maps, in the order of insertion.
struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    places: HashMap<(usize, Name), usize>,
}

enum Node<'a> {
    Map { children: Vec<(Name, usize)>, is_array: bool },
    Tensor(&'a TensorEntry),
    Value(&'a Value, Option<i8>),
}

impl<'a> Tree<'a> {
    fn of(checkpoint: &'a Checkpoint, paths: &[TensorPath], index: Option<&'a Value>) -> Result<Self> {
        let root = Node::Map { children: Vec::new(), is_array: false };
        let mut tree = Self { nodes: vec![root], places: HashMap::new() };
        let mut values = leaves(&checkpoint.metadata).peekable();
        for (number, (tensor, path)) in checkpoint.tensors.iter().zip(paths).enumerate() {
            while let Some(leaf) = values.next_if(|leaf| leaf.place <= number as u64) {
                tree.add(&path_of(leaf.key), value_node(leaf.value, leaf.ext))?;
            }
            tree.add(path, Node::Tensor(tensor))?;
        }
        for leaf in values {
            tree.add(&path_of(leaf.key), value_node(leaf.value, leaf.ext))?;
        }
        if let Some(index) = index {
            tree.add(&TensorPath::new([Name::from(Metadata::INDEX_KEY)]), Node::Value(index, None))?;
        }
        if let Some(Value::List(arrays)) = checkpoint.metadata.get(ARRAYS) {
            for key in arrays {
                if let Value::Text(key) = key {
                    tree.make_array(&path_of(key));
                }
            }
        }
        Ok(tree)
    }

    fn add(&mut self, path: &TensorPath, node: Node<'a>) -> Result<()> {
        let collision = || {
            Error::mismatch("name-collision", "a name is both a tensor and the path of others, or duplicate")
                .on_tensor(path)
                .hint(phrase!["rename one of them with ", Opt::Rename])
        };
        Budget::check_depth(path.parts().len()).map_err(|e| e.on_tensor(path))?;
        let mut at = 0;
        let mut is_new = path.parts().is_empty();
        for part in path.parts() {
            let next = self.nodes.len();
            let Some(Node::Map { children, .. }) = self.nodes.get_mut(at) else { return Err(collision()) };
            at = *self.places.entry((at, part.clone())).or_insert(next);
            is_new = at == next;
            if is_new {
                children.push((part.clone(), at));
                self.nodes.push(Node::Map { children: Vec::new(), is_array: false });
            }
        }
        match (&node, self.nodes.get_mut(at)) {
            // An empty map may contain tensors by now.
            (Node::Map { .. }, Some(Node::Map { .. })) => Ok(()),
            (_, Some(place)) if is_new => {
                *place = node;
                Ok(())
            }
            _ => Err(collision()),
        }
    }

    /// Marks a map as an array, if its keys still are the numbers from 0 in order.
    fn make_array(&mut self, path: &TensorPath) {
        let mut at = 0;
        for part in path.parts() {
            match self.places.get(&(at, part.clone())) {
                Some(&next) => at = next,
                None => return,
            }
        }
        if let Some(Node::Map { children, is_array }) = self.nodes.get_mut(at) {
            let mut keys = children.iter().enumerate();
            *is_array = keys.all(|(number, (key, _))| key.as_bytes() == number.to_string().as_bytes());
        }
    }

    /// Appends a node. The depth is bounded by that of the paths.
    fn put(&self, file: &mut FileBuilder, at: usize, depth: usize) -> Result<()> {
        match self.nodes.get(at) {
            Some(Node::Map { children, is_array }) => {
                let len = count("names in a map", children.len())?;
                let mut head = Vec::with_capacity(5);
                put_length(&mut head, if *is_array { ARRAY } else { MAP }, len);
                file.literal(head);
                for (key, child) in children {
                    if !is_array {
                        let mut head = Vec::new();
                        put_text(&mut head, key.as_bytes())?;
                        file.literal(head);
                    }
                    self.put(file, *child, depth + 1)?;
                }
                Ok(())
            }
            Some(Node::Tensor(tensor)) => put_tensor(file, tensor, depth > 0),
            Some(Node::Value(value, ext)) => {
                let mut out = Vec::new();
                put_leaf(&mut out, value, *ext)?;
                file.literal(out);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn value_node(value: &Value, ext: Option<i8>) -> Node<'_> {
    match value {
        Value::Map(pairs) if pairs.is_empty() => Node::Map { children: Vec::new(), is_array: false },
        _ => Node::Value(value, ext),
    }
}

/// Appends an array: as one extension, or in parts if it is large and below a map.
fn put_tensor(file: &mut FileBuilder, tensor: &TensorEntry, may_split: bool) -> Result<()> {
    let dtype = tensor.dtype();
    let Some(name) = dtypes::name_of(dtype) else {
        return Err(Error::mismatch("no-such-dtype", format!("numpy has no dtype {dtype}"))
            .on_tensor(tensor.name())
            .hint(phrase![
                "cast the tensor with ",
                Opt::Cast,
                ", or exclude it with ",
                Opt::Drop.with(tensor.name())
            ]));
    };
    let size = dtype.size().unwrap_or(1) as u64;
    let stated = match tensor.attributes.get(CHUNK) {
        Some(Value::U64(elements)) if *elements > 0 => Some(*elements),
        _ => None,
    };
    let most = stated.unwrap_or((MAX_CHUNK / size).max(1));
    if !may_split || (stated.is_none() && tensor.bytes() <= MAX_CHUNK) {
        let is_scalar =
            tensor.shape.rank() == 0 && tensor.attributes.get(IS_SCALAR) == Some(&Value::Bool(true));
        return put_array(file, tensor, tensor.shape.dims(), name, if is_scalar { SCALAR } else { NDARRAY });
    }
    let mut head = Vec::new();
    put_length(&mut head, MAP, 3);
    put_text(&mut head, CHUNKED.as_bytes())?;
    head.push(0xc3);
    put_text(&mut head, b"shape")?;
    put_length(&mut head, MAP, count("dimensions", tensor.shape.rank())?);
    for (number, &dim) in tensor.shape.dims().iter().enumerate() {
        put_text(&mut head, number.to_string().as_bytes())?;
        put_uint(&mut head, dim);
    }
    put_text(&mut head, b"chunks")?;
    let parts = parts(tensor, most, size)?;
    put_length(&mut head, MAP, count("parts of an array", parts.len())?);
    for (number, part) in parts.iter().enumerate() {
        put_text(&mut head, number.to_string().as_bytes())?;
        file.literal(std::mem::take(&mut head));
        put_array(file, part, &[part.elements()], name, NDARRAY)?;
    }
    file.literal(head);
    Ok(())
}

/// Splits a tensor into parts of `most` elements, or of whole rows if its elements must be reordered or cast.
fn parts(tensor: &TensorEntry, most: u64, size: u64) -> Result<Vec<TensorEntry>> {
    let plain = tensor.single_extent().is_some_and(|extent| {
        (extent.encoding.order == Order::Row || tensor.shape.is_order_free())
            && (extent.encoding.endian == Endian::Little || tensor.stored.swap_unit() == 1)
    });
    let (flat, step) = match tensor.shape.dims() {
        _ if plain && tensor.cast.is_none() => {
            let flat =
                TensorEntry { shape: Shape::from([tensor.elements()]), row_names: None, ..tensor.clone() };
            (flat, most)
        }
        [_, rest @ ..] => {
            let row = rest.iter().product::<u64>().max(1);
            if row.saturating_mul(size) > u32::MAX.into() {
                return Err(too_large(tensor));
            }
            (tensor.clone(), (most / row).max(1))
        }
        [] => (tensor.clone(), 1),
    };
    let total = flat.shape.dims().first().copied().unwrap_or(1);
    if flat.shape.rank() == 0 || total == 0 {
        return Ok(vec![flat]);
    }
    (0..total.div_ceil(step)).map(|number| flat.rows(number * step..total.min((number + 1) * step))).collect()
}

/// Appends an array of shape `dims` as an extension.
fn put_array(file: &mut FileBuilder, tensor: &TensorEntry, dims: &[u64], name: &str, kind: i8) -> Result<()> {
    let mut inner = Vec::new();
    put_length(&mut inner, ARRAY, 3);
    put_length(&mut inner, ARRAY, count("dimensions", dims.len())?);
    dims.iter().for_each(|&dim| put_uint(&mut inner, dim));
    put_text(&mut inner, name.as_bytes())?;
    let bytes = u32::try_from(tensor.bytes()).map_err(|_| too_large(tensor))?;
    put_length(&mut inner, BIN, bytes);
    let len = bytes.checked_add(count("bytes of a header", inner.len())?).ok_or_else(|| too_large(tensor))?;
    let mut head = Vec::with_capacity(6 + inner.len());
    put_ext(&mut head, kind, len);
    head.append(&mut inner);
    file.literal(head);
    file.tensor(tensor, Order::Row)
}

fn too_large(tensor: &TensorEntry) -> Error {
    Error::mismatch("too-large", "MessagePack cannot store an array, or a row of one, of 4 GiB or more")
        .on_tensor(tensor.name())
        .found(format_args!("{} {}", tensor.dtype(), tensor.shape))
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) -> Result<()> {
    put_length(out, STR, count("bytes of a text", text.len())?);
    out.extend_from_slice(text);
    Ok(())
}

fn put_leaf(out: &mut Vec<u8>, value: &Value, ext: Option<i8>) -> Result<()> {
    match (ext, value) {
        (Some(COMPLEX), Value::List(parts)) if matches!(parts.as_slice(), [Value::F64(_), Value::F64(_)]) => {
            let mut inner = Vec::new();
            put_value(&mut inner, value)?;
            put_ext(out, COMPLEX, count("bytes of an extension", inner.len())?);
            out.append(&mut inner);
            Ok(())
        }
        (Some(kind), Value::Bytes(bytes)) => {
            put_ext(out, kind, count("bytes of an extension", bytes.len())?);
            out.extend_from_slice(bytes);
            Ok(())
        }
        _ => put_value(out, value),
    }
}

/// Appends a plain value. Its depth is bounded by that of its reader.
fn put_value(out: &mut Vec<u8>, value: &Value) -> Result<()> {
    match value {
        Value::Null => out.push(0xc0),
        Value::Bool(value) => out.push(if *value { 0xc3 } else { 0xc2 }),
        Value::I64(value) => put_int(out, *value),
        Value::U32(value) => put_uint(out, (*value).into()),
        Value::U64(value) => put_uint(out, *value),
        Value::F32(bits) => put_f32(out, *bits),
        Value::F64(bits) => put_f64(out, *bits),
        Value::Text(text) => put_text(out, text.as_bytes())?,
        Value::Bytes(bytes) => {
            put_length(out, BIN, count("bytes", bytes.len())?);
            out.extend_from_slice(bytes);
        }
        Value::List(values) => {
            put_length(out, ARRAY, count("items of a list", values.len())?);
            values.iter().try_for_each(|value| put_value(out, value))?;
        }
        Value::Map(pairs) => {
            put_length(out, MAP, count("names in a map", pairs.len())?);
            for (key, value) in pairs {
                put_text(out, key.as_bytes())?;
                put_value(out, value)?;
            }
        }
    }
    Ok(())
}

/// Converts a count to 32 bits.
fn count(what: &str, n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|_| {
        Error::mismatch("too-many", format!("the number of {what} exceeds 32 bits"))
            .expected("at most 4294967295")
            .found(n)
    })
}
