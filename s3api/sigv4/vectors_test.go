package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const exampleAuth = "Authorization: AWS4-HMAC-SHA256 " +
	"Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"

// The examples of the S3 API reference: "Signature Calculations for the Authorization Header" (single chunk, multiple
// chunks, multiple chunks with a trailer) and "Using Query Parameters".
var vectors = []struct {
	name, raw string
	want      Identity
}{
	{"get object", "GET /test.txt HTTP/1.1\nHost: examplebucket.s3.amazonaws.com\n" + exampleAuth +
		"SignedHeaders=host;range;x-amz-content-sha256;x-amz-date," +
		"Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41\n" +
		"Range: bytes=0-9\nx-amz-content-sha256: " + emptyHash + "\nx-amz-date: 20130524T000000Z\n\n",
		Identity{Payload: PayloadHash, Hash: emptyHash}},
	{"put object", "PUT /test$file.text HTTP/1.1\nHost: examplebucket.s3.amazonaws.com\n" +
		"Date: Fri, 24 May 2013 00:00:00 GMT\n" + exampleAuth +
		"SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class," +
		"Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd\n" +
		"x-amz-date: 20130524T000000Z\nx-amz-storage-class: REDUCED_REDUNDANCY\n" +
		"x-amz-content-sha256: 44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072\n" +
		"Content-Length: 21\n\nWelcome to Amazon S3.",
		Identity{Payload: PayloadHash, Hash: "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"}},
	{"get bucket lifecycle", "GET /?lifecycle HTTP/1.1\nHost: examplebucket.s3.amazonaws.com\n" + exampleAuth +
		"SignedHeaders=host;x-amz-content-sha256;x-amz-date," +
		"Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543\n" +
		"x-amz-date: 20130524T000000Z\nx-amz-content-sha256: " + emptyHash + "\n\n",
		Identity{Payload: PayloadHash, Hash: emptyHash}},
	{"list objects", "GET /?max-keys=2&prefix=J HTTP/1.1\nHost: examplebucket.s3.amazonaws.com\n" + exampleAuth +
		"SignedHeaders=host;x-amz-content-sha256;x-amz-date," +
		"Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7\n" +
		"x-amz-date: 20130524T000000Z\nx-amz-content-sha256: " + emptyHash + "\n\n",
		Identity{Payload: PayloadHash, Hash: emptyHash}},
	{"presigned", "GET /test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256" +
		"&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request" +
		"&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host" +
		"&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404 HTTP/1.1\n" +
		"Host: examplebucket.s3.amazonaws.com\n\n",
		Identity{Presigned: true, Payload: PayloadUnsigned}},
	{"streaming", "PUT /examplebucket/chunkObject.txt HTTP/1.1\nHost: s3.amazonaws.com\n" +
		"x-amz-date: 20130524T000000Z\nx-amz-storage-class: REDUCED_REDUNDANCY\n" + exampleAuth +
		"SignedHeaders=content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;" +
		"x-amz-decoded-content-length;x-amz-storage-class," +
		"Signature=4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9\n" +
		"x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\nContent-Encoding: aws-chunked\n" +
		"x-amz-decoded-content-length: 66560\nContent-Length: 66824\n\n",
		Identity{Payload: PayloadStreaming}},
	{"streaming with a trailer", "PUT /examplebucket/chunkObject.txt HTTP/1.1\nHost: s3.amazonaws.com\n" +
		"x-amz-date: 20130524T000000Z\nx-amz-storage-class: REDUCED_REDUNDANCY\n" + exampleAuth +
		"SignedHeaders=content-encoding;host;x-amz-content-sha256;x-amz-date;" +
		"x-amz-decoded-content-length;x-amz-storage-class;x-amz-trailer," +
		"Signature=106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e\n" +
		"x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER\nContent-Encoding: aws-chunked\n" +
		"x-amz-decoded-content-length: 66560\nx-amz-trailer: x-amz-checksum-crc32c\nContent-Length: 66824\n\n",
		Identity{Payload: PayloadStreamingTrailer}},
}

func TestPublishedVectors(t *testing.T) {
	for _, vector := range vectors {
		t.Run(vector.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(exampleTime))
				v := New(exampleConfig())
				got, err := v.Verify(parse(t, vector.raw))
				if err != nil {
					t.Fatal(err, err.(*Error).Fields)
				}
				want := vector.want
				want.AccessKey = exampleKey
				want.Date = "20130524T000000Z"
				want.Scope = "20130524/us-east-1/s3/aws4_request"
				want.Signature, want.SigningKey, want.SignedHeaders = got.Signature, got.SigningKey, got.SignedHeaders // below
				if got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
				if !strings.Contains(strings.ReplaceAll(vector.raw, "%3B", ";"), "SignedHeaders="+got.SignedHeaders) {
					t.Errorf("signed headers %q are not the request's", got.SignedHeaders)
				}
				if !strings.Contains(vector.raw, "Signature="+got.Signature) {
					t.Errorf("signature %q is not the request's", got.Signature)
				}
				if again, err := v.Verify(parse(t, vector.raw)); err != nil || again != got {
					t.Errorf("with the derived key cached: %+v, %v", again, err)
				}

				altered := strings.Replace(vector.raw, "Signature="+got.Signature[:4], "Signature=0000", 1)
				e := refusal(t, v, parse(t, altered), time.Now())
				if e.Code != "SignatureDoesNotMatch" || e.Status != 403 {
					t.Errorf("altered signature: %v", e)
				}
			})
		})
	}
}

// The seed signature and the key of an Identity are what the signatures of chunks are computed from.
func TestChunkSignatures(t *testing.T) {
	// The three chunks of the streaming example and their signatures.
	chunks := []struct {
		size      int
		signature string
	}{
		{65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"},
		{1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"},
		{0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"},
	}
	v := New(exampleConfig())
	id, err := v.verify(parse(t, vectors[5].raw), exampleTime)
	if err != nil {
		t.Fatal(err)
	}
	previous := id.Signature
	for i, c := range chunks {
		sum := sha256.Sum256([]byte(strings.Repeat("a", c.size)))
		h := hmac.New(sha256.New, id.SigningKey[:])
		fmt.Fprintf(h, "AWS4-HMAC-SHA256-PAYLOAD\n%s\n%s\n%s\n%s\n%x", id.Date, id.Scope, previous, emptyHash, sum)
		if previous = hex.EncodeToString(h.Sum(nil)); previous != c.signature {
			t.Fatalf("chunk %d: signature %s, want %s", i, previous, c.signature)
		}
	}
}

// A log line that prints an Identity must not print a key.
func TestIdentityHidesItsKey(t *testing.T) {
	v := New(exampleConfig())
	id, err := v.verify(parse(t, vectors[0].raw), exampleTime)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		lines = append(lines, fmt.Sprintf(format, id))
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("text", "id", id)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("json", "id", id)
	for _, line := range append(lines, strings.Split(strings.TrimSpace(log.String()), "\n")...) {
		if !strings.Contains(line, exampleKey) || strings.Contains(line, id.Signature) ||
			strings.Contains(line, fmt.Sprintf("%d,", id.SigningKey[0])) || strings.Contains(line, "SigningKey") {
			t.Errorf("%s", line)
		}
	}
}
