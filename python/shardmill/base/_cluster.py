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


def cluster_of(peers: list[str], world: World) -> tuple[list[str], int, int, str]:
    """Returns the addresses, the number of this node, the number of nodes, and the secret of the run."""
    # Ranks of a mesh count those that receive different samples, while the launcher counts machines.
    launched = World.detect()
    if launched.is_multinode:
        world = launched
    return peers, world.node, world.num_nodes, os.environ.get('SHARDMILL_PEERS_TOKEN', '')
