"""The extension module: the functions of the Rust crates for the package. Each stub file describes a Rust file,
which documents the functions.

It raises the errors of `shardmill.errors`.
"""

from shardmill._core.batches import *
from shardmill._core.block import *
from shardmill._core.codec import *
from shardmill._core.fields import *
from shardmill._core.lengths import *
from shardmill._core.lineage import *
from shardmill._core.options import *
from shardmill._core.order import *
from shardmill._core.parts import *
from shardmill._core.ranges import *
from shardmill._core.reader import *
from shardmill._core.storage import *
from shardmill._core.table import *
from shardmill._core.tokens import *
from shardmill._core.videos import *
from shardmill._core.view import *
from shardmill._core.writer import *

__version__: str
