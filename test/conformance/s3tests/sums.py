import base64
import hashlib
import zlib

from harness import equal, test

BODY = b"x" * 1024
SHA256 = base64.b64encode(hashlib.sha256(BODY).digest()).decode()
SHA1 = base64.b64encode(hashlib.sha1(BODY).digest()).decode()
CRC32 = base64.b64encode(zlib.crc32(BODY).to_bytes(4, "big")).decode()


def reflected(data, polynomial, bits):
    """A reflected CRC, all ones before and after, in base64."""
    ones = (1 << bits) - 1
    crc = ones
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ polynomial * (crc & 1)
    return base64.b64encode((crc ^ ones).to_bytes(bits // 8, "big")).decode()


CRC32C = reflected(BODY, 0x82F63B78, 32)
CRC64NVME = reflected(BODY, 0x9A6C9329AC4BC9B5, 64)


def checksum(s, name, value):
    """An upload with a checksum has it: on HEAD and GET when asked for, and not on parts of it or unasked."""
    field, header = "Checksum" + name, "x-amz-checksum-" + name.lower()
    quiet = s.connect(s.endpoint, response_checksum_validation="when_required")
    equal(s.put("mysums", BODY, **{field: value}).ok(200).data.get(field), value, "checksum of the upload")
    equal(s.head("mysums", client=quiet).headers.get(header), None, "checksum of a HEAD that does not ask")
    equal(s.head("mysums", ChecksumMode="ENABLED").headers.get(header), value, "checksum of a HEAD")
    equal(s.get("mysums", ChecksumMode="ENABLED").ok(200, BODY).headers.get(header), value, "checksum of a GET")
    equal(s.get("mysums", client=quiet).ok(200, BODY).headers.get(header), None, "checksum of a GET that does not ask")
    s.put("mysums", BODY + b"y", **{field: value}).refused(400, "BadDigest")
    s.put("mysums", BODY, **{field: "bad"}).refused(400, "InvalidRequest")
    s.get("mysums").ok(200, BODY)


@test
def object_checksum_sha256(s):
    checksum(s, "SHA256", SHA256)


@test
def object_checksum_sha1(s):
    checksum(s, "SHA1", SHA1)


@test
def object_checksum_crc32(s):
    checksum(s, "CRC32", CRC32)


@test
def object_checksum_crc32c(s):
    checksum(s, "CRC32C", CRC32C)


@test
def object_checksum_crc64nvme(s):
    checksum(s, "CRC64NVME", CRC64NVME)


@test
def object_checksum_on_range(s):
    s.seed("mysums", BODY, ChecksumSHA256=SHA256)
    s.get("mysums", ChecksumMode="ENABLED").ok(200, BODY)
    s.get("mysums", ChecksumMode="ENABLED", Range="bytes=0-99").ok(206, BODY[:100])


@test
def object_checksum_of_two_algorithms(s):
    s.put("mysums", BODY, ChecksumSHA256=SHA256, ChecksumSHA1=SHA1).refused(400, "InvalidRequest")


@test
def object_checksum_unknown_algorithm(s):
    s.raw("PUT", s.object("mysums"), BODY, headers={"x-amz-sdk-checksum-algorithm": "CRC16"}).refused(400, "InvalidRequest")


def parts_with(s, algorithm, kind, parts):
    upload = s.call("create_multipart_upload", Key="mysums", ChecksumAlgorithm=algorithm, ChecksumType=kind).data["UploadId"]
    done = []
    for i, part in enumerate(parts, 1):
        digest = base64.b64encode(hashlib.sha256(part).digest()).decode() if algorithm == "SHA256" else \
            base64.b64encode(zlib.crc32(part).to_bytes(4, "big")).decode()
        got = s.call("upload_part", Key="mysums", UploadId=upload, PartNumber=i, Body=part,
                     **{"Checksum" + algorithm: digest}).ok(200)
        done.append({"PartNumber": i, "ETag": got.data["ETag"], "Checksum" + algorithm: digest})
    return upload, done


PARTS = [b"1" * (5 << 20), b"2" * 100]


@test
def multipart_checksum_sha256_composite(s):
    upload, done = parts_with(s, "SHA256", "COMPOSITE", PARTS)
    composite = base64.b64encode(hashlib.sha256(b"".join(
        hashlib.sha256(p).digest() for p in PARTS)).digest()).decode() + "-2"
    answer = s.call("complete_multipart_upload", Key="mysums", UploadId=upload, MultipartUpload={"Parts": done}).ok(200)
    equal(answer.data.get("ChecksumSHA256"), composite, "checksum of the upload")
    head = s.head("mysums", ChecksumMode="ENABLED")
    equal((head.headers.get("x-amz-checksum-sha256"), head.headers.get("x-amz-checksum-type")), (composite, "COMPOSITE"))
    s.get("mysums", ChecksumMode="ENABLED").ok(200, b"".join(PARTS))


@test
def multipart_checksum_crc32_full_object(s):
    upload, done = parts_with(s, "CRC32", "FULL_OBJECT", PARTS)
    whole = base64.b64encode(zlib.crc32(b"".join(PARTS)).to_bytes(4, "big")).decode()
    s.call("complete_multipart_upload", Key="mysums", UploadId=upload, ChecksumType="FULL_OBJECT", ChecksumCRC32=whole,
           MultipartUpload={"Parts": done}).ok(200)
    head = s.head("mysums", ChecksumMode="ENABLED")
    equal((head.headers.get("x-amz-checksum-crc32"), head.headers.get("x-amz-checksum-type")), (whole, "FULL_OBJECT"))
    s.get("mysums", ChecksumMode="ENABLED").ok(200, b"".join(PARTS))


@test
def multipart_checksum_upload_part_bad(s):
    upload = s.call("create_multipart_upload", Key="mysums", ChecksumAlgorithm="SHA256").data["UploadId"]
    s.call("upload_part", Key="mysums", UploadId=upload, PartNumber=1, Body=BODY + b"y", ChecksumSHA256=SHA256).refused(
        400, "BadDigest")


@test
def multipart_checksum_complete_bad(s):
    upload, done = parts_with(s, "SHA256", "COMPOSITE", [BODY])
    done[0]["ChecksumSHA256"] = base64.b64encode(hashlib.sha256(b"other").digest()).decode()
    s.call("complete_multipart_upload", Key="mysums", UploadId=upload, MultipartUpload={"Parts": done}).refused(
        400, "InvalidPart", "BadDigest")


@test
def object_checksum_get_attributes(s):
    s.seed("mysums", BODY, ChecksumSHA256=SHA256)
    answer = s.read("get_object_attributes", Key="mysums", ObjectAttributes=["Checksum", "ObjectSize", "ETag"]).ok(200)
    equal((answer.data["Checksum"]["ChecksumSHA256"], answer.data["ObjectSize"]), (SHA256, len(BODY)), "attributes")
