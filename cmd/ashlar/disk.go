package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/ashlar-s3/ashlar/blockstore/disk"
)

func diskCommand() command {
	cmd := command{
		name:    "disk",
		usage:   "inspect|verify DIR",
		summary: "say what a disk tier holds, or check all of it",
		args:    2,
		help: `Reads the directory of a disk tier (cache.disk.path). "inspect" tells from footers and headers what is there: blocks
and bytes of each bucket, and of each file how much of it would be found. "verify" also reads every block and checks its
sums, at the speed of the disk. Both change nothing and may run beside a node that uses the directory.

Exit code: 0 when all is well, 1 when something is damaged or can't be read, 2 when DIR is no disk tier's.`,
	}
	cmd.run = func(ctx context.Context, c call, flags *flag.FlagSet) error {
		regions := flags.Bool("regions", false, "list every file, not only those with damage")
		args, err := cmd.parseArgs(c, flags)
		if err != nil {
			return ignoreHelp(err)
		}
		if len(args) < 2 {
			return badInput("disk: what of which directory? (ashlar disk inspect DIR, ashlar disk verify DIR)")
		}
		survey := disk.Inspect
		switch args[0] {
		case "inspect":
		case "verify":
			survey = disk.Verify
		default:
			return badInput("disk: %q is not one of inspect, verify", args[0])
		}
		bar := newProgress(c.stderr)
		report, err := survey(ctx, args[1], bar.show)
		bar.clear()
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return badInput("disk %s: %s is not the directory of a disk tier, as cache.disk.path names one: %w", args[0], args[1],
				errors.Unwrap(err))
		}
		if err != nil {
			return badInput("disk %s: %w", args[0], err)
		}
		return printReport(c.stdout, report, *regions)
	}
	return cmd
}

// printReport prints what was found, and fails if something is damaged.
func printReport(out io.Writer, r *disk.Report, all bool) error {
	var blocks, live, size, damaged int64
	unusable := 0
	for _, region := range r.Regions {
		blocks, live, size, damaged = blocks+region.Blocks, live+region.Live, size+region.Size, damaged+region.Damaged
		if region.Err != nil {
			unusable++
		}
	}
	fmt.Fprintf(out, "origin %s\n%d blocks of %s in %d files of %s\n", r.Origin, blocks, amount(live), len(r.Regions),
		amount(size))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	if len(r.Buckets) > 0 {
		fmt.Fprintf(w, "\nblocks\tbytes\t  bucket\n")
		for _, b := range r.Buckets {
			fmt.Fprintf(w, "%d\t%s\t  %s\n", b.Blocks, amount(b.Bytes), b.Bucket)
		}
	}
	_ = w.Flush()
	first := true
	for _, region := range r.Regions {
		if !all && region.Err == nil && region.Damaged == 0 {
			continue
		}
		if first {
			fmt.Fprintf(w, "\nblocks\tlive\tdead\tdamaged\twritten\t  file\n")
			first = false
		}
		note := ""
		switch {
		case region.Err != nil:
			note = "  " + region.Err.Error()
		case !region.Finished:
			note = "  not finished"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t  %s%s\n", region.Blocks, amount(region.Live), amount(region.Dead),
			region.Damaged, region.Written.Format(time.DateTime), region.Name, note)
	}
	_ = w.Flush()
	if damaged > 0 || unusable > 0 {
		return fmt.Errorf("disk: %d damaged blocks, %d files that can't be used; a node fetches what they held anew", damaged,
			unusable)
	}
	return nil
}

// amount is a number of bytes for people.
func amount(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}

// progress is a bar on a terminal, and nothing anywhere else.
type progress struct {
	out   io.Writer // nil for nothing
	began time.Time
	last  time.Time
}

func newProgress(out io.Writer) *progress {
	p := &progress{began: time.Now()}
	if f, ok := out.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.out = out
		}
	}
	return p
}

// show draws the bar, ten times a second at most.
func (p *progress) show(done, total int64) {
	now := time.Now()
	if p.out == nil || total == 0 || now.Sub(p.last) < 100*time.Millisecond && done < total {
		return
	}
	p.last = now
	const width = 40
	n := int(done * width / total)
	rate := float64(done) / max(now.Sub(p.began).Seconds(), 1e-3)
	fmt.Fprintf(p.out, "\r[%s%s] %3d%%  %s/s  %s left ", strings.Repeat("#", n), strings.Repeat("-", width-n), done*100/total,
		amount(int64(rate)), time.Duration(float64(total-done)/max(rate, 1)*float64(time.Second)).Round(time.Second))
}

// clear takes the bar off.
func (p *progress) clear() {
	if p.out != nil && !p.last.IsZero() {
		fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", 90))
	}
}
