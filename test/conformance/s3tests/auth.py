"""Requests that are signed wrongly or not at all, and uploads that are not what their headers say."""

import hashlib
import re
import urllib.parse

from botocore.credentials import Credentials

from harness import clock, equal, now, test, twice


def create(s, change=None, body=b"bar", **args):
    """PUTs an object with headers that are changed after signing, and sees to it that what is refused is not there."""
    answer = s.raw("PUT", s.object("foo"), body, change=change, **args)
    if answer.status >= 300:
        s.get("foo").refused(404, "NoSuchKey")
    else:
        s.get("foo").ok(200, body)
    return answer


def header(name, value):
    """A change of one header: to None, it is not sent."""
    def change(headers):
        for key in list(headers):
            if key.lower() == name.lower():
                del headers[key]
        headers[name] = value
    return change


@test
def object_create_bad_authorization_empty(s):
    create(s, header("Authorization", "")).refused(403, "AccessDenied")


@test
def object_create_bad_authorization_none(s):
    create(s, header("Authorization", None)).refused(403, "AccessDenied")


@test
def object_create_bad_authorization_unreadable(s):
    create(s, header("Authorization", "\x07")).refused(400)


@test
def object_create_bad_authorization_invalid_aws4(s):
    create(s, header("Authorization", "AWS4-HMAC-SHA256 Credential=HAHAHA")).refused(
        400, "AuthorizationHeaderMalformed", "InvalidArgument")


@test
def object_create_bad_authorization_invalid_aws2(s):
    create(s, header("Authorization", "AWS HAHAHA")).refused(400, "InvalidRequest", "InvalidArgument")


@test
def object_create_bad_authorization_incorrect_aws4(s):
    create(s, header("Authorization", "AWS4-HMAC-SHA256 Credential=AKIAIGR7ZNNBHC5BKSUB/"
                     f"{now():%Y%m%d}/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
                     "Signature=FWeDfwojDSdS2Ztmpfeubhd9isU")).refused(
        403, "AccessDenied", "SignatureDoesNotMatch", "InvalidAccessKeyId")


@test
def bad_auth_unknown_access_key(s):
    create(s, key=Credentials("badauth", "roflmao")).refused(403, "InvalidAccessKeyId")


@test
def bad_auth_wrong_secret(s):
    create(s, key=Credentials(s.key.access_key, "roflmao")).refused(403, "SignatureDoesNotMatch")


@test
def list_buckets_invalid_auth(s):
    s.raw("GET", "/", key=Credentials("aaaaaaaaaaaaaaaaaaaa", "bbb")).refused(403, "InvalidAccessKeyId")


@test
def list_buckets_bad_auth(s):
    s.raw("GET", "/", key=Credentials(s.key.access_key, "bbb")).refused(403, "SignatureDoesNotMatch")


@test
def list_buckets_anonymous(s):
    s.raw("GET", "/", sign=False).refused(403, "AccessDenied")


@test
def bad_auth_read_of_a_cached_object(s):
    s.seed("foo", b"bar")
    s.get("foo").ok(200, b"bar")
    for key in Credentials("badauth", "roflmao"), Credentials(s.key.access_key, "roflmao"):
        answer = twice(lambda: s.raw("GET", s.object("foo"), key=key).refused(403))
        equal(b"bar" in answer.body, False, "contents in the refusal")
    s.raw("GET", s.object("foo"), sign=False).refused(403, "AccessDenied")


@test
def bad_auth_signed_for_another_method(s):
    s.seed("foo", b"bar")
    target = s.presigned("get_object", "foo")
    s.raw("GET", target, sign=False).ok(200, b"bar")
    s.raw("DELETE", target, sign=False).refused(403, "SignatureDoesNotMatch")
    s.get("foo").ok(200, b"bar")


@test
def bad_auth_header_added_after_signing(s):
    create(s, header("x-amz-meta-evil", "1")).refused(403, "AccessDenied")


@test
def bad_auth_header_changed_after_signing(s):
    create(s, header("x-amz-meta-a", "2"), headers={"x-amz-meta-a": "1"}).refused(403, "SignatureDoesNotMatch")


@test
def object_create_bad_amz_date_invalid_aws4(s):
    create(s, header("X-Amz-Date", "Bad Date")).refused(403, "AccessDenied", "SignatureDoesNotMatch")


@test
def object_create_bad_amz_date_none_aws4(s):
    create(s, header("X-Amz-Date", None)).refused(403, "AccessDenied", "SignatureDoesNotMatch")


@test
def object_create_bad_amz_date_before_today_aws4(s):
    create(s, when=now(days=-2)).refused(403, "RequestTimeTooSkewed")


@test
def object_create_bad_amz_date_after_today_aws4(s):
    create(s, when=now(days=2)).refused(403, "RequestTimeTooSkewed")


@test
def object_create_within_skew(s):
    create(s, when=now(minutes=-10)).ok(200)


@test
def object_create_bad_region(s):
    s.raw("PUT", s.object("foo"), b"bar", change=lambda h: h.update(
        Authorization=h["Authorization"].replace("us-east-1", "eu-west-1"))).refused(400, "AuthorizationHeaderMalformed")


@test
def object_create_bad_md5_invalid_short(s):
    create(s, headers={"Content-MD5": "YWJyYWNhZGFicmE="}).refused(400, "InvalidDigest")


@test
def object_create_bad_md5_bad(s):
    create(s, headers={"Content-MD5": "rL0Y20xC+Fzt72VPzMSk2A=="}).refused(400, "BadDigest")


@test
def object_create_bad_md5_invalid_garbage(s):
    create(s, headers={"Content-MD5": "AWS HAHAHA"}).refused(400, "InvalidDigest")


@test
def object_create_good_md5(s):
    create(s, headers={"Content-MD5": "N7UdGUp1E+RbVvZSTy1R8g=="}).ok(200)


@test
def object_create_bad_contentlength_none(s):
    def change(headers):
        headers.update({"Content-Length": None, "Transfer-Encoding": "chunked"})
    create(s, change, b"3\r\nbar\r\n0\r\n\r\n", payload="UNSIGNED-PAYLOAD").refused(411, "MissingContentLength")


@test
def object_create_bad_contentlength_mismatch_below_aws4(s):
    create(s, header("Content-Length", "2")).refused(400, "XAmzContentSHA256Mismatch")


@test
def object_create_bad_contentlength_negative(s):
    answer = s.raw("PUT", s.object("foo"), b"", change=header("Content-Length", "-1"))
    equal(answer.status, 400, "status")


@test
def object_create_bad_sha256_mismatch(s):
    create(s, payload=hashlib.sha256(b"other").hexdigest()).refused(400, "XAmzContentSHA256Mismatch")


@test
def object_create_bad_ua_none(s):
    create(s, header("User-Agent", None)).ok(200)


@test
def object_create_bad_ua_empty(s):
    create(s, header("User-Agent", "")).ok(200)


@test
def object_create_bad_contenttype_empty(s):
    create(s, headers={"Content-Type": ""}).ok(200)


@test
def object_create_expect_continue(s):
    create(s, headers={"Expect": "100-continue"}).ok(200)


@test
def object_raw_get_x_amz_expires_not_expired(s):
    s.seed("foo", b"bar")
    target = s.presigned("get_object", "foo", 100000)
    twice(lambda: s.raw("GET", target, sign=False)).ok(200, b"bar")


@test
def object_raw_get_x_amz_expires_out_max_range(s):
    s.seed("foo", b"bar")
    s.raw("GET", s.presigned("get_object", "foo", 609901), sign=False).refused(
        400, "AuthorizationQueryParametersError")


@test
def object_raw_get_x_amz_expires_out_positive_range(s):
    s.seed("foo", b"bar")
    s.raw("GET", s.presigned("get_object", "foo", -7), sign=False).refused(400, "AuthorizationQueryParametersError")


@test
def object_raw_get_x_amz_expires_expired(s):
    s.seed("foo", b"bar")
    with clock(now(hours=-1)):
        target = s.presigned("get_object", "foo", 60)
    twice(lambda: s.raw("GET", target, sign=False)).refused(403, "AccessDenied")


@test
def object_raw_get_presigned_tampered(s):
    s.seed("foo", b"bar")
    s.seed("foo2", b"secret")
    s.get("foo2").ok(200)
    target = s.presigned("get_object", "foo")
    s.raw("GET", target.replace("/foo?", "/foo2?"), sign=False).refused(403, "SignatureDoesNotMatch")
    s.raw("GET", target + "&versionId=null", sign=False).refused(403, "SignatureDoesNotMatch")


@test
def object_raw_get_presigned_incomplete(s):
    s.seed("foo", b"bar")
    target = s.presigned("get_object", "foo")
    for name in "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", \
            "X-Amz-Signature":
        cut = re.sub(f"&?{name}=[^&]*", "", target)
        s.raw("GET", cut, sign=False).refused(400, "AuthorizationQueryParametersError")


@test
def object_raw_get_object_gone(s):
    s.seed("foo", b"bar")
    target = s.presigned("get_object", "foo")
    s.raw("GET", target, sign=False).ok(200, b"bar")
    s.delete("foo")
    s.raw("GET", target, sign=False).refused(404, "NoSuchKey")


@test
def object_raw_put_presigned(s):
    s.raw("PUT", s.presigned("put_object", "foo"), b"bar", sign=False).ok(200)
    s.get("foo").ok(200, b"bar")


@test
def object_raw_get_with_header_and_query(s):
    s.seed("foo", b"bar")
    s.raw("GET", s.presigned("get_object", "foo")).refused(400, "InvalidArgument")


@test
def object_anon_put(s):
    s.raw("PUT", s.object("foo"), b"foo", sign=False).refused(403, "AccessDenied")
    s.get("foo").refused(404, "NoSuchKey")


@test
def object_raw_get_sigv2(s):
    s.seed("foo", b"bar")
    query = urllib.parse.urlencode({"AWSAccessKeyId": s.key.access_key, "Expires": "4102444800", "Signature": "x"})
    s.raw("GET", s.object("foo") + "?" + query, sign=False).refused(400, "InvalidRequest")
