"""Compare what ranks that share one cache folder fetch with what `shardmill plan` says, and with a full disk.

    python benches/shared_cache.py --bin target/release/shardmill [--server target/release/remote_speed] [--ranks 1 2 3 4]
        [--limits 6 12 24 48] [--skew 0 20] [--tmpfs 4m] [--shards 160] [--epochs 2] [--compression none]

Every case starts the ranks as processes of one node, each with its own `shardmill bench`, in an empty cache folder.
Limits are in MiB. `--skew PERCENT` makes each step of rank r longer by r times that part. With `--tmpfs SIZE` the folder
is a tmpfs of that size (needs the right to mount) and there is no limit unless `--limits` is given too. With `--server` the
data comes from an S3 server on the loopback device, `--faults PERCENT` of whose answers are errors or broken connections.
Prints one line a case; `--json FILE` writes them all.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time


def make_data(bin_path: str, folder: pathlib.Path, shards: int, shard_kib: int, compression: str) -> None:
    """Writes a dataset of about that many shards, each of about that many KiB."""
    draw = random.Random(1)
    sample = 4096
    count = shards * shard_kib * 1024 // (sample + 16)
    table = folder.parent / f"{folder.name}.jsonl"
    with table.open("w") as out:
        for number in range(count):
            out.write(json.dumps({"id": number, "text": draw.randbytes(sample // 2).hex()}) + "\n")
    words = [bin_path, "convert", table, folder, "--size-limit", f"{shard_kib}KiB", "--compression", compression]
    subprocess.run([*map(str, words), "--progress", "none", "--quiet"], check=True)
    table.unlink()


def order(args: argparse.Namespace, ranks: int) -> list[str]:
    return [
        "--ranks-per-node", str(ranks), "--batch-size", str(args.batch_size), "--shuffle",
        "--shuffle-block-size", str(args.block), "--epochs", str(args.epochs),
    ]


def plan(args: argparse.Namespace, data: pathlib.Path, ranks: int, limit: int | None) -> dict:
    words = [args.bin, "plan", str(data), *order(args, ranks), "--json", "--step-time", f"{args.step_ms}ms"]
    if limit is not None:
        words += ["--cache-limit", str(limit)]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return found["nodes"][0]["belady"]


def run(args: argparse.Namespace, remote: str, env: dict, case: dict, cache: pathlib.Path) -> dict:
    """Runs the ranks of a case and adds up what they fetched."""
    ranks = []
    start = time.monotonic()
    for rank in range(case["ranks"]):
        step = args.step_ms * (1 + rank * case["skew"] / 100)
        words = [
            args.bin, "bench", remote, "--local", str(cache), "--json", "--rank", str(rank),
            "--step-time", f"{round(step)}ms", *order(args, case["ranks"]),
        ]
        if case["limit"] is not None:
            words += ["--cache-limit", str(case["limit"])]
        ranks.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env))
    shards = fetched = waited = 0
    for process in ranks:
        out, err = process.communicate(timeout=args.timeout)
        if process.returncode != 0:
            raise SystemExit(f"{case}: a rank ended with {process.returncode}: {err}")
        epochs = json.loads(out)["epochs"]
        shards += sum(epoch["fetched_shards"] for epoch in epochs)
        fetched += sum(epoch["fetched_bytes"] for epoch in epochs)
        waited += sum(epoch["wait_seconds"] for epoch in epochs)
    return {"fetched_shards": shards, "fetched_bytes": fetched, "waited": waited, "seconds": time.monotonic() - start}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--server")
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--limits", type=float, nargs="*", default=None)
    parser.add_argument("--skew", type=float, nargs="+", default=[0])
    parser.add_argument("--tmpfs")
    parser.add_argument("--inodes", type=int)
    parser.add_argument("--foreign", type=int, default=0, help="bytes of another program's file in the tmpfs")
    parser.add_argument("--shards", type=int, default=160)
    parser.add_argument("--shard-kib", type=int, default=512)
    parser.add_argument("--compression", default="none")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--block", type=int, default=4000)
    parser.add_argument("--step-ms", type=float, default=10)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--work", default=None)
    parser.add_argument("--json")
    args = parser.parse_args()
    work = pathlib.Path(args.work or tempfile.mkdtemp(prefix="shared-cache-"))
    name = f"data-{args.shards}-{args.shard_kib}-{args.compression.replace(':', '')}"
    data = work / "data" / name
    if not data.exists():
        data.parent.mkdir(parents=True, exist_ok=True)
        make_data(args.bin, data, args.shards, args.shard_kib, args.compression)
    env, server, remote = {**os.environ}, None, str(data)
    if args.server:
        words = [args.server, "serve", str(data.parent), "2", "50000000", *([str(args.faults)] if args.faults else [])]
        server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        env |= {
            "AWS_ENDPOINT_URL": server.stdout.readline().strip(), "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1",
        }
        remote = f"s3://bucket/{name}"
    limits = [int(limit * 2**20) for limit in args.limits or []] or [None]
    results = []
    try:
        for ranks in args.ranks:
            for limit in limits:
                planned = plan(args, data, ranks, limit)
                bytes_planned = sum(epoch["fetched_bytes"] for epoch in planned["epochs"])
                for skew in args.skew:
                    case = {"ranks": ranks, "limit": limit, "skew": skew}
                    cache = work / "cache"
                    shutil.rmtree(work / ".cache.shardmill", ignore_errors=True)
                    shutil.rmtree(cache, ignore_errors=True)
                    cache.mkdir()
                    if args.tmpfs:
                        options = f"size={args.tmpfs}" + (f",nr_inodes={args.inodes}" if args.inodes else "")
                        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(cache)], check=False)
                        if mounted.returncode != 0:
                            raise SystemExit("skipped: this process may not mount a tmpfs")
                        if args.foreign:
                            (cache / "other.bin").write_bytes(bytes(args.foreign))
                    try:
                        found = run(args, remote, env, case, cache)
                    finally:
                        if args.tmpfs:
                            subprocess.run(["umount", str(cache)], check=True)
                    found |= case | {"planned_bytes": bytes_planned, "bypasses": sum(epoch["bypasses"] for epoch in planned["epochs"])}
                    most = sum(epoch.get("most_fetched_bytes", 0) for epoch in planned["epochs"])
                    results.append(found)
                    print(
                        f"ranks {ranks}  limit {'-' if limit is None else f'{limit / 2**20:.1f} MiB':>9}  skew {skew:3.0f} %  "
                        f"planned {bytes_planned / 2**20:7.1f} MiB{f' to {most / 2**20:.1f}' if most > bytes_planned else ''}  "
                        f"fetched {found['fetched_bytes'] / 2**20:7.1f} MiB in {found['fetched_shards']} shards  "
                        f"off {100 * (found['fetched_bytes'] / max(bytes_planned, 1) - 1):+.0f} %  {found['seconds']:.1f} s",
                        flush=True,
                    )
    finally:
        if server:
            server.kill()
        if not args.work:
            shutil.rmtree(work, ignore_errors=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
