"""Golden files of Darknet, written as save_weights of Darknet does: testdata/darknet.

    python judges/make_darknet.py

Needs: numpy. The package is not published, and its files are numbers after a header; `judges/darknet_judge.py` loads all of them with OpenCV.
`expected.json` has the tensors: shape and elements.
"""
import hashlib
import json
import pathlib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "darknet"
GOOD, BAD = ROOT / "good", ROOT / "bad"
NET = "[net]\n# a comment\nwidth=16\nheight=16\nchannels=3\n"


def values(shape, seed):
    return np.random.RandomState(seed).standard_normal(shape).astype("<f4")


class Net:
    """Sections of a network, with the tensors of each layer in the order of save_weights."""

    def __init__(self, net=NET):
        self.text, self.count, self.tensors, self.seed = net, 0, [], 0

    def layer(self, kind, **options):
        self.text += f"\n[{kind}]\n" + "".join(f"{key}={value}\n" for key, value in options.items())
        self.count += 1
        return self

    def tensor(self, prefix, **shapes):
        for name, shape in shapes.items():
            self.seed += 1
            data = values(shape, self.seed)
            self.tensors.append((f"{prefix}_{self.count - 1}.{name}", np.abs(data) + 0.5 if name == "variance" else data))
        return self

    def conv(self, filters, channels, size, normalize=True, **more):
        self.layer("convolutional", **({"batch_normalize": 1} if normalize else {}), filters=filters, size=size, stride=more.pop("stride", 1), pad=1, activation="leaky", **more)
        norm = {"scale": (filters,), "mean": (filters,), "variance": (filters,)} if normalize else {}
        return self.tensor("conv", bias=(filters,), **norm, weight=(filters, channels, size, size))

    def connected(self, outputs, inputs, normalize=False):
        self.layer("connected", output=outputs, activation="linear", **({"batch_normalize": 1} if normalize else {}))
        norm = {"scale": (outputs,), "mean": (outputs,), "variance": (outputs,)} if normalize else {}
        return self.tensor("connected", bias=(outputs,), weight=(outputs, inputs), **norm)

    def weights(self, version=(0, 2, 5), seen=32013312):
        wide = version[0] * 10 + version[1] >= 2
        head = np.array(version, "<i4").tobytes() + np.array([seen], "<u8" if wide else "<u4").tobytes()
        return head + b"".join(data.tobytes() for _, data in self.tensors)


def yolo(net):
    return net.layer("yolo", mask="0,1", anchors="10,14, 23,27", classes=2, num=2)


def tiny():
    net = Net().conv(4, 3, 3).layer("maxpool", size=2, stride=2).conv(6, 4, 3).layer("maxpool", size=2, stride=2)
    return yolo(net.conv(14, 6, 1, normalize=False))


def residual():
    net = Net().conv(4, 3, 3, stride=2).conv(2, 4, 1).conv(4, 2, 3).layer("shortcut", **{"from": -3, "activation": "linear"})
    net = net.layer("route", layers="-1,-3").conv(4, 6, 1).layer("upsample", stride=2).layer("route", layers=-2)
    return yolo(net.layer("route", layers="-1", groups=2, group_id=1).conv(14, 2, 1, normalize=False))


def grouped():
    return Net().conv(6, 3, 3).conv(6, 1, 3, groups=6).conv(4, 6, 1).layer("avgpool").layer("softmax", groups=1)


def reorg():
    net = Net().conv(4, 3, 3).layer("reorg", stride=2).conv(14, 16, 1, normalize=False)
    return net.layer("region", anchors="1,2, 3,4", classes=2, num=2, coords=4, softmax=1)


def classifier():
    net = Net().conv(4, 3, 3).layer("maxpool", size=2, stride=2).layer("dropout", probability=".5")
    return net.connected(5, 4 * 8 * 8).layer("softmax", groups=1)


def normalized():
    net = Net().layer("batchnorm").tensor("batchnorm", bias=(3,), scale=(3,), mean=(3,), variance=(3,))
    return net.connected(5, 3 * 16 * 16, normalize=True)


def local():
    net = Net().layer("local", filters=2, size=3, stride=1, pad=1, activation="linear")
    net = net.tensor("local", bias=(2 * 16 * 16,), weight=(16 * 16, 2, 3, 3, 3))
    net = net.layer("shortcut", **{"from": -1, "weights_type": "per_channel", "activation": "linear"})
    return net.tensor("shortcut", weight=(2, 2))


def inputs():
    return Net("[network]\ninputs=12\n").connected(6, 12).connected(3, 6)


def old():
    return Net().conv(4, 3, 3).conv(2, 4, 1)


# Versions before 0.2 count images in 4 bytes.
FILES = {"tiny": tiny, "residual": residual, "grouped": grouped, "reorg": reorg, "classifier": classifier, "normalized": normalized, "local": local, "inputs": inputs, "old": old}
VERSIONS = {"old": (0, 1, 0), "grouped": (0, 2, 0)}


def damage():
    net = tiny()
    data = net.weights()

    def write(name, data, text=net.text):
        (BAD / f"{name}.weights").write_bytes(data)
        if text is not None:
            (BAD / f"{name}.cfg").write_text(text)

    write("truncated", data[:-24])
    write("longer", data + data[:40])
    write("alone", data, None)
    write("newer", np.array([2000], "<i4").tobytes() + data[4:])
    write("unknown-layer", data, net.text + "[gru]\noutput=3\n")
    write("no-network", data, net.text.replace("[net]", "[convolutional]"))
    write("bad-option", data, net.text.replace("filters=4", "filters=four"))
    write("negative", data, net.text.replace("filters=4", "filters=-4"))
    write("no-stride", data, net.text.replace("stride=1", "stride=0"))
    write("far-route", data, net.text + "[route]\nlayers=-99\n")
    write("unclosed", data, net.text.replace("[maxpool]", "[maxpool"))


def main():
    GOOD.mkdir(parents=True, exist_ok=True)
    BAD.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name, make in FILES.items():
        net = make()
        (GOOD / f"{name}.cfg").write_text(net.text)
        (GOOD / f"{name}.weights").write_bytes(net.weights(VERSIONS.get(name, (0, 2, 5))))
        expected[name] = {key: {"shape": list(data.shape), "sha256": hashlib.sha256(data.tobytes()).hexdigest()} for key, data in net.tensors}
    damage()
    (ROOT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
