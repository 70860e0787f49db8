//! Mutations of bytes.

use crate::random::Random;

/// Sign bits, boundary values, and tags of MessagePack, pickles and protobuf.
const BYTES: [u8; 24] = [
    0, 1, 2, 0x7f, 0x80, 0x81, 0x8f, 0x90, 0x9f, 0xa0, 0xc4, 0xc6, 0xca, 0xce, 0xcf, 0xd9, 0xdb, 0xdc, 0xdd,
    0xde, 0xdf, 0xfe, 0xff, b'"',
];
const NUMBERS: [u64; 26] = [
    0,
    1,
    2,
    7,
    8,
    9,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x3fff_ffff,
    0x4000_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    100_000_000,
    0x1fff_ffff_ffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_fff8,
    0xffff_ffff_ffff_ffff,
];

/// Applies one mutation to `bytes`; returns its name.
pub(crate) fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) -> &'static str {
    let len = bytes.len();
    if len == 0 {
        bytes.push(random.byte());
        return "grow";
    }
    // A quarter of the mutations are in the first 64 bytes, the usual place of counts.
    let place = if random.below(4) == 0 { random.below(len.min(64)) } else { random.below(len) };
    let short = 1 + random.below(32);
    let end = len.min(place + short);
    match random.below(12) {
        0 => {
            bytes[place] ^= 1 << random.below(8);
            "flip a bit"
        }
        1 => {
            bytes[place] = random.pick(&BYTES);
            "set a byte"
        }
        2 => {
            bytes[place] = random.byte();
            "change a byte"
        }
        3 | 4 => {
            let width = random.pick(&[2, 4, 4, 8, 8]).min(len - place);
            let rest = (len - place - width) as u64;
            let number = if random.below(4) == 0 { rest } else { random.pick(&NUMBERS) };
            let number: Vec<u8> = if random.below(2) == 0 {
                number.to_le_bytes()[..width].to_vec()
            } else {
                number.to_be_bytes()[8 - width..].to_vec()
            };
            bytes[place..place + width].copy_from_slice(&number);
            "write a number"
        }
        5 => {
            bytes.truncate(place);
            "truncate"
        }
        6 => {
            let new: Vec<u8> = (0..short).map(|_| random.pick(&BYTES)).collect();
            bytes.splice(place..place, new);
            "insert"
        }
        7 => {
            bytes.drain(place..end);
            "delete"
        }
        8 => {
            let slice = bytes[place..end].to_vec();
            bytes.splice(place..place, slice);
            "duplicate a slice"
        }
        9 => {
            let slice = bytes[place..end].to_vec();
            let to = random.below(len - slice.len() + 1);
            bytes[to..to + slice.len()].copy_from_slice(&slice);
            "copy a slice elsewhere"
        }
        10 => {
            bytes.truncate(place);
            bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
            "splice another file"
        }
        _ => {
            // For text formats: the result stays text.
            let digits: Vec<usize> = (0..len).filter(|&i| bytes[i].is_ascii_digit()).collect();
            let Some(&at) = digits.get(random.below(digits.len())) else { return "nothing" };
            if random.below(2) == 0 {
                bytes[at] = b'0' + random.byte() % 10;
            } else {
                let run = bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
                let number = random.pick(&NUMBERS).to_string();
                bytes.splice(at..at + run, number.into_bytes());
            }
            "change a digit"
        }
    }
}
