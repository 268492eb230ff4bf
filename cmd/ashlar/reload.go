package main

import (
	"errors"
	"reflect"
	"slices"
)

// reload takes over what may change while the node runs: who may do what ([[auth.keys]] with their secrets, and
// auth.anonymous_buckets), and the certificates. auth.mode is not among it: whether the node is open to everyone is
// decided together with the address that it listens on. When anything is wrong, nothing changes.
func (n *node) reload(load func() (*Config, error)) {
	if n.certs != nil {
		n.certs.reload()
	}
	c, err := load()
	if err != nil {
		n.refuseReload(err)
		return
	}
	old := n.config
	restart := old.differs(c)
	if !slices.Contains(restart, "auth.mode") {
		if err := n.handler.SetAuth(c.auth()); err != nil { // what validate lets through is not refused
			n.refuseReload(err)
			return
		}
		d := diffKeys(old.Auth.Keys, c.Auth.Keys)
		n.log.Info("keys reloaded", "keys", len(c.Auth.Keys), "added", d.added, "changed", d.changed, "removed", d.removed,
			"anonymous_buckets", len(c.Auth.AnonymousBuckets))
		// In a copy: others read the configuration that the node was started with.
		next := *old
		next.Auth.Keys, next.Auth.AnonymousBuckets = c.Auth.Keys, c.Auth.AnonymousBuckets
		n.config = &next
	}
	if len(restart) > 0 {
		n.log.Warn("the configuration has changes that need a restart", "keys", restart)
	}
}

// refuseReload says what is wrong, one line for each problem, with file, line and key.
func (n *node) refuseReload(err error) {
	var problems Problems
	if !errors.As(err, &problems) {
		n.log.Error("not reloaded, everything stays as it was", "error", err)
		return
	}
	for _, p := range problems {
		n.log.Error("not reloaded, everything stays as it was", "file", p.File, "line", p.Line, "key", p.Key, "env", p.Env,
			"problem", p.Text)
	}
}

// keyDiff counts access keys.
type keyDiff struct{ added, changed, removed int }

func diffKeys(old, new []AuthKey) (d keyDiff) {
	was := make(map[string]*AuthKey, len(old))
	for i := range old {
		was[old[i].AccessKey] = &old[i]
	}
	for i := range new {
		k := was[new[i].AccessKey]
		switch {
		case k == nil:
			d.added++
		case !k.same(&new[i]):
			d.changed++
		}
		delete(was, new[i].AccessKey)
	}
	d.removed = len(was)
	return d
}

// same says whether two keys open the same to the same secret, wherever that is kept.
func (k *AuthKey) same(other *AuthKey) bool {
	a, b := *k, *other
	a.SecretKey, a.SecretKeyFile, b.SecretKey, b.SecretKeyFile = "", "", "", ""
	return reflect.DeepEqual(a, b)
}

// differs names the keys that have another value in other, but for those that reload takes over. Lists of tables are
// named as a whole.
func (c *Config) differs(other *Config) []string {
	var paths []string
	var walk func(path string, a, b reflect.Value)
	walk = func(path string, a, b reflect.Value) {
		bs := fieldsOf(b)
		for i, f := range fieldsOf(a) {
			p := join(path, f.name)
			switch {
			case p == "auth.keys" || p == "auth.anonymous_buckets":
			case f.value.Kind() == reflect.Struct:
				walk(p, f.value, bs[i].value)
			case !reflect.DeepEqual(f.value.Interface(), bs[i].value.Interface()):
				paths = append(paths, p)
			}
		}
	}
	walk("", reflect.ValueOf(c).Elem(), reflect.ValueOf(other).Elem())
	// A secret may be in a file whose name is the same.
	for _, secret := range []struct {
		path string
		same bool
	}{
		{"origin.credentials.secret_key", c.Origin.Credentials.Secret == other.Origin.Credentials.Secret},
		{"cluster.credentials.secret_key", c.Cluster.Credentials.Secret == other.Cluster.Credentials.Secret},
	} {
		if !secret.same && !slices.Contains(paths, secret.path) {
			paths = append(paths, secret.path)
		}
	}
	return paths
}
