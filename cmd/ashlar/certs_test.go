package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// testCA is an authority that signs certificates.
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its own certificate
	pool *x509.CertPool
	n    int64 // certificates so far
}

func newTestCA(t *testing.T) *testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: t.Name() + rand.Text()}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca := &testCA{key: key, pool: x509.NewCertPool(), n: 1}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	ca.pool.AddCert(ca.cert)
	ca.file = writeFile(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return ca
}

// sign returns a certificate for 127.0.0.1 or for names, and its key, in PEM form. Its end is n minutes from now, where n
// counts the certificates of this authority.
func (ca *testCA) sign(t *testing.T, names ...string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca.n++
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(ca.n), Subject: pkix.Name{CommonName: "test"}, DNSNames: names,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Duration(ca.n) * time.Minute),
	}
	if len(names) == 0 {
		tmpl.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.cert, &k.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

// files is sign into files.
func (ca *testCA) files(t *testing.T, names ...string) (cert, key string) {
	t.Helper()
	cert, key = ca.sign(t, names...)
	return writeFile(t, "cert.pem", cert), writeFile(t, "key.pem", key)
}

// tlsClient trusts the authority, and makes a connection for each request if it is to see what handshakes bring.
func (ca *testCA) tlsClient(t *testing.T, reuse bool) (*http.Client, *tls.Config) {
	conf := &tls.Config{RootCAs: ca.pool, MinVersion: tls.VersionTLS10}
	tr := &http.Transport{TLSClientConfig: conf, DisableKeepAlives: !reuse, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}, conf
}

func rewrite(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTLS serves HTTP/1.1 over TLS 1.2 or later, also to clients who would like HTTP/2.
func TestTLS(t *testing.T) {
	ca := newTestCA(t)
	n := newTestNode(t, func(c *Config) { c.Server.TLS.Cert, c.Server.TLS.Key = ca.files(t) })
	n.store.Put("bucket", "k", []byte("hello"))
	for version, ok := range map[uint16]bool{
		tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true,
	} {
		c, conf := ca.tlsClient(t, false)
		conf.MaxVersion = version
		resp, err := c.Get(n.s3.url() + "/bucket/k")
		if (err == nil) != ok {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err != nil {
			continue
		}
		var body bytes.Buffer
		if _, err := body.ReadFrom(resp.Body); err != nil || body.String() != "hello" || resp.ProtoMajor != 1 ||
			!strings.HasPrefix(n.s3.url(), "https://") {
			t.Errorf("%q over %s, %v", &body, resp.Proto, err)
		}
		_ = resp.Body.Close()
	}
}

// TestVirtualHostsOverTLS: buckets in host names, with dots and with a port, under a wildcard certificate, as clients
// find them by SNI.
func TestVirtualHostsOverTLS(t *testing.T) {
	ca := newTestCA(t)
	n := newTestNode(t, func(c *Config) {
		asAdmin(c)
		c.Auth.Keys[0].Buckets = []string{"*"}
		c.Server.Domains = []string{"s3.example.com", "example.com"}
		c.Server.TLS.Cert, c.Server.TLS.Key = ca.files(t, "s3.example.com", "*.s3.example.com", "*.dots.s3.example.com")
	})
	for _, bucket := range []string{"demo", "with.dots"} {
		n.store.Put(bucket, "a/k", []byte("in "+bucket))
	}
	_, port, err := net.SplitHostPort(n.s3.addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, conf := ca.tlsClient(t, false)
	for _, tc := range []struct{ host, path, want string }{
		{"s3.example.com", "/demo/a/k", "in demo"},
		{"s3.example.com", "/with.dots/a/k", "in with.dots"},
		{"demo.s3.example.com", "/a/k", "in demo"},
		{"DEMO.s3.Example.com", "/a/k", "in demo"},
		{"demo.s3.example.com:" + port, "/a/k", "in demo"},
		{"demo.s3.example.com:443", "/a/k", "in demo"},
		{"with.dots.s3.example.com", "/a/k", "in with.dots"},
		{"with.dots.s3.example.com:" + port, "/a/k", "in with.dots"},
	} {
		conf.ServerName = strings.ToLower(strings.Split(tc.host, ":")[0])
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.s3.url()+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = tc.host
		r.Header.Set("X-Amz-Content-Sha256", emptyHash)
		if err := signer().SignHTTP(t.Context(), demoCredentials(), r, emptyHash, "s3", "us-east-1", time.Now()); err != nil {
			t.Fatal(err)
		}
		if code, body := do(t, c, r); code != 200 || body != tc.want {
			t.Errorf("%s%s: %d %q", tc.host, tc.path, code, body)
		}
		c.CloseIdleConnections()
	}
}

// TestCertificateReload: a new pair counts from the next handshake on, connections that there are stay; a broken one is
// logged once, and the old one stays until it is whole.
func TestCertificateReload(t *testing.T) {
	ca := newTestCA(t)
	var files TLS
	n := newTestNode(t, func(c *Config) {
		files.Cert, files.Key = ca.files(t)
		c.Server.TLS = files
	})
	fresh, _ := ca.tlsClient(t, false)
	dialed, err := tls.Dial("tcp", n.s3.addr().String(), &tls.Config{RootCAs: ca.pool})
	kept := newOneConn(t, dialed, err)
	expects := func(step string, want int64) {
		t.Helper()
		resp, err := fresh.Get(n.s3.url() + "/-/health")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := resp.TLS.PeerCertificates[0].SerialNumber.Int64(); got != want {
			t.Errorf("%s: certificate %d, want %d", step, got, want)
		}
		get(t, kept, n.s3.url()+"/-/health") // else the connection was dropped
		_, metrics := get(t, httpClient(t), n.admin.url()+"/metrics")
		at := fmt.Sprintf("ashlar_tls_not_after_timestamp_seconds %v\n", float64(n.certs.expires.Load()))
		if !strings.Contains(metrics, at) {
			t.Errorf("%s: no %s", step, at)
		}
	}
	watch := slices.IndexFunc(n.stops, func(s step) bool { return s.name == "certificates" })
	if watch < 0 {
		t.Fatal("nobody watches the files")
	}
	n.stops[watch].stop() // so that it is told here when they are looked at
	errorsLogged := func() int { return strings.Count(n.log.String(), "the certificate files can't be used") }
	expects("at first", 2)
	first := n.certs.expires.Load()
	n.certs.reload()
	expects("unchanged", 2)

	cert, key := ca.sign(t)
	rewrite(t, files.Cert, cert)
	for range 3 {
		n.certs.reload()
	}
	expects("new certificate, old key", 2)
	if errorsLogged() != 1 {
		t.Errorf("logged %d times", errorsLogged())
	}
	rewrite(t, files.Key, key)
	n.certs.reload()
	expects("both new", 3)
	if now := n.certs.expires.Load(); now <= first {
		t.Errorf("not_after %d, was %d", now, first)
	}

	rewrite(t, files.Cert, "nonsense")
	n.certs.reload()
	expects("nonsense", 3)
	if err := os.Remove(files.Cert); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		n.certs.reload()
	}
	expects("gone", 3)
	rewrite(t, files.Cert, cert)
	n.certs.reload()
	expects("back", 3)
	if errorsLogged() != 3 {
		t.Errorf("logged %d times:\n%s", errorsLogged(), n.log)
	}
	cert, key = ca.sign(t)
	rewrite(t, files.Cert, cert)
	rewrite(t, files.Key, key)
	n.reload(func() (*Config, error) { return n.config, nil })
	expects("SIGHUP", 4)
	if strings.Contains(n.log.String(), "PRIVATE") {
		t.Error("a key is in the log")
	}
}

// TestCertificatesAreWatched: nobody has to say that the files have changed; also where they are links that are swapped,
// as in Kubernetes.
func TestCertificatesAreWatched(t *testing.T) {
	ca := newTestCA(t)
	dir := t.TempDir()
	put := func(version string) {
		t.Helper()
		cert, key := ca.sign(t)
		if err := os.MkdirAll(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		rewrite(t, filepath.Join(dir, version, "cert.pem"), cert)
		rewrite(t, filepath.Join(dir, version, "key.pem"), key)
		next := filepath.Join(dir, "next")
		if err := os.Symlink(version, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, "now")); err != nil {
			t.Fatal(err)
		}
	}
	put("1")
	synctest.Test(t, func(t *testing.T) {
		files := TLS{Cert: filepath.Join(dir, "now", "cert.pem"), Key: filepath.Join(dir, "now", "key.pem")}
		c, err := newCertificates(files, nil, newLogger(new(syncBuffer), Log{}))
		if err != nil {
			t.Fatal(err)
		}
		go c.watch(t.Context())
		first := c.current.Load()
		time.Sleep(10 * certEvery)
		if c.current.Load() != first {
			t.Error("replaced without a change")
		}
		put("2")
		time.Sleep(certEvery + time.Second)
		if c.current.Load() == first {
			t.Error("not replaced")
		}
	})
}

// TestClientCertificates: with client_ca, a client without a certificate of that authority gets nothing, health included;
// and an authority that was taken out of the file lets nobody in any more.
func TestClientCertificates(t *testing.T) {
	ca, clients, others := newTestCA(t), newTestCA(t), newTestCA(t)
	file := writeFile(t, "clients.pem", "")
	authority := func(c *testCA) string {
		data, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	rewrite(t, file, authority(clients))
	n := newTestNode(t, func(c *Config) {
		c.Server.TLS.Cert, c.Server.TLS.Key = ca.files(t)
		c.Server.TLS.ClientCA = file
	})
	n.store.Put("bucket", "k", []byte("hello"))
	ask := func(by *testCA) error {
		c, conf := ca.tlsClient(t, false)
		conf.ClientSessionCache = tls.NewLRUClientSessionCache(10)
		if by != nil {
			cert, key := by.sign(t)
			pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
			if err != nil {
				t.Fatal(err)
			}
			// Also where the server's list of authorities doesn't name its own.
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		var err error
		for range 2 { // the second might be a resumed session
			var resp *http.Response
			if resp, err = c.Get(n.s3.url() + "/bucket/k"); err == nil {
				_ = resp.Body.Close()
			}
		}
		return err
	}
	if err := ask(clients); err != nil {
		t.Error(err)
	}
	if ask(nil) == nil || ask(others) == nil {
		t.Error("no certificate, or that of another authority, is accepted")
	}
	rewrite(t, file, authority(others))
	n.certs.reload()
	if ask(clients) == nil {
		t.Error("the old authority is still accepted")
	}
	if err := ask(others); err != nil {
		t.Error(err)
	}
	rewrite(t, file, "nothing")
	n.certs.reload()
	if err := ask(others); err != nil || ask(nil) == nil {
		t.Errorf("a file without certificates: %v", err)
	}
}

// TestPurgeWithClientCertificate shows one.
func TestPurgeWithClientCertificate(t *testing.T) {
	ca := newTestCA(t)
	n := newTestNode(t, func(c *Config) {
		asAdmin(c)
		c.Server.TLS.Cert, c.Server.TLS.Key = ca.files(t)
		c.Server.TLS.ClientCA = ca.file
	})
	cert, key := ca.files(t)
	args := []string{"purge", "--config", n.configFile(t), "s3://demo/"}
	if code, _, errOut := runFor(t.Context(), args...); code != 1 || !strings.Contains(errOut, "no answer from the node") {
		t.Errorf("without a certificate: %d %s", code, errOut)
	}
	args = append(args, "--client-cert", cert, "--client-key", key)
	if code, out, errOut := runFor(t.Context(), args...); code != 0 || !strings.HasPrefix(out, "0 objects remembered") {
		t.Errorf("%d %s %s", code, out, errOut)
	}
}

// TestKeyOfAnotherCertificate is told before anything starts.
func TestKeyOfAnotherCertificate(t *testing.T) {
	cert, _ := newTestCA(t).files(t)
	_, key := newTestCA(t).files(t)
	_, err := load(t, fmt.Sprintf("[server.tls]\ncert = %q\nkey = %q\n", cert, key))
	if err == nil || !strings.HasPrefix(err.Error(), "test.toml:2: server.tls.cert: ") ||
		!strings.Contains(err.Error(), "private key does not match public key") {
		t.Error(err)
	}
	dir := filepath.Dir(cert)
	if _, err := load(t, fmt.Sprintf("[server.tls]\ncert = %q\nkey = %q\n", dir, key)); err == nil ||
		!strings.Contains(err.Error(), "is a directory") {
		t.Error(err)
	}
}
