package gateway_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-s3/ashlar/gateway"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

var update = flag.Bool("update", false, "rewrite the golden scripts with what happens now")

// TestScripts runs testdata/*.script: each command is followed by what it led to. A read is answered by what it found,
// "  " and the requests that the origin saw for it. Commands:
//
//	policy block=1MiB fetch=8 read=16 ttl=60s immutable
//	put KEY SIZE [weak|noetag] [same] [version=ID]
//	                                       same: keep the ETag of the first put, with another Last-Modified
//	delete KEY
//	get KEY [RANGE] [if-match=TAG] [version=ID]
//	                                       RANGE: 0-9, 5- or -5
//	head KEY [RANGE] [checksums]
//	purge [PREFIX] [dry]                   forgets info; dry only counts
//	insert KEY SIZE                        a write through this process: put, Invalidate, Insert
//	invalidate KEY
//	sleep DURATION
//	evict                                  all blocks
//	fault get|head STATUS                  the next such request is answered so
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.script")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".script"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = runScript(t, string(want)) })
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("%s differs (go test -run Scripts -update rewrites it); got:\n%s", file, got)
			}
		})
	}
}

func runScript(t *testing.T, script string) string {
	r := newRig(t, policy(), 256*MiB)
	var out strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue // what it led to the last time
		}
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for _, s := range r.command(t, strings.Fields(line)) {
			fmt.Fprintln(&out, "  "+s)
		}
	}
	r.close()
	return out.String()
}

// command runs one line of a script and returns what it led to.
func (r *rig) command(t *testing.T, f []string) []string {
	has := func(word string) bool {
		for _, w := range f[1:] {
			if w == word {
				return true
			}
		}
		return false
	}
	switch f[0] {
	case "policy":
		for _, w := range f[1:] {
			name, value, _ := strings.Cut(w, "=")
			switch name {
			case "block":
				r.policy.BlockSize = bytesOf(t, value)
			case "fetch":
				r.policy.FetchWindow = int(bytesOf(t, value))
			case "read":
				r.policy.ReadWindow = int(bytesOf(t, value))
			case "ttl":
				r.policy.TTL = duration(t, value)
			case "immutable":
				r.policy.Immutable = true
			default:
				t.Fatalf("policy has no %q", name)
			}
		}
		return nil
	case "put":
		o := origintest.Object{Size: bytesOf(t, f[2]), Weak: has("weak"), NoETag: has("noetag")}
		if o.NoETag {
			o.LastModified = time.Now()
			o.Seed = o.LastModified.UTC().Format(http.TimeFormat)
		}
		if has("same") {
			o.ETag = fmt.Sprintf("%q", "b/"+f[1]+"#1")
		}
		for _, w := range f[3:] {
			if id, ok := strings.CutPrefix(w, "version="); ok {
				o.VersionID = id
			}
		}
		r.origin.Put("b", f[1], o)
		return nil
	case "delete":
		r.origin.Delete("b", f[1])
		return nil
	case "insert":
		size := bytesOf(t, f[2])
		tag := r.origin.Put("b", f[1], origintest.Object{Size: size})
		r.Invalidate(object(f[1]))
		info := &origin.Info{Size: size, ETag: tag, LastModified: "Thu, 01 Jan 2026 00:00:00 GMT"}
		err := r.Insert(context.Background(), object(f[1]), info, strings.NewReader(string(origintest.Bytes(tag, 0, size))))
		if err != nil {
			return []string{err.Error()}
		}
		return nil
	case "invalidate":
		r.Invalidate(object(f[1]))
		return nil
	case "purge":
		prefix := ""
		if len(f) > 1 && f[1] != "dry" {
			prefix = f[1]
		}
		n := r.Purge(func(o origin.Object) bool { return strings.HasPrefix(o.Key, prefix) }, has("dry"))
		return []string{fmt.Sprintf("%d remembered", n)}
	case "sleep":
		time.Sleep(duration(t, f[1]))
		return nil
	case "evict":
		r.memory.evict()
		return nil
	case "fault":
		status, _ := strconv.Atoi(f[2])
		match := origintest.Gets
		if f[1] == "head" {
			match = origintest.Heads
		}
		r.origin.Fail(1, match, origintest.Fault{Status: status, Code: "Fault"})
		return nil
	case "get", "head":
		req := gateway.Request{Object: object(f[1]), InfoOnly: f[0] == "head", WantChecksums: has("checksums")}
		for _, w := range f[2:] {
			id, isVersion := strings.CutPrefix(w, "version=")
			switch tag, isTag := strings.CutPrefix(w, "if-match="); {
			case isVersion:
				req.Object.VersionID = id
			case isTag:
				req.Check = func(i *origin.Info) (gateway.Range, error) {
					if i.ETag != tag {
						return gateway.Range{}, fmt.Errorf("412, it is %s: %w", i.ETag, gateway.ErrUnsatisfied)
					}
					return req.Range, nil
				}
			case w != "checksums":
				req.Range = rangeOf(t, w)
			}
		}
		r.origin.ResetLog()
		a := r.read(context.Background(), req)
		synctest.Wait()
		lines := []string{describe(a)}
		r.verify(a)
		return append(lines, inOrder(r.origin.Log())...)
	}
	t.Fatalf("no command %q", f[0])
	return nil
}

// inOrder sorts runs of pinned GETs by position: they are sent side by side, in no order.
func inOrder(log []string) []string {
	key := func(s string) (int, bool) {
		var at int
		var tag string
		n, _ := fmt.Sscanf(s, "GET b/"+strings.TrimPrefix(strings.Fields(s)[1], "b/")+" %d-%d if-match=%s", &at, new(int), &tag)
		return at, n == 3
	}
	for i := 0; i < len(log); {
		j := i
		for ; j < len(log); j++ {
			if _, pinned := key(log[j]); !pinned {
				break
			}
		}
		slices.SortStableFunc(log[i:j], func(a, b string) int {
			x, _ := key(a)
			y, _ := key(b)
			return cmp.Compare(x, y)
		})
		i = j + 1
	}
	return log
}

// describe says in one line what a read led to.
func describe(a answer) string {
	var oe *origin.Error
	switch {
	case errors.As(a.err, &oe):
		return fmt.Sprintf("error: the origin's %d", oe.Status)
	case a.err != nil:
		return "error: " + a.err.Error()
	}
	o := a.obj
	s := fmt.Sprintf("%v from %v: %d bytes from %d of %d, %s, age %v", o.Status, o.Source, o.Length, o.Offset,
		o.Info.Size, o.Info.ETag, o.Age)
	if o.Partial {
		s += ", partial"
	}
	if o.TTLExceeded {
		s += ", ttl exceeded"
	}
	return s
}

func bytesOf(t *testing.T, s string) int64 {
	units := map[string]int64{"KiB": KiB, "MiB": MiB, "GiB": GiB, "TiB": 1 << 40}
	unit := int64(1)
	for name, u := range units {
		if n, ok := strings.CutSuffix(s, name); ok {
			s, unit = n, u
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n * unit
}

func duration(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func rangeOf(t *testing.T, s string) gateway.Range {
	first, last, ok := strings.Cut(s, "-")
	if !ok {
		t.Fatalf("no range: %q", s)
	}
	a, _ := strconv.ParseInt(first, 10, 64)
	b, _ := strconv.ParseInt(last, 10, 64)
	switch {
	case first == "":
		return gateway.Suffix(b)
	case last == "":
		return gateway.From(a)
	}
	return gateway.FromTo(a, b)
}
