package gateway

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// queue decides who may send the next request to the origin. Buckets take turns, and in a bucket its clients do, so that
// the backlog of one does not become the wait of another. What is read ahead has places of its own, and waits as long
// as its bucket waits for something that is wanted now, or anybody for want of places. Safe for concurrent use.
type queue struct {
	mu    sync.Mutex
	now   lane // guarded by mu
	ahead lane // guarded by mu
}

// lane is a number of places and those who wait for one. A turn is of no use where nobody moves: a bucket whose answers
// stand still would come to hold all places. So one that holds three times as many as are free gets no more of them.
// There are a third more places than one bucket may have: it gets just those when it is alone, and others find some.
type lane struct {
	free    int
	held    map[string]int                            // places by bucket
	buckets turns[string, *turns[string, *list.List]] // of clients, of *ticket
	waiting int
}

// turns is a ring of what has somebody waiting in it, by name.
type turns[K comparable, V any] struct {
	by   map[K]*list.Element
	ring list.List // of *turn, whose turn it is first
}

type turn[K comparable, V any] struct {
	name K
	v    V
}

// ticket is a place in the queue, or in front of the origin.
type ticket struct {
	bucket, client string
	ahead          bool          // guarded by queue.mu once acquire was called
	granted        chan struct{} // closed when the place is had
	elem           *list.Element // in the list of its client while it waits; guarded by queue.mu
	holds          bool          // has the place; guarded by queue.mu
}

func newTicket(bucket, client string, ahead bool) *ticket {
	return &ticket{bucket: bucket, client: client, ahead: ahead, granted: make(chan struct{})}
}

// newQueue returns a queue with so many places for each bucket.
func newQueue(places, ahead int) *queue { return &queue{now: newLane(places), ahead: newLane(ahead)} }

func newLane(places int) lane { return lane{free: places + places/3, held: make(map[string]int)} }

// acquire waits for a place, and returns how long that took.
func (q *queue) acquire(ctx context.Context, t *ticket) (time.Duration, error) {
	began := time.Now()
	q.mu.Lock()
	q.of(t).push(t)
	q.dispatch()
	q.mu.Unlock()
	select {
	case <-t.granted:
		return time.Since(began), nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.holds {
		q.giveBack(t)
	} else {
		q.of(t).remove(t)
		q.dispatch() // the others need not wait for it any more
	}
	return time.Since(began), ctx.Err()
}

// release gives a place back.
func (q *queue) release(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.giveBack(t)
}

// promote makes of what is read ahead something that is wanted now.
func (q *queue) promote(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !t.ahead || t.holds {
		return
	}
	if t.elem == nil { // acquire was not called yet
		t.ahead = false
		return
	}
	q.ahead.remove(t)
	t.ahead = false
	q.now.push(t)
	q.dispatch()
}

// waiting returns how many wait.
func (q *queue) waiting() (now, ahead int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.now.waiting, q.ahead.waiting
}

func (q *queue) of(t *ticket) *lane {
	if t.ahead {
		return &q.ahead
	}
	return &q.now
}

func (q *queue) giveBack(t *ticket) {
	t.holds = false
	l := q.of(t)
	l.free++
	if l.held[t.bucket]--; l.held[t.bucket] == 0 {
		delete(l.held, t.bucket)
	}
	q.dispatch()
}

// dispatch hands out what places there are. q.mu is held.
func (q *queue) dispatch() {
	for q.now.grant(func(string) bool { return true }) {
	}
	if q.now.waiting > 0 && q.now.free == 0 {
		return
	}
	for q.ahead.grant(func(bucket string) bool { return q.now.buckets.by[bucket] == nil }) {
	}
}

// grant gives one place to whose turn it is among the buckets that may have one, and says whether it could.
func (l *lane) grant(may func(bucket string) bool) bool {
	if l.free == 0 || l.waiting == 0 {
		return false
	}
	clients, ok := l.buckets.next(func(bucket string) bool { return l.held[bucket] < 3*l.free && may(bucket) })
	if !ok {
		return false
	}
	tickets, _ := clients.next(func(string) bool { return true })
	t := tickets.Front().Value.(*ticket)
	l.remove(t)
	l.free--
	l.held[t.bucket]++
	t.holds = true
	close(t.granted)
	return true
}

func (l *lane) push(t *ticket) {
	clients := l.buckets.get(t.bucket, func() *turns[string, *list.List] { return new(turns[string, *list.List]) })
	t.elem = clients.get(t.client, list.New).PushBack(t)
	l.waiting++
}

func (l *lane) remove(t *ticket) {
	clients := l.buckets.get(t.bucket, nil)
	tickets := clients.get(t.client, nil)
	tickets.Remove(t.elem)
	t.elem = nil
	l.waiting--
	if tickets.Len() == 0 {
		clients.drop(t.client)
	}
	if clients.ring.Len() == 0 {
		l.buckets.drop(t.bucket)
	}
}

// get returns what is there by that name, new at the end of the ring if nothing was.
func (r *turns[K, V]) get(name K, create func() V) V {
	if e := r.by[name]; e != nil {
		return e.Value.(*turn[K, V]).v
	}
	v := create()
	if r.by == nil {
		r.by = make(map[K]*list.Element)
	}
	r.by[name] = r.ring.PushBack(&turn[K, V]{name, v})
	return v
}

// next returns whose turn it is among those that may have one, and puts it at the end of the ring; false when none may.
func (r *turns[K, V]) next(may func(K) bool) (v V, ok bool) {
	for e := r.ring.Front(); e != nil; e = e.Next() {
		if t := e.Value.(*turn[K, V]); may(t.name) {
			r.ring.MoveToBack(e)
			return t.v, true
		}
	}
	return v, false
}

func (r *turns[K, V]) drop(name K) {
	r.ring.Remove(r.by[name])
	delete(r.by, name)
}
