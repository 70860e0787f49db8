//! Call forms of numpy.

use super::snapshot::Snapshot;
use super::{called, count, ints, is_bytes, is_int, is_number};
use crate::allowed::is_mapped_array;
use crate::graph::{Graph, Object, ObjectId, Reduced};
use crate::numpy::bytes_of;
use std::collections::{HashMap, HashSet};

/// Maximum number of elements of an array before its state is set, and of an array with zero-size elements; picklers write 0.
const MAX_INITIAL_ELEMENTS: u64 = 1 << 10;
/// Flags of an object dtype, alone and as a field of a record.
const OBJECT: i64 = 63;
const OBJECT_FIELDS: i64 = 27;
/// Harmless flags: zero-initialised, converted by Python, aligned record. Object dtypes need the first two: otherwise old memory
/// would be read as object pointers.
const ALIGNED: i64 = 128;
const HARMLESS: i64 = 8 | 16 | ALIGNED;
/// Flags of user-defined dtypes, whose items have their own getter and setter.
const USER_DTYPE: i64 = 32 | 64;
/// Bytes of an object pointer. 32-bit systems write `O4`, which is read as this size.
const OBJECT_SIZE: u64 = 8;
/// Maximum size of an element in bytes: numpy 1 stores it in 32 bits with a sign.
const MAX_ELEMENT_SIZE: u64 = (1 << 31) - 1;
/// Range of flags: numpy writes a byte, numpy 1 a signed one.
const FLAGS: std::ops::RangeInclusive<i64> = -0x80..=0xff;

/// Returns true if the arguments have the form for that name.
pub(super) fn args_match(graph: Snapshot<'_>, name: &str, args: &[ObjectId]) -> bool {
    match (name, args) {
        // The shape of the array comes from its state.
        ("_reconstruct", &[class, shape, code]) => {
            let small =
                ints(graph, shape).and_then(|shape| count(&shape)).is_some_and(|n| n <= MAX_INITIAL_ELEMENTS);
            is_array_class(graph, class) && small && is_letter(graph, code)
        }
        ("scalar", &[kind, data]) => ElementType::of_elements(graph, kind).is_some_and(|known| {
            if known.objects { is_one_record(graph, kind, &known, data) } else { is_bytes(graph, data) }
        }),
        ("_frombuffer", &[buffer, kind, shape, _]) => {
            (is_bytes(graph, buffer) || matches!(graph.object(buffer), Object::Buffer))
                && ElementType::of_elements(graph, kind).is_some_and(|kind| !kind.objects)
                && ints(graph, shape).is_some()
        }
        ("dtype", &[_, ref rest @ ..]) => rest.len() <= 2 && rest.iter().all(|&id| is_int(graph, id)),
        ("ndarray" | "matrix" | "recarray" | "record" | "memmap", _) => false,
        // Scalar types.
        (_, &[number]) => is_number(graph, number),
        (_, args) => args.is_empty(),
    }
}

/// Returns true for an array of that dtype with one element, the form of a record scalar with objects.
fn is_one_record(graph: Snapshot<'_>, kind: ObjectId, known: &ElementType, array: ObjectId) -> bool {
    let Some(made) = graph.made(array) else { return false };
    let whole = graph.tuple(made.args).and_then(|args| args.first()).and_then(|&class| graph.global(class));
    let (Some((module, "_reconstruct")), [state]) = (called(graph, array), made.states.as_slice()) else {
        return false;
    };
    let (Some(&[_, shape, of, _, _]) | Some(&[shape, of, _, _])) = graph.tuple(*state) else { return false };
    module.starts_with("numpy")
        && whole == Some(("numpy", "ndarray"))
        && known.flags == OBJECT_FIELDS
        && of == kind
        && ints(graph, shape).and_then(|shape| count(&shape)) == Some(1)
}

pub(super) fn is_array_class(graph: Snapshot<'_>, class: ObjectId) -> bool {
    graph.global(class).is_some_and(|(module, name)| {
        matches!(name, "ndarray" | "matrix" | "recarray" | "chararray") || is_mapped_array(module, name)
    })
}

/// Returns true for the type code `b`, which numpy always writes before the state sets the dtype.
fn is_letter(graph: Snapshot<'_>, code: ObjectId) -> bool {
    let bytes = bytes_of(graph.graph, code, None).ok().flatten().and_then(|bytes| bytes.short);
    graph.text(code) == Some("b") || bytes.as_deref() == Some(b"b")
}

/// Returns true for the state of an array: version, shape, dtype, order and elements.
pub(super) fn array_state(graph: Snapshot<'_>, state: ObjectId) -> bool {
    let (Some(&[_, shape, kind, order, data]) | Some(&[shape, kind, order, data])) = graph.tuple(state)
    else {
        return false;
    };
    elements(graph, shape, kind, order, data)
}

/// Returns true if the number of elements matches the shape.
fn elements(graph: Snapshot<'_>, shape: ObjectId, kind: ObjectId, order: ObjectId, data: ObjectId) -> bool {
    let (Some(kind), Some(count)) =
        (ElementType::of_elements(graph, kind), ints(graph, shape).and_then(|shape| count(&shape)))
    else {
        return false;
    };
    let elements = match graph.object(data) {
        // numpy reads one item per element of the shape.
        Object::List(items) => kind.objects && items.len() as u64 == count,
        _ => !kind.objects && is_bytes(graph, data),
    };
    is_int(graph, order) && elements && (kind.size > 0 || count <= MAX_INITIAL_ELEMENTS)
}

/// Returns true for the state of a masked array: array state, mask and fill value.
pub(super) fn masked_state(graph: Snapshot<'_>, state: &[ObjectId]) -> bool {
    let &[version, shape, kind, order, data, mask, _] = state else { return false };
    graph.int(version).is_some() && elements(graph, shape, kind, order, data) && is_bytes(graph, mask)
}

/// Bytes of an array of objects or records that numpy fills one by one; the dtype decides the size of each element.
pub(super) fn object_bytes(graph: Snapshot<'_>, (module, name): (&str, &str), state: ObjectId) -> u64 {
    let (true, "_reconstruct") = (module.starts_with("numpy"), name) else { return 0 };
    let Some(&[.., kind, _, data]) = graph.tuple(state) else { return 0 };
    let (Some(kind), Object::List(items)) = (ElementType::of(graph, kind), graph.object(data)) else {
        return 0;
    };
    kind.size.saturating_mul(items.len() as u64)
}

/// Properties of a dtype that the checks need.
struct ElementType {
    /// Bytes of an element.
    size: u64,
    /// Flags without the harmless ones: 0 for a dtype without objects.
    flags: i64,
    /// True if elements are objects, or have object fields.
    objects: bool,
    /// True for a subarray dtype. Only fields have one: numpy flattens an array of subarrays.
    is_array: bool,
}

impl ElementType {
    /// Dtype of an array or scalar.
    fn of_elements(graph: Snapshot<'_>, id: ObjectId) -> Option<Self> {
        Self::of(graph, id).filter(|kind| !kind.is_array)
    }

    /// Size and flags of the dtype that the object describes. Its form is checked where the dtype is made, so nested dtypes are
    /// not walked repeatedly.
    fn of(graph: Snapshot<'_>, id: ObjectId) -> Option<Self> {
        let made = graph.made(id)?;
        if called(graph, id) != Some(("numpy", "dtype")) {
            return None;
        }
        let &[code, ..] = graph.tuple(made.args)? else { return None };
        let (plain, _) = Self::of_code(graph, code)?;
        let Some(&[_, _, part, _, _, size, _, flags, ..]) = made.states.first().and_then(|&s| graph.tuple(s))
        else {
            return made.states.is_empty().then_some(plain);
        };
        let size = u64::try_from(graph.int(size)?).unwrap_or(plain.size);
        let flags = noted(graph.int(flags)?);
        let objects = plain.objects || flags & 1 == 1;
        Some(Self { size, flags, objects, is_array: part != ObjectId::NONE })
    }

    /// Dtype that the call makes, if written in numpy's form.
    fn of_made(graph: Snapshot<'_>, made: &Reduced) -> Option<Self> {
        let &[code, ..] = graph.tuple(made.args)? else { return None };
        let (plain, sizes) = Self::of_code(graph, code)?;
        match made.states.as_slice() {
            [] => Some(plain),
            [state] => plain.with_state(graph, graph.tuple(*state)?, sizes),
            _ => None,
        }
    }

    /// Dtype of a type code such as `f4`, or of a class, and the rule for the size in its state.
    fn of_code(graph: Snapshot<'_>, code: ObjectId) -> Option<(Self, SizeRule)> {
        let plain = |size, flags| Self { size, flags, objects: flags & 1 == 1, is_array: false };
        if let Some((module, name)) = graph.global(code) {
            return match (module, name) {
                ("ml_dtypes", "bfloat16") => Some((plain(2, 0), SizeRule::Added)),
                ("ml_dtypes", _) => Some((plain(1, 0), SizeRule::Added)),
                (_, "record") => Some((plain(0, 0), SizeRule::Any)),
                _ => None,
            };
        }
        let code = graph.text(code)?;
        let (letter, number) = code.split_at_checked(1)?;
        let size: u64 = number.parse().ok().filter(|&size| size <= MAX_ELEMENT_SIZE)?;
        match (letter, size) {
            ("O", 4 | 8) => Some((plain(OBJECT_SIZE, OBJECT), SizeRule::Own)),
            ("b", 1)
            | ("i" | "u", 1 | 2 | 4 | 8)
            | ("f", 2 | 4 | 8 | 16)
            | ("c", 8 | 16 | 32)
            | ("M" | "m", 8) => Some((plain(size, 0), SizeRule::Own)),
            ("S" | "V", _) => Some((plain(size, 0), SizeRule::Written)),
            ("U", _) => Some((plain(size.checked_mul(4)?, 0), SizeRule::Written)),
            _ => None,
        }
    }

    /// Dtype with a state: version, byte order, subarray, names, fields, size, alignment, flags, optional metadata.
    fn with_state(self, graph: Snapshot<'_>, state: &[ObjectId], sizes: SizeRule) -> Option<Self> {
        let &[version, _, part, names, fields, size, alignment, flags, ref metadata @ ..] = state else {
            return None;
        };
        graph.int(version)?;
        let known = match (graph.int(size)?, sizes) {
            (-1, SizeRule::Own) => self.size,
            (size, _) => u64::try_from(size).ok()?,
        };
        let fits = known == self.size || matches!(sizes, SizeRule::Any) && known <= MAX_ELEMENT_SIZE;
        let aligned = match graph.int(alignment)? {
            -1 => matches!(sizes, SizeRule::Own),
            1 | 2 | 4 | 8 | 16 => true,
            _ => false,
        };
        let literal = |&id: &ObjectId| id == ObjectId::NONE || super::is_container(graph, id);
        if !fits || !aligned || metadata.len() > 1 || !metadata.iter().all(literal) {
            return None;
        }
        // Object, subarray and record exclude each other.
        let (is_array, is_record) = (part != ObjectId::NONE, fields != ObjectId::NONE);
        if [self.objects, is_array, is_record].into_iter().filter(|&one| one).count() > 1 {
            return None;
        }
        let expected = if is_array {
            let &[kind, shape] = graph.tuple(part)? else { return None };
            let kind = Self::of(graph, kind)?;
            let times = ints(graph, shape).and_then(|shape| count(&shape))?;
            if kind.size.checked_mul(times)? != known || matches!(sizes, SizeRule::Own | SizeRule::Added) {
                return None;
            }
            kind.flags
        } else if is_record {
            record(graph, names, fields, known)?
        } else {
            self.flags
        };
        let flags = noted(graph.int(flags).filter(|flags| FLAGS.contains(flags))?);
        let is_known = flags == expected
        // A record with objects, reduced to fields without objects.
            || is_record && flags == OBJECT_FIELDS
            || matches!(sizes, SizeRule::Added) && flags & !USER_DTYPE == expected;
        is_known.then_some(Self { size: known, flags, objects: flags & 1 == 1, is_array })
    }
}

/// Rule for the size and alignment in the state of a dtype.
#[derive(Clone, Copy)]
enum SizeRule {
    /// Must be -1: the type code fixes the size.
    Own,
    /// Must repeat the size of the type code; numpy uses this value.
    Written,
    /// Same as `Written`, for a user-defined dtype.
    Added,
    /// Any size: the type code does not have one.
    Any,
}

/// Flags without those that are harmless for the dtype.
fn noted(flags: i64) -> i64 {
    if flags & 1 == 1 { flags & 0xff & !ALIGNED } else { flags & 0xff & !HARMLESS }
}

/// Flags of a record, if its names match its fields, the fields are within its `size`, and no object field overlaps another
/// field. Otherwise a number could be read as an object pointer.
fn record(graph: Snapshot<'_>, names: ObjectId, fields: ObjectId, size: u64) -> Option<i64> {
    let names = graph.tuple(names)?;
    let Object::Dict(pairs) = graph.object(fields) else { return None };
    // Equal texts are one name. Long texts are not in memory; there the same object is one name.
    let name = |id: ObjectId| graph.text(id).ok_or(id);
    let mut places: HashMap<_, Option<(u64, u64)>> = names.iter().map(|&id| (name(id), None)).collect();
    if places.len() != names.len() {
        return None;
    }
    let (mut objects, mut named, mut titles) = (false, HashSet::new(), Vec::new());
    for &(key, field) in pairs {
        let (&[kind, offset] | &[kind, offset, _]) = graph.tuple(field)? else { return None };
        match places.get_mut(&name(key)) {
            Some(place @ None) => {
                let kind = ElementType::of(graph, kind)?;
                let offset = u64::try_from(graph.int(offset)?).ok()?;
                let end = offset.checked_add(kind.size).filter(|&end| end <= size)?;
                *place = Some((offset, end));
                named.insert(field);
                objects |= kind.objects;
            }
            Some(_) => return None,
            None => titles.push((key, field)),
        }
    }
    // A field with a title is also listed under the title.
    let titled = |&(key, field): &(ObjectId, ObjectId)| {
        named.contains(&field)
            && matches!(graph.tuple(field), Some(&[_, _, title]) if name(title) == name(key))
    };
    let mut places: Vec<_> = places.into_values().collect::<Option<_>>()?;
    places.sort_unstable();
    let apart = places.is_sorted_by(|(_, end), (start, _)| end <= start);
    let fits = titles.iter().all(titled) && (apart || !objects);
    fits.then_some(if objects { OBJECT_FIELDS } else { 0 })
}

/// Size of an element of that dtype, and true for objects; `None` if it is not written in numpy's form.
pub(crate) fn element_size(graph: &Graph, kind: ObjectId, at: u64) -> Option<(u64, bool)> {
    let seen = Snapshot::at(graph, at);
    let made = graph.made(kind).filter(|made| is_type(seen, made))?;
    ElementType::of_made(seen, made).map(|kind| (kind.size, kind.objects))
}

/// Returns true for a dtype written in numpy's form.
pub(super) fn is_type(graph: Snapshot<'_>, made: &Reduced) -> bool {
    ElementType::of_made(graph, made).is_some()
}
