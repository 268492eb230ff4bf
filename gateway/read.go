package gateway

import (
	"context"
	"errors"
	"io"

	"github.com/ashlar-s3/ashlar/origin"
)

// Gateway is the engine. Safe for concurrent use.
type Gateway struct{}

type read struct{}

var errStub = errors.New("gateway: being written")

func New(c Config) (*Gateway, error) { return &Gateway{}, nil }

// Open settles the info of an object, checks the request against it, and gets the first block. Errors: what Check
// returned; *RangeError; *origin.Error as the origin gave it; other errors of the origin package (a timeout, an unusable
// answer); ctx.Err().
func (g *Gateway) Open(ctx context.Context, r Request) (*Object, error) { return nil, errStub }

// Invalidate forgets the info of an object and of all its versions and spellings, and lets no probe or fetch that is under way publish what it
// finds. Call it after every write that may have taken effect.
func (g *Gateway) Invalidate(o origin.Object) {}

// Insert cuts a whole object that was just written into blocks.
func (g *Gateway) Insert(ctx context.Context, o origin.Object, info *origin.Info, body io.Reader) error {
	return errStub
}

// Close waits for fetches to end.
func (g *Gateway) Close() {}

// WriteTo writes the bytes [Offset, Offset+Length) to w, once. An error that came from w is returned as it is; after
// any other the error matches ErrInterrupted if fewer bytes than Length were written.
func (o *Object) WriteTo(w io.Writer) (int64, error) { return 0, errStub }

// Close gives back what the read holds. It may be called at any time and more than once.
func (o *Object) Close() {}
