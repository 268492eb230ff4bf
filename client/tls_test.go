package client

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ashlar-s3/ashlar/cluster"
	"github.com/ashlar-s3/ashlar/origin"
	"github.com/ashlar-s3/ashlar/origin/origintest"
)

// authority is a certificate authority of one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	c := a.sign(t, template)
	a.pool.AddCert(c.Leaf)
	return a
}

// sign returns a certificate; the first is the authority's own.
func (a *authority) sign(t *testing.T, template *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert == nil {
		a.cert, a.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// named returns a certificate for a host, or of a client.
func (a *authority) named(t *testing.T, name string, usage x509.ExtKeyUsage) tls.Certificate {
	return a.sign(t, &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{usage}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)})
}

func TestTLS(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	o := origintest.New()
	o.Put("bkt", "k", origintest.Object{Size: 3 * blockSize})
	mine := ca.named(t, "client", x509.ExtKeyUsageClientAuth)
	node := newFakeNode(t, o, func(s *httptest.Server) {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.named(t, "node-a.test", x509.ExtKeyUsageServerAuth)},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool}
		s.StartTLS()
	})
	member := cluster.Node{ID: "node-a.test", Addr: node.id, Name: "node-a.test"}
	for _, c := range []struct {
		name string
		node cluster.Node
		tls  *tls.Config
		ok   bool
	}{
		{"the name it was found by", member, &tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{mine}}, true},
		{"another name", cluster.Node{ID: "x", Addr: node.id, Name: "node-b.test"},
			&tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{mine}}, false},
		{"the address, which is not in it", cluster.Node{ID: node.id},
			&tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{mine}}, false},
		{"a server name set", cluster.Node{ID: node.id},
			&tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{mine}, ServerName: "node-a.test"}, true},
		{"another authority", member, &tls.Config{RootCAs: stranger.pool, Certificates: []tls.Certificate{mine}}, false},
		{"no certificate of ours", member, &tls.Config{RootCAs: ca.pool}, false},
		{"a stranger's certificate", member, &tls.Config{RootCAs: ca.pool,
			Certificates: []tls.Certificate{stranger.named(t, "client", x509.ExtKeyUsageClientAuth)}}, false},
		{"no TLS", member, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{}
			l := f.client(t, func(l *Config) {
				l.TLS, l.Members = c.tls, cluster.MembershipConfig{Nodes: []cluster.Node{c.node}}
			})
			_, err := readAll(t.Context(), l.Origin("bkt"), "k", origin.GetOptions{})
			if (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
			health := l.health(t.Context(), l.Snapshot().Node(0))
			if (health == nil) != c.ok {
				t.Errorf("health check: %v", health)
			}
		})
	}
}
