from harness import equal, test

MIB = 1 << 20
PARTS = [b"A" * (5 * MIB), b"B" * (5 * MIB), b"C" * 1000]


def uploaded(s, key="mymultipart", parts=PARTS, client=None, **args):
    """Uploads in parts: by default at the origin."""
    client = client or s.origin
    upload = client.create_multipart_upload(Bucket=s.bucket, Key=key, **args)["UploadId"]
    done = []
    for i, part in enumerate(parts, 1):
        etag = client.upload_part(Bucket=s.bucket, Key=key, UploadId=upload, PartNumber=i, Body=part)["ETag"]
        done.append({"PartNumber": i, "ETag": etag})
    return client.complete_multipart_upload(Bucket=s.bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": done})


@test
def multipart_get_part(s):
    etag = uploaded(s)["ETag"]
    s.get("mymultipart").ok(200, b"".join(PARTS))
    for i, part in enumerate(PARTS, 1):
        answer = s.get("mymultipart", PartNumber=i).ok(206, part)
        equal((answer.data["ETag"], answer.data["PartsCount"]), (etag, 3), "ETag and count of parts")


@test
def multipart_get_part_head(s):
    uploaded(s)
    answer = s.head("mymultipart", PartNumber=3).ok(206)
    equal((answer.data["ContentLength"], answer.data["PartsCount"]), (1000, 3), "length and count of parts")


@test
def multipart_get_part_beyond(s):
    uploaded(s)
    s.get("mymultipart", PartNumber=4).refused(416, "InvalidPartNumber", "InvalidPart")


@test
def multipart_single_get_part(s):
    etag = uploaded(s, parts=[b"x" * 1000])["ETag"]
    answer = s.get("mymultipart", PartNumber=1).ok(206, b"x" * 1000)
    equal((answer.data["ETag"], answer.data["PartsCount"]), (etag, 1), "ETag and count of parts")
    s.get("mymultipart", PartNumber=2).refused(416, "InvalidPartNumber", "InvalidPart")


@test
def non_multipart_get_part(s):
    etag = s.seed("singlepart", b"body")["ETag"]
    s.get("singlepart").ok(200, b"body")
    answer = s.get("singlepart", PartNumber=1).ok(206, b"body")
    equal(answer.data["ETag"], etag, "ETag")
    s.get("singlepart", PartNumber=2).refused(416, "InvalidPartNumber", "InvalidPart")


@test
def get_part_with_range(s):
    s.seed("singlepart", b"body")
    s.get("singlepart", PartNumber=1, Range="bytes=0-1").refused(400, "InvalidRequest")


@test
def multipart_upload(s):
    answer = uploaded(s, client=s.client, ContentType="text/bla", Metadata={"foo": "bar"})
    equal(answer["ETag"].endswith('-3"'), True, "ETag of three parts")
    got = s.get("mymultipart").ok(200, b"".join(PARTS))
    equal((got.data["Metadata"], got.headers["content-type"], got.data["ETag"]),
          ({"foo": "bar"}, "text/bla", answer["ETag"]), "headers")
    s.get("mymultipart", Range=f"bytes={5 * MIB - 2}-{5 * MIB + 1}").ok(206, b"AABB")


@test
def multipart_upload_location(s):
    answer = uploaded(s, key="a b", client=s.client, parts=[b"x"])
    equal(answer["Location"].startswith(s.endpoint + "/"), True, "Location " + answer["Location"])


@test
def multipart_upload_overwrite_existing_object(s):
    s.seed("mymultipart", b"old" * MIB)
    s.get("mymultipart").ok(200, b"old" * MIB)
    uploaded(s, client=s.client)
    s.get("mymultipart").ok(200, b"".join(PARTS))


@test
def multipart_upload_empty(s):
    upload = s.call("create_multipart_upload", Key="foo").data["UploadId"]
    s.call("complete_multipart_upload", Key="foo", UploadId=upload).refused(400, "MalformedXML", "InvalidRequest")


@test
def multipart_upload_missing_part(s):
    upload = s.call("create_multipart_upload", Key="foo").data["UploadId"]
    etag = s.call("upload_part", Key="foo", UploadId=upload, PartNumber=1, Body=b"x").data["ETag"]
    s.call("complete_multipart_upload", Key="foo", UploadId=upload, MultipartUpload={
        "Parts": [{"PartNumber": 9999, "ETag": etag}]}).refused(400, "InvalidPart")


@test
def multipart_upload_size_too_small(s):
    upload = s.call("create_multipart_upload", Key="foo").data["UploadId"]
    parts = [{"PartNumber": i, "ETag": s.call("upload_part", Key="foo", UploadId=upload, PartNumber=i,
                                              Body=b"x" * 100).data["ETag"]} for i in (1, 2)]
    s.call("complete_multipart_upload", Key="foo", UploadId=upload, MultipartUpload={"Parts": parts}).refused(
        400, "EntityTooSmall")


@test
def abort_multipart_upload(s):
    upload = s.call("create_multipart_upload", Key="foo").data["UploadId"]
    s.call("upload_part", Key="foo", UploadId=upload, PartNumber=1, Body=b"x").ok(200)
    equal(s.call("abort_multipart_upload", Key="foo", UploadId=upload).status, 204, "status")
    s.get("foo").refused(404, "NoSuchKey")
    s.call("abort_multipart_upload", Key="foo", UploadId="56788").refused(404, "NoSuchUpload")


@test
def multipart_copy_small(s):
    s.seed("foo", b"x" * 100)
    upload = s.call("create_multipart_upload", Key="copy").data["UploadId"]
    part = s.call("upload_part_copy", Key="copy", UploadId=upload, PartNumber=1, CopySourceRange="bytes=0-9",
                  CopySource={"Bucket": s.bucket, "Key": "foo"}).ok(200).data["CopyPartResult"]["ETag"]
    s.call("complete_multipart_upload", Key="copy", UploadId=upload, MultipartUpload={
        "Parts": [{"PartNumber": 1, "ETag": part}]}).ok(200)
    s.get("copy").ok(200, b"x" * 10)
