package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// maxKeys bounds the derived keys that are kept. A key is good for one day, and presigned requests reach back seven:
// this is room for a hundred access keys.
const maxKeys = 1024

// keyID names a derived key, but for the secret it was derived from.
type keyID struct{ accessKey, date, region string }

// signingKey is a key derived from a secret for one day, region and service. It is immutable.
type signingKey struct {
	secret string // that it was derived from
	key    [sha256.Size]byte
	macs   sync.Pool // of hash.Hash: HMAC with this key, its padded key blocks hashed already
}

// deriveKey derives a signing key (IAM user guide, "Create a signed AWS API request", step 4).
func deriveKey(secret, date, region, service string) *signingKey {
	k := []byte("AWS4" + secret)
	for _, s := range []string{date, region, service, terminator} {
		h := hmac.New(sha256.New, k)
		h.Write([]byte(s))
		k = h.Sum(nil)
	}
	key := &signingKey{secret: secret, key: [sha256.Size]byte(k)}
	key.macs.New = func() any {
		h := hmac.New(sha256.New, key.key[:])
		h.Reset() // makes it keep the state after its key block
		return h
	}
	return key
}

// sign appends the HMAC of message to b.
func (k *signingKey) sign(b, message []byte) []byte {
	h := k.macs.Get().(hash.Hash)
	h.Write(message)
	b = h.Sum(b)
	h.Reset()
	k.macs.Put(h)
	return b
}

// keyCache keeps derived keys. Readers take no lock: keys are looked up on every request and added a few times a day.
// The zero value is ready.
type keyCache struct {
	mu   sync.Mutex // held by writers
	keys atomic.Pointer[map[keyID]*signingKey]
}

// get returns the key of id if there is one derived from secret, else nil.
func (c *keyCache) get(id keyID, secret string) *signingKey {
	m := c.keys.Load()
	if m == nil {
		return nil
	}
	// The secret that the key was derived from is compared because the configured one may have changed.
	if k := (*m)[id]; k != nil && k.secret == secret {
		return k
	}
	return nil
}

// put adds a key. When the cache is full all others go: at that size nothing is gained from choosing.
func (c *keyCache) put(id keyID, k *signingKey) {
	// The strings are parts of a request's headers, which must not live as long as the key.
	id = keyID{strings.Clone(id.accessKey), strings.Clone(id.date), strings.Clone(id.region)}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := make(map[keyID]*signingKey)
	if m := c.keys.Load(); m != nil && len(*m) < maxKeys {
		next = maps.Clone(*m)
	}
	next[id] = k
	c.keys.Store(&next)
}

func (c *keyCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys.Store(nil)
}
