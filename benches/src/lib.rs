//! Benchmarks, one file for each question. The Python scripts next to this crate measure whole conversions:
//!
//! * `make_inputs.py`: the three inputs, as Parquet files.
//! * `convert_speed.py`: how long a conversion takes, compared with other writers of this format and with the program
//!   `floor`, which does only the unavoidable work.
//! * `shared_cache.py`: what the ranks of a node download through one small cache folder, compared with the prediction
//!   of `plan`.
//! * `memory.py`: whether the memory that a conversion needs depends on the size of its input.
