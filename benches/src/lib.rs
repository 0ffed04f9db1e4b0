//! Benchmarks, one file a question. The Python scripts beside this crate measure whole conversions:
//!
//! * `make_inputs.py`: the three inputs, as Parquet files.
//! * `convert_speed.py`: how long a conversion takes, beside the other writers of this format and beside the program
//!   `floor`, which does the unavoidable work and nothing else.
//! * `shared_cache.py`: what the ranks of a node fetch through one small cache folder, beside what `plan` says.
//! * `memory.py`: whether the memory that a conversion needs depends on the size of its input.
