"""The nodes of a run that share their caches."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Optional

from shardmill.base import _arguments as check
from shardmill.base.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence


def given_peers(peers: Optional[Sequence[str]]) -> Optional[list[str]]:
    """Returns the addresses of all nodes, from the argument or else the environment."""
    if peers is None:
        listed = os.environ.get('SHARDMILL_PEERS', '')
        return [peer.strip() for peer in listed.split(',')] if listed else None
    return list(check.instances('peers', peers, str))


#: The files of encrypted connections: the certificate of this node, its key, and the authorities of the other nodes.
_TLS_FILES = ('SHARDMILL_PEERS_CERT', 'SHARDMILL_PEERS_KEY', 'SHARDMILL_PEERS_CA')

#: The addresses of all nodes, the number of this node, the number of nodes, their secret, and the files of TLS.
Cluster = tuple[list[str], int, int, str, Optional[list[str]]]


def cluster_of(peers: list[str], world: World) -> Cluster:
    """Returns what the nodes of the run know of each other."""
    # Ranks of a mesh count those that receive different samples, while the launcher counts machines.
    launched = World.detect()
    if launched.is_multinode:
        world = launched
    files = [os.environ.get(name, '') for name in _TLS_FILES]
    token = os.environ.get('SHARDMILL_PEERS_TOKEN', '')
    return peers, world.node, world.num_nodes, token, files if any(files) else None
