"""Batching in which each batch of a rank comes from one stream."""

from __future__ import annotations

from shardmill.base.batching._methods import batching_by

__all__ = ['generate_work_device_per_stream_batching']

generate_work_device_per_stream_batching = batching_by(
    'device_per_stream',
    'Takes each batch of a rank from one stream. Resumes only after a whole global batch.',
)
