from harness import equal, test, twice


def metadata_of(s, key="foo"):
    got = s.get(key).ok(200).data["Metadata"]
    equal(s.head(key).ok(200).data["Metadata"], got, "metadata by HEAD")
    return got


@test
def object_set_get_metadata_none_to_good(s):
    s.put("foo", b"bar", Metadata={"meta1": "mymeta"}).ok(200)
    equal(metadata_of(s), {"meta1": "mymeta"})


@test
def object_set_get_metadata_none_to_empty(s):
    s.put("foo", b"bar", Metadata={"meta1": ""}).ok(200)
    equal(metadata_of(s), {"meta1": ""})


@test
def object_set_get_metadata_overwrite_to_empty(s):
    s.seed("foo", b"bar", Metadata={"meta1": "oldmeta"})
    equal(metadata_of(s), {"meta1": "oldmeta"})
    s.put("foo", b"bar", Metadata={"meta1": ""}).ok(200)
    equal(metadata_of(s), {"meta1": ""})


@test
def object_set_get_unicode_metadata(s):
    """Bytes beyond ASCII come back as they were put, or as RFC 2047 has them."""
    utf8 = "Hello World\xe9".encode()
    s.raw("PUT", s.object("foo"), b"bar", headers={"x-amz-meta-meta1": utf8.decode()},
          change=lambda h: h.update({"x-amz-meta-meta1": utf8})).ok(200)
    got = twice(lambda: s.raw("GET", s.object("foo"))).ok(200, b"bar").headers["x-amz-meta-meta1"]
    equal(got in (utf8.decode("latin-1"), "=?UTF-8?Q?Hello_World=C3=A9?=", "=?UTF-8?B?SGVsbG8gV29ybGTDqQ==?="), True, got)


@test
def object_metadata_replaced_on_put(s):
    s.put("foo", b"bar", Metadata={"meta1": "bar"}, ContentType="text/plain").ok(200)
    equal(metadata_of(s), {"meta1": "bar"})
    s.put("foo", b"bar").ok(200)
    equal(metadata_of(s), {})


@test
def object_metadata_names_in_lower_case(s):
    s.put("foo", b"bar", Metadata={"MixedCase-Name": "Value"}).ok(200)
    equal(metadata_of(s), {"mixedcase-name": "Value"})


@test
def object_metadata_on_range(s):
    s.seed("foo", b"bar", Metadata={"meta1": "v"}, ContentType="text/x-y", CacheControl="no-cache")
    answer = s.get("foo", Range="bytes=1-1").ok(206, b"a")
    equal((answer.data["Metadata"], answer.headers["content-type"], answer.headers["cache-control"]),
          ({"meta1": "v"}, "text/x-y", "no-cache"), "headers")


@test
def object_metadata_too_large(s):
    s.put("foo", b"bar", Metadata={"meta1": "x" * 2500}).refused(400, "MetadataTooLarge")


@test
def object_raw_response_headers(s):
    """What response-* parameters ask for is for one answer, and leaves no trace."""
    s.seed("foo", b"bar", ContentType="text/plain")
    s.get("foo").ok(200)
    wanted = {"ResponseCacheControl": "no-cache", "ResponseContentDisposition": "bla", "ResponseContentEncoding": "aaa",
              "ResponseContentLanguage": "esperanto", "ResponseContentType": "foo/bar",
              "ResponseExpires": "Thu, 01 Dec 1994 16:00:00 GMT"}
    answer = s.get("foo", **wanted).ok(200, b"bar")
    equal([answer.headers.get(n) for n in ("cache-control", "content-disposition", "content-encoding", "content-language",
                                           "content-type")], ["no-cache", "bla", "aaa", "esperanto", "foo/bar"], "headers")
    answer = s.get("foo").ok(200, b"bar")
    equal([answer.headers.get(n) for n in ("cache-control", "content-disposition", "content-type")],
          [None, None, "text/plain"], "headers afterwards")
