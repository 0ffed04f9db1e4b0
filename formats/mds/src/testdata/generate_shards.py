"""Writes the vectors of shards, hashes and compressions; needs mosaicml-streaming 0.13.0.

    python3 generate_shards.py hashes > hashes.txt
    python3 generate_shards.py compressed > compressed.txt
    python3 generate_shards.py datasets > datasets.txt
"""

import os
import random
import sys
import tempfile

import numpy as np
from streaming import CSVWriter, JSONWriter, MDSWriter, TSVWriter, XSVWriter
from streaming.base.compression import compress, get_compressions
from streaming.base.hashing import get_hash, get_hashes
from streaming.base.util import merge_index


def hexed(data):
    return data.hex() or '-'


def hashes():
    print('# algorithm, hex, digest')
    for algo in sorted(get_hashes()):
        for data in b'', b'abc', bytes(i * 7 % 256 for i in range(300)):
            print(algo, hexed(data), get_hash(algo, data))


def compressed():
    print('# compression, raw, compressed')
    text = b'shard ' * 40 + b'\x00\xff'
    noise = random.Random(1).randbytes(40)
    for algo in sorted(get_compressions()):
        for data in b'', text, noise:
            print(algo, hexed(data), hexed(compress(algo, data)))


def write(writer, columns, samples, **options):
    """Writes one dataset and prints its files."""
    with tempfile.TemporaryDirectory() as out:
        with writer(out=out, columns=columns, **options) as dataset:
            for sample in samples:
                dataset.write(sample)
        show(out)


def show(out):
    names = []
    for folder, _, files in os.walk(out):
        names += [os.path.relpath(os.path.join(folder, name), out) for name in files]
    for name in sorted(names, key=lambda name: (name != 'index.json', name)):
        with open(os.path.join(out, name), 'rb') as file:
            print('index' if name == 'index.json' else name, hexed(file.read()))


def datasets():
    print('# "dataset" and its name, then its index and its files: name, hex')
    dice = random.Random(2)
    words = ['', 'a', 'hello', 'é', '\u6f22\u5b57', '\U0001f600', '"quoted"', 'back\\slash', 'x' * 70]

    print('dataset worked-example')
    write(MDSWriter, {'b': 'str', 'a': 'int32'}, [{'b': 'hi', 'a': 1}, {'a': -2, 'b': ''}], hashes=['sha1', 'xxh64'])

    print('dataset empty')
    write(MDSWriter, {'a': 'int'}, [])

    print('dataset empty-first-shard')
    write(MDSWriter, {'a': 'bytes'}, [{'a': bytes([i]) * 10} for i in range(3)], size_limit=10)

    print('dataset exact-limit')
    # 8 + 4 * 3 + config + 3 * (4 + 50): three samples just fit.
    write(MDSWriter, {'a': 'bytes'}, [{'a': bytes([i]) * 50} for i in range(7)], size_limit=8 + 12 + 163 + 162)

    print('dataset encodings')
    columns = {
        'é\n': 'str', 'Z': 'int', 'a"': 'uint8', 'f': 'float64', 'n': 'ndarray:int16:2,3', 'N': 'ndarray',
        'j': 'json', 'i': 'str_int', 's': 'str_float', 'J': 'jpegarray', 'b': 'bytes', 'd': 'ndarray:float32',
    }
    samples = [{
        'é\n': dice.choice(words), 'Z': dice.randrange(-9, 9), 'a"': dice.randrange(256), 'f': dice.random(),
        'n': np.arange(6, dtype=np.int16).reshape(2, 3), 'N': np.ones((i + 1, 2), np.uint8),
        'j': {'x': [1, None, float('nan')]}, 'i': 10 ** i, 's': dice.random(), 'J': [b'AA', b'B' * i],
        'b': dice.randbytes(i), 'd': np.zeros(i + 1, np.float32),
    } for i in range(6)]
    write(MDSWriter, columns, samples, size_limit=1500, hashes=['blake2s', 'md5', 'xxh32'])

    for algo in 'br:3', 'bz2', 'gz:5', 'snappy', 'zstd', 'zstd:19':
        print('dataset compression-' + algo)
        write(MDSWriter, {'t': 'str'}, [{'t': dice.choice(words) * 9} for _ in range(12)], compression=algo,
              hashes=['sha256', 'xxh3_64'], size_limit=600)

    text = {'s': 'str', 'i': 'int', 'f': 'float', 'É': 'str'}
    samples = [{
        's': dice.choice(words), 'i': dice.choice([0, -7, 10 ** 30, 2 ** 63 - 1, -2 ** 63]),
        'f': dice.choice([0.1, 1e16, -0.0, 1e-5, float('inf'), float('-inf'), 1.5]), 'É': dice.choice(words),
    } for _ in range(20)]
    print('dataset json')
    write(JSONWriter, text, samples, size_limit=400, hashes=['sha1'])
    print('dataset json-compressed')
    write(JSONWriter, text, samples, compression='zstd:7', newline='\r\n')
    print('dataset json-empty-first-shard')
    write(JSONWriter, {'s': 'str'}, [{'s': 'x' * 50}] * 2, size_limit=20)
    print('dataset csv')
    write(CSVWriter, text, samples, size_limit=300, hashes=['md5', 'sha1'])
    print('dataset tsv')
    write(TSVWriter, text, samples, newline='\r\n')
    print('dataset xsv')
    write(XSVWriter, text, samples, separator='<=>', compression='gz', size_limit=250)

    print('dataset merged')
    with tempfile.TemporaryDirectory() as out:
        for part, limit in ('a', 200), ('b', None):
            with MDSWriter(out=f'{out}/{part}', columns={'a': 'int'}, size_limit=limit) as dataset:
                for i in range(8):
                    dataset.write({'a': i})
        merge_index(out, keep_local=True)
        show(out)


if __name__ == '__main__':
    {'hashes': hashes, 'compressed': compressed, 'datasets': datasets}[sys.argv[1]]()
