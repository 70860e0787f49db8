use super::*;
use std::io::Write;
use std::sync::Arc;

/// Checks the contract of every source: the right bytes at every offset, and an error beyond the end.
fn conforms(source: &dyn Source, truth: &[u8]) {
    assert_eq!(source.len(), truth.len() as u64);
    for offset in 0..=truth.len() {
        for len in [0, 1, 3, truth.len() - offset] {
            let mut buffer = vec![0xAA; len];
            let result = source.read_at(offset as u64, &mut buffer);
            match truth.get(offset..offset + len) {
                Some(expected) => {
                    result.unwrap();
                    assert_eq!(buffer, expected);
                }
                None => assert_eq!(result.unwrap_err().code().as_str(), "past-the-end"),
            }
        }
    }
    assert_eq!(source.read_at(u64::MAX, &mut [0]).unwrap_err().code().as_str(), "past-the-end");
    if let Some(slice) = source.as_slice() {
        assert_eq!(slice, truth);
    }
}

#[test]
fn all_sources_conform() {
    let truth: Vec<u8> = (0..100).collect();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&truth).unwrap();
    let opened: SourceRef = Arc::new(FileSource::open(file.path()).unwrap());
    conforms(&*opened, &truth);
    let _table = guarded();
    let map = MapSource::open(file.path()).unwrap();
    conforms(&map, &truth);
    assert_eq!(map.bytes(), truth);
    conforms(&MemorySource::new("memory", truth.clone()), &truth);
    let range = RangeSource::new(opened.clone(), 10, 50).unwrap();
    conforms(&range, &truth[10..60]);
    assert_eq!(range.file().unwrap().offset, 10);
    let parts = vec![(opened.clone(), 0, 7), (opened.clone(), 7, 0), (opened.clone(), 7, 93)];
    conforms(&ConcatSource::new("parts", parts).unwrap(), &truth);
    assert!(ConcatSource::new("parts", vec![(opened.clone(), 99, 2)]).is_err());
    let counting = CountingSource::new(opened);
    conforms(&counting, &truth);
    assert!(counting.bytes_read() > 0);
}

#[test]
fn rejects_ranges_beyond_the_source() {
    let memory: SourceRef = Arc::new(MemorySource::new("m", vec![0; 4]));
    assert!(RangeSource::new(memory.clone(), 4, 0).is_ok());
    assert!(RangeSource::new(memory.clone(), 3, 2).is_err());
    assert!(RangeSource::new(memory, u64::MAX, 2).is_err());
}

#[test]
fn a_file_that_shrinks_is_an_error() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[1; 100]).unwrap();
    let _table = guarded();
    let sources: [SourceRef; 2] =
        [Arc::new(FileSource::open(file.path()).unwrap()), Arc::new(MapSource::open(file.path()).unwrap())];
    file.as_file().set_len(10).unwrap();
    for source in sources {
        let error = source.read_at(0, &mut [0; 100]).unwrap_err();
        assert_eq!(error.code().as_str(), "file-shrank");
    }
}
