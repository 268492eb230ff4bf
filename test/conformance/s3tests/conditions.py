import datetime
import time

from harness import equal, test

DAY = datetime.timedelta(days=1)


def seeded(s):
    """An object "foo", its ETag and its time."""
    etag = s.seed("foo", b"bar")["ETag"]
    return etag, s.origin.head_object(Bucket=s.bucket, Key="foo")["LastModified"]


@test
def get_object_ifmatch_good(s):
    etag, _ = seeded(s)
    s.get("foo", IfMatch=etag).ok(200, b"bar")


@test
def get_object_ifmatch_failed(s):
    seeded(s)
    s.get("foo", IfMatch='"ABCORZ"').refused(412, "PreconditionFailed")


@test
def get_object_ifnonematch_good(s):
    etag, _ = seeded(s)
    s.get("foo", IfNoneMatch=etag).refused(304)


@test
def get_object_ifnonematch_failed(s):
    seeded(s)
    s.get("foo", IfNoneMatch='"ABCORZ"').ok(200, b"bar")


@test
def get_object_ifmodifiedsince_good(s):
    _, when = seeded(s)
    s.get("foo", IfModifiedSince=when - DAY).ok(200, b"bar")


@test
def get_object_ifmodifiedsince_failed(s):
    s.seed("foo", b"bar")
    # Whole seconds: this server compares what it rounds away too, and a time ahead of now does not count.
    time.sleep(1.1)
    when = s.origin.head_object(Bucket=s.bucket, Key="foo")["LastModified"] + datetime.timedelta(seconds=1)
    s.get("foo", IfModifiedSince=when).refused(304)


@test
def get_object_ifunmodifiedsince_good(s):
    _, when = seeded(s)
    s.get("foo", IfUnmodifiedSince=when - DAY).refused(412, "PreconditionFailed")


@test
def get_object_ifunmodifiedsince_failed(s):
    _, when = seeded(s)
    s.get("foo", IfUnmodifiedSince=when + DAY).ok(200, b"bar")


@test
def get_object_ifmatch_wins_over_ifunmodifiedsince(s):
    etag, when = seeded(s)
    s.get("foo", IfMatch=etag, IfUnmodifiedSince=when - DAY).ok(200, b"bar")


@test
def get_object_ifnonematch_wins_over_ifmodifiedsince(s):
    etag, when = seeded(s)
    s.get("foo", IfNoneMatch=etag, IfModifiedSince=when - DAY).refused(304)


@test
def get_object_ifmatch_with_range(s):
    etag, _ = seeded(s)
    s.get("foo", IfMatch=etag, Range="bytes=1-").ok(206, b"ar")
    s.get("foo", IfMatch='"ABCORZ"', Range="bytes=9-").refused(412, "PreconditionFailed")


@test
def head_object_ifmatch_failed(s):
    seeded(s)
    s.head("foo", IfMatch='"ABCORZ"').refused(412)


@test
def head_object_ifnonematch_good(s):
    etag, _ = seeded(s)
    s.head("foo", IfNoneMatch=etag).refused(304)


@test
def get_object_ifmatch_not_exist(s):
    s.get("foo", IfMatch='"ABCORZ"').refused(404, "NoSuchKey")


@test
def put_object_ifmatch_good(s):
    etag, _ = seeded(s)
    s.get("foo").ok(200, b"bar")
    s.put("foo", b"zar", IfMatch=etag).ok(200)
    s.get("foo").ok(200, b"zar")


@test
def put_object_ifmatch_failed(s):
    seeded(s)
    s.put("foo", b"zar", IfMatch='"ABCORZ"').refused(412, "PreconditionFailed")
    s.get("foo").ok(200, b"bar")


@test
def put_object_ifmatch_nonexisted_failed(s):
    s.put("foo", b"bar", IfMatch='"ABCORZ"').refused(404, "NoSuchKey")
    s.get("foo").refused(404, "NoSuchKey")


@test
def put_object_ifnonmatch_nonexisted_good(s):
    s.get("foo").refused(404, "NoSuchKey")
    s.put("foo", b"bar", IfNoneMatch="*").ok(200)
    s.get("foo").ok(200, b"bar")


@test
def put_object_ifnonmatch_overwrite_existed_failed(s):
    seeded(s)
    s.put("foo", b"zar", IfNoneMatch="*").refused(412, "PreconditionFailed")
    s.get("foo").ok(200, b"bar")


@test
def delete_object_if_match(s):
    etag, _ = seeded(s)
    s.get("foo").ok(200, b"bar")
    s.delete("foo", IfMatch='"ABCORZ"').refused(412, "PreconditionFailed")
    s.get("foo").ok(200, b"bar")
    equal(s.delete("foo", IfMatch=etag).status, 204, "status")
    s.get("foo").refused(404, "NoSuchKey")
