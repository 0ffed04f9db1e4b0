"""Numbers, arrays and a barrier in shared memory, for separately started processes.

shardmill itself does not use shared memory. These classes are for programs that coordinate their own processes.
"""

from __future__ import annotations

from shardmill.base.shared.array import SharedArray
from shardmill.base.shared.barrier import SharedBarrier
from shardmill.base.shared.memory import SharedMemory
from shardmill.base.shared.prefix import _get_path, get_shm_prefix
from shardmill.base.shared.scalar import SharedScalar

__all__ = [
    'SharedArray',
    'SharedBarrier',
    'SharedMemory',
    'SharedScalar',
    '_get_path',
    'get_shm_prefix',
]
