#!/usr/bin/env bash
# tests/spark on two versions of PySpark, each in an environment of its own, and by Spark Connect.
#
#   scripts/test_spark.sh MOSAIC_PYTHON [ARGUMENT...]
#
# The arguments are those of pytest, which choose the tests.
# Sessions of Spark wait more than they work: classic sessions run beside the other two manners. What each printed is shown
# when it is over; the status is that of a failure where there is one. The package of 3.5 lacks the server of Spark Connect.
set -euo pipefail
cd "$(dirname "$0")/.."

for version in 4 3.5; do
    scripts/venv.sh ".cache/venv-spark-$version" "tests/spark/requirements-$version.txt"
done
export PYTHONPATH=$PWD/python SHARDMILL_MOSAIC=$1
chosen=("${@:2}")
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# manner VERSION [ARGUMENT...]: the tests, with a line that says which.
manner() {
    local version=$1
    shift
    echo "PySpark $version $*"
    ".cache/venv-spark-$version/bin/python" -m pytest -q tests/spark "$@" "${chosen[@]}"
}

manner 4 >"$logs/classic" 2>&1 &
classic=$!
status=0
manner 4 --connect || status=$?
manner 3.5 || status=$?
wait "$classic" || status=$?
cat "$logs/classic"
exit "$status"
