//! Comparison of the grammar with another parser.

use super::*;

#[test]
fn accepts_exactly_what_serde_json_accepts() {
    let good = [
        "{}",
        "[]",
        " [ ] ",
        "[1,2]",
        "{\"a\":[{}],\"b\":null}",
        "-0",
        "-1.5e+10",
        "0.0",
        "[true,false]",
        "\"\\u00e9\\n\"",
        "{\"\\u0023\":1}",
        "[[],[],{}]",
        "1E5",
        "\"权重\"",
    ];
    let bad = [
        "",
        "[",
        "]",
        "{",
        "[1,]",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\ud800\"",
        "\"\n\"",
        "nul",
        "[1 2]",
        "{\"a\" 1}",
        "[1]]",
        "{} {}",
        "[}",
        "{]",
        "'a'",
        "tru",
        "NaN",
        "[1}",
        "{1:2}",
    ];
    for text in good {
        assert!(serde_json::from_str::<serde_json::Value>(text).is_ok(), "{text}");
        assert!(Document::parse(text.as_bytes()).is_ok(), "{text}");
    }
    for text in bad {
        assert!(serde_json::from_str::<serde_json::Value>(text).is_err(), "{text}");
        let error = Document::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.code().as_str(), "bad-json", "{text}");
        assert!(error.offset().unwrap() <= text.len() as u64, "{text}");
    }
}

#[test]
fn parses_numbers_exactly() {
    let text = "[9223372036854775807,-9223372036854775808,9223372036854775808,1.0,1.5,-0,1e3,0.1,1e999]";
    let document = Document::parse(text.as_bytes()).unwrap();
    let whole: Vec<_> = document.root().elements().map(Item::integer).collect();
    let expected = [Some(i64::MAX), Some(i64::MIN), None, Some(1), None, Some(0), None, None, None];
    assert_eq!(whole, expected);
    let floats: Vec<_> = document.root().elements().map(Item::float).collect();
    assert_eq!(floats[7], Some(0.1));
    assert_eq!(floats[8], None);
}

#[test]
fn rejects_duplicate_keys_in_any_spelling() {
    let document = Document::parse(b"{\"#\":1,\"\\u0023\":2}").unwrap();
    let error = document.root().fields("it", ["#"]).unwrap_err();
    assert_eq!((error.code().as_str(), error.offset()), ("duplicate-key", Some(7)));
}

#[test]
fn limits_nesting_depth() {
    let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
    assert!(Document::parse(nested(Budget::DEPTH).as_bytes()).is_ok());
    assert_eq!(Document::parse(nested(Budget::DEPTH + 1).as_bytes()).unwrap_err().code().as_str(), "nesting");
    assert_eq!(Document::parse("[".repeat(10_000_000).as_bytes()).unwrap_err().code().as_str(), "nesting");
}
