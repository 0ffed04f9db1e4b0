"""Uploads files to stores and downloads files from them."""

from __future__ import annotations

from shardmill.base.storage import download, upload
from shardmill.base.storage.download import *
from shardmill.base.storage.upload import *

__all__ = download.__all__ + upload.__all__
