//! Texts of all datasets are read within one budget.

use crate::{ElementReader, RawText, read};
use std::sync::Arc;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{FileSource, SourceRef};

/// Fixed-length texts, and texts in a heap.
#[test]
fn texts_of_datasets_are_read_within_the_budget() {
    let file = |name: &str| -> SourceRef {
        Arc::new(FileSource::open(weighbridge_testkit::testdata("scan/bad").join(name)).unwrap())
    };
    for (name, lens) in [("texts_pickle.h5", &[(16, 12), (16, 16)][..]), ("text_pickle.h5", &[(14, 14)])] {
        let contents = read(&file(name), &Limits::default()).unwrap();
        let dataset = contents.items[0].dataset.as_ref().unwrap();
        let bytes = dataset.bytes().unwrap();
        let read = |most| {
            let mut found = Vec::new();
            let result = ElementReader::new(most).each_text(dataset, &bytes, &mut |number, text| {
                let RawText::Short { place, text } = text else { unreachable!() };
                assert_eq!(number, found.len() as u64);
                found.push((place.len(), text.len()));
                Ok(())
            });
            (found, result.map_err(|error| error.code().as_str()))
        };
        assert_eq!(read(1_000), (lens.to_vec(), Ok(())), "{name}");
        assert_eq!(read(15), (Vec::new(), Err("limit")), "{name}");
        // A heap may be as long as the file: a text is taken from the budget before it is copied.
        assert_eq!(read(20), (Vec::new(), Err("limit")), "{name}");
    }
}
