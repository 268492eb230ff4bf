package disk

import (
	"sync"

	"github.com/ashlar-s3/ashlar/blockstore"
)

// item is something for the writer to do.
type item struct {
	block *blockstore.Block // with a reference
	info  []byte            // a record of the journal
	done  chan error        // gets the outcome when everything before it is done, and save too; room for one
	save  *[]byte           // all records of a journal that replaces the present one, with done
}

func (i item) bytes() int64 {
	if i.block != nil {
		return int64(i.block.Cap())
	}
	return int64(len(i.info))
}

// queue is what the writer is given, in order, bounded in bytes. Safe for concurrent use.
type queue struct {
	limit int64
	wake  chan struct{} // holds one wake-up while there are items

	mu     sync.Mutex
	items  []item
	bytes  int64 // of items, and of those that were taken and are not done
	closed bool
}

func newQueue(limit int64) *queue { return &queue{limit: limit, wake: make(chan struct{}, 1)} }

// push says whether there was room. What waits to be done is let in, whatever its size.
func (q *queue) push(i item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := i.bytes()
	if q.closed || i.done == nil && q.bytes+n > q.limit {
		return false
	}
	q.items = append(q.items, i)
	q.bytes += n
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// take returns what there is; each item must be given to finished.
func (q *queue) take() []item {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items
}

// finished gives up an item and its room.
func (q *queue) finished(i item) {
	n := i.bytes()
	if i.block != nil {
		i.block.Release()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= n
}

// close lets nothing in any more.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

func (q *queue) queued() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}
