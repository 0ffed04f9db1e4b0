"""Batching in which each global batch comes from one stream."""

from __future__ import annotations

from shardmill.base.batching._methods import batching_by

__all__ = ['generate_work_per_stream_batching']

generate_work_per_stream_batching = batching_by(
    'per_stream',
    'Takes each global batch from one stream. Resumes only after a whole global batch.',
)
