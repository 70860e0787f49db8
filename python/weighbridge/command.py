"""The command `weighbridge`, as the package installs it: the same code as the program's."""

from __future__ import annotations

import signal
import sys
from typing import Optional, Sequence

from ._weighbridge import command


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the command on the standard streams; returns its exit code. Without `arguments` it takes those of the process.

    For answers in Python take the functions of the package: `weighbridge.info` and so on.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Python's own handler waits for Python code to run; the command ends at once, or tidies up as it knows to. Where
    # whoever started it ignores the signal, so does the command.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return command(given)
