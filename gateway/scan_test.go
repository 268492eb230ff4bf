package gateway

import (
	"fmt"
	"strings"
	"testing"
)

// TestScan is the state machine of readahead: reads go in as "off-end" in units of a tenth of a block, what is asked for
// comes out as "[from,to)".
func TestScan(t *testing.T) {
	for _, c := range []struct {
		name  string
		most  int64
		reads string // off-end: from,to; space between
	}{
		{"random", 8, "0-10: 50-60: 20-30: 90-100: 0-10:"},
		{"sequential blocks", 8, "0-10: 10-20:2,3 20-30:3,5 30-40:5,8 40-50:8,13 50-60: 60-70: 70-80: 80-90:13,17 90-100:"},
		{"small reads do not ramp by themselves", 8, "0-1: 1-2: 2-4: 4-5:1,2 5-6: 8-9:"},
		{"looking things up in a block", 8, "0-1: 2-3: 6-7: 9-10: 10-11:2,3"},
		{"small reads", 8, "0-5: 5-10:1,2 10-15:2,4 15-20: 20-25:4,7"},
		{"from the middle", 4, "35-40: 40-50:5,6 50-60:6,8 60-70:8,11 70-80: 80-90:11,13"},
		{"a gap smaller than a block", 8, "0-10: 15-20:2,3 29-40:4,6"},
		{"a jump", 8, "0-10: 10-20:2,3 500-510: 510-520:52,53"},
		{"back", 8, "0-10: 10-20:2,3 10-20: 20-30:3,4"},
		{"large reads", 8, "0-100: 100-200:20,28 200-300:30,38 300-400:40,48 400-500:50,58 500-600:60,68"},
		{"by groups", 64, "0-100: 100-200:20,32 200-300:32,56 300-400:56,80 400-500:80,104 500-600:104,120 600-800:120,144 " +
			"800-1300:144,192 1300-1310: 1310-1370:192,200 1370-1380: 1380-1390: 1390-1460:200,208"},
		{"blocks by groups", 64, "0-10: 10-20:2,8 20-30: 30-40: 40-50:8,16 50-60:16,24 60-70:24,32 70-80:32,40 80-90:40,48 " +
			"90-150:48,64 150-160:64,72"},
		{"small reads by groups", 64, "0-5: 5-10:1,2 10-12:2,8"},
		{"up to the middle of a group", 15, "0-10: 10-20:2,3 20-30:3,5"},
		{"at most one", 1, "0-10: 10-20:2,3 20-30:3,4 30-40:4,5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s scan
			for _, r := range strings.Fields(c.reads) {
				var off, end, from, to, wantFrom, wantTo int64
				fmt.Sscanf(r, "%d-%d:%d,%d", &off, &end, &wantFrom, &wantTo)
				if from, to = s.step(off*100, end*100, 1000, c.most, 8); from != wantFrom || to != wantTo {
					t.Errorf("%s: got %d,%d", r, from, to)
				}
			}
		})
	}
}

// ScanPlace returns the place of the scan that r is part of: two that share one read nothing ahead.
func (g *Gateway) ScanPlace(r Request) uint64 {
	_, name := g.scans.slot(&r)
	return name % uint64(len(g.scans.slots))
}
