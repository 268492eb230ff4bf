package s3api

import (
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A deadline is set only by who is about to wait, and only when the one that is set would not do; who waits at present
// gets each change at once.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d deadline
		var calls []time.Duration // from now, -1 for none
		set := func(at time.Time) error {
			calls = append(calls, time.Until(at))
			if at.IsZero() {
				calls[len(calls)-1] = -1
			}
			return nil
		}
		change := func(in time.Duration) { _ = d.change(time.Now().Add(in), set) }
		wait := func(want ...time.Duration) {
			t.Helper()
			calls = nil
			if err := d.begin(set); err != nil || !slices.Equal(calls, want) {
				t.Errorf("set to %v, %v, want %v", calls, err, want)
			}
			d.end()
		}
		const minute = time.Minute
		wait() // there is none to begin with
		change(time.Hour)
		change(minute)
		wait(minute + time.Second)
		time.Sleep(900 * time.Millisecond)
		change(minute)
		wait()
		time.Sleep(200 * time.Millisecond)
		change(minute) // by now it would end too early
		wait(minute + time.Second)
		change(minute - 2*time.Second) // or too late
		wait(minute - time.Second)
		change(160 * time.Millisecond)
		wait(170 * time.Millisecond)
		_ = d.change(time.Time{}, set)
		wait(-1)
		wait()

		calls = nil
		if err := d.begin(set); err != nil {
			t.Fatal(err)
		}
		change(minute)
		change(time.Second)
		d.end()
		if !slices.Equal(calls, []time.Duration{minute, time.Second}) {
			t.Errorf("who waits has %v", calls)
		}
		wait()

		_ = d.change(time.Unix(1, 0), set)
		if err := d.begin(set); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after the end: %v", err)
		}
		change(minute)
		wait(minute + time.Second)
	})
}

// A connection that gathers keeps deadlines: those set before a call, and those set while it waits.
func TestDeadlinesOfConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := NewConn(accepted)
	defer func() { _ = c.Close() }()

	fill := func() (err error) { // the peer reads nothing
		for err == nil {
			_, err = c.Write(make([]byte, 1<<20))
		}
		return err
	}
	read := func() error {
		_, err := c.Read(make([]byte, 1))
		return err
	}
	for name, call := range map[string]struct {
		wait func() error
		set  func(time.Time) error
	}{"read": {read, c.SetReadDeadline}, "write": {fill, c.SetWriteDeadline}, "both": {read, c.SetDeadline}} {
		for _, interrupted := range []bool{false, true} {
			if interrupted {
				_ = call.set(time.Time{})
				time.AfterFunc(20*time.Millisecond, func() { _ = call.set(time.Unix(1, 0)) })
			} else {
				_ = call.set(time.Now().Add(20 * time.Millisecond))
			}
			var timeout net.Error
			if err := call.wait(); !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Errorf("%s, interrupted %v: %v", name, interrupted, err)
			}
		}
	}
	_ = c.SetReadDeadline(time.Time{})
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := read(); err != nil {
		t.Errorf("after that: %v", err)
	}
}
