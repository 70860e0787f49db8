//! Casts of PaddlePaddle versions, compared with their results. The tables were made by `testdata/cast/make.py`.

use crate::support::testdata;
use weighbridge::TensorEntry;
use weighbridge::tensor::{Cast, DType, Order, Rounding};

fn table(name: &str) -> TensorEntry {
    weighbridge::formats::open(testdata("cast").join(name)).unwrap().tensors.remove(0)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().rev().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn casts_are_bit_identical_to_paddle() {
    let mut values = 0;
    for (from, targets) in [
        (DType::F64, &[DType::F16, DType::BF16, DType::F32][..]),
        (DType::F32, &[DType::F16, DType::BF16]),
        (DType::F16, &[DType::BF16, DType::F32]),
        (DType::BF16, &[DType::F16, DType::F32]),
    ] {
        for &to in targets {
            for (rounding, version) in
                [(Rounding::Paddle262, "paddle262"), (Rounding::Paddle331, "paddle331")]
            {
                let mut entry = table(&format!("{from}.npy"));
                let inputs = entry.read_tensor(Order::Row).unwrap();
                entry.stored = from;
                entry.cast = Some(Cast { to, rounding });
                let found = entry.read_tensor(Order::Row).unwrap();
                let truth = table(&format!("{from}_to_{to}_{version}.npy")).read_tensor(Order::Row).unwrap();
                assert_eq!(found.len(), truth.len());
                let (before, after) = (from.size().unwrap(), to.size().unwrap());
                let pairs = found.chunks(after).zip(truth.chunks(after)).zip(inputs.chunks(before));
                for ((found, truth), input) in pairs {
                    assert_eq!(hex(found), hex(truth), "{from} {} to {to} as {version}", hex(input));
                    values += 1;
                }
            }
        }
    }
    assert!(values > 40_000, "{values}");
}

/// The tables differ from each other and from rounding to nearest, so that the test above can fail.
#[test]
fn the_versions_differ() {
    let bits = |rounding| {
        let mut entry = table("f32.npy");
        entry.stored = DType::F32;
        entry.cast = Some(Cast { to: DType::BF16, rounding });
        entry.read_tensor(Order::Row).unwrap()
    };
    let [nearest, old, new] = Rounding::ALL.map(bits);
    assert!(nearest != old && nearest != new && old != new);
}
