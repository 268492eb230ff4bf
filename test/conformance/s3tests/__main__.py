"""Runs every test against one endpoint: setup as JSON on standard input, one line of JSON for each result."""

import json
import re
import sys
import traceback

import auth
import conditions
import harness
import metadata
import multipart
import objects
import ranges
import sums
import versions

MODULES = auth, conditions, metadata, multipart, objects, ranges, sums, versions # which list their tests when imported


def main():
    setup = json.load(sys.stdin)
    match = re.compile(setup.pop("match", ""))
    names = [f.__name__ for f in harness.TESTS]
    if len(set(names)) != len(names):
        sys.exit("two tests have the same name")
    for f in harness.TESTS:
        if not match.search("s3tests/" + f.__name__):
            continue
        failure = ""
        try:
            f(harness.S3(**setup))
        except Exception: # whatever it is, it is the result
            failure = "".join(traceback.format_exc(limit=-3))
        print(json.dumps({"name": f.__name__, "ok": not failure, "output": failure}), flush=True)


main()
