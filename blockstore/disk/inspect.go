package disk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// Report is what Inspect and Verify find in a directory.
type Report struct {
	Origin  string
	Regions []RegionReport // by age, the oldest first
	Buckets []BucketReport // by bytes, most first; only what the next process would find
}

// RegionReport is about one file. Sizes are in bytes.
type RegionReport struct {
	Name     string
	Size     int64
	Written  time.Time // the last time
	Finished bool      // it has a footer; the newest one of a process that runs or was killed has none
	Err      error     // why nothing of it can be used; nil else
	Blocks   int64     // that would be found
	Live     int64     // their contents
	Dead     int64     // the rest of the file: blocks that are in a newer region, headers, padding, room that is left
	Damaged  int64     // blocks that would not be served; without Verify only those whose header is damaged
}

// BucketReport is about the blocks of one bucket.
type BucketReport struct {
	Bucket string
	Blocks int64
	Bytes  int64
}

// Inspect reports what is in the directory of a tier, from its footers and the headers of its blocks. It changes
// nothing and takes no lock: a process may run there, whose newest region is seen as far as it is written. progress, if
// not nil, is told how many bytes of files are done, of how many. Errors: the directory is not one of a tier, or was
// written by a newer version, or can't be read, or ctx ended. Trouble with one region is in its RegionReport.
func Inspect(ctx context.Context, dir string, progress func(done, total int64)) (*Report, error) {
	return survey(ctx, dir, false, progress)
}

// Verify is Inspect that also reads all blocks and checks their sums.
func Verify(ctx context.Context, dir string, progress func(done, total int64)) (*Report, error) {
	return survey(ctx, dir, true, progress)
}

func survey(ctx context.Context, dir string, verify bool, progress func(done, total int64)) (*Report, error) {
	d := &osDir{path: dir}
	id, origin, err := readIdentity(d)
	if err != nil {
		return nil, fmt.Errorf("disk: %s: %w", dir, err)
	}
	files, err := d.list()
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	var regions []*surveyed
	var total int64
	for _, f := range files {
		if seq, ok := parseRegionName(f.name); ok {
			r := &region{seq: seq, dir: id, size: f.size, made: f.mod}
			regions = append(regions, &surveyed{region: r, report: RegionReport{Name: f.name, Size: f.size, Written: f.mod}})
			total += f.size
		}
	}
	slices.SortFunc(regions, func(a, b *surveyed) int { return cmp.Compare(a.seq, b.seq) })
	newest := newIndex()
	for _, r := range regions {
		if err := r.list(d, newest); err != nil {
			r.report.Err = err
		}
	}
	report := &Report{Origin: origin}
	buckets := map[string]*BucketReport{}
	var done int64
	for _, r := range regions {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if r.report.Err == nil {
			r.report.Err = r.look(d, newest, buckets, verify)
		}
		r.report.Dead = r.size - r.report.Live
		report.Regions = append(report.Regions, r.report)
		if done += r.size; progress != nil {
			progress(done, total)
		}
	}
	for _, b := range buckets {
		report.Buckets = append(report.Buckets, *b)
	}
	slices.SortFunc(report.Buckets, func(a, b BucketReport) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Bucket, b.Bucket))
	})
	return report, nil
}

// surveyed is a region that is looked at.
type surveyed struct {
	*region
	report  RegionReport
	entries []entry
}

// list finds the records of the region. Of two of a block the newer one counts.
func (r *surveyed) list(d *osDir, newest *index) error {
	f, err := d.open(r.report.Name, false)
	if err != nil {
		return err
	}
	defer func() { _ = f.close() }()
	r.entries, r.report.Finished, err = readEntries(f, r.region)
	for _, e := range r.entries {
		newest.setIfNewer(e.hash, place{check: e.check, region: r.seq, at: e.offset})
	}
	return err
}

// look reads the records that count.
func (r *surveyed) look(d *osDir, newest *index, buckets map[string]*BucketReport, verify bool) error {
	f, err := d.open(r.report.Name, false)
	if err != nil {
		return err
	}
	defer func() { _ = f.close() }()
	buf := alignedBuffer(int(maxRecord(maxPayload)) + pageSize)
	r.file = f
	for _, e := range r.entries {
		if p, _ := newest.find(e.hash); !p.same(place{region: r.seq, at: e.offset}) {
			continue
		}
		rec, ok, err := readHeader(r.region, int64(e.offset), buf)
		if verify && ok && err == nil {
			var raw []byte
			rec, raw, err = readRecord(r.region, int64(e.offset), buf)
			ok = raw != nil
		}
		if err != nil {
			return err
		}
		k, known := parseKey(rec.key)
		if !ok || !known || rec.hash != e.hash {
			r.report.Damaged++
			continue
		}
		r.report.Blocks++
		r.report.Live += int64(rec.payload)
		b := buckets[k.Version.Bucket]
		if b == nil {
			b = &BucketReport{Bucket: k.Version.Bucket}
			buckets[k.Version.Bucket] = b
		}
		b.Blocks++
		b.Bytes += int64(rec.payload)
	}
	return nil
}

// readHeader reads the header of a record; its key is a part of buf.
func readHeader(r *region, off int64, buf []byte) (record, bool, error) {
	n, err := r.file.readv([][]byte{buf[:maxHead]}, off)
	if err != nil {
		return record{}, false, err
	}
	rec, ok := parseRecord(buf[:n], r.seq, r.dir)
	return rec, ok, nil
}
