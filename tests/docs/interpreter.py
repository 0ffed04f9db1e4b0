"""Runs the Python blocks of one page, in one process: a line of JSON for each block, and one for its result.

Started by `test_examples.py`. What the blocks print goes into the result.
"""

import contextlib
import doctest
import io
import json
import linecache
import os
import sys
import traceback


def run(text, name, namespace):
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), namespace)


def compare(text, name, namespace):
    """Runs the statements of a session and compares what they print."""
    test = doctest.DocTestParser().get_doctest(text, namespace, name, name, 0)
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    runner.run(test, out=report.append, clear_globs=False)
    namespace.update(test.globs)
    if runner.summarize(verbose=False).failed:
        raise AssertionError("".join(report))


def main():
    answers = os.fdopen(os.dup(1), "w")
    requests = os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.path[0] = os.getcwd()
    namespace = {"__name__": "__main__"}
    for line in requests:
        request = json.loads(line)
        printed = io.StringIO()
        error = None
        with contextlib.redirect_stdout(printed):
            try:
                (compare if request["session"] else run)(request["text"], request["name"], namespace)
            except BaseException:  # noqa: BLE001 - the page fails with it
                error = traceback.format_exc()
        answers.write(json.dumps({"error": error, "printed": printed.getvalue()}) + "\n")
        answers.flush()


main()
