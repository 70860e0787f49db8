//! Bytes that are stored as text.

use super::*;

/// Deterministic pseudo-random numbers.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 16).unwrap() % limit
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }
}

/// Encodes `bytes` as text.
fn encode(bytes: &[u8], stored: Stored) -> Vec<u8> {
    let mut text = Vec::new();
    for &byte in bytes {
        match (stored, byte) {
            (Stored::Raw, _) => text.push(byte),
            (Stored::Utf8, _) => text.extend(char::from(byte).to_string().bytes()),
            (Stored::StringEscape, b'\n') => text.extend(b"\\n"),
            (Stored::StringEscape, b'\\' | b'\'') => text.extend([b'\\', byte]),
            (Stored::StringEscape, 0..0x20 | 0x7f..) => text.extend(format!("\\x{byte:02x}").bytes()),
            (Stored::UnicodeEscape, b'\n' | b'\\' | 0) => text.extend(format!("\\u{byte:04x}").bytes()),
            _ => text.push(byte),
        }
    }
    text
}

#[test]
fn every_encoding_can_be_read_at_any_offset() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let truth: Vec<u8> = (0..300_000).map(|_| random.byte()).collect();
    for stored in [Stored::Raw, Stored::Utf8, Stored::StringEscape, Stored::UnicodeEscape] {
        let text = encode(&truth, stored);
        let span = Span { offset: 3, len: text.len() as u64, stored };
        let mut file = b"abc".to_vec();
        file.extend(&text);
        file.extend(b"tail");
        let counting = Arc::new(weighbridge_io::source::CountingSource::new(memory(&file)));
        let source = PayloadSource::new(counting.clone(), span, truth.len() as u64).unwrap();
        assert_eq!(counting.bytes_read(), 0);
        for _ in 0..300 {
            let from = random.below(truth.len());
            let len = random.below(truth.len() - from).min(50_000);
            let mut buffer = vec![0xaa; len];
            source.read_at(from as u64, &mut buffer).unwrap();
            assert!(buffer == truth[from..from + len], "{stored:?} at {from}");
        }
        // A sequential read in small steps reads the text about once.
        let before = counting.bytes_read();
        for from in (0..truth.len()).step_by(1000) {
            let mut buffer = [0; 1000];
            source.read_at(from as u64, &mut buffer).unwrap();
            assert!(buffer == truth[from..from + 1000]);
        }
        assert!(counting.bytes_read() - before < text.len() as u64 + (256 << 10), "{stored:?}");
        // The chunk is freed at the end: a file may hold many arrays.
        assert!(format!("{source:?}").contains("chunk: [],"), "{stored:?}");
        assert_eq!(source.read_at(truth.len() as u64, &mut [0]).unwrap_err().code().as_str(), "past-the-end");
        assert_eq!(source.is_sequential(), stored != Stored::Raw);
    }
}

#[test]
fn rejects_text_that_does_not_encode_bytes() {
    let open = |text: &[u8], stored, len| {
        let span = Span { offset: 0, len: text.len() as u64, stored };
        PayloadSource::new(memory(text), span, len).and_then(|source| {
            let mut buffer = vec![0; usize::try_from(len).unwrap()];
            source.read_at(0, &mut buffer).map(|()| buffer)
        })
    };
    assert_eq!(open("aé".as_bytes(), Stored::Utf8, 2).unwrap(), [b'a', 0xe9]);
    for (text, stored, len) in [
        ("aé".as_bytes(), Stored::Utf8, 3),
        ("aéé".as_bytes(), Stored::Utf8, 4),
        (b"aaa", Stored::Utf8, 2),
        ("a€".as_bytes(), Stored::Utf8, 2),
        (b"a\xff", Stored::Utf8, 2),
        (b"a\xc3", Stored::Utf8, 2),
        (b"a\xc1\x81", Stored::Utf8, 2),
        (b"\\u0100", Stored::UnicodeEscape, 1),
        (b"\\u00", Stored::UnicodeEscape, 1),
        (b"\\u+041", Stored::UnicodeEscape, 1),
        (b"\\xzz", Stored::StringEscape, 1),
        (b"\\", Stored::StringEscape, 1),
        (b"\\\n\\\n", Stored::StringEscape, 1),
    ] {
        let error = open(text, stored, len).unwrap_err();
        assert_eq!(error.code().as_str(), "pickle-payload", "{text:?}");
    }
    assert_eq!(open(b"\\101\\n\\\n\\q\\\\", Stored::StringEscape, 5).unwrap(), *b"A\n\\q\\");
    assert_eq!(open(b"\\\\u0041", Stored::UnicodeEscape, 7).unwrap(), *b"\\\\u0041");
    let span = Span { offset: 1, len: 2, stored: Stored::Raw };
    assert_eq!(PayloadSource::new(memory(b"ab"), span, 2).unwrap_err().code().as_str(), "past-the-end");
}

#[test]
fn latin1_len_counts_the_utf8_bytes() {
    let bytes: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    let text: String = bytes.iter().copied().map(char::from).collect();
    assert_eq!(latin1_len(&*memory(&bytes), 0, 200_000).unwrap(), text.len() as u64);
    assert_eq!(latin1_len(&*memory(&bytes), 128, 128).unwrap(), 256);
    assert!(latin1_len(&*memory(&bytes), 1, 200_000).is_err());
}

#[test]
fn rejects_payloads_that_do_not_match_the_shape() {
    let array = |data: &[u8], extent: u8| {
        let mut bytes =
            b"\x80\x04cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01K"
                .to_vec();
        bytes.push(extent);
        bytes.extend(b"\x85cnumpy\ndtype\n\x8c\x02f4\x89\x88\x87R(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89");
        bytes.extend(data);
        bytes.extend(b"tb.");
        let pickle = read_bytes(&bytes).unwrap();
        NdArray::of(&pickle.graph, pickle.root, &Options::default())
    };
    assert_eq!(array(b"C\x04abcd", 1).unwrap().unwrap().payload.unwrap().len, 4);
    assert_eq!(array(b"C\x04abcd", 2).unwrap_err().code().as_str(), "numpy-length");
    assert_eq!(array(b"C\x03abc", 1).unwrap_err().code().as_str(), "numpy-length");
    assert_eq!(array(b"N", 1).unwrap_err().code().as_str(), "numpy-array");
    let long = |n: usize| {
        [
            &b"c_codecs\nencode\nX"[..],
            &u32::try_from(n).unwrap().to_le_bytes(),
            &vec![b'x'; n],
            b"\x8c\x06latin1\x86R",
        ]
        .concat()
    };
    assert_eq!(array(&long(400), 100).unwrap().unwrap().payload.unwrap().len, 400);
    assert_eq!(array(&long(400), 50).unwrap().unwrap().payload.unwrap().len, 200);
    assert_eq!(array(&long(401), 50).unwrap_err().code().as_str(), "numpy-length");
    assert_eq!(array(&long(399), 100).unwrap_err().code().as_str(), "numpy-length");
}
