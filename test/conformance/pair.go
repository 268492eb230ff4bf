package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/ashlar-s3/ashlar/test/internal/node"
	"github.com/ashlar-s3/ashlar/test/internal/proc"
)

// key is both the server's root key and the client's at the node: the tests sign with the server's.
var key = node.Key{Access: "AKIACONFORM000000001", Secret: "conformance/secret+of/tests"}

// environment is that of a program that is to see nothing of whoever runs the tests.
func environment(home string, more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "AWS_EC2_METADATA_DISABLED=true"},
		more...)
}

// pair is a server and a node in front of it.
type pair struct {
	dir      string
	endpoint string // of the server
	origin   *proc.Process
	node     *node.Node
}

func start(t tools, versioning bool) (_ *pair, err error) {
	p := &pair{}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	if p.dir, err = os.MkdirTemp("", "ashlar-conformance-"); err != nil {
		return nil, err
	}
	for _, d := range []string{"data", "versions", "iam"} {
		if err := os.Mkdir(filepath.Join(p.dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	addr, err := proc.FreeAddr()
	if err != nil {
		return nil, err
	}
	p.endpoint = "http://" + addr
	args := []string{
		"--access", key.Access, "--secret", key.Secret, "--port", addr, "--region", "us-east-1",
		"--iam-dir", filepath.Join(p.dir, "iam"), "--keep-alive", "--quiet", "posix",
	}
	if versioning {
		args = append(args, "--versioning-dir", filepath.Join(p.dir, "versions"))
	}
	args = append(args, filepath.Join(p.dir, "data"))
	p.origin, err = proc.Start(proc.Spec{Name: "versitygw", Path: t.versitygw, Args: args, Env: environment(p.dir)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := p.origin.WaitHTTP(ctx, p.endpoint, nil); err != nil {
		return nil, err
	}
	p.node, err = node.Start(ctx, node.Options{
		Binary: t.ashlar, Dir: p.dir, Origin: p.endpoint, OriginKey: key, Key: key, Memory: "256 MiB",
	})
	return p, err
}

// stop ends what start has started. A nil pair is nothing.
func (p *pair) stop() {
	if p == nil {
		return
	}
	if p.node != nil {
		p.node.Kill()
	}
	if p.origin != nil {
		p.origin.Kill()
	}
	_ = os.RemoveAll(p.dir)
}
