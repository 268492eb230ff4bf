package disk

import (
	"context"
	"errors"
	"io/fs"
	"iter"
)

// Infos are kept in files of records
//
//	magic 4 | name length 4 | data length 4 | sum of name and data 4 | name | data
//
// infosName is what PutInfo appends to. When it is full it becomes oldInfosName, whose records are forgotten. SaveInfos
// writes cleanInfosName instead of both; Open makes that oldInfosName before anything else happens, so that it is
// there, alone, only after a clean stop. A process whose directory can't be written can't do that: the infos are still
// clean for the one that comes after it, though they may be outdated. It discards them as soon as it can; if that is
// never, their age is all that tells.
const (
	infosName      = "infos"
	oldInfosName   = "infos.old"
	cleanInfosName = "infos.clean"

	infoHead  = 16
	infoMagic = 0x4f464e49 // "INFO"
	maxInfo   = 1 << 20
)

// PutInfo queues what is known of an object, under a name of the caller's choice, to be found by Infos after the next
// Open; the last one of a name counts. It never waits and may be dropped, and old ones are forgotten when they take too
// much room.
func (t *Tier) PutInfo(name string, data []byte) {
	if t.closed.Load() {
		return
	}
	if len(name)+len(data) > maxInfo || !t.queue.push(item{info: appendInfo(nil, name, data)}) {
		t.metrics.infoDrops.Inc()
	}
}

// foundInfos is what the former process left.
type foundInfos struct {
	old, current []byte
	clean        bool
}

// Infos returns what PutInfo and SaveInfos of the former process left, older ones first: of a name that comes twice the
// last one counts. clean says that they are what SaveInfos wrote and nothing came after; when it is false, what they
// say may have been outdated already when the process ended. A process in between that never could write to the
// directory has left no trace: clean or not, infos are no younger than they say, and the caller judges their age. The
// slices are the caller's. Only the first call after Open finds something: the tier keeps no copy.
func (t *Tier) Infos() (infos iter.Seq2[string, []byte], clean bool) {
	found := t.found.Swap(nil)
	if found == nil {
		return func(func(string, []byte) bool) {}, false
	}
	return func(yield func(string, []byte) bool) {
		if _, more := parseInfos(found.old, yield); more {
			parseInfos(found.current, yield)
		}
	}, found.clean
}

// SaveInfos replaces all infos by these, durably, in order; what takes too much room is left out. It is for a clean
// stop, when nothing is served any more: the next Open finds them clean, unless PutInfo is called afterwards, or this
// tier could not take its directory over in Open and found a former process's later. It fails when the directory is not
// the tier's, can't be written, or ctx ends.
func (t *Tier) SaveInfos(ctx context.Context, infos iter.Seq2[string, []byte]) error {
	limit := int(min(maxInfos, t.config.Capacity/16) / 3)
	var all []byte
	for name, data := range infos {
		if len(all)+infoHead+len(name)+len(data) > limit {
			break
		}
		all = appendInfo(all, name, data)
	}
	return t.wait(ctx, item{save: &all})
}

func appendInfo(b []byte, name string, data []byte) []byte {
	start := len(b)
	b = le.AppendUint32(b, infoMagic)
	b = le.AppendUint32(b, uint32(len(name)))
	b = le.AppendUint32(b, uint32(len(data)))
	b = le.AppendUint32(b, 0)
	b = append(append(b, name...), data...)
	le.PutUint32(b[start+12:], infoSum(b[start:]))
	return b
}

// infoSum is the sum of a record but for the sum itself.
func infoSum(b []byte) uint32 { return sum(b[infoHead:]) ^ sum(b[:12]) }

// parseInfos yields the records of a file up to the first one that is not whole. It returns how long they are together,
// and whether yield wants more.
func parseInfos(b []byte, yield func(string, []byte) bool) (n int, more bool) {
	for {
		rest := b[n:]
		if len(rest) < infoHead || le.Uint32(rest) != infoMagic {
			return n, true
		}
		name, data := uint64(le.Uint32(rest[4:])), uint64(le.Uint32(rest[8:]))
		if name+data > uint64(len(rest)-infoHead) {
			return n, true
		}
		rest = rest[:infoHead+name+data]
		if infoSum(rest) != le.Uint32(rest[12:]) {
			return n, true
		}
		n += len(rest)
		if !yield(string(rest[infoHead:infoHead+name]), rest[infoHead+name:]) {
			return n, false
		}
	}
}

// journal is the file that infos are appended to. It belongs to the writer.
type journal struct {
	fs      fileSystem
	limit   int64 // bytes of each of its files
	file    file  // nil when it is not there yet
	end     int64
	waiting []byte
	count   int // infos in waiting
}

// discard durably forgets everything.
func (j *journal) discard() error {
	j.drop()
	j.close()
	for _, name := range []string{cleanInfosName, oldInfosName, infosName} {
		if err := j.fs.remove(name); err != nil {
			return err
		}
	}
	return j.fs.syncDir()
}

// open returns what the former process left. Files that are longer than they may be are damaged, and nothing is left
// then.
func (j *journal) open() (found foundInfos, err error) {
	j.drop()
	j.close()
	read := func(name string) []byte {
		if err != nil {
			return nil
		}
		var data []byte
		if data, err = readFile(j.fs, name, j.limit); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return data
	}
	clean, current, old := read(cleanInfosName), read(infosName), read(oldInfosName)
	switch {
	case errors.Is(err, errTooLong):
		return foundInfos{}, j.discard()
	case err != nil:
		return foundInfos{}, err
	}
	found = foundInfos{old: old, current: current}
	if clean != nil {
		found.old = clean
		found.clean = current == nil
		if err := j.fs.rename(cleanInfosName, oldInfosName); err != nil {
			return foundInfos{}, err
		}
		if err := j.fs.syncDir(); err != nil {
			return foundInfos{}, err
		}
	}
	if current == nil {
		return found, nil
	}
	n, _ := parseInfos(current, func(string, []byte) bool { return true })
	if j.file, err = j.fs.open(infosName, false); err != nil {
		return foundInfos{}, err
	}
	j.end = int64(n)
	return found, j.file.truncate(j.end) // what comes next must not follow a torn record
}

// full says whether what waits should be written before n bytes are added.
func (j *journal) full(n int) bool { return int64(len(j.waiting)+n) > min(j.limit, maxInfo) }

func (j *journal) add(rec []byte) {
	j.waiting = append(j.waiting, rec...)
	j.count++
}

// drop forgets what waits, and returns how many infos it was.
func (j *journal) drop() int {
	n := j.count
	j.waiting, j.count = j.waiting[:0], 0
	return n
}

// flush appends what waits. If it can't, it drops it and says how many infos that were.
func (j *journal) flush() (dropped int, err error) {
	if len(j.waiting) == 0 {
		return 0, nil
	}
	waiting := j.waiting
	count := j.drop()
	if int64(len(waiting)) > j.limit {
		return count, nil
	}
	if j.file != nil && j.end+int64(len(waiting)) > j.limit {
		j.close()
		if err := j.fs.rename(infosName, oldInfosName); err != nil {
			return count, err
		}
	}
	if j.file == nil {
		if err := j.fs.remove(infosName); err != nil {
			return count, err
		}
		if j.file, err = j.fs.create(infosName, 0, false); err != nil {
			j.file = nil
			return count, err
		}
		j.end = 0
	}
	if err := j.file.writeAt(waiting, j.end); err != nil {
		j.close() // its end is unknown: the next ones go to a new file
		return count, err
	}
	j.end += int64(len(waiting))
	return 0, nil
}

// save replaces everything by these records, to be found clean or not.
func (j *journal) save(records []byte, clean bool) error {
	j.close()
	for _, name := range []string{infosName, oldInfosName} {
		if err := j.fs.remove(name); err != nil {
			return err
		}
	}
	name := oldInfosName
	if clean {
		name = cleanInfosName
	}
	return writeFile(j.fs, name, records)
}

func (j *journal) close() {
	if j.file != nil {
		_ = j.file.close()
		j.file = nil
	}
}
