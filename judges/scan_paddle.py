"""Judges `weighbridge scan` as a gate: a model that Paddle has just saved passes it, and `--deny privacy` refuses its source.

    python judges/scan_paddle.py WEIGHBRIDGE

Needs Paddle. The program that `paddle.jit.save` writes has source paths and stack traces of the code around it, or the
names of its classes.
"""

import json
import subprocess
import sys
import tempfile

import paddle
from paddle import nn


class Net(nn.Layer):
    """A model of two layers."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 4)
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(nn.functional.relu(self.first(x)))


def scan(weighbridge, folder, *more):
    """The exit code and the findings."""
    done = subprocess.run([weighbridge, "scan", "--json", folder, *more], capture_output=True, check=False)
    return done.returncode, [f for file in json.loads(done.stdout)["files"] for f in file["findings"]]


def main(weighbridge):
    with tempfile.TemporaryDirectory() as folder:
        net = Net()
        spec = [paddle.static.InputSpec([None, 8], "float32")]
        paddle.jit.save(net, f"{folder}/model", input_spec=spec)
        paddle.save(net.state_dict(), f"{folder}/model.pdparams")
        code, findings = scan(weighbridge, folder)
        private = [f for f in findings if f["category"] == "privacy"]
        assert code == 0, (code, findings)
        assert private and all(f["severity"] == "warning" for f in private), findings
        code, findings = scan(weighbridge, folder, "--deny", "privacy")
        assert code == 1, (code, findings)
        print(f"Paddle {paddle.__version__}: a fresh model passes, with {len(private)} warnings")


if __name__ == "__main__":
    main(sys.argv[1])
