"""Makes the tables of this folder: bit patterns, and what Paddle casts them to.

Run with PaddlePaddle 2.6.2 and again with 3.3.1, each on the CPU: `python make.py`. Both write the same
inputs, and FROM_to_TO_VERSION.npy with the bits of the results. All arrays are unsigned integers, since
numpy has no bf16.
"""

import random

import numpy as np
import paddle

VERSION = {"2.6.2": "paddle262", "3.3.1": "paddle331"}[paddle.__version__]
DTYPES = {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64}
TARGETS = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
CASTS = {
    "f64": ["f16", "bf16", "f32"],
    "f32": ["f16", "bf16"],
    "f16": ["bf16", "f32"],
    "bf16": ["f16", "f32"],
}


def patterns(width, mantissa, count):
    """Edges of the exponents that matter, NaNs of many payloads, ties of both targets, random bits."""
    # Python's generator, which gives the same in every version; numpy's does not promise that.
    bits = random.Random(20240229).getrandbits
    exponents = 1 << (width - 1 - mantissa)
    bias = exponents // 2 - 1
    # Near the smallest and the largest values of f16, of bf16 and of f32, and where 3.3.1 slips.
    powers = (-150, -149, -134, -133, -127, -126, -90, -89, -83, -78, -77, -26, -25, -24, -23, -16, -15, -14, -13, 0, 14, 15, 16, 127, 128)
    interesting = {0, 1, exponents - 2, exponents - 1} | {power + bias for power in powers}
    fractions = {0, 1, (1 << mantissa) - 1, 1 << (mantissa - 1)}
    for kept in (7, 10):
        if kept < mantissa:
            drop = mantissa - kept
            half = 1 << (drop - 1)
            top = ((1 << kept) - 1) << drop
            for base in (0, 1 << drop, top):
                fractions |= {base + half - 1, base + half, base + half + 1, base + 2 * half - 1}
    values = [
        (exponent << mantissa) | fraction
        for exponent in sorted(e for e in interesting if 0 <= e < exponents)
        for fraction in sorted(fractions)
    ]
    values += [max(bits(mantissa), 1) | (exponents - 1) << mantissa for _ in range(60)]
    # Random values where the targets have theirs.
    lowest, highest = max(bias - 30, 0), min(bias + 20, exponents)
    for _ in range(count // 3):
        exponent = lowest + bits(32) % (highest - lowest)
        values.append((exponent << mantissa) | bits(mantissa))
    values = np.array(sorted(set(values)), np.uint64)
    values = np.concatenate([values, values | np.uint64(1 << (width - 1))])
    more = np.array([bits(width) for _ in range(max(count - len(values), 100))], np.uint64)
    return np.concatenate([values, more]).astype(f"<u{width // 8}")


def main():
    inputs = {
        "f64": patterns(64, 52, 2400),
        "f32": patterns(32, 23, 5000),
        "f16": patterns(16, 10, 1200),
        "bf16": patterns(16, 7, 1200),
    }
    for source, bits in inputs.items():
        np.save(f"{source}.npy", bits)
        given = paddle.to_tensor(bits.view(DTYPES[source]))
        for target in CASTS[source]:
            result = paddle.cast(given, TARGETS[target]).numpy()
            result = result.view(f"<u{result.dtype.itemsize}")
            # One by one it must be the same: no vector loop that rounds in its own way.
            alone = [paddle.cast(given[i : i + 1], TARGETS[target]).numpy().view(result.dtype)[0] for i in range(len(bits))]
            assert (np.array(alone) == result).all()
            np.save(f"{source}_to_{target}_{VERSION}.npy", result)


main()
