//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/test/internal/node"
)

// objectClient is a client of the matrix, at one bucket. Files hold what it sends and receive what it reads.
type objectClient interface {
	put(key, file string) error
	list(prefix string) ([]string, error)
	get(key, file string) error
	getRange(key string, first, last int, file string) error
	copy(from, to string) error
	remove(key string) error
	removeAll(prefix string) error
}

// errMissing is what clients return for an object that is not there.
var errMissing = errors.New("no such object")

// seat is what a client is told: where the node is, and whom to trust.
type seat struct {
	url, bucket string
	ca          string // PEM file of the authority, for https; "" for http
}

// clientsOfTheMatrix make a client each. All are set up as docs/clients.md says, and by default else.
var clientsOfTheMatrix = []struct {
	name  string
	crc32 bool // it sends the CRC32 of what it stores, in a header or a trailer
	make  func(*testing.T, seat) objectClient
}{
	{"go-sdk", true, newGoSDK},
	{"minio-go", false, newMinioGo},
	{"js-sdk", true, newJavaScript},
	{"java-sdk", true, newJava},
	{"boto3", true, func(t *testing.T, s seat) objectClient { return newPython(t, "TEST_VENV", "boto3", s) }},
	{"s3fs", false, func(t *testing.T, s seat) objectClient { return newPython(t, "TEST_S3FS", "s3fs", s) }},
	{"pyarrow", false, func(t *testing.T, s seat) objectClient { return newPython(t, "TEST_VENV", "pyarrow", s) }},
	{"aws-cli", true, newAWSCLI},
	{"rclone", false, newRclone},
	{"s3cmd", false, newS3cmd},
}

// Every client stores, lists, reads, overwrites and removes objects through a node, over http and https: SDKs frame and
// sum up what they send differently over the two. Its key has the rights that this takes, and no more.
func TestClients(t *testing.T) {
	origin := sharedPair(t).origin
	for _, scheme := range []string{"http", "https"} {
		for _, c := range clientsOfTheMatrix {
			t.Run(scheme+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				p, ca := matrixPair(t, origin, scheme)
				bucket := p.bucket(t)
				m := &matrix{pair: p, t: t, bucket: bucket, crc32: c.crc32, dir: t.TempDir()}
				m.client = c.make(t, seat{p.node.URL(), bucket, ca})
				m.run()
			})
		}
	}
}

// fresh is of a configuration of buckets, and keeps a slow machine from asking the origin again.
const fresh = "consistency = { mode = \"etag\", ttl = \"1h\" }\n"

// matrixPair is a node of its own in front of an origin, and the file of the authority to trust for https.
func matrixPair(t *testing.T, origin *versitygw, scheme string) (p *pair, ca string) {
	t.Helper()
	n := newNode(t, origin.url(), func(o *node.Options) {
		if scheme == "https" {
			ca, o.Cert, o.CertKey = certificates(t)
		}
		o.Rights = "read = true\nwrite = true\nlist = true\ndelete = true"
		o.Extra = noHedge + fresh
	})
	return &pair{origin, n}, ca
}

// matrix is what one client goes through.
type matrix struct {
	*pair
	t      *testing.T
	client objectClient
	bucket string
	crc32  bool
	dir    string
}

func (m *matrix) run() {
	stored := m.objects(30)
	for key, data := range stored {
		m.put(key, data)
	}
	big := random(33, bigSize)
	m.pair.put(m.t, m.bucket, behind, big)
	if m.t.Failed() {
		return
	}
	got, err := m.client.list("dir/")
	slices.Sort(got)
	if want := []string{"dir/big", "dir/medium", smallKey}; err != nil || !slices.Equal(got, want) {
		m.t.Errorf("listed %q, %v; want %q", got, err, want)
	}

	// Cold, in the middle of the object and across a block; then warm.
	m.getRange(behind, 3<<20-100, 4<<20+99, big)
	m.hit("range again", func() { m.getRange(behind, 3<<20-100, 4<<20+99, big) })
	for key, data := range stored {
		m.get(key, data)
		m.hit("again "+key, func() { m.get(key, data) })
	}
	m.hit("range of what was read", func() { m.getRange("dir/big", 5<<20, 6<<20, stored["dir/big"]) })

	// As long, but of other bytes.
	for key, data := range m.objects(40) {
		m.put(key, data)
		m.get(key, data)
		m.hit("overwritten "+key, func() { m.get(key, data) })
	}
	m.copy("dir/medium", behind)
	m.copy("dir/big", behind)
	for key := range stored {
		m.remove(key)
	}
	m.removeAll("many/")
}

// smallKey holds what clients escape in different ways.
const smallKey = "dir/small ü+b=c&d%20(e)~'f'"

// behind is stored at the origin, past the node.
const behind = "behind/the node"

const bigSize = 20<<20 + 5

// objects are a small one, one that takes several chunks and blocks, and one that clients store in parts.
func (m *matrix) objects(seed uint64) map[string][]byte {
	return map[string][]byte{
		smallKey: random(seed, 100_000), "dir/medium": random(seed+1, 3<<20+7), "dir/big": random(seed+2, bigSize),
	}
}

// put stores an object by the client and compares what the origin has then.
func (m *matrix) put(key string, data []byte) {
	m.t.Helper()
	file := filepath.Join(m.dir, "sent")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		m.t.Fatal(err)
	}
	if err := m.client.put(key, file); err != nil {
		m.t.Errorf("put %s: %v", key, err)
		return
	}
	got, out, err := read(m.t.Context(), m.direct(), m.bucket, key, "")
	if err != nil || sum(got) != sum(data) {
		m.t.Errorf("put %s: the origin has %d bytes with sum %s, %v; want %d with %s", key, len(got), sum(got), err,
			len(data), sum(data))
		return
	}
	if len(data) == bigSize && !strings.Contains(*out.ETag, "-") {
		m.t.Errorf("put %s: not stored in parts", key)
	}
	if m.crc32 && out.ChecksumCRC32 == nil {
		m.t.Errorf("put %s: the origin has no CRC32 of it", key)
	}
}

func (m *matrix) get(key string, want []byte) {
	m.t.Helper()
	m.received("get "+key, want, func(file string) error { return m.client.get(key, file) })
}

func (m *matrix) getRange(key string, first, last int, whole []byte) {
	m.t.Helper()
	m.received(fmt.Sprintf("%s from %d to %d", key, first, last), whole[first:last+1], func(file string) error {
		return m.client.getRange(key, first, last, file)
	})
}

func (m *matrix) received(what string, want []byte, get func(file string) error) {
	m.t.Helper()
	file := filepath.Join(m.dir, "received")
	_ = os.Remove(file)
	err := get(file)
	if err != nil {
		m.t.Errorf("%s: %v", what, err)
		return
	}
	if got, err := os.ReadFile(file); err != nil || sum(got) != sum(want) {
		m.t.Errorf("%s: %d bytes with sum %s, %v; want %d with %s", what, len(got), sum(got), err, len(want), sum(want))
	}
}

// copy copies an object onto another one, which the node has in blocks.
func (m *matrix) copy(from, to string) {
	m.t.Helper()
	want, _, err := read(m.t.Context(), m.direct(), m.bucket, from, "")
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.client.copy(from, to); err != nil {
		m.t.Errorf("copy %s to %s: %v", from, to, err)
		return
	}
	m.get(to, want)
	if got, _, err := read(m.t.Context(), m.direct(), m.bucket, to, ""); err != nil || sum(got) != sum(want) {
		m.t.Errorf("copy %s to %s: the origin has %d bytes, %v; want %d", from, to, len(got), err, len(want))
	}
}

func (m *matrix) remove(key string) {
	m.t.Helper()
	if err := m.client.remove(key); err != nil {
		m.t.Errorf("remove %s: %v", key, err)
		return
	}
	m.gone(key)
}

// gone checks that neither the origin nor the client has an object.
func (m *matrix) gone(key string) {
	m.t.Helper()
	_, _, err := read(m.t.Context(), m.direct(), m.bucket, key, "")
	if s, _ := status(err); s != http.StatusNotFound {
		m.t.Errorf("removed %s: the origin answers %v", key, err)
	}
	if err := m.client.get(key, filepath.Join(m.dir, "received")); !errors.Is(err, errMissing) {
		m.t.Errorf("get %s after its removal: %v", key, err)
	}
}

// removeAll removes objects that the node has in blocks, and no other.
func (m *matrix) removeAll(prefix string) {
	m.t.Helper()
	keys := []string{prefix + "a b", prefix + "c/ü&d", prefix + "e"}
	for _, key := range keys {
		data := random(50, 1000)
		m.pair.put(m.t, m.bucket, key, data)
		m.get(key, data)
	}
	if err := m.client.removeAll(prefix); err != nil {
		m.t.Errorf("remove all below %s: %v", prefix, err)
		return
	}
	for _, key := range keys {
		m.gone(key)
	}
	left := slices.DeleteFunc(slices.Collect(maps.Keys(m.tree(m.t, m.bucket))), func(key string) bool {
		return strings.HasSuffix(key, "/") // PyArrow leaves folders
	})
	if !slices.Equal(left, []string{behind}) {
		m.t.Errorf("removed all below %s: the origin has %q, want %q alone", prefix, left, behind)
	}
}

// hit runs a read and checks that blocks in memory answered all of it, with not a request for an object to the origin.
func (m *matrix) hit(what string, read func()) {
	m.t.Helper()
	before := m.settled()
	read()
	after := m.settled()
	if asked := after.origin - before.origin; asked != 0 {
		m.t.Errorf("%s: the origin was asked for objects %v times", what, asked)
	}
	gets := 0
	for _, r := range after.requests[len(before.requests):] {
		if r.Operation == "GetObject" {
			gets++
			if r.Cache != "hit; memory" {
				m.t.Errorf("%s: %s %s is a %q", what, r.Method, r.Key, r.Cache)
			}
		}
	}
	if gets == 0 {
		m.t.Errorf("%s: no GET of an object", what)
	}
}

// account is what a node has been asked for, and has asked for itself.
type account struct {
	requests []accessLine
	origin   float64 // GETs and HEADs of objects
}

type accessLine struct{ Msg, Method, Operation, Key, Cache string }

// settled waits until the node is done with all that it was asked for, the access log and what it reads ahead included.
func (m *matrix) settled() (a account) {
	m.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for quiet := 0; ; { // twice in a row: metrics of one moment are not read at one
		metrics, err := m.node.Metrics()
		if err != nil {
			m.t.Fatal(err)
		}
		counted, err := metrics.Sum("ashlar_requests_total")
		if err != nil {
			m.t.Fatal(err)
		}
		under := 0.0
		for _, name := range []string{
			"ashlar_requests_in_flight", "ashlar_blocks_pending", "ashlar_origin_requests_in_flight",
		} {
			v, err := metrics.Sum(name)
			if err != nil {
				m.t.Fatal(err)
			}
			under += v
		}
		a = account{requests: accessLines(m.node.Log())}
		for series, v := range metrics {
			if strings.HasPrefix(series, `ashlar_origin_requests_total{operation="get"`) ||
				strings.HasPrefix(series, `ashlar_origin_requests_total{operation="head"`) {
				a.origin += v
			}
		}
		if under != 0 || int(counted) != len(a.requests) {
			quiet = 0
		} else if quiet++; quiet == 2 {
			return a
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("%v requests and blocks under way, %v counted, %d in the log", under, counted, len(a.requests))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func accessLines(log string) (lines []accessLine) {
	for line := range strings.Lines(log) {
		var l accessLine
		if strings.Contains(line, `"request"`) && json.Unmarshal([]byte(line), &l) == nil && l.Msg == "request" {
			lines = append(lines, l)
		}
	}
	return lines
}
