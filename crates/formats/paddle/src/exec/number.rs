//! Number parsing of C++ streams, as Paddle parses `str_value`.

/// Parses the number at the beginning of `text`, as `std::istream >> double` does in the C locale: 0
/// if there is none, the largest finite value if it is too large. Paddle also supports the words
/// `inf`, `-inf` and `nan`.
pub(super) fn read(text: &str) -> f64 {
    match text {
        "inf" => return f64::INFINITY,
        "-inf" => return f64::NEG_INFINITY,
        "nan" => return f64::NAN,
        _ => {}
    }
    let text = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let taken = &text[..length(text.as_bytes())];
    // An incomplete number, such as `1e`, is a failure and yields 0.
    let value: f64 = taken.parse().unwrap_or(0.0);
    if value.is_infinite() { f64::MAX.copysign(value) } else { value }
}

/// Returns the number of characters that a stream consumes: a sign, digits with a point, an exponent.
fn length(text: &[u8]) -> usize {
    let at = |i: usize| text.get(i).copied().unwrap_or(0);
    let mut i = usize::from(matches!(at(0), b'+' | b'-'));
    let (mut digits, mut point) = (false, false);
    loop {
        match at(i) {
            b'0'..=b'9' => digits = true,
            b'.' if !point => point = true,
            _ => break,
        }
        i += 1;
    }
    if digits && matches!(at(i), b'e' | b'E') {
        i += 1;
        i += usize::from(matches!(at(i), b'+' | b'-'));
        while at(i).is_ascii_digit() {
            i += 1;
        }
    }
    i
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values with which 2.6.2 filled an FP64 tensor.
    #[test]
    fn parses_numbers_like_paddle() {
        for (text, value) in [
            ("NaN", 0.0),
            ("Inf", 0.0),
            ("-nan", 0.0),
            ("infinity", 0.0),
            ("inf", f64::INFINITY),
            ("-inf", f64::NEG_INFINITY),
            ("+inf", 0.0),
            ("1e400", f64::MAX),
            ("-1e400", -f64::MAX),
            ("1e-400", 0.0),
            ("1e-310", 1e-310),
            ("1e", 0.0),
            ("1e+", 0.0),
            ("+5", 5.0),
            ("0x10", 0.0),
            ("1e5", 1e5),
            ("1E5", 1e5),
            ("1e5.5", 1e5),
            (".5", 0.5),
            ("5.", 5.0),
            ("-", 0.0),
            ("--5", 0.0),
            ("1.2.3", 1.2),
            ("\t7", 7.0),
            (" 5x", 5.0),
            ("abc", 0.0),
            ("e5", 0.0),
            ("1,5", 1.0),
            ("9007199254740993", 9_007_199_254_740_992.0),
            ("", 0.0),
            (".", 0.0),
            ("5é", 5.0),
        ] {
            assert_eq!(read(text), value, "{text}");
        }
        assert!(read("nan").is_nan());
    }
}
