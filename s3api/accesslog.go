package s3api

import (
	"context"
	"log/slog"
	"time"
)

// logAccess writes one line of what was asked and answered. The query and the headers stay out of it: they can hold
// signatures, tokens and keys.
func (x *exchange) logAccess() {
	x.h.logger.LogAttrs(context.WithoutCancel(x.r.Context()), slog.LevelInfo, "request",
		slog.String("method", x.r.Method),
		slog.String("operation", x.op.name),
		slog.String("bucket", x.object.Bucket),
		slog.String("key", x.object.Key),
		slog.Int("status", x.status),
		slog.Int64("bytes", x.written),
		slog.Duration("duration", time.Since(x.start)),
		slog.String("cache", x.cache),
		slog.String("request_id", x.id),
		slog.String("access_key", x.who.accessKey),
		slog.String("remote", x.r.RemoteAddr),
	)
}
