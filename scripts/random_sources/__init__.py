"""Random sources, converted by shardmill and read back by independent readers."""
