"""One Python client of the matrix: boto3, s3fs or pyarrow, told what to do line by line as worker_test.go says."""

import os
import shutil
import sys


class Boto3:
    def __init__(self, endpoint, bucket):
        import boto3

        self.bucket = bucket
        self.s3 = boto3.client("s3", endpoint_url=endpoint)
        self.missing = self.s3.exceptions.ClientError

    def put(self, key, file):
        self.s3.upload_file(file, self.bucket, key)

    def list(self, prefix):
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [o["Key"] for page in pages for o in page.get("Contents", [])]

    def get(self, key, file):
        self.s3.download_file(self.bucket, key, file)

    def range(self, key, first, last, file):
        got = self.s3.get_object(Bucket=self.bucket, Key=key, Range=f"bytes={first}-{last}")
        with open(file, "wb") as f:
            shutil.copyfileobj(got["Body"], f)

    def copy(self, src, dst):
        self.s3.copy({"Bucket": self.bucket, "Key": src}, self.bucket, dst)

    def removeAll(self, prefix):
        keys = [{"Key": key} for key in self.list(prefix)]
        errors = self.s3.delete_objects(Bucket=self.bucket, Delete={"Objects": keys}).get("Errors")
        if errors:
            raise RuntimeError(errors)

    def remove(self, key):
        self.s3.delete_object(Bucket=self.bucket, Key=key)

    def is_missing(self, e):
        return isinstance(e, self.missing) and e.response["ResponseMetadata"]["HTTPStatusCode"] == 404


class S3FS:
    def __init__(self, endpoint, bucket):
        import s3fs

        self.bucket = bucket
        self.fs = s3fs.S3FileSystem(endpoint_url=endpoint)

    def put(self, key, file):
        # In parts from 5 MiB on, as a program writes that opens an object.
        with open(file, "rb") as src, self.fs.open(f"{self.bucket}/{key}", "wb", block_size=5 << 20) as dst:
            shutil.copyfileobj(src, dst, 1 << 20)

    def list(self, prefix):
        self.fs.invalidate_cache()
        return [path.removeprefix(self.bucket + "/") for path in self.fs.find(f"{self.bucket}/{prefix}")]

    def get(self, key, file):
        self.fs.get_file(f"{self.bucket}/{key}", file)

    def range(self, key, first, last, file):
        with open(file, "wb") as f:
            f.write(self.fs.cat_file(f"{self.bucket}/{key}", start=first, end=last + 1))

    def copy(self, src, dst):
        self.fs.cp_file(f"{self.bucket}/{src}", f"{self.bucket}/{dst}")

    def removeAll(self, prefix):
        self.fs.rm(f"{self.bucket}/{prefix}", recursive=True)

    def remove(self, key):
        self.fs.rm_file(f"{self.bucket}/{key}")

    def is_missing(self, e):
        return isinstance(e, FileNotFoundError)


class PyArrow:
    def __init__(self, endpoint, bucket):
        import pyarrow.fs

        self.bucket, self.selector = bucket, pyarrow.fs.FileSelector
        scheme, _, host = endpoint.partition("://")
        settings = {"tls_ca_file_path": os.environ["AWS_CA_BUNDLE"]} if scheme == "https" else {}
        self.fs = pyarrow.fs.S3FileSystem(
            endpoint_override=host, scheme=scheme, region=os.environ["AWS_DEFAULT_REGION"], **settings
        )

    def put(self, key, file):
        with open(file, "rb") as src, self.fs.open_output_stream(f"{self.bucket}/{key}") as dst:
            shutil.copyfileobj(src, dst, 1 << 20)

    def list(self, prefix):
        found = self.fs.get_file_info(self.selector(f"{self.bucket}/{prefix}", recursive=True))
        return [f.path.removeprefix(self.bucket + "/") for f in found if f.is_file]

    def get(self, key, file):
        with self.fs.open_input_stream(f"{self.bucket}/{key}") as src, open(file, "wb") as dst:
            shutil.copyfileobj(src, dst, 1 << 20)

    def range(self, key, first, last, file):
        with self.fs.open_input_file(f"{self.bucket}/{key}") as src, open(file, "wb") as dst:
            dst.write(src.read_at(last + 1 - first, first))

    def copy(self, src, dst):
        self.fs.copy_file(f"{self.bucket}/{src}", f"{self.bucket}/{dst}")

    def removeAll(self, prefix):
        self.fs.delete_dir_contents(f"{self.bucket}/{prefix}")

    def remove(self, key):
        self.fs.delete_file(f"{self.bucket}/{key}")

    def is_missing(self, e):
        return isinstance(e, FileNotFoundError)


name, endpoint, bucket = sys.argv[1:]
client = {"boto3": Boto3, "s3fs": S3FS, "pyarrow": PyArrow}[name](endpoint, bucket)
for line in sys.stdin:
    op, *args = line.rstrip("\n").split("\t")
    if op == "range":
        args[1:3] = map(int, args[1:3])
    try:
        answer = ["ok", *(getattr(client, op)(*args) or [])]
    except Exception as e:
        answer = ["missing"] if client.is_missing(e) else ["error", repr(e).replace("\n", " ").replace("\t", " ")]
    print("\t".join(answer), flush=True)
