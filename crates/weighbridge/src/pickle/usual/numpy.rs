//! The forms of numpy's calls.

use super::{called, count, ints, is_bytes, is_int, is_number};
use crate::pickle::allowed::is_mapped_array;
use crate::pickle::graph::{Graph, Made, Object, ObjectId};
use crate::pickle::numpy::bytes_of;

/// Elements of an array that numpy makes before it is given its state, and of one whose elements have no bytes; honest pickles
/// ask for none.
const MOST_ELEMENTS: u64 = 1 << 10;
/// Flags of a type whose elements are objects, alone and among fields.
const OBJECT: i64 = 63;
const OBJECT_FIELDS: i64 = 27;
/// Those of a type that begins as zeros, of one whose items are taken apart by Python, and of aligned records.
const HARMLESS: i64 = 8 | 16 | 128;

pub(super) fn given(graph: &Graph, name: &str, args: &[ObjectId]) -> bool {
    match (name, args) {
        // The array gets its extents from its state.
        ("_reconstruct", &[class, shape, code]) => {
            let small =
                ints(graph, shape).and_then(|shape| count(&shape)).is_some_and(|n| n <= MOST_ELEMENTS);
            is_array_class(graph, class) && small && is_letter(graph, code)
        }
        ("scalar", &[kind, bytes]) => {
            Type::of(graph, kind).is_some_and(|kind| !kind.objects) && is_bytes(graph, bytes)
        }
        ("_frombuffer", &[buffer, kind, shape, _]) => {
            (is_bytes(graph, buffer) || matches!(graph.object(buffer), Object::Buffer))
                && Type::of(graph, kind).is_some_and(|kind| !kind.objects)
                && ints(graph, shape).is_some()
        }
        ("dtype", &[_, ref rest @ ..]) => rest.len() <= 2 && rest.iter().all(|&id| is_int(graph, id)),
        ("ndarray" | "matrix" | "recarray" | "record" | "memmap", _) => false,
        // The types of numbers.
        (_, &[number]) => is_number(graph, number),
        (_, args) => args.is_empty(),
    }
}

fn is_array_class(graph: &Graph, class: ObjectId) -> bool {
    graph.global(class).is_some_and(|(module, name)| {
        matches!(name, "ndarray" | "matrix" | "recarray") || is_mapped_array(module, name)
    })
}

/// True for the one letter that says what the elements would be: bytes, whatever the state makes of them.
fn is_letter(graph: &Graph, code: ObjectId) -> bool {
    let bytes = bytes_of(graph, code, None).ok().flatten().and_then(|bytes| bytes.short);
    graph.text(code) == Some("b") || bytes.as_deref() == Some(b"b")
}

/// The state of an array: a version, its shape, its type, the order, and its elements.
pub(super) fn array_state(graph: &Graph, state: ObjectId) -> bool {
    let (Some(&[_, shape, kind, order, data]) | Some(&[shape, kind, order, data])) = graph.tuple(state)
    else {
        return false;
    };
    let (Some(kind), Some(count)) =
        (Type::of(graph, kind), ints(graph, shape).and_then(|shape| count(&shape)))
    else {
        return false;
    };
    let elements = match graph.object(data) {
        // numpy takes as many items as the shape says.
        Object::List(items) => kind.objects && items.len() as u64 == count,
        _ => !kind.objects && is_bytes(graph, data),
    };
    is_int(graph, order) && elements && (kind.size > 0 || count <= MOST_ELEMENTS)
}

/// What matters of a type of elements.
struct Type {
    /// Bytes of an element.
    size: u64,
    /// True where elements are objects, or have some in fields.
    objects: bool,
}

impl Type {
    /// The type that the object would become, where that is written as numpy writes it.
    fn of(graph: &Graph, id: ObjectId) -> Option<Self> {
        graph
            .made(id)
            .filter(|_| called(graph, id) == Some(("numpy", "dtype")))
            .and_then(|made| Self::of_made(graph, made))
    }

    fn of_made(graph: &Graph, made: &Made) -> Option<Self> {
        let &[code, ..] = graph.tuple(made.args)? else { return None };
        let plain = Self::of_code(graph, code)?;
        match made.states.as_slice() {
            [] => Some(plain),
            [state] => plain.with_state(graph, graph.tuple(*state)?, graph.global(code).is_some()),
            _ => None,
        }
    }

    /// A letter and a number, or a class.
    fn of_code(graph: &Graph, code: ObjectId) -> Option<Self> {
        if let Some((module, name)) = graph.global(code) {
            return match (module, name) {
                ("ml_dtypes", "bfloat16") => Some(Self { size: 2, objects: false }),
                ("ml_dtypes", _) => Some(Self { size: 1, objects: false }),
                (_, "record") => Some(Self { size: 0, objects: false }),
                _ => None,
            };
        }
        let code = graph.text(code)?;
        let (letter, number) = code.split_at_checked(1)?;
        let number: u64 = number.parse().ok()?;
        let size = match letter {
            "b" | "i" | "u" | "f" | "c" | "S" | "V" | "M" | "m" | "O" => number,
            "U" => number.checked_mul(4)?,
            _ => return None,
        };
        Some(Self { size, objects: letter == "O" })
    }

    /// Version, byte order, what an element is an array of, names and fields, size, alignment, flags, and perhaps metadata.
    fn with_state(self, graph: &Graph, state: &[ObjectId], is_class: bool) -> Option<Self> {
        let &[version, _, part, names, fields, size, alignment, flags, ref metadata @ ..] = state else {
            return None;
        };
        graph.int(version)?;
        let known = match graph.int(size)? {
            -1 => self.size,
            size => u64::try_from(size).ok().filter(|&size| is_class || size == self.size)?,
        };
        let literal = |&id: &ObjectId| id == ObjectId::NONE || super::is_container(graph, id);
        if !matches!(graph.int(alignment)?, -1..=64) || metadata.len() > 1 || !metadata.iter().all(literal) {
            return None;
        }
        let within = |kind: ObjectId, offset: i64, times: u64| {
            let kind = Self::of_part(graph, kind)?;
            let end = kind.size.checked_mul(times)?.checked_add(u64::try_from(offset).ok()?)?;
            (end <= known).then_some(kind.objects)
        };
        let mut objects = false;
        if part != ObjectId::NONE {
            let &[kind, shape] = graph.tuple(part)? else { return None };
            objects |= within(kind, 0, ints(graph, shape).and_then(|shape| count(&shape))?)?;
        }
        if fields != ObjectId::NONE {
            graph.tuple(names)?;
            let Object::Dict(pairs) = graph.object(fields) else { return None };
            for &(_, field) in pairs {
                let (&[kind, offset] | &[kind, offset, _]) = graph.tuple(field)? else { return None };
                objects |= within(kind, graph.int(offset)?, 1)?;
            }
        }
        let expected = match (self.objects, objects) {
            (true, _) => OBJECT,
            (false, true) => OBJECT_FIELDS,
            (false, false) => 0,
        };
        (graph.int(flags)? & !HARMLESS == expected & !HARMLESS)
            .then_some(Self { size: known, objects: self.objects || objects })
    }

    /// The type of a field. It is judged where it is made: here only its size and what it says of objects are asked for, so
    /// that types within types are not gone through again and again.
    fn of_part(graph: &Graph, id: ObjectId) -> Option<Self> {
        let made = graph.made(id)?;
        if called(graph, id) != Some(("numpy", "dtype")) {
            return None;
        }
        let &[code, ..] = graph.tuple(made.args)? else { return None };
        let plain = Self::of_code(graph, code)?;
        let Some(&[_, _, _, _, _, size, _, flags, ..]) = made.states.first().and_then(|&s| graph.tuple(s))
        else {
            return made.states.is_empty().then_some(plain);
        };
        let size = u64::try_from(graph.int(size)?).unwrap_or(plain.size);
        Some(Self { size, objects: plain.objects || graph.int(flags)? & 1 == 1 })
    }
}

/// True for a type that is written as numpy writes it.
pub(super) fn is_type(graph: &Graph, made: &Made) -> bool {
    Type::of_made(graph, made).is_some()
}
