#!/usr/bin/env python3
"""Generates routing_vectors.json: which node of a cluster a block belongs to, computed without Ashlar's code.

Standard library only. xxHash64 is written from its specification
(https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md), logarithms are taken with 60 digits and rounded, the
rest is as the comment of cluster/rank.go states it. Usage: python3 routing_vectors.py > routing_vectors.json
"""
import json
import random
from decimal import ROUND_HALF_EVEN, Decimal, getcontext
from functools import cmp_to_key

getcontext().prec = 60
M = 2**64 - 1

P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def rotl(x, r):
    return (x << r | x >> (64 - r)) & M


def le(b):
    return int.from_bytes(b, "little")


def lane(acc, word):
    return rotl((acc + word * P2) & M, 31) * P1 & M


def xxh64(data, seed=0):
    n, i = len(data), 0
    if n >= 32:
        acc = [(seed + P1 + P2) & M, (seed + P2) & M, seed, (seed - P1) & M]
        while i + 32 <= n:
            for j in range(4):
                acc[j] = lane(acc[j], le(data[i + 8 * j : i + 8 * j + 8]))
            i += 32
        h = sum(rotl(a, r) for a, r in zip(acc, (1, 7, 12, 18))) & M
        for a in acc:
            h = ((h ^ lane(0, a)) * P1 + P4) & M
    else:
        h = (seed + P5) & M
    h = (h + n) & M
    while i + 8 <= n:
        h = (rotl(h ^ lane(0, le(data[i : i + 8])), 27) * P1 + P4) & M
        i += 8
    if i + 4 <= n:
        h = (rotl(h ^ (le(data[i : i + 4]) * P1 & M), 23) * P2 + P3) & M
        i += 4
    for b in data[i:]:
        h = rotl(h ^ (b * P5 & M), 11) * P1 & M
    h = (h ^ h >> 33) * P2 & M
    h = (h ^ h >> 29) * P3 & M
    return h ^ h >> 32


# Well-known hashes of the reference implementation.
assert xxh64(b"") == 0xEF46DB3751D8E999
assert xxh64(b"a") == 0xD24EC4F1A98C6E5B
assert xxh64(b"abc") == 0x44BC2CF5AD770999
assert xxh64(b"Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1


def mix(x):
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & M
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & M
    return x ^ x >> 33


BITS, STEPS = 40, 1024
LN2 = Decimal(2).ln()
TABLE = [
    int(((1 + Decimal(i) / STEPS).ln() / LN2 * 2**BITS).to_integral_value(ROUND_HALF_EVEN)) for i in range(STEPS + 1)
]


def neg_log2(score):
    """-log2(score / 2**64) in units of 2**-BITS, straight between entries of the table."""
    score = max(score, 1)
    exponent = score.bit_length() - 1
    rest = score - (1 << exponent)  # score = 2**exponent + rest
    fraction = rest << (64 - exponent)  # rest / 2**exponent in units of 2**-64
    i, between = divmod(fraction, 2**64 // STEPS)
    log = TABLE[i] + ((TABLE[i + 1] - TABLE[i]) * (between * STEPS) >> 64)
    return ((64 - exponent) << BITS) - log


def ranking(nodes, bucket, key, index):
    unit = mix((xxh64(bucket + b"/" + key) + (index + 1) * 0x9E3779B97F4A7C15) & M)
    equal = len({w for _, w in nodes}) == 1
    scored = [(w, mix(unit ^ xxh64(i.encode())), i.encode()) for i, w in nodes]

    def before(a, b):
        if not equal:
            # wa / la > wb / lb
            left, right = a[0] * neg_log2(b[1]), b[0] * neg_log2(a[1])
            if left != right:
                return -1 if left > right else 1
        if a[1] != b[1]:
            return -1 if a[1] > b[1] else 1
        return -1 if a[2] < b[2] else 1

    return [i.decode() for _, _, i in sorted(scored, key=cmp_to_key(before))]


def digest(nodes):
    text = b"ashlar-rendezvous-1\n"
    for i, w in sorted((i.encode(), w) for i, w in nodes):
        text += b"%d:%s %d\n" % (len(i), i, w)
    return "%016x" % xxh64(text)


def main():
    rnd = random.Random(20260101)
    lists = {
        "one": [("solo:9000", 1)],
        "two": [("a", 1), ("b", 1)],
        "three of a StatefulSet": [(f"ashlar-{i}.ashlar.default.svc.cluster.local.", 1) for i in range(3)],
        "unicode": [("knoten-ä", 1), ("knoten-a\u0308", 1), ("節点", 2), ("узел", 2), ("😀", 3)],
        "4:4:1:1": [("big-0", 4), ("big-1", 4), ("small-0", 1), ("small-1", 1)],
        "extremes": [("least", 1), ("most", 65535), ("middle", 256)],
        "sixteen": [(f"10.0.0.{i}:9000", 1) for i in range(16)],
        "sixteen, weighted": [(f"10.0.0.{i}:9000", 1 + i % 5) for i in range(16)],
        "IPv6": [(f"[2001:db8::{i:x}]:9000", 1) for i in range(1, 9)],
        "thousand": [(f"node-{i:04}", 1) for i in range(1000)],
        "thousand, weighted": [(f"node-{i:04}", rnd.choice((1, 2, 3, 100))) for i in range(1000)],
    }
    keys = ["k", "", "a/b/c.parquet", "a//b", " ", "日本/ключ/😀", "ä", "a\u0308", "\x00\x01\n", "k" * 1024,
            "x" * 31 + "/" + "y", "t=2026-01-01T00:00:00+00:00/part-00001"]
    blocks = []
    for k in keys:
        for index in (0, 1, 2, 1000, 2**43 - 1):
            blocks.append((rnd.choice(["b", "models-prod", "logs.eu"]), k, index))
    out = {"xxhash64": [], "nodes": [], "log2": []}
    for n in (0, 1, 3, 4, 7, 8, 31, 32, 33, 63, 64, 100, 1025):
        s = "".join(chr(33 + (7 * i + n) % 94) for i in range(n))
        out["xxhash64"].append({"text": s, "hash": "%016x" % xxh64(s.encode())})
    for score in [0, 1, 2, 3, 2**32, 2**63 - 1, 2**63, 2**63 + 1, M - 1, M] + [rnd.getrandbits(64) for _ in range(50)]:
        out["log2"].append({"score": "%016x" % score, "neg_log2": "%016x" % neg_log2(score)})
    out["log2_table_hash"] = "%016x" % xxh64(b"".join(t.to_bytes(8, "little") for t in TABLE))
    for name, nodes in lists.items():
        shown = list(nodes)
        rnd.shuffle(shown)
        some = blocks if len(nodes) < 100 else blocks[::4]
        out["nodes"].append({
            "name": name,
            "nodes": [{"id": i, "weight": w} for i, w in shown],
            "digest": digest(nodes),
            # of many nodes only the first eight of each ranking, and a hash of the whole
            "rankings": [
                {"bucket": b, "key": k, "index": i, "ranking": r[:8],
                 "hash": "%016x" % xxh64("\n".join(r).encode())}
                for b, k, i in some
                for r in [ranking(nodes, b.encode(), k.encode(), i)]
            ],
        })
    # A line for each element, so that a change shows where it is.
    lines = json.dumps(out, ensure_ascii=True, indent=None)
    print(lines.replace('{"bucket"', '\n{"bucket"').replace('{"name"', '\n{"name"').replace('{"score"', '\n{"score"'))


if __name__ == "__main__":
    main()
