// Package proc starts servers on loopback for tests and benchmarks, stops all that it started, and tells what they
// cost: CPU time and resident memory of a process with its children, and the CPU time that others took meanwhile.
// Linux only: it reads /proc.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Spec says what to start.
type Spec struct {
	Name string   // in error messages
	Path string   // of the executable
	Args []string // without the name
	Env  []string // all of it; nil is this process's own
	Dir  string   // working directory; "" is this process's
}

// Process is a started program. Its methods are safe for concurrent use.
type Process struct {
	spec Spec
	cmd  *exec.Cmd
	log  Log
	done chan struct{} // closed when the program has ended
	err  error         // of the program's end; read after done
}

// Start starts a program in a process group of its own, which the kernel kills when this process dies. What the program
// writes to stdout and stderr is kept in Log.
func Start(spec Spec) (*Process, error) {
	p := &Process{spec: spec, done: make(chan struct{})}
	p.cmd = exec.Command(spec.Path, spec.Args...)
	p.cmd.Env = spec.Env
	p.cmd.Dir = spec.Dir
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The kernel takes the death of the thread that started the program for that of its parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	return p, nil
}

// Pid is the process id of the program.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Log is what the program has written so far.
func (p *Process) Log() string { return p.log.String() }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the program and returns its error, an *exec.ExitError for a status other than 0.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("%s has not ended: %w", p.spec.Name, ctx.Err())
	}
}

// Signal sends the program a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the program and its children at once, without a chance to clean up.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.Pid(), syscall.SIGKILL)
	<-p.done
}

// Stop asks the program to end and kills it, with its children, when it has not within the time given. The error says
// that it had to be killed.
func (p *Process) Stop(within time.Duration) error {
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		_ = syscall.Kill(-p.Pid(), syscall.SIGKILL) // children that it left behind
		return nil
	case <-time.After(within):
		p.Kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM", p.spec.Name, within)
	}
}

// WaitHTTP waits until url answers with a status that ok accepts; any answer will do when ok is nil. It fails when the
// program ends, with what the program wrote.
func (p *Process) WaitHTTP(ctx context.Context, url string, ok func(status int) bool) error {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	var last error
	for {
		resp, err := client.Get(url)
		if err == nil {
			_ = resp.Body.Close()
			if ok == nil || ok(resp.StatusCode) {
				return nil
			}
			err = errors.New(resp.Status)
		}
		last = err
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %w\n%s", p.spec.Name, errors.Join(p.err, last), p.Log())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.spec.Name, errors.Join(ctx.Err(), last), p.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// FreeAddr returns an address on loopback that is free, and is given to nobody else as long as this process lives: it
// stays bound here. A server can listen on it all the same, and again after its end, since it allows what SO_REUSEADDR
// does, as all that net.Listen makes do: that a port is shared with a socket that doesn't listen.
func FreeAddr() (string, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", os.NewSyscallError("socket", err)
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return "", os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", os.NewSyscallError("bind", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return "", os.NewSyscallError("getsockname", err)
	}
	return fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port), nil
}

// Log collects what a program writes. The zero value is ready.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
