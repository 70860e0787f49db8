"""The command `weighbridge` as the package installs it. It runs the same code as the program."""

from __future__ import annotations

import signal
import sys
from typing import Optional, Sequence

from ._weighbridge import command


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the command on the standard streams; returns its exit code. `arguments` defaults to those of the process.

    To use results in Python, call the functions of the package instead: `weighbridge.info` and so on.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Python's handler runs only with Python code; the default action lets the command end or clean up immediately. A signal
    # that the parent process ignores stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return command(given)
