//! Decimal digits of binary floating-point numbers: the fewest that distinguish a value from its neighbours, within given
//! bounds, correctly rounded.
//!
//! The free-format algorithm of Steele and White ("How to print floating-point numbers accurately", 1990) in exact integers,
//! with numpy's choices: the bounds of an even mantissa are inside, and ties go to the even digit.

use std::cmp::Ordering;

/// Positive number `mantissa * 2^exponent`. Half the distance to its neighbours is half a unit of the mantissa, or half of
/// that downwards if `narrow_below` is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Binary {
    pub(super) mantissa: u64,
    pub(super) exponent: i32,
    pub(super) narrow_below: bool,
}

/// Bounds on the number of digits. Positions are exponents of ten.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bounds {
    /// Maximum number of digits.
    pub(super) total: Option<i32>,
    /// Maximum number of digits after the point. The first nonzero digit must be among them.
    pub(super) fraction: Option<i32>,
    /// Minimum number of digits.
    pub(super) least_total: i32,
    /// Requires all digits before the point.
    pub(super) whole: bool,
}

/// Decimal digits `d.ddd` times ten to the power of `exponent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    /// Digits 0 to 9, at least one.
    pub(super) digits: Vec<u8>,
    pub(super) exponent: i32,
}

impl Decimal {
    pub(super) fn zero() -> Self {
        Self { digits: vec![0], exponent: 0 }
    }
}

/// Returns the digits of `x`.
pub(super) fn digits(x: Binary, bounds: Bounds) -> Decimal {
    if x.mantissa == 0 {
        return Decimal::zero();
    }
    // value / scale, low / scale and high / scale are the number and its two margins.
    let up = x.exponent.max(0).unsigned_abs();
    let down = x.exponent.min(0).unsigned_abs();
    let mut value = Big::from(x.mantissa).shifted(up + 2);
    let mut scale = Big::from(4).shifted(down);
    let mut high = Big::from(2).shifted(up);
    let mut low = Big::from(if x.narrow_below { 1 } else { 2 }).shifted(up);
    let inclusive = x.mantissa.is_multiple_of(2);

    // Bring value / scale below 10, and at 1 or above. The estimate is right or one too low.
    let top_bit = 63 - x.mantissa.leading_zeros().cast_signed() + x.exponent;
    let mut place = estimate(top_bit);
    if place > 0 {
        scale.multiply_pow10(place.unsigned_abs());
    } else {
        for big in [&mut value, &mut low, &mut high] {
            big.multiply_pow10(place.unsigned_abs());
        }
    }
    if value.compare(&scale) == Ordering::Less {
        for big in [&mut value, &mut low, &mut high] {
            big.multiply(10);
        }
    } else {
        place += 1;
    }
    let exponent = place - 1;

    let mut last = i32::MIN;
    if let Some(total) = bounds.total {
        last = last.max(place - total);
    }
    if let Some(fraction) = bounds.fraction {
        last = last.max(-fraction);
    }
    let mut least = place - bounds.least_total;
    if bounds.whole {
        least = least.min(0);
    }

    let mut out: Vec<u8> = Vec::with_capacity(20);
    let (digit, near_below, near_above) = loop {
        place -= 1;
        let mut digit = 0u8;
        while value.compare(&scale) != Ordering::Less {
            value.subtract(&scale);
            digit += 1;
        }
        let below = match value.compare(&low) {
            Ordering::Less => true,
            Ordering::Equal => inclusive,
            Ordering::Greater => false,
        };
        let above = match value.sum(&high).compare(&scale) {
            Ordering::Greater => true,
            Ordering::Equal => inclusive,
            Ordering::Less => false,
        };
        if ((below || above) && place <= least) || place <= last {
            break (digit, below, above);
        }
        out.push(digit);
        for big in [&mut value, &mut low, &mut high] {
            big.multiply(10);
        }
    };
    let up = match (near_below, near_above) {
        (true, false) => false,
        (false, true) => true,
        _ => match value.sum(&value).compare(&scale) {
            Ordering::Less => false,
            Ordering::Equal => !digit.is_multiple_of(2),
            Ordering::Greater => true,
        },
    };
    out.push(digit);
    Decimal { digits: out, exponent }.rounded(up)
}

impl Decimal {
    /// Adds one to the last digit if `up`; nines that carry are dropped.
    fn rounded(mut self, up: bool) -> Self {
        if !up {
            return self;
        }
        while let Some(last) = self.digits.pop() {
            if last != 9 {
                self.digits.push(last + 1);
                return self;
            }
        }
        Self { digits: vec![1], exponent: self.exponent + 1 }
    }
}

/// Estimates the decimal exponent of the highest digit plus one, or one less, for a number with the highest bit `2^top_bit`.
#[allow(clippy::cast_possible_truncation)] // |top_bit| is below 1100
fn estimate(top_bit: i32) -> i32 {
    (f64::from(top_bit) * std::f64::consts::LOG10_2 - 0.69).ceil() as i32
}

/// Natural number, least significant part first, without leading zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Big(Vec<u32>);

impl From<u64> for Big {
    #[allow(clippy::cast_possible_truncation)] // the halves
    fn from(n: u64) -> Self {
        Self(vec![n as u32, (n >> 32) as u32]).trimmed()
    }
}

impl Big {
    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    fn shifted(mut self, bits: u32) -> Self {
        self.multiply(1 << (bits % 32));
        if !self.0.is_empty() {
            self.0.splice(0..0, std::iter::repeat_n(0, bits as usize / 32));
        }
        self
    }

    #[allow(clippy::cast_possible_truncation)] // the halves
    fn multiply(&mut self, factor: u32) {
        let mut carry = 0u64;
        for part in &mut self.0 {
            let product = u64::from(*part) * u64::from(factor) + carry;
            *part = product as u32;
            carry = product >> 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn multiply_pow10(&mut self, mut power: u32) {
        while power >= 9 {
            self.multiply(1_000_000_000);
            power -= 9;
        }
        self.multiply(10u32.pow(power));
    }

    fn compare(&self, other: &Self) -> Ordering {
        let by_length = self.0.len().cmp(&other.0.len());
        by_length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// Subtracts `other`, which is not larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (place, part) in self.0.iter_mut().enumerate() {
            let (first, under) = part.overflowing_sub(other.0.get(place).copied().unwrap_or(0));
            let (second, again) = first.overflowing_sub(u32::from(borrow));
            *part = second;
            borrow = under || again;
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn sum(&self, other: &Self) -> Self {
        let (long, short) = if self.0.len() >= other.0.len() { (self, other) } else { (other, self) };
        let mut sum = Vec::with_capacity(long.0.len() + 1);
        let mut carry = false;
        for (place, part) in long.0.iter().enumerate() {
            let (first, over) = part.overflowing_add(short.0.get(place).copied().unwrap_or(0));
            let (second, again) = first.overflowing_add(u32::from(carry));
            sum.push(second);
            carry = over || again;
        }
        if carry {
            sum.push(1);
        }
        Self(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(decimal: &Decimal) -> String {
        let digits: String = decimal.digits.iter().map(|&d| char::from(b'0' + d)).collect();
        format!("0.{digits}e{}", decimal.exponent + 1)
    }

    fn of(x: f64) -> Binary {
        let bits = x.to_bits();
        let (fraction, exponent) = (bits & ((1 << 52) - 1), i32::try_from(bits >> 52).unwrap());
        match exponent {
            0 => Binary { mantissa: fraction, exponent: -1074, narrow_below: false },
            e => Binary {
                mantissa: fraction | 1 << 52,
                exponent: e - 1075,
                narrow_below: fraction == 0 && e > 1,
            },
        }
    }

    /// Values of the whole range, by a fixed sequence.
    fn samples() -> impl Iterator<Item = f64> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let random = std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            f64::from_bits(state & 0x7fff_ffff_ffff_ffff)
        });
        let powers = (-1074..1024).map(|e| 2f64.powi(e));
        let edges = [f64::MAX, f64::MIN_POSITIVE, 5e-324, 0.3, 1e23, 9.5, 5e-324 * 3.0];
        random.take(3000).chain(powers).chain(edges).filter(|x| x.is_finite() && *x > 0.0)
    }

    #[test]
    fn the_shortest_digits_lead_back_and_none_shorter_do() {
        for x in samples() {
            let decimal = digits(of(x), Bounds::default());
            assert_eq!(text(&decimal).parse::<f64>().unwrap(), x, "{x:e}");
            // The standard library finds the fewest digits, too; it may differ in a tie.
            let standard = format!("{x:e}");
            let count = standard.split('e').next().unwrap().bytes().filter(u8::is_ascii_digit).count();
            assert_eq!(decimal.digits.len(), count, "{x:e}");
        }
    }

    #[test]
    fn a_given_number_of_digits_is_the_exact_value_rounded() {
        for x in samples() {
            for total in [17, 25] {
                let bounds = Bounds { total: Some(total), least_total: total, ..Bounds::default() };
                let mut decimal = digits(of(x), bounds);
                let places = usize::try_from(total).unwrap();
                decimal.digits.resize(places, 0);
                let standard = format!("{x:.*e}", places - 1);
                let (mantissa, exponent) = standard.split_once('e').unwrap();
                let expected: Vec<u8> = mantissa.bytes().filter(|&b| b != b'.').map(|b| b - b'0').collect();
                assert_eq!(
                    (decimal.digits, decimal.exponent),
                    (expected, exponent.parse().unwrap()),
                    "{x:e}"
                );
            }
        }
    }

    #[test]
    fn bounds() {
        let shown = |x: f64, bounds| text(&digits(of(x), bounds));
        let fraction = |n| Bounds { fraction: Some(n), ..Bounds::default() };
        assert_eq!(shown(0.123456789, fraction(8)), "0.12345679e0");
        assert_eq!(shown(0.5, fraction(8)), "0.5e0");
        assert_eq!(shown(9.999_999_999, fraction(8)), "0.1e2");
        assert_eq!(shown(0.000_122_070_312_5, fraction(8)), "0.12207e-3");
        let total = |n| Bounds { total: Some(n), ..Bounds::default() };
        assert_eq!(shown(2.5, total(1)), "0.2e1");
        assert_eq!(shown(3.5, total(1)), "0.4e1");
        assert_eq!(shown(1e23, Bounds::default()), "0.1e24");
        assert_eq!(shown(2f64.powi(60), Bounds::default()), "0.1152921504606847e19");
        let whole = Bounds { whole: true, ..Bounds::default() };
        assert_eq!(shown(2f64.powi(60), whole), "0.1152921504606846976e19");
        assert_eq!(digits(of(0.0), Bounds::default()), Decimal::zero());
    }
}
