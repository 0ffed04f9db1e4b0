"""Separated values without quotes: samples in one file, offsets in another."""

from __future__ import annotations

from shardmill.base.format.xsv.reader import CSVReader, TSVReader, XSVReader
from shardmill.base.format.xsv.writer import CSVWriter, TSVWriter, XSVWriter

__all__ = ['CSVReader', 'CSVWriter', 'TSVReader', 'TSVWriter', 'XSVReader', 'XSVWriter']
