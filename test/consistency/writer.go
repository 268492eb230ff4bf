package consistency

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"strings"
)

// writer is one client that writes.
type writer struct {
	*run
	rng *rand.Rand
	id  int
}

// step does one write and adds it to the history.
func (w *writer) step(ctx context.Context) error {
	key := w.key(w.rng)
	switch n := w.rng.IntN(100); {
	case n < 40:
		v, body := w.versions.add(key, w.size(w.rng), false)
		return w.write(ctx, put(v, body), v.name())
	case n < 55:
		v, body := w.versions.add(key, w.size(w.rng), false)
		return w.write(ctx, putChunked(v, body), v.name())
	case n < 60:
		v, body := w.versions.add(key, w.size(w.rng), false)
		r := put(v, body)
		r.header["If-None-Match"] = "*"
		return w.write(ctx, r, v.name())
	case n < 65:
		return w.replace(ctx, key)
	case n < 75:
		return w.write(ctx, request{method: http.MethodDelete, key: key}, "")
	case n < 80:
		return w.deleteObjects(ctx)
	case n < 90:
		return w.copy(ctx, key)
	default:
		return w.multipart(ctx, key)
	}
}

func put(v *version, body []byte) request {
	return request{method: http.MethodPut, key: v.key, body: body, header: map[string]string{nameHeader: v.name()}}
}

// putChunked is put with an aws-chunked body, in unsigned chunks and with a checksum behind them.
func putChunked(v *version, body []byte) request {
	r := put(v, nil)
	r.hash = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	r.header["Content-Encoding"] = "aws-chunked"
	r.header["X-Amz-Decoded-Content-Length"] = fmt.Sprint(len(body))
	r.header["X-Amz-Trailer"] = "x-amz-checksum-crc32"
	sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(body))
	const chunk = 64 << 10
	for len(body) > 0 {
		n := min(chunk, len(body))
		r.body = fmt.Appendf(r.body, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	r.body = fmt.Appendf(r.body, "0\r\nx-amz-checksum-crc32:%s\r\n\r\n", base64.StdEncoding.EncodeToString(sum))
	return r
}

// replace overwrites what is there, if it is still there then.
func (w *writer) replace(ctx context.Context, key string) error {
	resp, _, err := w.ask(ctx, request{method: http.MethodHead, key: key})
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil
	}
	v, body := w.versions.add(key, w.size(w.rng), false)
	r := put(v, body)
	r.header["If-Match"] = resp.Header.Get("Etag")
	return w.write(ctx, r, v.name())
}

func (w *writer) deleteObjects(ctx context.Context) error {
	var list strings.Builder
	var keys []string
	list.WriteString("<Delete>")
	for range 1 + w.rng.IntN(3) {
		key := w.key(w.rng)
		keys = append(keys, key)
		fmt.Fprintf(&list, "<Object><Key>%s</Key></Object>", key)
	}
	list.WriteString("</Delete>")
	sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(list.String())))
	return w.write(ctx, request{
		method: http.MethodPost, query: "delete=", body: []byte(list.String()),
		header: map[string]string{"X-Amz-Checksum-Crc32": base64.StdEncoding.EncodeToString(sum)},
	}, "", keys...)
}

// copy copies what this writer alone puts aside first, bytes and metadata.
func (w *writer) copy(ctx context.Context, key string) error {
	v, body := w.versions.add(key, w.size(w.rng), false)
	aside := put(v, body)
	aside.key = fmt.Sprintf("aside%03d", w.id)
	if resp, _, err := w.ask(ctx, aside); err != nil || resp.StatusCode != http.StatusOK {
		return nil
	}
	return w.write(ctx, request{
		method: http.MethodPut, key: key, header: map[string]string{"X-Amz-Copy-Source": "/" + w.Bucket + "/" + aside.key},
	}, v.name())
}

// multipart uploads one part.
func (w *writer) multipart(ctx context.Context, key string) error {
	v, body := w.versions.add(key, 1+w.size(w.rng), true)
	resp, answer, err := w.ask(ctx, request{
		method: http.MethodPost, key: key, query: "uploads=", header: map[string]string{nameHeader: v.name()},
	})
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil
	}
	var upload struct{ UploadId string }
	if err := xml.Unmarshal(answer, &upload); err != nil || upload.UploadId == "" {
		return fmt.Errorf("CreateMultipartUpload: %s: %w", answer, err)
	}
	resp, _, err = w.ask(ctx, request{
		method: http.MethodPut, key: key, query: "partNumber=1&uploadId=" + upload.UploadId, body: body,
	})
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil
	}
	return w.write(ctx, request{
		method: http.MethodPost, key: key, query: "uploadId=" + upload.UploadId,
		body: fmt.Appendf(nil, "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part>"+
			"</CompleteMultipartUpload>", resp.Header.Get("Etag")),
	}, v.name())
}

// write sends a request that writes version, "" to delete, to its key or to keys.
func (w *writer) write(ctx context.Context, r request, version string, keys ...string) error {
	op := Op{Key: r.key, Write: true, Version: version, What: r.String(), Begin: w.now()}
	resp, body, err := w.ask(ctx, r)
	op.End = w.now()
	conditional := r.header["If-Match"] != "" || r.header["If-None-Match"] != ""
	switch {
	case err != nil:
		w.failed("write: " + reason(err))
		op.Outcome = Unknown
	case resp.StatusCode >= 500 || strings.Contains(string(body), "<Error>") && resp.StatusCode == http.StatusOK:
		w.failed(fmt.Sprint("write: ", resp.StatusCode))
		op.Outcome = Unknown
	case resp.StatusCode/100 == 2:
	case conditional && (resp.StatusCode == http.StatusPreconditionFailed ||
		resp.StatusCode == http.StatusConflict || resp.StatusCode == http.StatusNotFound):
		op.Outcome = Refused
	default:
		return fmt.Errorf("%v: %s: %s", op, resp.Status, body)
	}
	if keys == nil {
		w.add(op)
	}
	for _, op.Key = range keys {
		w.add(op)
	}
	return nil
}
