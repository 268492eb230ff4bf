import base64
import io
import time
import zlib

from botocore.exceptions import IncompleteReadError, ResponseStreamingError
from urllib3.exceptions import ProtocolError

from harness import equal, test, twice


@test
def object_read_not_exist(s):
    s.get("bar").refused(404, "NoSuchKey")


@test
def object_read_bucket_not_exist(s):
    s.get("bar", Bucket=s.bucket + "-gone").refused(404, "NoSuchBucket")


@test
def object_head_not_exist(s):
    answer = s.head("bar").refused(404)
    equal(answer.body, b"", "body")


@test
def object_requestid_matches_header_on_error(s):
    answer = s.raw("GET", s.object("bar")).refused(404, "NoSuchKey")
    request_id = answer.headers["x-amz-request-id"].encode()
    if b"<RequestId>" + request_id + b"</RequestId>" not in answer.body:
        raise AssertionError(f"{request_id} is not in {answer.body}")


@test
def object_head_zero_bytes(s):
    s.seed("foo", b"")
    equal(s.head("foo").ok(200).headers["content-length"], "0", "Content-Length")


@test
def object_read_zero_bytes(s):
    s.seed("foo", b"")
    s.get("foo").ok(200, b"")


@test
def object_write_to_nonexist_bucket(s):
    s.put("foo", b"foo", Bucket=s.bucket + "-gone").refused(404, "NoSuchBucket")


@test
def object_write_check_etag(s):
    equal(s.put("foo", b"bar").ok(200).data["ETag"], '"37b51d194a7513e45b56f6524f2d51f2"', "ETag")
    equal(s.get("foo").ok(200, b"bar").headers["etag"], '"37b51d194a7513e45b56f6524f2d51f2"', "ETag")


@test
def object_write_cache_control(s):
    s.put("foo", b"bar", CacheControl="public, max-age=14400").ok(200)
    equal(s.head("foo").headers["cache-control"], "public, max-age=14400", "Cache-Control")


@test
def object_write_expires(s):
    s.put("foo", b"bar", Expires="Sat, 29 Oct 2050 19:43:31 GMT").ok(200)
    equal(s.head("foo").headers["expires"], "Sat, 29 Oct 2050 19:43:31 GMT", "Expires")


@test
def object_write_content_headers(s):
    s.put("foo", b"bar", ContentType="text/x-ä".encode("ascii", "replace").decode(), ContentLanguage="de",
          ContentDisposition='attachment; filename="f"', ContentEncoding="gzip").ok(200)
    answer = s.raw("GET", s.object("foo")).ok(200, b"bar")
    equal([answer.headers.get("content-" + n) for n in ("language", "disposition", "encoding")],
          ["de", 'attachment; filename="f"', "gzip"], "headers")


@test
def object_write_read_update_read_delete(s):
    s.put("foo", b"bar").ok(200)
    s.get("foo").ok(200, b"bar")
    s.put("foo", b"soup").ok(200)
    s.get("foo").ok(200, b"soup")
    equal(s.delete("foo").status, 204, "status")
    s.get("foo").refused(404, "NoSuchKey")
    s.head("foo").refused(404)


@test
def object_write_file(s):
    s.client.upload_fileobj(io.BytesIO(b"bar" * 1000), s.bucket, "foo")
    s.get("foo").ok(200, b"bar" * 1000)


@test
def object_write_with_chunked_transfer_encoding(s):
    """A body in aws-chunked encoding, with a checksum in its trailer: a true one, and then a false one."""
    content = b"bar" * 30000
    for crc, status in (zlib.crc32(content), 200), (0, 400):
        body = b"10000\r\n%b\r\n5f90\r\n%b\r\n0\r\nx-amz-checksum-crc32:%b\r\n\r\n" % (
            content[:65536], content[65536:], base64.b64encode(crc.to_bytes(4, "big")))
        answer = s.raw("PUT", s.object("foo"), body, payload="STREAMING-UNSIGNED-PAYLOAD-TRAILER", headers={
            "Content-Encoding": "aws-chunked", "x-amz-trailer": "x-amz-checksum-crc32",
            "x-amz-decoded-content-length": str(len(content))})
        equal(answer.status, status, f"status {answer.code} {answer.message}")
        s.get("foo").ok(200, content)


@test
def object_write_refused_in_mid_body(s):
    """Nothing is stored of a body that turns out to be malformed after its beginning has gone on."""
    sizes = 10000, 10, 8192, 0  # only the last chunk may be small
    body = b"".join(b"%x\r\n%b\r\n" % (n, b"x" * n) for n in sizes)
    for i in range(10):
        key = f"foo{i}"
        s.raw("PUT", s.object(key), body, payload="STREAMING-UNSIGNED-PAYLOAD-TRAILER", headers={
            "x-amz-decoded-content-length": str(sum(sizes))}).refused(400, "InvalidChunkSizeError")
    time.sleep(0.3)  # for what the origin may do of its own accord
    equal(s.origin.list_objects_v2(Bucket=s.bucket).get("KeyCount"), 0, "objects at the origin")


@test
def object_write_overwrite_smaller(s):
    s.seed("foo", b"a" * 3000000)
    s.get("foo").ok(200, b"a" * 3000000)
    s.put("foo", b"b" * 10).ok(200)
    s.get("foo").ok(200, b"b" * 10)
    s.get("foo", Range="bytes=10-").refused(416, "InvalidRange")


@test
def atomic_read_8mb(s):
    """An object that is overwritten in the middle of being read is read whole as it was, or not at all."""
    s.seed("foo", b"A" * (8 << 20))
    body = s.client.get_object(Bucket=s.bucket, Key="foo")["Body"]
    first = body.read(100)
    s.put("foo", b"B" * (8 << 20)).ok(200)
    try:
        equal(first + body.read(), b"A" * (8 << 20), "what was read")
    except (ResponseStreamingError, IncompleteReadError, ProtocolError):
        pass  # cut off, and told so
    s.get("foo").ok(200, b"B" * (8 << 20))


@test
def object_delete_key_not_exist(s):
    equal(s.delete("foo").status, 204, "status")


@test
def multi_object_delete(s):
    for key in "key0", "key1", "key2":
        s.seed(key, b"x")
        s.get(key).ok(200, b"x")
    answer = s.call("delete_objects", Delete={"Objects": [{"Key": "key0"}, {"Key": "key2"}]}).ok(200)
    equal(sorted(d["Key"] for d in answer.data["Deleted"]), ["key0", "key2"], "deleted")
    s.get("key0").refused(404, "NoSuchKey")
    s.get("key1").ok(200, b"x")
    s.get("key2").refused(404, "NoSuchKey")


@test
def bucket_create_special_key_names(s):
    keys = [" ", '"', "$", "%", "&", "'", "<", ">", "_", "_ ", "_ _", "__"]
    for key in keys:
        s.put(key, key.encode()).ok(200)
    equal([o["Key"] for o in s.read("list_objects_v2").data["Contents"]], keys, "listing")
    for key in keys:
        s.get(key).ok(200, key.encode())


@test
def object_special_names_reserved(s):
    for key in "a+b", "a%2Fb", "a%20b", "a?b", "a#b", "a;b", "a=b", "a:b", "a@b", "a,b", "a!b", "a*b", "a(b)", "a~b", "%zz":
        s.seed(key, key.encode())
        s.get(key).ok(200, key.encode())


@test
def object_special_names_unicode(s):
    for key in "ä", "a\u0308", "日本/語", "🙂", "\u00a0", "a\u200bb":
        s.seed(key, key.encode())
        s.get(key).ok(200, key.encode())
        equal(s.delete(key).status, 204, "status")
        s.get(key).refused(404, "NoSuchKey")


@test
def object_special_names_dots_and_slashes(s):
    for key in "a/.b", "a/...", "..a", "a..", "a/b..c/d":
        s.seed(key, key.encode())
        s.get(key).ok(200, key.encode())


@test
def object_special_names_encodings_of_one_key(s):
    s.seed("a/b c", b"bar")
    for spelled in "a/b%20c", "a%2Fb%20c", "a%2fb%20c", "%61/b%20c":
        twice(lambda: s.raw("GET", s.object("a/b c"), spelled=f"/{s.bucket}/{spelled}"), spelled).ok(200, b"bar")


@test
def object_name_too_long(s):
    s.put("a" * 1025, b"x").refused(400, "KeyTooLongError")


@test
def object_read_unreadable(s):
    answer = s.raw("GET", "/" + s.bucket + "/%AE%8A-")
    equal(answer.status in (400, 404), True, f"status {answer.status}")


@test
def object_copy_verify_contents(s):
    s.seed("foo", b"bar", ContentType="text/bla", Metadata={"key": "value"})
    s.call("copy_object", Key="bar", CopySource={"Bucket": s.bucket, "Key": "foo"}).ok(200)
    answer = s.get("bar").ok(200, b"bar")
    equal((answer.headers["content-type"], answer.data["Metadata"]), ("text/bla", {"key": "value"}), "metadata")


@test
def object_copy_replacing_metadata(s):
    s.seed("foo", b"bar", Metadata={"key": "value"})
    equal(s.get("foo").data["Metadata"], {"key": "value"}, "metadata")
    s.call("copy_object", Key="foo", CopySource={"Bucket": s.bucket, "Key": "foo"}, MetadataDirective="REPLACE",
           Metadata={"key2": "value2"}).ok(200)
    equal(s.get("foo").ok(200, b"bar").data["Metadata"], {"key2": "value2"}, "metadata")


@test
def object_copy_to_itself(s):
    s.seed("foo", b"bar")
    s.call("copy_object", Key="foo", CopySource={"Bucket": s.bucket, "Key": "foo"}).refused(400, "InvalidRequest")


@test
def object_copy_key_not_found(s):
    s.call("copy_object", Key="bar", CopySource={"Bucket": s.bucket, "Key": "foo"}).refused(404, "NoSuchKey")


@test
def object_copy_bucket_not_found(s):
    s.call("copy_object", Key="bar", CopySource={"Bucket": s.bucket + "-gone", "Key": "foo"}).refused(404, "NoSuchBucket")


@test
def bucket_list_after_write(s):
    s.put("a/1", b"x").ok(200)
    s.put("b", b"xy").ok(200)
    answer = s.read("list_objects_v2", Delimiter="/").ok(200)
    equal([p["Prefix"] for p in answer.data["CommonPrefixes"]], ["a/"], "prefixes")
    equal([(o["Key"], o["Size"]) for o in answer.data["Contents"]], [("b", 2)], "keys")
    equal(s.delete("b").status, 204, "status")
    equal(s.read("list_objects_v2").data["KeyCount"], 1, "keys")
