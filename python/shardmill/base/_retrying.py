"""Retries functions that raise."""

from __future__ import annotations

import collections.abc
import functools
import logging
import random
from collections.abc import Sequence
from time import sleep
from typing import Any, Callable, Optional, TypeVar, Union, overload

from shardmill.base import _arguments as check

logger = logging.getLogger(__name__)

F = TypeVar('F', bound=Callable[..., Any])


@overload
def retry(
    exc_class: Union[type[Exception], Sequence[type[Exception]]] = ...,
    clean_up_fn: Optional[Callable[[], None]] = ...,
    num_attempts: int = ...,
    initial_backoff: float = ...,
    max_jitter: float = ...,
) -> Callable[[F], F]: ...


@overload
def retry(exc_class: F) -> F: ...


def retry(
    exc_class: Any = Exception,
    clean_up_fn: Optional[Callable[[], None]] = None,
    num_attempts: int = 3,
    initial_backoff: float = 1.0,
    max_jitter: float = 0.5,
) -> Any:
    """Decorates a function so that it is retried when it raises. Also works without parentheses: ``@retry``.

    Before attempt `n` (from 2 on) it waits ``initial_backoff * 2 ** (n - 2)`` seconds plus a random
    part of `max_jitter`.

    Args:
        exc_class: The exception or exceptions after which to retry.
        clean_up_fn: Called after each failed attempt.
        num_attempts: The maximum number of attempts.
        initial_backoff: Seconds before the second attempt.
        max_jitter: Maximum random seconds added to each wait.

    Raises:
        ValueError: `num_attempts` is not positive.
    """
    num_attempts = check.count('num_attempts', num_attempts, 1)
    initial_backoff = check.number('initial_backoff', initial_backoff)
    max_jitter = check.number('max_jitter', max_jitter)
    check.function('clean_up_fn', clean_up_fn)
    is_exception = isinstance(exc_class, type) and issubclass(exc_class, BaseException)
    is_several = isinstance(exc_class, collections.abc.Sequence)
    if not is_exception and not is_several:
        return retry()(exc_class)
    caught = tuple(exc_class) if is_several else exc_class

    def decorate(func: F) -> F:
        @functools.wraps(func)
        def trying(*args: Any, **kwargs: Any) -> Any:
            for attempt in range(1, num_attempts + 1):
                try:
                    return func(*args, **kwargs)
                except caught as error:
                    logger.debug('attempt %d of %d failed: %s', attempt, num_attempts, error)
                    if clean_up_fn is not None:
                        clean_up_fn()
                    if attempt == num_attempts:
                        raise
                sleep(initial_backoff * 2 ** (attempt - 1) + random.random() * max_jitter)
            raise AssertionError('there is at least one attempt')

        return trying  # type: ignore[return-value]

    return decorate
