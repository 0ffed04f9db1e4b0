"""Writes the rows of a Spark data frame to MDS shards, in the tasks of Spark, and reads them back.

    pip install "shardmill[spark]" "pyspark[connect]>=4"
    python convert_spark.py

It needs Java 17, and prints:

    wrote 1000 samples from 3 partitions
    columns: id int64, text str, tokens ndarray:int32
    read back: 1000 rows, sum of the ids 499500
    sample 999: 50 tokens
"""

import json
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from shardmill import LocalDataset
from shardmill.spark import ShardmillDataSource


def main(folder):
    spark = (
        SparkSession.builder.master('local[2]').config('spark.ui.enabled', 'false').getOrCreate()
    )
    spark.dataSource.register(ShardmillDataSource)
    frame = spark.range(0, 1000, 1, 3).selectExpr(
        'id',
        "concat('sample ', id) AS text",
        'transform(sequence(1, 1 + id % 50), x -> cast(x AS int)) AS tokens',
    )
    # The folder must be on a file system that all executors share; a store works, too.
    frame.write.format('shardmill').option('compression', 'zstd:3').mode('append').save(folder)

    index = json.loads(Path(folder, 'index.json').read_text())
    samples = sum(shard['samples'] for shard in index['shards'])
    print(f'wrote {samples} samples from {frame.rdd.getNumPartitions()} partitions')
    first = index['shards'][0]
    columns = zip(first['column_names'], first['column_encodings'])
    print('columns:', ', '.join(f'{name} {encoding}' for name, encoding in columns))

    back = spark.read.format('shardmill').load(folder)
    count, total = back.selectExpr('count(*)', 'sum(id)').first()
    print(f'read back: {count} rows, sum of the ids {total}')
    spark.stop()

    # Training reads the shards without Spark.
    dataset = LocalDataset(folder)
    print(f'sample 999: {len(dataset[999]["tokens"])} tokens')


if __name__ == '__main__':
    with tempfile.TemporaryDirectory() as scratch:
        main(f'{scratch}/tokens')
