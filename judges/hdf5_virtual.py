"""h5py judges what Weighbridge reads of virtual datasets of HDF5.

    python judges/hdf5_virtual.py WEIGHBRIDGE [ROUNDS [SEED]]

Each round writes files of random sources and one of virtual datasets with random mappings, converts that to npz
with --follow-virtual, and compares the arrays with what h5py reads. Exit code 0: they agree on everything.
"""

import os
import random
import subprocess
import sys
import tempfile

import h5py
import numpy as np

DTYPES = ["<f4", ">f4", "<f8", "u1", ">i2", "<i8", "<c8", "?"]
VERSIONS = [None, ("earliest", "latest"), ("v112", "latest"), "latest"]
DATASETS = 12


def extents(dice):
    return tuple(dice.randint(1, 12) for _ in range(dice.randint(1, 3)))


def numbers(dice, dtype, shape):
    raw = np.random.default_rng(dice.getrandbits(32)).integers(0, 100, shape)
    return (raw % 2 if dtype == "?" else raw).astype(dtype)


def write_source(dice, file, name, dtype):
    """A dataset in one of the ways in which elements are kept."""
    shape = extents(dice)
    way = dice.randrange(5)
    options = {}
    if way > 1:
        options["chunks"] = tuple(dice.randint(1, n) for n in shape)
    if way > 2:
        options.update(compression="gzip", shuffle=dice.random() < 0.5, fletcher32=dice.random() < 0.5)
    if way == 4:
        # Never written, but for one element.
        fill = None if dtype in ("?", "<c8") else 1
        file.create_dataset(name, shape, dtype, fillvalue=fill, **options)[(0,) * len(shape)] = 0
    else:
        file.create_dataset(name, data=numbers(dice, dtype, shape), **options)
    return shape


def mask_of(shape, slabs):
    mask = np.zeros(shape, bool)
    for start, stride, count, block in slabs:
        axes = [np.ravel(a + s * np.arange(c)[:, None] + np.arange(b)) for a, s, c, b in zip(start, stride, count, block)]
        mask[np.ix_(*axes)] = True
    return mask


def space_of(shape, slabs):
    space = h5py.h5s.create_simple(shape)
    for n, (start, stride, count, block) in enumerate(slabs):
        space.select_hyperslab(start, count, stride, block, op=h5py.h5s.SELECT_OR if n else h5py.h5s.SELECT_SET)
    return space


def slab(dice, shape):
    """Blocks at equal distances within the shape."""
    start, stride, count, block = [], [], [], []
    for extent in shape:
        size = dice.randint(1, extent)
        first = dice.randint(0, extent - size)
        step = dice.randint(size, size + 3)
        start.append(first)
        block.append(size)
        stride.append(step)
        count.append(dice.randint(1, (extent - first - size) // step + 1))
    return tuple(start), tuple(stride), tuple(count), tuple(block)


def first_of(mask, most):
    """The first places of a mask, run by run of a row."""
    slabs, left = [], most
    for row in np.ndindex(mask.shape[:-1]):
        at = 0
        while left and at < mask.shape[-1]:
            if not mask[row][at]:
                at += 1
                continue
            end = at
            while end < mask.shape[-1] and mask[row][end] and end - at < left:
                end += 1
            ones = (1,) * len(mask.shape)
            slabs.append((row + (at,), ones, ones, (1,) * len(row) + (end - at,)))
            left -= end - at
            at = end
    return slabs


def selections(dice, source, own):
    """Two selections of equally many elements."""
    kind = dice.randrange(4)
    if kind == 0 and np.prod(source) == np.prod(own):
        spaces = [h5py.h5s.create_simple(shape) for shape in (source, own)]
        for space in spaces:
            space.select_all()
        return spaces
    sides = [[slab(dice, shape) for _ in range(dice.choice([1, 1, 2, 3]))] for shape in (source, own)]
    counts = [int(mask_of(shape, slabs).sum()) for shape, slabs in zip((source, own), sides)]
    spaces = []
    for shape, slabs, count in zip((source, own), sides, counts):
        if count > min(counts):
            slabs = first_of(mask_of(shape, slabs), min(counts))
        spaces.append(space_of(shape, slabs))
    # HDF5 may join hyperslabs to a regular one of fewer elements, and refuses to read what was mapped so.
    joined = [space.get_regular_hyperslab() for space in spaces if space.is_regular_hyperslab()]
    if any(np.prod(count) * np.prod(block) != min(counts) for _, _, count, block in joined):
        return selections(dice, source, own)
    return spaces


def make(dice, folder):
    main = os.path.join(folder, "all.h5")
    shapes = {dtype: [] for dtype in DTYPES}
    version = dice.choice(VERSIONS)
    with h5py.File(main, "w", libver=version) as own:
        for number, name in enumerate(["a.h5", "b 100%.h5", "."]):
            file = own if name == "." else h5py.File(os.path.join(folder, name), "w", libver=dice.choice(VERSIONS))
            for place, dtype in enumerate(DTYPES):
                path = f"sources/{number}/{place}"
                shapes[dtype].append((name.replace("%", "%%"), path, write_source(dice, file, path, dtype)))
            if name != ".":
                file.close()
        for number in range(DATASETS):
            dtype, shape = dice.choice(DTYPES), extents(dice)
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            if dice.random() < 0.7 and dtype != "?":
                plist.set_fill_value(np.array(77, dtype))
            if dice.random() < 0.2:
                plist.set_fill_time(dice.choice([h5py.h5d.FILL_TIME_ALLOC, h5py.h5d.FILL_TIME_IFSET]))
            for _ in range(dice.choice([1, 1, 2, 3, 6])):
                file, path, source = dice.choice(shapes[dtype])
                from_, to = selections(dice, source, shape)
                plist.set_virtual(to, file.encode(), path.encode(), from_)
            space = h5py.h5s.create_simple(shape)
            h5py.h5d.create(own.id, b"v%02d" % number, h5py.h5t.py_create(np.dtype(dtype), logical=True), space, plist)
    return main


def judge(binary, rounds, seed):
    """How many datasets were compared, and what is wrong with them."""
    compared, wrong = 0, []
    for number in range(seed, seed + rounds):
        dice = random.Random(number)
        with tempfile.TemporaryDirectory() as folder:
            main, target = make(dice, folder), os.path.join(folder, "out.npz")
            done = subprocess.run([binary, "convert", main, target, "--follow-virtual", "--deny-loss", "--select", "v*"],
                                  capture_output=True, text=True)
            if done.returncode:
                wrong.append(f"round {number}: {done.stderr.strip()}")
                continue
            with np.load(target) as found, h5py.File(main) as file:
                for name in (name for name in file if name.startswith("v")):
                    compared += 1
                    # Where mappings overlap, HDF5 may leave elements without one as they are in memory.
                    data = np.full(file[name].shape, file[name].fillvalue, file[name].dtype)
                    file[name].read_direct(data)
                    same = name in found and found[name].dtype.newbyteorder("=") == data.dtype.newbyteorder("=")
                    if not (same and np.array_equal(found[name], data)):
                        wrong.append(f"round {number}: {name} differs")
    return compared, wrong


def main():
    binary, given = sys.argv[1], [int(number) for number in sys.argv[2:]]
    rounds, seed = (given + [100, 0][len(given):])[:2]
    compared, wrong = judge(binary, rounds, seed)
    for line in wrong:
        print("FAIL", line)
    print(f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}: {compared} virtual datasets, {len(wrong)} failures")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
