//! Numbers as C++ streams read them: how Paddle reads `str_value`.

/// The number at the beginning of `text`, as `std::istream >> double` reads it in the C locale: 0
/// where there is none, the largest finite value where it is too large. Paddle knows the words
/// `inf`, `-inf` and `nan` beside it.
pub(super) fn read(text: &str) -> f64 {
    match text {
        "inf" => return f64::INFINITY,
        "-inf" => return f64::NEG_INFINITY,
        "nan" => return f64::NAN,
        _ => {}
    }
    let text = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let taken = &text[..length(text.as_bytes())];
    // What was taken and is no number, such as `1e`, is a failure, and gives 0.
    let value: f64 = taken.parse().unwrap_or(0.0);
    if value.is_infinite() { f64::MAX.copysign(value) } else { value }
}

/// How many characters a stream takes: a sign, digits with a point, an exponent.
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

    /// What 2.6.2 filled an FP64 tensor with.
    #[test]
    fn texts_are_read_as_paddle_reads_them() {
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
