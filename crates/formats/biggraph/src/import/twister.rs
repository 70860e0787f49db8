//! Python's `random`, as far as `random.seed(n)` and `random.shuffle` need it: the Mersenne Twister MT19937.

use weighbridge_core::error::{Error, Result};

/// Words of the state.
const N: usize = 624;
const M: usize = 397;

/// Generator with the state of Python's `random` after `random.seed(n)`.
#[derive(Debug)]
pub(super) struct Twister {
    state: Vec<u32>,
    at: usize,
}

impl Twister {
    /// Returns the generator after `random.seed(seed)`.
    pub(super) fn seeded(seed: u64) -> Self {
        let bytes = seed.to_le_bytes();
        let low = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let high = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let key: &[u32] = if high == 0 { &[low] } else { &[low, high] };
        let mut state = vec![19_650_218_u32; N];
        for i in 1..N {
            let last = state[i - 1];
            state[i] = 1_812_433_253_u32.wrapping_mul(last ^ (last >> 30)).wrapping_add(index(i));
        }
        let (mut i, mut j) = (1, 0);
        for _ in 0..N.max(key.len()) {
            let last = state[i - 1];
            state[i] = (state[i] ^ (last ^ (last >> 30)).wrapping_mul(1_664_525))
                .wrapping_add(key[j])
                .wrapping_add(index(j));
            (i, j) = (i + 1, (j + 1) % key.len());
            if i == N {
                state[0] = state[N - 1];
                i = 1;
            }
        }
        for _ in 1..N {
            let last = state[i - 1];
            state[i] = (state[i] ^ (last ^ (last >> 30)).wrapping_mul(1_566_083_941)).wrapping_sub(index(i));
            i += 1;
            if i == N {
                state[0] = state[N - 1];
                i = 1;
            }
        }
        state[0] = 1 << 31;
        Self { state, at: N }
    }

    fn word(&mut self) -> u32 {
        if self.at == N {
            for i in 0..N {
                let mixed = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
                let odd = if mixed & 1 == 0 { 0 } else { 0x9908_b0df };
                self.state[i] = self.state[(i + M) % N] ^ (mixed >> 1) ^ odd;
            }
            self.at = 0;
        }
        let mut word = self.state[self.at];
        self.at += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// Returns a number below `end`, which is at least 1 and below 2^32.
    fn below(&mut self, end: u32) -> u32 {
        let bits = u32::BITS - end.leading_zeros();
        loop {
            let number = self.word() >> (u32::BITS - bits);
            if number < end {
                return number;
            }
        }
    }

    /// Shuffles as `random.shuffle`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] for 2^32 items and more.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) -> Result<()> {
        for i in (1..items.len()).rev() {
            let end = u32::try_from(i + 1)
                .map_err(|_| Error::limit("too-many-entities", "too many names to shuffle as Python does"))?;
            items.swap(i, self.below(end) as usize);
        }
        Ok(())
    }
}

fn index(i: usize) -> u32 {
    u32::try_from(i).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Python 3.11: `random.seed(n); x = list(range(10)); random.shuffle(x)`.
    #[test]
    fn shuffles_as_python() {
        for (seed, expected) in SHUFFLED {
            let mut items: Vec<u32> = (0..10).collect();
            Twister::seeded(seed).shuffle(&mut items).unwrap();
            assert_eq!(items, expected, "{seed}");
        }
    }

    const SHUFFLED: [(u64, [u32; 10]); 3] = [
        (0, [7, 8, 1, 5, 3, 4, 2, 0, 9, 6]),
        (8, [8, 2, 9, 4, 0, 7, 1, 6, 5, 3]),
        (1099511627781, [1, 2, 3, 6, 7, 0, 5, 4, 9, 8]),
    ];
}
