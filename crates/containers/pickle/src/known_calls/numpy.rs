//! The forms of numpy's calls.

use super::seen::Seen;
use super::{called, count, ints, is_bytes, is_int, is_number};
use crate::allowed::is_mapped_array;
use crate::graph::{Graph, Object, ObjectId, Reduced};
use crate::numpy::bytes_of;
use std::collections::{HashMap, HashSet};

/// Elements of an array that numpy makes before it is given its state, and of one whose elements have no bytes; honest pickles
/// ask for none.
const MOST_ELEMENTS: u64 = 1 << 10;
/// Flags of a type whose elements are objects, alone and among fields.
const OBJECT: i64 = 63;
const OBJECT_FIELDS: i64 = 27;
/// Those of a type that begins as zeros, of one whose items are taken apart by Python, and of aligned records. Where elements are
/// objects the first two must be there: what was in the memory before would be taken for objects.
const ALIGNED: i64 = 128;
const HARMLESS: i64 = 8 | 16 | ALIGNED;
/// Those of types that are added to numpy, whose items are read and written by functions of their own.
const OF_ADDED: i64 = 32 | 64;
/// Bytes of the place of an object. An item `O4` was written where they were four, and is read as these.
const OBJECT_SIZE: u64 = 8;
/// Bytes of the longest element that is not a mistake; numpy 1 counts them so.
const MOST_SIZE: u64 = (1 << 31) - 1;
/// numpy writes them as a byte, of numpy 1 with a sign.
const FLAGS: std::ops::RangeInclusive<i64> = -0x80..=0xff;

pub(super) fn given(graph: Seen<'_>, name: &str, args: &[ObjectId]) -> bool {
    match (name, args) {
        // The array gets its extents from its state.
        ("_reconstruct", &[class, shape, code]) => {
            let small =
                ints(graph, shape).and_then(|shape| count(&shape)).is_some_and(|n| n <= MOST_ELEMENTS);
            is_array_class(graph, class) && small && is_letter(graph, code)
        }
        ("scalar", &[kind, data]) => Type::of_elements(graph, kind).is_some_and(|known| {
            if known.objects { is_one_record(graph, kind, &known, data) } else { is_bytes(graph, data) }
        }),
        ("_frombuffer", &[buffer, kind, shape, _]) => {
            (is_bytes(graph, buffer) || matches!(graph.object(buffer), Object::Buffer))
                && Type::of_elements(graph, kind).is_some_and(|kind| !kind.objects)
                && ints(graph, shape).is_some()
        }
        ("dtype", &[_, ref rest @ ..]) => rest.len() <= 2 && rest.iter().all(|&id| is_int(graph, id)),
        ("ndarray" | "matrix" | "recarray" | "record" | "memmap", _) => false,
        // The types of numbers.
        (_, &[number]) => is_number(graph, number),
        (_, args) => args.is_empty(),
    }
}

/// True for an array of that type and of one element, as numpy hands over a record with objects.
fn is_one_record(graph: Seen<'_>, kind: ObjectId, known: &Type, array: ObjectId) -> bool {
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

pub(super) fn is_array_class(graph: Seen<'_>, class: ObjectId) -> bool {
    graph.global(class).is_some_and(|(module, name)| {
        matches!(name, "ndarray" | "matrix" | "recarray" | "chararray") || is_mapped_array(module, name)
    })
}

/// True for the one letter that says what the elements would be: bytes, whatever the state makes of them.
fn is_letter(graph: Seen<'_>, code: ObjectId) -> bool {
    let bytes = bytes_of(graph.graph, code, None).ok().flatten().and_then(|bytes| bytes.short);
    graph.text(code) == Some("b") || bytes.as_deref() == Some(b"b")
}

/// The state of an array: a version, its shape, its type, the order, and its elements.
pub(super) fn array_state(graph: Seen<'_>, state: ObjectId) -> bool {
    let (Some(&[_, shape, kind, order, data]) | Some(&[shape, kind, order, data])) = graph.tuple(state)
    else {
        return false;
    };
    elements(graph, shape, kind, order, data)
}

/// True where the elements are as many as the shape says.
fn elements(graph: Seen<'_>, shape: ObjectId, kind: ObjectId, order: ObjectId, data: ObjectId) -> bool {
    let (Some(kind), Some(count)) =
        (Type::of_elements(graph, kind), ints(graph, shape).and_then(|shape| count(&shape)))
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

/// The state of a masked array: that of the array, its mask, and a value to fill in.
pub(super) fn masked_state(graph: Seen<'_>, state: &[ObjectId]) -> bool {
    let &[version, shape, kind, order, data, mask, _] = state else { return false };
    graph.int(version).is_some() && elements(graph, shape, kind, order, data) && is_bytes(graph, mask)
}

/// Bytes of the elements of an array of objects and records that numpy fills one by one: their size is what the type says,
/// whatever is in them.
pub(super) fn object_bytes(graph: Seen<'_>, (module, name): (&str, &str), state: ObjectId) -> u64 {
    let (true, "_reconstruct") = (module.starts_with("numpy"), name) else { return 0 };
    let Some(&[.., kind, _, data]) = graph.tuple(state) else { return 0 };
    let (Some(kind), Object::List(items)) = (Type::of(graph, kind), graph.object(data)) else { return 0 };
    kind.size.saturating_mul(items.len() as u64)
}

/// What matters of a type of elements.
struct Type {
    /// Bytes of an element.
    size: u64,
    /// What numpy notes of it, but for what is harmless: 0 where it has no objects.
    flags: i64,
    /// True where elements are objects, or have some in fields.
    objects: bool,
    /// True where each is an array itself. Only fields are: numpy makes the elements of an array of such its own.
    is_array: bool,
}

impl Type {
    /// The type of the elements of an array, or of a scalar.
    fn of_elements(graph: Seen<'_>, id: ObjectId) -> Option<Self> {
        Self::of(graph, id).filter(|kind| !kind.is_array)
    }

    /// The type that the object would become. It is judged where it is made: here only its size and what it says of objects are
    /// asked for, so that types within types are not gone through again and again.
    fn of(graph: Seen<'_>, id: ObjectId) -> Option<Self> {
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

    /// The type that the call would give, where that is written as numpy writes it.
    fn of_made(graph: Seen<'_>, made: &Reduced) -> Option<Self> {
        let &[code, ..] = graph.tuple(made.args)? else { return None };
        let (plain, sizes) = Self::of_code(graph, code)?;
        match made.states.as_slice() {
            [] => Some(plain),
            [state] => plain.with_state(graph, graph.tuple(*state)?, sizes),
            _ => None,
        }
    }

    /// A letter and a number as numpy has them, or a class; and what the state may say of its size.
    fn of_code(graph: Seen<'_>, code: ObjectId) -> Option<(Self, Sizes)> {
        let plain = |size, flags| Self { size, flags, objects: flags & 1 == 1, is_array: false };
        if let Some((module, name)) = graph.global(code) {
            return match (module, name) {
                ("ml_dtypes", "bfloat16") => Some((plain(2, 0), Sizes::Added)),
                ("ml_dtypes", _) => Some((plain(1, 0), Sizes::Added)),
                (_, "record") => Some((plain(0, 0), Sizes::Any)),
                _ => None,
            };
        }
        let code = graph.text(code)?;
        let (letter, number) = code.split_at_checked(1)?;
        let size: u64 = number.parse().ok().filter(|&size| size <= MOST_SIZE)?;
        match (letter, size) {
            ("O", 4 | 8) => Some((plain(OBJECT_SIZE, OBJECT), Sizes::Own)),
            ("b", 1)
            | ("i" | "u", 1 | 2 | 4 | 8)
            | ("f", 2 | 4 | 8 | 16)
            | ("c", 8 | 16 | 32)
            | ("M" | "m", 8) => Some((plain(size, 0), Sizes::Own)),
            ("S" | "V", _) => Some((plain(size, 0), Sizes::Written)),
            ("U", _) => Some((plain(size.checked_mul(4)?, 0), Sizes::Written)),
            _ => None,
        }
    }

    /// Version, byte order, what an element is an array of, names and fields, size, alignment, flags, and perhaps metadata.
    fn with_state(self, graph: Seen<'_>, state: &[ObjectId], sizes: Sizes) -> Option<Self> {
        let &[version, _, part, names, fields, size, alignment, flags, ref metadata @ ..] = state else {
            return None;
        };
        graph.int(version)?;
        let known = match (graph.int(size)?, sizes) {
            (-1, Sizes::Own) => self.size,
            (size, _) => u64::try_from(size).ok()?,
        };
        let fits = known == self.size || matches!(sizes, Sizes::Any) && known <= MOST_SIZE;
        let aligned = match graph.int(alignment)? {
            -1 => matches!(sizes, Sizes::Own),
            1 | 2 | 4 | 8 | 16 => true,
            _ => false,
        };
        let literal = |&id: &ObjectId| id == ObjectId::NONE || super::is_container(graph, id);
        if !fits || !aligned || metadata.len() > 1 || !metadata.iter().all(literal) {
            return None;
        }
        // An object has no parts, and what is an array is no record.
        let (is_array, is_record) = (part != ObjectId::NONE, fields != ObjectId::NONE);
        if [self.objects, is_array, is_record].into_iter().filter(|&one| one).count() > 1 {
            return None;
        }
        let expected = if is_array {
            let &[kind, shape] = graph.tuple(part)? else { return None };
            let kind = Self::of(graph, kind)?;
            let times = ints(graph, shape).and_then(|shape| count(&shape))?;
            if kind.size.checked_mul(times)? != known || matches!(sizes, Sizes::Own | Sizes::Added) {
                return None;
            }
            kind.flags
        } else if is_record {
            record(graph, names, fields, known)?
        } else {
            self.flags
        };
        let flags = noted(graph.int(flags).filter(|flags| FLAGS.contains(flags))?);
        let usual = flags == expected
            // Some fields of a record that has objects, none of which they are.
            || is_record && flags == OBJECT_FIELDS
            || matches!(sizes, Sizes::Added) && flags & !OF_ADDED == expected;
        usual.then_some(Self { size: known, flags, objects: flags & 1 == 1, is_array })
    }
}

/// What the state of a type may say of the size and the alignment of its elements.
#[derive(Clone, Copy)]
enum Sizes {
    /// Nothing that numpy uses: the size is that of the letter and the number.
    Own,
    /// The size of the letter and the number once more. numpy uses what is written here.
    Written,
    /// As well, of a type that is added to numpy.
    Added,
    /// Any: that of the letter is none.
    Any,
}

/// The flags, but for those that are harmless where they are.
fn noted(flags: i64) -> i64 {
    if flags & 1 == 1 { flags & 0xff & !ALIGNED } else { flags & 0xff & !HARMLESS }
}

/// The flags of a record, where its names are those of its fields, these lie within its `size`, and no object shares its place
/// with another field: who reads that would take any number for the place of an object.
fn record(graph: Seen<'_>, names: ObjectId, fields: ObjectId, size: u64) -> Option<i64> {
    let names = graph.tuple(names)?;
    let Object::Dict(pairs) = graph.object(fields) else { return None };
    // Equal texts are one name. Long ones are not in memory, and the same object in both.
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
                let kind = Type::of(graph, kind)?;
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
    // A field that has a title is there under this, too.
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

/// The size of an element of that type, and whether elements are objects; `None` where it is not written as numpy writes it.
pub(crate) fn element_size(graph: &Graph, kind: ObjectId, at: u64) -> Option<(u64, bool)> {
    let seen = Seen::at(graph, at);
    let made = graph.made(kind).filter(|made| is_type(seen, made))?;
    Type::of_made(seen, made).map(|kind| (kind.size, kind.objects))
}

/// True for a type that is written as numpy writes it.
pub(super) fn is_type(graph: Seen<'_>, made: &Reduced) -> bool {
    Type::of_made(graph, made).is_some()
}
