//! Written pickles are byte for byte those of CPython.

use super::*;
use weighbridge_core::tensor::{DType, Endian, Shape};

/// Protocol of a pickle that CPython's C pickler wrote with protocol 2 to 4.
fn by_cpython(name: &str, bytes: &[u8]) -> Option<u8> {
    let protocol = bytes.get(1).copied().filter(|p| bytes[0] == 0x80 && (2..=4).contains(p))?;
    (!name.contains("py2_pickle")).then_some(protocol)
}

#[test]
fn golden_pickles_come_back_byte_for_byte() {
    let mut compared = 0;
    for (name, bytes) in golden_files() {
        let Some(protocol) = by_cpython(&name, &bytes) else { continue };
        let source = memory(&bytes);
        let pickle = read(&source, 0, &Options::default()).unwrap();
        let again = rewrite(&pickle, &source, protocol).unwrap();
        let differ = again.iter().zip(&bytes).position(|(a, b)| a != b);
        assert!(again == bytes, "{name}: differs at {differ:?}, {} and {} bytes", again.len(), bytes.len());
        compared += 1;
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn pickles_convert_between_protocols() {
    let mut compared = 0;
    for (name, bytes) in golden_files() {
        if by_cpython(&name, &bytes) != Some(4) || !name.starts_with("python/") {
            continue;
        }
        let source = memory(&bytes);
        let pickle = read(&source, 0, &Options::default()).unwrap();
        for protocol in [2, 3] {
            let Ok(wanted) = std::fs::read(good().join(name.replace("_p4", &format!("_p{protocol}")))) else {
                continue;
            };
            assert_eq!(rewrite(&pickle, &source, protocol).unwrap(), wanted, "{name} as {protocol}");
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
}

/// Builds a Paddle state dict from names and arrays only, as in a conversion.
fn state_dict(golden: &Pickle, source: &SourceRef, modules: NumpyModules) -> (Graph, ObjectId, Vec<Vec<u8>>) {
    let old = &golden.graph;
    let mut builder = Builder::new();
    let mut payloads = Vec::new();
    let (mut pairs, mut keys) = (Vec::new(), std::collections::HashMap::new());
    for &(key, value) in old.pairs(golden.root).unwrap() {
        let name = old.text(key).unwrap();
        let key = builder.text(name).unwrap();
        if let Some(array) = NdArray::of(old, value, &Options::default()).unwrap() {
            let bytes = elements(source, array.payload.as_ref().unwrap());
            let content = if bytes.len() < 2 {
                Content::Bytes(bytes)
            } else {
                payloads.push(bytes.clone());
                Content::Payload { key: payloads.len() as u64 - 1, len: bytes.len() as u64 }
            };
            let kind = (array.dtype.unwrap(), Endian::Little);
            let array = builder.ndarray(kind, &array.shape, array.fortran_order, content, modules).unwrap();
            keys.insert(name.to_owned(), key);
            pairs.push((key, array));
        } else {
            let mut table = Vec::new();
            for &(key, value) in old.pairs(value).unwrap() {
                let value = builder.text(old.text(value).unwrap()).unwrap();
                table.push((keys[old.text(key).unwrap()], value));
            }
            pairs.push((key, builder.dict(table).unwrap()));
        }
    }
    let root = builder.dict(pairs).unwrap();
    (builder.finish(), root, payloads)
}

#[test]
fn a_built_state_dict_matches_paddles() {
    let mut compared = 0;
    for (folder, modules) in
        [("p262_cnn_state_dict", NumpyModules::Core), ("p331_cnn_state_dict", NumpyModules::UnderscoreCore)]
    {
        for protocol in 2..=4 {
            let Ok(wanted) = std::fs::read(good().join(format!("{folder}/m_p{protocol}.pdparams"))) else {
                continue;
            };
            let source = memory(&wanted);
            let golden = read(&source, 0, &Options::default()).unwrap();
            let (graph, root, payloads) = state_dict(&golden, &source, modules);
            let mut latin1 = |place: &Location| match *place {
                Location::Payload { key, len } => {
                    latin1_len(&*memory(&payloads[usize::try_from(key).unwrap()]), 0, len)
                }
                other => panic!("{other:?}"),
            };
            let parts = write(&graph, root, protocol, &mut latin1).unwrap();
            assert!(fill(&parts, &memory([]), &payloads) == wanted, "{folder} {protocol}");
            assert!(parts.iter().any(|part| matches!(part, Part::Payload { .. } | Part::Latin1 { .. })));
            compared += 1;
        }
    }
    assert_eq!(compared, 5);
}

#[test]
fn short_arrays_share_objects_as_in_python() {
    for protocol in 2..=4 {
        let wanted = std::fs::read(good().join(format!("python/arrays_p{protocol}.pkl"))).unwrap();
        let source = memory(&wanted);
        let golden = read(&source, 0, &Options::default()).unwrap();
        let mut builder = Builder::new();
        let modules = NumpyModules::UnderscoreCore;
        let mut pairs = Vec::new();
        for &(key, value) in golden.graph.pairs(golden.root).unwrap() {
            let name = golden.graph.text(key).unwrap();
            let key = builder.text(name).unwrap();
            let value = match NdArray::of(&golden.graph, value, &Options::default()).unwrap() {
                Some(array) => {
                    let content = Content::Bytes(elements(&source, array.payload.as_ref().unwrap()));
                    let kind = (array.dtype.unwrap(), array.endian);
                    builder.ndarray(kind, &array.shape, array.fortran_order, content, modules).unwrap()
                }
                None => {
                    let found = scalar(&golden.graph, value).unwrap().unwrap();
                    let bytes = elements(&source, found.payload.as_ref().unwrap());
                    builder.scalar(found.dtype.unwrap(), bytes, modules).unwrap()
                }
            };
            pairs.push((key, value));
        }
        let root = builder.dict(pairs).unwrap();
        let graph = builder.finish();
        let parts = write(&graph, root, protocol, &mut |place| panic!("{place:?}")).unwrap();
        assert!(fill(&parts, &memory([]), &[]) == wanted, "protocol {protocol}");
    }
}

#[test]
fn long_arrays_are_written_outside_of_frames() {
    for (len, outside) in [(65535u64, false), (65536, true), (1 << 33, true)] {
        let mut builder = Builder::new();
        let content = Content::Payload { key: 7, len };
        let kind = (DType::U8, Endian::Little);
        let shape = Shape::from([len]);
        let array = builder.ndarray(kind, &shape, false, content, NumpyModules::Core).unwrap();
        let parts = write(&builder.finish(), array, 4, &mut |_| panic!("not of protocol 2")).unwrap();
        let [Part::Literal(before), Part::Payload { key: 7, .. }, Part::Literal(after)] = &parts[..] else {
            panic!("{parts:?}")
        };
        let frame = u64::from_le_bytes(before[3..11].try_into().unwrap());
        let header = if len > u64::from(u32::MAX) { 9 } else { 5 };
        if outside {
            assert_eq!(frame + 11 + header, before.len() as u64);
            // A frame follows the array.
            assert_eq!(after[0], 0x95);
        } else {
            assert_eq!(frame + 11, before.len() as u64 + len + after.len() as u64);
        }
    }
}

#[test]
fn rejects_content_that_cannot_be_written() {
    let mut builder = Builder::new();
    let kind = (DType::F32, Endian::Little);
    let short = Content::Bytes(vec![0; 3]);
    let modules = NumpyModules::Core;
    let error = builder.ndarray(kind, &Shape::from([1]), false, short, modules).unwrap_err();
    assert_eq!(error.code().as_str(), "pickle-content");
    let one = Content::Payload { key: 0, len: 1 };
    let error =
        builder.ndarray((DType::U8, Endian::Little), &Shape::from([1]), false, one, modules).unwrap_err();
    assert_eq!(error.code().as_str(), "pickle-content");
    let error = builder
        .ndarray((DType::BF16, Endian::Little), &Shape::from([1]), false, Content::Bytes(vec![0; 2]), modules)
        .unwrap_err();
    assert_eq!(error.code().as_str(), "pickle-dtype");
    let long = Content::Payload { key: 0, len: 1 << 32 };
    let array =
        builder.ndarray((DType::U8, Endian::Little), &Shape::from([1 << 32]), false, long, modules).unwrap();
    let error = write(&builder.finish(), array, 3, &mut |_| Ok(0)).unwrap_err();
    assert_eq!(error.code().as_str(), "pickle-write");
    let error = write(&Graph::default(), ObjectId::NONE, 5, &mut |_| Ok(0)).unwrap_err();
    assert_eq!(error.kind(), weighbridge_core::Kind::Usage);
}
