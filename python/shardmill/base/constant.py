"""Names and durations that programs written for ``streaming`` use.

shardmill itself does not use shared memory; the names are those that a run of ``streaming`` would use.
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

# Seconds between checks when waiting.
TICK = 0.007

# The default download timeout in seconds.
DEFAULT_TIMEOUT = 60.0
