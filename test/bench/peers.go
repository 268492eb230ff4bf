package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ashlar-s3/ashlar/test/internal/proc"
)

// startNginxSlice starts nginx with the slice module and a cache on disk, which its own page cache serves.
func (b *bench) startNginxSlice(ctx context.Context) error {
	return b.startNginx(ctx, contestant{name: "nginx-slice", cold: true, warm: true}, `
  proxy_cache_path %[1]s/cache keys_zone=c:16m max_size=4g inactive=1h;
  upstream origin { server `+b.origin.addr+`; keepalive 64; }
  server {
    listen %[2]s;
    keepalive_requests 1000000000;
    location / {
      slice 1m;
      proxy_cache c;
      proxy_cache_key $uri$slice_range;
      proxy_set_header Range $slice_range;
      proxy_set_header Connection "";
      proxy_http_version 1.1;
      proxy_cache_valid 200 206 1h;
      proxy_pass http://origin;
    }
  }`)
}

func (b *bench) startNginxStatic(ctx context.Context) error {
	root := filepath.Join(b.dir, "static")
	if err := os.MkdirAll(filepath.Join(root, bucket), 0o755); err != nil {
		return err
	}
	for _, o := range b.objects {
		data := make([]byte, o.size)
		o.fill(data, 0)
		if err := os.WriteFile(filepath.Join(root, bucket, o.name), data, 0o644); err != nil {
			return err
		}
	}
	return b.startNginx(ctx, contestant{name: "nginx-static", warm: true}, `
  server {
    listen %[2]s;
    keepalive_requests 1000000000;
    root `+root+`;
  }`)
}

// startNginx starts nginx with a configuration of its own in a folder of its own. In http, %[1]s stands for that folder
// and %[2]s for the address.
func (b *bench) startNginx(ctx context.Context, c contestant, http string) error {
	path := find("nginx")
	if path == "" {
		b.missing = append(b.missing, c.name+": apt-get install nginx")
		return nil
	}
	var err error
	if c.addr, err = proc.FreeAddr(); err != nil {
		return err
	}
	dir := filepath.Join(b.dir, c.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;"
	}
	config := fmt.Sprintf(user+`
worker_processes auto;
daemon off;
pid %[1]s/pid;
error_log stderr warn;
events { worker_connections 4096; }
http {
  access_log off;
  sendfile on;
  tcp_nopush on;
  aio off;
  open_file_cache max=10000;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
`+http+`
}
`, dir, c.addr)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return err
	}
	return b.startPeer(ctx, c, proc.Spec{Name: c.name, Path: path, Args: []string{"-p", dir, "-c", file}})
}

func (b *bench) startVarnish(ctx context.Context) error {
	c := contestant{name: "varnish", cold: true, warm: true}
	path := find("varnishd")
	if path == "" {
		b.missing = append(b.missing, c.name+": apt-get install varnish")
		return nil
	}
	var err error
	if c.addr, err = proc.FreeAddr(); err != nil {
		return err
	}
	host, port, _ := strings.Cut(b.origin.addr, ":")
	vcl := fmt.Sprintf(`vcl 4.1;
backend default { .host = %q; .port = %q; }
sub vcl_backend_response { set beresp.ttl = 1h; }
`, host, port)
	file := filepath.Join(b.dir, "bench.vcl")
	if err := os.WriteFile(file, []byte(vcl), 0o644); err != nil {
		return err
	}
	return b.startPeer(ctx, c, proc.Spec{Name: c.name, Path: path, Args: []string{
		"-F", "-n", filepath.Join(b.dir, "varnish"), "-a", c.addr, "-f", file, "-s", "malloc," + memoryVarnish,
	}})
}

// startFloor starts this executable again as the bare net/http server.
func (b *bench) startFloor(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := contestant{name: "net/http", warm: true}
	if c.addr, err = proc.FreeAddr(); err != nil {
		return err
	}
	return b.startPeer(ctx, c, proc.Spec{Name: c.name, Path: self, Args: []string{"floor", c.addr}})
}

func (b *bench) startPeer(ctx context.Context, c contestant, spec proc.Spec) error {
	p, err := proc.Start(spec)
	if err != nil {
		return err
	}
	b.started = append(b.started, p)
	c.procs = []*proc.Process{p}
	b.contestants = append(b.contestants, c)
	url := "http://" + c.addr + "/" + bucket + "/" + "ready"
	return p.WaitHTTP(ctx, url, func(status int) bool { return status == http.StatusNotFound })
}

// find looks for a program where Debian puts servers too, which PATH may lack.
func find(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin"} {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p
		}
	}
	return ""
}
