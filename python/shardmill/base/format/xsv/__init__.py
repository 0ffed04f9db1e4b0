"""Separated values without quotes, with samples in one file and the offset table in another."""

from __future__ import annotations

from shardmill.base.format.xsv.reader import CSVReader, TSVReader, XSVReader
from shardmill.base.format.xsv.writer import CSVWriter, TSVWriter, XSVWriter

__all__ = ['CSVReader', 'CSVWriter', 'TSVReader', 'TSVWriter', 'XSVReader', 'XSVWriter']
