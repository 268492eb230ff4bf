"""Reads, lists, presigns and writes by boto3 through the node. What the objects must hold comes as JSON on stdin."""

import hashlib
import io
import json
import sys
import tempfile
import urllib.error
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

setup = json.load(sys.stdin)
bucket = setup["bucket"]
failures = 0


def check(name, got, want):
    global failures
    if got != want:
        failures += 1
        print(f"FAIL {name}: got {got!r}, want {want!r}")


def digest(data):
    return hashlib.sha256(data).hexdigest()


def status(call, **kwargs):
    """The HTTP status and error code that a call ends in."""
    try:
        return call(**kwargs)["ResponseMetadata"]["HTTPStatusCode"], ""
    except ClientError as e:
        return e.response["ResponseMetadata"]["HTTPStatusCode"], e.response["Error"]["Code"]


def client(**config):
    return boto3.client(
        "s3",
        endpoint_url=setup["endpoint"],
        region_name=setup["region"],
        aws_access_key_id=setup["access_key"],
        aws_secret_access_key=setup["secret_key"],
        config=Config(retries={"max_attempts": 1}, **config) if config else None,
    )


def reads(name, s3):
    with open(setup["big_file"], "rb") as f:
        big = f.read()
    size = len(big)
    for temperature in ("first", "second"):
        where = f"{name}, {temperature}"
        got = s3.get_object(Bucket=bucket, Key="big")
        check(f"{where}, whole", digest(got["Body"].read()), digest(big))
        for first, last in ((0, 0), (1048575, 1048576), (3, 2 << 20), (size - 5, size - 1)):
            got = s3.get_object(Bucket=bucket, Key="big", Range=f"bytes={first}-{last}")
            check(f"{where}, {first}-{last}", digest(got["Body"].read()), digest(big[first : last + 1]))
            check(f"{where}, {first}-{last}, status", got["ResponseMetadata"]["HTTPStatusCode"], 206)
            check(f"{where}, {first}-{last}, Content-Range", got["ContentRange"], f"bytes {first}-{last}/{size}")
        head = s3.head_object(Bucket=bucket, Key="big")
        check(f"{where}, head", head["ContentLength"], size)
        check(f"{where}, head, metadata", head["Metadata"], {"origin": "here"})
        etag = head["ETag"]
        check(f"{where}, if-match", status(s3.get_object, Bucket=bucket, Key="big", IfMatch=etag)[0], 200)
        check(
            f"{where}, if-match of another",
            status(s3.get_object, Bucket=bucket, Key="big", IfMatch='"0"'),
            (412, "PreconditionFailed"),
        )
        check(f"{where}, if-none-match", status(s3.get_object, Bucket=bucket, Key="big", IfNoneMatch=etag)[0], 304)
        check(f"{where}, missing", status(s3.get_object, Bucket=bucket, Key="missing"), (404, "NoSuchKey"))
        check(f"{where}, missing, head", status(s3.head_object, Bucket=bucket, Key="missing")[0], 404)
        with tempfile.TemporaryDirectory() as d:
            s3.download_file(bucket, "big", f"{d}/f")
            with open(f"{d}/f", "rb") as f:
                check(f"{where}, download_file", digest(f.read()), digest(big))
        # With a checksum kept at the origin, which boto3 checks on whole reads and would on ranges.
        got = s3.get_object(Bucket=bucket, Key="summed")
        check(f"{where}, with checksum", digest(got["Body"].read()), setup["summed"])
        got = s3.get_object(Bucket=bucket, Key="summed", Range="bytes=10-19")
        check(f"{where}, range of it", len(got["Body"].read()), 10)
    keys = [
        o["Key"]
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": 2})
        for o in page.get("Contents", [])
    ]
    check(f"{name}, list", [k for k in keys if not k.startswith("up/")], sorted(setup["keys"]))


reads("defaults", client())
s3 = client(signature_version="s3v4")
reads("s3v4", s3)

url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "summed"}, ExpiresIn=300)
with urllib.request.urlopen(url) as r:
    check("presigned", digest(r.read()), setup["summed"])
request = urllib.request.Request(url, headers={"Range": "bytes=0-9"})
with urllib.request.urlopen(request) as r:
    check("presigned, range", (r.status, len(r.read())), (206, 10))

# What the default configuration makes for such an endpoint is Signature Version 2, which must be refused in words.
url = client().generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "summed"}, ExpiresIn=300)
if "AWSAccessKeyId" in url and not setup["direct"]:
    try:
        urllib.request.urlopen(url)
        check("presigned by SigV2", "accepted", "refused")
    except urllib.error.HTTPError as e:
        check("presigned by SigV2", (e.code, b"AWS4-HMAC-SHA256" in e.read()), (400, True))

# A plain body: no checksum in a trailer.
s3 = client(signature_version="s3v4", request_checksum_calculation="when_required")
data = bytes(range(256)) * 1000
s3.put_object(Bucket=bucket, Key="up/plain", Body=data)
check("written", digest(s3.get_object(Bucket=bucket, Key="up/plain")["Body"].read()), digest(data))
# By default, boto3 sends the checksum of a seekable body in a header when the endpoint is plain HTTP.
client().put_object(Bucket=bucket, Key="up/default", Body=data)
check("written by default", digest(s3.get_object(Bucket=bucket, Key="up/default")["Body"].read()), digest(data))
s3.upload_fileobj(io.BytesIO(data), bucket, "up/file")
check("uploaded", digest(s3.get_object(Bucket=bucket, Key="up/file")["Body"].read()), digest(data))
for key in ("up/plain", "up/default", "up/file"):
    s3.delete_object(Bucket=bucket, Key=key)
    check(f"deleted {key}", status(s3.head_object, Bucket=bucket, Key=key)[0], 404)

sys.exit(1 if failures else 0)
