"""A driver that is killed when all its tasks have written and nothing is committed.

    python killed.py PLACE
"""

from __future__ import annotations

import os
import signal
import sys

import ray
import ray.data

from shardmill.ray import MDSDatasink


class KilledSink(MDSDatasink):
    def on_write_complete(self, write_result):
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    ray.init(
        num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False, object_store_memory=150 << 20
    )
    ray.data.range(100, override_num_blocks=3).write_datasink(KilledSink(sys.argv[1], mode="append"))
