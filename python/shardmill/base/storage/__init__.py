"""Uploads files to stores and downloads files from them."""

from __future__ import annotations

from shardmill.base.storage.download import (
    AlipanDownloader,
    AzureDataLakeDownloader,
    AzureDownloader,
    CloudDownloader,
    DatabricksUnityCatalogDownloader,
    DBFSDownloader,
    GCSDownloader,
    HFDownloader,
    LocalDownloader,
    OCIDownloader,
    S3Downloader,
    SFTPDownloader,
    download_file,
)
from shardmill.base.storage.upload import (
    AlipanUploader,
    AzureDataLakeUploader,
    AzureUploader,
    CloudUploader,
    DatabricksUnityCatalogUploader,
    DBFSUploader,
    GCSUploader,
    HFUploader,
    LocalUploader,
    OCIUploader,
    S3Uploader,
)

__all__ = [
    'AlipanDownloader',
    'AlipanUploader',
    'AzureDataLakeDownloader',
    'AzureDataLakeUploader',
    'AzureDownloader',
    'AzureUploader',
    'CloudDownloader',
    'CloudUploader',
    'DBFSDownloader',
    'DBFSUploader',
    'DatabricksUnityCatalogDownloader',
    'DatabricksUnityCatalogUploader',
    'GCSDownloader',
    'GCSUploader',
    'HFDownloader',
    'HFUploader',
    'LocalDownloader',
    'LocalUploader',
    'OCIDownloader',
    'OCIUploader',
    'S3Downloader',
    'S3Uploader',
    'SFTPDownloader',
    'download_file',
]
