//go:build shaped

package shaped

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace with loopback and nothing else. It is gone, with its links, when the test ends.
type namespace struct {
	name string
	file *os.File
}

func newNamespace(t *testing.T, name string) *namespace {
	t.Helper()
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { run(t, "ip", "netns", "del", name) })
	run(t, "ip", "-n", name, "link", "set", "lo", "up")
	f, err := os.Open("/run/netns/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return &namespace{name, f}
}

// do calls f on a thread that is in the namespace. The thread ends with it, so nothing else ever runs there.
func (n *namespace) do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter namespace %s: %w", n.name, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// dial connects from inside the namespace. A numeric address is dialled by the goroutine that asks.
func (n *namespace) dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = n.do(func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// listen listens on a port of all addresses of the namespace.
func (n *namespace) listen(port int) (l net.Listener, err error) {
	err = n.do(func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprintf(":%d", port))
		return err
	})
	return l, err
}

// link joins two namespaces by a pair of interfaces of one name, with the addresses subnet.1 and subnet.2.
func link(t *testing.T, name, subnet string, a, b *namespace) {
	t.Helper()
	run(t, "ip", "-n", a.name, "link", "add", name, "type", "veth", "peer", "name", name, "netns", b.name)
	for i, n := range []*namespace{a, b} {
		run(t, "ip", "-n", n.name, "addr", "add", fmt.Sprintf("%s.%d/24", subnet, i+1), "dev", name)
		run(t, "ip", "-n", n.name, "link", "set", name, "up")
	}
}

// shape bounds what goes out at an interface to 100 Mbit/s and, if the kernel has netem, delays it by 2 ms.
func shape(t *testing.T, n *namespace, dev string) (delayed bool) {
	t.Helper()
	netem := exec.Command("tc", "-n", n.name, "qdisc", "add", "dev", dev, "root", "handle", "1:", "netem", "delay", "2ms")
	out, err := netem.CombinedOutput()
	if err != nil && !bytes.Contains(out, []byte("qdisc kind is unknown")) {
		t.Fatalf("%v: %v\n%s", netem, err, out)
	}
	parent := "root"
	if err == nil {
		parent = "parent 1:1"
	}
	run(t, "tc", append(append([]string{"-n", n.name, "qdisc", "add", "dev", dev}, strings.Fields(parent)...),
		"tbf", "rate", "100mbit", "burst", "128kb", "latency", "50ms")...)
	return err == nil
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
