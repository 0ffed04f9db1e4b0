"""The packages of other providers, which are imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from shardmill.base.util import missing_package

__all__ = ['azure_credential', 'sdk']


def sdk(module: str, package: str) -> Any:
    """A module of a provider.

    Raises:
        ImportError: It is not installed; the message says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = missing_package(module, package)
        raise ImportError(message, name=error.name, path=error.path) from error


def azure_credential(key: str) -> Any:
    """The access key of an account, or without one what the machine is logged in with."""
    if key:
        return key
    identity = sdk('azure.identity', 'azure-identity')
    chain = (identity.AzureCliCredential(), identity.DefaultAzureCredential())
    return identity.ChainedTokenCredential(*chain)
