package s3api

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/ashlar-s3/ashlar/origin"
)

// Why a connection was cut off instead of an answer, or in the middle of one.
const (
	cutByClient = "client" // it left, or stopped reading
	cutForSlow  = "slow"   // it took the answer more slowly than Limits.MinRate; a case of "client" in the metrics
	cutByOrigin = "origin" // it failed in mid-answer
	cutByPanic  = "panic"  // we did
)

// maxLogged bounds what a client or an origin chose, in bytes.
const maxLogged = 128

// logAccess writes one line of what was asked and answered. The query and the headers stay out of it: they can hold
// signatures, tokens and keys. Of those, only the access key is told, and where no signature proves it, by another name.
func (x *exchange) logAccess() {
	attrs := []slog.Attr{
		slog.String("method", x.r.Method),
		slog.String("operation", x.op.name),
		slog.String("bucket", x.object.Bucket),
		slog.String("key", x.object.Key),
		slog.Int("status", x.outcome()),
		slog.String("code", x.errorCode()),
		slog.Int64("bytes", x.written),
		slog.Float64("seconds", time.Since(x.start).Round(time.Microsecond).Seconds()),
		slog.String("cache", x.cache),
		slog.String("request_id", x.id),
		slog.String("access_key", x.who.accessKey),
		slog.String("remote", x.r.RemoteAddr),
	}
	if claim := x.claimedKey(); x.who.accessKey == "" && claim != "" {
		attrs = append(attrs, slog.String("unverified_access_key", claim))
	}
	if x.cut != "" {
		attrs = append(attrs, slog.String("cut", x.cut))
		if x.status != statusClientGone { // that is never sent
			attrs = append(attrs, slog.Int("sent_status", x.status))
		}
	}
	if x.err != nil && (x.cut != "" || x.status >= 500) { // what else was refused is the client's affair
		attrs = append(attrs, slog.String("error", logText(x.err)))
	}
	x.h.logger.LogAttrs(context.WithoutCancel(x.r.Context()), slog.LevelInfo, "request", attrs...)
}

// outcome is the status, but for an answer that was cut off: whatever its header said, it was no success.
func (x *exchange) outcome() int {
	switch x.cut {
	case "":
		return x.status
	case cutByOrigin:
		return http.StatusBadGateway
	case cutByPanic:
		return http.StatusInternalServerError
	}
	return statusClientGone
}

// errorCode is the S3 error code of the answer: what its body said, or would have said where a HEAD has none.
func (x *exchange) errorCode() string {
	if x.code != "" || x.err == nil || x.status < 400 || x.status == statusClientGone {
		return x.code
	}
	var answer *origin.Error
	if errors.As(x.err, &answer) && !errors.Is(x.err, origin.ErrChanged) {
		return x.unspoken(answer).Code
	}
	return x.refusal(x.err).Code
}

// codeIn finds the code in the beginning of an S3 error document, ours or the origin's; "" where there is none.
func codeIn(document []byte) string {
	_, rest, ok := bytes.Cut(document[:min(len(document), 1024)], []byte("<Code>"))
	code, _, closed := bytes.Cut(rest, []byte("</Code>"))
	if !ok || !closed || len(code) > maxLogged {
		return ""
	}
	return string(code)
}

// claimedKey is the access key that a request says it is signed with, in header or query, true or not.
func (x *exchange) claimedKey() string {
	claim, _ := x.query.Get("X-Amz-Credential")
	if _, after, ok := strings.Cut(x.r.Header.Get("Authorization"), "Credential="); ok {
		claim = after
	}
	claim, _, _ = strings.Cut(claim, "/")
	return claim[:min(len(claim), maxLogged)]
}
