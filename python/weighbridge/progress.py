"""Progress of long work: values of `progress=`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional, Union

from .errors import wrong_type

Progress = Union[None, bool, Callable[[int, int], Any]]
"""`None`, `True` for a progress bar, or a function called with the bytes done and the total bytes."""


@contextmanager
def callback(progress: Progress) -> Iterator[Optional[Callable[[int, int], Any]]]:
    """Yields the function to call for `progress`. `True` is a `tqdm` bar, or nothing if `tqdm` is not installed.

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
