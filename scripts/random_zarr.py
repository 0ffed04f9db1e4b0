"""Converts windows of random Zarr stores, and compares every window with what xarray decodes.

Run it with the packages of `fixtures/xarray-2026.9.0/requirements.txt`: `python scripts/random_zarr.py --help`.
"""

import argparse
import functools
import http.server
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import xarray as xr
import zarr
from xarray.backends.zarr import FillValueCoder

WHOLE = ['i1', 'i2', 'i4', 'i8', 'u1', 'u2', 'u4', 'u8']
FLOATS = ['f2', 'f4', 'f8']
UNITS = ['nanoseconds', 'microseconds', 'milliseconds', 'seconds', 'minutes', 'hours', 'days', 'Hour', 'secs', 'd']
ORIGINS = ['1970-01-01', '1969-12-31 23:59:59', '2026-01-01T12:00:00Z', '1992-10-8 15:15:42.5 -6:00', '1-1-1 00:00:0.0',
           '1900-01-01 00:00:0.0', '1858-11-17 00:00 UTC', '1582-10-15', '1500-02-29 06:00:00', '2100-12-31']
CALENDARS = [None, None, 'standard', 'gregorian', 'Gregorian', 'proleptic_gregorian']
OTHER_CALENDARS = ['noleap', '365_day', '360_day', 'all_leap', '366_day', 'julian']


def stored_values(random, dtype, shape):
    dtype = np.dtype(dtype)
    if dtype.kind == 'f':
        return (random.normal(size=shape) * random.choice([1, 100, 30_000])).round(random.integers(6)).astype(dtype)
    info = np.iinfo(dtype)
    low, high = max(info.min, -2000), min(info.max, 2000)
    if random.random() < 0.1:
        low, high = info.min, info.max
    return random.integers(low, high, shape, dtype=dtype, endpoint=True)


def some(random, values):
    """Returns one of the values, or sometimes another number, for attributes that name missing ones."""
    value = random.choice(values.ravel())
    return value if random.random() < 0.8 else values.dtype.type(7)


def random_variable(random, shape, version):
    """Returns the stored values of a variable, its attributes and the fill value of version 2."""
    values = stored_values(random, random.choice(WHOLE + FLOATS), shape)
    attributes, fill = {}, None
    if random.random() < 0.5:
        fill = some(random, values) if values.dtype.kind != 'f' or random.random() < 0.5 else values.dtype.type('nan')
    if random.random() < 0.2:
        missing = [some(random, values).item() for _ in range(random.integers(1, 3))]
        attributes['missing_value'] = missing if len(missing) > 1 or random.random() < 0.3 else missing[0]
    kind = random.choice(['plain', 'packed', 'time', 'duration', 'other'], p=[0.2, 0.35, 0.25, 0.1, 0.1])
    if kind == 'packed' or random.random() < 0.1:
        if random.random() < 0.85:
            attributes['scale_factor'] = random.choice([0.1, 0.01, 1 / 3, 2.5, 1e-6]).item()
        if random.random() < 0.7:
            attributes['add_offset'] = random.choice([273.15, -1.0, 1e5]).item() if random.random() < 0.8 else 5
        if random.random() < 0.1:
            attributes['scale_factor'] = 3
    if values.dtype.kind in 'iu' and random.random() < 0.15:
        attributes['_Unsigned'] = 'true' if values.dtype.kind == 'i' else 'false'
    if kind == 'time':
        attributes['units'] = f'{random.choice(UNITS)} since {random.choice(ORIGINS)}'
        calendar = random.choice(CALENDARS if random.random() < 0.9 else OTHER_CALENDARS)
        if calendar:
            attributes['calendar'] = str(calendar)
    elif kind == 'duration':
        attributes['units'] = str(random.choice(UNITS[:7]))
        # Durations of NumPy's `float16` overflow in xarray.
        if random.random() < 0.7 and values.dtype != np.float16:
            attributes['dtype'] = f'timedelta64[{random.choice(["s", "ms", "us", "ns"])}]'
    elif kind == 'other':
        attributes['units'] = str(random.choice(['K', 'days accumulated', 'm s-1']))
        attributes['valid_range'] = [0, 10]
        if values.dtype == np.int8 and random.random() < 0.5:
            attributes['dtype'] = 'bool'
    return values, attributes, fill


def write(random, path, version, sizes):
    """Writes a store array by array, and returns the names of its variables."""
    group = zarr.create_group(path, zarr_format=version)
    dimensions = list(sizes)
    arrays = {}
    for number in range(random.integers(1, 5)):
        own = dimensions if random.random() < 0.6 else sorted(random.choice(dimensions, random.integers(1, len(dimensions) + 1), replace=False), key=dimensions.index)
        arrays[f'v{number}'] = own
    names = list(arrays)
    coordinates = {name: [name] for name in dimensions if random.random() < 0.8}
    coordinates.update({'level': [], 'extra': dimensions[:random.integers(len(dimensions) + 1)]})
    for name, own in {**arrays, **coordinates}.items():
        own = [str(dimension) for dimension in own]
        shape = tuple(sizes[dimension] for dimension in own)
        values, attributes, fill = random_variable(random, shape, version)
        if name in names and random.random() < 0.7:
            attributes['coordinates'] = 'extra level nowhere'
        options = {}
        if version == 2:
            attributes['_ARRAY_DIMENSIONS'] = own
            options['fill_value'] = fill
        else:
            options['dimension_names'] = own
            if fill is not None:
                attributes['_FillValue'] = FillValueCoder.encode(fill, values.dtype)
        chunks = tuple(int(random.integers(1, size + 1)) for size in shape)
        if version == 3 and shape and random.random() < 0.3:
            options['shards'] = tuple(chunk * int(random.integers(1, 3)) for chunk in chunks)
        if random.random() < 0.3:
            options['compressors'] = None
        array = group.create_array(name, shape=shape, chunks=chunks, dtype=values.dtype, attributes=attributes, **options)
        array[...] = values
    if random.random() < 0.7:
        zarr.consolidate_metadata(path)
    return names


def write_by_xarray(random, path, version, sizes):
    """Writes a store by xarray, and returns the names of its variables."""
    dimensions = list(sizes)
    shape = tuple(sizes.values())
    data = xr.Dataset()
    encoding = {}
    start = np.datetime64(str(random.choice(['1950-03-01', '1969-12-31T18:00', '2026-01-01'])), 'ns')
    times = start + (np.arange(sizes['time']) * random.integers(1, 10**6) * 10**9).astype('m8[ns]')
    data.coords['time'] = ('time', times)
    encoding['time'] = {'units': f'{random.choice(UNITS[3:7])} since 1970-01-01', 'dtype': random.choice(['i8', 'f8'])}
    data.coords['level'] = random.normal()
    data.coords['month'] = ('time', np.arange(sizes['time'], dtype='i2'))
    for number in range(random.integers(1, 4)):
        values = random.normal(size=shape).astype(random.choice(['f4', 'f8']))
        values[random.random(shape) < 0.2] = np.nan
        data[f'v{number}'] = (dimensions, values)
        if random.random() < 0.6:
            encoding[f'v{number}'] = {'dtype': 'i2', 'scale_factor': 0.001, 'add_offset': 1.0, '_FillValue': -32768}
    if random.random() < 0.5:
        data['flag'] = (dimensions, random.random(shape) < 0.5)
        data['lead'] = ('time', (np.arange(sizes['time']) * 1800).astype('m8[s]'))
    data.to_zarr(path, zarr_format=version, encoding=encoding, consolidated=bool(random.random() < 0.7))
    return list(data.data_vars)


def mds(folder):
    """Returns the samples of an uncompressed MDS dataset: the encoding and the bytes of each column."""
    for shard in json.loads((folder / 'index.json').read_text())['shards']:
        data = (folder / shard['raw_data']['basename']).read_bytes()
        count = int.from_bytes(data[:4], 'little')
        ends = np.frombuffer(data, '<u4', count + 1, 4)
        for start in ends[:-1]:
            sizes, at = [], int(start)
            for size in shard['column_sizes']:
                if size is None:
                    size, at = int.from_bytes(data[at : at + 4], 'little'), at + 4
                sizes.append(size)
            sample = {}
            for name, encoding, size in zip(shard['column_names'], shard['column_encodings'], sizes):
                sample[name] = (encoding, data[at : at + size])
                at += size
            yield sample


def duration(text):
    """Returns a duration of ISO 8601 as nanoseconds."""
    sign, seconds, fraction = re.fullmatch(r'(-?)P(?:0D|T(\d+)(?:\.(\d+))?S)', text).groups()
    number = int(seconds or 0) * 10**9 + int((fraction or '0').ljust(9, '0'))
    return -number if sign else number


def numbers_of(encoding, data, expected):
    """Returns the values of a column, of the type of the expected ones."""
    if encoding in ('json', 'str'):
        texts = json.loads(data) if encoding == 'json' else data.decode()
        texts = np.array(texts, dtype=object)
        if expected.dtype.kind == 'm':
            numbers = [None if text is None else duration(text) for text in texts.ravel()]
            return np.array(numbers, 'm8[ns]').reshape(texts.shape)
        unit = 'M8[ns]' if expected.dtype.kind == 'M' else 'M8[us]'
        return np.array(texts, dtype=unit)
    kind, _, rest = encoding.partition(':')
    dtype, _, shape = rest.partition(':')
    values = np.frombuffer(data, dtype or kind)
    return values.reshape([int(size) for size in shape.split(',')]) if shape else values.reshape(())


def same(encoding, data, expected):
    """Returns whether a column has the type and the values of what xarray decoded."""
    expected = np.asarray(expected)
    found = numbers_of(encoding, data, expected)
    if expected.dtype == object:
        expected = np.array([None if value != value else value.isoformat() for value in expected.ravel()], 'M8[us]').reshape(expected.shape)
    if expected.dtype == bool:
        expected = expected.astype('u1')
    if expected.dtype.kind == 'm':
        expected = expected.astype('m8[ns]')
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    return np.array_equal(found, expected, equal_nan=found.dtype.kind in 'fmM')


def is_far(values):
    """Returns whether times have days that no timestamp has: before the reform, or of another calendar."""
    kinds = [value for value in np.asarray(values).ravel() if value == value]
    if np.asarray(values).dtype != object or not kinds:
        return False
    calendar = kinds[0].calendar
    early = min(kinds) < type(kinds[0])(1582, 10, 15)
    return calendar not in ('standard', 'gregorian', 'proleptic_gregorian') or (early and calendar != 'proleptic_gregorian')


class Server:
    """Serves a folder on the loopback interface, without listings."""

    def __init__(self, folder):
        handler = functools.partial(Quiet, directory=folder)
        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f'http://127.0.0.1:{self.server.server_address[1]}'

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def list_directory(self, _):
        self.send_error(404)


def convert(binary, source, out, names, window, stride):
    """Converts windows, and returns the identifier of the error if it fails."""
    options = [f'--variable={name}' for name in names]
    options += ['--window=' + ','.join(f'{name}={size}' for name, size in window.items())]
    options += ['--stride=' + ','.join(f'{name}={size}' for name, size in stride.items())]
    command = [binary, 'convert', '--from=zarr', source, str(out), *options, '--compression=none', '--nulls=mask', '--jobs=2']
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    found = re.search(r'error\[(.*?)\]', done.stderr)
    if not found or done.returncode not in (2, 3):
        raise AssertionError(f'{command}\nstatus {done.returncode}: {done.stderr}')
    return found[1] + ' ' + done.stderr.strip()


def check(binary, seed, work):
    """Converts one random store. Returns the numbers of windows that are equal and of those that are refused."""
    random = np.random.default_rng(seed)
    folder = work / 'store'
    version = int(random.choice([2, 3]))
    sizes = {name: int(random.integers(1, 9)) for name in ['time', 'y', 'x'][: random.integers(1, 4)]}
    writer = write_by_xarray if random.random() < 0.3 else write
    names = writer(random, str(folder), version, sizes)
    window = {}
    for name in names:
        for dimension in xr.open_zarr(folder, decode_cf=False, chunks=None)[name].dims:
            if random.random() < 0.6 or not window:
                window.setdefault(str(dimension), int(random.integers(1, sizes[dimension] + 1)))
    stride = {name: int(random.integers(1, size + 2)) for name, size in window.items()}
    source, server = str(folder), None
    is_sharded = any('sharding_indexed' in path.read_text() for path in folder.rglob('zarr.json'))
    if random.random() < 0.2 and not is_sharded:
        server = Server(str(folder))
        source = server.url
    try:
        refused = convert(binary, source, work / 'out', names, window, stride)
    finally:
        if server:
            server.stop()
    starts = [range(0, sizes[name] - size + 1, stride[name]) for name, size in window.items()]
    windows = list(itertools.product(*starts))
    try:
        data = xr.open_zarr(folder, chunks=None)[names]
        data.load()
    except Exception as error:
        return 0, len(windows), f'xarray: {error!r}'[:200]
    if refused:
        if refused.startswith('zarr-time') and any(is_far(data[name].values) for name in data.variables):
            return 0, len(windows), 'a calendar'
        raise AssertionError(refused)
    samples = list(mds(work / 'out'))
    assert len(samples) == len(windows), f'{len(samples)} samples of {len(windows)} windows'
    for sample, start in zip(samples, windows):
        part = {name: slice(at, at + window[name]) for name, at in zip(window, start)}
        for name in data.variables:
            # Without a listing, the coordinates are those that the variables name.
            if name not in sample:
                listed = ' '.join(data[own].encoding.get('coordinates', '') for own in names).split()
                assert name not in listed and name not in data.dims, f'no column {name}'
                continue
            expected = data[name].isel({key: own for key, own in part.items() if key in data[name].dims}).values
            encoding, value = sample[name]
            if f'{name}__is_null' in sample and sample[f'{name}__is_null'][1] != b'\0':
                assert np.isnat(np.asarray(expected)), name
            elif not same(encoding, value, expected):
                found = numbers_of(encoding, value, np.asarray(expected))
                stored = xr.open_zarr(folder, decode_cf=False, chunks=None)[name]
                raise AssertionError(f'{name} at {start}: {encoding} {found!r}\nxarray: {expected!r}\n{stored!r}')
    return len(samples), 0, ''


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--bin', required=True, help='the shardmill program')
    parser.add_argument('--number', type=int, default=200, help='how many stores')
    parser.add_argument('--seed', default='random', help='the seed of the first store')
    parser.add_argument('--work', type=Path, required=True, help='a folder for the stores')
    args = parser.parse_args()
    warnings.simplefilter('ignore')
    first = int.from_bytes(os.urandom(3), 'little') if args.seed == 'random' else int(args.seed)
    equal = refused = failed = 0
    for seed in range(first, first + args.number):
        work = args.work / str(seed)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            same_here, refused_here, _ = check(args.bin, seed, work)
            equal, refused = equal + same_here, refused + refused_here
            shutil.rmtree(work)
        except AssertionError as error:
            failed += 1
            print(f'FAILED with --seed {seed} --number 1, in {work}: {error}', file=sys.stderr)
    print(f'{args.number} stores from seed {first}: {equal} windows equal, {refused} of stores that xarray or a calendar refuses, {failed} stores differ')
    return 1 if failed or not equal else 0


if __name__ == '__main__':
    sys.exit(main())
