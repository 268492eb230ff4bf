from harness import equal, test


def versioned(s, status="Enabled"):
    s.origin.put_bucket_versioning(Bucket=s.bucket, VersioningConfiguration={"Status": status})


@test
def versioning_obj_create_read_remove(s):
    versioned(s)
    ids = [s.put("foo", b"%d" % i).ok(200).data["VersionId"] for i in range(3)]
    for i, version in enumerate(ids):
        s.get("foo", VersionId=version).ok(200, b"%d" % i)
    equal(s.get("foo").ok(200, b"2").data["VersionId"], ids[2], "version")
    equal(s.delete("foo", VersionId=ids[2]).status, 204, "status")
    s.get("foo", VersionId=ids[2]).refused(404, "NoSuchVersion")
    equal(s.get("foo").ok(200, b"1").data["VersionId"], ids[1], "version")


@test
def versioning_obj_create_read_remove_head(s):
    versioned(s)
    ids = [s.seed("foo", b"x" * i)["VersionId"] for i in (1, 2)]
    equal(s.head("foo").data["ContentLength"], 2, "length")
    equal(s.delete("foo", VersionId=ids[1]).status, 204, "status")
    answer = s.head("foo").ok(200)
    equal((answer.data["ContentLength"], answer.data["VersionId"]), (1, ids[0]), "length and version")


@test
def versioning_obj_plain_null_version_removal(s):
    s.seed("foo", b"fooz")
    versioned(s)
    s.get("foo", VersionId="null").ok(200, b"fooz")
    s.delete("foo", VersionId="null")
    s.get("foo").refused(404, "NoSuchKey")
    s.get("foo", VersionId="null").refused(404, "NoSuchVersion", "NoSuchKey")


@test
def versioning_obj_plain_null_version_overwrite(s):
    s.seed("foo", b"fooz")
    versioned(s)
    s.get("foo").ok(200, b"fooz")
    new = s.put("foo", b"zzz").ok(200).data["VersionId"]
    s.get("foo").ok(200, b"zzz")
    s.get("foo", VersionId="null").ok(200, b"fooz")
    s.delete("foo", VersionId=new)
    s.get("foo").ok(200, b"fooz")


@test
def versioning_bad_version_id(s):
    versioned(s)
    s.seed("foo", b"x")
    s.get("foo", VersionId="not a version").refused(400, "InvalidArgument")


@test
def delete_marker_get(s):
    versioned(s)
    s.seed("foo", b"x")
    s.get("foo").ok(200, b"x")
    answer = s.delete("foo")
    equal((answer.status, answer.data["DeleteMarker"]), (204, True), "DELETE")
    gone = s.get("foo").refused(404, "NoSuchKey")
    equal(gone.headers.get("x-amz-delete-marker"), "true", "x-amz-delete-marker")


@test
def delete_marker_head(s):
    versioned(s)
    s.seed("foo", b"x")
    s.delete("foo")
    equal(s.head("foo").refused(404).headers.get("x-amz-delete-marker"), "true", "x-amz-delete-marker")


@test
def delete_marker_by_version(s):
    versioned(s)
    s.seed("foo", b"x")
    marker = s.delete("foo").data["VersionId"]
    s.get("foo", VersionId=marker).refused(405, "MethodNotAllowed")
    s.head("foo", VersionId=marker).refused(405)


@test
def delete_marker_keeps_versions(s):
    versioned(s)
    version = s.seed("foo", b"x")["VersionId"]
    s.delete("foo")
    s.get("foo", VersionId=version).ok(200, b"x")
    listed = s.read("list_object_versions").data
    equal((len(listed["Versions"]), len(listed["DeleteMarkers"])), (1, 1), "versions and markers")


@test
def delete_marker_removed(s):
    versioned(s)
    s.seed("foo", b"x")
    marker = s.delete("foo").data["VersionId"]
    s.get("foo").refused(404, "NoSuchKey")
    s.delete("foo", VersionId=marker)
    s.get("foo").ok(200, b"x")


@test
def delete_marker_nonversioned(s):
    s.seed("foo", b"x")
    answer = s.delete("foo")
    equal((answer.status, answer.data.get("DeleteMarker")), (204, None), "DELETE")
    equal(s.get("foo").refused(404, "NoSuchKey").headers.get("x-amz-delete-marker"), None, "x-amz-delete-marker")


@test
def delete_marker_suspended(s):
    versioned(s)
    s.seed("foo", b"x")
    versioned(s, "Suspended")
    s.get("foo").ok(200, b"x")
    answer = s.delete("foo")
    equal((answer.data.get("DeleteMarker"), answer.data.get("VersionId")), (True, "null"), "DELETE")
    s.get("foo").refused(404, "NoSuchKey")


@test
def delete_marker_overwritten(s):
    versioned(s)
    s.seed("foo", b"x")
    s.delete("foo")
    s.get("foo").refused(404, "NoSuchKey")
    s.put("foo", b"y").ok(200)
    s.get("foo").ok(200, b"y")


@test
def versioning_multi_object_delete(s):
    versioned(s)
    ids = [s.seed("foo", b"%d" % i)["VersionId"] for i in range(2)]
    s.get("foo").ok(200, b"1")
    s.call("delete_objects", Delete={"Objects": [{"Key": "foo", "VersionId": ids[1]}]}).ok(200)
    s.get("foo").ok(200, b"0")
    s.get("foo", VersionId=ids[1]).refused(404, "NoSuchVersion")


@test
def versioning_copy_obj_version(s):
    versioned(s)
    ids = [s.seed("foo", b"%d" % i)["VersionId"] for i in range(2)]
    s.call("copy_object", Key="copy", CopySource={"Bucket": s.bucket, "Key": "foo", "VersionId": ids[0]}).ok(200)
    s.get("copy").ok(200, b"0")
