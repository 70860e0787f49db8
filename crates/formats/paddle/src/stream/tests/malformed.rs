//! Malformed files: truncated at every offset, and changed at random. Reading must not panic, and successful
//! readings must be written back unchanged.

use super::*;
use crate::stream::detect;
use crate::stream::unshipped::{design_note, size_prefixed};
use weighbridge_core::checkpoint::Name;

/// Small files of every kind.
fn small_files() -> Vec<Vec<u8>> {
    let mut files: Vec<Vec<u8>> = [
        "p262/combined_mixed/all.pdiparams",
        "p262/lod_tensors/complex64_lod2.bin",
        "p262/lod_tensors/float32_zero_2x0x4.bin",
        "p262/lod_tensors/uint8_0d.bin",
        "p262/lod_tensors/float32_rank9.bin",
        "p262/lod_tensors/float32_lod_emptyrows.bin",
        "p262/selected_rows/f64_dup.bin",
        "p262/selected_rows/f32_norows.bin",
        "p262/vocab/vocab.pdiparams",
        "p331/fp8_tensors/float8_e5m2_4.bin",
        "p331/save_combine_func/plain.pdiparams",
    ]
    .map(good)
    .into();
    // Descs in every form, levels of odd lengths, and both unreleased forms.
    let odd =
        [0x12, 0x02, 0x02, 0x01, 0x7a, 0x02, b'h', b'i', 0x23, 0x08, 0x01, 0x24, 0x08, 0x63, 0x08, 0x14];
    let odd = stream(&odd, &[1, 2]);
    let mut leveled =
        vec![0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    leveled.extend(&odd[12..]);
    let tensors = [read_all(&odd).unwrap(), read_all(&leveled).unwrap()].concat();
    files.push(written(|file| size_prefixed::write(file, tensors.iter().map(|t| &t.entry))));
    files.extend(tensors.iter().map(|t| written(|file| design_note::write(file, &t.entry))));
    files.extend([[&odd[..], &leveled].concat(), leveled, odd]);
    files
}

/// Reads `bytes` as every kind of file. Returns the number of successful readings; each of them
/// must reproduce the same bytes.
fn read_as_everything(bytes: &[u8]) -> usize {
    let (source, limits) = (memory(bytes), Limits::default());
    let path = TensorPath::value();
    detect(&source, &limits);
    let mut worked = 0;
    let mut same = |again: Vec<u8>| {
        assert_eq!(again, bytes);
        worked += 1;
    };
    if let Ok(tensors) = read_all(bytes) {
        same(rewritten(&tensors));
    }
    let mut cursor = Cursor::new(source.clone(), 0);
    if let Ok(rows) = selected_rows::read(&mut cursor, &path, &limits)
        && cursor.remaining() == 0
    {
        same(written(|file| selected_rows::write(file, &rows.entry)));
    }
    if let Ok(tensor) = design_note::read_file(&source, &path, &limits) {
        same(written(|file| design_note::write(file, &tensor.entry)));
    }
    if let Ok(tensors) = size_prefixed::read_all(&source, &limits) {
        same(written(|file| size_prefixed::write(file, tensors.iter().map(|t| &t.entry))));
    }
    if let Some(kinds) = combined::kinds(&source, &limits) {
        let wanted = kinds.iter().map(|&kind| combined::Wanted { path: path.clone(), kind });
        let streams = combined::read_with(&source, &wanted.collect::<Vec<_>>(), &limits).unwrap();
        let items = streams.iter().map(|stream| match stream {
            combined::Stream::Dense(tensor) => combined::Item::Dense(&tensor.entry),
            combined::Stream::Vocab(vocab) => combined::Item::Vocab(&vocab.words),
        });
        same(written(|file| combined::layout_with(file, items)));
    }
    worked
}

#[test]
fn rejects_prefixes_except_at_stream_boundaries() {
    for bytes in small_files() {
        assert!(read_as_everything(&bytes) > 0);
        let mut ends = vec![];
        if let Ok(tensors) = read_all(&bytes) {
            ends.extend(tensors.iter().map(|t| t.header.stream_offset + t.header.stream_bytes));
        }
        let is_dense = !ends.is_empty();
        for end in 0..bytes.len() {
            let prefix = &bytes[..end];
            read_as_everything(prefix);
            let read = read_all(prefix);
            assert_eq!(read.is_ok(), ends.contains(&(end as u64)), "{end}: {read:?}");
            if is_dense && let Err(error) = read {
                let codes =
                    ["empty-file", "truncated-header", "truncated-data", "trailing-bytes", "lod-too-long"];
                assert!(codes.contains(&error.code().as_str()), "{end}: {error}");
            }
            assert!(read_rows(prefix).is_err() || is_dense);
        }
    }
}

#[test]
fn mutations_do_not_panic() {
    let files = small_files();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % below
    };
    let numbers = [0u8, 1, 2, 5, 7, 8, 0x10, 0x12, 0x7f, 0x80, 0xff];
    let mut worked = 0;
    for round in 0..200_000 {
        let mut bytes = files[round % files.len()].clone();
        for _ in 0..=random(3) {
            // Mostly headers are changed: the first bytes.
            let reach = if random(4) > 0 { bytes.len().min(64) } else { bytes.len() };
            let at = random(reach.max(1)).min(bytes.len().saturating_sub(1));
            match random(5) {
                0 if !bytes.is_empty() => bytes[at] = numbers[random(numbers.len())],
                1 if !bytes.is_empty() => bytes[at] ^= 1 << random(8),
                2 => bytes.truncate(at),
                3 => bytes.insert(at, numbers[random(numbers.len())]),
                _ if !bytes.is_empty() => {
                    bytes.remove(at);
                }
                _ => {}
            }
        }
        worked += read_as_everything(&bytes);
    }
    // Many changes are in the elements or make another legal header.
    assert!(worked > 10_000, "{worked}");
}

#[test]
fn preserves_arbitrary_words() {
    let words = vec![(Name::new(*b"\xff\0"), i32::MIN), (Name::default(), -1), (Name::from("a"), 0)];
    let bytes = written(|file| {
        vocab::write(file, &words);
        Ok(())
    });
    assert_eq!(read_vocab(&bytes).unwrap().words, words);
    for end in 0..bytes.len() {
        let error = read_vocab(&bytes[..end]).unwrap_err();
        assert!(["truncated-header", "vocab-too-long"].contains(&error.code().as_str()), "{end}: {error}");
    }
}
