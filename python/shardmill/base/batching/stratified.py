"""Batching in which each global batch has the same share of each stream."""

from __future__ import annotations

from shardmill.base.batching._methods import batching_by

__all__ = ['generate_work_stratified_batching']

generate_work_stratified_batching = batching_by(
    'stratified',
    'Gives each global batch the same share of each stream. Resumes only after a whole global batch.',
)
