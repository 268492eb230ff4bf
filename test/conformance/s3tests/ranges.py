from harness import equal, test

CONTENT = b"testcontent"


def ranged(s, wanted, status, body, content_range, content=CONTENT):
    s.seed("testobj", content)
    answer = s.get("testobj", Range=wanted).ok(status, body)
    equal(answer.headers.get("content-range"), content_range, "Content-Range")
    equal(answer.headers["content-length"], str(len(body)), "Content-Length")


@test
def ranged_request_response_code(s):
    ranged(s, "bytes=4-7", 206, CONTENT[4:8], "bytes 4-7/11")


@test
def ranged_big_request_response_code(s):
    big = bytes(range(256)) * (8 << 12)
    ranged(s, "bytes=3145728-5242880", 206, big[3145728:5242881], "bytes 3145728-5242880/8388608", big)


@test
def ranged_request_skip_leading_bytes_response_code(s):
    ranged(s, "bytes=4-", 206, CONTENT[4:], "bytes 4-10/11")


@test
def ranged_request_return_trailing_bytes_response_code(s):
    ranged(s, "bytes=-7", 206, CONTENT[-7:], "bytes 4-10/11")


@test
def ranged_request_trailing_bytes_beyond_size(s):
    ranged(s, "bytes=-100", 206, CONTENT, "bytes 0-10/11")


@test
def ranged_request_end_beyond_size(s):
    ranged(s, "bytes=4-400", 206, CONTENT[4:], "bytes 4-10/11")


@test
def ranged_request_invalid_range(s):
    s.seed("testobj", CONTENT)
    s.get("testobj", Range="bytes=40-50").refused(416, "InvalidRange")


@test
def ranged_request_empty_object(s):
    s.seed("testobj", b"")
    s.get("testobj", Range="bytes=40-50").refused(416, "InvalidRange")


@test
def ranged_request_malformed(s):
    s.seed("testobj", CONTENT)
    for wanted in "bytes=7-4", "bytes=-", "4-7":
        s.get("testobj", Range=wanted).ok(200, CONTENT)


@test
def ranged_request_several_ranges(s):
    s.seed("testobj", CONTENT)
    s.get("testobj", Range="bytes=0-1,4-7").ok(200, CONTENT)


@test
def ranged_request_head(s):
    s.seed("testobj", CONTENT)
    answer = s.head("testobj", Range="bytes=4-7").ok(206)
    equal(answer.headers["content-range"], "bytes 4-7/11", "Content-Range")
    equal(answer.headers["content-length"], "4", "Content-Length")
