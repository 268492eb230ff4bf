"""What the tests share: how they are listed, and what each of them gets.

A test seeds the bucket at the origin, so that what is read first through a node is cold there. Reads are made twice, and
the answers must be the same in all that does not differ between any two: the second one is warm.
"""

import contextlib
import datetime
import http.client
import urllib.parse
import uuid
import xml.etree.ElementTree as ElementTree
from unittest import mock

import boto3
import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.client import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

TESTS = []

# Headers that differ between any two answers, or say who gave them.
VOLATILE = {"date", "x-amz-request-id", "x-amz-id-2", "x-amzn-requestid", "server", "age", "via", "connection", "keep-alive"}


def test(f):
    TESTS.append(f)
    return f


def equal(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what or 'value'}: got {short(got)}, want {short(want)}")


def short(value):
    text = repr(value)
    return text if len(text) < 300 else f"{text[:300]}… ({len(text)} characters)"


class Answer:
    """One answer: status, headers by lower-case name, body, and the code and message of an error."""

    def __init__(self, status, headers, body=b"", code="", message="", data=None):
        self.status, self.body, self.code, self.message = status, body, code, message
        self.headers = {k.lower(): v for k, v in headers.items()}
        self.data = data or {}

    def stable(self):
        headers = {k: v for k, v in self.headers.items() if k not in VOLATILE and not k.startswith("x-ashlar-")}
        return self.status, headers, self.body, self.code, self.message

    def ok(self, status, body=None):
        equal(self.status, status, f"status ({self.code} {self.message})")
        if body is not None:
            equal(self.body, body, "body")
        return self

    def refused(self, status, *codes):
        equal(self.status, status, f"status ({self.code} {self.message})")
        if codes and self.code not in codes:
            raise AssertionError(f"code: got {self.code} ({self.message}), want {' or '.join(codes)}")
        return self


class S3:
    """The endpoint under test, the origin behind it, which may be the same, and one bucket."""

    def __init__(self, endpoint, origin, access_key, secret_key, region):
        self.endpoint, self.region = endpoint, region
        self.key = Credentials(access_key, secret_key)
        self.client, self.origin = self.connect(endpoint), self.connect(origin)
        self.bucket = "s3tests-" + uuid.uuid4().hex[:16]
        self.origin.create_bucket(Bucket=self.bucket)

    def connect(self, endpoint, key=None, **config):
        key = key or self.key
        return boto3.client("s3", endpoint_url=endpoint, region_name=self.region, aws_access_key_id=key.access_key,
                            aws_secret_access_key=key.secret_key, config=Config(
                                s3={"addressing_style": "path"}, retries={"max_attempts": 0}, signature_version="s3v4",
                                **config))

    def seed(self, key, body=b"", **args):
        """Puts an object at the origin."""
        return self.origin.put_object(Bucket=self.bucket, Key=key, Body=body, **args)

    def call(self, operation, client=None, **args):
        """Calls an operation of the endpoint under test, once."""
        args.setdefault("Bucket", self.bucket)
        try:
            data = getattr(client or self.client, operation)(**args)
        except ClientError as e:
            meta, error = e.response["ResponseMetadata"], e.response["Error"]
            return Answer(meta["HTTPStatusCode"], meta["HTTPHeaders"], b"", error["Code"], error.get("Message", ""),
                          e.response)
        meta = data["ResponseMetadata"]
        body = data["Body"].read() if operation == "get_object" else b""
        return Answer(meta["HTTPStatusCode"], meta["HTTPHeaders"], body, data=data)

    def read(self, operation, **args):
        """Calls a reading operation twice, and returns the second answer."""
        return twice(lambda: self.call(operation, **args), operation)

    def get(self, key, **args):
        return self.read("get_object", Key=key, **args)

    def head(self, key, **args):
        return self.read("head_object", Key=key, **args)

    def put(self, key, body=b"", **args):
        return self.call("put_object", Key=key, Body=body, **args)

    def delete(self, key, **args):
        return self.call("delete_object", Key=key, **args)

    def presigned(self, operation, key, expires=300, client=None):
        url = (client or self.client).generate_presigned_url(
            operation, Params={"Bucket": self.bucket, "Key": key}, ExpiresIn=expires)
        return url[len(self.endpoint):]

    def raw(self, method, target, body=b"", headers=None, key=None, sign=True, when=None, payload="", change=None,
            spelled=""):
        """Sends a request as it is: signed at the time when, with payload as x-amz-content-sha256; then change gets its
        headers, and the target may be spelled in another way."""
        headers = dict(headers or {})
        if sign:
            request = AWSRequest(method=method, url=self.endpoint + target, data=body, headers=headers)
            with clock(when):
                Signer(payload, key or self.key, "s3", self.region).add_auth(request)
            headers = dict(request.headers.items())
        headers.setdefault("Host", urllib.parse.urlsplit(self.endpoint).netloc)
        headers.setdefault("Content-Length", str(len(body)))
        if change:
            change(headers)
        connection = http.client.HTTPConnection(headers["Host"], timeout=30)
        try:
            connection.putrequest(method, spelled or target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders()
            if body:
                length = headers.get("Content-Length")
                connection.send(body if length is None else body[:int(length)])
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        code = message = ""
        if response.status >= 300 and content.startswith(b"<"):
            error = ElementTree.fromstring(content)
            code, message = error.findtext("Code", ""), error.findtext("Message", "")
        return Answer(response.status, dict(response.getheaders()), content, code, message)

    def object(self, key=""):
        """The request target of an object, or of the bucket."""
        return "/" + self.bucket + "/" * bool(key) + urllib.parse.quote(key, safe="/~")


class Signer(botocore.auth.S3SigV4Auth):
    """Signs with a given x-amz-content-sha256, "" for that of the body."""

    def __init__(self, given, *args):
        super().__init__(*args)
        self.given = given

    def payload(self, request):
        return self.given or super().payload(request)


def twice(read, what=""):
    cold, warm = read(), read()
    a, b = cold.stable(), warm.stable()
    if a[3]:  # of errors in XML, the body has the request's id
        a, b = a[:2] + a[3:], b[:2] + b[3:]
        for answer in a, b:
            answer[1].pop("content-length", None)
    equal(b, a, f"{what}: the second answer")
    return warm


@contextlib.contextmanager
def clock(when):
    """Makes what is signed signed at another time: a datetime, None for now."""
    if when is None:
        yield
        return
    with mock.patch("botocore.auth.get_current_datetime", lambda: when):
        yield


def now(**ahead):
    return datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None) + datetime.timedelta(**ahead)
