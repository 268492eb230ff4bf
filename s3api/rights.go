package s3api

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/s3api/sigv4"
)

// Right is a set of rights. None of them includes another.
type Right uint8

const (
	Read    Right = 1 << iota // contents, headers and attributes of objects
	Write                     // objects and their tags: create, replace, copy to
	List                      // names of objects and buckets
	Delete                    // objects
	Admin                     // buckets, their configuration, access control, retention, and what the table doesn't know
	Cluster                   // messages between processes of a cluster count
	Tune                      // per-request tuning counts
)

// AuthMode says how requesters prove who they are.
type AuthMode uint8

const (
	// Anonymous: nobody does. Signatures are not looked at, and everyone may read and list.
	Anonymous AuthMode = iota
	// Static: by a SigV4 signature with one of Auth.Keys. Everyone else is refused.
	Static
)

// Auth says who may do what.
type Auth struct {
	Mode           AuthMode
	AnonymousWrite bool // in mode Anonymous: everyone may write and delete too
	// TrustNetwork: in mode Anonymous, everyone has the right Cluster. Otherwise who asks from this machine has it.
	TrustNetwork bool
	Keys         []Key // in mode Static; at least one
	// AnonymousBuckets are patterns as in Key.Buckets. In mode Static, requests without any authentication may read what
	// the objects of these buckets hold now: GetObject and HeadObject without versionId, and no more. They list nothing:
	// who may read an object whose name they know is not to learn all names. A bad signature is still refused.
	AnonymousBuckets []string
}

// Key is one access key and what it opens.
type Key struct {
	AccessKey, SecretKey string // required
	SessionToken         string // that requests must carry; "" for none
	// Buckets are patterns of bucket names as path.Match has them; "*" is every bucket. None matches none.
	Buckets []string
	// Prefix, if set, limits the key to objects whose keys begin with it, and to listings of that prefix. Unless there is
	// none and the buckets are all, keys of objects with a segment ".." are refused: there are origins to which they are
	// other keys, of other buckets even.
	Prefix string
	Rights Right
}

// String leaves the secrets out.
func (k Key) String() string { return k.AccessKey }

// GoString does as String, for %#v.
func (k Key) GoString() string { return fmt.Sprintf("s3api.Key{AccessKey:%q}", k.AccessKey) }

// LogValue does as String, for slog.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.AccessKey) }

// identity is who sent a request.
type identity struct {
	accessKey string         // "" is anonymous
	grant     *grant         // nil until the request is authenticated
	signature sigv4.Identity // what the signature says, of the body above all; the zero value where there is none
}

// signs says whether the signature covers a header.
func (i *identity) signs(name string) bool {
	for signed := range strings.SplitSeq(i.signature.SignedHeaders, ";") {
		if strings.EqualFold(signed, name) {
			return true
		}
	}
	return false
}

// authority knows the keys. It is immutable.
type authority struct {
	verifier  *sigv4.Verifier // nil in mode Anonymous
	grants    map[string]*grant
	anonymous *grant // of requests without authentication; nil refuses them
	local     *grant // in mode Anonymous: of those from this machine
}

func newAuthority(a Auth, region string) (*authority, error) {
	switch a.Mode {
	case Anonymous:
		if len(a.Keys) > 0 || len(a.AnonymousBuckets) > 0 {
			return nil, errors.New("access keys or anonymous buckets are configured, but requests are not authenticated")
		}
		g := &grant{rights: Read | List, everywhere: true}
		if a.AnonymousWrite {
			g.rights |= Write | Delete
		}
		local := *g
		local.rights |= Cluster
		if a.TrustNetwork {
			g = &local
		}
		return &authority{anonymous: g, local: &local}, nil
	case Static:
	default:
		return nil, fmt.Errorf("unknown authentication mode %d", a.Mode)
	}
	if len(a.Keys) == 0 {
		return nil, errors.New("static authentication without any access key would refuse every request")
	}
	out := &authority{grants: make(map[string]*grant, len(a.Keys))}
	secrets := make(map[string]Key, len(a.Keys))
	for _, k := range a.Keys {
		if k.AccessKey == "" || k.SecretKey == "" {
			return nil, fmt.Errorf("access key %q: both access key and secret key are required", k.AccessKey)
		}
		if _, dup := secrets[k.AccessKey]; dup {
			return nil, fmt.Errorf("access key %q is configured twice", k.AccessKey)
		}
		g := &grant{rights: k.Rights, prefix: k.Prefix}
		if err := g.in(k.Buckets); err != nil {
			return nil, fmt.Errorf("access key %q: %w", k.AccessKey, err)
		}
		out.grants[k.AccessKey], secrets[k.AccessKey] = g, k
	}
	if len(a.AnonymousBuckets) > 0 {
		out.anonymous = &grant{rights: Read, contents: true}
		if err := out.anonymous.in(a.AnonymousBuckets); err != nil {
			return nil, fmt.Errorf("anonymous buckets: %w", err)
		}
	}
	out.verifier = sigv4.New(sigv4.Config{
		Region: region,
		Lookup: func(accessKey string) (secret, token string, ok bool) {
			k, ok := secrets[accessKey]
			return k.SecretKey, k.SessionToken, ok
		},
	})
	return out, nil
}

// identify says who sent r. The error is a refusal.
func (a *authority) identify(r *http.Request) (identity, error) {
	if a.local != nil && fromLoopback(r.RemoteAddr) {
		return identity{grant: a.local}, nil
	}
	if a.verifier == nil || !sigv4.HasAuth(r) {
		if a.anonymous == nil {
			return identity{}, errAccessDenied
		}
		return identity{grant: a.anonymous}, nil
	}
	id, err := a.verifier.Verify(r)
	if err != nil {
		return identity{}, err
	}
	g := a.grants[id.AccessKey]
	if g == nil {
		return identity{}, errAccessDenied
	}
	return identity{accessKey: id.AccessKey, grant: g, signature: id}, nil
}

// grant is what one requester may do. It is immutable.
type grant struct {
	rights     Right
	everywhere bool // one of the patterns is "*"
	patterns   []string
	prefix     string
	contents   bool // of all that Read opens, only what objects hold now
}

// in limits a grant to buckets by their patterns.
func (g *grant) in(patterns []string) error {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("bucket pattern %q: %w", p, err)
		}
		g.everywhere = g.everywhere || p == "*"
	}
	g.patterns = slices.Clone(patterns)
	return nil
}

// inBucket says whether all rights of need are held in a bucket.
func (g *grant) inBucket(need Right, bucket string) bool {
	if g.rights&need != need {
		return false
	}
	if g.everywhere {
		return true
	}
	for _, p := range g.patterns {
		if ok, _ := path.Match(p, bucket); ok {
			return true
		}
	}
	return false
}

// onObject says whether all rights of need are held for an object.
func (g *grant) onObject(need Right, o *origin.Object) bool {
	if !g.inBucket(need, o.Bucket) {
		return false
	}
	// Where the spelling has a bare '+', the origin may take it for a space.
	return g.covers(o.Key) && (o.Raw == "" || g.covers(strings.ReplaceAll(o.Key, "+", " ")))
}

// covers says whether a key is below the grant's prefix, to whatever origin: to one that resolves ".." it may be in another
// bucket, so only who may go everywhere may have it.
func (g *grant) covers(key string) bool {
	if g.prefix == "" && g.everywhere {
		return true
	}
	if !strings.HasPrefix(key, g.prefix) {
		return false
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == ".." {
			return false
		}
	}
	return true
}

// authorize decides whether the requester may do what is asked. Its refusals say nothing of what exists.
func (x *exchange) authorize() error {
	g, need := x.who.grant, x.op.right|x.amz.right
	if g.contents && !x.asksForContents() {
		return errAccessDenied
	}
	ok := false
	switch x.object.level() {
	case atService:
		// What is asked of the service concerns all buckets: ListBuckets names them.
		ok = g.rights&need == need && g.everywhere && g.prefix == ""
	case atBucket:
		ok = g.inBucket(need, x.object.Bucket) && (g.prefix == "" || x.withinPrefix(g))
	case atObject:
		ok = g.onObject(need, &x.object.Object)
	}
	if ok && x.amz.copySource != nil {
		if x.amz.badSource != nil && !(g.everywhere && g.prefix == "") {
			return x.amz.badSource
		}
		// Where it can't be made out it may be anything, and the origin has its words for it.
		ok = g.onObject(Read, x.amz.copySource)
	}
	if !ok {
		return errAccessDenied
	}
	return nil
}

// asksForContents says whether a request is for what an object holds now. Old versions are not for everyone, "null" above
// all, which can be guessed: they may hold what somebody took back.
func (x *exchange) asksForContents() bool {
	for _, p := range x.query {
		if strings.EqualFold(p.Name, "versionId") {
			return false
		}
	}
	return x.op.read
}

// withinPrefix says whether a request at bucket level stays within the keys that a limited grant covers.
func (x *exchange) withinPrefix(g *grant) bool {
	switch x.op.scope {
	case scopeNone, scopeBody: // the keys in a body are checked when it is read
		return true
	case scopeListing:
		listed := false
		for _, p := range x.query {
			if p.Name == "prefix" {
				if !g.covers(p.Value) {
					return false
				}
				listed = true
			}
		}
		return listed
	}
	return false
}
