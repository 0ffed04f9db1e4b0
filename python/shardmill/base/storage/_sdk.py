"""Imports the SDKs of other providers on first use."""

from __future__ import annotations

import importlib
from typing import Any

from shardmill.base.util import missing_package

__all__ = ['azure_credential', 'sdk']


def sdk(module: str, package: str) -> Any:
    """Imports a module of a provider.

    Raises:
        ImportError: It is not installed; the message names the package to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = missing_package(module, package)
        raise ImportError(message, name=error.name, path=error.path) from error


def azure_credential(key: str) -> Any:
    """Returns the access key of an account, or otherwise the credentials of the machine."""
    if key:
        return key
    identity = sdk('azure.identity', 'azure-identity')
    chain = (identity.AzureCliCredential(), identity.DefaultAzureCredential())
    return identity.ChainedTokenCredential(*chain)
