"""Names and times that programs written for ``streaming`` know.

shardmill itself keeps nothing in shared memory; the names are those that a run of ``streaming``
would use.
"""

from __future__ import annotations

LOCALS = 'locals'
BARRIER = 'barrier'
NEXT_EPOCH = 'next_epoch'
CACHE_USAGE = 'cache_usage'
SHARD_STATES = 'shard_states'
SHARD_ACCESS_TIMES = 'shard_access_times'
RESUME = 'resume'
EPOCH_SHAPE = 'epoch_shape'
EPOCH_DATA = 'epoch_data'

# Every shared memory block of a run, without its prefix.
SHM_TO_CLEAN = [
    LOCALS,
    BARRIER,
    NEXT_EPOCH,
    CACHE_USAGE,
    SHARD_STATES,
    SHARD_ACCESS_TIMES,
    RESUME,
    EPOCH_SHAPE,
    EPOCH_DATA,
]

# Lock files in the temporary folder, without their prefix.
BARRIER_FILELOCK = 'barrier_filelock'
CACHE_FILELOCK = 'cache_filelock'

# Seconds between two looks at something that is waited for.
TICK = 0.007

# Seconds that a download may take.
DEFAULT_TIMEOUT = 60.0
