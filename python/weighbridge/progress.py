"""Progress of long work: what `progress=` takes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional, Union

from .errors import wrong_type

Progress = Union[None, bool, Callable[[int, int], Any]]
"""Nothing, `True` for a bar, or a function that is called with the bytes that are done and those that there
are.
"""


@contextmanager
def callback(progress: Progress) -> Iterator[Optional[Callable[[int, int], Any]]]:
    """The function to call for `progress`. `True` is a bar of `tqdm`, where that is installed, and else
    nothing.

    >>> with callback(print) as tell:
    ...     tell(1, 2)
    1 2
    """
    if progress is None or progress is False:
        yield None
    elif progress is True:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            yield None
            return
        with tqdm(unit="B", unit_scale=True, unit_divisor=1024) as bar:

            def tell(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            yield tell
    elif callable(progress):
        yield progress
    else:
        wrong_type("progress", "True, or a function of two numbers", progress, code="bad-progress")
