"""Batching that mixes all streams."""

from __future__ import annotations

from shardmill.base.batching._methods import batching_by

__all__ = ['generate_work_random_batching']

generate_work_random_batching = batching_by('random', 'Mixes all streams.')
