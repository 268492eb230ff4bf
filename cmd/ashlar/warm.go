package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashlar-s3/ashlar/client"
	"github.com/ashlar-s3/ashlar/origin"
)

const (
	warmObjects  = 4        // that are being fetched at a time
	warmPiece    = 64 << 20 // bytes of one that are asked for at once
	warmSaves    = time.Second
	warmProblems = 10 // that are told in full
)

func warmCommand() command {
	cmd := command{
		name:    "warm",
		usage:   "s3://BUCKET/PREFIX --config FILE",
		summary: "have the nodes of a cluster fetch objects before they are read",
		args:    1,
		help: `Lists the objects below the prefix at the origin, and has each node fetch the parts that it owns and does not
have yet. No bytes come here. FILE is a gateway's; its cluster.credentials sign, and need cluster = true and
read = true at the nodes.

With --state it notes in a file how far it has come, and a later run with the same file goes on from there. The file is
removed when all is done. What nodes were asked for and had no room for is not told: look at their metrics.

Exit code: 0 when all objects were fetched, 1 when not, 2 when the command line or the configuration can't be used.`,
	}
	cmd.run = func(ctx context.Context, c call, flags *flag.FlagSet) error {
		file := flags.String("config", "", configUsage)
		state := flags.String("state", "", "go on where the run ended that `FILE` tells of")
		rate := flags.String("rate", "", "at most `SIZE` a second, such as \"100 MiB\"; without it, as fast as can be")
		args, err := cmd.parseArgs(c, flags)
		if err != nil {
			return ignoreHelp(err)
		}
		if len(args) == 0 {
			return badInput("warm: which objects? (ashlar warm s3://BUCKET/PREFIX --config FILE)")
		}
		w := &warm{state: *state, stderr: c.stderr}
		if w.bucket, w.prefix, err = parseTarget(cmd, args[0]); err != nil {
			return err
		}
		if *rate != "" {
			n, err := parseSize(*rate)
			if err != nil || n == 0 {
				return badInput("warm: --rate: %q is not a size above 0", *rate)
			}
			w.pace.rate = int64(n)
		}
		if err := w.load(); err != nil {
			return err
		}
		if w.tools, err = openTools(ctx, cmd, *file, c.environ); err != nil {
			return err
		}
		defer w.tools.close()
		if err := w.run(ctx); err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s, %s, held by the nodes\n", objects(w.held), amount(w.bytes))
		return nil
	}
	return cmd
}

// warm is one run of the command.
type warm struct {
	tools          *tools
	bucket, prefix string
	state          string // file; "" for none
	stderr         io.Writer
	pace           pacer
	bar            *progress
	total          int64 // bytes there are

	mu       sync.Mutex
	after    string    // all up to this key is done; guarded by mu
	saved    time.Time // guarded by mu
	done     int64     // bytes, of what failed too; guarded by mu
	bytes    int64     // held; guarded by mu
	held     int       // objects; guarded by mu
	problems int       // guarded by mu
}

// warmState is the file.
type warmState struct {
	Bucket string `json:"bucket"`
	Prefix string `json:"prefix"`
	After  string `json:"after"`
}

// load takes up what a former run has left.
func (w *warm) load() error {
	if w.state == "" {
		return nil
	}
	data, err := os.ReadFile(w.state)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return badInput("warm: --state: %w", err)
	}
	var s warmState
	if err := json.Unmarshal(data, &s); err != nil || s.Bucket != w.bucket || s.Prefix != w.prefix {
		return badInput("warm: --state: %s is not of a run for s3://%s/%s; name another file, or remove it", w.state,
			w.bucket, w.prefix)
	}
	w.after = s.After
	return nil
}

// save notes how far this run has come. w.mu is held, or nothing else runs any more.
func (w *warm) save() error {
	if w.state == "" {
		return nil
	}
	data, err := json.Marshal(warmState{w.bucket, w.prefix, w.after})
	if err != nil {
		return err
	}
	w.saved = time.Now()
	temporary, err := os.CreateTemp(filepath.Dir(w.state), filepath.Base(w.state)+".*")
	if err != nil {
		return err
	}
	_, err = temporary.Write(append(data, '\n'))
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), w.state)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
	}
	return err
}

// run lists twice: how much there is, and then page by page what is to be done.
func (w *warm) run(ctx context.Context) error {
	for after := w.after; ; {
		p, err := w.list(ctx, after)
		if err != nil {
			return err
		}
		for _, o := range p.Contents {
			w.total += o.Size
			after = o.Key
		}
		if !p.IsTruncated || len(p.Contents) == 0 {
			break
		}
	}
	w.bar = newProgress(w.stderr)
	defer w.bar.clear()
	for {
		p, err := w.list(ctx, w.after)
		if err == nil {
			err = w.page(ctx, p.Contents)
		}
		if err != nil {
			if err2 := w.save(); err2 != nil {
				err = fmt.Errorf("%w; and how far it came could not be noted: %w", err, err2)
			}
			return err
		}
		if !p.IsTruncated || len(p.Contents) == 0 {
			break
		}
	}
	if w.state != "" {
		if err := os.Remove(w.state); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if w.problems > 0 {
		return fmt.Errorf("warm: %s could not be fetched, %s could", objects(w.problems), objects(w.held))
	}
	return nil
}

// page has the objects of one page fetched. The error is that the run must end.
func (w *warm) page(ctx context.Context, page []listed) error {
	finished, next := make([]bool, len(page)), 0 // guarded by w.mu
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(warmObjects)
	for i, o := range page {
		g.Go(func() error {
			err := w.object(ctx, o)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			switch {
			case errors.Is(err, origin.ErrNotFound): // deleted since it was listed
			case errors.Is(err, origin.ErrCredentials): // nor will the others be accepted
				return fmt.Errorf("warm: s3://%s/%s: %w", w.bucket, o.Key, err)
			case err != nil:
				if w.problems++; w.problems <= warmProblems {
					w.bar.clear()
					fmt.Fprintf(w.stderr, "s3://%s/%s: %v\n", w.bucket, o.Key, err)
				}
			default:
				w.held++
				w.bytes += o.Size
			}
			for finished[i] = true; next < len(page) && finished[next]; next++ {
				w.after = page[next].Key
			}
			if time.Since(w.saved) < warmSaves {
				return nil
			}
			return w.save()
		})
	}
	return g.Wait()
}

// object has one object fetched, piece by piece.
func (w *warm) object(ctx context.Context, o listed) error {
	left := o.Size
	defer func() { w.advance(left) }() // what was not tried
	for off := int64(0); off < o.Size; off += warmPiece {
		n := min(warmPiece, o.Size-off)
		if err := w.pace.wait(ctx, n); err != nil {
			return err
		}
		if err := w.tools.cluster.Warm(ctx, w.bucket, o.Key, client.Range{Offset: off, Length: n}); err != nil {
			return err
		}
		w.advance(n)
		left -= n
	}
	return nil
}

// advance moves the bar on.
func (w *warm) advance(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done += n
	w.bar.show(w.done, w.total)
}

// pacer keeps a rate. The zero value lets everything pass.
type pacer struct {
	rate int64 // bytes per second; 0 is any

	mu   sync.Mutex
	next time.Time // when the next may pass; guarded by mu
}

// wait returns when n bytes may pass.
func (p *pacer) wait(ctx context.Context, n int64) error {
	if p.rate == 0 {
		return ctx.Err()
	}
	p.mu.Lock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	at := p.next
	p.next = at.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	p.mu.Unlock()
	t := time.NewTimer(at.Sub(now))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listed is one object of a listing.
type listed struct {
	Key  string
	Size int64
}

// listing is a page of ListObjectsV2.
type listing struct {
	IsTruncated  bool
	EncodingType string
	Contents     []listed
}

// list asks the origin for the objects below the prefix that follow a key.
func (w *warm) list(ctx context.Context, after string) (*listing, error) {
	q := url.Values{"list-type": {"2"}, "prefix": {w.prefix}, "encoding-type": {"url"}}
	if after != "" {
		q.Set("start-after", after)
	}
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{RawQuery: q.Encode()}, Header: http.Header{}}
	resp, err := w.tools.origin.Forward(ctx, r, w.bucket, "")
	if err != nil {
		return nil, fmt.Errorf("warm: the listing of s3://%s: %w", w.bucket, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		_, said := refusal(resp.Status, answer)
		return nil, fmt.Errorf("warm: the origin refused the listing of s3://%s: %s", w.bucket, said)
	}
	p := new(listing)
	if err := xml.NewDecoder(resp.Body).Decode(p); err != nil {
		return nil, fmt.Errorf("warm: the listing of s3://%s: %w", w.bucket, err)
	}
	if p.EncodingType == "url" {
		for i := range p.Contents {
			if p.Contents[i].Key, err = url.QueryUnescape(p.Contents[i].Key); err != nil {
				return nil, fmt.Errorf("warm: the listing of s3://%s: %w", w.bucket, err)
			}
		}
	}
	return p, nil
}
