package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"strings"
)

// maxSecret bounds a secret_key_file, in bytes: a larger file is another one.
const maxSecret = 4096

// resolve reads the files that the configuration names, so that a wrong one is told of at once and with its line.
// Relative names are relative to the working directory.
func (c *Config) resolve(s *sources) {
	cr := &c.Origin.Credentials
	cr.Secret = s.secret("origin.credentials.", cr.SecretKey, cr.SecretKeyFile)
	for i := range c.Auth.Keys {
		k := &c.Auth.Keys[i]
		k.Secret = s.secret(element("auth.keys", i)+".", k.SecretKey, k.SecretKeyFile)
	}
	s.authorities("origin.ca", c.Origin.CA)
	s.authorities("server.tls.client_ca", c.Server.TLS.ClientCA)
	s.pair("server.tls", c.Server.TLS.Cert, c.Server.TLS.Key)
	c.Cluster.resolve(s)
}

// pair refuses files that hold no certificate with its key. Without both there is nothing to read.
func (s *sources) pair(at, certFile, keyFile string) {
	if certFile == "" || keyFile == "" {
		return
	}
	cert, ok := s.read(at+".cert", certFile)
	key, ok2 := s.read(at+".key", keyFile)
	if ok && ok2 {
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			s.clash(paths{at + ".cert", at + ".key"}, "%s and %s are no usable pair: %s", certFile, keyFile,
				strings.TrimPrefix(err.Error(), "tls: "))
		}
	}
}

// authorities refuses a file that holds no certificate. "" is none.
func (s *sources) authorities(path, file string) {
	if file == "" {
		return
	}
	if pem, ok := s.read(path, file); ok && !x509.NewCertPool().AppendCertsFromPEM(pem) {
		s.fail(path, "%s holds no certificate in PEM form", file)
	}
}

// secret returns the secret itself, or what the file holds, less white space around it.
func (s *sources) secret(at string, secret Secret, file string) Secret {
	if file == "" {
		return secret
	}
	at += "secret_key_file"
	data, ok := s.read(at, file)
	if !ok {
		return ""
	}
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0:
		s.fail(at, "%s is empty; it must hold the secret and nothing else", file)
	case string(data) == redacted:
		s.fail(at, "%s holds \"%s\", which is what check prints in place of a secret", file, redacted)
	case len(data) > maxSecret || bytes.ContainsAny(data, "\r\n\x00"):
		s.fail(at, "%s holds more than one line; it must hold the secret and nothing else", file)
	}
	return Secret(data)
}

// read returns the contents of a file that the key at path names.
func (s *sources) read(path, file string) ([]byte, bool) {
	data, err := os.ReadFile(file)
	if err == nil {
		return data, true
	}
	hint := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint = "; relative names start at the directory that ashlar is run in"
	case errors.Is(err, fs.ErrPermission):
		hint = "; the user that ashlar runs as must be able to read it"
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	s.fail(path, "cannot read %s: %v%s", file, err, hint)
	return nil, false
}
